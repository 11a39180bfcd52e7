"""Whole uniforms and the exp(-gamma) coin: exact, also where floating point would round."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest

from dpsql.sampling import CryptographicRandomness, bernoulli_exp, uniform_below

# Deviations beyond 6 standard deviations happen once in 5 * 10^8 checks.
ALARM = 6


def test_uniform_takes_every_value_as_often() -> None:
    source, n, draws = CryptographicRandomness(), 7, 14_000
    seen = Counter(uniform_below(n, source) for _ in range(draws))
    assert sorted(seen) == list(range(n))
    for count in seen.values():
        assert abs(count - draws / n) < ALARM * sqrt(draws / n)


def test_uniform_rejects_instead_of_folding(fixed_words: Any) -> None:
    # Three bits are asked for; 7 and 5 are not below 5, 4 is.
    assert uniform_below(5, fixed_words([7 << 61, 5 << 61, 4 << 61])) == 4


def test_uniform_below_one_needs_no_bits(fixed_words: Any) -> None:
    assert uniform_below(1, fixed_words([])) == 0


def test_uniform_beyond_one_word(fixed_words: Any) -> None:
    assert uniform_below(1 << 100, fixed_words([(1 << 64) - 1, (1 << 64) - 1])) == (1 << 100) - 1
    assert uniform_below((1 << 64) + 1, fixed_words([0, 1 << 63])) == 1 << 64


def test_uniform_refuses_an_empty_range(fixed_words: Any) -> None:
    with pytest.raises(ValueError, match="below 0"):
        uniform_below(0, fixed_words([]))


@pytest.mark.parametrize(
    ("score", "rate"),
    [(0, "1"), (7, "0"), (1, "1/999"), (2, "1/6"), (1, "1"), (5, "1/2"), (3, "0.333333333333333")],
)
def test_bernoulli_exp_has_the_right_bias(score: int, rate: str) -> None:
    draws, gamma = 10_000, Fraction(rate)
    p = exp(-score * gamma)
    heads = int(bernoulli_exp(np.full(draws, score), gamma, CryptographicRandomness()).sum())
    assert abs(heads - draws * p) <= ALARM * sqrt(draws * p * (1 - p))


def test_bernoulli_exp_of_a_huge_exponent_is_quick() -> None:
    coins = bernoulli_exp(np.array([1, 2**62]), Fraction(10**100), CryptographicRandomness())
    assert coins.tolist() == [False, False]


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1), Fraction(45)], ids=str)
def test_bits_next_to_the_bias(gamma: Fraction, fixed_words: Any) -> None:
    """The first bits of exp(-gamma), and one that differs far behind them: no fewer bits may decide."""
    with localcontext(prec=200):
        bits = int((-Decimal(gamma.numerator) / gamma.denominator).exp() * 2**256)
    for nudge, expected in ((-1, True), (1, False)):
        near = bits + (nudge << 40)
        words = [near >> 64 * place & (1 << 64) - 1 for place in (3, 2, 1, 0)]
        assert bernoulli_exp(np.array([1]), gamma, fixed_words([*words, 0, 0])).tolist() == [expected]


def test_bernoulli_exp_refuses_what_is_no_probability() -> None:
    for score, rate in ((-1, Fraction(1)), (1, Fraction(-1))):
        with pytest.raises(ValueError, match="not negative"):
            bernoulli_exp(np.array([score]), rate, CryptographicRandomness())

"""Whole uniforms and the exp(-gamma) coin: exact, also where floating point would round."""

from __future__ import annotations

from collections import Counter
from math import exp, sqrt
from typing import Any

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


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 999), (1, 3), (1, 1), (5, 2), (10**30 + 1, 10**30)])
def test_bernoulli_exp_has_the_right_bias(numerator: int, denominator: int) -> None:
    source, draws = CryptographicRandomness(), 10_000
    p = exp(-numerator / denominator)
    heads = sum(bernoulli_exp(numerator, denominator, source) for _ in range(draws))
    assert abs(heads - draws * p) <= ALARM * sqrt(draws * p * (1 - p))


def test_bernoulli_exp_of_a_huge_exponent_is_quick() -> None:
    assert not bernoulli_exp(10**100, 1, CryptographicRandomness())


def test_bernoulli_exp_follows_the_series(fixed_words: Any) -> None:
    # gamma = 1/2: the coins 1/2 and 1/4 succeed, 1/6 fails at 1: k = 3 is odd.
    assert bernoulli_exp(1, 2, fixed_words([0, 0, 1 << 61]))
    # The coin 1/2 succeeds, 1/4 fails: k = 2 is even.
    assert not bernoulli_exp(1, 2, fixed_words([0, 1 << 62]))


@pytest.mark.parametrize(("numerator", "denominator"), [(-1, 2), (1, 0), (1, -2)])
def test_bernoulli_exp_refuses_what_is_no_probability(numerator: int, denominator: int) -> None:
    with pytest.raises(ValueError, match="fraction >= 0"):
        bernoulli_exp(numerator, denominator, CryptographicRandomness())

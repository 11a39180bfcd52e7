"""Discrete Laplace draws: the right distribution, and the right integer for any bits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, expm1
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.sampling import CryptographicRandomness, discrete_laplace
from dpsql.sampling.laplace import _decide, _enclose, _offset

SCALES = [Fraction(1, 3), Fraction(1), Fraction(15, 2), Fraction(1000), Fraction(2**20), Fraction(2**30)]
ALL_ONES = (1 << 64) - 1

# There are no seeds to fix. With a cut this low the few dozen checks give a false alarm in fewer than 1 of 10^4 runs.
ALARM = 1e-6


def reference(sign: int, bits: str, scale: Fraction) -> int:
    """The draw for the uniform 0.bits (binary), from the definition, with digits in abundance."""
    with localcontext() as context:
        context.prec = 400
        b = Decimal(scale.numerator) / Decimal(scale.denominator)
        q = (-1 / b).exp()
        u = Decimal(int(bits, 2)) / Decimal(2 ** len(bits))
        magnitude = int(-b * u.ln() + b * (2 / (1 + q)).ln())
    return -magnitude if sign else magnitude


def check_distribution(scale: Fraction, n: int, p_value: Any) -> None:
    b = float(scale)
    draws = discrete_laplace(scale, n)
    assert p_value(draws, b, lambda t: np.exp(-t / b) / (1 + exp(-1 / b))) > ALARM
    if scale >= 1000:
        # Seen modulo 16 so wide a distribution is flat up to 10^-5; this looks at the lowest bits.
        assert stats.chisquare(np.bincount(draws % 16, minlength=16)).pvalue > ALARM


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_distribution(scale: Fraction, p_value: Any) -> None:
    check_distribution(scale, 200_000, p_value)


@pytest.mark.long
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_distribution_of_many(scale: Fraction, p_value: Any) -> None:
    check_distribution(scale, 2_000_000, p_value)


def test_neighbouring_draws_are_independent() -> None:
    draws = discrete_laplace(Fraction(1000), 200_000)
    table, *_ = np.histogram2d(draws[::2], draws[1::2], bins=[-np.inf, -693, 0, 693, np.inf])  # type: ignore[arg-type]
    assert stats.chi2_contingency(table).pvalue > ALARM


@pytest.mark.parametrize("scale", [*SCALES, Fraction(1, 40), Fraction(2**40), Fraction(10**40 + 1, 10**39)], ids=str)
def test_what_float64_decides_is_what_decimal_decides(scale: Fraction) -> None:
    source = CryptographicRandomness()
    words = source.words(1000)
    fast, undecided = _enclose(words, float(scale), float(_offset(scale, 64)))
    decided = np.flatnonzero(~undecided)
    assert len(decided) > 500
    for i in decided:
        assert fast[i] == _decide(int(words[i]), scale, source)


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("boundary", [1, 2, 5, 17])
@pytest.mark.parametrize("scale", [*SCALES[:3], Fraction(2**30 + 1, 7), Fraction(2**60)], ids=str)
def test_bits_next_to_a_boundary(scale: Fraction, boundary: int, sign: int, fixed_words: Any) -> None:
    """Bits that agree for one to four words with exp((c - k)/b), where k turns into k - 1, and then do not."""
    with localcontext() as context:
        context.prec = 400
        b = Decimal(scale.numerator) / Decimal(scale.denominator)
        k = boundary * max(1, int(scale))
        turning_point = (-k / b).exp() * 2 / (1 + (-1 / b).exp())
        expansion = format(int(turning_point * Decimal(2) ** 511), "0511b")
    for known in (63, 127, 191, 255):
        for rest in "01":
            bits = expansion[:known].ljust(511, rest)
            if "1" not in bits:
                continue  # U = 0 has no draw, and probability 0
            words = [sign << 63 | int(bits[:63], 2), *(int(bits[i : i + 64], 2) for i in range(63, 511, 64))]
            [drawn] = discrete_laplace(scale, 1, fixed_words(words))
            expected = reference(sign, bits, scale)
            assert drawn == (expected + 2**63) % 2**64 - 2**63
            assert known < 191 or abs(expected) in (k - 1, k)


def test_extreme_words(fixed_words: Any) -> None:
    scale = Fraction(10)
    # U next to 1: no noise.
    assert list(discrete_laplace(scale, 2, fixed_words([ALL_ONES, ALL_ONES >> 1]))) == [0, 0]
    # 63 zero bits say only that U is tiny; the next words say how tiny.
    [far] = discrete_laplace(scale, 1, fixed_words([0, 0, 1 << 63]))
    assert far == reference(0, "0" * 127 + "1", scale)
    [far] = discrete_laplace(scale, 1, fixed_words([1 << 63, 0, 1 << 63]))
    assert far == reference(1, "0" * 127 + "1", scale)


def test_tiny_scales_give_zero() -> None:
    for scale in (Fraction(1, 10**12), Fraction(1, 10**30), Fraction(1, 10**400)):
        assert not discrete_laplace(scale, 100_000).any()


@pytest.mark.parametrize("scale", [2**40, 2**60])
def test_huge_scales(scale: int, p_value: Any) -> None:
    # At 2^60 one draw in 1500 leaves 64 bits and wraps; the 6 scales that are binned lie within them.
    draws = discrete_laplace(Fraction(scale), 4000)
    assert p_value(draws, scale, lambda t: np.exp(-t / scale) / 2) > ALARM
    assert stats.chisquare(np.bincount(draws % 8, minlength=8)).pvalue > ALARM


def test_noise_beyond_64_bits_wraps(fixed_words: Any) -> None:
    scale = Fraction(2**60)
    [drawn] = discrete_laplace(scale, 1, fixed_words([1, 0, 0, 0]))
    exact = reference(0, "1".zfill(63) + "0" * 192, scale)
    assert exact > 2**63
    assert (int(drawn) - exact) % 2**64 == 0


def test_long_fractions() -> None:
    draws = discrete_laplace(Fraction(10**300 + 7, 3 * 10**299), 10_000)
    assert 0.8 < np.std(draws) / 4.7 < 1.2


@pytest.mark.parametrize("n", [0, 1, 16384, 16385])
def test_any_number_of_draws(n: int) -> None:
    draws = discrete_laplace(Fraction(5), n)
    assert draws.shape == (n,)
    assert draws.dtype == np.int64


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**62 + 1)])
def test_refuses_other_scales(scale: Fraction) -> None:
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(scale, 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 7, 100])
def test_private_without_delta(epsilon: float, sensitivity: int) -> None:
    """Between x and x + sensitivity no outcome's probability changes by more than a factor e^epsilon."""
    b = sensitivity / epsilon
    k = np.arange(-20 * sensitivity, 21 * sensitivity + 1)

    def pmf(values: NDArray[np.int64]) -> NDArray[np.float64]:
        return -expm1(-1 / b) / (1 + exp(-1 / b)) * np.exp(-np.abs(values) / b)

    here, there = pmf(k), pmf(k - sensitivity)
    assert np.all(here <= exp(epsilon) * there * (1 + 1e-12))
    assert np.all(there <= exp(epsilon) * here * (1 + 1e-12))

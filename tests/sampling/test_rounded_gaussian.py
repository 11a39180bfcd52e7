"""Rounded Gaussian draws: the right distribution, and the right integers for any bits."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsql.sampling import CryptographicRandomness, rounded_gaussian
from dpsql.sampling.gaussian import _decide, _enclose
from dpsql.sampling.randomness import cos_sin

SIGMAS = [Fraction(1, 3), Fraction(1), Fraction(15, 2), Fraction(1000), Fraction(2**20), Fraction(2**30)]
ALL_ONES = (1 << 64) - 1

# There are no seeds to fix. With a cut this low the few dozen checks give a false alarm in fewer than 1 of 10^4 runs.
ALARM = 1e-6


def reference(radius_bits: str, angle_bits: str, sigma: Fraction) -> tuple[int, int]:
    """The draws for the uniforms 0.radius_bits and 0.angle_bits (binary), from the definition, with ample digits."""
    with localcontext() as context:
        context.prec = 400
        s = Decimal(sigma.numerator) / Decimal(sigma.denominator)
        u = Decimal(int(radius_bits, 2)) / Decimal(2 ** len(radius_bits))
        cosine, sine = cos_sin(Decimal(int(angle_bits, 2)) / Decimal(2 ** len(angle_bits)))
        r = s * (-2 * u.ln()).sqrt()
        half = Decimal("0.5")
        x, y = ((r * d + half).to_integral_value(ROUND_FLOOR) for d in (cosine, sine))
    return int(x), int(y)


def check_distribution(sigma: Fraction, n: int, p_value: Any) -> None:
    s = float(sigma)
    draws = rounded_gaussian(sigma, n)
    assert p_value(draws, s, lambda t: stats.norm.sf((t - 0.5) / s)) > ALARM
    if sigma >= 1000:
        assert stats.chisquare(np.bincount(draws % 16, minlength=16)).pvalue > ALARM


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_distribution(sigma: Fraction, p_value: Any) -> None:
    check_distribution(sigma, 200_000, p_value)


@pytest.mark.long
@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_distribution_of_many(sigma: Fraction, p_value: Any) -> None:
    check_distribution(sigma, 2_000_000, p_value)


def test_the_two_draws_of_a_pair_are_independent() -> None:
    x, y = np.concatenate([rounded_gaussian(Fraction(1000), 10_000).reshape(2, -1) for _ in range(20)], axis=1)
    table, *_ = np.histogram2d(x, y, bins=[-np.inf, -1500, -674, 0, 674, 1500, np.inf])  # type: ignore[arg-type]
    assert stats.chi2_contingency(table).pvalue > ALARM


@pytest.mark.parametrize("sigma", [*SIGMAS, Fraction(1, 40), Fraction(2**36), Fraction(10**40 + 1, 10**39)], ids=str)
def test_what_float64_decides_is_what_decimal_decides(sigma: Fraction) -> None:
    source = CryptographicRandomness()
    words = source.words(600).reshape(2, -1)
    fast, undecided = _enclose(words, float(sigma))
    decided = np.flatnonzero(~undecided)
    assert len(decided) > 200
    for i in decided:
        assert tuple(fast[:, i]) == _decide(int(words[0, i]), int(words[1, i]), sigma, source)


@pytest.mark.parametrize("turns", ["001", "0001", "01111", "1011"])
@pytest.mark.parametrize("boundary", [1, 2, 4])
@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(15, 2), Fraction(2**30 + 1, 7), Fraction(2**60)], ids=str)
def test_bits_next_to_a_boundary(sigma: Fraction, boundary: int, turns: str, fixed_words: Any) -> None:
    """A fixed angle, and a radius that puts the first draw on k - 1/2 for one to four words, and then does not."""
    angle_bits = turns.ljust(512, "0")
    with localcontext() as context:
        context.prec = 400
        cosine, _ = cos_sin(Decimal(int(angle_bits, 2)) / Decimal(2**512))
        k = boundary * max(1, int(sigma)) * (1 if cosine > 0 else -1)
        z = (k - Decimal("0.5")) * sigma.denominator / sigma.numerator / cosine
        expansion = format(int((-z * z / 2).exp() * Decimal(2) ** 511), "0511b")
    for known in (63, 127, 191, 255):
        for rest in "01":
            bits = expansion[:known].ljust(511, rest)
            if "1" not in bits:
                continue  # U = 0 has no draw, and probability 0
            radius_words = [int(bits[:63], 2), *(int(bits[i : i + 64], 2) for i in range(63, 511, 64))]
            angle_words = [int(angle_bits[i : i + 64], 2) for i in range(0, 512, 64)]
            words = [word for pair in zip(radius_words, angle_words, strict=True) for word in pair]
            drawn = rounded_gaussian(sigma, 2, fixed_words(words))
            expected = reference(bits, angle_bits, sigma)
            assert [(x + 2**63) % 2**64 - 2**63 for x in expected] == list(drawn)
            assert known < 191 or expected[0] in (k - 1, k)


@pytest.mark.parametrize("boundary", [1, 2, 3, 4])
@pytest.mark.parametrize("sigma", [Fraction(15, 2), Fraction(2**45)], ids=str)
def test_angles_next_to_a_boundary(sigma: Fraction, boundary: int, fixed_words: Any) -> None:
    """A fixed radius, and an angle that puts the first draw on k - 1/2 for one to three words, and then does not."""
    radius_bits = "1".ljust(255, "0")
    with localcontext() as context:
        context.prec = 120
        r = Decimal(sigma.numerator) / sigma.denominator * (2 * Decimal(2).ln()).sqrt()
        lowest, highest = 0, 1 << 254  # the cosine falls from 1 to 0 over a quarter turn of 2^256 parts
        while highest - lowest > 1:
            middle = (lowest + highest) // 2
            above = r * cos_sin(Decimal(middle) / Decimal(1 << 256))[0] > boundary - Decimal("0.5")
            lowest, highest = (middle, highest) if above else (lowest, middle)
    for known in (64, 128, 192):
        for rest in "01":
            angle_bits = format(lowest, "0256b")[:known].ljust(256, rest)
            angle_words = [int(angle_bits[i : i + 64], 2) for i in range(0, 256, 64)]
            words = [word for pair in zip([1 << 62, 0, 0, 0], angle_words, strict=True) for word in pair]
            drawn = rounded_gaussian(sigma, 2, fixed_words(words))
            assert tuple(drawn) == reference(radius_bits, angle_bits, sigma)
            assert known < 128 or drawn[0] == boundary - int(rest)


def test_extreme_words(fixed_words: Any) -> None:
    sigma = Fraction(10)
    # U next to 1: no noise.
    assert list(rounded_gaussian(sigma, 2, fixed_words([ALL_ONES, 1 << 61]))) == [0, 0]
    # 63 zero bits say only that U is tiny; the next words say how tiny.
    drawn = rounded_gaussian(sigma, 2, fixed_words([0, 1 << 60, 1 << 62, 0, 0, 0]))
    assert tuple(drawn) == reference("0" * 64 + "1", "0001", sigma)


@pytest.mark.parametrize("power", range(10, 60, 3))
def test_short_radii(power: int, fixed_words: Any) -> None:
    """Next to U = 1 a float64 knows little of R; the draws must not."""
    radius_word = (1 << 63) - (1 << 63 - power) + 5
    drawn = rounded_gaussian(Fraction(2**36), 2, fixed_words([radius_word, 1 << 60, 0, 0, 0, 0]))
    assert tuple(drawn) == reference(format(radius_word, "063b"), "0001", Fraction(2**36))


def test_tiny_sigmas_give_zero() -> None:
    for sigma in (Fraction(1, 10**12), Fraction(1, 10**30), Fraction(1, 10**400)):
        assert not rounded_gaussian(sigma, 100_000).any()


@pytest.mark.parametrize("sigma", [2**40, 2**60])
def test_huge_sigmas(sigma: int, p_value: Any) -> None:
    draws = rounded_gaussian(Fraction(sigma), 4000)
    assert p_value(draws, sigma, lambda t: stats.norm.sf(t / sigma)) > ALARM
    assert stats.chisquare(np.bincount(draws % 8, minlength=8)).pvalue > ALARM


def test_noise_beyond_64_bits_wraps(fixed_words: Any) -> None:
    sigma = Fraction(2**61)
    drawn = rounded_gaussian(sigma, 2, fixed_words([1, 0, 0, 0, 0, 0, 0, 0]))
    exact, _ = reference("1".zfill(63), "0", sigma)
    assert exact > 2**63
    assert (int(drawn[0]) - exact) % 2**64 == 0


@pytest.mark.parametrize("n", [0, 1, 2, 16384, 16385])
def test_any_number_of_draws(n: int) -> None:
    draws = rounded_gaussian(Fraction(5), n)
    assert draws.shape == (n,)
    assert draws.dtype == np.int64


@pytest.mark.parametrize("sigma", [Fraction(0), Fraction(-1), Fraction(2**62 + 1)])
def test_refuses_other_sigmas(sigma: Fraction) -> None:
    with pytest.raises(ValueError, match="scale"):
        rounded_gaussian(sigma, 1)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("sensitivity", [1, 3, 50])
def test_hockey_stick_stays_below_the_gaussian_curve(epsilon: float, mu: float, sensitivity: int) -> None:
    """sum of max(0, P[x] - e^epsilon P[x']) over all outcomes, against delta(epsilon) of mu-GDP."""
    sigma = sensitivity / mu
    reach = int(40 * sigma) + sensitivity
    k = np.arange(-reach, reach + 1)

    def pmf(centre: int) -> Any:
        low, high = (k - centre - 0.5) / sigma, (k - centre + 0.5) / sigma
        return np.where(low > 0, stats.norm.sf(low) - stats.norm.sf(high), stats.norm.cdf(high) - stats.norm.cdf(low))

    divergence = np.maximum(0, pmf(sensitivity) - exp(epsilon) * pmf(0)).sum()
    allowed = stats.norm.cdf(-epsilon / mu + mu / 2) - exp(epsilon) * stats.norm.cdf(-epsilon / mu - mu / 2)
    assert divergence <= allowed * (1 + 1e-9) + 1e-15

"""Real noise, rounded: the right distribution, and the right integer for any bits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsql.sampling import CryptographicRandomness, rounded_real
from dpsql.sampling.gaussian import MOST_RELIABLE, Cauchy, Standard, StandardLaplace
from dpsql.sampling.randomness import LEAST_RELIABLE, cos_sin, precise

KINDS: list[tuple[type[Standard], Any]] = [(Cauchy, stats.cauchy), (StandardLaplace, stats.laplace)]
WIDE = 10**30


@pytest.mark.parametrize(("kind", "ideal"), KINDS)
def test_distribution(kind: type[Standard], ideal: Any) -> None:
    """A center between whole numbers, and a scale of 7.4."""
    source, draws = CryptographicRandomness(), 1500
    center, scale = Fraction(10, 3), Fraction(37, 5)
    drawn = np.array([rounded_real(center, scale, kind, -WIDE, WIDE, source) for _ in range(draws)], dtype=float)
    edges = np.array([-40.0, -20, -10, -6, -3, -1, 1, 2, 3, 4, 5, 7, 9, 12, 16, 25, 45])
    cumulative = np.concatenate(([0], ideal.cdf((edges - 0.5 - 10 / 3) / float(scale)), [1]))
    observed = np.bincount(np.searchsorted(edges, drawn, side="right"), minlength=len(edges) + 1)
    assert stats.chisquare(observed, np.diff(cumulative) * draws, sum_check=False).pvalue > 1e-6


def reference(kind: type[Standard], bits: str, sign: int) -> Decimal:
    """Z for the uniform 0.bits (binary)."""
    u = Decimal(int(bits, 2)) / Decimal(2 ** len(bits))
    if kind is Cauchy:
        cosine, sine = cos_sin(u / 2)
        return cosine / sine
    return -u.ln() * (-1 if sign else 1)


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("whole", [1, 2, 40])
@pytest.mark.parametrize("kind", [Cauchy, StandardLaplace])
def test_bits_next_to_a_boundary(kind: type[Standard], whole: int, sign: int, fixed_words: Any) -> None:
    """A center that puts the rounding boundary exactly next to what these bits say: no fewer bits may decide."""
    bits = "01" * 31 + "1" + "0011" * 112
    with localcontext() as context:
        context.prec = 300
        z = reference(kind, bits, sign)
        near = Fraction(z * whole)
    words = [sign << 63 | int(bits[:63], 2), *(int(bits[i : i + 64], 2) for i in range(63, 511, 64))]
    for digits in (5, 30, 60, 120):
        nudge = Fraction(1, 10**digits)
        for side in (-1, 1):
            center = Fraction(1, 2) - near + side * nudge
            source = fixed_words(words)
            assert rounded_real(center, Fraction(whole), kind, -WIDE, WIDE, source) == (1 if side > 0 else 0)
            revealed = 8 - len(source.left)
            assert revealed >= digits // 20


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_what_float64_decides_of_real_noise(kind: type[Standard]) -> None:
    """Its estimates, of draws in the middle and next to both ends, lie as near to the truth as they say."""
    source = CryptographicRandomness()
    for i in range(300):
        z = kind(source)
        if i % 3 == 1:
            z.uniform.numerator = LEAST_RELIABLE + (z.uniform.numerator >> 16)
        elif i % 3 == 2:
            z.uniform.numerator = MOST_RELIABLE - (z.uniform.numerator >> 16)
        else:
            z.uniform.numerator = min(max(z.uniform.numerator, LEAST_RELIABLE), MOST_RELIABLE)
        assert z.trusted
        told, radius = z.estimate()
        with precise(64):
            ends = z.enclosure()
            assert ends is not None
            assert max(abs(end - Decimal(told)) for end in ends) <= Decimal(radius)


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_held_within_the_bounds(kind: type[Standard], fixed_words: Any) -> None:
    """The first bits of a huge draw decide when all that it can be is beyond the bound."""
    assert rounded_real(Fraction(0), Fraction(10**9), kind, -5, 5, fixed_words([1 << 20, 0])) == 5
    drawn = {rounded_real(Fraction(0), Fraction(10**9), kind, -5, 5) for _ in range(60)}
    assert drawn == {-5, 5}


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_extreme_words(kind: type[Standard], fixed_words: Any) -> None:
    """63 zero bits say only that Z is huge; the next word says how huge."""
    words = [0, 0, 1 << 63, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert rounded_real(Fraction(0), Fraction(1, 10**3), kind, -WIDE, WIDE, fixed_words(words)) >= 0
    ones = (1 << 64) - 1
    assert abs(rounded_real(Fraction(1, 3), Fraction(1), StandardLaplace, -9, 9, fixed_words([ones] * 4))) == 0


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_without_scale_the_answer_is_rounded(kind: type[Standard]) -> None:
    for center, rounded in ((Fraction(7), 7), (Fraction(15, 2), 8), (Fraction(-22, 3), -7), (Fraction(99), 10)):
        assert rounded_real(center, Fraction(0), kind, -10, 10) == rounded

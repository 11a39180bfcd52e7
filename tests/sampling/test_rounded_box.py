"""Noise drawn for a box: the right distribution, one radius for all, and the right integers for any bits."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsql.sampling import CryptographicRandomness, rounded_box
from dpsql.sampling.k_norm import _decide, _enclose

# There are no seeds to fix. With a cut this low the few dozen checks give a false alarm in fewer than 1 of 10^4 runs.
ALARM = 1e-6
ALL_ONES = (1 << 64) - 1


def coordinate_tail(d: int, x: Any) -> Any:
    """P[R U >= x]: half the mean of the tails of Gamma(1), ..., Gamma(d)."""
    return sum(stats.gamma.sf(x, n) for n in range(1, d + 1)) / (2 * d)


def reference(words: list[str], scales: list[Fraction]) -> list[int]:
    """The draws for uniforms 0.words (binary, the places with a sign before them), from the definition."""
    with localcontext() as context:
        context.prec = 400
        r = -sum((Decimal(int(bits, 2)) / Decimal(2 ** len(bits))).ln() for bits in words[: -len(scales)])
        found = []
        for bits, scale in zip(words[-len(scales) :], scales, strict=True):
            u = Decimal(int(bits[1:], 2)) / Decimal(2 ** (len(bits) - 1)) * (-1 if bits[0] == "1" else 1)
            exact = Decimal(scale.numerator) / Decimal(scale.denominator) * r * u + Decimal("0.5")
            found.append(int(exact.to_integral_value(ROUND_FLOOR)))
    return found


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), Fraction(1), Fraction(15, 2), Fraction(1000), Fraction(2**30)], ids=str
)
@pytest.mark.parametrize("d", [1, 2, 7])
def test_each_coordinate(d: int, scale: Fraction, p_value: Any) -> None:
    s = float(scale)
    for draws in rounded_box([scale] * d, d, 100_000)[:2]:
        assert p_value(draws, s * d, lambda t: coordinate_tail(d, (t - 0.5) / s)) > ALARM
        if scale >= 1000:
            assert stats.chisquare(np.bincount(draws % 16, minlength=16)).pvalue > ALARM


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_the_whole_vector(d: int) -> None:
    """The density depends on the largest coordinate alone: that is Gamma(d), and all else is uniform on the box."""
    scales = [Fraction(10**6 * (i + 1)) for i in range(d)]
    drawn = rounded_box(scales, d, 50_000) / np.array([float(scale) for scale in scales])[:, None]
    largest = np.abs(drawn).max(axis=0)
    assert stats.kstest(largest, "gamma", (d,)).pvalue > ALARM
    which = np.bincount(np.abs(drawn).argmax(axis=0), minlength=d)
    assert d == 1 or stats.chisquare(which).pvalue > ALARM
    for i in range(d):
        others = np.abs(drawn).argmax(axis=0) != i
        assert d == 1 or stats.kstest(drawn[i, others] / largest[others], "uniform", (-1, 2)).pvalue > ALARM


def test_part_of_a_box_has_the_radius_of_the_whole(p_value: Any) -> None:
    (draws,) = rounded_box([Fraction(1000)], 5, 100_000)
    assert p_value(draws, 5000, lambda t: coordinate_tail(5, (t - 0.5) / 1000)) > ALARM


def test_columns_are_independent() -> None:
    (draws,) = np.abs(rounded_box([Fraction(1000)], 1, 200_000))
    first, second = draws[::2], draws[1::2]
    table, *_ = np.histogram2d(first, second, bins=[-1, 300, 700, 1200, 2000, np.inf])  # type: ignore[arg-type]
    assert stats.chi2_contingency(table).pvalue > ALARM


@pytest.mark.parametrize(
    "scale", [Fraction(1, 40), Fraction(1), Fraction(1000), Fraction(2**28), Fraction(10**40, 3**70)]
)
@pytest.mark.parametrize("d", [1, 2, 12])
def test_what_float64_decides_is_what_decimal_decides(d: int, scale: Fraction) -> None:
    source = CryptographicRandomness()
    scales = [scale * (i + 1) for i in range(d)]
    words = source.words((2 * d + 1) * 100).reshape(-1, 100)
    fast, undecided = _enclose(words[: d + 1], words[d + 1 :], np.array([float(s) for s in scales])[:, None])
    decided = np.flatnonzero(~undecided)
    assert len(decided) > 50
    for i in decided:
        assert list(fast[:, i]) == _decide([int(word) for word in words[:, i]], scales, source)


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(15, 2), Fraction(2**30 + 1, 7), Fraction(2**60)], ids=str)
@pytest.mark.parametrize("sign", "01")
def test_bits_next_to_a_boundary(scale: Fraction, sign: str, fixed_words: Any) -> None:
    """R = 2 ln 2 and a place that puts the draw on k + 1/2 for one to four words, and then does not."""
    radius = "1".ljust(511, "0")
    with localcontext() as context:
        context.prec = 400
        reach = 2 * Decimal(2).ln() * scale.numerator / scale.denominator
        k = int(reach * Decimal("0.7"))
        place = format(int((k + Decimal("0.5")) / reach * Decimal(2) ** 511), "0511b")
    for known in (63, 127, 191, 255):
        for rest in "01":
            bits = sign + place[:known].ljust(511, rest)
            all_bits = [radius, radius, bits]
            words = [int(text[:64] if text is bits else "0" + text[:63], 2) for text in all_bits]
            for start in range(64, 511, 64):
                words += [int((text if text is bits else "0" + text)[start : start + 64], 2) for text in all_bits]
            (drawn,) = rounded_box([scale], 1, 1, fixed_words(words))
            assert [(x + 2**63) % 2**64 - 2**63 for x in reference(all_bits, [scale])] == list(drawn)
            assert known < 191 or abs(int(drawn[0])) % 2**64 in (k, k + 1)


def test_extreme_words(fixed_words: Any) -> None:
    """U next to 0 and 1, and 63 zero bits of a radius that say only that it is long; the next words say how long."""
    scale = Fraction(10)
    assert list(rounded_box([scale], 1, 1, fixed_words([ALL_ONES, ALL_ONES, ALL_ONES]))[0]) == [0]
    assert list(rounded_box([scale], 1, 1, fixed_words([1 << 61, 1 << 61, 1 << 63]))[0]) == [0]
    words = [0, 1 << 62, ALL_ONES, 1 << 62, 0, 0, 0, 0, 0]
    expected = reference(["0" * 64 + "1", "1", "1" * 64 + "0"], [scale])
    assert list(rounded_box([scale], 1, 1, fixed_words(words))[0]) == expected == [-457]


def test_tiny_and_huge_scales() -> None:
    for scale in (Fraction(1, 10**12), Fraction(1, 10**400)):
        assert not rounded_box([scale, scale], 2, 10_000).any()
    for draws in rounded_box([Fraction(2**56)] * 2, 2, 400):
        assert stats.chisquare(np.bincount(draws % 8, minlength=8)).pvalue > ALARM
        assert abs(np.std(draws.astype(float)) / 2**57 - 1) < 0.5


@pytest.mark.parametrize(("scales", "dimension"), [([], 1), ([0], 1), ([1, 1], 1), ([2**63], 1)])
def test_what_is_no_box_is_refused(scales: list[int], dimension: int) -> None:
    with pytest.raises(ValueError, match="scale"):
        rounded_box([Fraction(scale) for scale in scales], dimension, 1)

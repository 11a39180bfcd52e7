"""Intervals of counts that select their groups hold for the groups that are shown, whatever their size."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.additive import Box, Noise
from dpsql.mechanisms.bootstrap import PLACES, REPLICATES, redrawn, redrawn_if_shown
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.k_norm import KNormNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.selective import ShownCount
from dpsql.sampling import RepeatableRandomness

NOISES: list[Noise] = [
    LaplaceNoise(Fraction(2)),
    LaplaceNoise(Fraction(15)),
    GaussianNoise(Fraction(4)),
    GaussianNoise(Fraction(30)),
    KNormNoise(Fraction(8), Box(3)),
]
LEVEL = 0.95


def chances(noise: Noise, count: int, values: np.ndarray) -> np.ndarray:
    """P[count + X = value]."""

    def beyond(t: np.ndarray) -> np.ndarray:
        tail = noise.survival(np.maximum(t, 1 - t).astype(float))
        return np.where(t > 0, tail, 1 - tail)

    return beyond(values - count) - beyond(values + 1 - count)


def held(noise: Noise, least: int, count: int) -> tuple[float, float]:
    """The exact coverage of a group that is shown; and what it would be with the interval of a public group."""
    shown, width = ShownCount(noise, least), noise.half_width(LEVEL)
    reach = noise.half_width(1 - Fraction(1, 10**9))
    values = np.arange(least, max(least, count) + 2 * reach)
    weights = chances(noise, count, values)
    inside = [
        low <= count <= high
        for low, high in (
            shown.interval(value, LEVEL) if shown.is_near(value, LEVEL) else (value - width, value + width)
            for value in values.tolist()
        )
    ]
    ordinary = np.abs(values - count) <= width
    total = weights.sum()
    return float(weights[inside].sum() / total), float(weights[ordinary].sum() / total)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("least_width", [2, 4])
def test_it_holds_for_the_groups_that_are_shown(noise: Noise, least_width: int) -> None:
    width = noise.half_width(LEVEL)
    least = least_width * width
    for count in range(0, least + 4 * width, max(1, width // 4)):
        found, _ = held(noise, least, count)
        assert found >= 0.9485, (count, found)
    assert held(noise, least, least // 2)[1] < 0.5  # which is what this is for


def test_far_from_the_threshold_nothing_changes() -> None:
    noise = GaussianNoise(Fraction(10))
    count = ShownCount(noise, 50)
    low, high = count.interval(500, LEVEL)
    assert (500 - low, high - 500) == (noise.half_width(LEVEL),) * 2
    assert not count.is_near(500, LEVEL)


def test_a_high_minimum_leaves_the_range_of_doubles() -> None:
    """A group of 10,000 noise widths: far down no tail can be computed, and nothing is claimed there."""
    low, high = ShownCount(GaussianNoise(Fraction(1)), 10_000).interval(10_000, LEVEL)
    assert (low, high) == (0, 10_002)


def test_replicas_are_the_plausible_counts() -> None:
    """In order and never negative; about 1 in 40 lies beyond each end of the interval."""
    for noise in NOISES:
        count = ShownCount(noise, 4 * noise.half_width(LEVEL))
        for value in range(count.least, count.least + 3 * noise.half_width(LEVEL), 7):
            low, high = count.interval(value, LEVEL)
            found = count.quantiles(value, PLACES)
            assert found.min() >= 0
            assert (np.diff(found) >= 0).all()
            assert np.sum(found < low) <= 5
            assert np.sum(found > high) <= 5


def test_only_rows_near_the_threshold_are_drawn_again() -> None:
    noise = LaplaceNoise(Fraction(5))
    count, values = ShownCount(noise, 60), np.array([61, 300, 61])
    (drawn,) = redrawn([noise], 3, RepeatableRandomness(b"seed"))
    found = redrawn_if_shown(count, values, drawn)
    assert (found[:, 1] == drawn[:, 1]).all()
    assert found.shape == (REPLICATES, 3)
    assert (np.sort(found[:, 0]) == np.sort(found[:, 2])).all()
    assert (found[:, 0] != found[:, 2]).any()  # each row in an order of its own
    assert np.median(found[:, 0]) < 0

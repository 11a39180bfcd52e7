"""docs/proofs/average.md: how near the noise of an average is to the least there is, and what two rounds would give."""

import math

import numpy as np
import pytest

from dpsql.pipeline.allocate import least_geometric_mean

HALF_WIDTH = 1.0
DRAWS = 100_000


def part_of_the_count() -> float:
    """For an average that may lie anywhere: the square of its distance from the middle is a third on average."""
    variances = np.array([[HALF_WIDTH**2 / 3, HALF_WIDTH**2]])
    return float(least_geometric_mean(variances, [1], 1, [(0, 0), (1, 0)])[0])


def over_the_least(distance: float) -> float:
    part = part_of_the_count()
    return (HALF_WIDTH**2 / (1 - part) + distance**2 / part) / (HALF_WIDTH + distance) ** 2


def test_how_far_from_the_least():
    assert part_of_the_count() == pytest.approx(1 / (1 + math.sqrt(3)), abs=1e-6)
    assert over_the_least(0) == pytest.approx(1.577, abs=1e-3)
    assert over_the_least(1 / math.sqrt(3)) == pytest.approx(1, abs=1e-9)
    assert over_the_least(1) == pytest.approx(1.077, abs=1e-3)


def quotient(total, count):
    return np.where(count > 0, np.clip(total / np.where(count > 0, count, 1), -HALF_WIDTH, HALF_WIDTH), 0)


def measured(random, rows, distance, budget):
    """The noisy count and centred sum at a part of mu^2 = 1, and how exact each of them is."""
    part = part_of_the_count()
    precisions = budget * part, budget * (1 - part) / HALF_WIDTH**2
    count, total = (
        exact + random.normal(size=DRAWS) / math.sqrt(precision)
        for exact, precision in zip((rows, rows * distance), precisions, strict=True)
    )
    return count, total, precisions


def error_of_one_round(random, rows, distance):
    count, total, _ = measured(random, rows, distance, 1)
    return math.sqrt(np.mean((quotient(total, count) - distance) ** 2))


def error_of_two_rounds(random, rows, distance, first=0.25):
    """The second measures T - y N at the first answer y, and all three are put together by least squares."""
    count, total, (of_count, of_total) = measured(random, rows, distance, first)
    y = quotient(total, count)
    width = HALF_WIDTH + np.abs(y)
    precision = (1 - first) / width**2
    second = rows * (distance - y) + random.normal(size=DRAWS) / np.sqrt(precision)
    a, b, d = of_count + precision * y**2, -precision * y, of_total + precision
    above, below = of_count * count - precision * y * second, of_total * total + precision * second
    found = quotient(a * below - b * above, d * above - b * below)
    return math.sqrt(np.mean((found - distance) ** 2))


CASES = [(1000, 0, 0.84), (1000, 0.2, 0.94), (1000, 0.5, 1.0), (1000, 0.8, 0.99), (10, 0, 1.08)]


@pytest.mark.parametrize(("rows", "distance", "ratio"), CASES)
def test_what_two_rounds_would_give(rows, distance, ratio):
    random = np.random.default_rng(7)
    seen = error_of_two_rounds(random, rows, distance) / error_of_one_round(random, rows, distance)
    assert seen == pytest.approx(ratio, abs=0.02)

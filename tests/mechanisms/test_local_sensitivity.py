"""Local sensitivity, against what it bounds: every neighbour of every tiny database, up to three units away."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from math import ceil, exp, log
from typing import Any

import numpy as np
import pytest

from dpsql.mechanisms.exponential import QuantileFraction
from dpsql.mechanisms.local_sensitivity import (
    AverageSensitivity,
    CrossJoin,
    LocalSensitivity,
    OrderStatistic,
    order_statistic,
    smooth_reach,
    target_rank,
)

GRID = (0, 1, 4)
Rows = tuple[int, ...]


def check(
    databases: Iterable[Any],
    neighbours: Callable[[Any], Iterable[Any]],
    answer: Callable[[Any], Fraction | int],
    bounds: Callable[[Any], LocalSensitivity],
    farthest: int = 3,
) -> None:
    """LS at distance k <= U_k, and U_k(x) <= U_(k+1)(x'), by enumeration."""
    near = cache(lambda x: tuple(neighbours(x)))

    @cache
    def local(x: Hashable, k: int) -> Fraction | int:
        """The largest change by one unit at any database within k units of x."""
        if k == 0:
            return max(abs(answer(x) - answer(y)) for y in near(x))
        return max(local(x, k - 1), *(local(y, k - 1) for y in near(x)))

    for x in databases:
        mine = bounds(x)
        for k in range(farthest + 1):
            assert local(x, k) <= mine.at(k), (x, k)
            assert mine.at(k) <= mine.at(k + 1)
            for y in near(x):
                assert mine.at(k) <= bounds(y).at(k + 1), (x, y, k)


def all_rows(most: int) -> list[Rows]:
    return [rows for size in range(most + 1) for rows in combinations_with_replacement(GRID, size)]


def changed(rows: Rows, rows_per_unit: int) -> set[Rows]:
    """Any unit comes, or any rows go that could be a unit's."""
    found = set()
    for size in range(1, rows_per_unit + 1):
        found |= {tuple(sorted(rows + unit)) for unit in combinations_with_replacement(GRID, size)}
        for kept in combinations_with_replacement(range(len(rows)), size):
            if len(set(kept)) == size:
                found.add(tuple(value for i, value in enumerate(rows) if i not in kept))
    return found


@pytest.mark.parametrize(
    "share",
    [
        QuantileFraction(0, 1),
        QuantileFraction(1, 4),
        QuantileFraction(1, 2),
        QuantileFraction(2, 3),
        QuantileFraction(9, 10),
        QuantileFraction(1, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows_per_unit", [1, 2])
def test_order_statistic(share: QuantileFraction, rows_per_unit: int) -> None:
    def bounds(rows: Rows) -> OrderStatistic:
        target = int(target_rank(share, np.array([len(rows)]))[0])
        return order_statistic(np.array(rows), 1, len(rows), target, 6, rows_per_unit, GRID[0], GRID[-1])

    def answer(rows: Rows) -> int:
        mine = bounds(rows)
        return int(mine.values[len(mine.values) // 2])

    check(all_rows(6 - rows_per_unit), lambda rows: changed(rows, rows_per_unit), answer, bounds)


@pytest.mark.parametrize("reach", [0, 1, 2])
def test_a_short_window_errs_to_the_safe_side(reach: int) -> None:
    def bounds(rows: Rows) -> OrderStatistic:
        target = int(target_rank(QuantileFraction(1, 2), np.array([len(rows)]))[0])
        return order_statistic(np.array(rows), 1, len(rows), target, reach, 1, GRID[0], GRID[-1])

    def answer(rows: Rows) -> int:
        return [GRID[0], *rows, GRID[-1]][int(target_rank(QuantileFraction(1, 2), np.array([len(rows)]))[0])]

    check(all_rows(4), lambda rows: changed(rows, 1), answer, bounds)


@pytest.mark.parametrize("of_nothing", [0, 2, 4])
@pytest.mark.parametrize("rows_per_unit", [1, 2])
def test_average(rows_per_unit: int, of_nothing: int) -> None:
    check(
        all_rows(6),
        lambda rows: changed(rows, rows_per_unit),
        lambda rows: Fraction(sum(rows), len(rows)) if rows else Fraction(of_nothing),
        lambda rows: AverageSensitivity(len(rows), rows_per_unit, GRID[0], GRID[-1]),
    )


Keys = tuple[int, int]  # how many rows have each of two keys


def splits(most: int) -> list[Keys]:
    return [(i, j) for i in range(most + 1) for j in range(most + 1 - i)]


@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 1), (0, 1)])
@pytest.mark.parametrize("value", [1, 3])
def test_cross_join(left: int, right: int, value: int) -> None:
    units = [a + b for a, b in product(splits(left), splits(right)) if any(a + b)]

    def neighbours(x: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
        for unit in units:
            yield tuple(n + m for n, m in zip(x, unit, strict=True))
            fewer = tuple(n - m for n, m in zip(x, unit, strict=True))
            if min(fewer) >= 0:
                yield fewer

    check(
        product(range(3), repeat=4),
        neighbours,
        lambda x: value * (x[0] * x[2] + x[1] * x[3]),
        lambda x: CrossJoin(left, right, max(x[:2]), max(x[2:]), value),
        farthest=2,
    )


@pytest.mark.parametrize("rows_per_unit", [1, 2])
def test_a_table_joined_with_itself(rows_per_unit: int) -> None:
    def neighbours(x: Keys) -> Iterable[Keys]:
        for i, j in splits(rows_per_unit)[1:]:
            yield x[0] + i, x[1] + j
            if min(x[0] - i, x[1] - j) >= 0:
                yield x[0] - i, x[1] - j

    check(
        product(range(4), repeat=2),
        neighbours,
        lambda x: x[0] ** 2 + x[1] ** 2,
        lambda x: CrossJoin(rows_per_unit, rows_per_unit, max(x), max(x)),
    )


def test_the_target_moves_by_at_most_one_with_each_row() -> None:
    rows = np.arange(1000)
    for share in (
        QuantileFraction(0, 1),
        QuantileFraction(1, 2),
        QuantileFraction(1, 3),
        QuantileFraction(99, 100),
        QuantileFraction(1, 1),
    ):
        assert set(np.diff(target_rank(share, rows)).tolist()) <= {0, 1}


EXAMPLES: list[LocalSensitivity] = [
    AverageSensitivity(1000, 1, 0, 100),
    AverageSensitivity(1000, 3, 0, 100),
    AverageSensitivity(5, 2, 0, 100),
    AverageSensitivity(0, 1, 0, 100),
    CrossJoin(2, 3, 40, 70, 5),
    CrossJoin(1, 1, 0, 0),
    CrossJoin(1, 0, 9, 0),
    order_statistic(np.arange(100) ** 2, 1, 100, 50, 200, 1, 0, 10**4),
    order_statistic(np.arange(100) ** 2, 1, 100, 50, 20, 2, 0, 10**4),
    order_statistic(np.array([7] * 100), 1, 100, 50, 30, 1, 0, 10**4),
]


@pytest.mark.parametrize("bounds", EXAMPLES)
@pytest.mark.parametrize("b", [Fraction(1, 100), Fraction(1, 10), Fraction(2)], ids=str)
def test_smooth_is_the_maximum(bounds: LocalSensitivity, b: Fraction) -> None:
    brute = max(float(bounds.at(k)) * exp(-float(b) * k) for k in range(3000))
    assert brute <= float(bounds.smooth(b)) <= brute * (1 + 1e-7)


@pytest.mark.parametrize("bounds", EXAMPLES)
@pytest.mark.parametrize("beta", [0, 1, Fraction(1, 2), 500, 10**9])
def test_distance_is_the_first_excess(bounds: LocalSensitivity, beta: int | Fraction) -> None:
    brute = next((k for k in range(50) if bounds.at(k) > beta), 50)
    assert bounds.distance(beta, 50) == brute
    assert bounds.distance(beta, 0) == 0


@pytest.mark.parametrize("b", [Fraction(1, 50), Fraction(1, 3)], ids=str)
def test_a_smooth_bound_moves_by_at_most_a_factor(b: Fraction) -> None:
    """Exactly: in logarithms with more digits than the numbers have."""
    with localcontext(prec=60):
        for n in range(30):
            here, there = (AverageSensitivity(rows, 2, 0, 1000).smooth(b) for rows in (n, n + 2))
            apart = Decimal(here.numerator * there.denominator) / (there.numerator * here.denominator)
            assert abs(apart.ln()) <= Decimal(b.numerator) / b.denominator


def test_an_order_statistic_beyond_the_reach_changes_nothing() -> None:
    b = Fraction(1, 10)
    values = np.sort((np.arange(2000) * 7919) % 10_000)
    reach = smooth_reach(b, 0, 10_000)
    short, long = (order_statistic(values, 1, 2000, 1000, k, 1, 0, 10_000).smooth(b) for k in (reach, 900))
    assert short == long
    assert reach == ceil(log(10_000) * 10) + 1


def test_refuses() -> None:
    with pytest.raises(ValueError, match="b above"):
        AverageSensitivity(3, 1, 0, 1).smooth(Fraction(0))
    with pytest.raises(ValueError, match="either side"):
        OrderStatistic(np.arange(4), 1, 0, 9)

"""The distance of a winner to another, against every neighbour of every small tally."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from dpsql.mechanisms.stable_value import distances

Tally = tuple[int, ...]


def winner(tally: Tally) -> int:
    """The most frequent value; ties go to the first."""
    return max(range(len(tally)), key=lambda value: (tally[value], -value))


@cache
def distance(tally: Tally, per_value: int) -> int:
    second, first = sorted(tally)[-2:]
    return int(distances(np.array([first - second]), per_value)[0])


def neighbours(tally: Tally, per_value: int) -> list[Tally]:
    """Every unit that may come, and every one that may go."""
    units = list(product(range(per_value + 1), repeat=len(tally)))
    moved = [tuple(t + s * u for t, u in zip(tally, unit, strict=True)) for unit in units for s in (1, -1)]
    return [other for other in moved if min(other) >= 0]


@pytest.mark.parametrize("per_value", [1, 2, 3])
def test_no_unit_changes_the_winner_unless_the_distance_is_0(per_value: int) -> None:
    for tally in product(range(6), repeat=3):
        for other in neighbours(tally, per_value):
            mine, its = (distance(t, per_value) for t in (tally, other))
            assert abs(mine - its) <= 1
            if winner(tally) != winner(other):
                assert mine == its == 0


@pytest.mark.parametrize("per_value", [1, 2, 3])
def test_a_lead_that_one_unit_evens_out_is_no_distance(per_value: int) -> None:
    """Ties go to the first, so one unit makes the first win; ceil(lead / c) would call this a distance of 1."""
    behind, even = (0, per_value), (per_value, per_value)
    assert winner(behind) != winner(even)
    assert distance(behind, per_value) == distance(even, per_value) == 0


def test_distance_is_the_number_of_units_that_do_no_harm() -> None:
    """From a lead of 7 with 2 per unit, three units leave a lead of 1, and a fourth changes the winner."""
    assert distance((9, 2), 2) == 3

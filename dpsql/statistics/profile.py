"""A statistic's profile as the engine gave it, in the arrays that mechanisms take."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.aggregates.measure import SumValues
from dpsql.mechanisms.exponential import Windows
from dpsql.mechanisms.local_sensitivity import CrossJoin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Average, Matched


def windows(profile: Sequence[NDArray[Any]]) -> Windows:
    """The sorted points of each group end to end, each of them once, and how often it occurs."""
    points, counts, below, rows = profile
    lists = [_list(item) for item in points.tolist()]
    ends = np.cumsum([0, *map(len, lists)])
    values, times = _end_to_end(lists), _end_to_end([_list(item) for item in counts.tolist()])
    is_first = np.diff(values, prepend=0) > 0
    is_first[ends[:-1][np.diff(ends) > 0]] = True
    first, starts = np.flatnonzero(is_first), np.concatenate(([0], np.cumsum(is_first)))[ends]
    return Windows(values[first], _summed(times, first), starts, whole(below), whole(rows))


def _summed(times: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """From each of these places to the next."""
    return np.add.reduceat(times, first) if len(first) else times


def tallies(profile: Sequence[NDArray[Any]], width: int) -> Iterator[NDArray[np.int64]]:
    """For each group the counts by place; what does not occur counts 0."""
    for places, counts in zip(*profile, strict=True):
        counted = np.zeros(width, dtype=np.int64)
        counted[_list(places)] = _list(counts)
        yield counted


def means(profile: Sequence[NDArray[Any]], statistic: Average) -> Iterator[tuple[Fraction, int]]:
    """The mean of each group in steps of the answer, of no rows the middle of the range; and the number of rows."""
    low, high, finer = statistic.grid.low, statistic.grid.high, statistic.finer
    for steps, rest, rows in zip(*(whole(part).tolist() for part in profile), strict=True):
        yield (low + finer * (steps + Fraction(rest, rows)) if rows else Fraction(low + high, 2)), rows


def most_frequent(profile: Sequence[NDArray[Any]]) -> tuple[int, int]:
    """How often the most frequent key of a join across people occurs on either side."""
    _, left, right = (whole(part) for part in profile)
    return int(left.max(initial=0)), int(right.max(initial=0))


def matched_moves(statistic: Matched, left_most: int, right_most: int) -> CrossJoin:
    """How far one unit can move the totals over pairs of people, all groups together."""
    measure = statistic.measure
    value = max(abs(measure.low), abs(measure.high)) if isinstance(measure, SumValues) else 1
    return CrossJoin(statistic.left_rows, statistic.right_rows, left_most, right_most, value)


def whole(column: NDArray[Any]) -> NDArray[np.int64]:
    """A group without rows counts none."""
    return np.ma.filled(column, 0).astype(np.int64)


def _list(item: Any) -> NDArray[np.int64]:
    return np.empty(0, np.int64) if item is None or item is np.ma.masked else np.asarray(item, np.int64)


def _end_to_end(lists: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *lists])

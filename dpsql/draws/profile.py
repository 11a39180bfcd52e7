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

    from dpsql.aggregates.statistic import Grid, Matched


def windows(profile: Sequence[NDArray[Any]]) -> Windows:
    points, counts, below, rows = profile
    lists = [_list(item) for item in points]
    starts = np.concatenate(([0], np.cumsum([len(item) for item in lists]))).astype(np.int64)
    return Windows(_end_to_end(lists), _end_to_end([_list(item) for item in counts]), starts, whole(below), whole(rows))


def table(profile: Sequence[NDArray[Any]], width: int) -> NDArray[np.int64]:
    """Counts by group and place; what does not occur counts 0."""
    counted = np.zeros((len(profile[0]), width), dtype=np.int64)
    for row, (places, counts) in enumerate(zip(*profile, strict=True)):
        counted[row, _list(places)] = _list(counts)
    return counted


def means(profile: Sequence[NDArray[Any]], grid: Grid) -> Iterator[tuple[Fraction, int]]:
    """The mean of each group, of no rows the middle of the range, and the number of rows."""
    for total, rows in zip(*(whole(part).tolist() for part in profile), strict=True):
        yield (Fraction(total, rows) if rows else Fraction(grid.low + grid.high, 2)), rows


def moves(profile: Sequence[NDArray[Any]], statistic: Matched) -> CrossJoin:
    """How far one unit can move the totals over pairs of people, all groups together."""
    _, left, right = (whole(part) for part in profile)
    return moves_from(int(left.max()), int(right.max()), statistic)


def moves_from(left_most: int, right_most: int, statistic: Matched) -> CrossJoin:
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

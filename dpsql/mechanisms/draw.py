"""The interface of mechanisms that draw a statistic, and the terms of a draw."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpsql.aggregates.measure import SumValues
from dpsql.errors import ProgrammingError
from dpsql.mechanisms.exponential import RankWindows
from dpsql.mechanisms.local_sensitivity import CrossJoin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.accounting.events import Event
    from dpsql.aggregates.measure import Average, Grid, Matched
    from dpsql.mechanisms.additive import Noise


@dataclass(frozen=True)
class Terms:
    """The options of a draw, and the cost of one group."""

    mechanism: str
    propose: Fraction | None
    epsilon: Fraction
    delta: Fraction
    rows: int
    """The most rows of one unit in the group."""

    def needs_delta(self) -> None:
        if not self.delta:
            raise ProgrammingError(
                f'mechanism="{self.mechanism}" needs a delta, but this session has none',
                hint="use another mechanism; a ledger has the delta that it was opened with, or that the data owner "
                "granted:  dpsql budget grant EPSILON --delta 1e-6",
            )

    def proposed_steps(self, grid: Grid) -> int:
        """The proposal in steps of the grid; refuses one below a step, or as wide as the grid."""
        assert self.propose is not None
        steps = self.propose // grid.quantum
        if 1 <= steps < grid.high - grid.low:
            return steps
        width = float((grid.high - grid.low) * grid.quantum)
        raise ProgrammingError(
            f"propose={float(self.propose):g} is not between 0 and the width of the declared range, {width:g}",
            hint=f"propose how much you think one person can move the answer, such as {width / 1000:g}",
        )


@dataclass(frozen=True)
class Refund:
    """The privacy loss that is refunded when a test refuses."""

    event: Event
    epsilon: Fraction


class Draw(Protocol):
    """A mechanism that draws an integer per group; masked if a test refuses."""

    @property
    def name(self) -> str: ...

    @property
    def event(self) -> Event:
        """The privacy event of one group."""
        ...

    @property
    def refund(self) -> Refund | None:
        """The part of the event that is refunded if the test refuses; None without a test."""
        ...

    @property
    def reach(self) -> int:
        """The number of ranks that it reads on either side of a quantile."""
        ...

    @property
    def work(self) -> int:
        """The number of values that it processes per group, whatever the data."""
        ...

    @property
    def noise(self) -> Noise | None:
        """The distribution of the noise, if it is public."""
        ...

    @property
    def ranks(self) -> int | None:
        """How many rows an answer may be off at 95 %, from the aim or from the extreme; None unless that is public."""
        ...

    @property
    def note(self) -> str:
        """The statement about its error in `explain` and the notes."""
        ...

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        """Draws an answer per group. `profile` are the columns of the statistic's profile, one row per group."""
        ...


# -- profile -----------------------------------------------------------------------------------------------------------
# A statistic's profile as the engine gave it, in the arrays that mechanisms take.


def windows(profile: Sequence[NDArray[Any]]) -> RankWindows:
    """The distinct sorted points of all groups, end to end, and their counts."""
    points, counts, below, rows = profile
    lists = [_list(item) for item in points.tolist()]
    ends = np.cumsum([0, *map(len, lists)])
    values, times = _end_to_end(lists), _end_to_end([_list(item) for item in counts.tolist()])
    is_first = np.diff(values, prepend=0) > 0
    is_first[ends[:-1][np.diff(ends) > 0]] = True
    first, starts = np.flatnonzero(is_first), np.concatenate(([0], np.cumsum(is_first)))[ends]
    return RankWindows(values[first], _summed(times, first), starts, whole(below), whole(rows))


def _summed(times: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slices between consecutive offsets."""
    return np.add.reduceat(times, first) if len(first) else times


def tallies(profile: Sequence[NDArray[Any]], width: int) -> Iterator[NDArray[np.int64]]:
    """The counts of all public values per group, 0 for those that do not occur."""
    for places, counts in zip(*profile, strict=True):
        counted = np.zeros(width, dtype=np.int64)
        counted[_list(places)] = _list(counts)
        yield counted


def means(profile: Sequence[NDArray[Any]], statistic: Average) -> Iterator[tuple[Fraction, int]]:
    """The mean of each group in steps of the answer, and its number of rows; without rows, the middle of the range."""
    low, high, finer = statistic.grid.low, statistic.grid.high, statistic.finer
    for steps, rest, rows in zip(*(whole(part).tolist() for part in profile), strict=True):
        yield (low + finer * (steps + Fraction(rest, rows)) if rows else Fraction(low + high, 2)), rows


def most_frequent(profile: Sequence[NDArray[Any]]) -> tuple[int, int]:
    """The frequency of the most frequent join key on either side of a join across people."""
    _, left, right = (whole(part) for part in profile)
    return int(left.max(initial=0)), int(right.max(initial=0))


def matched_moves(statistic: Matched, left_most: int, right_most: int) -> CrossJoin:
    """The local sensitivity of totals over pairs of people, over all groups."""
    measure = statistic.measure
    value = max(abs(measure.low), abs(measure.high)) if isinstance(measure, SumValues) else 1
    return CrossJoin(statistic.left_rows, statistic.right_rows, left_most, right_most, value)


def whole(column: NDArray[Any]) -> NDArray[np.int64]:
    """The counts, 0 for groups without rows."""
    return np.ma.filled(column, 0).astype(np.int64)


def _list(item: Any) -> NDArray[np.int64]:
    return np.empty(0, np.int64) if item is None or item is np.ma.masked else np.asarray(item, np.int64)


def _end_to_end(lists: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *lists])

"""Quantiles by the exponential mechanism: a grid point is likelier the nearer its rank is to the target.

A grid point c has `below` rows under it and `upto` rows that are at most c. With the target T, all in parts of a row,

    score(c) = min(K, max(0, T - upto, below - T)),        P[c] proportional to exp(-rate score(c)).

Because the score is capped at the public K, only the rows around the target are needed: all points further away have
the worst score. Points between two neighbouring values have the same score, so intervals are weighted as a whole.
Proof: docs/proofs/exponential.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, log
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from dpsql.sampling import CryptographicRandomness, choose, uniform_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

# -- ranks -------------------------------------------------------------------------------------------------------------
# Which rank of a sorted column a quantile aims at, and how far a row can move the aim.
#
# Ranks are counted in parts of a row, so that all of this is whole numbers: `at(n)` of `parts` is the place, 0 before
# the first of n rows and n * parts behind the last. Another row raises it by at least `least` and at most `most`.

# Together they keep places below 2^60.
MOST_PARTS = 1 << 20
MOST_ROWS = 1 << 40


class Aim(Protocol):
    """A target rank among n sorted rows."""

    @property
    def parts(self) -> int: ...

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...

    @property
    def inside(self) -> int:
        """The largest distance, in rows, from a fixed fraction of all rows."""
        ...

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class QuantileFraction:
    """The p-quantile: p n of n rows lie below it. The median is QuantileFraction(1, 2).

    >>> QuantileFraction(1, 4).at(np.array([10])) / 4
    array([2.5])
    """

    numerator: int
    parts: int

    def __post_init__(self) -> None:
        if not 0 <= self.numerator <= self.parts <= MOST_PARTS:
            raise ValueError(f"a quantile is a fraction from 0 to 1 with a denominator up to {MOST_PARTS}")

    @property
    def least(self) -> int:
        return self.numerator

    @property
    def most(self) -> int:
        return self.numerator

    @property
    def inside(self) -> int:
        return 0

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.numerator * rows


def share(p: Fraction) -> QuantileFraction:
    """The quantile next to p whose denominator is short enough; any p with up to six decimals is met exactly.

    >>> from fractions import Fraction
    >>> share(Fraction(1, 2)), share(Fraction("0.333333333333333"))
    (QuantileFraction(numerator=1, parts=2), QuantileFraction(numerator=1, parts=3))
    """
    if not 0 <= p <= 1:
        raise ValueError(f"a quantile must lie between 0 and 1, not {float(p):g}")
    near = p.limit_denominator(MOST_PARTS)
    return QuantileFraction(near.numerator, near.denominator)


@dataclass(frozen=True)
class Depth:
    """This many rows from the bottom or the top, but never beyond the median if there are too few rows.

    >>> Depth(30, from_top=False).at(np.array([0, 10, 1000])) / 2
    array([ 0.,  5., 30.])
    >>> Depth(30, from_top=True).at(np.array([0, 10, 1000])) / 2
    array([  0.,   5., 970.])
    """

    rows: int
    from_top: bool
    parts: int = 2

    @property
    def least(self) -> int:
        return 1 if self.from_top else 0

    @property
    def most(self) -> int:
        return 2 if self.from_top else 1

    @property
    def inside(self) -> int:
        return self.rows

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(2 * (rows - self.rows), rows) if self.from_top else np.minimum(2 * self.rows, rows)


# -- exponential -------------------------------------------------------------------------------------------------------

# All points of the worst score together are chosen with a probability of at most 2^-CAPPED.
CAPPED = 40

# A minimum or maximum lies inside the data, not beyond, but for one time in so many.
BEYOND = 20

# No score is as bad: places are below 2^60.
WORST = 1 << 61

# So many points at most, so that sizes of intervals are 64-bit numbers.
WIDEST_GRID = 1 << 62


Ends: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""The least and the greatest grid point of each group."""


@dataclass(frozen=True, eq=False)
class RankWindows:
    """Of each group, the rows around its aim: distinct values, sorted, and how many rows have each of them.

    Group g has values[starts[g]:starts[g + 1]]. `below` rows are under the first of these, of `rows` in all. A value at
    the edge may count all of its rows, or only those of the ranks that were asked for. Values lie on the grid: whoever
    fetches them clamps them first.
    """

    values: NDArray[np.int64]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    below: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class QuantileChoice:
    """An epsilon-DP quantile of whole numbers from `low` to `high`, of which one unit has at most `rows_per_unit`.

    >>> from dpsql.mechanisms.exponential import QuantileFraction
    >>> QuantileChoice(QuantileFraction(1, 2), Fraction(1), rows_per_unit=1, low=0, high=10**6).rank_error(0.95)
    17
    """

    aim: Aim
    epsilon: Fraction
    rows_per_unit: int
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.rows_per_unit < 1 or not 0 <= self.high - self.low < WIDEST_GRID:
            raise ValueError("a quantile needs an epsilon above 0, a row per unit, and a grid of 1 to 2^62 points")

    @property
    def sensitivity(self) -> int:
        """The sensitivity of a score to one unit, in parts of a row."""
        return self.rows_per_unit * max(self.aim.most, self.aim.parts - self.aim.least)

    @property
    def rate(self) -> Fraction:
        return self.epsilon / (2 * self.sensitivity)

    @property
    def cap(self) -> int:
        """K. The points that bad have together at most 2^-CAPPED times the probability of the best point."""
        return min(ceil(Fraction(log(self.high - self.low + 1) + CAPPED * log(2)) / self.rate), WORST)

    @property
    def reach(self) -> int:
        """The greatest distance between a needed rank and the target fraction of the rows.

        A value whose score is below K has a rank above (T - K)/parts and one below (T + K)/parts + 1, and T/parts is at
        most `aim.inside` away from that fraction.
        """
        return -(-self.cap // self.aim.parts) + 1 + self.aim.inside

    def sample(self, windows: RankWindows, within: Ends | None = None) -> NDArray[np.int64]:
        """Draws a grid point for each group; `within` are the ends of each group's part of the grid."""
        source = CryptographicRandomness()
        left, sizes, scores, starts = self._intervals(windows, within)
        chosen = choose(sizes, scores, starts, self.rate, source)
        points: NDArray[np.int64] = left[chosen] + uniform_each(sizes[chosen], source)
        return points

    def rank_error(self, level: float | Fraction) -> int:
        """The rank error that holds with probability `level`, whatever the data."""
        beta = 1 - Fraction(level)
        if not Fraction(1, 2**CAPPED) <= beta <= 1:
            raise ValueError(f"a confidence level lies from 0 to 1 - 2^-{CAPPED}, unlike {level}")
        worst = Fraction(log(self.high - self.low + 1) - log(beta)) / self.rate
        return ceil(worst / self.aim.parts)

    def _intervals(self, windows: RankWindows, within: Ends | None = None) -> tuple[NDArray[np.int64], ...]:
        """Left end, size and score of the gaps and values of each group, and where each group starts.

        m values make m + 1 gaps: gap, value, gap, ..., value, gap. Gaps without a point are left out.
        """
        groups, places = np.arange(len(windows.rows)), np.arange(len(windows.values))
        group = np.repeat(groups, np.diff(windows.starts))
        at_value, at_end = 2 * places + group + 1, 2 * windows.starts[1:] + groups
        upto = np.cumsum(windows.counts)
        before = np.concatenate(([0], upto))[windows.starts[:-1]]
        below = windows.below - before

        total = 2 * len(places) + len(groups)
        first = 2 * windows.starts[:-1] + groups
        owner = np.repeat(groups, at_end - first + 1)
        low, high = within or (np.full(len(groups), self.low), np.full(len(groups), self.high))
        left, right = low[owner], high[owner]
        left[at_value] = right[at_value] = windows.values
        left[at_value + 1] = windows.values + 1
        right[at_value - 1] = windows.values - 1

        under, upon = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
        upon[at_value] = under[at_value + 1] = upon[at_value + 1] = upto + below[group]
        under[at_value] = upon[at_value] - windows.counts
        under[first] = upon[first] = windows.below

        aim, parts = self.aim.at(windows.rows), self.aim.parts
        scores = np.maximum(aim[owner] - parts * upon, parts * under - aim[owner])
        sizes = right - left + 1
        kept = sizes > 0
        starts = np.concatenate(([0], np.cumsum(kept)))[np.concatenate((first, [total]))]
        return left[kept], sizes[kept], np.clip(scores, 0, self.cap)[kept], starts


def extreme(epsilon: Fraction, rows_per_unit: int, low: int, high: int, *, greatest: bool) -> QuantileChoice:
    """MIN or MAX: as deep inside the data as it takes to be hardly ever beyond it.

    Aimed at the very end, every point beyond the data would be as good as the last value.
    """
    shallow = QuantileChoice(Depth(1, greatest), epsilon, rows_per_unit, low, high)
    depth = ceil(Fraction(log(high - low + 1) + log(BEYOND)) / (2 * shallow.rate))
    return QuantileChoice(Depth(min(depth, MOST_ROWS), greatest), epsilon, rows_per_unit, low, high)


# -- many quantiles ----------------------------------------------------------------------------------------------------
# Many quantiles of the same values, by bisection: the middle one from all rows, then those below it from the rows up to
# that answer, and those above it from the others (Kaplan, Schnapp, Stemmer 2022).
#
#     0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9        0.5 of all rows; 0.3 and 0.8 of a half; 0.2, 0.4, ...
#
# A row takes part once in each level, so m quantiles cost bit_length(m) draws. Rows with equal values are told apart
# by random bits, so that an answer can split them: else the rows on one side are not the fraction that they stand for.

TIE_BITS = 24


@dataclass(frozen=True)
class QuantileTree:
    """Quantiles of whole numbers from `low` to `high`, of which one unit has at most `rows_per_unit`.

    >>> nine = QuantileTree(tuple(Fraction(i, 10) for i in range(1, 10)), Fraction(1), 1, 0, 10**6)
    >>> nine.levels
    4
    """

    fractions: tuple[Fraction, ...]
    """In ascending order."""
    epsilon: Fraction
    """The epsilon of each level."""
    rows_per_unit: int
    low: int
    high: int

    def __post_init__(self) -> None:
        inside = (Fraction(0), *self.fractions, Fraction(1))
        if any(one >= other for one, other in pairwise(inside)):
            raise ValueError("the fractions lie between 0 and 1, in ascending order")

    @property
    def levels(self) -> int:
        return len(self.fractions).bit_length()

    @property
    def tie_bits(self) -> int:
        """The random bits behind each value, as many as the largest grid has room for."""
        return max(0, min(TIE_BITS, WIDEST_GRID.bit_length() - 1 - (self.high - self.low + 1).bit_length()))

    @property
    def _end(self) -> int:
        """The last point of the grid with random bits, which begins at 0."""
        return ((self.high - self.low + 1) << self.tie_bits) - 1

    def sample(self, windows: RankWindows) -> NDArray[np.int64]:
        """A row for each fraction, with a grid point for each group; the windows hold all rows."""
        groups = len(windows.rows)
        values = np.repeat(windows.values, windows.counts)
        group = np.repeat(np.repeat(np.arange(groups), np.diff(windows.starts)), windows.counts)
        points = (values - self.low) << self.tie_bits
        if self.tie_bits:
            ties = CryptographicRandomness().words(len(points)) >> np.uint64(64 - self.tie_bits)
            points |= ties.astype(np.int64)
        rows = SortedRows(points[np.lexsort((points, group))], np.bincount(group, minlength=groups))
        ends = np.zeros(groups, dtype=np.int64), np.full(groups, self._end)
        found = self.bisected(rows, ends, (Fraction(0), *self.fractions, Fraction(1)))
        return (np.array(found).reshape(len(self.fractions), groups) >> self.tie_bits) + self.low

    def bisected(self, rows: SortedRows, ends: Ends, fractions: tuple[Fraction, ...]) -> list[NDArray[np.int64]]:
        """The quantiles between the first and the last fraction, of the rows between these in each group."""
        if len(fractions) == 2:
            return []
        (low, high), middle = ends, len(fractions) // 2
        choice, is_open, answer = self._choice(fractions), low <= high, high.copy()
        some = rows.of_groups(is_open)
        answer[is_open] = choice.sample(some.around(choice), (low[is_open], high[is_open]))
        below, above = rows.split(answer)
        return [
            *self.bisected(below, (low, answer), fractions[: middle + 1]),
            answer,
            *self.bisected(above, (answer + 1, high), fractions[middle:]),
        ]

    def _choice(self, fractions: tuple[Fraction, ...]) -> QuantileChoice:
        return QuantileChoice(share(_relative(fractions)), self.epsilon, self.rows_per_unit, 0, self._end)

    def rank_errors(self, level: float | Fraction) -> dict[Fraction, int]:
        """The rank error of each quantile; with probability `level` all of them hold, whatever the data."""
        each = 1 - (1 - Fraction(level)) / len(self.fractions)
        return self._errors((Fraction(0), *self.fractions, Fraction(1)), Fraction(0), Fraction(0), each)

    def _errors(
        self, fractions: tuple[Fraction, ...], below: Fraction, above: Fraction, each: Fraction
    ) -> dict[Fraction, int]:
        """An answer inherits the errors of those between which it was drawn, the nearer one's the more."""
        if len(fractions) == 2:
            return {}
        middle, part = len(fractions) // 2, _relative(fractions)
        # Where it splits the rows it may be a row further.
        error = self._choice(fractions).rank_error(each) + 1 + (1 - part) * below + part * above
        return {
            **self._errors(fractions[: middle + 1], below, error, each),
            fractions[middle]: ceil(error),
            **self._errors(fractions[middle:], error, above, each),
        }


@dataclass(frozen=True, eq=False)
class SortedRows:
    """The rows of all groups, one group after the other, sorted within each; and how many each group has."""

    points: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def groups(self) -> NDArray[np.int64]:
        """The group of each row."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def of_groups(self, chosen: NDArray[np.bool_]) -> SortedRows:
        return SortedRows(self.points[chosen[self.groups]], self.lengths[chosen])

    def split(self, answers: NDArray[np.int64]) -> tuple[SortedRows, SortedRows]:
        """The rows up to an answer for each group, and those beyond."""
        groups = self.groups
        is_below = self.points <= answers[groups]
        below = np.bincount(groups[is_below], minlength=len(self.lengths))
        return SortedRows(self.points[is_below], below), SortedRows(self.points[~is_below], self.lengths - below)

    def around(self, choice: QuantileChoice) -> RankWindows:
        """The rows of the ranks that matter to a choice."""
        starts, groups = np.cumsum(self.lengths) - self.lengths, self.groups
        at, ranks = choice.aim.at(self.lengths) // choice.aim.parts, np.arange(len(self.points)) - starts[groups]
        kept = np.abs(ranks - at[groups]) <= choice.reach + 1
        points, group = self.points[kept], groups[kept]
        below = np.where(np.bincount(group, minlength=len(at)) > 0, np.maximum(0, at - choice.reach - 1), 0)
        is_new = (np.diff(points, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0)
        first = np.flatnonzero(is_new)
        counts = np.diff(np.append(first, len(points)))
        ends = np.cumsum(np.bincount(group[first], minlength=len(at)))
        return RankWindows(points[first], counts, np.concatenate(([0], ends)), below, self.lengths)


def _relative(fractions: tuple[Fraction, ...]) -> Fraction:
    """The middle fraction, from 0 at the first to 1 at the last."""
    first, *_, last = fractions
    return (fractions[len(fractions) // 2] - first) / (last - first)

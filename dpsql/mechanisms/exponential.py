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
from math import ceil, log
from typing import TYPE_CHECKING, Protocol

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
        """All rows that are needed have ranks that are at most so far from the fraction of the rows.

        A value whose score is below K has a rank above (T - K)/parts and one below (T + K)/parts + 1, and T/parts is at
        most `aim.inside` away from that fraction.
        """
        return -(-self.cap // self.aim.parts) + 1 + self.aim.inside

    def sample(self, windows: RankWindows) -> NDArray[np.int64]:
        """Draws a grid point for each group."""
        source = CryptographicRandomness()
        left, sizes, scores, starts = self._intervals(windows)
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

    def _intervals(self, windows: RankWindows) -> tuple[NDArray[np.int64], ...]:
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
        left, right = np.full(total, self.low), np.full(total, self.high)
        left[at_value] = right[at_value] = windows.values
        left[at_value + 1] = windows.values + 1
        right[at_value - 1] = windows.values - 1

        under, upon = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
        upon[at_value] = under[at_value + 1] = upon[at_value + 1] = upto + below[group]
        under[at_value] = upon[at_value] - windows.counts
        first = 2 * windows.starts[:-1] + groups
        under[first] = upon[first] = windows.below

        aim, parts = self.aim.at(windows.rows), self.aim.parts
        owner = np.repeat(groups, at_end - first + 1)
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

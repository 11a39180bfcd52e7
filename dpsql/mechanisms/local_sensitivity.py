"""Local sensitivity: how far one unit can move an answer on this data, and on data that differs in k units.

Each class gives numbers U_0 <= U_1 <= ... of a database x with two properties, for all neighbours x':

    |q(x) - q(x')| <= U_0(x),        U_k(x) <= U_(k+1)(x').

Hence the distance to data on which a unit could move the answer by more than beta is at least min{k : U_k > beta},
which one unit changes by at most 1; and S = max_k e^(-b k) U_k changes by at most a factor e^b. The number of steps to
find S is public. Proof: docs/proofs/local_sensitivity.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, floor, log
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dpsql.mechanisms.exponential import QuantileFraction

# -- stretches ---------------------------------------------------------------------------------------------------------
# The largest of (above_t + below_s) e^(-b k) over all s and t with s + t = rows * (k + 1), in a fixed number of steps.
#
# For one s the terms are lines in below_s with slopes e^(-b t): the larger below_s, the steeper the best of them. So
# the best t falls as s grows, and once it is known for some s it fences those in between: log(n) rounds of n
# comparisons instead of n^2. How many there are depends on the lengths alone. Proof: docs/proofs/local_sensitivity.md.

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def largest_stretch(above: NDArray[np.int64], below: NDArray[np.int64], rows: int, b: float) -> float:
    """`above` and `below` begin with a 0, rise, and are equally long: a whole number of times `rows`, and one more.

    In float64, less than 2^-40 off, relatively, if b k stays below 256.

    >>> [largest_stretch(np.array([0, 1, 9]), np.array([0, 4, 5]), 1, b) for b in (0.0, 100.0)]
    [13.0, 4.0]
    """
    steps = (len(above) - 1) // rows
    if not steps:
        return 0.0
    damping = np.exp(-b * np.arange(steps))
    # A row for each remainder of t by `rows`, from 1 on: its partners are the s with the opposite remainder.
    ups = above[1:].astype(np.float64).reshape(steps, rows).T
    downs = below[:-1].astype(np.float64).reshape(steps, rows).T[::-1]
    alone = (below[rows::rows] * damping).max()
    return max(float(alone), float((_best(ups * damping, downs, damping) * damping).max()))


def _best(weighed: Table, downs: Table, damping: NDArray[np.float64]) -> Table:
    """For each row and each j the largest weighed_i + downs_j damping_i."""
    rows, steps = downs.shape
    best = np.empty((rows, steps))
    stride = 1 << steps.bit_length() - 1
    # The best i of column j stands at j + 1; before the first it could be anywhere up to the end.
    fences = np.zeros((rows, steps + stride + 1), dtype=np.int64)
    fences[:, 0] = steps - 1
    while stride:
        asked = np.arange(stride - 1, steps, 2 * stride)
        least, most = fences[:, asked + 1 + stride].ravel(), fences[:, asked + 1 - stride].ravel()
        lengths = most - least + 1
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        i = np.arange(len(owner)) + (least - starts)[owner]
        values = weighed[owner // len(asked), i] + downs[:, asked].ravel()[owner] * damping[i]
        found = np.maximum.reduceat(values, starts)
        reached = np.flatnonzero(values == found[owner])
        least[owner[reached]] = i[reached]
        fences[:, asked + 1] = least.reshape(rows, -1)
        best[:, asked] = found.reshape(rows, -1)
        stride //= 2
    return best


# -- local sensitivity -------------------------------------------------------------------------------------------------

# S is computed in float64, off by less than a quarter of this, relatively, and rounded up: its logarithm is above the
# ideal one by 0 to ROUNDED, so that much less than b is left for what a unit can do to it.
ROUNDED = 2.0**-36

# Then ROUNDED is nothing beside it.
LEAST_B = Fraction(1, 2**30)


class LocalSensitivity(ABC):
    @abstractmethod
    def at(self, k: int) -> int | Fraction:
        """U_k: the upper bound on the local sensitivity at distance k."""

    @abstractmethod
    def damped(self, b: float) -> float:
        """The largest e^(-b k) U_k, less than ROUNDED/4 off, relatively."""

    def distance(self, beta: int | Fraction, limit: int) -> int:
        """The least k with U_k > beta, or `limit` if that is less."""
        return bisect_right(range(limit), beta, key=self.at)

    def smooth(self, b: Fraction) -> Fraction:
        """A b-smooth bound: S for a slightly smaller b, rounded up."""
        if b < LEAST_B:
            raise ValueError("smoothness needs a b above 2^-30")
        return Fraction(self.damped(float(b) - 2 * ROUNDED)) * (1 + Fraction(ROUNDED) / 2)

    def _at_peaks(self, b: float, peaks: Iterable[int]) -> float:
        return max(float(self.at(k)) * exp(-b * k) for k in peaks)


@dataclass(frozen=True, eq=False)
class OrderStatistic(LocalSensitivity):
    """The m-th of n sorted values in [low, high], m as `target_rank` says, at most `rows_per_unit` of one unit.

    `values` are those of the ranks m - w, ..., m + w; ranks below 1 have the value `low`, ranks above n `high`. What
    lies beyond them is not known, so from then on U_k is the whole range. w is public.
    """

    values: NDArray[np.int64]
    rows_per_unit: int
    low: int
    high: int

    def __post_init__(self) -> None:
        if len(self.values) % 2 == 0 or self.rows_per_unit < 1:
            raise ValueError("an order statistic needs as many values on either side, and at least one row per unit")

    @property
    def value(self) -> int:
        """The exact statistic."""
        return int(self.values[len(self.values) // 2])

    @property
    def reach(self) -> int:
        """The number of distances k with known values."""
        return len(self.values) // (2 * self.rows_per_unit)

    def at(self, k: int) -> int:
        """The longest stretch of r (k + 1) ranks that begins or ends at the target, or lies around it."""
        middle, width = len(self.values) // 2, self.rows_per_unit * (k + 1)
        if width > middle:
            return self.high - self.low
        return int((self.values[middle : middle + width + 1] - self.values[middle - width : middle + 1]).max())

    def damped(self, b: float) -> float:
        """The maximum over all known distances k and the first unknown one, where U_k is the whole range."""
        middle, width = len(self.values) // 2, self.rows_per_unit * self.reach
        above = self.values[middle : middle + width + 1] - self.values[middle]
        below = self.values[middle] - self.values[middle - width : middle + 1][::-1]
        known = largest_stretch(above, below, self.rows_per_unit, b)
        return max(known, (self.high - self.low) * exp(-b * self.reach))


def target_rank(share: QuantileFraction, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least rank with at least that share of the rows, counted from 1. One more row raises it by 0 or 1."""
    return np.maximum(-(-share.at(rows) // share.parts), 1)


def order_statistic(
    values: NDArray[np.int64], first: int, rows: int, target: int, reach: int, rows_per_unit: int, low: int, high: int
) -> OrderStatistic:
    """From sorted values of the ranks `first`, first + 1, ..., of `rows` in all: those around `target`, padded.

    They must hold every rank from 1 to `rows` that is at most reach * rows_per_unit away from the target.
    """
    wanted = np.arange(target - reach * rows_per_unit, target + reach * rows_per_unit + 1)
    around = np.where(wanted < 1, low, high)
    inside = (wanted >= 1) & (wanted <= rows)
    around[inside] = values[wanted[inside] - first]
    return OrderStatistic(around, rows_per_unit, low, high)


def smooth_reach(b: Fraction, low: int, high: int) -> int:
    """How many k matter to a smooth bound: from there on e^(-b k) times the whole range is below one quantum."""
    return ceil(Fraction(log(max(high - low, 1))) / b) + 1


@dataclass(frozen=True)
class AverageSensitivity(LocalSensitivity):
    """The mean of `rows` values in [low, high], at most `rows_per_unit` of one unit; of none, a fixed number there."""

    rows: int
    rows_per_unit: int
    low: int
    high: int

    def at(self, k: int) -> Fraction:
        left = self.rows - self.rows_per_unit * k
        return (self.high - self.low) * (
            Fraction(self.rows_per_unit, left) if left > self.rows_per_unit else Fraction(1)
        )

    def damped(self, b: float) -> float:
        """-b k - ln(n - r k) is convex in k, so it is largest at an end; from the first whole range on it falls."""
        whole = max(-(-self.rows // self.rows_per_unit) - 1, 0)
        return self._at_peaks(b, (0, max(whole - 1, 0), whole))


@dataclass(frozen=True)
class CrossJoin(LocalSensitivity):
    """COUNT or SUM over pairs of a left and a right row with equal keys, where a pair may belong to two units.

    A unit has at most `left_rows` and `right_rows`; no key occurs more than `left_most` and `right_most` times. A pair
    counts as at most `value` in absolute terms, over all groups together.
    """

    left_rows: int
    right_rows: int
    left_most: int
    right_most: int
    value: int = 1

    def at(self, k: int) -> int:
        left, right = self.left_rows, self.right_rows
        pairs = left * (self.right_most + k * right) + right * (self.left_most + k * left) + left * right
        return self.value * pairs

    def damped(self, b: float) -> float:
        """-b k + ln(u + s k) is concave in k and largest at 1/b - u/s."""
        start, step = self.at(0), self.at(1) - self.at(0)
        top = max(floor(1 / Fraction(b) - Fraction(start, step)), 0) if step else 0
        return self._at_peaks(b, (top, top + 1))

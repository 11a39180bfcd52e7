"""Auto bounds: the contribution bounds of least error, estimated from noisy log-spaced histograms.

Noise grows with the bounds, and contributions beyond them are lost. With r rows of a unit in each of g groups, values
clipped at c, and the number of groups in the answer,

    error^2  =  (noise at r, g and c)^2  +  (what is lost, in an average group)^2.

The histograms give noisy numbers of units by rows, groups and values. Everything here is post-processing of them, so
any choice is private. docs/proofs/auto_bounds.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

Kind: TypeAlias = Literal["units", "rows", "sum", "mean", "average", "rank"]
NEXT_TO_SEEN = 2.0
"""Above this many standard deviations of noise, a bin next to a filled one counts as filled."""
TAIL, TAIL_BEGINS = 2, 4.0
"""So many bins a tail goes on unseen, if it was last seen with less than so many times what is surely seen."""
BIAS = {"average": 0.02, "rank": 0.1}
"""How far off an average or a rank is if most rows do not count: those of busy people are a little unlike others."""
MOST_TRIED = 40
"""How many of the best bounds are returned, in case some are not possible."""
TINY = 1e-300


@dataclass(frozen=True)
class Histogram:
    """A noisy log-spaced histogram: each unit counts in the first bin that its number does not exceed."""

    bins: tuple[float, ...]
    counts: tuple[float, ...]
    noise: float
    """The standard deviation of the noise."""
    sure: float
    """Counts above this are more than noise, for all bins at once."""

    @property
    def seen(self) -> Numbers:
        """The counts up to the last bin that is not empty beyond noise; zeros after it."""
        counts = np.maximum(np.array(self.counts), 0.0)
        filled = np.flatnonzero(counts > self.sure)
        if not len(filled):
            return np.zeros(len(counts))
        last = int(filled[-1])
        while last + 1 < len(counts) and counts[last + 1] > NEXT_TO_SEEN * self.noise:
            last += 1
        # A tail does not end where it is lost in the noise: it goes on a little, falling at least by half. One that was
        # far above the noise and is gone on the next bin has ended.
        more = TAIL if counts[last] < TAIL_BEGINS * self.sure else 0
        for edge in range(last + 1, min(last + 1 + more, len(counts))):
            counts[edge] = min(counts[edge], counts[edge - 1] / 2)
        return np.where(np.arange(len(counts)) <= last + more, counts, 0.0)

    @property
    def middles(self) -> Numbers:
        """The representative value of each bin: its midpoint."""
        bins = np.array(self.bins)
        return (bins + np.concatenate(([0.0], bins[:-1]))) / 2

    def kept(self, most: float) -> float:
        """The mean over units, clipped at `most`."""
        seen = self.seen
        return float(seen @ np.minimum(self.middles, most) / seen.sum()) if seen.any() else 1.0

    def excess(self, power: int) -> Numbers:
        """For each bin edge, the total that clipping there removes."""
        bins, middles = np.array(self.bins) ** power, self.middles**power
        beyond: Numbers = np.maximum(middles[None, :] - bins[:, None], 0.0) @ self.seen
        return beyond


def share_left_out(rows: Histogram | None, groups: Histogram | None, most_rows: float, most_groups: float) -> float:
    """The share of all rows that these bounds leave out, as far as the histograms show it."""
    shares, each, many = _side_by_side(rows, groups)
    kept = float(shares @ (np.minimum(each, most_rows) * np.minimum(many, most_groups)))
    return 1 - kept / float(shares @ (each * many))


@dataclass(frozen=True)
class Sides:
    """The histograms of values above and below the origin; None if there can be none."""

    above: Histogram | None
    below: Histogram | None


@dataclass(frozen=True)
class Wish:
    """A column of the answer, whose error the bounds shall minimise.

    units, rows  how many there are            mean           of values whose clip is sought
    sum          of values                     average, rank  of values between bounds, as a part of their range
    """

    kind: Kind
    noise: float
    """The noise at the widest clip and the current bounds; for a mean, that of its sum."""
    value: int = 0
    """The index of the value that it sums."""
    power: int = 1
    importance: float = 1.0


@dataclass(frozen=True)
class Setting:
    """The public facts besides the histograms."""

    groups: int
    rows: int
    """The current bounds: the noises of wishes refer to these, and they hold unless others are found."""
    all_groups: int | None
    """The number of groups, if it is known."""
    threshold: int | None
    """The partition-selection threshold."""
    variance_exponent: int
    """The exponent of noise in the number of groups: 1 for the square root, 2 for linear growth."""


@dataclass(frozen=True)
class ChosenBounds:
    rows: int | None
    groups: int | None
    clips: tuple[tuple[int | None, int | None], ...]
    """The clip of each value below and above the origin, as bins; None if that side is empty."""


def best_bounds(
    rows: Histogram | None, groups: Histogram | None, values: Sequence[Sides], wishes: Sequence[Wish], setting: Setting
) -> list[ChosenBounds]:
    """The bounds, by the geometric mean of the columns' errors, best first."""
    tried = product(rows.bins if rows else (float(setting.rows),), groups.bins if groups else (float(setting.groups),))
    found: list[tuple[float, ChosenBounds]] = []
    for most_rows, most_groups in tried:
        scene = _Scene(rows, groups, values, setting, most_rows, most_groups)
        clips = tuple(_clip(scene, sides, number, wishes) for number, sides in enumerate(values))
        error = sum(wish.importance * np.log(scene.error(wish, clips) + TINY) for wish in wishes)
        bounds = ChosenBounds(int(most_rows) if rows else None, int(most_groups) if groups else None, clips)
        found.append((float(error), bounds))
    found.sort(key=lambda pair: pair[0])
    return [bounds for _, bounds in found[:MOST_TRIED]]


@dataclass(frozen=True)
class _Scene:
    """The errors at one pair of bounds on rows and groups."""

    rows: Histogram | None
    groups: Histogram | None
    values: Sequence[Sides]
    setting: Setting
    most_rows: float
    most_groups: float

    @property
    def units(self) -> float:
        histograms = [self.rows, self.groups, *(side for both in self.values for side in (both.above, both.below))]
        return max(1.0, *(float(sum(one.counts)) for one in histograms if one is not None))

    @property
    def answers(self) -> float:
        """An estimate of the number of non-empty groups."""
        reached = max(1.0, self.units * (self.groups.kept(np.inf) if self.groups else 1.0))
        if self.setting.all_groups is not None:
            return min(float(max(1, self.setting.all_groups)), reached)
        # Between one group and as many as can be shown.
        return max(1.0, math.sqrt(reached / max(1, self.setting.threshold or 1)))

    @property
    def growth(self) -> float:
        """The factor of the noise, relative to the current bounds."""
        return self.most_rows / self.setting.rows * self.growth_of_units

    @property
    def growth_of_units(self) -> float:
        """The factor of the noise of a count of units."""
        reach = self.most_groups / self.setting.groups
        return float(reach**0.5 if self.setting.variance_exponent == 1 else reach)

    def per_unit(self, most_rows: float, most_groups: float) -> float:
        """The mean number of rows per unit that count."""
        shares, rows, groups = _side_by_side(self.rows, self.groups)
        return float(shares @ (np.minimum(rows, most_rows) * np.minimum(groups, most_groups)))

    @property
    def part(self) -> float:
        """The fraction of rows that count."""
        return self.per_unit(self.most_rows, self.most_groups) / self.per_unit(np.inf, np.inf)

    def error(self, wish: Wish, clips: Sequence[tuple[int | None, int | None]]) -> float:
        all_rows = self.units * self.per_unit(np.inf, np.inf) / self.answers
        lost = all_rows * (1 - self.part)
        if wish.kind == "units":
            reached = self.units * (self.groups.kept(np.inf) if self.groups else 1.0) / self.answers
            dropped = 1 - (self.groups.kept(self.most_groups) / self.groups.kept(np.inf) if self.groups else 1.0)
            return float(np.hypot(wish.noise * self.growth_of_units, reached * dropped))
        if wish.kind == "rows":
            return float(np.hypot(wish.noise * self.growth, lost))
        if wish.kind in BIAS:
            return wish.noise * self.growth / max(all_rows * self.part, 1.0) + BIAS[wish.kind] * (1 - self.part)
        low, high = clips[wish.value]
        sides = self.values[wish.value]
        errors = [
            self.clip_error(wish, side)[edge]
            for side, edge in ((sides.below, low), (sides.above, high))
            if side is not None and edge is not None
        ]
        error = float(np.hypot.reduce(errors)) if errors else wish.noise
        if wish.kind == "mean":
            # What does not count is a sample of all: a mean over fewer rows is a little off by itself.
            counted = max(all_rows * self.part, 1.0)
            return math.hypot(error / counted, self.typical(sides, wish.power) * math.sqrt((1 - self.part) / counted))
        return float(np.hypot(error, lost * self.typical(sides, wish.power)))

    def clip_error(self, wish: Wish, side: Histogram) -> Numbers:
        """For each bin edge: the noise, and the loss beyond it in an average group, of rows that count."""
        bins = np.array(side.bins) ** wish.power
        noise = wish.noise * self.growth * bins / bins[-1]
        beyond = side.excess(wish.power) * self.part * self.likeness / self.answers
        errors: Numbers = np.hypot(noise, beyond)
        return errors

    @property
    def likeness(self) -> float:
        """A unit's values are neither all alike nor all different: as if the root of their number were as large."""
        return math.sqrt(self.per_unit(self.most_rows, self.most_groups))

    def typical(self, sides: Sides, power: int) -> float:
        """The typical size of a value."""
        sizes = [
            (float(side.seen @ side.middles**power), float(side.seen.sum()))
            for side in (sides.above, sides.below)
            if side is not None
        ]
        units = sum(number for _, number in sizes)
        return sum(total for total, _ in sizes) / units if units else 0.0


def _side_by_side(rows: Histogram | None, groups: Histogram | None) -> tuple[Numbers, Numbers, Numbers]:
    """Units as shares of all, with their rows in a group and their groups: who has more of one has more of the other.

    The two histograms are separate, so their joint distribution is unknown; frequent visitors usually visit many
    places.
    """
    sides = [_shares(histogram) for histogram in (rows, groups)]
    cuts = np.unique(np.concatenate([[0.0], *(np.cumsum(shares) for shares, _ in sides)]).clip(0, 1))
    middles = (cuts[1:] + cuts[:-1]) / 2
    found = [sizes[np.searchsorted(np.cumsum(shares)[:-1], middles)] for shares, sizes in sides]
    return np.diff(cuts), found[0], found[1]


def _shares(histogram: Histogram | None) -> tuple[Numbers, Numbers]:
    if histogram is None or not histogram.seen.any():
        return np.ones(1), np.ones(1)
    return histogram.seen / histogram.seen.sum(), histogram.middles


def _clip(scene: _Scene, sides: Sides, number: int, wishes: Sequence[Wish]) -> tuple[int | None, int | None]:
    """Clips each side by itself. If no value is seen at all, the limit is the best clip."""
    about = [wish for wish in wishes if wish.value == number and wish.kind in ("sum", "mean")]
    found = [_bin(scene, side, about) for side in (sides.below, sides.above)]
    if all(edge is None for edge in found):
        found = [None if side is None else len(side.bins) - 1 for side in (sides.below, sides.above)]
    return found[0], found[1]


def _bin(scene: _Scene, side: Histogram | None, wishes: Sequence[Wish]) -> int | None:
    if side is None or not side.seen.any():
        return None
    logs = [wish.importance * np.log(scene.clip_error(wish, side) + TINY) for wish in wishes]
    return int(np.argmin(np.sum(logs, axis=0)))

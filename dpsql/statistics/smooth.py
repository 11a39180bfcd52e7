"""Smooth sensitivity: the order statistic, average or total itself, with noise in the amount that the data calls for.

That amount is secret, so no interval can be given for the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.mechanisms import local_sensitivity, smooth_sensitivity
from dpsql.mechanisms.local_sensitivity import smooth_reach
from dpsql.mechanisms.ranks import share
from dpsql.statistics.profile import matched_moves, means, most_frequent, whole
from dpsql.statistics.quantile import MOST_RANKS, Around

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.accounting.events import Event
    from dpsql.aggregates.statistic import Average, Grid, Matched, Quantile
    from dpsql.mechanisms.local_sensitivity import LocalSensitivity
    from dpsql.mechanisms.smooth_sensitivity import SmoothNoise
    from dpsql.statistics.draw import Terms

MOST_GROUPS = 10_000


@dataclass(frozen=True)
class Smooth:
    """What all smooth draws have in common; `found` reads each group's answer and local sensitivity."""

    grid: Grid
    rows: int
    added: SmoothNoise
    name = "smooth"
    noise = None
    refund = None
    reach = 0
    work = 1

    @property
    def event(self) -> Event:
        return self.added.event

    @property
    def note(self) -> str:
        kind = self.added.kind.__name__
        return f"{kind} noise in proportion to what one unit can do to data like this: its error depends on the data"

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterable[tuple[Fraction, LocalSensitivity]]:
        raise NotImplementedError

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        low, high = self.grid.low, self.grid.high
        drawn = [self.added.release(answer, bounds, low, high) for answer, bounds in self.found(profile)]
        return np.ma.masked_array(np.array(drawn, dtype=np.int64))


def _noise_for(terms: Terms, cells: int = 1) -> SmoothNoise:
    """Without a delta the tails have to be heavy. `cells`: so many numbers have the same scale."""
    if not terms.delta:
        return smooth_sensitivity.cauchy(terms.epsilon)
    return smooth_sensitivity.laplace(terms.epsilon, terms.delta, cells)


@dataclass(frozen=True)
class SmoothAverage(Smooth):
    statistic: Average

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterator[tuple[Fraction, LocalSensitivity]]:
        for mean, rows in means(profile, self.statistic):
            yield mean, local_sensitivity.Average(rows, self.rows, self.grid.low, self.grid.high)


def smooth_average(statistic: Average, terms: Terms) -> SmoothAverage:
    return SmoothAverage(statistic.grid, terms.rows, _noise_for(terms), statistic)


@dataclass(frozen=True)
class SmoothQuantile(Smooth):
    around: Around

    @property
    def reach(self) -> int:  # type: ignore[override]
        return self.around.reach

    @property
    def work(self) -> int:  # type: ignore[override]
        return self.around.work

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterator[tuple[Fraction, LocalSensitivity]]:
        for statistic in self.around.read(profile):
            yield Fraction(statistic.value), statistic


def smooth_quantile(statistic: Quantile, terms: Terms) -> SmoothQuantile:
    added, grid = _noise_for(terms), statistic.grid
    if terms.rows > MOST_RANKS:
        raise ValueError(f"what a unit with more than {MOST_RANKS:,} rows can do is hidden by nothing but noise")
    steps = min(smooth_reach(added.b, grid.low, grid.high), MOST_RANKS // terms.rows)
    return SmoothQuantile(grid, terms.rows, added, Around(grid, share(statistic.fraction), terms.rows, steps))


@dataclass(frozen=True)
class SmoothMatched(Smooth):
    statistic: Matched

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterator[tuple[Fraction, LocalSensitivity]]:
        bounds = matched_moves(self.statistic, *most_frequent(profile))
        for total in whole(profile[0]).tolist():
            yield Fraction(total), bounds


def smooth_matched(statistic: Matched, terms: Terms) -> SmoothMatched:
    """One scale for all groups: Cauchy noise, the only one without a delta, is for a single number."""
    if statistic.groups > 1:
        terms.needs_delta()
    if statistic.groups > MOST_GROUPS:
        raise ProgrammingError(
            f"smooth sensitivity over more than {MOST_GROUPS:,} groups would be nothing but noise",
            hint='group by less, or use mechanism="ptr" and propose=...',
        )
    added = _noise_for(terms, max(statistic.groups, 1))
    return SmoothMatched(statistic.grid, terms.rows, added, statistic)

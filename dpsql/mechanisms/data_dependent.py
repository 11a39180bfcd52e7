"""Propose-test-release and smooth sensitivity, for quantiles, averages and totals over pairs of people.

Propose-test-release: the analyst proposes a sensitivity. If the data is far enough from data on which a unit could move
the answer further, the answer gets noise for the proposal; else it is NULL, and only the test is charged.
docs/proofs/propose_test_release.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Composed, Event, Laplace
from dpsql.errors import ProgrammingError
from dpsql.mechanisms import local_sensitivity, smooth_sensitivity
from dpsql.mechanisms.additive import LARGEST_STD
from dpsql.mechanisms.draw import Refund, matched_moves, means, most_frequent, whole
from dpsql.mechanisms.draw_statistics import MOST_RANKS, Around
from dpsql.mechanisms.exponential import share
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.local_sensitivity import smooth_reach
from dpsql.mechanisms.propose_test_release import StabilityTest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.measure import Average, Grid, Matched, Quantile
    from dpsql.mechanisms.draw import Terms
    from dpsql.mechanisms.local_sensitivity import LocalSensitivity
    from dpsql.mechanisms.smooth_sensitivity import SmoothNoise

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Proposed:
    """The base class of propose-test-release. `found` returns answers, and distances to data that breaks it."""

    grid: Grid
    rows: int
    beta: int
    """The proposal, in steps of the grid."""
    test: StabilityTest
    epsilon: Fraction
    name = "ptr"
    reach = 0
    work = 1

    def __post_init__(self) -> None:
        if self.beta > LARGEST_STD * self.epsilon:
            raise ValueError("the answer would be pure noise")

    @property
    def ranks(self) -> None:
        """Its error is that of its noise."""

    @property
    def noise(self) -> LaplaceNoise:
        return LaplaceNoise(self.beta / self.epsilon)

    @property
    def event(self) -> Event:
        return Composed((self.test.event, self.refund.event))

    @property
    def refund(self) -> Refund:
        return Refund(Laplace(1 / self.epsilon), self.epsilon)

    @property
    def note(self) -> str:
        proposal = float(self.beta * self.grid.quantum)
        return (
            f"noise for a sensitivity of {proposal:g}, if a private test confirms that more than "
            f"{self.test.threshold} people would have to change before any one could move the answer further; else "
            "NULL, at half the cost"
        )

    def found(self, profile: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        raise NotImplementedError

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        answers, distances = self.found(profile)
        released = np.clip(answers + self.noise.sample(len(answers)), self.grid.low, self.grid.high)
        # One distance for all groups together means one test for all of them.
        passed = np.broadcast_to(self.test.passes(distances), answers.shape)
        return np.ma.masked_array(released, mask=~passed)


def _halved(terms: Terms) -> tuple[StabilityTest, Fraction]:
    """Half of epsilon pays for the test, half for the release."""
    return StabilityTest(terms.epsilon / 2, terms.delta), terms.epsilon / 2


@dataclass(frozen=True)
class ProposedQuantile(Proposed):
    around: Around

    @property
    def reach(self) -> int:  # type: ignore[override]
        return self.around.reach

    @property
    def work(self) -> int:  # type: ignore[override]
        return self.around.work

    def found(self, profile: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        statistics = list(self.around.read(profile))
        answers = [part.value for part in statistics]
        distances = [part.distance(self.beta, self.test.limit) for part in statistics]
        return np.array(answers, dtype=np.int64), np.array(distances, dtype=np.int64)


def proposed_quantile(statistic: Quantile, terms: Terms) -> ProposedQuantile:
    test, epsilon = _halved(terms)
    if terms.rows * test.limit > MOST_RANKS:
        raise ValueError(f"a test of more than {MOST_RANKS:,} ranks would be pure noise")
    grid = statistic.grid
    around = Around(grid, share(statistic.fraction), terms.rows, test.limit)
    return ProposedQuantile(grid, terms.rows, terms.proposed_steps(grid), test, epsilon, around)


@dataclass(frozen=True)
class ProposedAverage(Proposed):
    statistic: Average

    def found(self, profile: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Means are rounded to the grid first, halves upwards: beta is whole, so a move of at most beta stays one."""
        found = list(means(profile, self.statistic))
        near = [
            local_sensitivity.AverageSensitivity(rows, self.rows, self.grid.low, self.grid.high) for _, rows in found
        ]
        distances = [part.distance(self.beta, self.test.limit) for part in near]
        return np.array([floor(mean + HALF) for mean, _ in found], dtype=np.int64), np.array(distances, dtype=np.int64)


def proposed_average(statistic: Average, terms: Terms) -> ProposedAverage:
    return ProposedAverage(statistic.grid, terms.rows, terms.proposed_steps(statistic.grid), *_halved(terms), statistic)


@dataclass(frozen=True)
class ProposedMatched(Proposed):
    statistic: Matched

    def found(self, profile: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        distance = matched_moves(self.statistic, *most_frequent(profile)).distance(self.beta, self.test.limit)
        return whole(profile[0]), np.array([distance], dtype=np.int64)


def proposed_matched(statistic: Matched, terms: Terms) -> ProposedMatched:
    assert terms.propose is not None
    test, epsilon = _halved(terms)
    grid = statistic.grid
    beta = terms.propose // grid.quantum
    if beta < matched_moves(statistic, 0, 0).at(0):
        enough = float(matched_moves(statistic, 1, 1).at(test.threshold) * grid.quantum)
        raise ProgrammingError(
            f"propose={float(terms.propose):g} is less than what one person can change on any data",
            hint=f"propose how much you think one person can change it, at the very least {enough:g}",
        )
    return ProposedMatched(grid, terms.rows, beta, test, epsilon, statistic)


# -- smooth ------------------------------------------------------------------------------------------------------------
# Smooth sensitivity: the order statistic, average or total, with noise scaled to a smooth bound on its local
# sensitivity. That scale is private, so the answer has no interval.

MOST_GROUPS = 10_000


@dataclass(frozen=True)
class SmoothDraw:
    """The base class of smooth sensitivity; `found` returns each group's answer and local sensitivity."""

    grid: Grid
    rows: int
    added: SmoothNoise
    name = "smooth"
    noise = None
    ranks = None
    refund = None
    reach = 0
    work = 1

    @property
    def event(self) -> Event:
        return self.added.event

    @property
    def note(self) -> str:
        kind = self.added.kind.__name__
        return (
            f"{kind} noise in proportion to what one person can change in this data, so the error depends on the data"
        )

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterable[tuple[Fraction, LocalSensitivity]]:
        raise NotImplementedError

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        low, high = self.grid.low, self.grid.high
        drawn = [self.added.release(answer, bounds, low, high) for answer, bounds in self.found(profile)]
        return np.ma.masked_array(np.array(drawn, dtype=np.int64))


def _noise_for(terms: Terms, cells: int = 1) -> SmoothNoise:
    """The noise and its smoothing parameter: heavy-tailed without a delta. `cells` numbers share the scale."""
    if not terms.delta:
        return smooth_sensitivity.cauchy(terms.epsilon)
    return smooth_sensitivity.laplace(terms.epsilon, terms.delta, cells)


@dataclass(frozen=True)
class SmoothAverage(SmoothDraw):
    statistic: Average

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterator[tuple[Fraction, LocalSensitivity]]:
        for mean, rows in means(profile, self.statistic):
            yield mean, local_sensitivity.AverageSensitivity(rows, self.rows, self.grid.low, self.grid.high)


def smooth_average(statistic: Average, terms: Terms) -> SmoothAverage:
    return SmoothAverage(statistic.grid, terms.rows, _noise_for(terms), statistic)


@dataclass(frozen=True)
class SmoothQuantile(SmoothDraw):
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
        raise ValueError(f"with more than {MOST_RANKS:,} rows per person the answer would be pure noise")
    steps = min(smooth_reach(added.b, grid.low, grid.high), MOST_RANKS // terms.rows)
    return SmoothQuantile(grid, terms.rows, added, Around(grid, share(statistic.fraction), terms.rows, steps))


@dataclass(frozen=True)
class SmoothMatched(SmoothDraw):
    statistic: Matched

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterator[tuple[Fraction, LocalSensitivity]]:
        bounds = matched_moves(self.statistic, *most_frequent(profile))
        for total in whole(profile[0]).tolist():
            yield Fraction(total), bounds


def smooth_matched(statistic: Matched, terms: Terms) -> SmoothMatched:
    """One scale for all groups. Cauchy noise, the only kind without a delta, protects a single number."""
    if statistic.groups > 1:
        terms.needs_delta()
    if statistic.groups > MOST_GROUPS:
        raise ProgrammingError(
            f"smooth sensitivity over more than {MOST_GROUPS:,} groups would be pure noise",
            hint='group by fewer values, or use mechanism="ptr" and propose=...',
        )
    added = _noise_for(terms, max(statistic.groups, 1))
    return SmoothMatched(statistic.grid, terms.rows, added, statistic)

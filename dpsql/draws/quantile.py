"""A quantile, drawn by the exponential mechanism, or by propose-test-release, or with smooth sensitivity.

The first looks at ranks alone and needs no noise. The others add noise to the order statistic itself: in the amount
that the analyst proposes, if the values around it bear that out, or in the amount that they call for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Composed, Event, Exponential, Laplace
from dpsql.draws.draw import Spared
from dpsql.draws.profile import windows
from dpsql.mechanisms.exponential import QuantileChoice, extreme
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.local_sensitivity import OrderStatistic, target_rank
from dpsql.mechanisms.propose_test_release import StabilityTest
from dpsql.mechanisms.ranks import Depth, Share, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Grid, Quantile
    from dpsql.draws.draw import Terms

MOST_RANKS = 1 << 18
"""No more ranks than this are looked at on either side; beyond them anything is assumed."""


@dataclass(frozen=True)
class ChosenQuantile:
    choice: QuantileChoice
    name: str = "exponential"
    noise: None = None
    spared: None = None

    @property
    def event(self) -> Event:
        return Exponential(self.choice.epsilon)

    @property
    def reach(self) -> int:
        choice = self.choice
        inside = choice.aim.rows if isinstance(choice.aim, Depth) else 0
        return choice.cap // choice.aim.parts + 1 + inside

    @property
    def note(self) -> str:
        return f"off by at most {self.choice.rank_error(0.95)} ranks at 95 %; its error in value depends on the data"

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        return np.ma.masked_array(self.choice.sample(windows(profile)))


def chosen_quantile(statistic: Quantile, terms: Terms) -> ChosenQuantile:
    low, high = statistic.grid.low, statistic.grid.high
    if statistic.fraction in (0, 1):
        return ChosenQuantile(extreme(terms.epsilon, terms.rows, low, high, greatest=statistic.fraction == 1))
    return ChosenQuantile(QuantileChoice(share(statistic.fraction), terms.epsilon, terms.rows, low, high))


@dataclass(frozen=True)
class Around:
    """The order statistics around a quantile, `steps` units' worth of rows to both sides."""

    grid: Grid
    share: Share
    rows: int
    steps: int

    @property
    def reach(self) -> int:
        # The target rank is a whole number, so up to 1 away from the fraction of the rows.
        return self.rows * self.steps + 1

    def read(self, profile: Sequence[NDArray[Any]]) -> Iterator[OrderStatistic]:
        found = windows(profile)
        targets = target_rank(self.share, found.rows)
        for group, target in enumerate(targets):
            part = slice(found.starts[group], found.starts[group + 1])
            ranks = np.arange(target - self.rows * self.steps, target + self.rows * self.steps + 1)
            values = np.where(ranks < 1, self.grid.low, self.grid.high)
            inside = (ranks >= 1) & (ranks <= found.rows[group])
            upto = found.below[group] + np.cumsum(found.counts[part])
            values[inside] = found.values[part][np.searchsorted(upto, ranks[inside])]
            yield OrderStatistic(values, self.rows, self.grid.low, self.grid.high)


@dataclass(frozen=True)
class ProposedQuantile:
    """Noise for `beta`, the proposal, if no unit near this data can move the quantile farther."""

    around: Around
    beta: int
    test: StabilityTest
    epsilon: Fraction
    name: str = "ptr"

    @property
    def noise(self) -> LaplaceNoise:
        return LaplaceNoise(self.beta / self.epsilon)

    @property
    def event(self) -> Event:
        return Composed((self.test.event, self.spared.event))

    @property
    def spared(self) -> Spared:
        return Spared(Laplace(1 / self.epsilon), self.epsilon)

    @property
    def reach(self) -> int:
        return self.around.reach

    @property
    def note(self) -> str:
        return proposal_note(self.beta * self.around.grid.quantum, self.test)

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        statistics = list(self.around.read(profile))
        middle = np.array([part.values[len(part.values) // 2] for part in statistics], dtype=np.int64)
        distances = np.array([part.distance(self.beta, self.test.limit) for part in statistics], dtype=np.int64)
        released = np.clip(middle + self.noise.sample(len(middle)), self.around.grid.low, self.around.grid.high)
        return np.ma.masked_array(released, mask=~self.test.passes(distances))


def proposed_quantile(statistic: Quantile, terms: Terms) -> ProposedQuantile:
    terms.needs_delta()
    test = StabilityTest(terms.epsilon / 2, terms.delta)
    if terms.rows * test.limit > MOST_RANKS:
        raise ValueError(f"a test of more than {MOST_RANKS:,} ranks would be nothing but noise")
    around = Around(statistic.grid, share(statistic.fraction), terms.rows, test.limit)
    return ProposedQuantile(around, terms.proposed_quanta(statistic.grid), test, terms.epsilon / 2)


def proposal_note(proposal: Fraction, test: StabilityTest) -> str:
    return (
        f"noise for a move of {float(proposal):g}, if a test finds the data more than {test.threshold} units away from "
        f"one where a unit could move it farther; if not, NULL, and half of the price"
    )

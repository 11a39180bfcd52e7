"""An average whose noise follows the number of rows: the more there are, the less one unit can move it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Composed, Event, Laplace
from dpsql.draws.draw import Spared
from dpsql.draws.profile import whole
from dpsql.draws.quantile import proposal_note
from dpsql.mechanisms import local_sensitivity
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.propose_test_release import StabilityTest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Average, Grid
    from dpsql.draws.draw import Terms


def means(profile: Sequence[NDArray[Any]], grid: Grid) -> Iterator[tuple[Fraction, int]]:
    """The mean of each group, of no rows the middle of the range, and the number of rows."""
    for total, rows in zip(*(whole(part).tolist() for part in profile), strict=True):
        yield (Fraction(total, rows) if rows else Fraction(grid.low + grid.high, 2)), rows


@dataclass(frozen=True)
class ProposedAverage:
    grid: Grid
    rows: int
    beta: int
    test: StabilityTest
    epsilon: Fraction
    name: str = "ptr"
    reach: int = 0

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
    def note(self) -> str:
        return proposal_note(self.beta * self.grid.quantum, self.test)

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        """Means are rounded to the grid first: beta is whole, so a move of at most beta stays one."""
        found = list(means(profile, self.grid))
        moves = [local_sensitivity.Average(rows, self.rows, self.grid.low, self.grid.high) for _, rows in found]
        distances = np.array([move.distance(self.beta, self.test.limit) for move in moves], dtype=np.int64)
        middle = np.array([round(mean) for mean, _ in found], dtype=np.int64)
        released = np.clip(middle + self.noise.sample(len(middle)), self.grid.low, self.grid.high)
        return np.ma.masked_array(released, mask=~self.test.passes(distances))


def proposed_average(statistic: Average, terms: Terms) -> ProposedAverage:
    terms.needs_delta()
    beta = terms.proposed_quanta(statistic.grid)
    return ProposedAverage(
        statistic.grid, terms.rows, beta, StabilityTest(terms.epsilon / 2, terms.delta), terms.epsilon / 2
    )

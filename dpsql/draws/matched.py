"""A total over pairs of different people, by propose-test-release or with smooth sensitivity.

What one unit can move is bounded over all groups together, so there is one test and one scale for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Composed, Event, Laplace
from dpsql.aggregates.measure import SumValues
from dpsql.aggregates.statistic import Grid
from dpsql.draws.draw import Spared
from dpsql.draws.profile import whole
from dpsql.draws.quantile import proposal_note
from dpsql.draws.smooth import Smooth, noise_for
from dpsql.errors import ProgrammingError
from dpsql.expressions.quanta import LARGEST
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.local_sensitivity import CrossJoin
from dpsql.mechanisms.propose_test_release import StabilityTest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Matched
    from dpsql.draws.draw import Terms
    from dpsql.mechanisms.local_sensitivity import LocalSensitivity

MOST_GROUPS = 10_000


def moves(profile: Sequence[NDArray[Any]], statistic: Matched) -> CrossJoin:
    """How far one unit can move the totals, all groups together."""
    _, left, right = (whole(part) for part in profile)
    return moves_from(int(left.max()), int(right.max()), statistic)


def moves_from(left_most: int, right_most: int, statistic: Matched) -> CrossJoin:
    measure = statistic.measure
    value = max(abs(measure.low), abs(measure.high)) if isinstance(measure, SumValues) else 1
    return CrossJoin(statistic.left_rows, statistic.right_rows, left_most, right_most, value)


@dataclass(frozen=True)
class ProposedMatched:
    statistic: Matched
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
        return proposal_note(self.beta * self.statistic.quantum, self.test)

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        totals = whole(profile[0])
        distance = moves(profile, self.statistic).distance(self.beta, self.test.limit)
        passes = bool(self.test.passes(np.array([distance], dtype=np.int64))[0])
        released = totals + self.noise.sample(len(totals))
        return np.ma.masked_array(released, mask=np.full(len(totals), not passes))


def proposed_matched(statistic: Matched, terms: Terms) -> ProposedMatched:
    terms.needs_delta()
    assert terms.propose is not None
    beta, test = terms.propose // statistic.quantum, StabilityTest(terms.epsilon / 2, terms.delta)
    if beta < moves_from(0, 0, statistic).at(0):
        enough = moves_from(1, 1, statistic).at(test.threshold) * statistic.quantum
        raise ProgrammingError(
            f"propose={float(terms.propose):g} is less than one unit can change on any data",
            hint=f"propose how much you think it can change, at the very least {float(enough):g}",
        )
    return ProposedMatched(statistic, beta, test, terms.epsilon / 2)


@dataclass(frozen=True)
class SmoothMatched(Smooth):
    statistic: Matched

    def found(self, profile: Sequence[NDArray[Any]]) -> Iterator[tuple[Fraction, LocalSensitivity]]:
        bounds = moves(profile, self.statistic)
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
    added = noise_for(terms, max(statistic.groups, 1))
    return SmoothMatched(Grid(statistic.quantum, -LARGEST, LARGEST), terms.rows, added, statistic)

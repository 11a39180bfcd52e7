"""The most frequent value: chosen by permute-and-flip, or as it is where the data is far from a tie."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Event, Free
from dpsql.mechanisms.permute_and_flip import MostFrequent
from dpsql.mechanisms.propose_test_release import StabilityTest
from dpsql.mechanisms.stable_value import distances
from dpsql.statistics.draw import Refund
from dpsql.statistics.profile import tallies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Mode
    from dpsql.statistics.draw import Terms


@dataclass(frozen=True, kw_only=True)
class ChosenMode:
    size: int
    choice: MostFrequent
    name: str = "exponential"
    noise: None = None
    reach: int = 0
    refund: None = None

    @property
    def event(self) -> Event:
        return self.choice.event

    @property
    def note(self) -> str:
        rows = self.choice.shortfall(max(self.size, 1), 0.95)
        return f"fewer than {rows} rows behind the most frequent value at 95 %"

    @property
    def work(self) -> int:
        return self.size

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        chosen = [self.choice.sample(counts) if self.size else 0 for counts in tallies(profile, self.size)]
        return np.ma.masked_array(np.array(chosen, dtype=np.int64))


def chosen_mode(statistic: Mode, terms: Terms) -> ChosenMode:
    return ChosenMode(size=len(statistic.values), choice=MostFrequent(terms.epsilon, terms.rows))


@dataclass(frozen=True, kw_only=True)
class StableMode:
    size: int
    rows: int
    test: StabilityTest
    name: str = "stable"
    noise: None = None
    reach: int = 0
    refund: Refund = Refund(Free(), Fraction(0))  # noqa: RUF009 - frozen

    @property
    def event(self) -> Event:
        return self.test.event

    @property
    def note(self) -> str:
        return f"exact, if it leads by more than about {self.test.threshold * self.rows} rows; else NULL"

    @property
    def work(self) -> int:
        return self.size

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        found = [_winner(counts) for counts in tallies(profile, max(self.size, 2))]
        winners, leads = np.array(found, dtype=np.int64).reshape(-1, 2).T
        limited = np.minimum(distances(leads, self.rows), self.test.limit)
        return np.ma.masked_array(winners, mask=~self.test.passes(limited))


def _winner(counts: NDArray[np.int64]) -> tuple[int, int]:
    """The place of the most frequent value, and how far it is ahead of the second."""
    second, first = np.partition(counts, (-2, -1))[-2:].tolist()
    return int(counts.argmax()), first - second


def stable_mode(statistic: Mode, terms: Terms) -> StableMode:
    return StableMode(size=len(statistic.values), rows=terms.rows, test=StabilityTest(terms.epsilon, terms.delta))

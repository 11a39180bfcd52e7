"""Modes and quantiles: drawn by the exponential mechanism, permute-and-flip or stable values; their order statistics.

The exponential mechanism uses ranks only and adds no noise. The mechanisms of data_dependent.py add noise to the order
statistic itself, and need the values around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Event, Exponential, Free, Repeated
from dpsql.aggregates.measure import Quantile
from dpsql.display.numbers import several
from dpsql.mechanisms.draw import Refund, tallies, windows
from dpsql.mechanisms.exponential import MOST_ROWS, QuantileChoice, QuantileFraction, QuantileTree, extreme, share
from dpsql.mechanisms.local_sensitivity import order_statistic, target_rank
from dpsql.mechanisms.permute_and_flip import MostFrequent
from dpsql.mechanisms.propose_test_release import StabilityTest
from dpsql.mechanisms.stable_value import distances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.measure import Grid, Mode
    from dpsql.aggregates.release import Drawn
    from dpsql.mechanisms.draw import Terms
    from dpsql.mechanisms.local_sensitivity import OrderStatistic

# -- mode --------------------------------------------------------------------------------------------------------------
# The most frequent value: chosen by permute-and-flip, or as it is where the data is far from a tie.


@dataclass(frozen=True, kw_only=True)
class ChosenMode:
    size: int
    choice: MostFrequent
    name: str = "exponential"
    noise: None = None
    ranks: None = None
    reach: int = 0
    refund: None = None

    @property
    def event(self) -> Event:
        return self.choice.event

    @property
    def note(self) -> str:
        rows = self.choice.shortfall(max(self.size, 1), 0.95)
        return f"within {rows} rows of the most frequent value at 95 %"

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
    ranks: None = None
    reach: int = 0
    refund: Refund = Refund(Free(), Fraction(0))  # noqa: RUF009 - frozen

    @property
    def event(self) -> Event:
        return self.test.event

    @property
    def note(self) -> str:
        return f"exact if it leads by more than about {self.test.threshold * self.rows} rows, else NULL"

    @property
    def work(self) -> int:
        return self.size

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        found = [_winner(counts) for counts in tallies(profile, max(self.size, 2))]
        winners, leads = np.array(found, dtype=np.int64).reshape(-1, 2).T
        limited = np.minimum(distances(leads, self.rows), self.test.limit)
        return np.ma.masked_array(winners, mask=~self.test.passes(limited))


def _winner(counts: NDArray[np.int64]) -> tuple[int, int]:
    """The index of the most frequent value, and its lead over the second."""
    second, first = np.partition(counts, (-2, -1))[-2:].tolist()
    return int(counts.argmax()), first - second


def stable_mode(statistic: Mode, terms: Terms) -> StableMode:
    return StableMode(size=len(statistic.values), rows=terms.rows, test=StabilityTest(terms.epsilon, terms.delta))


# -- quantile ----------------------------------------------------------------------------------------------------------

MOST_RANKS = 1 << 16
"""The most ranks that mechanisms with noise read on either side; beyond them they assume the worst case."""
MOST_CHOICES = 1 << 22
"""The most ranks that the exponential mechanism reads on either side."""


@dataclass(frozen=True)
class ChosenQuantile:
    choice: QuantileChoice
    name: str = "exponential"
    noise: None = None
    refund: None = None

    @property
    def event(self) -> Event:
        return Exponential(self.choice.epsilon)

    @property
    def reach(self) -> int:
        return self.choice.reach

    @property
    def work(self) -> int:
        return 1  # per row that a group has, and no more

    @property
    def ranks(self) -> int:
        return self.choice.aim.inside + self.choice.rank_error(0.95)

    @property
    def note(self) -> str:
        error = self.choice.rank_error(0.95)
        unknown = "the error in value depends on the data"
        if (depth := self.choice.aim.inside) == 0:
            return f"off by at most {error:,} ranks at 95 %; {unknown}"
        # Aimed at the very end it would lie beyond the data as often as not.
        few = several(depth, "person", "people")
        stops = f"stops about {few} short of the extreme in rank, at most {depth + error:,} at 95 %"
        return f"{stops}; of fewer than {2 * depth:,} people it is the median; {unknown}"

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        return np.ma.masked_array(self.choice.sample(windows(profile)))


def chosen_quantile(statistic: Quantile, terms: Terms) -> ChosenQuantile:
    low, high = statistic.grid.low, statistic.grid.high
    if statistic.fraction in (0, 1):
        choice = extreme(terms.epsilon, terms.rows, low, high, greatest=statistic.fraction == 1)
    else:
        choice = QuantileChoice(share(statistic.fraction), terms.epsilon, terms.rows, low, high)
    if choice.reach > MOST_CHOICES:
        raise ValueError(f"the answer could be off by {MOST_CHOICES:,} ranks or more")
    return ChosenQuantile(choice)


@dataclass(frozen=True)
class BisectedQuantile:
    """One of many quantiles that are drawn together. The first of them draws, and is charged for, all of them."""

    tree: QuantileTree
    fraction: Fraction
    is_first: bool
    name: str = "exponential"
    noise: None = None
    refund: None = None
    work: int = 1
    reach: int = MOST_ROWS  # the whole profile

    @property
    def event(self) -> Event:
        return Repeated((Exponential(self.tree.epsilon),), Fraction(self.tree.levels)) if self.is_first else Free()

    @property
    def ranks(self) -> int:
        return self.tree.rank_errors(0.95)[self.fraction]

    @property
    def note(self) -> str:
        return (
            f"off by at most {self.ranks:,} ranks at 95 %, mostly by far less; the error in value depends on the data"
        )

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        """A row for each fraction."""
        return np.ma.masked_array(self.tree.sample(windows(profile)))


def bisected_quantile(drawn: Drawn, terms: Terms) -> BisectedQuantile:
    assert isinstance(drawn.statistic, Quantile)
    grid = drawn.statistic.grid
    tree = QuantileTree(drawn.together, terms.epsilon, terms.rows, grid.low, grid.high)
    return BisectedQuantile(tree, drawn.statistic.fraction, drawn.leader is None)


@dataclass(frozen=True)
class Around:
    """The order statistics around a quantile, as many as `steps` units can move it on either side."""

    grid: Grid
    share: QuantileFraction
    rows: int
    steps: int

    @property
    def reach(self) -> int:
        # The target rank is a whole number, so up to 1 away from the fraction of the rows.
        return self.rows * self.steps + 1

    @property
    def work(self) -> int:
        return 2 * self.reach

    def read(self, profile: Sequence[NDArray[Any]]) -> Iterator[OrderStatistic]:
        found, width = windows(profile), self.rows * self.steps
        targets = target_rank(self.share, found.rows)
        for group, (rows, target) in enumerate(zip(found.rows.tolist(), targets.tolist(), strict=True)):
            part = slice(found.starts[group], found.starts[group + 1])
            first, last = max(target - width, 1), min(target + width, rows)
            upto = found.below[group] + np.cumsum(found.counts[part])
            values = found.values[part][np.searchsorted(upto, np.arange(first, last + 1))]
            yield order_statistic(values, first, rows, target, self.steps, self.rows, self.grid.low, self.grid.high)

"""A quantile: chosen by the exponential mechanism, or read as the order statistics around it, for noise in proportion.

The exponential mechanism looks at ranks alone and adds no noise; the others (proposed.py, smooth.py) add noise to the
order statistic itself, and have to know what is around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Event, Exponential
from dpsql.mechanisms.exponential import QuantileChoice, extreme
from dpsql.mechanisms.local_sensitivity import order_statistic, target_rank
from dpsql.mechanisms.ranks import Share, share
from dpsql.statistics.profile import windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Grid, Quantile
    from dpsql.mechanisms.local_sensitivity import OrderStatistic
    from dpsql.statistics.draw import Terms

MOST_RANKS = 1 << 16
"""Mechanisms with noise look at no more ranks than this on either side; beyond them anything is assumed."""
MOST_CHOICES = 1 << 22
"""The exponential mechanism looks at no more ranks than this on either side, if a group has as many."""


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
    def note(self) -> str:
        error = self.choice.rank_error(0.95)
        off = f"off by at most {error:,} ranks at 95 %; its error in value depends on the data"
        if (depth := self.choice.aim.inside) == 0:
            return off
        # Aimed at the very end it would lie beyond the data as often as not.
        return f"aims {depth:,} rows inside the end, so that it leaves up to {depth + error:,} rows out; {off}"

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        return np.ma.masked_array(self.choice.sample(windows(profile)))


def chosen_quantile(statistic: Quantile, terms: Terms) -> ChosenQuantile:
    low, high = statistic.grid.low, statistic.grid.high
    if statistic.fraction in (0, 1):
        choice = extreme(terms.epsilon, terms.rows, low, high, greatest=statistic.fraction == 1)
    else:
        choice = QuantileChoice(share(statistic.fraction), terms.epsilon, terms.rows, low, high)
    if choice.reach > MOST_CHOICES:
        raise ValueError(f"the answer could be off by {MOST_CHOICES:,} ranks and more")
    return ChosenQuantile(choice)


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

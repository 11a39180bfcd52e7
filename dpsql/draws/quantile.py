"""A quantile: chosen by the exponential mechanism, or read as the order statistics around it, for noise in proportion.

The exponential mechanism looks at ranks alone and adds no noise; the others (proposed.py, smooth.py) add noise to the
order statistic itself, and have to know what is around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.events import Event, Exponential
from dpsql.draws.profile import windows
from dpsql.mechanisms.exponential import QuantileChoice, extreme
from dpsql.mechanisms.local_sensitivity import OrderStatistic, target_rank
from dpsql.mechanisms.ranks import Depth, Share, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Grid, Quantile
    from dpsql.draws.draw import Terms

MOST_RANKS = 1 << 16
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

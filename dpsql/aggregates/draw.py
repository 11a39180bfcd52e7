"""How a statistic is drawn from its profile: a mechanism ready to run, with what it costs and what it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpsql.accounting.events import Event, Exponential
from dpsql.aggregates.statistic import Quantile
from dpsql.mechanisms.exponential import QuantileChoice, Windows, extreme
from dpsql.mechanisms.ranks import share

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from dpsql.aggregates.statistic import Statistic
    from dpsql.mechanisms.noise import Noise


class Draw(Protocol):
    """For each group a whole number, or nothing where the mechanism refuses."""

    @property
    def name(self) -> str: ...

    @property
    def event(self) -> Event:
        """What it is, in one group."""
        ...

    @property
    def reach(self) -> int:
        """How many ranks on both sides of a quantile it looks at."""
        ...

    @property
    def noise(self) -> Noise | None:
        """The noise around the answer, where it is known to everybody."""
        ...

    @property
    def note(self) -> str:
        """What explain() says of the error."""
        ...

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        """`profile`: the columns of the statistic's parts, a row for each group."""
        ...


def draw_for(statistic: Statistic, question: Question, epsilon: Fraction, delta: Fraction, rows: int) -> Draw:
    """The mechanism for one group, of which a unit has at most `rows` rows."""
    match statistic:
        case Quantile():
            return ChosenQuantile(quantile_choice(statistic, epsilon, rows))
    raise NotImplementedError


@dataclass(frozen=True)
class ChosenQuantile:
    choice: QuantileChoice
    name: str = "exponential"
    noise: None = None

    @property
    def event(self) -> Event:
        return Exponential(self.choice.epsilon)

    @property
    def reach(self) -> int:
        # The aim of a minimum or maximum lies up to so many ranks inside.
        return self.choice.cap // self.choice.aim.parts + 1

    @property
    def note(self) -> str:
        return f"its rank is off by at most {self.choice.rank_error(0.95)} rows at 95 %; in value that depends on the data"

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        return np.ma.masked_array(self.choice.sample(windows(profile)))


def quantile_choice(statistic: Quantile, epsilon: Fraction, rows: int) -> QuantileChoice:
    low, high = statistic.grid.low, statistic.grid.high
    if statistic.fraction in (0, 1):
        return extreme(epsilon, rows, low, high, greatest=statistic.fraction == 1)
    return QuantileChoice(share(statistic.fraction), epsilon, rows, low, high)


def windows(profile: Sequence[NDArray[Any]]) -> Windows:
    points, counts, below, rows = profile
    lists = [_list(item) for item in points]
    starts = np.concatenate(([0], np.cumsum([len(item) for item in lists]))).astype(np.int64)
    return Windows(_end_to_end(lists), _end_to_end([_list(item) for item in counts]), starts, whole(below), whole(rows))


def _list(item: Any) -> NDArray[np.int64]:
    """A group without rows has no list."""
    return np.empty(0, np.int64) if item is None or item is np.ma.masked else np.asarray(item, np.int64)


def _end_to_end(lists: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *lists])


def whole(column: NDArray[Any]) -> NDArray[np.int64]:
    return np.ma.filled(column, 0).astype(np.int64)

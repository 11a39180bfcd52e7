"""What every mechanism for a statistic can tell about itself, and the terms on which one is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    from dpsql.accounting.events import Event
    from dpsql.aggregates.statistic import Grid
    from dpsql.mechanisms.noise import Noise


@dataclass(frozen=True)
class Terms:
    """What is asked for, and what one group may cost."""

    mechanism: str
    propose: Fraction | None
    epsilon: Fraction
    delta: Fraction
    rows: int
    """One unit has at most so many rows in the group."""

    def needs_delta(self) -> None:
        if not self.delta:
            raise ProgrammingError(
                f'mechanism="{self.mechanism}" needs a delta, and this session has none',
                hint="connect with delta=1e-6, or name another mechanism",
            )

    def proposed_steps(self, grid: Grid) -> int:
        """The proposal in steps of the grid, which must be some, and fewer than the grid has."""
        assert self.propose is not None
        steps = self.propose // grid.quantum
        if 1 <= steps < grid.high - grid.low:
            return steps
        width = float((grid.high - grid.low) * grid.quantum)
        raise ProgrammingError(
            f"propose={float(self.propose):g} is not between 0 and the width of the declared range, {width:g}",
            hint=f"propose how much you think one unit can move the answer, such as {width / 1000:g}",
        )


@dataclass(frozen=True)
class Refund:
    """What is not spent when a test refuses."""

    event: Event
    epsilon: Fraction


class Draw(Protocol):
    """Gives each group a whole number, or nothing where a test refuses."""

    @property
    def name(self) -> str: ...

    @property
    def event(self) -> Event:
        """What it is, in one group."""
        ...

    @property
    def refund(self) -> Refund | None:
        """Of that, what is not spent if the test refuses; None where there is no test."""
        ...

    @property
    def reach(self) -> int:
        """How many ranks on both sides of a quantile it looks at."""
        ...

    @property
    def work(self) -> int:
        """How many numbers it handles for one group, whatever the data."""
        ...

    @property
    def noise(self) -> Noise | None:
        """The noise around the answer, where it is known to everybody."""
        ...

    @property
    def note(self) -> str:
        """What explain() says of it."""
        ...

    def draw(self, profile: Sequence[NDArray[Any]]) -> np.ma.MaskedArray[Any, Any]:
        """`profile`: the columns of the statistic's parts, a row for each group."""
        ...

"""What a session may spend, has spent and has left, as a value to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dpsql.accounting.budget_card import MOST_STEPS, budget_card
from dpsql.accounting.events import Event
from dpsql.accounting.exact import exact, rounded_down

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal
    from fractions import Fraction

    from dpsql.accounting.costs import Cost, Totals
    from dpsql.accounting.entries import Entry
    from dpsql.accounting.filters import Filter
    from dpsql.accounting.tally import Tally


class Priced(Protocol):
    """Anything with a nominal cost: a receipt, an explanation's cost, a ledger entry."""

    @property
    def epsilon(self) -> float | Fraction: ...

    @property
    def delta(self) -> float | Fraction: ...


class Suspension(NamedTuple):
    """A question of the analyst (None: of whoever gave no name) failed after its charge, and nobody has looked yet."""

    analyst: str | None
    entry: int
    time: str

    def __str__(self) -> str:
        who = "questions without an analyst's name" if self.analyst is None else f"questions of {self.analyst}"
        return f"{who}, by entry {self.entry}: one failed after its charge"


def _not_on_record(after: int, count: int) -> Sequence[Entry]:
    return ()


@dataclass(frozen=True)
class Budget:
    filter: Filter
    tally: Tally
    charges: Callable[[int, int], Sequence[Entry]] = field(default=_not_on_record, repr=False, compare=False)
    """Reads charges from the ledger, when they are to be drawn: after the first so many, at most so many."""
    suspended: tuple[Suspension, ...] = ()
    """Whose questions are not answered until the data owner has looked."""

    @property
    def epsilon(self) -> float:
        return rounded_down(self.filter.epsilon)

    @property
    def delta(self) -> float:
        return rounded_down(self.filter.delta)

    @property
    def queries(self) -> int:
        return self.tally.queries

    @cached_property
    def spent(self) -> Cost:
        return self.filter.spent(self.tally.totals)

    @cached_property
    def remaining(self) -> Cost:
        return self.filter.remaining(self.tally.totals)

    @property
    def basic(self) -> Cost:
        """What basic composition over the queries' nominal costs would have said."""
        return self.tally.basic

    @property
    def advanced(self) -> Cost | None:
        """What advanced composition would have said, with the session's delta as its slack; it needs one."""
        return self.tally.advanced(self.filter.delta) if self.filter.delta else None

    def admits(self, cost: Totals) -> bool:
        return self.filter.admits(self.tally.totals + cost)

    def queries_like(self, cost: Event | Priced | float | str | Decimal) -> int:
        """How many more queries of this cost fit. An event says most exactly what a query costs."""
        if isinstance(cost, Event):
            alike: tuple[Event, ...] = (cost,)
        else:
            epsilon, delta = getattr(cost, "epsilon", cost), getattr(cost, "delta", 0)
            alike = self.filter.queries_at(exact(epsilon), exact(delta, "delta"))
        return max(self.filter.affords(self.tally.totals, event) for event in alike)

    def __str__(self) -> str:
        spent, remaining, advanced = self.spent, self.remaining, self.advanced
        beside = "" if advanced is None else f", advanced composition {advanced.epsilon:.4g}"
        return (
            f"epsilon: {spent.epsilon:.4g} of {self.epsilon:.4g} spent in {self.queries} queries, "
            f"{remaining.epsilon:.4g} left for the next\n"
            f"delta: {spent.delta:.3g} of {self.delta:.3g} spent\n"
            f"basic composition would have said {self.basic.epsilon:.4g}{beside}"
            + "".join(f"\nsuspended: {suspension}" for suspension in self.suspended)
        )

    def __reduce__(self) -> tuple[type[Budget], tuple[object, ...]]:
        """A pickled budget is what was counted; the ledger stays where it is."""
        return Budget, (self.filter, self.tally, _not_on_record, self.suspended)

    def _repr_html_(self) -> str:
        return budget_card(self, self.charges(max(0, self.queries - MOST_STEPS), MOST_STEPS)[: self.queries])

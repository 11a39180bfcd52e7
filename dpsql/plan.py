"""A plan, to look at before it is paid for: what each query of a batch takes and how exact it will be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.display.card import card, figures, grid
from dpsql.explanation import price_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpsql.accounting.costs import Cost
    from dpsql.explanation import Explanation


@dataclass(frozen=True)
class PlannedQuery:
    sql: str
    weight: float
    share: float
    """The part of the plan's budget that it takes."""
    explanation: Explanation
    """As if it were asked alone."""

    @property
    def errors(self) -> str:
        """The columns with what is known of their errors."""
        return "; ".join(
            f"{column.name} ± {column.half_width:,.4g}"
            if column.half_width is not None
            else f"{column.name}: {column.note}"
            for column in self.explanation.columns
            if column.half_width is not None or column.note
        )


@dataclass(frozen=True)
class Plan:
    """Made by `Connection.plan`."""

    queries: tuple[PlannedQuery, ...]
    cost: Cost
    """Of all answers together."""
    remaining: Cost
    """What is left of the session if the plan is executed now."""
    answers: Callable[[], list[Any]] = field(repr=False, compare=False)

    def execute(self) -> list[Any]:
        """Charges all queries at once, or none, and gives their answers in order."""
        return self.answers()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        cost, left = self.cost, self.remaining
        yield f"cost       epsilon {cost.epsilon:.6g}, delta {cost.delta:.3g} in all; {left.epsilon:.6g} is left"
        for number, query in enumerate(self.queries, 1):
            yield f"query {number:<4} {query.share:.1%} of it: {query.errors or 'no noisy column'}"
            yield f"           {' '.join(query.sql.split())}"

    def _repr_html_(self) -> str:
        names = ("query", "weight", "part of the cost", "error at 95 %")
        return card(
            "What the queries would cost together; nothing is spent yet",
            figures((*price_figures(self.cost, self.remaining), (str(len(self.queries)), "queries"))),
            grid(
                names,
                ((query.sql, f"{query.weight:g}", f"{query.share:.1%}", query.errors) for query in self.queries),
            ),
        )

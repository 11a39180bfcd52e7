"""The budget as a picture: what each query added to what was spent, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.display.card import card, facts, figures, folded, grid, paragraph
from dpsql.display.meter import Step, meter, staircase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.entries import Entry

MOST_STEPS = 40
MOST_LISTED = 100
"""Characters of a question in the list."""
LEGEND = "What was spent after each query; the strong colour is what the query added."


def budget_card(budget: Budget, past: Sequence[Entry]) -> str:
    """`past` are the last charges, oldest first; what was spent before them is one step."""
    spent, remaining = budget.spent, budget.remaining
    steps = list(_steps(budget, past))
    drawn = (meter(steps, budget.epsilon), staircase(steps), paragraph(LEGEND)) if steps else ()
    return card(
        "Privacy budget",
        figures(
            (
                (f"ε {spent.epsilon:.4g}", f"of {budget.epsilon:.4g} spent"),
                (f"ε {remaining.epsilon:.4g}", "left for the next query"),
                (f"{budget.queries:,}", "queries charged"),
            )
        ),
        *drawn,
        facts(_facts(budget)),
        folded("the last queries", grid(("query", "ε", "ε spent after it"), _listed(budget, past))) if past else "",
    )


def _steps(budget: Budget, past: Sequence[Entry]) -> Iterator[Step]:
    before = 0.0
    earlier = budget.queries - len(past)
    for entry in past:
        after = budget.filter.spent(entry.tally.totals).epsilon
        if entry is past[0] and earlier:
            # How the earlier ones share what was spent before is not read again.
            yield Step(f"{earlier + 1:,} queries: ε {after:.4g}", 0.0, after)
        else:
            yield Step(f"{_shortened(entry)}: ε {float(entry.epsilon):.4g}, {after:.4g} in all", before, after)
        before = after


def _facts(budget: Budget) -> Iterator[tuple[str, str]]:
    spent, advanced = budget.spent, budget.advanced
    yield "delta", f"{spent.delta:.3g} of {budget.delta:.3g} spent"
    for suspension in budget.suspended:
        yield "suspended", str(suspension)
    beside = "" if advanced is None else f", by advanced composition {advanced.epsilon:.4g}"
    yield "composition", f"{budget.filter.name}; by the plain sum ε {budget.basic.epsilon:.4g} would be spent{beside}"


def _listed(budget: Budget, past: Sequence[Entry]) -> Iterator[tuple[str, str, str]]:
    for entry in reversed(past):
        after = budget.filter.spent(entry.tally.totals).epsilon
        yield _shortened(entry), f"{float(entry.epsilon):.4g}", f"{after:.4g}"


def _shortened(entry: Entry) -> str:
    asked = " ".join((entry.sql or "").split())
    return asked if len(asked) <= MOST_LISTED else f"{asked[:MOST_LISTED]}…"

"""MODE(x): the most frequent of the values that x can have, which must be public. docs/proofs/permute_and_flip.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Answer, Context
from dpsql.aggregates.estimate import Formula
from dpsql.aggregates.function import AggregateFunction, ErrorBars
from dpsql.aggregates.statistic import Mode
from dpsql.errors import Unsupported
from dpsql.expressions.narrow import kept_facts
from dpsql.expressions.write import Sql, column, literal

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall


def mode(call: AggregateCall, context: Context) -> Answer:
    (value,) = call.arguments
    values = kept_facts(value, context.known).listed()
    if values is None or call.distinct:
        raise Unsupported(
            "MODE needs a column whose possible values are public",
            at=call.at,
            hint="the data owner can declare  values: [...]  for it, or narrow bounds for whole numbers; "
            "or write GROUP BY it, ORDER BY COUNT(*) DESC LIMIT 1",
        )
    place = column(context.drawn_as(Mode(value, values)))
    cases = " ".join(f"WHEN {number} THEN {literal(value_, value.type)}" for number, value_ in enumerate(values))
    return Answer(Formula(Sql(f"CASE {place} {cases} END" if values else "NULL")), value.type)


MODE = AggregateFunction(name="MODE", of="columns with public values", error=ErrorBars.UNKNOWN, answer=mode)

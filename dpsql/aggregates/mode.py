"""MODE(x): the most frequent of the values that x can have, which must be public. docs/proofs/permute_and_flip.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Formula
from dpsql.aggregates.final import Answer, Context
from dpsql.aggregates.function import AggregateFunction, ErrorBars, Word
from dpsql.aggregates.statistic import Mode
from dpsql.engine_sql.build import NULL, integer, test
from dpsql.engine_sql.tree import Case, Constant, Field
from dpsql.errors import Unsupported
from dpsql.expressions.narrow import kept_properties

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall


def mode(call: AggregateCall, context: Context) -> Answer:
    (value,) = call.arguments
    values = kept_properties(value, context.known).listed()
    if values is None or call.distinct:
        raise Unsupported(
            "MODE needs a column whose possible values are public",
            at=call.at,
            hint="the data owner can declare  values: [...]  for it, or narrow bounds for whole numbers; "
            "or write GROUP BY it, ORDER BY COUNT(*) DESC LIMIT 1",
        )
    place = Field(context.drawn_as(Mode(value, values)))
    cases = tuple(
        (test("=", place, integer(number)), Constant(choice, value.type)) for number, choice in enumerate(values)
    )
    return Answer(Formula(Case(cases, NULL) if values else NULL), value.type)


MODE = AggregateFunction(
    name="MODE",
    of="columns with public values",
    error=ErrorBars.UNKNOWN,
    answer=mode,
    words=(Word("mode", "MODE({})", "The most frequent value."),),
)

"""COUNT(*), COUNT(x), COUNT(DISTINCT unit)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Answer, Context
from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.measure import CountRows, CountUnits, CountValues, Measure
from dpsql.errors import Unsupported
from dpsql.expressions.narrow import kept_facts
from dpsql.expressions.tree import Column, Expression, Known
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall


def count(call: AggregateCall, context: Context) -> Answer:
    measure = count_units(call, context) if call.distinct else count_of(call.argument, context.known)
    return Answer(Linear(((context.column_of(measure), Fraction(1)),)), Integer())


def count_of(argument: Expression | None, known: Known) -> Measure:
    """Counting a column that is never NULL is counting rows."""
    if argument is None or not kept_facts(argument, known).nullable:
        return CountRows()
    return CountValues(argument)


def count_units(call: AggregateCall, context: Context) -> Measure:
    if isinstance(call.argument, Column) and call.argument.name in context.unit_columns:
        return CountUnits()
    units = " or ".join(sorted(context.unit_columns)) or "the unit"
    raise Unsupported(
        "COUNT(DISTINCT ...) counts units, and nothing else yet",
        at=call.at,
        hint=f"count people with COUNT(DISTINCT {units}), or group by the column and count the groups",
    )

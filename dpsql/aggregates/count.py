"""COUNT(*), COUNT(x), COUNT(DISTINCT x), and COUNT(DISTINCT unit), which counts people."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Answer, Context
from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.measure import CountRows, CountUnits, CountValues, Measure, OverDistinct
from dpsql.expressions.narrow import kept_facts
from dpsql.expressions.tree import Column, Expression, Known
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall


def count(call: AggregateCall, context: Context) -> Answer:
    return Answer(count_linear(call, context), Integer())


def count_linear(call: AggregateCall, context: Context) -> Linear:
    """The number of rows or values that the call is about."""
    return Linear(((context.column_of(count_measure(call, context)), Fraction(1)),))


def count_measure(call: AggregateCall, context: Context) -> Measure:
    (argument,) = call.arguments or (None,)
    if not call.distinct or argument is None:
        return count_of(argument, context.known)
    if call.name == "COUNT" and isinstance(argument, Column) and argument.name in context.unit_columns:
        return CountUnits()
    return OverDistinct(argument, CountValues(argument))


def count_of(argument: Expression | None, known: Known) -> CountRows | CountValues:
    """Counting a column that is never NULL is counting rows."""
    if argument is None or not kept_facts(argument, known).nullable:
        return CountRows()
    return CountValues(argument)

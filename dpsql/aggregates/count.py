"""COUNT(*), COUNT(x), COUNT(DISTINCT x), and COUNT(DISTINCT unit), which counts people."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.clip import check_clip, clipped
from dpsql.aggregates.final import Answer, Context
from dpsql.aggregates.function import AggregateFunction, Bounds, ErrorBars, Word
from dpsql.aggregates.measure import CountRows, CountUnits, CountUnitsWith, CountValues, Measure, OverDistinct
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.tree import Call, Column, Expression, Known, Literal
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.aggregates.estimate import Linear
    from dpsql.relation.relation import AggregateCall


def count(call: AggregateCall, context: Context) -> Answer:
    measure = count_measure(call, context)
    if context.propose is not None and isinstance(measure, CountRows | CountValues):
        return _clipped(call, measure, context)
    if call.group_bounds is not None:
        measure = _clamped(measure, call)
    return Answer(context.linear_of(measure), Integer(), wide=call.wide)


def _clipped(call: AggregateCall, measure: CountRows | CountValues, context: Context) -> Answer:
    """A unit counts at most as often as is proposed, if only few units would count more often."""
    check_clip(call)
    assert context.propose is not None
    if context.propose.denominator != 1:
        raise ProgrammingError(
            "for a count, a proposal is a whole number of rows", at=call.at, hint="write propose=5, for example"
        )
    answer = clipped(replace(measure, most=int(context.propose)), Fraction(1), Integer(), context)
    return replace(answer, wide=call.wide)


def _clamped(measure: Measure, call: AggregateCall) -> Measure:
    assert call.group_bounds is not None
    if isinstance(measure, CountUnits | CountUnitsWith):
        return measure  # a unit is counted once anyway
    if not isinstance(measure, CountRows | CountValues):
        raise Unsupported(
            "bounds per group cannot be given to a count of distinct values",
            at=call.at,
            hint="set max_rows_contributed in the options clause: it holds for distinct values too",
        )
    return replace(measure, most=int(call.group_bounds[1]))


def count_linear(call: AggregateCall, context: Context) -> Linear:
    """The number of rows or values that the call is about."""
    return context.linear_of(count_measure(call, context))


def count_measure(call: AggregateCall, context: Context) -> Measure:
    (argument,) = call.arguments or (None,)
    if not call.distinct or argument is None:
        return count_of(argument, context.known)
    if call.name == "COUNT" and _is_unit_or_null(argument, context):
        return CountUnitsWith(argument) if kept_properties(argument, context.known).nullable else CountUnits()
    return OverDistinct(argument, CountValues(argument))


def _is_unit_or_null(argument: Expression, context: Context) -> bool:
    """The unit, or CASE WHEN ... THEN unit END: of one unit's rows no two have different values."""
    match argument:
        case Column(name):
            return name in context.unit_columns
        case Literal(value):
            return value is None
        case Call(function, (*branches, otherwise)) if function.name == "CASE":
            return all(_is_unit_or_null(value, context) for value in (*branches[1::2], otherwise))
        case Call(function, arguments) if function.name == "COALESCE":
            return all(_is_unit_or_null(value, context) for value in arguments)
    return False


def count_of(argument: Expression | None, known: Known) -> CountRows | CountValues:
    """Counting a column that is never NULL is counting rows."""
    if argument is None or not kept_properties(argument, known).nullable:
        return CountRows()
    return CountValues(argument)


def counted_pairs(call: AggregateCall, known: Known) -> CountRows | CountValues:
    (argument,) = call.arguments or (None,)
    return count_of(argument, known)


COUNT = AggregateFunction(
    name="COUNT",
    of="rows (`*`), values, different values (`DISTINCT x`), people (`DISTINCT unit`)",
    error=ErrorBars.INTERVAL,
    answer=count,
    spellings=("COUNT_IF(condition)", "APPROX_COUNT_DISTINCT(x)"),
    arguments=(0, 1),
    bounds=(Bounds.PER_GROUP,),
    clamped=Bounds.PER_GROUP,
    words=(
        Word("count", "COUNT({})", "The number of rows, or of those where the column is not missing."),
        Word("nunique", "COUNT(DISTINCT {})", "The number of different values."),
    ),
    read_as=lambda kind: Integer(),
    over_pairs=counted_pairs,
)

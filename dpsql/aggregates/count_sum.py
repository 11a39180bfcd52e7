"""COUNT, SUM and AVG. Summed values are clamped to their range and counted in quanta.

If the same values are counted anyway, the sum is recentred at the middle of the range: SUM = recentred sum + middle *
count. A value in [0, 500] then moves its measure by 250 instead of 500, and the answer has 0.71 of the error.
docs/proofs/sums.md.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.disjoint import without_zeros
from dpsql.aggregates.estimate import Answer, Context, Linear, ProposalTest, Ratio
from dpsql.aggregates.function import AggregateFunction, BoundsRule, ErrorBars, Word
from dpsql.aggregates.measure import (
    Average,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    Grid,
    Measure,
    OverDistinct,
    SumValues,
    UnitsBeyond,
)
from dpsql.errors import ProgrammingError, UnboundedColumn, Unsupported
from dpsql.expressions.casts import GRID_BITS, LARGEST_BITS, cast_to, quantum_for
from dpsql.expressions.format import format_expression
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.tree import Call, Column, Expression, Known, Literal, columns_of
from dpsql.schema.types import WIDEST_DECIMAL, Boolean, Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.expressions.properties import Properties
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType

# -- clip --------------------------------------------------------------------------------------------------------------
# Propose-test-release for COUNT and SUM: the proposal is a clip.
#
# A newcomer can always bring the most that is allowed, so the sensitivity of a sum never falls below the worst case,
# whatever the data, and a test of it would always refuse. Instead a noisy count of the units that would add more than
# the proposal is taken beside the clipped sum: where it is too large, the sum is not shown. Both are private whatever
# the test says; it only protects the analyst from a clip that cuts too much off. docs/proofs/propose_test_release.md.


def check_clip(call: AggregateCall) -> None:
    if call.distinct or call.group_bounds is not None:
        raise Unsupported(
            f"{call.name} cannot combine propose= with DISTINCT or per-group bounds",
            at=call.at,
            hint="leave one of the two out",
        )


def clipped(
    measure: CountRows | CountValues | SumValues, quantum: Fraction, kind: ColumnType, context: Context
) -> Answer:
    test = ProposalTest(context.column_of(UnitsBeyond(measure)), context.column_of(measure))
    return Answer(Linear(((test.clipped, quantum),)), kind, test)


def check_proposal(answer: Answer, columns: Mapping[Measure, str], rows: int, call: AggregateCall) -> None:
    """Refuses a proposal that no contribution can exceed, because there is nothing to test."""
    if answer.test is None:
        return
    (measure,) = (measure for measure, column in columns.items() if column == answer.test.clipped)
    assert isinstance(measure, CountRows | CountValues | SumValues)
    if measure.linf(rows) >= measure.unclipped(rows):
        raise ProgrammingError(
            f"the proposal is no smaller than what one person can add to {call.name} anyway",
            at=call.at,
            hint="propose less, or leave propose= out",
        )


# -- count -------------------------------------------------------------------------------------------------------------
# COUNT(*), COUNT(x), COUNT(DISTINCT x), and COUNT(DISTINCT unit), which counts people.


def count(call: AggregateCall, context: Context) -> Answer:
    measure = count_measure(call, context)
    if context.propose is not None and isinstance(measure, CountRows | CountValues):
        return _clipped_count(call, measure, context)
    if call.group_bounds is not None:
        measure = _clamped_count(measure, call)
    return Answer(context.linear_of(measure), Integer(), wide=call.wide)


def _clipped_count(call: AggregateCall, measure: CountRows | CountValues, context: Context) -> Answer:
    """COUNT clipped to the proposal, shown if a test finds that few units exceed it."""
    check_clip(call)
    assert context.propose is not None
    if context.propose.denominator != 1:
        raise ProgrammingError(
            "for a count, propose= must be a whole number of rows", at=call.at, hint="write propose=5, for example"
        )
    answer = clipped(replace(measure, most=int(context.propose)), Fraction(1), Integer(), context)
    return replace(answer, wide=call.wide)


def _clamped_count(measure: Measure, call: AggregateCall) -> Measure:
    assert call.group_bounds is not None
    if isinstance(measure, CountUnits | CountUnitsWith):
        return measure  # a unit is counted once anyway
    if not isinstance(measure, CountRows | CountValues):
        raise Unsupported(
            "a count of distinct values cannot have per-group bounds",
            at=call.at,
            hint="set max_rows_contributed in the options clause; it also applies to distinct values",
        )
    return replace(measure, most=int(call.group_bounds[1]))


def count_linear(call: AggregateCall, context: Context) -> Linear:
    """The count of the rows or values that an aggregate reads."""
    return context.linear_of(count_measure(call, context))


def count_measure(call: AggregateCall, context: Context) -> Measure:
    (argument,) = call.arguments or (None,)
    if not call.distinct or argument is None:
        return count_of(argument, context.known)
    if call.name == "COUNT" and _is_unit_or_null(argument, context):
        return CountUnitsWith(argument) if kept_properties(argument, context.known).nullable else CountUnits()
    return OverDistinct(argument, CountValues(argument))


def _is_unit_or_null(argument: Expression, context: Context) -> bool:
    """Whether an argument is the unit, or CASE WHEN ... THEN unit END, so that it has one value per unit."""
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
    """The measure of COUNT(x): rows, if x is never NULL; else values."""
    if argument is None or not kept_properties(argument, known).nullable:
        return CountRows()
    return CountValues(argument)


def counted_pairs(call: AggregateCall, known: Known) -> CountRows | CountValues:
    (argument,) = call.arguments or (None,)
    return count_of(argument, known)


COUNT = AggregateFunction(
    name="COUNT",
    of="rows (`*`), values, distinct values (`DISTINCT x`), people (`DISTINCT unit`)",
    error=ErrorBars.INTERVAL,
    answer=count,
    spellings=("COUNT_IF(condition)", "APPROX_COUNT_DISTINCT(x)"),
    arguments=(0, 1),
    bounds=(BoundsRule.PER_GROUP,),
    clamped=BoundsRule.PER_GROUP,
    words=(
        Word("count", "COUNT({})", "The number of rows, or of rows where the column is not NULL."),
        Word("nunique", "COUNT(DISTINCT {})", "The number of distinct values."),
    ),
    read_as=lambda kind: Integer(),
    over_pairs=counted_pairs,
)


# -- unbounded ---------------------------------------------------------------------------------------------------------
# What is said of a value without bounds: which column lacks them, and what the analyst can write instead.

BOUNDED = (Integer, Double, Decimal, Date, Timestamp)
FIRST, LAST = date(2024, 1, 1), date(2026, 12, 31)


def unbounded(call: AggregateCall, value: Expression, known: Known) -> UnboundedColumn:
    """
    SUM(cost * score), where only cost has bounds  ->  SUM needs bounds on "score"
    AVG(LN(cost))                                  ->  AVG needs a bounded value, and LN(cost) has no bounds
    """
    place = call.at if value.at is None else value.at
    parts = [part for part in call.arguments if not _is_finite(kept_properties(part, known))] or [value]
    read = (column for part in parts for column in columns_of(part))
    lacking = {column.name: column for column in read if _lacks_bounds(column, known)}
    bounded = dict(known) | {name: _sample(column, kept_properties(column, known)) for name, column in lacking.items()}
    if not lacking or not _is_finite(kept_properties(value, bounded)):
        return UnboundedColumn(
            f"{call.said} needs a bounded value, but {format_expression(value)} has no bounds",
            at=place,
            hint=f"write  {_clamped_text(call, parts[0])}  with bounds of your own",
            columns=tuple(lacking),
        )
    first = next(iter(lacking.values()))
    return UnboundedColumn(
        f"{call.said} needs bounds on {' and '.join(map(_quoted, lacking))}",
        at=place,
        hint=f"write  {_clamped_text(call, parts[0] if len(call.arguments) == 1 else first)}  with bounds of your own; "
        f"or the owner declares  bounds: [{', '.join(map(str, _ends(first)))}]",
        columns=tuple(lacking),
    )


def _lacks_bounds(column: Column, known: Known) -> bool:
    """Whether the value is of a type that has bounds."""
    return isinstance(column.type, BOUNDED) and not _is_finite(kept_properties(column, known))


def _is_finite(properties: Properties) -> bool:
    return properties.values is not None or (properties.low is not None and properties.high is not None)


def _sample(column: Column, properties: Properties) -> Properties:
    low, high = _ends(column)
    if isinstance(column.type, Timestamp):
        low, high = (datetime(end.year, end.month, end.day) for end in (FIRST, LAST))
    return replace(properties, low=low, high=high)


def _clamped_text(call: AggregateCall, value: Expression) -> str:
    """The aggregate with bounds, as a hint to the analyst; or the value, where the aggregate takes no bounds.

    LEAST and GREATEST alone would turn NULL into a bound.
    """
    text = format_expression(value)
    if value in call.arguments and len(call.arguments) == 1 and not isinstance(value.type, Date | Timestamp):
        fraction = "" if call.fraction is None or call.said == "MEDIAN" else f", {float(call.fraction):g}"
        return (
            f"{call.said}({'DISTINCT ' * call.distinct}{text}{fraction}, contribution_bounds_per_row => {_ends(value)})"
        )
    low, high = (f"DATE '{end}'" if isinstance(end, date) else end for end in _ends(value))
    return f"CASE WHEN {text} IS NOT NULL THEN LEAST(GREATEST({text}, {low}), {high}) END"


def _ends(value: Expression) -> tuple[date, date] | tuple[int, int]:
    return (FIRST, LAST) if isinstance(value.type, Date | Timestamp) else (0, 500)


def _quoted(name: str) -> str:
    return f'"{name}"'


# -- sum ---------------------------------------------------------------------------------------------------------------

LARGEST_SUM = 2**93
"""A sum of more than 2^31 values below 2^61 quanta."""


def sum_(call: AggregateCall, context: Context) -> Answer:
    (argument,) = call.arguments
    if call.distinct and call.group_bounds is not None:
        raise Unsupported(
            "a sum of distinct values cannot have per-group bounds",
            at=call.at,
            hint="give bounds per row: contribution_bounds_per_row => (low, high)",
        )
    if context.propose is not None:
        return _clipped_sum(call, argument, context)
    if not call.distinct and call.group_bounds is None:
        argument = without_zeros(argument)
        call = call if argument is call.arguments[0] else replace(call, arguments=(argument,))
    return Answer(sum_linear(call, argument, context), sum_type(argument.type), wide=True)


def _clipped_sum(call: AggregateCall, value: Expression, context: Context) -> Answer:
    """SUM clipped per unit to the proposal, shown if a test finds that few units exceed it."""
    check_clip(call)
    # However wide, there must be a range: a test of values that were cut off at the proposal would see nothing.
    finite_range(call, value, kept_properties(value, context.known), context.known)
    assert context.propose is not None
    measure = summed(replace(call, group_bounds=(-context.propose, context.propose)), value, context, centred=False)
    return replace(clipped(measure, measure.quantum, sum_type(value.type), context), wide=True)


def sum_linear(call: AggregateCall, value: Expression, context: Context) -> Linear:
    """The sum of `value` over the rows, or the distinct arguments, that an aggregate reads."""
    counted = _counted_beside(call, context)
    measure = summed(call, value, context, centred=counted is not None)
    if counted is not None and counted != count_measure(call, context):
        measure = _over_rows(measure)
    linear = context.linear_of(over_distinct(call, measure)).times(measure.quantum)
    if counted is None or not measure.centre:
        return linear
    return linear.plus(context.linear_of(counted), measure.quantum * measure.centre)


def _counted_beside(call: AggregateCall, context: Context) -> Measure | None:
    """A count of the same values or of the rows that is measured anyway, and can recentre the sum."""
    if call.group_bounds is not None:
        return None
    counts: list[Measure] = [count_measure(call, context)]
    if not call.distinct and call.arguments[0] not in context.bundled:
        counts.append(CountRows())
    return next((count for count in counts if count in context.counted), None)


def _over_rows(measure: SumValues) -> SumValues:
    """The same sum with NULL counted as 0: its range now includes 0, and its centre is recomputed."""
    low, high = min(measure.low, 0), max(measure.high, 0)
    return replace(measure, centre=(low + high) // 2, null_is_zero=True)


def over_distinct(call: AggregateCall, measure: SumValues) -> Measure:
    return OverDistinct(call.arguments[0], measure) if call.distinct else measure


def summed(call: AggregateCall, value: Expression, context: Context, *, centred: bool) -> SumValues:
    """The measure of a sum: its range in quanta, recentred on request."""
    properties = kept_properties(value, context.known)
    low, high = finite_range(call, value, _clamped_by_group(properties, call), context.known)
    quantum = quantum_for(value.type, low, high)
    if quantum is None:
        raise UnboundedColumn(
            f"{call.said} cannot be exact over a range as wide as [{float(low):g}, {float(high):g}]",
            at=call.at,
            hint="declare narrower bounds, or CAST to DOUBLE",
        )
    first, last = low // quantum, -(-high // quantum)
    return SumValues(
        argument=value,
        quantum=quantum,
        low=first,
        high=last,
        centre=(first + last) // 2 if centred else 0,
        group=_in_fixed_point(call, quantum),
    )


def _clamped_by_group(properties: Properties, call: AggregateCall) -> Properties:
    """The range of a value that has only per-group bounds: these bounds."""
    if call.group_bounds is None or not properties.is_number or properties.values is not None:
        return properties
    low, high = call.group_bounds
    return replace(
        properties,
        low=min(0, low, properties.high or 0) if properties.low is None else properties.low,
        high=max(0, high, properties.low or 0) if properties.high is None else properties.high,
    )


def _in_fixed_point(call: AggregateCall, quantum: Fraction) -> tuple[int, int] | None:
    """The bounds of the group in quanta, rounded outwards."""
    if call.group_bounds is None:
        return None
    low, high = call.group_bounds
    first, last = (max(-LARGEST_SUM, min(LARGEST_SUM, end)) for end in (low // quantum, -(-high // quantum)))
    return first, last


def _as_number(value: Expression) -> str:
    """What to write instead of a value that is no number."""
    text = format_expression(value)
    match value.type:
        case Boolean():
            return f"write  CAST({text} AS INTEGER)  in its place"
        case Date() | Timestamp():
            return f"write  EPOCH({text})  in its place: seconds since 1970"
    return f"write  CAST({text} AS DOUBLE)  in its place, or count rows: COUNT(*)"


def finite_range(
    call: AggregateCall, value: Expression, properties: Properties, known: Known
) -> tuple[Fraction, Fraction]:
    if not properties.is_number:
        raise ProgrammingError(
            f"{call.said} takes a number, not {properties.type.name}",
            at=call.at,
            hint=_as_number(
                next((part for part in call.arguments if not isinstance(part.type, Integer | Double | Decimal)), value)
            ),
        )
    if properties.values == ():  # the WHERE leaves no value
        return Fraction(0), Fraction(0)
    if isinstance(properties.low, int | Fraction) and isinstance(properties.high, int | Fraction):
        return Fraction(properties.low), Fraction(properties.high)
    raise unbounded(call, value, known)


def sum_type(kind: ColumnType) -> ColumnType:
    if isinstance(kind, Decimal):
        return Decimal(WIDEST_DECIMAL, kind.scale)
    return kind if isinstance(kind, Integer) else Double()


def summed_pairs(call: AggregateCall, known: Known) -> SumValues:
    (value,) = call.arguments
    low, high = finite_range(call, value, kept_properties(value, known), known)
    quantum = quantum_for(value.type, low, high)
    if quantum is None:
        raise unbounded(call, value, known)
    return SumValues(argument=value, quantum=quantum, low=low // quantum, high=-(-high // quantum), centre=0)


SUM = AggregateFunction(
    name="SUM",
    of="bounded numbers",
    error=ErrorBars.INTERVAL,
    answer=sum_,
    clip_power=1,
    bounds=(BoundsRule.PER_ROW, BoundsRule.PER_GROUP),
    clamped=BoundsRule.PER_GROUP,
    words=(Word("sum", "SUM({})", "The sum of the values."),),
    read_as=sum_type,
    wide=True,
    over_pairs=summed_pairs,
)


# -- avg ---------------------------------------------------------------------------------------------------------------
# AVG(x) = middle + (sum counted from the middle) / count, clamped to the range of x.
#
# Counting from the middle halves what one value can add, and an empty group is pulled to the middle and not to zero.
# The count is shared with COUNT where both are asked. docs/proofs/average.md. By propose-test-release and smooth
# sensitivity it is drawn as a whole instead, with noise that follows the number of rows.
#
# With bounds per group it is the average over units of the mean of each, clamped to the bounds.


def avg(call: AggregateCall, context: Context) -> Answer:
    (argument,) = call.arguments
    if call.group_bounds is not None:
        return _of_units(call, argument, context)
    measure = summed(call, argument, context, centred=True)
    if Average in context.drawn and not call.distinct:
        width, largest = measure.high - measure.low, max(abs(measure.low), abs(measure.high))
        # Fine enough for an average, and every point of the grid fits into 64 bits.
        finer = 1 << max(0, min(GRID_BITS - width.bit_length(), LARGEST_BITS - largest.bit_length()))
        grid = Grid(measure.quantum / finer, measure.low * finer, measure.high * finer)
        return Answer(Linear(((context.drawn_as(Average(argument, grid, finer)), grid.quantum),)), Double())
    count = count_linear(call, context)
    centred = context.linear_of(over_distinct(call, measure)).times(measure.quantum)
    low, high = (end * measure.quantum for end in (measure.low, measure.high))
    above = centred.plus(count, measure.centre * measure.quantum)
    return Answer(Ratio(above, count, low, high), Double())


def _of_units(call: AggregateCall, argument: Expression, context: Context) -> Answer:
    """AVG with bounds per group: the sum of the units' means over the number of units that have one."""
    if call.distinct or Average in context.drawn or context.propose is not None:
        raise Unsupported(
            "an average of per-person averages supports neither DISTINCT nor noise other than Laplace or Gaussian",
            at=call.at,
            hint="give bounds per row: contribution_bounds_per_row => (low, high)",
        )
    value = Call(cast_to(Double()), (argument,), Double(), call.at)
    measure = replace(summed(call, value, context, centred=False), mean=True)
    nullable = kept_properties(argument, context.known).nullable
    units = context.linear_of(CountUnitsWith(argument) if nullable else CountUnits())
    low, high = (end * measure.quantum for end in measure.reach(1))
    return Answer(Ratio(context.linear_of(measure).times(measure.quantum), units, low, high), Double())


AVG = AggregateFunction(
    name="AVG",
    also=("MEAN",),
    of="bounded numbers",
    error=ErrorBars.INTERVAL,
    answer=avg,
    bounds=(BoundsRule.PER_ROW, BoundsRule.PER_GROUP),
    clip_power=1,
    clamped=BoundsRule.PER_ROW,
    words=(Word("mean", "AVG({})", "The mean of the values."),),
)

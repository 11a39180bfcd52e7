"""SUM(x): clamped to the declared range, in whole quanta.

Where the same values are counted anyway, the sum is measured from the middle of the range: SUM = centred sum + middle *
count. A value in [0, 500] then moves its measure by 250 instead of 500, and the answer has 0.71 of the error.
docs/proofs/sums.md.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.clip import check_clip, clipped
from dpsql.aggregates.count import count_measure
from dpsql.aggregates.final import Answer, Context
from dpsql.aggregates.function import AggregateFunction, Bounds, ErrorBars, Word
from dpsql.aggregates.measure import CountRows, Measure, OverDistinct, SumValues
from dpsql.aggregates.unbounded import unbounded
from dpsql.errors import ProgrammingError, UnboundedColumn, Unsupported
from dpsql.expressions.exclusive import without_zeros
from dpsql.expressions.fixed_point import quantum_for
from dpsql.expressions.narrow import kept_properties
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from dpsql.aggregates.estimate import Linear
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType

LARGEST_SUM = 2**93
"""More than 2^31 values below 2^61 quanta."""


def sum_(call: AggregateCall, context: Context) -> Answer:
    (argument,) = call.arguments
    if call.distinct and call.group_bounds is not None:
        raise Unsupported(
            "bounds per group cannot be given to a sum of distinct values",
            at=call.at,
            hint="give bounds per row: contribution_bounds_per_row => (low, high)",
        )
    if context.propose is not None:
        return _clipped(call, argument, context)
    if not call.distinct and call.group_bounds is None:
        argument = without_zeros(argument)
        call = call if argument is call.arguments[0] else replace(call, arguments=(argument,))
    return Answer(sum_linear(call, argument, context), sum_type(argument.type), wide=True)


def _clipped(call: AggregateCall, value: Expression, context: Context) -> Answer:
    """What one unit adds to a group is clamped to the proposal, if only few units would add more."""
    check_clip(call)
    # However wide, there must be a range: a test of values that were cut off at the proposal would see nothing.
    finite_range(call, value, kept_properties(value, context.known), context.known)
    assert context.propose is not None
    measure = summed(replace(call, group_bounds=(-context.propose, context.propose)), value, context, centred=False)
    return replace(clipped(measure, measure.quantum, sum_type(value.type), context), wide=True)


def sum_linear(call: AggregateCall, value: Expression, context: Context) -> Linear:
    """The sum of `value` over the rows (or the distinct arguments) that the call is about."""
    counted = _counted_beside(call, context)
    measure = summed(call, value, context, centred=counted is not None)
    if counted is not None and counted != count_measure(call, context):
        measure = _over_rows(measure)
    linear = context.linear_of(over_distinct(call, measure)).times(measure.quantum)
    if counted is None or not measure.centre:
        return linear
    return linear.plus(context.linear_of(counted), measure.quantum * measure.centre)


def _counted_beside(call: AggregateCall, context: Context) -> Measure | None:
    """A count that is taken anyway, and that the sum can lean on: of the same values, or of the rows."""
    if call.group_bounds is not None:
        return None
    counts: list[Measure] = [count_measure(call, context)]
    if not call.distinct and call.arguments[0] not in context.bundled:
        counts.append(CountRows())
    return next((count for count in counts if count in context.counted), None)


def _over_rows(measure: SumValues) -> SumValues:
    """A row without a value adds 0, which then is among what it can add."""
    low, high = min(measure.low, 0), max(measure.high, 0)
    return replace(measure, centre=(low + high) // 2, null_is_zero=True)


def over_distinct(call: AggregateCall, measure: SumValues) -> Measure:
    return OverDistinct(call.arguments[0], measure) if call.distinct else measure


def summed(call: AggregateCall, value: Expression, context: Context, *, centred: bool) -> SumValues:
    """The measure of a sum: its range in quanta, from the middle if that is wanted."""
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
    """Where nothing bounds a value, the bounds of the group do: no value may add more than a whole group."""
    if call.group_bounds is None or not properties.is_number or properties.values is not None:
        return properties
    low, high = call.group_bounds
    return replace(
        properties,
        low=min(0, low, properties.high or 0) if properties.low is None else properties.low,
        high=max(0, high, properties.low or 0) if properties.high is None else properties.high,
    )


def _in_fixed_point(call: AggregateCall, quantum: Fraction) -> tuple[int, int] | None:
    """The bounds of the group on the grid, outwards; sums never come near the largest."""
    if call.group_bounds is None:
        return None
    low, high = call.group_bounds
    first, last = (max(-LARGEST_SUM, min(LARGEST_SUM, end)) for end in (low // quantum, -(-high // quantum)))
    return first, last


def finite_range(
    call: AggregateCall, value: Expression, properties: Properties, known: Known
) -> tuple[Fraction, Fraction]:
    if not properties.is_number:
        raise ProgrammingError(
            f"{call.said} takes a number, not {properties.type.name}",
            at=call.at,
            hint=f"to count rows, write COUNT instead of {call.said}",
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
    bounds=(Bounds.PER_ROW, Bounds.PER_GROUP),
    clamped=Bounds.PER_GROUP,
    words=(Word("sum", "SUM({})", "The total."),),
    read_as=sum_type,
    wide=True,
    over_pairs=summed_pairs,
)

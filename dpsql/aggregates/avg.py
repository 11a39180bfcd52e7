"""AVG(x) = middle + (sum counted from the middle) / count, clamped to the range of x.

Counting from the middle halves what one value can add, and an empty group is pulled to the middle and not to zero. The
count is shared with COUNT where both are asked. docs/proofs/average.md. By propose-test-release and smooth
sensitivity it is drawn as a whole instead, with noise that follows the number of rows.

With bounds per group it is the average over units of the mean of each, clamped to the bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.aggregates.count import count_linear
from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.aggregates.final import Answer, Context
from dpsql.aggregates.function import AggregateFunction, Bounds, ErrorBars, Word
from dpsql.aggregates.measure import CountUnits, CountUnitsWith
from dpsql.aggregates.statistic import Average, Grid
from dpsql.aggregates.sum import over_distinct, summed
from dpsql.errors import Unsupported
from dpsql.expressions.casts import cast_to
from dpsql.expressions.fixed_point import GRID_BITS, LARGEST_BITS
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.tree import Call
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall


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
    """The sum of the units' means, which have fractions, over the number of units that have one."""
    if call.distinct or Average in context.drawn or context.propose is not None:
        raise Unsupported(
            "an average of each unit's average takes no DISTINCT, and Laplace or Gaussian noise",
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
    bounds=(Bounds.PER_ROW, Bounds.PER_GROUP),
    clip_power=1,
    clamped=Bounds.PER_ROW,
    words=(Word("mean", "AVG({})", "The mean."),),
)

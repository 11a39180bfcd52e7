"""AVG(x) = middle + (sum counted from the middle) / count, clamped to the range of x.

Counting from the middle halves what one value can add, and an empty group is pulled to the middle and not to zero. The
count is shared with COUNT where both are asked. docs/proofs/average.md. By propose-test-release and smooth
sensitivity it is drawn as a whole instead, with noise that follows the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.count import count_linear
from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.aggregates.final import Answer, Context
from dpsql.aggregates.function import AggregateFunction, Bounds, ErrorBars, Word
from dpsql.aggregates.statistic import Average, Grid
from dpsql.aggregates.sum import over_distinct, summed
from dpsql.expressions.fixed_point import LARGEST_BITS, ROW_BITS
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall


def avg(call: AggregateCall, context: Context) -> Answer:
    (argument,) = call.arguments
    measure = summed(call, argument, context, centred=True)
    if Average in context.drawn and not call.distinct:
        width, largest = measure.high - measure.low, max(abs(measure.low), abs(measure.high))
        # Fine enough for an average, and every point of the grid fits into 64 bits.
        finer = 1 << max(0, min(ROW_BITS - width.bit_length(), LARGEST_BITS - largest.bit_length()))
        grid = Grid(measure.quantum / finer, measure.low * finer, measure.high * finer)
        return Answer(Linear(((context.drawn_as(Average(argument, grid, finer)), grid.quantum),)), Double())
    count = count_linear(call, context)
    centred = context.linear_of(over_distinct(call, measure)).times(measure.quantum)
    low, high = (end * measure.quantum for end in (measure.low, measure.high))
    above = centred.plus(count, measure.centre * measure.quantum)
    return Answer(Ratio(above, count, low, high), Double())


AVG = AggregateFunction(
    name="AVG",
    also=("MEAN",),
    of="bounded numbers",
    error=ErrorBars.INTERVAL,
    answer=avg,
    clip_power=1,
    clamped=Bounds.PER_ROW,
    words=(Word("mean", "AVG({})", "The mean."),),
)

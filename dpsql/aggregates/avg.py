"""AVG(x) = middle + (sum counted from the middle) / count, held within the range of x.

Counting from the middle halves what one value can add, and an empty group is pulled to the middle and not to zero. The
count is shared with COUNT where both are asked. docs/proofs/average.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Answer, Context
from dpsql.aggregates.count import count_of
from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.aggregates.sum import summed
from dpsql.errors import Unsupported
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall


def avg(call: AggregateCall, context: Context) -> Answer:
    if call.distinct:
        raise Unsupported("AVG(DISTINCT ...) cannot be answered yet", at=call.at, hint="average without DISTINCT")
    measure = summed(call, context, centred=True)
    count = Linear(((context.column_of(count_of(call.argument, context.known)), Fraction(1)),))
    centred = Linear(((context.column_of(measure), measure.quantum),))
    low, high = (end * measure.quantum for end in (measure.low, measure.high))
    above = centred.plus(count, measure.centre * measure.quantum)
    return Answer(Ratio(above, count, low, high), Double())

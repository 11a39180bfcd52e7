"""COUNT and SUM over a join of different people: FROM visits a JOIN visits b ON a.place = b.place.

One unit can match any number of others, so there is no bound that holds for all data. There is one for the data at hand
and everything near it, from how often the most frequent key occurs. docs/proofs/local_sensitivity.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.count import count_of
from dpsql.aggregates.measure import SumValues
from dpsql.aggregates.statistic import Matched
from dpsql.aggregates.sum import finite_range, sum_type, unbounded
from dpsql.errors import Unsupported
from dpsql.expressions.narrow import kept_facts
from dpsql.expressions.quanta import quantum_for
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import Across, AggregateCall
    from dpsql.schema.types import ColumnType


def matched(call: AggregateCall, known: Known, across: Across, bounds: tuple[int, ...]) -> tuple[Matched, ColumnType]:
    """The statistic, and the type of the answer. `bounds`: the rows of a unit on either side, and the groups."""
    (argument,) = call.arguments or (None,)
    if call.name not in ("COUNT", "SUM") or call.distinct or call.group_bounds is not None:
        raise Unsupported(
            f"{call.name} cannot be asked of people joined with others",
            at=call.at,
            hint="COUNT(*), COUNT(x) and SUM(x) can be; for an average divide a SUM by a COUNT",
        )
    if call.name == "COUNT" or argument is None:
        return Matched(across, count_of(argument, known), *bounds), Integer()
    return Matched(across, _summed(call, argument, known), *bounds), sum_type(argument.type)


def _summed(call: AggregateCall, value: Expression, known: Known) -> SumValues:
    low, high = finite_range(call, value, kept_facts(value, known))
    quantum = quantum_for(value.type, low, high)
    if quantum is None:
        raise unbounded(call, value)
    return SumValues(value, quantum, low // quantum, -(-high // quantum), centre=0)

"""Totals over a join of different people: FROM visits a JOIN visits b ON a.place = b.place.

One unit can match any number of others, so there is no bound that holds for all data. There is one for the data at hand
and everything near it, from how often the most frequent key occurs. docs/proofs/local_sensitivity.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.final import Answer
from dpsql.aggregates.statistic import Matched
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import Unsupported
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.statistic import Statistic
    from dpsql.expressions.tree import Known
    from dpsql.relation.relation import AggregateCall, CrossUnitJoin


def matched(
    call: AggregateCall,
    known: Known,
    across: CrossUnitJoin,
    bounds: tuple[int, ...],
    drawn_as: Callable[[Statistic], str],
) -> Answer:
    """`bounds`: the rows of a unit on either side, and the groups."""
    function = AGGREGATES.get(call.name)
    if function is None or function.over_pairs is None or call.distinct or call.group_bounds is not None:
        possible = " and ".join(name for name, row in AGGREGATES.items() if row.over_pairs)
        raise Unsupported(
            f"{call.name} cannot be asked of people joined with others",
            at=call.at,
            hint=f"{possible} can be, of all rows or values; for an average divide a SUM by a COUNT",
        )
    statistic = Matched(across, function.over_pairs(call, known), *bounds)
    kind = function.read_as(call.arguments[0].type if call.arguments else Integer())
    estimate = Linear(((drawn_as(statistic), statistic.grid.quantum),))
    return Answer(estimate, kind, wide=function.wide or call.wide)

"""Propose-test-release for COUNT and SUM: the proposal is a clip.

A newcomer can always bring the most that is allowed, so the sensitivity of a sum never falls below the worst case,
whatever the data, and a test of it would always refuse. Instead a noisy count of the units that would add more than
the proposal is taken beside the clipped sum: where it is too large, the sum is not shown. Both are private whatever the
test says; it only protects the analyst from a clip that cuts too much off. docs/proofs/propose_test_release.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.final import Answer, Context, Test
from dpsql.aggregates.measure import CountRows, CountValues, SumValues, UnitsBeyond
from dpsql.errors import ProgrammingError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from dpsql.aggregates.measure import Measure
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType


def check_clip(call: AggregateCall) -> None:
    if call.distinct or call.group_bounds is not None:
        raise Unsupported(
            f"{call.name} takes no proposal together with DISTINCT or bounds per group",
            at=call.at,
            hint="leave one of the two out",
        )


def clipped(
    measure: CountRows | CountValues | SumValues, quantum: Fraction, kind: ColumnType, context: Context
) -> Answer:
    test = Test(context.column_of(UnitsBeyond(measure)), context.column_of(measure))
    return Answer(Linear(((test.clipped, quantum),)), kind, test)


def check_proposal(answer: Answer, columns: Mapping[Measure, str], rows: int, call: AggregateCall) -> None:
    """A proposal that nothing can exceed has nothing to test."""
    if answer.test is None:
        return
    (measure,) = (measure for measure, column in columns.items() if column == answer.test.clipped)
    assert isinstance(measure, CountRows | CountValues | SumValues)
    if measure.linf(rows) >= measure.unclipped(rows):
        raise ProgrammingError(
            f"the proposal is not below what one unit may add to {call.name} anyway",
            at=call.at,
            hint="propose less, or leave propose= out",
        )

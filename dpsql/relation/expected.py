"""What columns hold if everybody has as many rows as the contribution bounds say, and no more.

    the number n of a customer's orders        n is at most r
    the sum of their items                     at most r times the most that one can have

It is no knowledge: somebody may have more rows. It gives a range to sums and quantiles that have none, where every
value is held within it, as within declared bounds; conditions and keys see the value as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.expressions.properties import bounded
from dpsql.expressions.ranges import range_of
from dpsql.expressions.tree import properties_of
from dpsql.relation.knowledge import knowledge_of, surviving
from dpsql.relation.once import once_per_node
from dpsql.relation.relation import PerUnit, Relation, Scan
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Known
    from dpsql.relation.relation import AggregateCall


@once_per_node
def expected_of(relation: Relation, rows: int) -> Known:
    """What is known of the rows that are kept; ends that are not known are those that `rows` rows of a unit give."""
    if isinstance(relation, Scan):
        return knowledge_of(relation).kept
    expected = dict(surviving(relation, lambda below: expected_of(below, rows)))
    if isinstance(relation, PerUnit):
        known = expected_of(relation.source, rows)
        expected |= {name: _filled(expected[name], _of_rows(call, known, rows)) for name, call in relation.calls}
    return {name: _filled(properties, expected[name]) for name, properties in knowledge_of(relation).kept.items()}


def _of_rows(call: AggregateCall, known: Known, rows: int) -> Properties | None:
    if call.name == "COUNT":
        return bounded(Integer(), 0, rows, nullable=False)
    if call.name != "SUM":
        return None
    properties = properties_of(call.arguments[0], known)
    low, high = range_of(properties)
    if low is None or high is None:
        return None
    return bounded(properties.type, min(0, low * rows), max(0, high * rows), nullable=True)


def _filled(properties: Properties, expected: Properties | None) -> Properties:
    """The properties with a low and a high end where they have none, unless that contradicts the other end."""
    if expected is None or not properties.is_number or expected.values == () or properties.values is not None:
        return properties
    low = expected.low if properties.low is None else properties.low
    high = expected.high if properties.high is None else properties.high
    known = low == properties.low and high == properties.high
    if known or low is None or high is None or low > high:  # type: ignore[operator]
        return properties
    return replace(properties, low=low, high=high)

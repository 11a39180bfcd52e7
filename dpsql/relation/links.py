"""Rows that are known by their foreign key towards the unit: there are fewer keys than rows to look a unit up for.

    lines    order_id -> orders.id, whose unit is customer_id

    the rows     _unit is order_id
    the owners   _key, an order's id, and _unit, its customer

It takes a relation whose every row is made of one row of people, so that nothing compares one row's unit with that of
another. A row whose key leads nowhere is here, and has no owner: whoever looks the owners up has to leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.relation.relation import Filter, Join, Project, Relation, Scan, SemiJoin, Unit
from dpsql.relation.units import is_tracked, scans_of
from dpsql.relation.write_scan import owners_sql

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query


@dataclass(frozen=True)
class Linked:
    rows: Relation
    """Its unit is the foreign key."""
    owners: Query
    """The unit of every key."""


def linked(relation: Relation) -> Linked | None:
    """None where the unit is in the row itself, or rows of people are put beside each other."""
    rows = _by_key(relation)
    if rows is None:
        return None
    (unit,) = (scan.unit for scan in scans_of(relation) if scan.unit is not None)
    return Linked(rows, owners_sql(unit))


def _by_key(relation: Relation) -> Relation | None:
    match relation:
        case Scan(unit=Unit(path=(hop, *_))):
            return replace(relation, unit=Unit((), relation.table, hop.column, hop.type))
        case Filter(source) | Project(source):
            below = _by_key(source)
            return None if below is None else replace(relation, source=below)
        case SemiJoin(source, other) if not is_tracked(other):
            below = _by_key(source)
            return None if below is None else replace(relation, source=below)
        case Join(left, right, "INNER" | "LEFT") if not is_tracked(right):
            below = _by_key(left)
            return None if below is None else replace(relation, left=below)
        case Join(left, right, "INNER" | "RIGHT") if not is_tracked(left):
            below = _by_key(right)
            return None if below is None else replace(relation, right=below)
    return None

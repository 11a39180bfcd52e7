"""Privacy units over a foreign key, looked up for keys and not for rows: there are fewer keys.

    lines, whose order_id refers to orders.id; the unit of an order is its customer_id

    as it is   _unit is customer_id, by a join of every line to its order
    linked     the rows, lines alone, whose _unit is order_id
               the owners: _key, an order's id, and _unit, its customer_id

So rows have a stand-in for their unit, by which units cannot be compared: only a relation whose every row is made of
one row of people, beside public ones, can be linked. A row whose key leads nowhere is among the rows and has no owner:
whoever looks the owners up has to leave it out.
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
    """Rows without their units, and where to look these up."""

    rows: Relation
    """Its _unit is the foreign key."""
    owners: Query
    """_key and _unit, for every key that has one."""


def linked(relation: Relation) -> Linked | None:
    """None where the unit is in the row itself, or rows of people are put beside each other; and where a view tells
    whose a key is, which may not say the same twice."""
    rows = with_key(relation)
    if rows is None or any(scan.is_view for scan in scans_of(relation)):
        return None
    (unit,) = (scan.unit for scan in scans_of(relation) if scan.unit is not None)
    return Linked(rows, owners_sql(unit))


def with_key(relation: Relation) -> Relation | None:
    """The same with the foreign key in the place of the unit."""
    match relation:
        case Scan(unit=Unit(path=(hop, *_))):
            return replace(relation, unit=Unit((), relation.table, hop.column, hop.type))
        case Filter(source) | Project(source):
            below = with_key(source)
            return None if below is None else replace(relation, source=below)
        case SemiJoin(source, other) if not is_tracked(other):
            below = with_key(source)
            return None if below is None else replace(relation, source=below)
        case Join(left, right, "INNER" | "LEFT") if not is_tracked(right):
            below = with_key(left)
            return None if below is None else replace(relation, left=below)
        case Join(left, right, "INNER" | "RIGHT") if not is_tracked(left):
            below = with_key(right)
            return None if below is None else replace(relation, right=below)
    return None

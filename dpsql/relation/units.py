"""Whose rows a relation has: the tables that they come from, whether they are people's, and how many one may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.relation.relation import (
    Distinct,
    Filter,
    Join,
    Listed,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def scans_of(relation: Relation) -> Iterator[Scan]:
    """Every table that the relation's own rows come from."""
    match relation:
        case Scan():
            yield relation
        case Listed():
            return
        case Join(left, right) | SetOp(_, left, right):
            yield from scans_of(left)
            yield from scans_of(right)
        case _:
            yield from scans_of(relation.source)


def is_tracked(relation: Relation) -> bool:
    """Whether the rows belong to units; else they are public."""
    return any(scan.unit is not None for scan in scans_of(relation))


def one_row_per_unit(relation: Relation) -> bool:
    """Whether no unit can have two rows, by a constraint of the database or by the query's own grouping."""
    match relation:
        case Scan():
            return relation.one_row_per_unit
        case Listed():
            return False
        case PerUnit(_, _, _, by_unit_alone):
            return by_unit_alone
        case Filter(source) | Project(source) | SemiJoin(source) | Distinct(source) | Window(source):
            return one_row_per_unit(source)
        case Join(left, right):
            return is_tracked(left) and is_tracked(right) and one_row_per_unit(left) and one_row_per_unit(right)
        case Mark():
            return one_row_per_unit(relation.source)
        case SetOp(kind, left, right):
            return kind in ("INTERSECT", "EXCEPT") and one_row_per_unit(left)

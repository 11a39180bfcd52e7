"""Where equal keys say that two rows are of one unit, the units need not be looked up and compared.

    orders WHERE EXISTS (lines WHERE lines.order_id = orders.id AND ...)     a line's unit is that of its order

Either the key leads from the one row to the other, whose table has it once, or both rows take their units from the same
key. docs/proofs/tracking.md. Keys must be read as they are stored: clamped ones are equal where others are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import Call, Column
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Join, Project, Scan, SemiJoin
from dpsql.schema.types import Integer, Text

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation, ScanColumn


def without_units(other: Relation, beside: Relation, condition: Expression | None) -> Relation | None:
    """The other relation without its units, if the condition leaves it only rows of the units that stand beside."""
    if condition is None:
        return None
    for part in conjuncts(condition):
        match part:
            case Call(function, (Column(one, _), Column(two, _)), _) if function.name == "=":
                for name, key in ((one, two), (two, one)):
                    found, own = _scanned(other, name), _scanned(beside, key)
                    if found is not None and own is not None and _have_one_unit(*found, *own):
                        return _unowned(other)
    return None


def _scanned(relation: Relation, name: str) -> tuple[Scan, ScanColumn] | None:
    """The scan that a column comes from as it is, of the same unit as the relation's rows."""
    match relation:
        case Scan(columns=columns):
            return next(((relation, column) for column in columns if column.name == name), None)
        case Filter(source) | SemiJoin(source):
            return _scanned(source, name)
        case Project(source, columns):
            value = next((value for column, value in columns if column == name), None)
            return _scanned(source, value.name) if isinstance(value, Column) else None
        case Join(left, right, "INNER"):
            return _scanned(left if name in knowledge_of(left).properties else right, name)
    return None


def _have_one_unit(scan: Scan, column: ScanColumn, beside: Scan, key: ScanColumn) -> bool:
    """Whether a row whose column equals a key of another is of the other's unit."""
    unit, own = scan.unit, beside.unit
    if unit is None or own is None or not unit.path or not _as_stored(column) or not _as_stored(key):
        return False
    hop, *rest = unit.path
    if column.declared != hop.column or not column.properties.type == key.properties.type == hop.type:
        return False
    refers = hop.unique and (beside.table, key.declared) == (hop.to_table, hop.to_column)
    return (refers and own == replace(unit, path=tuple(rest))) or (own == unit and key.declared == hop.column)


def _as_stored(column: ScanColumn) -> bool:
    """Whether it is read as the foreign key itself is."""
    known = column.properties
    return isinstance(known.type, Integer | Text) and known.values is None and known.low is None and known.high is None


def _unowned(relation: Relation) -> Relation | None:
    match relation:
        case Scan():
            return replace(relation, unit=None)
        case Filter(source) | Project(source):
            below = _unowned(source)
            return None if below is None else replace(relation, source=below)
    return None

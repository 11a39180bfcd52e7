"""What is known of a relation's columns, in three strengths.

`properties` hold for every row that an engine may look at while it evaluates an expression: engines are free to
evaluate a projection before a filter, so a WHERE does not count. Expressions are written with it (where can there be a
NULL?), and fail on no row whatever it says. `kept` holds for the rows that survive the filters; it chooses clamps and
what is counted. `listed` takes the schema at its word that a column has no NULL: it chooses public groups, which NULL
is among only if it is declared. A row that breaks its declaration is in none of them, but is counted as what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.emit import written
from dpsql.expressions.narrow import kept_properties, narrow
from dpsql.expressions.properties import maybe_null, property_of, union
from dpsql.expressions.tree import properties_of
from dpsql.relation.once import once_per_node
from dpsql.relation.per_unit import per_unit_properties
from dpsql.relation.relation import (
    OF_THE_LEFT,
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    ValuesTable,
    Window,
)
from dpsql.relation.units import one_row_per_unit
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.function import Written
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import WindowCall


@dataclass(frozen=True)
class Knowledge:
    properties: Known
    kept: Known
    listed: Known

    def properties_of(self, expression: Expression) -> Properties:
        return properties_of(expression, self.properties)


Below: TypeAlias = "Callable[[Relation], Known]"
"""What is known, in one strength, of the relations that another one is made of."""


@once_per_node
def knowledge_of(relation: Relation) -> Knowledge:
    if isinstance(relation, Scan):
        return _scanned(relation)
    return Knowledge(
        _properties(relation),
        surviving(relation, lambda below: knowledge_of(below).kept),
        surviving(relation, lambda below: knowledge_of(below).listed),
    )


def _scanned(scan: Scan) -> Knowledge:
    """A column that should hold no NULL may hold one all the same: the scan does not drop rows."""
    declared = {column.name: column.properties for column in scan.columns}
    kept = {column.name: maybe_null(column.properties, not column.never_null) for column in scan.columns}
    return Knowledge(_maybe(declared, missing=True), kept, declared)


def _properties(relation: Relation) -> Known:
    match relation:
        case Project():
            return {name: _computed(value) for name, value in values_of(relation).items()}
        case Filter(source):
            return knowledge_of(source).properties
        case PerUnit(source, keys):
            known = knowledge_of(source).properties
            return {name: properties_of(key, known) for name, key in keys} | _called(relation, known)
        case SetOp(_, left, right):
            return _either(knowledge_of(left).properties, knowledge_of(right).properties)
        case _:
            return _combined(relation, lambda below: knowledge_of(below).properties)


def _computed(value: Written) -> Properties:
    """What is known of a column that is computed so; one that is passed on is known already."""
    known = value.properties
    return known if known.parts == value.parts else replace(known, parts=value.parts)


def surviving(relation: Relation, known_of: Below) -> Known:
    """What holds for the rows that are left, by what holds for those below."""
    match relation:
        case Project(source, columns):
            known = known_of(source)
            return {name: kept_properties(expression, known) for name, expression in columns}
        case Filter(source, condition):
            return narrow(known_of(source), condition)
        case Join(_, _, "INNER", condition) | CrossUnitJoin(left=_, right=_, pairs=_, condition=condition) if (
            condition is not None
        ):
            return narrow(_combined(relation, known_of), condition)
        case PerUnit(source, keys):
            known = known_of(source)
            return {name: kept_properties(key, known) for name, key in keys} | _called(relation, known)
        case SetOp(kind, left, right):
            first = known_of(left)
            return first if kind in OF_THE_LEFT else _either(first, known_of(right))
        case _:
            return _combined(relation, known_of)


def _combined(relation: Relation, known_of: Below) -> Known:
    """Nodes that keep columns as they are, or only add some."""
    match relation:
        case ValuesTable(_, columns):
            return dict(columns)
        case Join(left, right, kind):
            return _maybe(known_of(left), kind in ("RIGHT", "FULL")) | _maybe(known_of(right), kind in ("LEFT", "FULL"))
        case CrossUnitJoin(left=left, right=right):
            return {**known_of(left), **known_of(right)}
        case SemiJoin(source) | Distinct(source):
            return known_of(source)
        case Mark(test, name):
            return {**known_of(test.source), name: property_of(Boolean(), nullable=bool(test.compared))}
        case Window(source):
            known = known_of(source)
            return {**known, **_called(relation, known)}
    raise AssertionError(relation)


@once_per_node
def values_of(project: Relation) -> dict[str, Written]:
    """The columns of a projection, written."""
    assert isinstance(project, Project)
    known = knowledge_of(project.source).properties
    return {name: written(expression, known) for name, expression in project.columns}


def _maybe(known: Known, missing: bool) -> dict[str, Properties]:
    """The columns of a side that an outer join fills with NULL."""
    return {name: maybe_null(properties, missing) for name, properties in known.items()}


def _either(first: Known, second: Known) -> Known:
    return {name: union([properties, second[name]], properties.type) for name, properties in first.items()}


def _called(relation: PerUnit | Window, known: Known) -> dict[str, Properties]:
    single = one_row_per_unit(relation.source)
    if isinstance(relation, PerUnit):
        return {name: per_unit_properties(call, known, single) for name, call in relation.calls}
    return {name: _window_properties(window, known, single) for name, window in relation.columns}


def _window_properties(window: WindowCall, known: Known, single: bool) -> Properties:
    empty = window.frame is not None and window.frame.may_be_empty
    return per_unit_properties(window.call, known, single, empty)

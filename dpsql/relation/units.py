"""The privacy units of a relation: its tables, whether they are private, how many rows a unit may have."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from dpsql.errors import Unsupported
from dpsql.expressions.tree import names_read
from dpsql.limits import MOST_STEPS, MOST_TABLES
from dpsql.relation.relation import (
    OF_THE_LEFT,
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    LightUnits,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import ScanColumn

# -- once --------------------------------------------------------------------------------------------------------------
# Memoized functions of a node: a result is computed once per node and arguments, however many walks need it.
#
# It is stored on the node itself, a relation or a plan. Nodes never change, and the result goes when the node goes.

Node = TypeVar("Node")
Given = TypeVarTuple("Given")
Found = TypeVar("Found")


def memoized_on_node(find: Callable[[Node, *Given], Found]) -> Callable[[Node, *Given], Found]:
    key = f"{find.__module__}.{find.__name__}"

    @wraps(find)
    def found(node: Node, *given: *Given) -> Found:
        kept: dict[tuple[*Given], Found] = vars(node).setdefault(key, {})
        if given not in kept:
            kept[given] = find(node, *given)
        return kept[given]

    return found


# -- units -------------------------------------------------------------------------------------------------------------


@memoized_on_node
def scans_of(relation: Relation) -> tuple[Scan, ...]:
    """The scans that the relation's own rows come from, each once."""
    match relation:
        case Scan():
            return (relation,)
        case ValuesTable():
            return ()
        case Join(left, right) | CrossUnitJoin(left=left, right=right) | SetOp(_, left, right):
            return tuple(dict.fromkeys((*scans_of(left), *scans_of(right))))
        case _:
            return scans_of(relation.source)


def below(relation: Relation) -> list[Relation]:
    """The direct inputs of a node."""
    values = (getattr(relation, field.name) for field in fields(relation))
    return [value for value in values if isinstance(value, Relation)]


def parts_of(relation: Relation) -> Iterator[Relation]:
    """The relation and all relations below it."""
    yield relation
    for part in below(relation):
        yield from parts_of(part)


def different_units(same_unit: str, at: Place | None, otherwise: str | None = None) -> Unsupported:
    """The refusal of a join that could combine rows of different people; `same_unit` is the missing equality."""
    missing = f"add the equality of their units to the condition ({same_unit})"
    select = "select the unit in the subqueries, and add its equality to the condition"
    hint = f"{missing if same_unit else select}: people are not joined with others"
    return Unsupported(
        "a join of private tables must say that both rows are of the same unit",
        at=at,
        hint=f"{hint}; {otherwise}" if otherwise else hint,
    )


@memoized_on_node
def is_tracked(relation: Relation) -> bool:
    """Whether the rows belong to units, and not to public tables."""
    return any(scan.unit is not None for scan in scans_of(relation))


def reads_unit(expression: Expression, relation: Relation) -> bool:
    """Whether an expression over the relation's columns reads the column that identifies units."""
    return reads(expression, relation, _holds_unit)


def _holds_unit(scan: Scan, column: ScanColumn) -> bool:
    unit = scan.unit
    return unit is not None and column.declared == (unit.path[0].column if unit.path else unit.column)


def reads(expression: Expression, relation: Relation, wanted: Callable[[Scan, ScanColumn], bool]) -> bool:
    """Whether an expression over the relation's columns reads a declared column that satisfies a predicate."""
    return any(_is_from(name, relation, wanted) for name in names_read(expression))


def _is_from(name: str, relation: Relation, wanted: Callable[[Scan, ScanColumn], bool]) -> bool:
    match relation:
        case Scan(columns=columns):
            return any(column.name == name and wanted(relation, column) for column in columns)
        case ValuesTable():
            return False
        case Join(left, right) | CrossUnitJoin(left=left, right=right) | SetOp(_, left, right):
            return _is_from(name, left, wanted) or _is_from(name, right, wanted)
        case Project(source, columns):
            return any(reads(value, source, wanted) for column, value in columns if column == name)
        case PerUnit(source, keys, calls):
            made = [(column, (key,)) for column, key in keys] + [(column, call.arguments) for column, call in calls]
            return any(reads(value, source, wanted) for column, values in made if column == name for value in values)
        case Window(source, columns):
            arguments = [value for column, window in columns if column == name for value in window.call.arguments]
            return _is_from(name, source, wanted) or any(reads(value, source, wanted) for value in arguments)
        case _:
            return _is_from(name, relation.source, wanted)


def bounding_scans(scans: Collection[Scan]) -> Collection[Scan]:
    """The tables whose contribution bounds apply. A table with one row per unit has none of its own; if only a join
    multiplies its rows, the schema's bounds apply.
    """
    return [scan for scan in scans if not scan.declared_unique] or scans


@memoized_on_node
def one_row_per_unit(relation: Relation) -> bool:
    """Whether each unit has at most one row, by a database constraint or by the query's own GROUP BY."""
    match relation:
        case Scan():
            return relation.one_row_per_unit
        case ValuesTable() | CrossUnitJoin():
            return False
        case PerUnit(_, _, _, by_unit_alone):
            return by_unit_alone
        case (
            Filter(source) | Project(source) | SemiJoin(source) | Distinct(source) | Window(source) | LightUnits(source)
        ):
            return one_row_per_unit(source)
        case Mark():
            return one_row_per_unit(relation.source)
        case Join(left, right, kind):
            # In a FULL JOIN rows that do not match are kept on both sides: the same unit may have one on each.
            sides = (left, right)
            return kind != "FULL" and all(is_tracked(side) and one_row_per_unit(side) for side in sides)
        case SetOp(kind, left, right):
            return kind in OF_THE_LEFT and one_row_per_unit(left)


def follows_from_unit(expression: Expression, relation: Relation) -> bool:
    """Whether a unit has one value of it in the relation, if each table has the rows per unit that are declared."""
    return all(_is_of_unit(name, relation) for name in names_read(expression))


def _is_of_unit(name: str, relation: Relation) -> bool:
    if one_row_per_unit(relation):
        return _is_from(name, relation, _any_column)
    match relation:
        case Scan():
            return relation.declared_unique and _is_from(name, relation, _any_column)
        case Join(left, right, kind, _, by_unit_alone):
            # A row that an outer join fills with NULL may belong to a unit that has others.
            kept = {"INNER": (left, right), "LEFT": (left,), "RIGHT": (right,), "FULL": ()}[kind]
            return any(_is_of_unit(name, side) for side in ((left, right) if by_unit_alone else kept))
        case Project(source, columns):
            return any(follows_from_unit(value, source) for column, value in columns if column == name)
        case PerUnit(source, keys):
            return any(follows_from_unit(key, source) for column, key in keys if column == name)
        case Filter(source) | SemiJoin(source) | Distinct(source) | LightUnits(source) | Window(source):
            return _is_of_unit(name, source)
    return False


def _any_column(scan: Scan, _: ScanColumn) -> bool:
    return scan.unit is not None


# -- size --------------------------------------------------------------------------------------------------------------
# The size of a relation as an engine reads it: a part that is read twice counts twice.


@memoized_on_node
def tables_read(relation: Relation) -> int:
    return isinstance(relation, Scan) + sum(map(tables_read, below(relation)))


@memoized_on_node
def steps(relation: Relation) -> int:
    """The number of steps on the longest path from a table."""
    return 1 + max(map(steps, below(relation)), default=0)


def check_size(relation: Relation, at: Place | None) -> None:
    if tables_read(relation) > MOST_TABLES:
        raise Unsupported(
            f"the query reads more than {MOST_TABLES} tables",
            at=at,
            hint="a WITH query counts wherever it is read: read it once, or ask in several queries",
        )
    if steps(relation) > MOST_STEPS:
        raise Unsupported(
            f"more than {MOST_STEPS} steps lead from a table to this result",
            at=at,
            hint="put several steps into one SELECT, or ask in several queries",
        )

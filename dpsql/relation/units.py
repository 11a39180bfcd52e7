"""The privacy units of a relation: its tables, whether they are private, how many rows a unit may have, and which units
a condition leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from dpsql.engine_sql.build import UNIT
from dpsql.errors import Unsupported
from dpsql.expressions.narrow import MIRRORED, conjuncts
from dpsql.expressions.properties import maybe_null
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, names_read, substituted
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
    Unit,
    ValuesTable,
    Window,
)
from dpsql.schema.types import Boolean, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dpsql.errors import Place
    from dpsql.expressions.properties import Properties
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


def with_scans(relation: Relation, changed: Callable[[Scan], Scan]) -> Relation:
    """The relation over other scans."""
    if isinstance(relation, Scan):
        return changed(relation)
    values = {field.name: getattr(relation, field.name) for field in fields(relation)}
    made = {name: with_scans(value, changed) for name, value in values.items() if isinstance(value, Relation)}
    return replace(relation, **made)  # type: ignore[arg-type]  # the same kinds of relations as before


def different_units(same_unit: str, at: Place | None, otherwise: str | None = None) -> Unsupported:
    """The refusal of a join that could combine rows of different people; `same_unit` is the missing equality."""
    missing = f"add the equality of their units to the condition ({same_unit})"
    select = "select the unit in the subqueries, and add an equality of units to the condition"
    hint = f"{missing if same_unit else select}; joins across people are not supported"
    return Unsupported(
        "a join of private tables must require that both rows belong to the same unit",
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


# -- asked units -------------------------------------------------------------------------------------------------------
# Where rows of some units alone can pass, every table is read for those units alone.
#
#     t a JOIN v b USING (uid) WHERE a.uid = 42        of b too, only rows WHERE uid = 42
#
# Otherwise an engine that finds nobody on one side never works on the other: one person's presence would take as long
# as all of v. The condition itself stays where it is, so the added ones only drop rows that it would drop later.

NULL_ON_NULL = {*MIRRORED, "<>", "+", "-", "*", "/", "//", "%", "NOT", "negate", "ABS"}
"""Functions that are NULL if one of their arguments is."""


@dataclass(frozen=True)
class UnitTest:
    """A condition on the unit, as a column of this name."""

    condition: Expression
    read_as: Properties
    """How the unit is read: a clamped one may satisfy other conditions."""


@dataclass(frozen=True)
class UnitColumn:
    """A column that has the unit of each row; one that is not `always` there may be NULL instead."""

    read_as: Properties
    always: bool


def reading_asked_units(relation: Relation, given: tuple[UnitTest, ...] = ()) -> Relation:
    """The relation over fewer rows: at each table, units that pass what is `given` and what the relation implies."""
    if not is_tracked(relation):
        return relation
    given = tuple(dict.fromkeys((*given, *_implied(relation))))
    match relation:
        case Scan():
            return _of_units(relation, given)
        case Filter(Scan() as scan):
            return replace(relation, source=_of_units(scan, [test for test in given if test not in _implied(relation)]))
        case ValuesTable() | CrossUnitJoin():
            return relation
        case SemiJoin():
            return _with_asked_units(relation, given)
        case Mark(test):
            return replace(relation, test=_with_asked_units(test, given))
        case Join(left, right, kind, condition):
            # A row that an outer join may leave without a partner passes the condition if it has one.
            met = _unit_tests(condition, {**unit_columns(left), **unit_columns(right)}) if kind != "FULL" else ()
            return replace(
                relation,
                left=reading_asked_units(left, (*given, *met) if kind == "RIGHT" else given),
                right=reading_asked_units(right, (*given, *met) if kind == "LEFT" else given),
            )
        case SetOp(_, left, right):
            return replace(relation, left=reading_asked_units(left, given), right=reading_asked_units(right, given))
    return replace(relation, source=reading_asked_units(relation.source, given))


def _with_asked_units(semi: SemiJoin, given: tuple[UnitTest, ...]) -> SemiJoin:
    # Beside IN, any row with a NULL may leave the match open.
    met = () if semi.compared else _unit_tests(semi.condition, _tested_columns(semi))
    other = reading_asked_units(semi.other, (*given, *met))
    return replace(semi, source=reading_asked_units(semi.source, given), other=other)


def _of_units(scan: Scan, tests: Iterable[UnitTest]) -> Relation:
    names = {column.read_as: name for name, column in unit_columns(scan).items()}
    parts = [
        substituted(test.condition, {Column(UNIT, test.read_as.type): Column(names[test.read_as], test.read_as.type)})
        for test in tests
        if test.read_as in names
    ]
    return Filter(scan, joined("AND", parts)) if parts else scan


@memoized_on_node
def _implied(relation: Relation) -> tuple[UnitTest, ...]:
    """What the unit of every row of the relation satisfies."""
    match relation:
        case Scan() | ValuesTable() | CrossUnitJoin():
            return ()
        case Filter(source, condition):
            return (*_implied(source), *_unit_tests(condition, unit_columns(source)))
        case SemiJoin(source, other, condition, negated):
            if negated:
                return _implied(source)
            return (*_implied(source), *_implied(other), *_unit_tests(condition, _tested_columns(relation)))
        case Join(left, right, kind, condition):
            met = _unit_tests(condition, unit_columns(relation)) if kind == "INNER" else ()
            kept = {"INNER": (left, right), "LEFT": (left,), "RIGHT": (right,), "FULL": ()}[kind]
            return (*met, *(test for side in kept for test in _implied(side)))
        case SetOp(kind, left, right):
            if kind in OF_THE_LEFT:
                return (*_implied(left), *(_implied(right) if kind.startswith("INTERSECT") else ()))
            return tuple(test for test in _implied(left) if test in _implied(right))
    return _implied(relation.source)


def _unit_tests(condition: Expression | None, columns: Mapping[str, UnitColumn]) -> tuple[UnitTest, ...]:
    """What the unit satisfies wherever the condition holds."""
    parts = [] if condition is None else [_unit_test(part, columns) for part in conjuncts(condition)]
    return tuple(part for part in parts if part is not None)


def _unit_test(part: Expression, columns: Mapping[str, UnitColumn]) -> UnitTest | None:
    if isinstance(part, Call) and part.function.name in ("AND", "OR"):
        found = [_unit_test(below, columns) for below in part.arguments]
        known = [test for test in found if test is not None]
        is_implied = known if part.function.name == "AND" else len(known) == len(found)
        if not is_implied or len({test.read_as for test in known}) > 1:
            return None
        return UnitTest(joined(part.function.name, [test.condition for test in known]), known[0].read_as)
    read = dict(_units_read(part, columns))
    ways = {None if column is None else column.read_as for column in read.values()}
    if len(ways) != 1 or (way := ways.pop()) is None:
        return None
    unit = Column(UNIT, way.type)
    condition = substituted(part, dict.fromkeys(read, unit))
    # a.uid = b.uid says nothing of the unit.
    is_trivial = isinstance(condition, Call) and set(condition.arguments) == {unit}
    is_known = _is_null_on_null(condition) or all(column is not None and column.always for column in read.values())
    return UnitTest(condition, way) if is_known and not is_trivial else None


def _units_read(part: Expression, columns: Mapping[str, UnitColumn]) -> Iterator[tuple[Expression, UnitColumn | None]]:
    """What an expression reads: units, or None for anything else."""
    found = _unit_column(part, columns)
    if found is not None or isinstance(part, Column):
        yield part, found
    elif isinstance(part, Call):
        for argument in part.arguments:
            yield from _units_read(argument, columns)


def joined(operator: str, parts: Sequence[Expression]) -> Expression:
    """The conditions as one, by AND or OR."""
    return Call(FUNCTIONS[operator], tuple(parts), Boolean()) if len(parts) > 1 else parts[0]


def _is_null_on_null(part: Expression) -> bool:
    """Whether the expression is NULL whenever a column that it reads is NULL."""
    if not isinstance(part, Call):
        return True
    if part.function.name == "IN":
        return _is_null_on_null(part.arguments[0]) and not names_read(*part.arguments[1:])
    return part.function.name in NULL_ON_NULL and all(map(_is_null_on_null, part.arguments))


def _tested_columns(semi: SemiJoin) -> Mapping[str, UnitColumn]:
    return {**unit_columns(semi.source), **unit_columns(semi.other)}


@memoized_on_node
def unit_columns(relation: Relation) -> Mapping[str, UnitColumn]:
    """The columns that have the unit of each row."""
    match relation:
        case Scan(unit=Unit(path=()) as unit, columns=columns):
            return {
                column.name: UnitColumn(maybe_null(column.properties, missing=True), always=True)
                for column in columns
                if column.declared == unit.column and isinstance(column.properties.type, Integer | Text)
            }
        case Scan() | ValuesTable() | CrossUnitJoin():
            return {}
        case Project(source, columns):
            return _passed_units(columns, unit_columns(source))
        case PerUnit(source, keys):
            return _passed_units(keys, unit_columns(source))
        case Join(left, right, kind):
            return _maybe(left, kind in ("RIGHT", "FULL")) | _maybe(right, kind in ("LEFT", "FULL"))
        case SetOp(_, left, right):
            others = unit_columns(right)
            return {name: column for name, column in unit_columns(left).items() if others.get(name) == column}
    return unit_columns(relation.source)


def _maybe(side: Relation, missing: bool) -> dict[str, UnitColumn]:
    columns = unit_columns(side)
    return {name: replace(column, always=column.always and not missing) for name, column in columns.items()}


def _passed_units(
    made: tuple[tuple[str, Expression], ...], columns: Mapping[str, UnitColumn]
) -> Mapping[str, UnitColumn]:
    return {name: found for name, value in made if (found := _unit_column(value, columns)) is not None}


def _unit_column(value: Expression, columns: Mapping[str, UnitColumn]) -> UnitColumn | None:
    """A unit by another name; COALESCE chooses one of them."""
    if isinstance(value, Column):
        return columns.get(value.name)
    if isinstance(value, Call) and value.function.name == "COALESCE":
        found = [_unit_column(part, columns) for part in value.arguments]
        if found[0] is not None and all(part is not None and part.read_as == found[0].read_as for part in found):
            return replace(found[0], always=False)
    return None


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
            hint="a WITH query counts each time it is read; read it once, or split the query",
        )
    if steps(relation) > MOST_STEPS:
        raise Unsupported(
            f"more than {MOST_STEPS} steps lead from a table to this result",
            at=at,
            hint="combine steps into one SELECT, or split the query",
        )

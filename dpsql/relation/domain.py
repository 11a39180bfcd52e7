"""Public groups: all possible keys, known without reading private rows.

The keys are computed from *sources* whose possible values are public: a column with declared values or a small range, a
condition, a date part, a bin. The groups are the image of all combinations of these, computed by the engine itself:

    GROUP BY CASE WHEN age < 18 THEN 'minor' ELSE 'adult' END     source: age, 0 to 120       groups: minor, adult
    GROUP BY FLOOR(amount / 50) * 50                              source: FLOOR(amount / 50)  groups: 0, 50, ..., 500

    GROUP BY YEAR(ts), MONTH(ts)                              source: ts, the first of each month in its range

A condition of WHERE that reads only sources and public rows removes the groups that it excludes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dpsql.expressions.dates import common_grain, grains, starts_within
from dpsql.expressions.narrow import conjuncts, kept_properties
from dpsql.expressions.properties import one_of
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Expression, Literal, columns_of, names_read, properties_of, substituted
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import (
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
from dpsql.relation.units import is_tracked, joined
from dpsql.schema.types import Boolean, Date

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Known

RELAXED = {"<": "<=", "<=": "<=", ">": ">=", ">=": ">=", "=": "="}
"""What a comparison of two moments says about the starts of their units."""


@dataclass(frozen=True)
class Domain:
    """Public groups: `keys` computed over all combinations of the sources' values that satisfy the conditions."""

    sources: tuple[Properties, ...]
    keys: tuple[Expression, ...]
    """Over the columns _s0, _s1, ..., one per source."""
    conditions: tuple[Expression, ...]
    tests: tuple[SemiJoin, ...] = ()
    """IN and EXISTS over public rows; their own `source` is ignored."""

    @property
    def combinations(self) -> int:
        """How many combinations the sources' values have."""
        return math.prod(properties.size or 0 for properties in self.sources)

    @cached_property
    def size(self) -> int:
        """An upper bound on the number of groups."""
        sizes = [properties.size for properties in self._of_keys]
        return min([self.combinations, *([math.prod(size or 0 for size in sizes)] if None not in sizes else [])])

    @property
    def has_null(self) -> bool:
        """Whether a key can be NULL."""
        return any(properties.nullable for properties in self._of_keys)

    @cached_property
    def _of_keys(self) -> list[Properties]:
        known = {source_name(number): properties for number, properties in enumerate(self.sources)}
        return [properties_of(key, known) for key in self.keys]


@dataclass(frozen=True)
class ListedKeys:
    """Public groups: `keys` computed over the rows of a public relation."""

    relation: Relation
    keys: tuple[Expression, ...]
    size: int
    """An upper bound on the number of groups: the limit, and not the size of the table today, which may change."""


def source_name(number: int) -> str:
    return f"_s{number}"


def public_domain(
    keys: tuple[Expression, ...], relation: Relation, known: Known, most: int, beside: Sequence[SemiJoin] = ()
) -> Domain | None:
    """The public groups; None if the keys are not public, or there are more than `most` groups.

    `beside` are tests that every row of the relation passes.
    """
    conditions, tests = list(_conditions(relation)), [*_tests(relation), *beside]
    of_keys = _grains(keys)
    of_conditions = [part for part in conditions if all(of_keys.get(column) and unit for column, unit in grains(part))]
    for units in (_grains((*keys, *of_conditions)), of_keys, {}):
        starts = _unit_starts(units, known)
        domain = _domain(keys, conditions, tests, known, starts, most)
        if domain is not None:
            return domain
    return None


@dataclass(frozen=True)
class UnitStarts:
    """A date or timestamp that only the unit matters of in which it lies: the starts of these units stand for it."""

    unit: str
    starts: Properties


def _grains(expressions: Iterable[Expression]) -> dict[Column, str | None]:
    """The coarsest unit per date or timestamp that decides all of these."""
    found: dict[Column, str | None] = {}
    for expression in expressions:
        for column, grain in grains(expression):
            found[column] = common_grain(found.get(column, grain), grain)
    return found


def _unit_starts(units: Mapping[Column, str | None], known: Known) -> dict[Column, UnitStarts]:
    found = {}
    for column, unit in units.items():
        moment = known[column.name]
        starts = starts_within(unit, moment) if unit is not None and moment.values is None else None
        if unit is None or starts is None or (unit == "day" and isinstance(column.type, Date)):
            continue  # the column itself, if anything
        values = (start.date() for start in starts) if isinstance(column.type, Date) else starts
        found[column] = UnitStarts(unit, one_of(column.type, values, nullable=moment.nullable))
    return found


def _domain(
    keys: tuple[Expression, ...],
    conditions: Sequence[Expression],
    tests: Sequence[SemiJoin],
    known: Known,
    starts: Mapping[Column, UnitStarts],
    most: int,
) -> Domain | None:
    found: dict[Expression, Properties] = {}
    for key in keys:
        sources = _sources(key, known, starts, most)
        if sources is None:
            return None
        found.update(sources)
    renamed = {source: Column(source_name(i), properties.type) for i, (source, properties) in enumerate(found.items())}
    tested = [_of_units(part, starts) for part in conditions if set(columns_of(part)) <= set(renamed)]
    exact = {part.name for part in renamed if isinstance(part, Column) and part not in starts}
    domain = Domain(
        tuple(found.values()),
        tuple(substituted(key, renamed) for key in keys),
        tuple(substituted(part, renamed) for part in tested if part is not None),
        tuple(_renamed_test(test, renamed) for test in tests if _outside(test) <= exact),
    )
    return domain if domain.combinations <= most else None


def _of_units(condition: Expression, starts: Mapping[Column, UnitStarts]) -> Expression | None:
    """What the condition says of the starts of units; None if it may hold for other moments of a unit alone."""
    read = [(starts[column].unit, grain) for column, grain in grains(condition) if column in starts]
    if all(common_grain(unit, grain) == unit for unit, grain in read):
        return condition
    match condition:
        case Call(function, (Column() as one, Column() as other)) if function.name in RELAXED:
            if one in starts and other in starts and starts[one].unit == starts[other].unit:
                return Call(FUNCTIONS[RELAXED[function.name]], condition.arguments, condition.type, condition.at)
    return None


def _sources(
    expression: Expression, known: Known, starts: Mapping[Column, UnitStarts], most: int
) -> dict[Expression, Properties] | None:
    """The public parts that the expression is computed from; None if it reads anything else."""
    match expression:
        case Column() if expression in starts:
            return {expression: starts[expression].starts}
        case Literal():
            return {}
        case Call(_, arguments, _):
            below = [_sources(argument, known, starts, most) for argument in arguments]
            if all(part is not None for part in below):
                merged = {source: properties for part in below for source, properties in (part or {}).items()}
                if math.prod(properties.size or 0 for properties in merged.values()) <= most:
                    return merged
    properties = kept_properties(expression, known)
    return {expression: properties} if properties.size is not None and properties.size <= most else None


def _narrowing(relation: Relation) -> Iterator[Filter | SemiJoin]:
    """The steps since the last projection. What is true of the rows stays true of them where columns are added."""
    while isinstance(relation, Filter | SemiJoin | Mark | Join):
        if isinstance(relation, Join):
            if relation.kind != "LEFT":
                return
            relation = relation.left
            continue
        if not isinstance(relation, Mark):
            yield relation
        relation = relation.source


def _conditions(relation: Relation) -> Iterator[Expression]:
    for step in _narrowing(relation):
        if isinstance(step, Filter):
            yield from conjuncts(step.condition)


def _tests(relation: Relation) -> Iterator[SemiJoin]:
    return (step for step in _narrowing(relation) if isinstance(step, SemiJoin) and not is_tracked(step.other))


def _renamed_test(test: SemiJoin, renamed: Mapping[Expression, Column]) -> SemiJoin:
    return replace(
        test,
        condition=test.condition and substituted(test.condition, renamed),
        compared=tuple(substituted(part, renamed) for part in test.compared),
    )


def _outside(test: SemiJoin) -> set[str]:
    """The columns of the outer rows that a test reads."""
    return names_read(test.condition) - facts_of(test.other).any_row.keys()


# -- public columns ----------------------------------------------------------------------------------------------------
# A key that is a column of a public table has no other values than that table, in the rows that WHERE leaves of it.


@dataclass(frozen=True)
class PublicColumn:
    rows: Relation
    """The public rows that it comes from unchanged, where the conditions on these alone hold."""
    column: Column
    path: str
    """Which of the tables of the relation it is."""


def public_column(name: str, relation: Relation) -> PublicColumn | None:
    origin = _origin(name, relation)
    if origin is None or origin.scan.unit is not None:
        return None
    rows: Relation = origin.scan
    for condition in _conditions_on(name, relation):
        rows = Filter(rows, condition)
    return PublicColumn(rows, Column(origin.name, facts_of(origin.scan).any_row[origin.name].type), origin.path)


def in_one_row(columns: Mapping[str, PublicColumn]) -> SemiJoin:
    """The test that the columns of one public table, by their names in a relation, are of one row of it."""
    (rows, *_) = (found.rows for found in columns.values())
    own = {name: f"{name}_of_row" for name in columns}
    other = Project(rows, tuple((own[name], found.column) for name, found in columns.items()))
    same = [
        Call(FUNCTIONS["="], (Column(name, found.column.type), Column(own[name], found.column.type)), Boolean())
        for name, found in columns.items()
    ]
    return SemiJoin(rows, other, joined("AND", same), negated=False)


@dataclass(frozen=True)
class Origin:
    """The column of a scan, and by which sides of joins it is reached: a table may be joined with itself."""

    scan: Scan
    name: str
    path: str


def _origin(name: str, relation: Relation) -> Origin | None:
    match relation:
        case Scan(columns=columns):
            return Origin(relation, name, "") if any(column.name == name for column in columns) else None
        case Join(left, right):
            side, place = (left, "l") if name in facts_of(left).any_row else (right, "r")
            found = _origin(name, side)
            return found and replace(found, path=place + found.path)
        case Project(source, columns):
            value = next((value for column, value in columns if column == name), None)
            return _origin(value.name, source) if isinstance(value, Column) else None
        case Filter(source) | SemiJoin(source) | Distinct(source) | LightUnits(source):
            return _origin(name, source)
        case Mark() | Window() if name in facts_of(relation.source).any_row:
            return _origin(name, relation.source)
    return None


def _conditions_on(name: str, relation: Relation) -> Iterator[Expression]:
    """The conditions that read the public table of a column alone, with its columns by their own names."""
    own = _origin(name, relation)
    assert own is not None
    match relation:
        case Scan() | ValuesTable() | CrossUnitJoin() | SetOp() | PerUnit():
            return
        case Join(left, right, kind, condition):
            if kind == "INNER" and condition is not None:
                yield from _read_there(condition, relation, own)
            yield from _conditions_on(name, left if own.path[0] == "l" else right)
        case Project(source, columns):
            value = next(value for column, value in columns if column == name)
            assert isinstance(value, Column)
            yield from _conditions_on(value.name, source)
        case _:
            if isinstance(relation, Filter):
                yield from _read_there(relation.condition, relation.source, own)
            yield from _conditions_on(name, relation.source)


def _read_there(condition: Expression, relation: Relation, own: Origin) -> Iterator[Expression]:
    for part in conjuncts(condition):
        origins = {column: _origin(column.name, relation) for column in columns_of(part)}
        if origins and all(
            one is not None and one.scan is own.scan and one.path == own.path for one in origins.values()
        ):
            yield substituted(
                part, {column: Column(one.name, column.type) for column, one in origins.items() if one is not None}
            )

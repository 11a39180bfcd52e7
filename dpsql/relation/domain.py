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
from dpsql.relation.relation import Filter, Relation, SemiJoin
from dpsql.relation.units import is_tracked
from dpsql.schema.types import Date

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


def public_domain(keys: tuple[Expression, ...], relation: Relation, known: Known, most: int) -> Domain | None:
    """The public groups; None if the keys are not public, or there are more than `most` groups."""
    conditions, tests = list(_conditions(relation)), list(_tests(relation))
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
    """The steps since the last projection."""
    while isinstance(relation, Filter | SemiJoin):
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

"""Public groups: all possible keys, known without reading private rows.

The keys are computed from *sources* whose possible values are public: a column with declared values or a small range, a
condition, a date part, a bin. The groups are the image of all combinations of these, computed by the engine itself:

    GROUP BY CASE WHEN age < 18 THEN 'minor' ELSE 'adult' END     source: age, 0 to 120       groups: minor, adult
    GROUP BY FLOOR(amount / 50) * 50                              source: FLOOR(amount / 50)  groups: 0, 50, ..., 500

A condition of WHERE that reads only sources and public rows removes the groups that it excludes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.expressions.narrow import conjuncts, kept_properties
from dpsql.expressions.tree import Call, Column, Expression, Literal, columns_of, names_read, properties_of, substituted
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, Relation, SemiJoin
from dpsql.relation.units import is_tracked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Known


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
    def size(self) -> int:
        """An upper bound on the number of groups."""
        return math.prod(properties.size or 0 for properties in self.sources)

    @property
    def has_null(self) -> bool:
        """Whether a key can be NULL."""
        known = {source_name(number): properties for number, properties in enumerate(self.sources)}
        return any(properties_of(key, known).nullable for key in self.keys)


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
    found: dict[Expression, Properties] = {}
    for key in keys:
        sources = _sources(key, known, most)
        if sources is None:
            return None
        found.update(sources)
    renamed = {source: Column(source_name(i), properties.type) for i, (source, properties) in enumerate(found.items())}
    conditions = [part for part in _conditions(relation) if set(columns_of(part)) <= set(renamed)]
    tests = [
        test
        for test in _tests(relation)
        if _outside(test) <= {part.name for part in renamed if isinstance(part, Column)}
    ]
    domain = Domain(
        tuple(found.values()),
        tuple(substituted(key, renamed) for key in keys),
        tuple(substituted(part, renamed) for part in conditions),
        tuple(_renamed_test(test, renamed) for test in tests),
    )
    return domain if domain.size <= most else None


def _sources(expression: Expression, known: Known, most: int) -> dict[Expression, Properties] | None:
    """The public parts that the expression is computed from; None if it reads anything else."""
    match expression:
        case Literal():
            return {}
        case Call(_, arguments, _):
            below = [_sources(argument, known, most) for argument in arguments]
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

"""Whole tables behind relations: how many rows a unit has there is no less than it has in the relation.

    SELECT ... FROM lines WHERE price < 5            lines
    SELECT ... FROM lines JOIN (SELECT DISTINCT code FROM codes) USING (code)      lines
    SELECT ... FROM lines JOIN codes USING (code)    none: a line may have several codes

Where rows stay (a read-only file, a copy), units are counted in the whole table once, and not for every question; and
so are lists of a public table's keys made once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import Call, Column, names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Distinct, Filter, Join, Mark, Project, Relation, Scan, SemiJoin
from dpsql.relation.units import is_tracked
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.expressions.tree import Expression


def whole_table(relation: Relation) -> Scan | None:
    """The table whose rows stay and give at most one row of the relation each."""
    match relation:
        case Scan():
            return relation if relation.stays else None
        case Filter(source) | Project(source) | SemiJoin(source):
            return whole_table(source)
        case Mark():
            return whole_table(relation.source)
        case Join(left, right, "INNER" | "LEFT", condition) if not is_tracked(right):
            return whole_table(left) if _matches_once(left, right, condition) else None
        case Join(left, right, "INNER" | "RIGHT", condition) if not is_tracked(left):
            return whole_table(right) if _matches_once(right, left, condition) else None
    return None


def as_if_changing(relation: Relation) -> Relation:
    """The same relation, of which nobody knows that its rows stay: there is no whole table behind it."""
    match relation:
        case Scan():
            return replace(relation, stays=False)
        case Filter(source) | Project(source) | SemiJoin(source):
            return replace(relation, source=as_if_changing(source))
        case Mark(test):
            return replace(relation, test=replace(test, source=as_if_changing(test.source)))
        case Join(left) if is_tracked(left):
            return replace(relation, left=as_if_changing(left))
        case Join(_, right):
            return replace(relation, right=as_if_changing(right))
    return relation


def has_all_rows(relation: Relation) -> bool:
    """Whether it has every row of its whole table."""
    match relation:
        case Scan():
            return True
        case Project(source):
            return has_all_rows(source)
    return False


def lasts(relation: Relation) -> bool:
    """Whether public rows are columns of a whole table whose rows stay, so that no question changes what they are."""
    match relation:
        case Scan(unit=None):
            return relation.stays
        case Project(source, columns):
            return lasts(source) and all(isinstance(value, Column) for _, value in columns)
        case Distinct(source):
            return lasts(source)
    return False


def is_whole_list(relation: Relation) -> bool:
    """Whether it has every combination of some columns of a whole public table, each once."""
    return lasts(relation) and _are_different(relation)


def _matches_once(rows: Relation, public: Relation, condition: Expression | None) -> bool:
    """Whether a row has at most one partner: where public rows are different, and compared as wholes."""
    if not _are_different(public) or condition is None:
        return False
    own = knowledge_of(rows).properties.keys()
    compared = {name for part in conjuncts(condition) for name, other in equated(part) if names_read(other) <= own}
    return compared >= knowledge_of(public).properties.keys()


def _are_different(relation: Relation) -> bool:
    """Whether no two rows are the same, by the query's own DISTINCT; columns may have other names since."""
    match relation:
        case Distinct():
            return True
        case Project(source, columns):
            return _are_different(source) and knowledge_of(source).properties.keys() <= {
                value.name for _, value in columns if isinstance(value, Column)
            }
    return False


def equated(condition: Expression) -> Iterator[tuple[str, Expression]]:
    """A column, and what the condition says it is equal to. Doubles that differ may be equal: 0 and -0."""
    match condition:
        case Call(function, (first, second)) if function.name == "=" and first.type == second.type != Double():
            sides = (first, second), (second, first)
            yield from ((one.name, other) for one, other in sides if isinstance(one, Column))

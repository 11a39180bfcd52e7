"""Text keys that are not looked up in their declared values row by row: the list is joined to the groups anyway.

    SELECT region, COUNT(*) ... GROUP BY region      joined to north, south, east, west: another region is no group

A look-up in a list of fifty takes longer than to count a row. Nothing else may read the column, for which a text that
is not declared is NULL; and NULL must be no group itself, for it would have such rows too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from dpsql.expressions.properties import property_of
from dpsql.expressions.tree import Column, names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Join, Relation, Scan, SemiJoin
from dpsql.schema.types import Text

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import ScanColumn


def without_lists(relation: Relation, keys: tuple[Expression, ...], reading: list[Expression]) -> Relation:
    """The relation, whose rows are grouped by `keys` and read by `reading` besides, with such keys as they are."""
    listed = knowledge_of(relation).listed
    names = [
        key.name
        for key in keys
        if isinstance(key, Column)
        and isinstance(key.type, Text)
        and listed[key.name].values is not None
        and not listed[key.name].nullable
        and key.name not in names_read(*reading, *(other for other in keys if other != key))
    ]
    return reduce(lambda found, name: _as_it_is(found, name) or found, names, relation)


def _as_it_is(relation: Relation, name: str) -> Relation | None:
    """None where the column is read on the way, or made of others."""
    match relation:
        case Scan():
            return replace(relation, columns=tuple(_any_text(part, name) for part in relation.columns))
        case Filter(condition=condition) | SemiJoin(condition=condition) if name not in names_read(condition):
            below = _as_it_is(relation.source, name)
            return None if below is None else replace(relation, source=below)
        case Join(condition=condition) if name not in names_read(condition):
            if name in knowledge_of(relation.left).properties:
                left = _as_it_is(relation.left, name)
                return None if left is None else replace(relation, left=left)
            right = _as_it_is(relation.right, name)
            return None if right is None else replace(relation, right=right)
    return None


def _any_text(column: ScanColumn, name: str) -> ScanColumn:
    if column.name != name or column.collected is not None:
        return column
    return replace(column, properties=property_of(Text(), nullable=column.properties.nullable))

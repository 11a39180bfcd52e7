"""Columns that are read as they are stored, since what is declared of them is made true above the scan anyway.

    SELECT region, COUNT(*) ... GROUP BY region      joined to north, south, east, west: another region is no group
    SELECT SUM(amount) ...                           every value that is summed is clamped where it is summed

A look-up in a list of fifty takes longer than to count a row, a second clamp as long as to sum it. Nothing else may
read the column: for all others a text that is not declared is NULL, and a number within its bounds. Where a unit's
groups are ranked, rows with other texts are left out before that, else these would take the places of groups.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from dpsql.expressions.tree import Column, names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Join, Relation, Scan, SemiJoin
from dpsql.schema.types import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AsStored


def listed_keys(relation: Relation, keys: tuple[Expression, ...], reading: Iterable[Expression]) -> list[str]:
    """Text keys with declared values that nothing in `reading` reads, nor another key.

    NULL must be no group itself, for it would have the rows of other texts too.
    """
    listed = knowledge_of(relation).listed
    return [
        key.name
        for key in keys
        if isinstance(key, Column)
        and isinstance(key.type, Text)
        and listed[key.name].values is not None
        and not listed[key.name].nullable
        and key.name not in names_read(*reading, *(other for other in keys if other != key))
    ]


def as_stored(relation: Relation, names: Iterable[str], how: AsStored) -> Relation:
    """The relation with such of these columns as they are stored which nothing reads on the way."""
    return reduce(lambda found, name: _as_it_is(found, name, how) or found, names, relation)


def _as_it_is(relation: Relation, name: str, how: AsStored) -> Relation | None:
    """None where the column is read on the way, or made of others."""
    match relation:
        case Scan(columns=columns):
            found = tuple(replace(part, as_stored=how) if part.name == name else part for part in columns)
            return replace(relation, columns=found)
        case Filter(condition=condition) | SemiJoin(condition=condition) if name not in names_read(condition):
            below = _as_it_is(relation.source, name, how)
            return None if below is None else replace(relation, source=below)
        case Join(condition=condition) if name not in names_read(condition):
            if name in knowledge_of(relation.left).properties:
                left = _as_it_is(relation.left, name, how)
                return None if left is None else replace(relation, left=left)
            right = _as_it_is(relation.right, name, how)
            return None if right is None else replace(relation, right=right)
    return None

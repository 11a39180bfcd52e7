"""Rows that are joined to a list of keys, which are what they are grouped by: groups are joined to that list anyway.

    SELECT listed.part, SUM(price) FROM lines JOIN (SELECT DISTINCT part FROM parts) AS listed USING (part) GROUP BY 1

    lines whose part is not NULL, grouped by it: a group that is not listed is not shown

Only where all of a table is listed: of few parts there may be few lines, and a join finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import Call, Column, names_read
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Join
from dpsql.relation.whole_tables import equated, is_whole_list
from dpsql.relation.write_tests import truth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation


def unlisted(
    relation: Relation, keys: tuple[Expression, ...], listed: Relation, reading: Iterable[Expression]
) -> tuple[Relation, tuple[Expression, ...]] | None:
    """The rows, and their own keys; None where rows are not of that kind, or something else of the list is read."""
    match relation:
        case Join(left, right, "INNER", Call() as condition) if right == listed and is_whole_list(listed):
            own, its = knowledge_of(left).properties.keys(), knowledge_of(listed).properties.keys()
            parts = list(conjuncts(condition))
            equal = {name: (part, mine) for part in parts for name, mine in equated(part) if name in its}
            rest = [part for part in parts if all(part is not used for used, _ in equal.values())]
            columns = [key.name for key in keys if isinstance(key, Column)]
            read = names_read(*reading, *rest, *(mine for _, mine in equal.values()))
            if len(columns) == len(keys) and {*columns} == {*equal} == its and read <= own:
                mine = tuple(equal[name][1] for name in columns)
                return Filter(left, _all([*rest, *map(_is_present, mine)])), mine
    return None


def _is_present(value: Expression) -> Expression:
    """An equality keeps no NULL, and a list of groups may have one. What is tested is the value as it is declared: a
    text that is not, which a list may have all the same, is NULL here as it is there."""
    return truth("NOT", truth("IS NULL", value))


def _all(parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else truth("AND", *parts)

"""Rows of a unit side by side, before they are ranked.

Spark sorts by one whole number in linear time, and by several values with comparisons, most of which are of a unit's
own rows: these are read from all over the memory. Of rows that are sorted by their unit already, a second sort finds
the others of each unit next to it, and is done with few comparisons. Rows are sent to where their unit's are once, as
they would be anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Apply, Derived, Field, Over, Select, is_one_scan
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Term


@dataclass(frozen=True, slots=True)
class Clustered(Select):
    """Its rows are sorted by a column, wherever they are."""

    by: str = ""


def clustered(select: Select) -> Select:
    """The same query, where it ranks the rows of one table within whole numbers: rows of others may lie so already."""
    match select.source:
        case Derived(Select(columns, source, where, (), (), False) as rows) if is_one_scan(rows):
            unit = _ranked_within(select)
            if unit is None:
                return select
            below = Clustered(columns, source, where, by=unit)
            return replace(select, source=replace(select.source, query=below))
    return select


def _ranked_within(select: Select) -> str | None:
    """By what is computed: Spark takes two sorts for one unless something is computed in between."""
    names = {_owner(column.value) for column in select.columns} - {None}
    return names.pop() if len(names) == 1 else None


def _owner(value: Term) -> str | None:
    match value:
        case Over(partition_by=(Field(name, kind=Integer()), *_), order_by=order):
            return name if any(isinstance(part.value, Apply) for part in order) else None
    return None

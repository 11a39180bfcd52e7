"""Rows sorted by their unit before they are ranked within it: CLUSTER BY.

    SELECT row_number() OVER (PARTITION BY _unit ORDER BY hash(...)) FROM (SELECT ... CLUSTER BY _unit)

Spark sorts by one whole number in linear time (radix sort), and by several values with comparisons, most of which are
of a unit's own rows and read these from all over the memory. In rows that are sorted by their unit the second sort
finds those of a unit side by side. Rows are sent to where their unit's are once, as they would be anyway.
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
    """Its rows are sent to where others with the same value of a column are, and sorted by it there."""

    by: str = ""


def clustered(select: Select) -> Select:
    """The same over clustered rows, where it ranks rows of one table within units that are whole numbers. Those of a
    join may be sorted by their unit already."""
    match select.source:
        case Derived(Select(columns, source, where, (), (), False) as rows) if is_one_scan(rows):
            unit = _ranked_within(select)
            if unit is None:
                return select
            below = Clustered(columns, source, where, by=unit)
            return replace(select, source=replace(select.source, query=below))
    return select


def _ranked_within(select: Select) -> str | None:
    """The column that all ranks are within, if there is one."""
    names = {_partition(column.value) for column in select.columns} - {None}
    return names.pop() if len(names) == 1 else None


def _partition(value: Term) -> str | None:
    """What a rank by something computed is within: else Spark takes both sorts for one."""
    match value:
        case Over(partition_by=(Field(name, kind=Integer()), *_), order_by=order):
            return name if any(isinstance(part.value, Apply) for part in order) else None
    return None

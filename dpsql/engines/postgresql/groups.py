"""Groups in the shapes that PostgreSQL plans best: sorted once, and numbered without a window.

A window function keeps all that is joined to it within one process. Several can share a list that is made otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Cast, Constant, Derived, Field, Fold, Named, Ordered, Over, Select
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query, Source, Term

ORDER = "_order"


def in_sorted_order(select: Select) -> Select:
    """Groups of a unit that were ranked by a hash lie in its order. Grouped by it too, which changes nothing since it
    follows from unit and keys, they need not be sorted or hashed once more."""
    by = select.group_by
    if not by or (rows := _with_order(select.source, by)) is None:
        return select
    return replace(select, source=rows, group_by=(by[0], Field(ORDER), *by[1:]))


def _with_order(source: Source | None, by: tuple[Term, ...]) -> Derived | None:
    """The same rows with the hash that their groups were ranked by, here or below."""
    match source:
        case Derived(Select(group_by=(), distinct=False) as rows):
            below = _with_order(rows.source, by) if _passes_on(rows, by) else None
            order: Term | None = Field(ORDER) if below is not None else _rank_order(rows, by)
            if order is not None:
                columns = (*rows.columns, Named(order, ORDER))
                return replace(source, query=replace(rows, columns=columns, source=below or rows.source))
    return None


def _rank_order(rows: Select, by: tuple[Term, ...]) -> Term | None:
    for column in rows.columns:
        match column.value:
            case Over(Fold("dense_rank"), owner, (Ordered(hashed), *keys)):
                if (*owner, *(key.value for key in keys)) == by:
                    return hashed
    return None


def _passes_on(rows: Select, by: tuple[Term, ...]) -> bool:
    """Whether what is grouped by is what it is below."""
    same = {own.name for own in rows.columns if isinstance(own.value, Field) and own.value.name == own.name}
    return all(isinstance(part, Field) and part.name in same for part in by)


def _instead(select: Select, below: Select) -> Derived:
    assert isinstance(select.source, Derived)
    return replace(select.source, query=below)


def sorted_units(select: Select) -> Select:
    """Whole numbers of which nothing but themselves is read are sorted faster than hashed, and then grouped at once."""
    match select:
        case Select(group_by=(Field(name, kind=Integer()),), source=Derived(Select(columns=(Named(_, only),)) as rows)):
            if only == name:
                return replace(select, source=_instead(select, replace(rows, order_by=(Ordered(Field(name)),))))
    return select


def place_among_all(query: Query) -> Named | None:
    """The last column of a list of keys, where that is the place of each in their order."""
    match query:
        case Select(columns=(*keys, Named(Cast(Over(Fold("row_number"), (Constant(1),), order))) as place)):
            return place if [part.value for part in order] == [key.value for key in keys] else None
    return None

"""Groups in the shapes that PostgreSQL plans best: sorted once, and numbered without a window.

A window function keeps all that is joined to it within one process. Several can share a list that is made otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Cast, Constant, Derived, Field, Fold, Named, Ordered, Over, Select
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query

ORDER = "_order"


def in_sorted_order(select: Select) -> Select:
    """Groups of a unit that were ranked by a hash lie in its order. Grouped by it too, which changes nothing since it
    follows from unit and keys, they need not be sorted or hashed once more."""
    match select:
        case Select(group_by=(unit, *keys), source=Derived(Select(source=Derived(Select() as ranked)) as kept)):
            for column in ranked.columns:
                match column.value:
                    case Over(Fold("dense_rank"), (owner,), (Ordered(hashed), *others)) if owner == unit:
                        if [part.value for part in others] == keys:
                            return _also_by(Named(hashed, ORDER), select, kept, ranked)
    return select


def _also_by(order: Named, select: Select, kept: Select, ranked: Select) -> Select:
    unit, *keys = select.group_by
    field = Field(order.name)
    ranked = replace(ranked, columns=(*ranked.columns, order))
    kept = replace(kept, columns=(*kept.columns, Named(field, order.name)), source=_instead(kept, ranked))
    return replace(select, source=_instead(select, kept), group_by=(unit, field, *keys))


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

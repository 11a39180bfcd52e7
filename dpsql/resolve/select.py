"""One SELECT over rows, clause by clause: FROM, WHERE, and then its list, which gives rows or an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.resolve.aggregate import aggregate
from dpsql.resolve.apply_where import apply_where
from dpsql.resolve.project import project
from dpsql.resolve.syntax import has_aggregate, unaliased

if TYPE_CHECKING:
    from dpsql.resolve.apply_where import Filtered
    from dpsql.resolve.rows import Item
    from dpsql.resolve.scope import Scope


def resolve_select(scope: Scope, select: exp.Select) -> Item:
    below = apply_where(scope, select.args.get("where"))
    if _is_grouped(select):
        return aggregate(below, select)
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") or not below.rows.is_private:
        return project(below, select)
    # DISTINCT with the unit keeps people apart; without it it lists what anybody has, which is a release.
    below = below.reading(select.expressions)
    return project(below, select) if _shows_unit(below, select) else aggregate(below, select)


def _is_grouped(select: exp.Select) -> bool:
    parts = [*select.expressions, *(select.args.get(clause) for clause in ("having", "order", "qualify"))]
    return bool(select.args.get("group")) or any(part is not None and has_aggregate(part) for part in parts)


def _shows_unit(below: Filtered, select: exp.Select) -> bool:
    items = [item for item in select.expressions if not item.is_star]
    if len(items) < len(select.expressions):
        return bool(below.rows.unit_columns)
    plain = [unaliased(item) for item in items if item.find(exp.Window) is None]
    return any(map(below.rows.tells_unit, map(below.scope.lowering.lower, plain)))

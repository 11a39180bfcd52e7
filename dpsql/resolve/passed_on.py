"""Post-processing that surely makes sense: columns of one table are passed on, at most fewer of them and in order.

    SELECT "_k0" AS region, _a0 AS n FROM _release_0 WHERE _a0 > 100 ORDER BY _a1 DESC LIMIT 3

Most questions end so. What else stands above the aggregates may be a mistake, and is described by the engine, which
takes longer than to write the rest of a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.resolve.syntax import extra_clauses

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from dpsql.engines.public import PostProcessingTable

CLAUSES = {"expressions", "from_", "where", "order", "limit"}
NUMBERS = ("BIGINT", "HUGEINT", "DOUBLE")
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
LONGEST_LIMIT = 18
"""Digits that a number of rows has for sure."""


def passed_on(query: exp.Query, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...] | None:
    """The names and types of the columns, in the engine's words; None where the engine has to be asked."""
    if not isinstance(query, exp.Select) or extra_clauses(query, CLAUSES) or len(tables) != 1:
        return None
    types = {name: kind.replace(", ", ",") for name, (kind, _) in tables[0].columns.items()}  # DECIMAL(38,2)
    items = {item.alias_or_name: item.unalias() for item in query.expressions}
    is_sound = (
        _is_table(query, tables[0].name)
        and all(items)
        and len({name.lower() for name in items}) == len(query.expressions)
        and all(_is_column(item, types) for item in items.values())
        and _is_filter(query.args.get("where"), [name for name, kind in types.items() if kind in NUMBERS])
        and _is_order(query.args.get("order"), {*types, *items})
        and _is_limit(query.args.get("limit"))
    )
    return tuple((name, types[item.name]) for name, item in items.items()) if is_sound else None


def _is_table(query: exp.Select, name: str) -> bool:
    source = query.args.get("from_")
    return source is not None and isinstance(source.this, exp.Table) and _is_named(source.this, (name,))


def _is_column(node: exp.Expr, names: Container[str]) -> bool:
    return isinstance(node, exp.Column) and _is_named(node, names)


def _is_named(node: exp.Expr, names: Container[str]) -> bool:
    return node.name in names and not extra_clauses(node, {"this"})


def _is_filter(where: exp.Expr | None, numbers: Container[str]) -> bool:
    """Whether there is none, or it compares numbers; a chain of conditions may be long."""
    pending = [] if where is None else [where.this]
    for part in pending:  # which grows on the way
        node = part.unnest()
        if isinstance(node, exp.And | exp.Or):
            pending += [node.left, node.right]
        elif not isinstance(node, COMPARISONS) or not _are_numbers((node.left, node.right), numbers):
            return False
    return True


def _are_numbers(nodes: Iterable[exp.Expr], numbers: Container[str]) -> bool:
    return all(_is_column(node, numbers) or (isinstance(node, exp.Literal) and node.is_number) for node in nodes)


def _is_order(order: exp.Expr | None, names: Container[str]) -> bool:
    return order is None or all(
        isinstance(part, exp.Ordered)
        and not extra_clauses(part, {"this", "desc", "nulls_first"})
        and _is_column(part.this, names)
        for part in order.expressions
    )


def _is_limit(limit: exp.Expr | None) -> bool:
    """Whether there is none, or it is a number of rows."""
    if limit is None:
        return True
    rows = limit.expression
    is_number = isinstance(rows, exp.Literal) and rows.is_int and len(rows.name) <= LONGEST_LIMIT
    return isinstance(limit, exp.Limit) and is_number and not extra_clauses(limit, {"expression"})

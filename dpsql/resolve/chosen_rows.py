"""Whether the finish leaves rows out by their noisy values, as HAVING, QUALIFY and ORDER BY ... LIMIT can.

The largest of many noisy values is likely to be too large: what such rows are followed by are intervals that hold for
all groups at once, and so for those that were chosen. docs/proofs/intervals.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import nodes_of

if TYPE_CHECKING:
    from collections.abc import Collection


def chooses_by_noise(finish: exp.Select, keys: Collection[str]) -> bool:
    where, order, distinct = (finish.args.get(clause) for clause in ("where", "order", "distinct"))
    cut = finish.args.get("limit") is not None or finish.args.get("offset") is not None
    return (
        finish.args.get("qualify") is not None
        or (where is not None and not is_made_of(where, keys))
        or (cut and order is not None and not all(_by_keys(item, finish, keys) for item in order.expressions))
        or (distinct is not None and distinct.args.get("on") is not None)
    )


def is_made_of(node: exp.Expr, keys: Collection[str]) -> bool:
    return all(column.name in keys for column in nodes_of(node, exp.Column))


def _by_keys(ordered: exp.Expr, finish: exp.Select, keys: Collection[str]) -> bool:
    """A place or a name stands for a column of the answer."""
    by = ordered.this
    if isinstance(by, exp.Literal) and by.is_int and 1 <= int(by.this) <= len(finish.expressions):
        return is_made_of(finish.expressions[int(by.this) - 1], keys)
    named = {item.alias_or_name: item for item in finish.expressions}
    if isinstance(by, exp.Column) and by.name in named and by.name not in keys:
        return is_made_of(named[by.name], keys)
    return is_made_of(by, keys)

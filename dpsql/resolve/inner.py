"""Names of our own making, for columns and releases, whatever analysts call theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import nodes_of

if TYPE_CHECKING:
    from dpsql.expressions.tree import Column

INNER = "inner"
"""The mark of a node that is such a name."""


def inner_column(column: Column) -> exp.Column:
    node = exp.column(exp.to_identifier(column.name, quoted=True))
    node.meta[INNER] = column
    return node


def release_name(number: int) -> str:
    """The table under which the post-processing reads a release."""
    return f"_release_{number}"


def reports_name(number: int) -> str:
    """The table under which the post-processing reads what was estimated from reports that are counted as they are."""
    return f"_reports_{number}"


def reads_release(query: exp.Expr, number: int) -> bool:
    return any(table.name == release_name(number) for table in nodes_of(query, exp.Table))

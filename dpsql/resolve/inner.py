"""Nodes of our own making, which name a column whatever analysts call theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from dpsql.expressions.tree import Column

INNER = "inner"
"""The mark of such a node."""


def inner_column(column: Column) -> exp.Column:
    node = exp.column(exp.to_identifier(column.name, quoted=True))
    node.meta[INNER] = column
    return node

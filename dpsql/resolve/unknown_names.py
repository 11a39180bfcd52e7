"""What an unknown column may be meant as: a text without its quotes, a column of another table, a renamed table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.resolve.syntax import from_nodes

if TYPE_CHECKING:
    from dpsql.schema.model import Schema


def elsewhere(node: exp.Column, schema: Schema) -> str | None:
    return _renamed(node) or _of_another_table(node, schema) or _text(node)


def _renamed(node: exp.Column) -> str | None:
    """visits.cost, where FROM says  visits AS v."""
    select = node.find_ancestor(exp.Select)
    for item in from_nodes(select) if select is not None else ():
        if node.table and isinstance(item, exp.Table) and item.alias and item.name.lower() == node.table.lower():
            return f"the table is named {item.alias} here: write {item.alias}.{node.name}"
    return None


def _of_another_table(node: exp.Column, schema: Schema) -> str | None:
    tables = [name for name, table in schema.tables.items() if table.column(node.name) is not None]
    return f"{node.name} is a column of {' and '.join(tables)}: join it" if tables and not node.table else None


def _text(node: exp.Column) -> str | None:
    """Whoever quotes a name that is none, or compares with one, means a text."""
    compared = isinstance(node.parent, exp.EQ | exp.NEQ | exp.In)
    if node.table or not (node.this.args.get("quoted") or compared):
        return None
    return f"a text is written in single quotes: '{node.name}'"

"""Constants that no row can equal, since the schema lists the column's values: `department = 'emergency room'`.

The list is public, so this is said for free; the question is answered all the same.

    WHERE department = 'emergency room'  ->  no row has department 'emergency room'; did you mean 'Emergency Room'?
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.expressions.parser_tree import nodes_of
from dpsql.resolve.syntax import from_nodes, is_defined
from dpsql.schema.types import Boolean, Decimal, Double

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.schema.column import Column
    from dpsql.schema.model import Schema

FEW = 8
"""So few values are all named, where none is close."""


def undeclared_constants(tree: exp.Expr, schema: Schema) -> tuple[str, ...]:
    """A sentence for each constant that is compared with a column and is not among its declared values."""
    found = (
        _sentence(column, constant.this)
        for node, constant in _compared(tree)
        for column in [declared_column(node, schema)]
        if column is not None and column.values is not None and constant.this not in column.values
    )
    return tuple(dict.fromkeys(found))


def undeclared_texts(tree: exp.Expr, values: tuple[object, ...] | None) -> list[str]:
    """The texts that a column is compared with which has these values, and none of them is."""
    return [text.this for _, text in _compared(tree) if values is not None and text.this not in values]


def _compared(tree: exp.Expr) -> Iterator[tuple[exp.Column, exp.Literal]]:
    for node in nodes_of(tree, exp.EQ, exp.NEQ, exp.In):
        sides = [node.this, *node.expressions] if isinstance(node, exp.In) else [node.this, node.expression]
        columns = [side for side in sides if isinstance(side, exp.Column)]
        texts = [side for side in sides if isinstance(side, exp.Literal) and side.is_string]
        yield from ((column, text) for column in columns for text in texts)


def declared_column(node: exp.Column, schema: Schema) -> Column | None:
    """The declared column that a name means, where only one table of the query's FROM has it."""
    select = node.find_ancestor(exp.Select)
    items = from_nodes(select) if select is not None else ()
    tables = [
        schema.table(item.name)
        for item in items
        if isinstance(item, exp.Table)
        and not is_defined(item)
        and (not node.table or item.alias_or_name.lower() == node.table.lower())
    ]
    columns = [column for table in tables if table is not None and (column := table.column(node.name)) is not None]
    return columns[0] if len(columns) == 1 else None


def pivoted_values(table: exp.Table, name: str, schema: Schema) -> tuple[Any, ...]:
    """What the column of a declared table can be besides NULL, for PIVOT to make columns of; nothing if not known."""
    declared = schema.table(table.name)
    column = declared.column(name) if declared is not None else None
    if column is None or isinstance(column.type, Double | Decimal):
        return ()
    return (False, True) if isinstance(column.type, Boolean) else column.values or ()


def _sentence(column: Column, constant: str) -> str:
    values = {str(value).lower(): str(value) for value in column.values or ()}
    close = get_close_matches(constant.lower(), values, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean '{values[close[0]]}'?"
    elif len(values) <= FEW:
        hint = "it has " + ", ".join(f"'{value}'" for value in values.values())
    else:
        hint = f"it has {len(values):,} others"
    return f"no row has {column.name} '{constant}': {hint}"

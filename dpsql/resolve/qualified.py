"""Names with a database and a schema in front: shop.main.orders is the declared table, whatever WITH defines.

A table that is named so keeps `main.` in the tree; columns lose it, since the table's own name tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import UnknownName
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import nodes_of
from dpsql.resolve.syntax import from_nodes
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAIN = "main"


def read_qualified(tree: exp.Expr, place: tuple[str, str], tables: Collection[str], text: str) -> None:
    """Rewrites the tree in place. `place` is the database and the schema in which the declared tables are."""
    for node in nodes_of(tree, exp.Table, exp.Column):
        assert isinstance(node, exp.Table | exp.Column)
        if node.args.get("db") is None:
            continue
        if not _is_there(node, place) or (isinstance(node, exp.Column) and not _is_read(node)):
            shown = ".".join(part.name for part in node.parts)
            kind = "column" if isinstance(node, exp.Column) else "table"
            known = tables if isinstance(node, exp.Table) else {_own_name(node)}
            raise UnknownName(
                f'there is no {kind} "{shown}"', at=place_of(node, text), hint=did_you_mean(_own_name(node), known)
            )
        node.set("catalog", None)
        node.set("db", exp.to_identifier(MAIN) if isinstance(node, exp.Table) else None)


def is_qualified(table: exp.Expr) -> bool:
    """Whether a table is named as a declared one, and is none of those that WITH defines."""
    return table.args.get("db") is not None


def _own_name(node: exp.Expr) -> str:
    return f"{node.table}.{node.name}" if isinstance(node, exp.Column) else node.name


def _is_there(node: exp.Expr, place: tuple[str, str]) -> bool:
    database, schema = place
    catalog = node.args.get("catalog")
    return node.text("db").lower() in (MAIN, schema) and (catalog is None or catalog.name.lower() == database)


def _is_read(column: exp.Column) -> bool:
    """Whether a query around it reads the table, under its own name."""
    return any(
        isinstance(item, exp.Table) and item.alias_or_name.lower() == column.table.lower() == item.name.lower()
        for item in _sources(column)
    )


def _sources(node: exp.Expr) -> Iterator[exp.Expr]:
    select = node.find_ancestor(exp.Select)
    while select is not None:
        yield from from_nodes(select)
        select = select.find_ancestor(exp.Select)

"""Names with a database and a schema in front: shop.main.orders is the declared table, whatever WITH defines.

A table that is named so keeps `main.` in the tree; columns lose it, since the table's own name tells them. A table that
is declared with its schema, sales.orders, is called so in the tree, and orders by whoever reads its columns.
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
    """Rewrites the tree in place. `place` is the database and the schema in which most declared tables are."""
    declared = {table.lower() for table in tables}
    nodes = nodes_of(tree, exp.Table, exp.Column)
    for node in nodes:
        qualified = node.args.get("db") is not None
        dotted = not qualified and isinstance(node, exp.Table) and "." in node.name
        if dotted or (qualified and not _is_known(node, place, declared)):
            raise _unknown(node, tables, text)
    for node in nodes:
        if node.args.get("db") is None:
            continue
        if isinstance(node, exp.Table):
            _rename(node, declared)
        node.set("catalog", None)
        node.set("db", exp.to_identifier(MAIN) if isinstance(node, exp.Table) else None)


def _rename(table: exp.Table, declared: set[str]) -> None:
    """sales.orders is one name, and orders to those who read it."""
    whole = _with_schema(table)
    if whole.lower() not in declared:
        return
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    name = exp.to_identifier(whole, quoted=True)
    name.meta.update(table.this.meta)
    table.set("this", name)


def _with_schema(node: exp.Expr) -> str:
    return f"{node.text('db')}.{node.table if isinstance(node, exp.Column) else node.name}"


def _unknown(node: exp.Expr, tables: Collection[str], text: str) -> UnknownName:
    shown = ".".join(part.name for part in node.parts)  # type: ignore[attr-defined]
    kind = "column" if isinstance(node, exp.Column) else "table"
    known = tables if isinstance(node, exp.Table) else {_own_name(node)}
    if "." in node.name and node.name.lower() in map(str.lower, tables):
        hint: str | None = f"write {node.name} without the quotes: the schema and the table are two names"
    else:
        hint = did_you_mean(_with_schema(node), known) if kind == "table" else None
    return UnknownName(
        f'there is no {kind} "{shown}"', at=place_of(node, text), hint=hint or did_you_mean(_own_name(node), known)
    )


def is_qualified(table: exp.Expr) -> bool:
    """Whether a table is named as a declared one, and is none of those that WITH defines."""
    return table.args.get("db") is not None


def _own_name(node: exp.Expr) -> str:
    return f"{node.table}.{node.name}" if isinstance(node, exp.Column) else node.name


def _is_known(node: exp.Expr, place: tuple[str, str], declared: set[str]) -> bool:
    is_lost = isinstance(node, exp.Column) and not _is_read(node, declared)
    return not is_lost and _is_there(node, place, declared)


def _is_there(node: exp.Expr, place: tuple[str, str], declared: set[str]) -> bool:
    database, schema = place
    catalog = node.args.get("catalog")
    known = node.text("db").lower() in (MAIN, schema) or _with_schema(node).lower() in declared
    return known and (catalog is None or catalog.name.lower() == database)


def _is_read(column: exp.Column, declared: set[str]) -> bool:
    """Whether a query around it reads the table, under its own name."""
    return any(
        isinstance(item, exp.Table)
        and item.alias_or_name.lower() == column.table.lower() == item.name.lower()
        and _other_schema(item, declared) == _other_schema(column, declared)
        for item in _sources(column)
    )


def _other_schema(node: exp.Expr, declared: set[str]) -> str:
    """The schema that a table is declared with; none for those of the schema in use, however they are called."""
    return node.text("db").lower() if _with_schema(node).lower() in declared else ""


def _sources(node: exp.Expr) -> Iterator[exp.Expr]:
    select = node.find_ancestor(exp.Select)
    while select is not None:
        yield from from_nodes(select)
        select = select.find_ancestor(exp.Select)

"""FROM: what each item is, and all of them side by side under the names that the other clauses use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import UnknownName
from dpsql.resolve.adaptive_subqueries import adaptive_rows
from dpsql.resolve.collected import reads_reports
from dpsql.resolve.joins import Source, add_step, read_step
from dpsql.resolve.qualified import is_qualified
from dpsql.resolve.rows import Answer, Rows, declared_rows, with_column_names
from dpsql.resolve.scope import Scope
from dpsql.resolve.syntax import from_nodes
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.resolve.query import Resolver
    from dpsql.resolve.rows import Item, Named


def from_items(select: exp.Select, named: Named, resolver: Resolver) -> list[Item]:
    return [_item(node, named, resolver) for node in from_nodes(select)]


def read_from(
    select: exp.Select, items: Sequence[Item], named: Named, resolver: Resolver, outer: Scope | None = None
) -> Scope:
    """The scope of a SELECT, whose FROM has these items. With `outer` it is one that may read the row outside."""
    taken = outer.source.inner_names if outer is not None else set()
    first, *others = [
        _rows_of(item, node, named, resolver) for item, node in zip(items, from_nodes(select), strict=True)
    ]
    first = first.apart_from(taken)
    source = Source(first, (), first.columns)
    for rows, node in zip(others, select.args.get("joins") or (), strict=True):
        source = add_step(source, read_step(rows, node, source.columns, resolver.place(node)), taken)
    aliases = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    return Scope(
        resolver=resolver, named=named, source=source, aliases={} if outer is not None else aliases, outer=outer
    )


def _rows_of(item: Item, node: exp.Expr, named: Named, resolver: Resolver) -> Rows:
    rows = item if isinstance(item, Rows) else item.rows or adaptive_rows(resolver, node, named)
    alias = node.alias_or_name
    return rows.called(alias) if alias else rows


def _item(node: exp.Expr, named: Named, resolver: Resolver) -> Item:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        resolver.only(node, {"this", "alias"})
        found = resolver.query(node.this, named)
        if isinstance(found, Answer) and found.tree is not None:
            node.this.replace(found.tree)
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        resolver.only(node, {"this", "alias", "db"})
        found = _by_name(node, named, resolver)
    elif isinstance(node, exp.Values | exp.Unnest) or isinstance(node.this, exp.GenerateSeries):
        resolver.resolve_nested(node, named)
        return Answer(None)
    else:
        raise resolver.refuse(
            "FROM cannot read this", node, "read declared tables (SHOW TABLES), and subqueries and joins of them"
        )
    alias = node.args.get("alias")
    return found if alias is None else with_column_names(found, alias, resolver.place(alias))


def _by_name(node: exp.Table, named: Named, resolver: Resolver) -> Item:
    name = node.name.lower()
    if name in named and not is_qualified(node):
        return named[name]
    table = resolver.schema.table(name)
    if table is None:
        known = {*resolver.schema.tables, *(() if is_qualified(node) else named)}
        shown = ".".join(part.name for part in node.parts)
        raise UnknownName(
            f'there is no table "{shown}"', at=resolver.place(node.this), hint=did_you_mean(node.name, known)
        )
    if table.is_public and not reads_reports(table, resolver.mentioned):
        return Answer(None, declared_rows(table, resolver.schema, resolver.guarantees, reports=False))
    return declared_rows(table, resolver.schema, resolver.guarantees)

"""Which columns of a query are not of its own tables: by their names alone, before anything is resolved.

(SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      p.pid, which only a query around it can have
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.resolve.qualified import is_qualified
from dpsql.resolve.rows import Rows
from dpsql.resolve.syntax import free_name, from_nodes, output_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.resolve.rows import Named
    from dpsql.schema.model import Schema

Names: TypeAlias = "tuple[str, ...] | None"
"""The columns of a table or query; None where they are not known, and any name may be one."""


def free_columns(query: exp.Expr, named: Named, schema: Schema) -> Iterator[exp.Column]:
    return _free(query, _Tables(schema, named, {}))


@dataclass(frozen=True)
class _Tables:
    """What can be read by name: declared tables, and what WITH defines, around the query and in it."""

    schema: Schema
    named: Named
    own: Mapping[str, Names]

    def names(self, table: str, *, qualified: bool) -> Names:
        if table in self.own and not qualified:
            return self.own[table]
        if table in self.named and not qualified:
            item = self.named[table]
            rows = item if isinstance(item, Rows) else item.rows
            return None if rows is None else tuple(rows.plain_columns)
        declared = self.schema.table(table)
        return None if declared is None else tuple(name.lower() for name in declared.columns)

    def with_own(self, query: exp.Expr) -> _Tables:
        clause, tables = query.args.get("with_"), self
        for part in clause.expressions if clause is not None else ():
            names = _renamed(_outputs(part.this, tables), part)
            tables = replace(tables, own={**tables.own, part.alias.lower(): names})
        return tables


def _free(query: exp.Expr, tables: _Tables) -> Iterator[exp.Column]:
    query = query.this if isinstance(query, exp.Subquery) else query
    tables = tables.with_own(query)
    if isinstance(query, exp.SetOperation):
        yield from _free(query.left, tables)
        yield from _free(query.right, tables)
    elif isinstance(query, exp.Select):
        items = [(node.alias_or_name.lower(), _item_names(node, tables)) for node in from_nodes(query)]
        aliases = {item.alias.lower() for item in query.selects if isinstance(item, exp.Alias)}
        for column in _columns(query, tables):
            is_alias = not column.table and column.name.lower() in aliases
            if not is_alias and not any(_has(alias, names, column) for alias, names in items):
                yield column


def _columns(select: exp.Select, tables: _Tables) -> Iterator[exp.Column]:
    """The columns in the clauses of the query itself, and those that its subqueries leave open."""
    elsewhere = {id(part) for part in (select.args.get("with_"), *from_nodes(select))}
    pending: list[exp.Expr] = [select]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Column):
            yield node
        elif isinstance(node, exp.Query) and node is not select:
            yield from _free(node, tables)
        else:
            pending.extend(reversed([part for part in node.iter_expressions() if id(part) not in elsewhere]))


def _has(alias: str, names: Names, column: exp.Column) -> bool:
    if column.table and column.table.lower() != alias:
        return False
    return names is None or column.name.lower() in names


def _item_names(node: exp.Expr, tables: _Tables) -> Names:
    """The columns of an item of FROM."""
    if isinstance(node, exp.Table):
        return _renamed(tables.names(node.name.lower(), qualified=is_qualified(node)), node)
    return _renamed(_outputs(node.this, tables), node) if isinstance(node, exp.Subquery) else None


def _renamed(names: Names, node: exp.Expr) -> Names:
    """t(a, b): the first columns have these names."""
    alias = node.args.get("alias")
    given = alias.args.get("columns") if alias is not None else None
    if not given or names is None:
        return names
    return (*(name.name.lower() for name in given), *names[len(given) :])


def _outputs(query: exp.Expr, tables: _Tables) -> Names:
    tables = tables.with_own(query)
    if isinstance(query, exp.Subquery | exp.SetOperation):
        return _outputs(query.this, tables)
    if not isinstance(query, exp.Select):
        return None
    found: list[str] = []
    for item in query.selects:
        shown = _star(item, query, tables) if item.is_star else (output_name(item).lower(),)
        if shown is None:
            return None
        for name in shown:
            found.append(free_name(name, found))
    return tuple(found)


def _star(item: exp.Expr, select: exp.Select, tables: _Tables) -> Names:
    """What *, t.* or * EXCLUDE (a) shows."""
    table = item.table.lower() if isinstance(item, exp.Column) else ""
    star = item.this if isinstance(item, exp.Column) else item
    left_out = {part.name.lower() for part in star.args.get("except_") or ()}
    found: list[str] = []
    for node in from_nodes(select):
        if table in ("", node.alias_or_name.lower()):
            names = _item_names(node, tables)
            if names is None:
                return None
            found += [name for name in names if name not in left_out]
    return tuple(found)

"""Scopes: what names mean at one place of a query. A scope is immutable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, UnknownName, did_you_mean
from dpsql.expressions.lower import Lowering, place_of
from dpsql.expressions.parser_tree import nodes_of
from dpsql.expressions.tree import Literal
from dpsql.schema.types import Boolean
from dpsql.sql.rows import INNER
from dpsql.sql.syntax import from_nodes, text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Protocol

    from dpsql.errors import Unsupported
    from dpsql.expressions.tree import Column, Expression
    from dpsql.schema.model import Schema
    from dpsql.sql.from_clause import Source
    from dpsql.sql.query import Resolver
    from dpsql.sql.rows import Named, PrivateRows

# -- qualified ---------------------------------------------------------------------------------------------------------
# Names with a database and a schema in front: shop.main.orders is the declared table, whatever WITH defines.
#
# A table that is named so keeps `main.` in the tree; columns lose it, since the table's own name tells them. A table
# that is declared with its schema, sales.orders, is called so in the tree, and orders by whoever reads its columns.

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
    """Makes sales.orders a single name, with the alias orders."""
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
    """The schema in a table's declared name; None for tables of the current schema, however they are written."""
    return node.text("db").lower() if _with_schema(node).lower() in declared else ""


def _sources(node: exp.Expr) -> Iterator[exp.Expr]:
    select = node.find_ancestor(exp.Select)
    while select is not None:
        yield from from_nodes(select)
        select = select.find_ancestor(exp.Select)


# -- unknown names -----------------------------------------------------------------------------------------------------
# What an unknown column may be meant as: a text without its quotes, a column of another table, a renamed table.


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
    return f"strings take single quotes:  '{node.name}'"


# -- scope -------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:

    class AddedColumn(Protocol):
        """A step that adds a column with the value of a subquery."""

        def added_to(self, rows: PrivateRows) -> PrivateRows: ...


READS_OUTSIDE = "the subquery reads the outer row"
COMPARE_UNITS = "join the tables and GROUP BY the compared column, or use EXISTS and compare the units in it"


@dataclass(frozen=True, kw_only=True)
class Scope:
    resolver: Resolver
    named: Named
    source: Source
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    """What the names that the SELECT list gives stand for."""
    values: Mapping[str, Expression] = field(default_factory=dict)
    """What subqueries stand for, by their text: those that have been read."""
    added: tuple[AddedColumn, ...] = ()
    """The columns that some of these values are, in the order in which the rows get them."""
    outer: Scope | None = None
    """The scope of the row outside, for a subquery that may read it."""

    @cached_property
    def lowering(self) -> Lowering:
        return Lowering(self.resolver.text, self.resolve, self.subquery, tuple(self.source.columns))

    def resolve(self, node: exp.Column) -> Expression:
        """A column of the rows or of the outer row; else the expression of an alias, where aliases are not visible."""
        found = self.lookup(node)
        if found is not None:
            return found
        if self.outer is not None:
            return self.outer.resolve(node)
        item = self.alias(node)
        if item is None:
            raise self.unknown(node)
        others = {name: other for name, other in self.aliases.items() if name != node.name.lower()}
        return replace(self, aliases=others).lowering.lower(item)

    def lookup(self, node: exp.Column) -> Column | None:
        """The column of the rows that a name means, if one has it."""
        if INNER in node.meta:
            inner: Column = node.meta[INNER]
            return inner
        return self.source.column(node, self.resolver.place(node))

    def is_column(self, node: exp.Column) -> bool:
        """Whether the rows have a column of that name, or several."""
        return INNER in node.meta or self.source.has(node)

    def alias(self, node: exp.Column) -> exp.Expr | None:
        """The expression of a name, if it is an alias of the SELECT list."""
        return None if node.table else self.aliases.get(node.name.lower())

    def knowing(self, node: exp.Expr, value: Expression, *added: AddedColumn) -> Scope:
        """The scope in which the subquery is replaced by this value."""
        return replace(self, values={**self.values, text_of(node): value}, added=(*self.added, *added))

    def knows(self, node: exp.Expr) -> bool:
        return text_of(node) in self.values

    @property
    def new_name(self) -> str:
        """A name for the next column that is added."""
        return f"_x{len(self.added) + 1}"

    def subquery(self, node: exp.Expr) -> Expression:
        found = self.values.get(text_of(node))
        if found is None:
            raise self.lowering.refuse(node)
        return found

    def condition(self, node: exp.Expr, clause: str) -> Expression:
        condition = self.lowering.lower(node)
        if isinstance(condition, Literal) and condition.value is None:
            condition = Literal(None, Boolean(), condition.at)
        if not isinstance(condition.type, Boolean):
            raise ProgrammingError(
                f"{clause} takes a condition, not {condition.type.name}",
                at=self.resolver.place(node),
                hint="compare it with something",
            )
        return condition

    @property
    def outside(self) -> PrivateRows:
        """The units of all FROM items, for checks before they are joined."""
        items = self.source.items
        private = next((rows for rows in items if rows.is_private), items[0])
        return replace(
            private,
            unit_keys={name: key for rows in items for name, key in rows.unit_keys.items()},
            composites=frozenset(key for rows in items for key in rows.composites),
        )

    def unknown(self, node: exp.Column) -> UnknownName | Unsupported:
        if _is_outside(node, self.resolver.schema):
            return self.resolver.refuse(READS_OUTSIDE, node, COMPARE_UNITS)
        spelt = {name.lower(): name for table in self.resolver.schema.tables.values() for name in table.columns}
        own = {name.rpartition(".")[2] for name in self.source.columns}
        names = {spelt.get(name, name) for name in own} | set(self.aliases)
        shown = ".".join(part.name for part in node.parts)
        hint = did_you_mean(node.name, names)
        if hint is None or not hint.startswith("did you mean"):
            hint = elsewhere(node, self.resolver.schema) or hint
        return UnknownName(f'there is no column "{shown}"', at=self.resolver.place(node), hint=hint)


def _is_outside(node: exp.Column, schema: Schema) -> bool:
    """Whether the column belongs to a table of an enclosing query."""

    def has(item: exp.Expr) -> bool:
        if node.table:
            return item.alias_or_name.lower() == node.table.lower()
        table = schema.table(item.name) if isinstance(item, exp.Table) else None
        return table is not None and table.column(node.name) is not None

    own = node.find_ancestor(exp.Select)
    outer = own.find_ancestor(exp.Select) if own is not None else None
    while outer is not None:
        if any(map(has, from_nodes(outer))):
            return True
        outer = outer.find_ancestor(exp.Select)
    return False

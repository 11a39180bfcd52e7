"""What names mean at one place of a query. A scope never changes: to know more is to have another scope."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, UnknownName
from dpsql.expressions.lower import Lowering
from dpsql.expressions.tree import Literal
from dpsql.resolve.inner import INNER
from dpsql.resolve.syntax import from_nodes, text_of
from dpsql.resolve.unknown_names import elsewhere
from dpsql.schema.types import Boolean
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from dpsql.errors import Unsupported
    from dpsql.expressions.tree import Column, Expression
    from dpsql.resolve.joins import Source
    from dpsql.resolve.query import Resolver
    from dpsql.resolve.rows import Named, Rows
    from dpsql.schema.model import Schema

    class AddedColumn(Protocol):
        """What gives the rows a column that holds the value of a subquery."""

        def added_to(self, rows: Rows) -> Rows: ...


READS_OUTSIDE = "the subquery reads the row outside"
COMPARE_UNITS = "join the tables and GROUP BY what is compared; or use EXISTS, and compare the units in it"


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
        return Lowering(self.resolver.text, self.resolve, self.subquery)

    def resolve(self, node: exp.Column) -> Expression:
        """A column of the rows or of the row outside, or else what an alias stands for, in which it has no meaning."""
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
        """What the SELECT list says of a name, if it is one of its aliases."""
        return None if node.table else self.aliases.get(node.name.lower())

    def knowing(self, node: exp.Expr, value: Expression, *added: AddedColumn) -> Scope:
        """The scope in which the subquery stands for this value."""
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
    def outside(self) -> Rows:
        """All that the items of FROM say of units, for what is checked before they are joined."""
        items = self.source.items
        private = next((rows for rows in items if rows.is_private), items[0])
        return replace(private, unit_keys={name: key for rows in items for name, key in rows.unit_keys.items()})

    def unknown(self, node: exp.Column) -> UnknownName | Unsupported:
        if _is_outside(node, self.resolver.schema):
            return self.resolver.refuse(READS_OUTSIDE, node, COMPARE_UNITS)
        names = {name.rpartition(".")[2] for name in self.source.columns} | set(self.aliases)
        shown = ".".join(part.name for part in node.parts)
        hint = did_you_mean(node.name, names)
        if hint is None or not hint.startswith("did you mean"):
            hint = elsewhere(node, self.resolver.schema) or hint
        return UnknownName(f'there is no column "{shown}"', at=self.resolver.place(node), hint=hint)


def _is_outside(node: exp.Column, schema: Schema) -> bool:
    """Whether the column is of a table of a query around the one that it stands in."""

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

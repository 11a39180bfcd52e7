"""The rows that one SELECT reads, and what the names in it mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, UnknownName
from dpsql.expressions.lower import Lowering
from dpsql.expressions.tree import Column, Expression
from dpsql.relation.relation import Filter, Mark
from dpsql.resolve.correlated import correlated_value
from dpsql.resolve.earlier import earlier_value
from dpsql.resolve.inner import INNER
from dpsql.resolve.joins import all_of
from dpsql.resolve.rows import Rows
from dpsql.resolve.semi_joins import as_test, match_of, semi_joined
from dpsql.resolve.syntax import conditions_of, from_nodes
from dpsql.schema.types import Boolean
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.errors import Unsupported
    from dpsql.resolve.joins import Source
    from dpsql.resolve.query import Resolver
    from dpsql.resolve.rows import Named
    from dpsql.schema.model import Schema

READS_OUTSIDE = "the subquery reads the row outside"
COMPARE_UNITS = "use EXISTS and compare the units in it, or join a subquery that is grouped by what is compared"


@dataclass
class Scope:
    resolver: Resolver
    select: exp.Select
    source: Source
    named: Named

    def __post_init__(self) -> None:
        self.lowering = Lowering(self.resolver.text, self.resolve, self.subquery)
        items = self.select.expressions
        self.aliases = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
        self.open_aliases: set[str] = set()
        self.known_aliases: dict[str, Expression] = {}
        self.found: dict[str, Expression] = {}
        self.pending: list[Callable[[Rows], Rows]] = []
        self.names = 0
        self.is_read = False
        self.rows = self.filtered()
        self.is_read = True

    def filtered(self) -> Rows:
        """FROM and WHERE: the rows that the SELECT list sees."""
        parts = conditions_of(self.select.args.get("where"))
        tests = [test for test in map(as_test, parts) if test is not None]
        conditions = [self.condition(part, "WHERE") for part in parts if as_test(part) is None]
        self.conditions = conditions
        meeting = Lowering(self.resolver.text, self.resolve, self.constant_in_on)
        rows = self.source.joined(meeting.lower, conditions)
        if (tests or self.pending) and rows.kept is not None:
            raise rows.kept.refuse(
                "IN and EXISTS may choose these", "put the test into a subquery of the private table"
            )
        for change in self.pending:
            rows = change(rows)
        whole = all_of(conditions)
        if whole is not None:
            rows = replace(rows, relation=Filter(rows.relation, whole))
        # Last: an engine leaves a test where it is written, and should not make it on every pair of a comma's rows.
        for test in tests:
            rows = semi_joined(rows, test, self)
        return rows

    def condition(self, node: exp.Expr, clause: str) -> Expression:
        condition = self.lowering.lower(node)
        if not isinstance(condition.type, Boolean):
            raise ProgrammingError(
                f"{clause} takes a condition, not {condition.type.name}",
                at=self.resolver.place(node),
                hint="compare it with something",
            )
        return condition

    def resolve(self, node: exp.Column) -> Expression:
        """A column of the rows, or else the expression behind an alias of the SELECT list."""
        found = self.lookup(node)
        if found is not None:
            return found
        alias = node.name.lower()
        if not self.is_alias(node) or alias in self.open_aliases:
            raise self.unknown(node)
        if alias not in self.known_aliases:
            self.open_aliases.add(alias)
            try:
                self.known_aliases[alias] = self.lowering.lower(self.aliases[alias])
            finally:
                self.open_aliases.remove(alias)
        return self.known_aliases[alias]

    # -- subqueries that stand for a value or a condition -------------------------------------------------------------

    def subquery(self, node: exp.Expr) -> Expression:
        """A column of the row, where the subquery reads the row; else a constant that is asked first."""
        text = node.sql()
        if text not in self.found:
            self.found[text] = self.test(node) or self.value(node)
        return self.found[text]

    def test(self, node: exp.Expr) -> Expression | None:
        """IN and EXISTS that are a part of a condition or a value."""
        found = as_test(node)
        if found is None:
            return None
        name = self.new_name()
        match = match_of(found, self, is_open=True)
        self.add(lambda rows: replace(rows, relation=Mark(match.of(rows, found, self, negated=False), name)))
        mark: Expression = Column(name, Boolean())
        return self.lowering.build("NOT", node, (mark,)) if found.negated else mark

    def value(self, node: exp.Expr) -> Expression:
        resolver = self.resolver
        releases, earlier = len(resolver.releases), len(resolver.earlier)
        try:
            return self.constant(node)
        except UnknownName:
            del resolver.releases[releases:], resolver.earlier[earlier:]
            query = node.this if isinstance(node, exp.Subquery) else node
            if not self.reads_outside(query):
                raise
        return correlated_value(query, self, node)

    def constant(self, node: exp.Expr) -> Expression:
        """A query that stands for one value: asked first, and a constant by then."""
        query = (node.this if isinstance(node, exp.Subquery) else node).copy()
        found = self.resolver.query(query, self.named)
        if isinstance(found, Rows):
            raise self.resolver.refuse(
                "a subquery would show rows of people", node, "let it aggregate: (SELECT AVG(x) ...)"
            )
        return earlier_value(self.resolver, found.tree or query, self.named, node)

    def constant_in_on(self, node: exp.Expr) -> Expression:
        named = [column for column in node.find_all(exp.Column) if column.table]
        if as_test(node) is not None or any(self.lookup(column) is not None for column in named):
            raise self.resolver.refuse(
                "a subquery in ON cannot read the rows that are joined", node, "put it into WHERE"
            )
        return self.constant(node)

    def reads_outside(self, query: exp.Expr) -> bool:
        return any(self.lookup(column) is not None for column in query.find_all(exp.Column))

    def add(self, change: Callable[[Rows], Rows]) -> None:
        """Gives the rows another column, now or as soon as they are there."""
        if not self.is_read:
            self.pending.append(change)
            return
        if self.rows.kept is not None:
            raise self.rows.kept.refuse("a subquery reads these", "use an inner join")
        self.rows = change(self.rows)

    def new_name(self) -> str:
        self.names += 1
        return f"_x{self.names}"

    @property
    def inner_names(self) -> set[str]:
        return self.source.inner_names

    @property
    def outside(self) -> Rows:
        """All that the items of FROM say of units, for what is checked before they are joined."""
        items = self.source.items
        private = next((rows for rows in items if rows.is_private), items[0])
        return replace(private, unit_keys={name: key for rows in items for name, key in rows.unit_keys.items()})

    def lookup(self, node: exp.Column) -> Column | None:
        if INNER in node.meta:
            inner: Column = node.meta[INNER]
            return inner
        return self.source.column(node, self.resolver.place(node))

    def is_alias(self, node: exp.Column) -> bool:
        return not node.table and node.name.lower() in self.aliases

    def unknown(self, node: exp.Column) -> UnknownName | Unsupported:
        if _is_outside(node, self.resolver.schema):
            return self.resolver.refuse(READS_OUTSIDE, node, COMPARE_UNITS)
        names = {name.rpartition(".")[2] for name in self.source.columns} | set(self.aliases)
        shown = ".".join(part.name for part in node.parts)
        hint = did_you_mean(node.name, names)
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

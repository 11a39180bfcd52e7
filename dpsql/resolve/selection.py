"""One SELECT over private rows: other rows of the same people, or a release with the rest of the query above it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Error, ProgrammingError, UnknownName
from dpsql.expressions.lower import Lowering
from dpsql.expressions.tree import Column, Expression
from dpsql.relation.relation import Aggregate, AggregateCall, Filter, Project, Relation
from dpsql.resolve.calls import aggregate_call
from dpsql.resolve.rows import Answer, Named, Rows, inner_name
from dpsql.resolve.syntax import extra_clauses, has_aggregate, is_aggregate, is_star, output_name, unaliased
from dpsql.schema.types import Boolean
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from dpsql.resolve.query import Resolver


def release_name(number: int) -> str:
    """The table under which the finish reads a release."""
    return f"_release_{number}"


@dataclass
class Selection:
    resolver: Resolver
    select: exp.Select
    rows: Rows
    named: Named
    keys: list[Expression] = field(default_factory=list)
    calls: list[AggregateCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lowering = Lowering(self.resolver.source, self.resolve)
        items = self.select.expressions
        self.aliases = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
        self.open_aliases: set[str] = set()

    def resolved(self) -> Rows | Answer:
        relation = self.filtered()
        return self.release(relation) if self.is_release() else self.projection(relation)

    def filtered(self) -> Relation:
        where = self.select.args.get("where")
        if where is None:
            return self.rows.relation
        condition = self.lowering.lower(where.this)
        if not isinstance(condition.type, Boolean):
            raise ProgrammingError(
                f"WHERE takes a condition, not {condition.type.name}",
                at=self.resolver.place(where.this),
                hint="compare it with something",
            )
        return Filter(self.rows.relation, condition)

    # -- names --------------------------------------------------------------------------------------------------------

    def resolve(self, node: exp.Column) -> Expression:
        """A column of the rows, or else the expression behind an alias of the SELECT list."""
        found = self.lookup(node)
        if found is not None:
            return found
        alias = node.name.lower()
        if not self.is_alias(node) or alias in self.open_aliases:
            raise self.unknown(node)
        self.open_aliases.add(alias)
        try:
            return self.lowering.lower(self.aliases[alias])
        finally:
            self.open_aliases.remove(alias)

    def lookup(self, node: exp.Column) -> Column | None:
        if node.args.get("db") is not None:
            raise self.unknown(node)
        name = f"{node.table}.{node.name}" if node.table else node.name
        found = self.rows.columns.get(name.lower())
        return found and Column(found.name, found.type, self.resolver.place(node))

    def is_alias(self, node: exp.Column) -> bool:
        return not node.table and node.name.lower() in self.aliases

    def unknown(self, node: exp.Column) -> UnknownName:
        names = {name.rpartition(".")[2] for name in self.rows.columns} | set(self.aliases)
        shown = ".".join(part.name for part in node.parts)
        hint = did_you_mean(node.name, names)
        return UnknownName(f'there is no column "{shown}"', at=self.resolver.place(node), hint=hint)

    # -- rows that stay rows ------------------------------------------------------------------------------------------

    def projection(self, relation: Relation) -> Rows:
        for clause in ("order", "limit", "offset", "having", "distinct"):
            if self.select.args.get(clause):
                raise self.resolver.refuse(
                    f"{clause.upper()} cannot be used on rows of people",
                    self.select.args[clause],
                    "which rows remain would depend on other people; aggregate first",
                )
        columns = self.projected()
        units = {
            inner_name(name)
            for name, expression in columns.items()
            if isinstance(expression, Column) and expression.name in self.rows.unit_columns
        }
        project = Project(relation, tuple((inner_name(name), expression) for name, expression in columns.items()))
        seen = {name: Column(inner_name(name), expression.type) for name, expression in columns.items()}
        return Rows(project, seen, frozenset(units))

    def projected(self) -> dict[str, Expression]:
        columns: dict[str, Expression] = {}
        for item in self.select.expressions:
            if isinstance(item, exp.Star):
                self.resolver.only(item, set())
                found: dict[str, Expression] = {n: column for n, column in self.rows.columns.items() if "." not in n}
            else:
                found = {output_name(item).lower(): self.lowering.lower(unaliased(item))}
            for name in found.keys() & columns.keys():
                raise ProgrammingError(
                    f'two columns are named "{name}"',
                    at=self.resolver.place(item),
                    hint="give one another name with AS",
                )
            columns |= found
        return columns

    # -- rows that become a release -----------------------------------------------------------------------------------

    def is_release(self) -> bool:
        parts = [*self.select.expressions, self.select.args.get("having"), self.select.args.get("order")]
        aggregates = any(part is not None and has_aggregate(part) for part in parts)
        return aggregates or bool(self.select.args.get("group")) or self.is_distinct()

    def is_distinct(self) -> bool:
        distinct = self.select.args.get("distinct")
        return distinct is not None and not distinct.args.get("on")

    def release(self, relation: Relation) -> Answer:
        group = self.group_items()
        self.keys = [self.lowering.lower(item) for item in group]
        # Only nodes of these kinds can be keys, so only they are compared with them.
        self.key_kinds = {type(item) for item in group} | {exp.Column}
        finish = self.finish()
        # Subqueries in the SELECT list have been numbered by now.
        finish.set("from_", exp.From(this=exp.to_table(release_name(len(self.resolver.releases)))))
        aggregate = Aggregate(relation, tuple(self.keys), tuple(self.calls), grouped=bool(group))
        self.resolver.releases.append((aggregate, self.rows.unit_columns))
        return Answer(finish)

    def group_items(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        items = self.select.expressions
        if group is None:
            plain = self.is_distinct() and not any(has_aggregate(item) for item in items)
            return [unaliased(item) for item in items] if plain else []
        for clause in extra_clauses(group, {"expressions", "all"}):
            raise self.resolver.refuse(
                f"{clause.upper()} cannot be asked yet", group, "ask one GROUP BY at a time and combine with UNION ALL"
            )
        if group.args.get("all"):
            return [unaliased(item) for item in items if not has_aggregate(item)]
        return [self.group_item(item) for item in group.expressions]

    def group_item(self, item: exp.Expr) -> exp.Expr:
        """GROUP BY 2 is the second item of the SELECT list; a name that is no column is an alias of it."""
        if isinstance(item, exp.Column) and self.is_alias(item) and self.lookup(item) is None:
            return unaliased(self.aliases[item.name.lower()])
        if not (isinstance(item, exp.Literal) and item.is_int):
            return unaliased(item)
        items = self.select.expressions
        if not 1 <= int(item.this) <= len(items):
            raise ProgrammingError(
                f"GROUP BY {item.this}: the SELECT list has {len(items)} items", at=self.resolver.place(item)
            )
        return unaliased(items[int(item.this) - 1])

    # -- what stands above the release --------------------------------------------------------------------------------

    def finish(self) -> exp.Select:
        """The same SELECT over the release's columns; HAVING becomes WHERE, since groups are rows now."""
        finish = exp.Select(expressions=[self.output(item) for item in self.select.expressions])
        finish.set("with_", self.select.args.get("with_"))
        having = self.select.args.get("having")
        if having is not None:
            finish.set("where", exp.Where(this=self.above(having.this)))
        for clause in ("order", "limit", "offset", "distinct"):
            node = self.select.args.get(clause)
            finish.set(clause, node and self.above(node, aliases_first=True))
        return finish

    def output(self, item: exp.Expr) -> exp.Expr:
        if item.is_star and not is_star(unaliased(item)):
            raise self.resolver.refuse("* would show rows of people", item, "name the groups and aggregates")
        name = exp.to_identifier(output_name(item), quoted=True)
        return exp.Alias(this=self.above(unaliased(item)), alias=name)

    def above(self, node: exp.Expr, *, aliases_first: bool = False) -> exp.Expr:
        """The node with its keys and aggregates replaced by columns of the release."""
        found = self.key(node, aliases_first=aliases_first)
        if found is not None:
            return found
        if isinstance(node, exp.Column):
            return self.alias_of(node)
        if isinstance(node, exp.Query):
            return self.resolver.answer(node.copy(), self.named, refusal="a subquery would show rows of people")
        if is_aggregate(node):
            return self.aggregate(node)

        def changed(value: object) -> object:
            if isinstance(value, list):
                return [changed(part) for part in value]
            return self.above(value, aliases_first=aliases_first) if isinstance(value, exp.Expr) else value

        return type(node)(**{key: changed(value) for key, value in node.args.items()})

    def key(self, node: exp.Expr, *, aliases_first: bool) -> exp.Expr | None:
        """The release's column for a node that is one of its keys."""
        if type(node) not in self.key_kinds or has_aggregate(node):
            return None
        if isinstance(node, exp.Column) and self.is_alias(node) and (aliases_first or self.lookup(node) is None):
            return None
        try:
            expression = self.lowering.lower(node)
        except Error:
            if isinstance(node, exp.Column):
                raise
            return None  # not a key, and above the release more functions are known than below
        return exp.column(f"_k{self.keys.index(expression)}") if expression in self.keys else None

    def alias_of(self, node: exp.Column) -> exp.Expr:
        if self.is_alias(node):
            return node.copy()
        raise ProgrammingError(
            f'"{node.name}" must be in GROUP BY or inside an aggregate',
            at=self.resolver.place(node),
            hint=f"add {node.name} to GROUP BY, or write COUNT({node.name}), SUM({node.name}), ...",
        )

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        call = aggregate_call(node, self.lowering)
        if call not in self.calls:
            self.calls.append(call)
        return exp.column(f"_a{self.calls.index(call)}")

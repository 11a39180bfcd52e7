"""One SELECT over rows: other rows of the same people, or a release with the rest of the query above it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Error, ProgrammingError, UnknownName
from dpsql.expressions.lower import Lowering
from dpsql.expressions.tree import Column, Expression
from dpsql.relation.relation import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    PerUnit,
    Project,
    Relation,
    Window,
    WindowCall,
)
from dpsql.resolve.calls import aggregate_call, per_unit_call, window_call
from dpsql.resolve.grouping import read_grouping
from dpsql.resolve.joins import all_of
from dpsql.resolve.rows import Answer, Item, Named, Rows, inner_name
from dpsql.resolve.semi_joins import as_test, semi_joined
from dpsql.resolve.syntax import (
    conditions_of,
    extra_clauses,
    has_aggregate,
    is_aggregate,
    is_interval_end,
    is_star,
    output_name,
    unaliased,
)
from dpsql.schema.types import Boolean
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from dpsql.resolve.joins import Source
    from dpsql.resolve.query import Resolver

INNER = "inner"
"""The mark by which a node of our own making names a column, whatever analysts call theirs."""


def release_name(number: int) -> str:
    """The table under which the finish reads a release."""
    return f"_release_{number}"


@dataclass
class Selection:
    resolver: Resolver
    select: exp.Select
    source: Source
    named: Named
    keys: list[Expression] = field(default_factory=list)
    calls: list[AggregateCall] = field(default_factory=list)
    windows: list[tuple[str, WindowCall]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lowering = Lowering(self.resolver.text, self.resolve)
        items = self.select.expressions
        self.aliases = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
        self.open_aliases: set[str] = set()
        self.totals: tuple[tuple[int, ...], ...] = ()
        self.rows = self.filtered()

    def resolved(self) -> Item:
        if not self.is_grouped():
            return self.projection()
        group = self.group_items()
        self.keys = [self.lowering.lower(item) for item in group]
        # Only nodes of these kinds can be keys, so only they are compared with them.
        self.key_kinds = {type(item) for item in group} | {exp.Column}
        if any(self.is_one_unit(key) for key in self.keys) and not self.totals:
            return self.per_unit()
        return self.release()

    def filtered(self) -> Rows:
        """FROM and WHERE: the rows that the SELECT list sees."""
        parts = conditions_of(self.select.args.get("where"))
        tests = [test for test in map(as_test, parts) if test is not None]
        conditions = [self.condition(part, "WHERE") for part in parts if as_test(part) is None]
        rows = self.source.joined(self.lowering.lower, conditions)
        for test in tests:
            rows = semi_joined(rows, test, self)
        whole = all_of(conditions)
        return rows if whole is None else replace(rows, relation=Filter(rows.relation, whole))

    def condition(self, node: exp.Expr, clause: str) -> Expression:
        condition = self.lowering.lower(node)
        if not isinstance(condition.type, Boolean):
            raise ProgrammingError(
                f"{clause} takes a condition, not {condition.type.name}",
                at=self.resolver.place(node),
                hint="compare it with something",
            )
        return condition

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
        if INNER in node.meta:
            inner: Column = node.meta[INNER]
            return inner
        if node.args.get("db") is not None:
            raise self.unknown(node)
        name = (f"{node.table}.{node.name}" if node.table else node.name).lower()
        if name not in self.source.columns:
            return None
        found = self.source.columns[name]
        if found is None:
            raise ProgrammingError(
                f'"{node.name}" is a column of several tables',
                at=self.resolver.place(node),
                hint=f"write  table.{node.name}",
            )
        return Column(found.name, found.type, self.resolver.place(node))

    def is_alias(self, node: exp.Column) -> bool:
        return not node.table and node.name.lower() in self.aliases

    def is_unit(self, expression: Expression) -> bool:
        return isinstance(expression, Column) and expression.name in self.rows.unit_columns

    def is_one_unit(self, expression: Expression) -> bool:
        """Whether rows with the same value are of the same unit: the unit itself, or the key that leads to it."""
        keys = self.rows.unit_keys or {}
        return self.is_unit(expression) or (isinstance(expression, Column) and expression.name in keys)

    def unknown(self, node: exp.Column) -> UnknownName:
        names = {name.rpartition(".")[2] for name in self.source.columns} | set(self.aliases)
        shown = ".".join(part.name for part in node.parts)
        hint = did_you_mean(node.name, names)
        return UnknownName(f'there is no column "{shown}"', at=self.resolver.place(node), hint=hint)

    # -- rows that stay rows ------------------------------------------------------------------------------------------

    def projection(self) -> Rows:
        self.refuse_order()
        columns = self.projected()
        qualify = self.select.args.get("qualify")
        condition = self.condition(self.with_windows(qualify.this), "QUALIFY") if qualify is not None else None
        relation: Relation = self.rows.relation
        if self.windows:
            relation = Window(relation, tuple(self.windows))
        if condition is not None:
            relation = Filter(relation, condition)
        rows = self.outputs(relation, columns)
        return replace(rows, relation=Distinct(rows.relation)) if self.select.args.get("distinct") else rows

    def refuse_order(self) -> None:
        for clause in ("order", "limit", "offset"):
            if self.select.args.get(clause):
                raise self.resolver.refuse(
                    f"{clause.upper()} cannot be used on rows of people",
                    self.select.args[clause],
                    "which rows remain would depend on other people; aggregate first",
                )
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise self.resolver.refuse(
                "DISTINCT ON cannot be used on rows of people", distinct, "use GROUP BY the unit"
            )

    def outputs(self, relation: Relation, columns: dict[str, Expression]) -> Rows:
        """The relation with these columns, under the names that the SELECT list gives them."""
        seen = {name: Column(inner_name(name), expression.type) for name, expression in columns.items()}
        project = Project(relation, tuple((inner_name(name), expression) for name, expression in columns.items()))
        units = {seen[name].name for name, expression in columns.items() if self.is_unit(expression)}
        keys = {
            seen[name].name: key
            for name, expression in columns.items()
            if isinstance(expression, Column) and (key := (self.rows.unit_keys or {}).get(expression.name))
        }
        return Rows(project, seen, frozenset(units), keys, self.rows.unit_type)

    def projected(self) -> dict[str, Expression]:
        columns: dict[str, Expression] = {}
        for item in self.select.expressions:
            for name, expression in self.projected_item(item).items():
                if name in columns:
                    raise ProgrammingError(
                        f'two columns are named "{name}"', at=self.resolver.place(item), hint="rename one with AS"
                    )
                columns[name] = expression
        return columns

    def projected_item(self, item: exp.Expr) -> dict[str, Expression]:
        if not item.is_star:
            return {output_name(item).lower(): self.lowering.lower(self.with_windows(unaliased(item)))}
        self.resolver.only(item, {"this", "table"})
        table = item.table if isinstance(item, exp.Column) else ""
        prefix = f"{table.lower()}." if table else ""
        found: dict[str, Expression] = {}
        for name, column in self.source.columns.items():
            short = name.removeprefix(prefix)
            if column is not None and name.startswith(prefix) and "." not in short:
                found[short] = column
            elif column is None and not prefix:
                raise self.resolver.refuse(f'two tables have a column "{name}"', item, "name the columns")
        if not found:
            raise self.resolver.refuse(f'there is no table "{table}"', item, "use the alias of a table in FROM")
        return found

    def with_windows(self, node: exp.Expr) -> exp.Expr:
        """The node with its window functions replaced by columns that hold them."""

        def replaced(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Window):
                return part
            window, facts = window_call(part, self.lowering, self.is_unit, self.resolver.refuse)
            for name, known in self.windows:
                if known == window:
                    return inner_column(Column(name, facts.type))
            name = f"_w{len(self.windows)}"
            self.windows.append((name, window))
            return inner_column(Column(name, facts.type))

        return node.transform(replaced)

    # -- groups -------------------------------------------------------------------------------------------------------

    def is_grouped(self) -> bool:
        parts = [*self.select.expressions, *(self.select.args.get(clause) for clause in ("having", "order", "qualify"))]
        if any(part is not None and has_aggregate(part) for part in parts) or self.select.args.get("group"):
            return True
        # DISTINCT with the unit keeps people apart; without it it lists what anybody has, which is a release.
        distinct = self.select.args.get("distinct")
        return distinct is not None and not distinct.args.get("on") and self.rows.is_private and not self.shows_unit()

    def shows_unit(self) -> bool:
        items = [item for item in self.select.expressions if not item.is_star]
        if len(items) < len(self.select.expressions):
            return bool(self.rows.unit_columns)
        columns = [unaliased(item) for item in items]
        return any(isinstance(node, exp.Column) and self.is_unit(self.resolve(node)) for node in columns)

    def group_items(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        items = self.select.expressions
        if group is None:
            plain = self.select.args.get("distinct") and not any(has_aggregate(item) for item in items)
            return [unaliased(item) for item in items] if plain else []
        for clause in extra_clauses(group, {"expressions", "all"}):
            raise self.resolver.refuse(f"{clause.upper()} cannot be asked", group, "use a plain GROUP BY")
        if group.args.get("all"):
            return [unaliased(item) for item in items if not has_aggregate(item)]
        grouped, sets = read_grouping(group)
        self.totals = tuple(tuple(grouped.index(item) for item in chosen) for chosen in sets)
        return [self.group_item(item) for item in grouped]

    def group_item(self, item: exp.Expr) -> exp.Expr:
        """GROUP BY 2 is the second item of the SELECT list; a name that is no column is an alias of it."""
        if isinstance(item, exp.Column) and self.is_alias(item) and self.lookup(item) is None:
            return unaliased(self.aliases[item.name.lower()])
        if not (isinstance(item, exp.Literal) and item.is_int):
            return unaliased(item)
        items = self.select.expressions
        if not 1 <= int(item.this) <= len(items):
            raise ProgrammingError(
                f"GROUP BY {item.this}: the SELECT list has {len(items)} items",
                at=self.resolver.place(item),
                hint=f"write a number from 1 to {len(items)}, or the column itself",
            )
        return unaliased(items[int(item.this) - 1])

    # -- groups within one unit ---------------------------------------------------------------------------------------

    def per_unit(self) -> Rows:
        """GROUP BY with the unit: still rows of people, with aggregates of each one's own."""
        self.refuse_order()
        for clause in ("qualify", "distinct"):
            if self.select.args.get(clause):
                raise self.resolver.refuse(
                    f"{clause.upper()} cannot be used with GROUP BY the unit",
                    self.select.args[clause],
                    "put the GROUP BY into a subquery and use it outside",
                )
        items = [(output_name(item).lower(), self.above(unaliased(item))) for item in self.select.expressions]
        having = self.select.args.get("having")
        condition = self.above(having.this) if having is not None else None
        calls = [per_unit_call(call) for call in self.calls]
        relation: Relation = PerUnit(
            self.rows.relation,
            tuple((f"_k{number}", key) for number, key in enumerate(self.keys)),
            tuple((f"_a{number}", call) for number, (call, _) in enumerate(calls)),
            by_unit_alone=all(self.is_unit(key) for key in self.keys),
        )
        computed = {f"_k{number}": key.type for number, key in enumerate(self.keys)}
        computed |= {f"_a{number}": facts.type for number, (_, facts) in enumerate(calls)}
        rewritten = dict(items)

        def resolve(node: exp.Column) -> Expression:
            if node.name in computed and INNER in node.meta:
                return Column(node.name, computed[node.name])
            return inner.lower(rewritten[node.name.lower()])

        inner = Lowering(self.resolver.text, resolve)
        if condition is not None:
            relation = Filter(relation, inner.lower(condition))
        columns = {name: inner.lower(node) for name, node in items}
        if len(columns) < len(items):
            raise ProgrammingError("two columns have the same name", hint="rename one with AS")
        rows = self.outputs(relation, columns)
        units = {f"_k{number}" for number, key in enumerate(self.keys) if self.is_unit(key)}
        shown = {inner_name(n) for n, value in columns.items() if isinstance(value, Column) and value.name in units}
        return replace(rows, unit_columns=frozenset(shown), unit_keys={})

    # -- groups across people: a release, and what stands above it ----------------------------------------------------

    def release(self) -> Answer:
        finish = self.finish()
        if not self.keys and not self.calls:
            raise self.resolver.refuse("there is no aggregate", self.select, "write COUNT(*), SUM(x) or AVG(x)")
        # Subqueries in the SELECT list have been numbered by now.
        finish.set("from_", exp.From(this=exp.to_table(release_name(len(self.resolver.releases)))))
        aggregate = Aggregate(
            self.rows.relation, tuple(self.keys), tuple(self.calls), grouped=bool(self.keys), totals=self.totals
        )
        self.resolver.releases.append((aggregate, self.rows.unit_columns))
        return Answer(finish)

    def finish(self) -> exp.Select:
        """The same SELECT over the release's columns; HAVING becomes WHERE, since groups are rows now."""
        finish = exp.Select(expressions=[self.output(item) for item in self.select.expressions])
        finish.set("with_", self.select.args.get("with_"))
        having = self.select.args.get("having")
        if having is not None:
            finish.set("where", exp.Where(this=self.above(having.this)))
        for clause in ("qualify", "order", "limit", "offset", "distinct"):
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
        if is_interval_end(node):
            return self.interval_end(node)
        if is_aggregate(node):
            return self.aggregate(node)

        def changed(value: object) -> object:
            if isinstance(value, list):
                return [changed(part) for part in value]
            return self.above(value, aliases_first=aliases_first) if isinstance(value, exp.Expr) else value

        return type(node)(**{key: changed(value) for key, value in node.args.items()})

    def key(self, node: exp.Expr, *, aliases_first: bool) -> exp.Expr | None:
        """The release's column for a node that is one of its keys."""
        if type(node) not in self.key_kinds or isinstance(node, exp.Literal) or has_aggregate(node):
            return None  # a constant stays what it is: LIMIT 1 is not the key 1
        if isinstance(node, exp.Column) and self.is_alias(node) and (aliases_first or self.lookup(node) is None):
            return None
        try:
            expression = self.lowering.lower(node)
        except Error:
            if isinstance(node, exp.Column):
                raise
            return None  # not a key, and above the release more functions are known than below
        if expression not in self.keys:
            return None
        return inner_column(Column(f"_k{self.keys.index(expression)}", expression.type))

    def alias_of(self, node: exp.Column) -> exp.Expr:
        if self.is_alias(node):
            return node.copy()
        raise ProgrammingError(
            f'"{node.name}" must be in GROUP BY or inside an aggregate',
            at=self.resolver.place(node),
            hint=f"add {node.name} to GROUP BY, or write COUNT({node.name}), SUM({node.name}), ...",
        )

    def interval_end(self, node: exp.Expr) -> exp.Expr:
        """DP_INTERVAL_LOW(alias), of what the alias stands for; plan_query makes a column of it."""
        (named, *more) = node.expressions or [None]
        item = self.aliases[named.name.lower()] if isinstance(named, exp.Column) and self.is_alias(named) else named
        if more or item is None or any(map(is_interval_end, item.find_all(exp.Anonymous))):
            name = node.name.upper()
            raise self.resolver.refuse(f"{name} takes one aggregate", node, f"write COUNT(*) AS n, {name}(n)")
        end = exp.Anonymous(this=node.name.upper(), expressions=[self.above(unaliased(item))])
        end.meta.update(node.meta | {INNER: True})
        return end

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        call = aggregate_call(node, self.lowering)
        if call not in self.calls:
            self.calls.append(call)
        node_ = exp.column(f"_a{self.calls.index(call)}")
        node_.meta[INNER] = True
        return node_


def inner_column(column: Column) -> exp.Column:
    """A node that names a column of our own."""
    node = exp.column(exp.to_identifier(column.name, quoted=True))
    node.meta[INNER] = column
    return node

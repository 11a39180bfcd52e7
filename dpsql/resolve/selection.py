"""One SELECT over rows: other rows of the same people, or a release with the rest of the query above it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import Error, ProgrammingError
from dpsql.expressions.lower import Lowering
from dpsql.expressions.tree import Column, Expression
from dpsql.relation.relation import Aggregate, AggregateCall, Filter, PerUnit, Relation
from dpsql.resolve.calls import aggregate_calls, per_unit_call
from dpsql.resolve.collected import as_reports
from dpsql.resolve.grouping import read_grouping
from dpsql.resolve.inner import INNER, inner_column, release_name, reports_name
from dpsql.resolve.projection import Projection
from dpsql.resolve.rows import Answer, Item, Rows
from dpsql.resolve.syntax import (
    extra_clauses,
    has_aggregate,
    is_aggregate,
    is_interval_end,
    is_star,
    output_name,
    unaliased,
)


@dataclass
class Selection(Projection):
    keys: list[Expression] = field(default_factory=list)
    calls: list[AggregateCall] = field(default_factory=list)
    totals: tuple[tuple[int, ...], ...] = ()
    is_within_unit: bool = False

    def resolved(self) -> Item:
        if not self.is_grouped():
            return self.projection()
        group = self.group_items()
        self.keys = [self.lowering.lower(item) for item in group]
        # Only nodes of these kinds can be keys, so only they are compared with them.
        self.key_kinds = {type(item) for item in group} | {exp.Column}
        if any(self.rows.tells_unit(key) for key in self.keys) and not self.totals:
            return self.per_unit()
        self.refuse_people_apart(group)
        self.refuse_equal_keys(group)
        return self.release()

    def refuse_equal_keys(self, group: list[exp.Expr]) -> None:
        """Where a total leaves out one of two equal keys, the engine leaves out both."""
        if self.totals and len(set(self.keys)) < len(self.keys):
            raise self.resolver.refuse(
                "two keys of the totals are the same expression", group[-1], "name it once, and SELECT it again outside"
            )

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
        plain = [unaliased(item) for item in items if item.find(exp.Window) is None]
        return any(map(self.rows.tells_unit, map(self.lowering.lower, plain)))

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

    def refuse_people_apart(self, group: list[exp.Expr]) -> None:
        """Groups of one person each are never shown, so a release of such groups would be an empty answer."""
        for item, key in zip(group, self.keys, strict=True):
            if self.rows.key_of(key) is None:
                continue
            if self.rows.tells_unit(key):
                what, hint = "totals over groups of one person each", "group by the unit in a subquery, without totals"
            else:
                what = "the key tells people apart, and is NULL for some, who would be one group"
                hint = "COALESCE the units of both sides of the outer join, or add WHERE ... IS NOT NULL"
            raise self.resolver.refuse(f"{what}: this cannot be asked", item, hint)

    # -- groups within one unit ---------------------------------------------------------------------------------------

    def per_unit(self) -> Rows:
        """GROUP BY with the unit: still rows of people, with aggregates of each one's own."""
        self.is_within_unit = True
        self.refuse_order(
            "groups of one person each",
            "group by what people share, or ask about all of them: SELECT AVG(n) FROM (SELECT ... GROUP BY the unit)",
        )
        self.refuse_kept()
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
            by_unit_alone=all(map(self.rows.is_of_unit_alone, self.keys)),
        )
        computed = {f"_k{number}": key.type for number, key in enumerate(self.keys)}
        computed |= {f"_a{number}": facts.type for number, (_, facts) in enumerate(calls)}
        rewritten = dict(items)

        def resolve(node: exp.Column) -> Expression:
            if node.name in computed and INNER in node.meta:
                return Column(node.name, computed[node.name])
            return inner.lower(rewritten[node.name.lower()])

        inner = Lowering(self.resolver.text, resolve, self.constant)
        if condition is not None:
            relation = Filter(relation, inner.lower(condition))
        columns = {name: inner.lower(node) for name, node in items}
        if len(columns) < len(items):
            raise ProgrammingError("two columns have the same name", hint="rename one with AS")
        keys = {f"_k{number}": key for number, key in enumerate(self.keys)}
        told = {name: sense for name, key in keys.items() if (sense := self.rows.key_of(key)) is not None}
        present = frozenset(frozenset({name}) for name in told if self.rows.tells_unit(keys[name]))
        return self.outputs(Rows(relation, {}, told, present, self.rows.unit_type), columns)

    # -- groups across people: a release, and what stands above it ----------------------------------------------------

    def release(self) -> Answer:
        finish = self.finish()
        if not self.keys and not self.calls:
            raise self.resolver.refuse("there is no aggregate", self.select, "write COUNT(*), SUM(x) or AVG(x)")
        kept = self.rows.kept
        listed = None if kept is None else kept.groups(self.keys, self.calls, self.conditions)
        aggregate = Aggregate(
            self.rows.relation,
            tuple(self.keys),
            tuple(self.calls),
            grouped=bool(self.keys),
            totals=self.totals,
            listed=listed if self.keys else None,
        )
        aggregate = as_reports(aggregate)
        # Subqueries in the SELECT list have been numbered by now.
        if aggregate.reports is not None and aggregate.reports.is_free:
            name = reports_name(self.resolver.reports_number(aggregate))
        else:
            name = release_name(self.resolver.number_of(aggregate, self.rows.all_units))
        finish.set("from_", exp.From(this=exp.to_table(name)))
        return Answer(finish)

    def finish(self) -> exp.Select:
        """The same SELECT over the release's columns; HAVING becomes WHERE, since groups are rows now."""
        finish = exp.Select(expressions=[self.output(item) for item in self.select.expressions])
        finish.set("with_", self.select.args.get("with_"))
        having = self.select.args.get("having")
        if having is not None:
            finish.set("where", exp.Where(this=self.above(having.this)))
        finish.set("windows", [self.above(window) for window in self.select.args.get("windows") or ()])
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
        if isinstance(node, exp.Query) and self.is_within_unit:
            return node.copy()  # a constant, which is asked first
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
        calls = aggregate_calls(node, self.lowering)
        if isinstance(calls, list):
            return exp.Array(expressions=list(map(self.answer, calls)))
        return self.answer(calls)

    def answer(self, call: AggregateCall) -> exp.Expr:
        """The release's column for an aggregate."""
        if call not in self.calls:
            self.calls.append(call)
        column = exp.column(f"_a{self.calls.index(call)}")
        column.meta[INNER] = True
        return column

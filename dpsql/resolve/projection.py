"""A SELECT that gives other rows of the same people: columns, windows within one unit, DISTINCT that keeps the unit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.tree import Column, Expression
from dpsql.relation.relation import Distinct, Filter, Project, Relation, Window, WindowCall
from dpsql.resolve.inner import inner_column
from dpsql.resolve.rows import Rows, inner_name
from dpsql.resolve.scope import Scope
from dpsql.resolve.syntax import output_name, unaliased
from dpsql.resolve.windows import named_window, window_call


@dataclass
class Projection(Scope):
    windows: list[tuple[str, WindowCall]] = field(default_factory=list)

    def projection(self) -> Rows:
        first = self.first_of_each()
        unit = " or ".join(self.rows.unit_names or self.rows.names_of(self.rows.unit_keys))
        self.refuse_order(
            "rows of people",
            "use it above an aggregate, or keep some rows of each person: "
            f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {unit} ORDER BY ...) <= 3",
        )
        self.refuse_kept()
        columns = self.projected()
        qualify = self.select.args.get("qualify")
        if first is not None:
            condition: Expression | None = self.condition(self.with_windows(first), "DISTINCT ON")
        else:
            condition = self.condition(self.with_windows(qualify.this), "QUALIFY") if qualify is not None else None
        relation: Relation = self.rows.relation
        if self.windows:
            relation = Window(relation, tuple(self.windows))
        if condition is not None:
            relation = Filter(relation, condition)
        rows = self.outputs(replace(self.rows, relation=relation), columns)
        return (
            replace(rows, relation=Distinct(rows.relation))
            if self.select.args.get("distinct") and first is None
            else rows
        )

    def first_of_each(self) -> exp.Expr | None:
        """DISTINCT ON (unit) ... ORDER BY day: the row with number 1 in a window of each unit."""
        if not self.distinct_on:
            return None
        if self.select.args.get("qualify"):
            raise self.resolver.refuse(
                "DISTINCT ON cannot be used with QUALIFY", self.select.args["distinct"], "use one in a subquery"
            )
        order = self.select.args.get("order")
        number = exp.Window(this=exp.RowNumber(), partition_by=self.distinct_on, order=order, over="OVER")
        return exp.EQ(this=number.copy(), expression=exp.Literal.number(1))

    @property
    def distinct_on(self) -> list[exp.Expr]:
        distinct = self.select.args.get("distinct")
        keys = distinct.args.get("on") if distinct is not None else None
        return [] if keys is None else keys.expressions if isinstance(keys, exp.Tuple) else [keys]

    def refuse_order(self, rows: str, hint: str) -> None:
        """Which rows come first depends on other people's."""
        for clause in ("order", "limit", "offset"):
            if self.select.args.get(clause) and not (clause == "order" and self.distinct_on):
                raise self.resolver.refuse(f"{clause.upper()} cannot be used on {rows}", self.select.args[clause], hint)

    def refuse_kept(self) -> None:
        if self.rows.kept is not None:
            raise self.rows.kept.refuse("they belong to nobody", "aggregate right here, or use an inner join")

    def outputs(self, rows: Rows, columns: dict[str, Expression]) -> Rows:
        """The rows with these columns, under the names that the SELECT list gives them."""
        seen = {name: Column(inner_name(name), expression.type) for name, expression in columns.items()}
        values = {seen[name].name: expression for name, expression in columns.items()}
        keys = {name: key for name, value in values.items() if (key := rows.key_of(value)) is not None}
        present = {frozenset({name}) for name in keys if rows.tells_unit(values[name])}
        shown = {value.name: name for name, value in values.items() if isinstance(value, Column)}
        present |= {frozenset(map(shown.__getitem__, names)) for names in rows.present if names <= shown.keys()}
        return Rows(Project(rows.relation, tuple(values.items())), seen, keys, frozenset(present), rows.unit_type)

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
        self.resolver.only(item, {"this", "table", "except_", "replace"})
        star = item if isinstance(item, exp.Star) else item.this
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
        return self.changed(found, star)

    def changed(self, columns: dict[str, Expression], star: exp.Expr) -> dict[str, Expression]:
        """* EXCLUDE (a) REPLACE (b + 1 AS b)"""
        self.resolver.only(star, {"except_", "replace"})
        left_out = [part.name.lower() for part in star.args.get("except_") or ()]
        replaced = {part.alias.lower(): part.this for part in star.args.get("replace") or ()}
        for name in (*left_out, *replaced):
            if name not in columns:
                raise self.resolver.refuse(f'* has no column "{name}"', star, "name a column of the tables in FROM")
        return {
            name: self.lowering.lower(self.with_windows(replaced[name])) if name in replaced else column
            for name, column in columns.items()
            if name not in left_out
        }

    def with_windows(self, node: exp.Expr) -> exp.Expr:
        """The node with its window functions replaced by columns that hold them."""

        def replaced(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Window):
                return part
            part = named_window(part, self.select.args.get("windows") or [], self.resolver.refuse)
            window, facts = window_call(part, self.lowering, self.rows, self.resolver.refuse)
            for name, known in self.windows:
                if known == window:
                    return inner_column(Column(name, facts.type))
            name = f"_w{len(self.windows)}"
            self.windows.append((name, window))
            return inner_column(Column(name, facts.type))

        return node.transform(replaced)

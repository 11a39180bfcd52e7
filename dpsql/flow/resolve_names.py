"""resolve_names: a tree of names -> the releases that touch people, and the rest of the query above them.

    SELECT region, 2 * COUNT(*) AS n FROM orders WHERE amount > 10 GROUP BY region ORDER BY n

becomes the release  Aggregate(Filter(Scan(orders), amount > 10), keys=(region,), calls=(COUNT(*),))  and the finish

    SELECT _k0 AS region, 2 * _a0 AS n FROM _release_0 ORDER BY n

A query over private rows is either rows that still belong to people (`Rows`) or an answer made of releases (`Answer`).
Only an answer may leave. Every name is looked up in the declared schema; what is not declared does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.errors import Error, ProgrammingError, UnknownName, Unsupported
from dpsql.expressions.facts import Facts, bounded, exact_value, fact_of, one_of
from dpsql.expressions.lower import Lowering, place_of
from dpsql.expressions.tree import Column, Expression
from dpsql.expressions.write import column as column_node
from dpsql.relation.relation import Aggregate, AggregateCall, Filter, Project, Relation, Scan, Unit
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dpsql.flow.parse_sql import Parsed
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.schema.model import Column as DeclaredColumn
    from dpsql.schema.model import Table
    from dpsql.source import Place

AGGREGATES: dict[type[exp.Expr], str] = {exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.CountIf: "COUNT"}
SELECT_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}


@dataclass(frozen=True)
class Resolved:
    question: Question
    releases: tuple[Aggregate, ...]
    unit_columns: tuple[frozenset[str], ...]
    """For each release the names of the columns that are its unit."""
    finish: exp.Query = field(compare=False)
    """What is left of the query, over tables _release_0, _release_1, ..."""


@dataclass(frozen=True)
class Rows:
    """Rows that belong to units, under the names that a query sees."""

    relation: Relation
    columns: Mapping[str, Column]
    unit_columns: frozenset[str]


@dataclass(frozen=True)
class Answer:
    """A query over releases only: all of SQL may be used on it."""

    tree: exp.Query


Named: TypeAlias = "Mapping[str, Rows | None]"
"""The names that WITH defines: private rows, or None for an answer, which keeps its name in the finish."""


def resolve_names(parsed: Parsed, setting: Setting) -> Resolved:
    resolver = Resolver(setting, parsed.question.sql)
    found = resolver.query(parsed.tree.copy(), {})
    if isinstance(found, Rows):
        raise Unsupported(
            "the query would show rows of people as they are",
            at=resolver.place(parsed.tree.selects[0]) if parsed.tree.selects else None,
            hint="ask for an aggregate: COUNT(*), SUM(x), AVG(x), with or without GROUP BY",
        )
    releases = tuple(aggregate for aggregate, _ in resolver.releases)
    return Resolved(parsed.question, releases, tuple(units for _, units in resolver.releases), found.tree)


@dataclass
class Resolver:
    setting: Setting
    source: str
    releases: list[tuple[Aggregate, frozenset[str]]] = field(default_factory=list)

    def place(self, node: exp.Expr) -> Place | None:
        return place_of(node, self.source)

    def refuse(self, what: str, node: exp.Expr, hint: str) -> Unsupported:
        return Unsupported(what, at=self.place(node), hint=hint)

    # -- queries ------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr, named: Named) -> Rows | Answer:
        if isinstance(node, exp.Subquery) and not _extra(node, {"this", "alias"}):
            return self.query(node.this, named)
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, named)
        if not isinstance(node, exp.Select):
            raise self.refuse(f"{node.key.upper()} cannot be asked", node, "write a SELECT")
        named = self.with_clause(node, named)
        if node.args.get("from_") is None:
            return self.over_answers(node, named)
        source = self.source_of(node, named)
        if source is None:
            return self.over_answers(node, named)
        for clause in _extra(node, SELECT_CLAUSES):
            raise self.refuse(
                f"{clause.upper().rstrip('_')} cannot be used over rows of people",
                node.args[clause] if isinstance(node.args[clause], exp.Expr) else node,
                "aggregate first, in a subquery or WITH; above an aggregate all of SQL can be used",
            )
        return Selection(self, node, source, named).resolved()

    def with_clause(self, select: exp.Query, named: Named) -> Named:
        clause = select.args.get("with_")
        if clause is None:
            return named
        if clause.args.get("recursive"):
            raise self.refuse("WITH RECURSIVE cannot be asked", clause, "write the steps as ordinary WITH queries")
        known = dict(named)
        for part in list(clause.expressions):
            found = self.query(part.this, known)
            name = part.alias.lower()
            if isinstance(found, Rows):
                known[name] = self.renamed(found, part)
                part.pop()
            else:
                known[name] = None
                part.this.replace(found.tree)
        if not clause.expressions:
            clause.pop()
        return known

    def renamed(self, rows: Rows, part: exp.Expr) -> Rows:
        names = [name.name for name in part.args["alias"].args.get("columns") or ()]
        if not names:
            return rows
        if len(names) > len(rows.columns):
            raise ProgrammingError(f"{len(names)} names for {len(rows.columns)} columns", at=self.place(part))
        old = list(rows.columns.items())
        kept = [(names[i] if i < len(names) else name, column) for i, (name, column) in enumerate(old)]
        return Rows(rows.relation, {name.lower(): column for name, column in kept}, rows.unit_columns)

    def set_operation(self, node: exp.SetOperation, named: Named) -> Answer:
        named = self.with_clause(node, named)
        for side in (node.left, node.right):
            found = self.query(side, named)
            if isinstance(found, Rows):
                raise self.refuse(
                    f"{node.key.upper()} of rows of people cannot be asked yet",
                    side,
                    "aggregate each side, then combine them",
                )
            side.replace(found.tree)
        return Answer(node)

    def over_answers(self, select: exp.Select, named: Named) -> Answer:
        """A query that reads nothing but answers: only its subqueries need a look."""
        for nested in _nested_queries(select):
            found = self.query(nested, named)
            if isinstance(found, Rows):
                raise self.refuse(
                    "a subquery would show rows of people", nested, "let it aggregate: COUNT(*), SUM(x), AVG(x)"
                )
            nested.replace(found.tree)
        return Answer(select)

    # -- FROM ---------------------------------------------------------------------------------------------------

    def source_of(self, select: exp.Select, named: Named) -> Rows | None:
        """The private rows that the query reads; None if it reads answers only."""
        nodes = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
        found = [self.table(node, named) for node in nodes]
        private = [rows for rows in found if rows is not None]
        if not private:
            return None
        if len(nodes) > 1:
            raise self.refuse(
                "joins with private tables cannot be asked yet",
                nodes[1],
                "ask about one table, and join the aggregates",
            )
        return private[0]

    def table(self, node: exp.Expr, named: Named) -> Rows | None:
        alias = node.alias_or_name.lower()
        if isinstance(node, exp.Subquery):
            self.only(node, {"this", "alias"})
            found = self.query(node.this, named)
            if isinstance(found, Answer):
                node.this.replace(found.tree)
                return None
            rows = found
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            self.only(node, {"this", "alias"})
            name = node.name.lower()
            if name in named:
                rows_or_answer = named[name]
                if rows_or_answer is None:
                    return None
                rows = rows_or_answer
            else:
                rows = self.declared(node)
        else:
            raise self.refuse(f"FROM cannot read {node.key.upper()}", node, "read declared tables only")
        if node.args.get("alias") and node.args["alias"].args.get("columns"):
            raise self.refuse("columns cannot be renamed there", node, "rename them in the SELECT")
        return Rows(rows.relation, {**rows.columns, **_qualified(alias, rows)}, rows.unit_columns)

    def only(self, node: exp.Expr, keys: set[str]) -> None:
        for clause in _extra(node, keys):
            raise self.refuse(
                f"{clause.upper().rstrip('_')} cannot be used on a table of people",
                node,
                "everybody's rows are read; WHERE chooses among them",
            )

    def declared(self, node: exp.Table) -> Rows:
        schema = self.setting.schema
        table = schema.table(node.name)
        if table is None:
            raise UnknownName(
                f'there is no table "{node.name}"',
                at=self.place(node.this),
                hint=did_you_mean(node.name, schema.tables),
            )
        if table.is_public:
            raise self.refuse("public tables cannot be read yet", node, "ask about a private table")
        scan = self.scan(table)
        columns = {name.lower(): Column(name, facts.type) for name, facts in scan.columns}
        units = frozenset() if scan.unit.path else frozenset({scan.unit.column})
        return Rows(scan, columns, units)

    def scan(self, table: Table) -> Scan:
        schema = self.setting.schema
        path = schema.unit_path(table.name)
        owner = schema.table(path[-1].to_table) if path else table
        assert owner is not None and owner.unit_column is not None
        unit = Unit(path, owner.name, owner.unit_column)
        return Scan(
            table.name,
            unit,
            tuple((name, declared_facts(column)) for name, column in table.columns.items()),
            table.contribution,
            one_row_per_unit=not path and self.setting.engine.is_unique(table.name, unit.column),
        )


@dataclass
class Selection:
    """One SELECT over private rows."""

    resolver: Resolver
    select: exp.Select
    rows: Rows
    named: Named
    keys: list[Expression] = field(default_factory=list)
    calls: list[AggregateCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lowering = Lowering(self.resolver.source, self.resolve)
        self.aliases = {
            item.alias.lower(): item.this for item in self.select.expressions if isinstance(item, exp.Alias)
        }
        self.open_aliases: set[str] = set()

    def resolved(self) -> Rows | Answer:
        where = self.select.args.get("where")
        relation = self.rows.relation
        if where is not None:
            condition = self.lowering.lower(where.this)
            if condition.type.name != "boolean":
                raise ProgrammingError("WHERE takes a condition", at=self.resolver.place(where))
            relation = Filter(relation, condition)
        if self.is_release():
            return self.release(relation)
        return self.projection(relation)

    # -- names --------------------------------------------------------------------------------------------------

    def resolve(self, node: exp.Column) -> Expression:
        """A column of the rows, or else the expression behind an alias of the SELECT list."""
        found = self.lookup(node)
        if found is not None:
            return found
        alias = node.name.lower()
        if not node.table and alias in self.aliases and alias not in self.open_aliases:
            self.open_aliases.add(alias)
            try:
                return self.lowering.lower(self.aliases[alias])
            finally:
                self.open_aliases.remove(alias)
        raise self.unknown(node)

    def lookup(self, node: exp.Column) -> Column | None:
        if node.args.get("db") is not None:
            raise self.unknown(node)
        name = f"{node.table}.{node.name}" if node.table else node.name
        found = self.rows.columns.get(name.lower())
        return found and Column(found.name, found.type, self.resolver.place(node))

    def unknown(self, node: exp.Column) -> UnknownName:
        names = {name.rpartition(".")[2] for name in self.rows.columns} | set(self.aliases)
        shown = node.sql("duckdb")
        return UnknownName(
            f'there is no column "{shown}"', at=self.resolver.place(node), hint=did_you_mean(node.name, names)
        )

    # -- rows that stay rows ------------------------------------------------------------------------------------

    def projection(self, relation: Relation) -> Rows:
        for clause in ("order", "limit", "offset", "having", "distinct"):
            if self.select.args.get(clause):
                raise self.resolver.refuse(
                    f"{clause.upper()} cannot be used on rows of people",
                    self.select.args[clause],
                    "whose rows remain would depend on other people; aggregate first",
                )
        columns: dict[str, Expression] = {}
        for item in self.select.expressions:
            if isinstance(item, exp.Star):
                self.resolver.only(item, set())
                columns.update({name: column for name, column in self.rows.columns.items() if "." not in name})
            else:
                columns[item.alias_or_name.lower() or f"_{len(columns)}"] = self.lowering.lower(_unaliased(item))
        units = {
            name
            for name, expression in columns.items()
            if isinstance(expression, Column) and expression.name in self.rows.unit_columns
        }
        projected = Project(relation, tuple(columns.items()))
        return Rows(projected, {name: Column(name, column.type) for name, column in columns.items()}, frozenset(units))

    # -- rows that become a release -----------------------------------------------------------------------------

    def is_release(self) -> bool:
        parts = [*self.select.expressions, self.select.args.get("having"), self.select.args.get("order")]
        aggregates = any(part is not None and _has_aggregate(part) for part in parts)
        return aggregates or bool(self.select.args.get("group")) or self.is_distinct()

    def is_distinct(self) -> bool:
        distinct = self.select.args.get("distinct")
        return distinct is not None and not distinct.args.get("on")

    def release(self, relation: Relation) -> Answer:
        group = self.group_items()
        self.keys = [self.lowering.lower(item) for item in group]
        self.key_nodes = {type(item) for item in group} | {exp.Column}
        finish = self.finish()
        name = release_name(len(self.resolver.releases))
        finish.set("from_", exp.From(this=exp.to_table(name)))
        grouped = bool(group)
        aggregate = Aggregate(relation, tuple(self.keys), tuple(self.calls), grouped)
        self.resolver.releases.append((aggregate, self.rows.unit_columns))
        return Answer(finish)

    def group_items(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            plain = not any(_has_aggregate(item) for item in self.select.expressions)
            return [_unaliased(item) for item in self.select.expressions] if self.is_distinct() and plain else []
        for clause in _extra(group, {"expressions", "all"}):
            raise self.resolver.refuse(
                f"{clause.upper()} cannot be asked yet", group, "ask one GROUP BY at a time and combine with UNION ALL"
            )
        if group.args.get("all"):
            return [_unaliased(item) for item in self.select.expressions if not _has_aggregate(item)]
        return [self.group_item(item) for item in group.expressions]

    def group_item(self, item: exp.Expr) -> exp.Expr:
        """GROUP BY 2 is the second item of the SELECT list; a name that is no column is an alias of it."""
        if isinstance(item, exp.Column) and self.lookup(item) is None and not item.table:
            return _unaliased(self.aliases.get(item.name.lower(), item))
        if not (isinstance(item, exp.Literal) and item.is_int):
            return _unaliased(item)
        position = int(item.this)
        if not 1 <= position <= len(self.select.expressions):
            raise ProgrammingError(f"GROUP BY {position}: the SELECT list has {len(self.select.expressions)} items")
        return _unaliased(self.select.expressions[position - 1])

    def finish(self) -> exp.Select:
        """The same SELECT over the release's columns; HAVING becomes WHERE, since groups are rows now."""
        select = self.select.copy()
        for clause in ("where", "group", "having"):
            select.set(clause, None)
        select.set("expressions", [self.output(item) for item in self.select.expressions])
        having = self.select.args.get("having")
        if having is not None:
            select.set("where", exp.Where(this=self.above(having.this)))
        for clause in ("order", "limit", "offset", "distinct"):
            node = self.select.args.get(clause)
            if node is not None:
                select.set(clause, self.above(node, aliases_first=True))
        return select

    def output(self, item: exp.Expr) -> exp.Expr:
        if item.is_star and not isinstance(_unaliased(item), exp.Count):
            raise self.resolver.refuse("* would show rows of people", item, "name the groups and aggregates")
        return exp.alias_(self.above(_unaliased(item)), output_name(item), quoted=True)

    def above(self, node: exp.Expr, *, aliases_first: bool = False) -> exp.Expr:
        """The node with its keys and aggregates replaced by columns of the release."""
        found = self.key(node, aliases_first=aliases_first)
        if found is not None:
            return found
        if isinstance(node, exp.Column):
            if not node.table and node.name.lower() in self.aliases:
                return node.copy()
            raise self.ungrouped(node)
        if isinstance(node, exp.Query):
            return self.nested(node)
        if isinstance(node, exp.Filter) or (isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window)):
            return self.aggregate(node)
        if isinstance(node, exp.Filter | exp.Anonymous) and node.name.upper() == "MEAN":
            return self.aggregate(exp.Avg(this=node.expressions[0]))
        copy = node.copy()
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                copy.set(key, self.above(value, aliases_first=aliases_first))
            elif isinstance(value, list):
                copy.set(key, [self._above_any(part, aliases_first) for part in value])
        return copy

    def _above_any(self, part: object, aliases_first: bool) -> object:
        return self.above(part, aliases_first=aliases_first) if isinstance(part, exp.Expr) else part

    def key(self, node: exp.Expr, *, aliases_first: bool) -> exp.Expr | None:
        if type(node) not in self.key_nodes or _has_aggregate(node):
            return None
        if isinstance(node, exp.Column):
            named = not node.table and node.name.lower() in self.aliases
            if named and (aliases_first or self.lookup(node) is None):
                return None
        try:
            expression = self.lowering.lower(node)
        except Error:
            if isinstance(node, exp.Column):
                raise
            return None
        return column_node(f"_k{self.keys.index(expression)}") if expression in self.keys else None

    def ungrouped(self, node: exp.Column) -> ProgrammingError:
        return ProgrammingError(
            f'"{node.name}" must be in GROUP BY or inside an aggregate',
            at=self.resolver.place(node),
            hint=f"add {node.name} to GROUP BY, or write COUNT({node.name}), SUM({node.name}), ...",
        )

    def nested(self, node: exp.Query) -> exp.Expr:
        found = self.resolver.query(node.copy(), self.named)
        if isinstance(found, Rows):
            raise self.resolver.refuse(
                "a subquery would show rows of people", node, "let it aggregate: COUNT(*), SUM(x), AVG(x)"
            )
        return found.tree

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        call = self.call(node)
        if call not in self.calls:
            self.calls.append(call)
        return column_node(f"_a{self.calls.index(call)}")

    def call(self, node: exp.Expr) -> AggregateCall:
        """FILTER (WHERE c) and COUNT_IF(c) are the aggregate of CASE WHEN c THEN ... END."""
        place = self.resolver.place(node)
        if isinstance(node, exp.Filter):
            inner, condition = node.this, node.expression.this
            if type(inner) in AGGREGATES and not isinstance(inner.this, exp.Distinct):
                value = exp.Literal.number(1) if _is_star(inner) else inner.this
                chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])
                return self.call(
                    type(inner)(this=chosen) if not isinstance(inner, exp.CountIf) else exp.Count(this=chosen)
                )
            raise self.resolver.refuse("FILTER cannot be used on this aggregate", node, "put the condition into WHERE")
        name = AGGREGATES.get(type(node))
        if name is None or _extra(node, {"this", "big_int"}):
            raise self.resolver.refuse(
                f"{node.sql_name() if isinstance(node, exp.Func) else node.key.upper()} cannot be asked",
                node,
                "the aggregates are COUNT, COUNT(DISTINCT unit), SUM, AVG and COUNT_IF",
            )
        if isinstance(node, exp.CountIf):
            chosen = exp.Case(ifs=[exp.If(this=node.this.copy(), true=exp.Literal.number(1))])
            return AggregateCall(name, self.lowering.lower(chosen), distinct=False, at=place)
        if _is_star(node):
            return AggregateCall(name, None, distinct=False, at=place)
        argument, distinct = node.this, isinstance(node.this, exp.Distinct)
        if distinct:
            if len(argument.expressions) != 1 or argument.args.get("on"):
                raise self.resolver.refuse("DISTINCT takes one column here", node, "count one column at a time")
            (argument,) = argument.expressions
        if _has_aggregate(argument):
            raise ProgrammingError(
                "an aggregate cannot stand inside another", at=place, hint="aggregate in a subquery, then again outside"
            )
        return AggregateCall(name, self.lowering.lower(argument), distinct, place)


def release_name(number: int) -> str:
    """The table under which the finish reads a release."""
    return f"_release_{number}"


def declared_facts(column: DeclaredColumn) -> Facts:
    """What the schema says of a column; the scan makes it true."""
    if column.values is not None:
        return one_of(column.type, (exact_value(value) for value in column.values), nullable=column.nullable)
    if column.bounds is not None:
        low, high = (exact_value(end) for end in column.bounds)
        return bounded(column.type, low, high, nullable=column.nullable)  # type: ignore[arg-type]
    return fact_of(column.type, nullable=column.nullable)


def output_name(item: exp.Expr) -> str:
    """The name that the analyst gave, or the one DuckDB would give."""
    if item.alias_or_name and isinstance(item, exp.Alias | exp.Column):
        return str(item.alias_or_name)
    if isinstance(item, exp.Count) and _is_star(item):
        return "count_star()"
    return str(item.sql("duckdb", normalize_functions="lower"))


def _unaliased(item: exp.Expr) -> exp.Expr:
    while isinstance(item, exp.Alias | exp.Paren):
        item = item.this
    return item


def _is_star(node: exp.Expr) -> bool:
    """COUNT(*) and COUNT()."""
    return isinstance(node, exp.Count) and (node.this is None or isinstance(node.this, exp.Star))


def _qualified(alias: str, rows: Rows) -> dict[str, Column]:
    return {f"{alias}.{name}": column for name, column in rows.columns.items() if "." not in name}


def _extra(node: exp.Expr, known: set[str]) -> list[str]:
    """The clauses of a node that are not among the known ones."""
    return [key for key, value in node.args.items() if value not in (None, False, []) and key not in known]


def _has_aggregate(node: exp.Expr) -> bool:
    """Whether the node aggregates the rows below; a window's own function and subqueries do not count."""
    if isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window):
        return True
    if isinstance(node, exp.Anonymous) and node.name.upper() == "MEAN":
        return True
    return any(_has_aggregate(child) for child in node.iter_expressions())


def _nested_queries(select: exp.Expr) -> Iterable[exp.Expr]:
    """The outermost queries inside a query, but for those in FROM and WITH, which are resolved by then."""
    skipped = {id(part) for key in ("with_", "from_", "joins") for part in _as_list(select.args.get(key))}
    pending = [child for child in select.iter_expressions() if id(child) not in skipped]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            pending.extend(node.iter_expressions())


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]

"""Queries and their sources: WITH, FROM, subqueries, UNION: what is still rows of people, and what an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, UnknownName, Unsupported
from dpsql.expressions.lower import place_of
from dpsql.resolve.rows import Answer, Named, Rows, declared_rows
from dpsql.resolve.selection import Selection
from dpsql.resolve.syntax import extra_clauses, nested_queries
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.relation.relation import Aggregate
    from dpsql.schema.model import Schema
    from dpsql.source import Place

SELECT_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}
AGGREGATE_FIRST = "let it aggregate: COUNT(*), SUM(x), AVG(x)"


@dataclass
class Resolver:
    """Walks one query and collects its releases."""

    schema: Schema
    is_unique: Callable[[str, str], bool]
    source: str
    releases: list[tuple[Aggregate, frozenset[str]]] = field(default_factory=list)

    def place(self, node: exp.Expr) -> Place | None:
        return place_of(node, self.source)

    def refuse(self, what: str, node: exp.Expr, hint: str) -> Unsupported:
        return Unsupported(what, at=self.place(node), hint=hint)

    def query(self, node: exp.Expr, named: Named) -> Rows | Answer:
        if isinstance(node, exp.Subquery) and not extra_clauses(node, {"this", "alias"}):
            return self.query(node.this, named)
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, named)
        if not isinstance(node, exp.Select):
            raise self.refuse(f"{node.key.upper()} cannot be asked", node, "write a SELECT")
        named = self.with_clause(node, named)
        source = self.source_of(node, named)
        if source is None:
            return self.over_answers(node, named)
        for clause in extra_clauses(node, SELECT_CLAUSES):
            raise self.refuse(
                f"{clause.upper().rstrip('_')} cannot be used over rows of people",
                node.args[clause] if isinstance(node.args[clause], exp.Expr) else node,
                "aggregate first, in a subquery or WITH; above an aggregate all of SQL can be used",
            )
        return Selection(self, node, source, named).resolved()

    def answer(self, node: exp.Query, named: Named, *, refusal: str) -> exp.Query:
        """The query, which must be an answer; rows of people are refused."""
        found = self.query(node, named)
        if isinstance(found, Rows):
            raise self.refuse(refusal, node, AGGREGATE_FIRST)
        return exp.Subquery(this=found.tree) if isinstance(node, exp.Subquery) else found.tree

    def with_clause(self, select: exp.Query, named: Named) -> Named:
        clause = select.args.get("with_")
        if clause is None:
            return named
        if clause.args.get("recursive"):
            raise self.refuse("WITH RECURSIVE cannot be asked", clause, "write the steps as ordinary WITH queries")
        known = dict(named)
        for part in list(clause.expressions):
            found = self.query(part.this, known)
            if isinstance(found, Rows):
                known[part.alias.lower()] = self.renamed(found, part)
                part.pop()
            else:
                known[part.alias.lower()] = None
                part.this.replace(found.tree)
        if not clause.expressions:
            clause.pop()
        return known

    def renamed(self, rows: Rows, part: exp.Expr) -> Rows:
        """WITH name(a, b) AS ... gives the columns other names."""
        names = [name.name.lower() for name in part.args["alias"].args.get("columns") or ()]
        if len(names) > len(rows.columns) or len(set(names)) < len(names):
            raise ProgrammingError(
                f"the names {', '.join(names)} do not fit {len(rows.columns)} columns",
                at=self.place(part.args["alias"]),
                hint="give each column one name",
            )
        old = list(rows.columns.items())
        new = [(names[position] if position < len(names) else old[position][0]) for position in range(len(old))]
        return Rows(rows.relation, dict(zip(new, rows.columns.values(), strict=True)), rows.unit_columns)

    def set_operation(self, node: exp.SetOperation, named: Named) -> Answer:
        named = self.with_clause(node, named)
        refusal = f"{node.key.upper()} of rows of people cannot be asked yet"
        for side in (node.left, node.right):
            side.replace(self.answer(side, named, refusal=refusal))
        return Answer(node)

    def over_answers(self, select: exp.Select, named: Named) -> Answer:
        """A query that reads nothing but answers: only its subqueries need a look."""
        for nested in list(nested_queries(select)):
            nested.replace(self.answer(nested, named, refusal="a subquery would show rows of people"))
        return Answer(select)

    def source_of(self, select: exp.Select, named: Named) -> Rows | None:
        """The private rows that the query reads; None if it reads answers only, or nothing."""
        if select.args.get("from_") is None:
            return None
        nodes = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
        private = [rows for rows in (self.table(node, named) for node in nodes) if rows is not None]
        if private and len(nodes) > 1:
            raise self.refuse(
                "joins with private tables cannot be asked yet",
                nodes[1],
                "ask about one table, and join the aggregates",
            )
        return private[0] if private else None

    def table(self, node: exp.Expr, named: Named) -> Rows | None:
        """One item of FROM: private rows, or None for an answer."""
        if not isinstance(node, exp.Subquery | exp.Table) or not isinstance(node.this, exp.Query | exp.Identifier):
            raise self.refuse(f"FROM cannot read {node.key.upper()}", node, "read declared tables only")
        self.only(node, {"this", "alias"})
        rows = self.subquery(node, named) if isinstance(node, exp.Subquery) else self.by_name(node, named)
        if rows is None:
            return None
        if node.args.get("alias") and node.args["alias"].args.get("columns"):
            raise self.refuse("columns cannot be renamed there", node, "rename them in the SELECT")
        return rows.called(node.alias_or_name)

    def subquery(self, node: exp.Subquery, named: Named) -> Rows | None:
        found = self.query(node.this, named)
        if isinstance(found, Rows):
            return found
        node.this.replace(found.tree)
        return None

    def by_name(self, node: exp.Table, named: Named) -> Rows | None:
        name = node.name.lower()
        if name in named:
            return named[name]
        table = self.schema.table(name)
        if table is None:
            known = {*self.schema.tables, *named}
            raise UnknownName(
                f'there is no table "{node.name}"', at=self.place(node.this), hint=did_you_mean(node.name, known)
            )
        if table.is_public:
            raise self.refuse("public tables cannot be read yet", node, "ask about a private table")
        return declared_rows(table, self.schema, self.is_unique)

    def only(self, node: exp.Expr, keys: set[str]) -> None:
        """Refuses TABLESAMPLE, PIVOT and whatever else stands beside a table."""
        for clause in extra_clauses(node, keys):
            raise self.refuse(
                f"{clause.upper().rstrip('_')} cannot be used there", node, "read whole tables, and choose with WHERE"
            )

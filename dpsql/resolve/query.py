"""Queries: WITH, SELECT, UNION, and what they are, still rows of people or an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Error, Unsupported
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.limits import MOST_RELEASES
from dpsql.relation.relation import Scan
from dpsql.relation.size import check_size
from dpsql.resolve.apply_where import apply_where
from dpsql.resolve.bounds import is_wrapper
from dpsql.resolve.collected import mentioned_columns
from dpsql.resolve.desugar import desugar
from dpsql.resolve.free_columns import free_columns
from dpsql.resolve.inner import INNER, reports_name
from dpsql.resolve.people_shown import AGGREGATE_FIRST, SHOWS_ROWS, people_shown
from dpsql.resolve.per_key import PublicTables, grouped_by_key
from dpsql.resolve.project import project
from dpsql.resolve.qualified import is_qualified, read_qualified
from dpsql.resolve.read_from import from_items, read_from
from dpsql.resolve.rows import Answer, Item, Named, Rows, declared_rows, with_column_names
from dpsql.resolve.select import resolve_select
from dpsql.resolve.set_operations import combined
from dpsql.resolve.syntax import (
    extra_clauses,
    has_aggregate,
    is_defined,
    is_interval_end,
    nested_queries,
    stray_bounds,
    unwrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.engines.public import EmptyPostProcessor, Guarantees
    from dpsql.relation.relation import Aggregate
    from dpsql.resolve.adaptive_subqueries import AdaptiveSubquery
    from dpsql.schema.model import Schema
    from dpsql.source import Place

SELECT_CLAUSES = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "windows",
    "order",
    "limit",
    "offset",
    "distinct",
    "with_",
}
CLAUSES = {"pivots": "PIVOT", "sample": "SAMPLE"}
WHOLE_TABLES = "read whole tables and choose with WHERE; above an aggregate all of SQL can be used"
INSTEAD_OF = {
    "pivots": "write a column for each value: COUNT_IF(x = 'a') AS a, COUNT_IF(x = 'b') AS b",
}
RESERVED = ("_release", "_reports")


@dataclass(kw_only=True)
class Resolver:
    """Walks one query and collects its releases."""

    schema: Schema
    guarantees: Guarantees
    text: str
    post_processor: EmptyPostProcessor
    releases: list[tuple[Aggregate, frozenset[str]]] = field(default_factory=list)
    adaptive: list[AdaptiveSubquery] = field(default_factory=list)
    reports: list[Aggregate] = field(default_factory=list)
    """Randomised reports that are counted as they are."""
    mentioned: frozenset[str] = frozenset()
    """All names of columns in the query, in lower case; with a star among them."""

    def place(self, node: exp.Expr) -> Place | None:
        return place_of(node, self.text)

    def refuse(self, what: str, node: exp.Expr, hint: str) -> Unsupported:
        return Unsupported(what, at=self.place(node), hint=hint)

    def number_of(self, aggregate: Aggregate, unit_columns: frozenset[str]) -> int:
        """The release's number; what is asked twice is released once."""
        release = (aggregate, unit_columns)
        if release not in self.releases:
            if len(self.releases) == MOST_RELEASES:
                raise Unsupported(
                    f"the query aggregates more than {MOST_RELEASES} times over people", hint="ask in several queries"
                )
            self.releases.append(release)
        return self.releases.index(release)

    # -- queries ------------------------------------------------------------------------------------------------------

    def whole(self, tree: exp.Query) -> exp.Query:
        """The analyst's query as an answer. The tree is taken apart on the way: it must be nobody else's."""
        self.mentioned = mentioned_columns(tree)
        read_qualified(tree, self.guarantees.place, self.schema.tables, self.text)
        desugar(tree, self.is_public)
        for node in stray_bounds(tree):
            raise self.refuse(
                "bounds are for an aggregate", node, "write SUM(x, contribution_bounds_per_row => (0, 5))"
            )
        post_processing = self.answer(tree, {}, refusal=SHOWS_ROWS)
        for node in nodes_of(post_processing, exp.Anonymous):
            if is_wrapper(node):
                raise self.refuse(
                    "bounds are for aggregates over people", node, "this one is over answers: leave them out"
                )
            if is_interval_end(node) and INNER not in node.meta:
                raise self.refuse(
                    f"{node.name.upper()} speaks of an aggregate in the same SELECT",
                    node,
                    "write it beside the aggregate",
                )
        return post_processing

    def is_public(self, query: exp.Expr) -> bool:
        """Whether a query reads public tables alone, by their names."""
        tables = [table for table in nodes_of(query, exp.Table) if isinstance(table.this, exp.Identifier)]
        declared = [None if is_defined(table) else self.schema.table(table.name) for table in tables]
        return all(table is not None and table.is_public for table in declared)

    def query(self, node: exp.Expr, named: Named) -> Item:
        found = self.item_of(node, named)
        rows = found if isinstance(found, Rows) else found.rows
        if rows is not None:
            check_size(rows.relation, self.place(node))
        return found

    def item_of(self, node: exp.Expr, named: Named) -> Item:
        if isinstance(node, exp.Subquery) and not extra_clauses(node, {"this", "alias"}):
            return self.query(node.this, named)
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, named)
        if not isinstance(node, exp.Select):
            raise self.refuse("this cannot be asked here", node, "write a SELECT")
        named = self.with_clause(node, named)
        items = from_items(node, named, self)
        if not any(isinstance(item, Rows) for item in items):
            return self.over_answers(node, items, named)
        self.only(node, SELECT_CLAUSES)
        return resolve_select(read_from(node, items, named, self), node)

    def answer(self, node: exp.Query, named: Named, *, refusal: str) -> exp.Query:
        """The query, which must be an answer; rows of people are refused."""
        found = self.query(node, named)
        if isinstance(found, Rows):
            raise self.refuse(*people_shown(node, refusal, self.schema))
        tree = found.tree or node
        return exp.Subquery(this=tree) if isinstance(node, exp.Subquery) and tree is not node else tree

    def with_clause(self, select: exp.Query, named: Named) -> Named:
        clause = select.args.get("with_")
        if clause is None:
            return named
        if clause.args.get("recursive"):
            raise self.refuse("WITH RECURSIVE cannot be asked", clause, "write the steps as ordinary WITH queries")
        known = dict(named)
        for part in list(clause.expressions):
            if part.alias.lower().startswith(RESERVED):
                raise self.refuse(
                    f'names that start with "{RESERVED[0]}" or "{RESERVED[1]}" are our own',
                    part.args["alias"],
                    "use another name",
                )
            alias = part.args["alias"]
            found = with_column_names(self.query(part.this, known), alias, self.place(alias))
            if isinstance(found, Rows):
                known[part.alias.lower()] = found
                part.pop()
            else:
                if found.tree is not None:
                    part.this.replace(found.tree)
                known[part.alias.lower()] = Answer(None, found.rows, (part, dict(known)))
        if not clause.expressions:
            clause.pop()
        return known

    def set_operation(self, node: exp.SetOperation, named: Named) -> Item:
        named = self.with_clause(node, named)
        left, right = self.query(node.left, named), self.query(node.right, named)
        if isinstance(left, Rows) and isinstance(right, Rows):
            return combined(node, left, right, self.refuse)
        for side, found in ((node.left, left), (node.right, right)):
            if isinstance(found, Rows):
                raise self.refuse(
                    f"{node.key.upper()} of rows of people and of an answer cannot be asked", side, AGGREGATE_FIRST
                )
            side.replace(found.tree or side)
        self.resolve_nested(node, named)
        return Answer(node)

    def resolve_nested(self, node: exp.Expr, named: Named) -> None:
        """Subqueries of an answer must be answers too."""
        for part in map(partial(self._over_each_key, named=named), list(nested_queries(node))):
            part.replace(self.answer(part, named, refusal="a subquery would show rows of people"))

    def _over_each_key(self, query: exp.Query, named: Named) -> exp.Query:
        """A subquery over people that reads the public row outside becomes one over an answer for each of its keys."""
        select, outside = unwrapped(query), [*free_columns(query, named, self.schema)]
        people = [table for table in nodes_of(select, exp.Table) if self._is_of_people(table, named)]
        if not outside or not people:
            return query
        name = f"_key{len(self.releases)}"
        public = PublicTables(query.find_ancestor(exp.Select), self.schema)
        found = grouped_by_key(select, {id(column) for column in outside}, public, name)
        if found is None or not found.complete:
            return query
        rows = exp.Subquery(this=found.grouped, alias=exp.TableAlias(this=exp.to_identifier(f"{name}_rows")))
        meets = [exp.EQ(this=exp.column(key, f"{name}_rows"), expression=copied(its)) for key, its in found.keys]
        value = exp.Select(expressions=[found.value], from_=exp.From(this=rows), where=exp.Where(this=exp.and_(*meets)))
        one = exp.Subquery(this=value)
        query.replace(one)
        return one

    def _is_of_people(self, table: exp.Table, named: Named) -> bool:
        name = table.name.lower()
        if name in named and not is_qualified(table):
            return isinstance(named[name], Rows)
        declared = None if is_defined(table) else self.schema.table(name)
        return declared is not None and not declared.is_public

    def over_answers(self, select: exp.Select, items: list[Item], named: Named) -> Answer:
        """A query that reads no rows of people: only its subqueries need a look."""
        rows = None if any(True for _ in nested_queries(select)) else self.public_rows(select, items, named)
        self.resolve_nested(select, named)
        return Answer(select, rows)

    def public_rows(self, select: exp.Select, items: list[Item], named: Named) -> Rows | None:
        """The query as rows of public tables, where it is nothing more than that.

        What has no meaning among rows of people may have one in DuckDB, which then reads the query as it is. To see
        whether it has is to read it: nothing is asked or released on the way, so there is nothing to take back.
        """
        simple = not extra_clauses(select, {"expressions", "from_", "joins", "where", "with_", "distinct"})
        plain = all(isinstance(item, Answer) and item.rows is not None for item in items)
        if not items or not plain or not simple or any(map(has_aggregate, select.expressions)):
            return None
        try:
            return project(apply_where(read_from(select, items, named, self), select.args.get("where")), select)
        except Error:
            return None

    def reports_number(self, aggregate: Aggregate) -> int:
        if aggregate not in self.reports:
            self.reports.append(aggregate)
        return self.reports.index(aggregate)

    def public_scans(self, post_processing: exp.Expr) -> Iterator[Scan | Aggregate]:
        """The public tables that a finished query still reads by name, and the reports that it counts."""
        tables = [table for table in nodes_of(post_processing, exp.Table) if not is_defined(table)]
        names = {table.name for table in tables}
        if any(reports_name(number) in names for number in range(len(self.reports))):
            yield from self.reports  # all of them, since they are known by their place
        for name in dict.fromkeys(table.name.lower() for table in tables):
            table = self.schema.table(name)
            if table is not None:
                scan = declared_rows(table, self.schema, self.guarantees, reports=False).relation
                assert isinstance(scan, Scan)
                if scan.unit is not None:  # every reading of it should have been resolved
                    raise Unsupported(f'"{name}" cannot be read there', hint="name its aggregate in a WITH query")
                yield scan

    def only(self, node: exp.Expr, keys: set[str]) -> None:
        """Refuses TABLESAMPLE, PIVOT and whatever else stands beside what is understood."""
        for clause in extra_clauses(node, keys):
            value = node.args[clause]
            word = CLAUSES.get(clause, clause.upper().rstrip("_"))
            raise self.refuse(
                f"{word} cannot be used over rows of people",
                value if isinstance(value, exp.Expr) else node,
                INSTEAD_OF.get(clause, WHOLE_TABLES),
            )

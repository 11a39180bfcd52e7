"""Queries: WITH, SELECT and UNION, each resolved to private rows or to an answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from dpsql.aggregates.function import ErrorBars
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import Error, Unsupported
from dpsql.expressions.casts import cast_to
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.expressions.tree import Call, Column, common_type, type_properties
from dpsql.limits import MOST_RELEASES
from dpsql.relation.relation import Aggregate, Project, Scan, SetKind, SetOp
from dpsql.relation.units import check_size
from dpsql.sql.desugar import desugar
from dpsql.sql.from_clause import from_items, read_from
from dpsql.sql.group_by import per_unit, read_groups, without_null_group
from dpsql.sql.per_key import PublicTables, free_columns, grouped_by_key
from dpsql.sql.post_processing import PostProcessing
from dpsql.sql.privacy_options import clause_of
from dpsql.sql.project import AGGREGATE_FIRST, SHOWS_ROWS, people_shown, project, with_columns
from dpsql.sql.randomized import as_reports, mentioned_columns
from dpsql.sql.rows import (
    INNER,
    Item,
    Named,
    PrivateRows,
    PublicQuery,
    declared_rows,
    internal_column,
    internal_name,
    release_name,
    reports_name,
    with_column_names,
)
from dpsql.sql.scope import is_qualified, read_qualified
from dpsql.sql.subqueries import apply_where
from dpsql.sql.syntax import (
    extra_clauses,
    has_aggregate,
    is_defined,
    is_interval_end,
    is_star,
    is_wrapper,
    nested_queries,
    output_name,
    stray_bounds,
    unaliased,
    unwrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dpsql.engines.base import EmptyPostProcessor, Guarantees
    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.model import Schema
    from dpsql.schema.types import ColumnType
    from dpsql.sql.adaptive import AdaptiveSubquery
    from dpsql.sql.group_by import Groups
    from dpsql.sql.per_key import Determined
    from dpsql.sql.scope import Scope
    from dpsql.sql.subqueries import Filtered

# -- aggregate ---------------------------------------------------------------------------------------------------------
# A SELECT with groups: of each person's own rows, which gives rows of people again, or across people, a release.


def aggregate(below: Filtered, select: exp.Select) -> Item:
    is_nested = select.parent is not None
    groups = read_groups(below, select)
    if groups.below.rows.tell_unit(groups.keys) and not groups.totals:
        if below.rows.null_group is not None:
            raise below.rows.null_group.refuse()
        return per_unit(groups, select)
    if is_nested and (apart := without_null_group(groups)) is not None:
        if not select.args.get("group"):  # DISTINCT, which groups by its items
            select = copied(select)
            select.set("distinct", None)
        return per_unit(apart, select)
    refuse_people_apart(groups)
    left_out = below.rows.null_group
    if left_out is not None and (groups.keys or not all(map(left_out.adds_nothing, groups.calls))):
        raise left_out.refuse()
    refuse_equal_keys(groups)
    return _release(groups, select)


def refuse_people_apart(groups: Groups) -> None:
    """Groups of one person each are never shown, so a release of such groups would be an empty answer."""
    rows = groups.below.rows
    together = {name for _, names in rows.passed_on(_by_name(groups.keys)) for name in names}
    for item, key in zip(groups.items, groups.keys, strict=True):
        if rows.key_of(key) is None and not (isinstance(key, Column) and key.name in together):
            continue
        if rows.tell_unit(groups.keys):
            what, hint = "totals over groups of one person each", "group by the unit in a subquery, without totals"
        else:
            what = "the key identifies people but is NULL for some, who would become one group"
            hint = "COALESCE the units of both sides of the outer join, or add WHERE ... IS NOT NULL"
        raise groups.below.scope.resolver.refuse(f"{what}: this is not supported", item, hint)


def _by_name(keys: Iterable[Expression]) -> dict[str, Expression]:
    return {key.name: key for key in keys if isinstance(key, Column)}


def refuse_equal_keys(groups: Groups) -> None:
    """Refuses equal keys: if a total omits one of them, the engine omits both."""
    if groups.totals and len(set(groups.keys)) < len(groups.keys):
        raise groups.below.scope.resolver.refuse(
            "two keys of the totals are the same expression",
            groups.items[-1],
            "name it once, and repeat it in an outer SELECT",
        )


def _release(groups: Groups, select: exp.Select) -> PublicQuery:
    below, scope = groups.below, groups.below.scope
    kept = below.rows.kept
    keeps_rows = kept is not None and not kept.is_inner(below.conditions)

    def column(call: AggregateCall) -> exp.Expr:
        answer = _answer_column(groups.answer_name(call))
        return (
            exp.Greatest(this=answer, expressions=[exp.Literal.number(1)]) if keeps_rows and _is_star(call) else answer
        )

    above = PostProcessing(
        groups,
        column=column,
        subquery=lambda node: scope.resolver.answer(
            copied(node), scope.named, refusal="a subquery would show rows of people"
        ),
    )
    post_processing = _post_processing(above, select)
    calls = groups.calls
    if not groups.keys and not calls:
        raise scope.resolver.refuse("there is no aggregate", select, "write COUNT(*), SUM(x) or AVG(x)")
    listed = None if kept is None else kept.groups(groups.keys, calls, below.conditions)
    released = Aggregate(
        source=below.rows.relation,
        keys=groups.keys,
        calls=tuple(calls),
        grouped=bool(groups.keys),
        totals=groups.totals,
        listed=listed if groups.keys else None,
        listed_once=keeps_rows and any(map(_is_star, calls)),
        clause=clause_of(select),
    )
    if kept is not None and released.listed_once and not groups.keys:
        raise kept.refuse("COUNT(*) would count these too", "write COUNT(v.id), or group by the key")
    released = as_reports(released)
    # Subqueries in the SELECT list have been numbered by now.
    if released.totals and released.reports is None and not all(map(_adds_up, calls)):
        post_processing.set("from_", exp.From(this=_level_by_level(released, groups, scope.resolver)))
        return PublicQuery(post_processing)
    if released.reports is not None and released.reports.is_free:
        name = reports_name(scope.resolver.reports_number(released))
    else:
        name = release_name(scope.resolver.number_of(released, below.rows.all_units))
    post_processing.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(name))))
    looked_up = dict.fromkeys(groups.determined.values())
    post_processing.set("joins", [one.joined(groups.determined_name(one), above.key_column) for one in looked_up])
    return PublicQuery(post_processing)


def _adds_up(call: AggregateCall) -> bool:
    """Whether an aggregate of a total follows from what is measured of its groups."""
    return not call.distinct and AGGREGATES[call.name].error in (ErrorBars.INTERVAL, ErrorBars.WHERE_STRAIGHT)


def _level_by_level(asked: Aggregate, groups: Groups, resolver: Resolver) -> exp.Subquery:
    """Each level of totals as a release of its own, bounded by itself, one below the other.

    SELECT _k0, _a0, 0 AS _g0 FROM _release_0 UNION ALL SELECT NULL AS _k0, _a0, 1 AS _g0 FROM _release_1
    """
    answers = [groups.answer_name(call) for call in groups.calls]
    parts: list[exp.Query] = []
    for kept in asked.totals:
        kept = tuple(sorted(kept))
        released = replace(asked, keys=tuple(asked.keys[key] for key in kept), grouped=bool(kept), totals=())
        released = released if kept else replace(released, listed=None)
        items: list[exp.Expr] = []
        for number, key in enumerate(asked.keys):
            own = Column(f"_k{kept.index(number)}", key.type) if number in kept else None
            value = exp.Null() if own is None else internal_column(own)
            left_out = exp.Literal.number(int(own is None))
            items += [exp.alias_(value, f"_k{number}"), exp.alias_(left_out, f"_g{number}")]
        name = release_name(resolver.number_of(released, groups.below.rows.all_units))
        table = exp.Table(this=exp.to_identifier(name))
        parts.append(exp.Select(expressions=[*items, *map(_answer_column, answers)], from_=exp.From(this=table)))
    rows = reduce(lambda above, part: exp.Union(this=above, expression=part, distinct=False), parts)
    return exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier("_levels")))


def _is_star(call: AggregateCall) -> bool:
    return call.name == "COUNT" and not call.arguments


def _answer_column(name: str) -> exp.Expr:
    column = exp.column(name)
    column.meta[INNER] = True
    return column


def _post_processing(above: PostProcessing, select: exp.Select) -> exp.Select:
    """The same SELECT over the release's columns; HAVING becomes WHERE, since groups are rows now."""
    post_processing = exp.Select(expressions=[_output(item, above) for item in select.expressions])
    post_processing.set("with_", select.args.get("with_"))
    having = select.args.get("having")
    if having is not None:
        post_processing.set("where", exp.Where(this=above.rewritten(having.this)))
    post_processing.set("windows", [above.rewritten(window) for window in select.args.get("windows") or ()])
    for clause in ("qualify", "order", "limit", "offset", "distinct"):
        node = select.args.get(clause)
        post_processing.set(clause, node and above.rewritten(node, aliases_first=True))
    return post_processing


def _output(item: exp.Expr, above: PostProcessing) -> exp.Expr:
    if item.is_star and not is_star(unaliased(item)):
        raise above.scope.resolver.refuse("* would show rows of people", item, "name the groups and aggregates")
    name = exp.to_identifier(output_name(item), quoted=True)
    return exp.Alias(this=above.rewritten(unaliased(item)), alias=name)


# -- select ------------------------------------------------------------------------------------------------------------
# One SELECT over rows, clause by clause: FROM, WHERE, and then its list, which gives rows or an answer.


def resolve_select(scope: Scope, select: exp.Select) -> Item:
    with_columns(select, scope)
    below = apply_where(scope, select.args.get("where"))
    if _is_grouped(select):
        return aggregate(below, select)
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") or not below.rows.is_private:
        return project(below, select)
    # DISTINCT with the unit keeps people apart; without it it lists what anybody has, which is a release.
    below = below.reading(select.expressions)
    return project(below, select) if _shows_unit(below, select) else aggregate(below, select)


def _is_grouped(select: exp.Select) -> bool:
    parts = [*select.expressions, *(select.args.get(clause) for clause in ("having", "order", "qualify"))]
    return bool(select.args.get("group")) or any(part is not None and has_aggregate(part) for part in parts)


def _shows_unit(below: Filtered, select: exp.Select) -> bool:
    items = [item for item in select.expressions if not item.is_star]
    if len(items) < len(select.expressions):
        return bool(below.rows.unit_columns)
    plain = [unaliased(item) for item in items if item.find(exp.Window) is None]
    return below.rows.tell_unit([below.scope.lowering.lower(item) for item in plain])


# -- set operations ----------------------------------------------------------------------------------------------------
# UNION, INTERSECT and EXCEPT of rows that keep their units.

if TYPE_CHECKING:
    Refuse = Callable[[str, exp.Expr, str], Unsupported]

WORDS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


def combined(node: exp.SetOperation, left: PrivateRows, right: PrivateRows, refuse: Refuse) -> PrivateRows:
    word = WORDS[type(node)]
    if extra_clauses(node, {"this", "expression", "distinct", "with_", "by_name"}):
        raise refuse(f"{word} of rows of people with more clauses is not supported", node, "remove them")
    if not node.args.get("distinct"):
        word += " ALL"
    for kept in (left.kept, right.kept):
        if kept is not None:
            raise kept.refuse(
                f"{word} would combine these with rows of people", "aggregate first, or use an inner join"
            )
    mine, its = list(left.plain_columns.items()), list(right.plain_columns.values())
    if node.args.get("by_name"):
        if right.plain_columns.keys() != left.plain_columns.keys():
            raise refuse(f"{word} BY NAME of different columns", node, "select columns of the same names on both sides")
        its = [right.plain_columns[name] for name, _ in mine]
    if len(mine) != len(its):
        raise refuse(f"{word} of {len(mine)} columns and {len(its)}", node, "select the same columns on both sides")
    if left.unit_type != right.unit_type:
        raise refuse("the units of the two sides have different types", node, "combine tables of one unit")
    pairs = [(internal_name(name), column, other) for (name, column), other in zip(mine, its, strict=True)]
    keys = {
        name: key
        for name, column, other in pairs
        if (key := left.key_of(column)) is not None and key == right.key_of(other) and column.type == other.type
    }
    present = {name for name, *pair in pairs if name in keys and left.tells_unit(pair[0]) and right.tells_unit(pair[1])}
    if word != "UNION ALL" and not present:
        raise refuse(
            f"{word} would compare rows of different people",
            node,
            "select the unit on both sides, in the same place, or use UNION ALL",
        )
    kinds = [_kind(column, other, node, refuse) for (_, column), other in zip(mine, its, strict=True)]
    names = [internal_name(name) for name, _ in mine]
    relation = SetOp(
        cast(SetKind, word),
        _aligned(left, [column for _, column in mine], names, kinds),
        _aligned(right, its, names, kinds),
    )
    columns = {name: Column(internal_name(name), kind) for (name, _), kind in zip(mine, kinds, strict=True)}
    return PrivateRows(
        relation=relation,
        columns=columns,
        unit_keys=keys,
        present=frozenset(frozenset({name}) for name in present),
        unit_type=left.unit_type,
    )


def _kind(column: Column, other: Column, node: exp.Expr, refuse: Refuse) -> ColumnType:
    kind = common_type([type_properties(column), type_properties(other)])
    if kind is None:
        raise refuse(f"{column.type.name} and {other.type.name} cannot be combined", node, "CAST one of them")
    return kind


def _aligned(rows: PrivateRows, columns: list[Column], names: list[str], kinds: list[ColumnType]) -> Project:
    values = [
        column if column.type == kind else Call(cast_to(kind), (column,), kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return Project(rows.relation, tuple(zip(names, values, strict=True)))


# -- query -------------------------------------------------------------------------------------------------------------

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
WHOLE_TABLES = "read whole tables and filter with WHERE; above an aggregate all of SQL is supported"
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
    determined: list[Determined] = field(default_factory=list)
    """What is looked up in public tables, once it is sure that the keys determine it."""
    reports: list[Aggregate] = field(default_factory=list)
    """Randomised reports that are counted as they are."""
    mentioned: frozenset[str] = frozenset()
    """All names of columns in the query, in lower case; with a star among them."""

    def place(self, node: exp.Expr) -> Place | None:
        return place_of(node, self.text)

    def refuse(self, what: str, node: exp.Expr, hint: str) -> Unsupported:
        return Unsupported(what, at=self.place(node), hint=hint)

    def number_of(self, aggregate: Aggregate, unit_columns: frozenset[str]) -> int:
        """The release's number; equal releases share one."""
        release = (aggregate, unit_columns)
        if release not in self.releases:
            if len(self.releases) == MOST_RELEASES:
                raise Unsupported(
                    f"the query aggregates more than {MOST_RELEASES} times over people",
                    hint="split it into several queries",
                )
            self.releases.append(release)
        return self.releases.index(release)

    # -- queries ------------------------------------------------------------------------------------------------------

    def whole(self, tree: exp.Query) -> exp.Query:
        """The analyst's query as an answer. This modifies the tree, so the caller must not share it."""
        self.mentioned = mentioned_columns(tree)
        read_qualified(tree, self.guarantees.place, self.schema.tables, self.text)
        desugar(tree, self.is_public)
        for node in stray_bounds(tree):
            raise self.refuse(
                "bounds belong to an aggregate", node, "write SUM(x, contribution_bounds_per_row => (0, 5))"
            )
        post_processing = self.answer(tree, {}, refusal=SHOWS_ROWS)
        for node in nodes_of(post_processing, exp.Anonymous):
            if is_wrapper(node):
                raise self.refuse(
                    "bounds apply only to aggregates over people", node, "this one is over answers: remove them"
                )
            if is_interval_end(node) and INNER not in node.meta:
                raise self.refuse(
                    f"{node.name.upper()} needs its aggregate in the same SELECT",
                    node,
                    "write it in the SELECT of the aggregate",
                )
        return post_processing

    def is_public(self, query: exp.Expr) -> bool:
        """Whether a query reads only public tables, by their names."""
        tables = [table for table in nodes_of(query, exp.Table) if isinstance(table.this, exp.Identifier)]
        declared = [None if is_defined(table) else self.schema.table(table.name) for table in tables]
        return all(table is not None and table.is_public for table in declared)

    def query(self, node: exp.Expr, named: Named) -> Item:
        found = self.item_of(node, named)
        rows = found if isinstance(found, PrivateRows) else found.rows
        if rows is not None:
            check_size(rows.relation, self.place(node))
        return found

    def item_of(self, node: exp.Expr, named: Named) -> Item:
        if isinstance(node, exp.Subquery) and not extra_clauses(node, {"this", "alias"}):
            return self.query(node.this, named)
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, named)
        if not isinstance(node, exp.Select):
            raise self.refuse("this is not supported here", node, "write a SELECT")
        named = self.with_clause(node, named)
        items = from_items(node, named, self)
        if not any(isinstance(item, PrivateRows) for item in items):
            return self.over_answers(node, items, named)
        self.only(node, SELECT_CLAUSES)
        return resolve_select(read_from(node, items, named, self), node)

    def answer(self, node: exp.Query, named: Named, *, refusal: str) -> exp.Query:
        """The query, if it returns an answer. A query that returns rows of people is refused."""
        found = self.query(node, named)
        if isinstance(found, PrivateRows):
            raise self.refuse(*people_shown(node, refusal, self.schema))
        tree = found.tree or node
        return exp.Subquery(this=tree) if isinstance(node, exp.Subquery) and tree is not node else tree

    def with_clause(self, select: exp.Query, named: Named) -> Named:
        clause = select.args.get("with_")
        if clause is None:
            return named
        if clause.args.get("recursive"):
            raise self.refuse("WITH RECURSIVE is not supported", clause, "write the steps as ordinary WITH queries")
        known = dict(named)
        for part in list(clause.expressions):
            if part.alias.lower().startswith(RESERVED):
                raise self.refuse(
                    f'names that start with "{RESERVED[0]}" or "{RESERVED[1]}" are reserved',
                    part.args["alias"],
                    "use another name",
                )
            alias = part.args["alias"]
            found = with_column_names(self.query(part.this, known), alias, self.place(alias))
            if isinstance(found, PrivateRows):
                known[part.alias.lower()] = found
                part.pop()
            else:
                if found.tree is not None:
                    part.this.replace(found.tree)
                known[part.alias.lower()] = PublicQuery(None, found.rows, (part, dict(known)))
        if not clause.expressions:
            clause.pop()
        return known

    def set_operation(self, node: exp.SetOperation, named: Named) -> Item:
        named = self.with_clause(node, named)
        left, right = self.query(node.left, named), self.query(node.right, named)
        for rows in (left, right):
            if isinstance(rows, PrivateRows) and rows.null_group is not None:
                raise rows.null_group.refuse()
        if isinstance(left, PrivateRows) and isinstance(right, PrivateRows):
            return combined(node, left, right, self.refuse)
        for side, found in ((node.left, left), (node.right, right)):
            if isinstance(found, PrivateRows):
                raise self.refuse(
                    f"{node.key.upper()} of people's rows with an answer is not supported", side, AGGREGATE_FIRST
                )
            side.replace(found.tree or side)
        self.resolve_nested(node, named)
        return PublicQuery(node)

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
            return isinstance(named[name], PrivateRows)
        declared = None if is_defined(table) else self.schema.table(name)
        return declared is not None and not declared.is_public

    def over_answers(self, select: exp.Select, items: list[Item], named: Named) -> PublicQuery:
        """Resolves a query that reads no rows of people: only its subqueries can contain private tables."""
        rows = None if any(True for _ in nested_queries(select)) else self.public_rows(select, items, named)
        self.resolve_nested(select, named)
        return PublicQuery(select, rows)

    def public_rows(self, select: exp.Select, items: list[Item], named: Named) -> PrivateRows | None:
        """The query as rows of public tables, if it reads nothing else.

        What has no meaning among rows of people may have one in DuckDB, which then reads the query as it is. To see
        whether it has is to read it: nothing is asked or released on the way, so there is nothing to take back.
        """
        simple = not extra_clauses(select, {"expressions", "from_", "joins", "where", "with_", "distinct"})
        plain = all(isinstance(item, PublicQuery) and item.rows is not None for item in items)
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
                    raise Unsupported(f'"{name}" is not visible there', hint="name its aggregate in a WITH query")
                yield scan

    def only(self, node: exp.Expr, keys: set[str]) -> None:
        """Refuses TABLESAMPLE, PIVOT and any other clause that is not supported."""
        for clause in extra_clauses(node, keys):
            value = node.args[clause]
            word = CLAUSES.get(clause, clause.upper().rstrip("_"))
            raise self.refuse(
                f"{word} is not supported over rows of people",
                value if isinstance(value, exp.Expr) else node,
                INSTEAD_OF.get(clause, WHOLE_TABLES),
            )

"""Subqueries in expressions: tests (EXISTS, IN), correlated values, and constants.

WHERE a = 1 OR p IN (SELECT ...)                                      a test: a column that says whether it holds
WHERE n > (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      reads the outer row: a column of the row
WHERE n > (SELECT AVG(amount) FROM orders)                            a constant, which is asked first
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.lower import all_of
from dpsql.expressions.parser_tree import nodes_of
from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.relation.relation import Filter, Join, Mark, PerUnit, SemiJoin
from dpsql.relation.units import different_units
from dpsql.schema.types import Boolean
from dpsql.sql.adaptive import adaptive_rows, adaptive_value
from dpsql.sql.calls import aggregate_call, per_unit_type
from dpsql.sql.from_clause import equal, equating_units, from_items, read_from, same_unit_said
from dpsql.sql.per_key import PublicTables, free_columns, grouped_by_key
from dpsql.sql.rows import INNER, PrivateRows, PublicQuery, internal_column
from dpsql.sql.scope import COMPARE_UNITS, READS_OUTSIDE
from dpsql.sql.syntax import (
    conditions_of,
    copy_in_place,
    extra_clauses,
    from_nodes,
    has_aggregate,
    is_aggregate,
    is_subquery,
    is_test,
    unaliased,
    unwrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dpsql.errors import Place
    from dpsql.relation.relation import AggregateCall, Relation
    from dpsql.sql.scope import Scope

# -- constant subqueries -----------------------------------------------------------------------------------------------
# Subqueries that read nothing of the row: each is asked first, and is a constant by the time that the row is read.


def subqueries_in(nodes: Iterable[exp.Expr], scope: Scope) -> Iterator[exp.Expr]:
    """The outermost subqueries, including those in the aliases that are used."""
    pending, aliases = [*nodes][::-1], set[str]()
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Column):
            item = scope.alias(node)
            if item is not None and node.name.lower() not in aliases and not scope.is_column(node):
                aliases.add(node.name.lower())
                pending.append(item)
        elif is_subquery(node):
            yield node
        elif not isinstance(node, exp.Any | exp.All):  # these have no meaning, whatever stands in them
            pending.extend([*node.iter_expressions()][::-1])


def outside_columns(query: exp.Expr, scope: Scope) -> Iterator[exp.Column]:
    """The columns of a subquery that are of the row outside."""
    for column in free_columns(query, scope.named, scope.resolver.schema):
        if scope.is_column(column):
            yield column


def reads_outside(query: exp.Expr, scope: Scope) -> bool:
    return any(True for _ in outside_columns(query, scope))


def read_constants(scope: Scope, nodes: Iterable[exp.Expr]) -> Scope:
    """The scope in which all subqueries of these nodes have been read, as constants."""
    for node in subqueries_in(nodes, scope):
        if not scope.knows(node):
            scope = scope.knowing(node, constant_value(node, scope))
    return scope


def read_constants_in_on(scope: Scope, nodes: Sequence[exp.Expr]) -> Scope:
    for node in subqueries_in(nodes, scope):
        if is_test(node) or reads_outside(node, scope):
            raise scope.resolver.refuse("a subquery in ON cannot read the joined rows", node, "put it into WHERE")
    return read_constants(scope, nodes)


def constant_value(node: exp.Expr, scope: Scope) -> Expression:
    query = copy_in_place(unwrapped(node))
    found = scope.resolver.query(query, scope.named)
    if isinstance(found, PrivateRows):
        raise scope.resolver.refuse("a subquery would show rows of people", node, "aggregate: (SELECT AVG(x) ...)")
    return adaptive_value(scope.resolver, found.tree or query, scope.named, node)


# -- semi joins --------------------------------------------------------------------------------------------------------
# WHERE unit IN (SELECT unit ...), WHERE [NOT] EXISTS (... same unit ...), WHERE x IN (SELECT y FROM a public table).
#
# Whether a person's rows are kept may depend on that person's other rows, and on public rows; never on other people's.

CLAUSES = {"expressions", "from_", "joins", "where"}
MAYBE_NULL = "a unit that an outer join may have left NULL cannot be used with [NOT] IN"
MEMBERSHIP_HINT = "compare the unit with the unit: WHERE customer_id IN (SELECT customer_id FROM ...)"


@dataclass(frozen=True)
class SubqueryTest:
    """IN or EXISTS over a subquery."""

    query: exp.Expr
    values: tuple[exp.Expr, ...]
    """What stands before IN, part by part."""
    negated: bool
    node: exp.Expr


def as_test(node: exp.Expr) -> SubqueryTest | None:
    """The node as a test, if it is one."""
    if isinstance(node, exp.Not):
        inner = as_test(unaliased(node.this))
        return inner and replace(inner, negated=not inner.negated)
    if not is_test(node):
        return None
    if isinstance(node, exp.Exists):
        return SubqueryTest(node.this, (), False, node)
    before = unaliased(node.this)
    values = before.expressions if isinstance(before, exp.Tuple) else [before]
    return SubqueryTest(unwrapped(node.args["query"]), tuple(values), False, node)


@dataclass(frozen=True)
class Match:
    """The rows among which a match is looked for, what makes one a match, and what a NULL may leave open."""

    other: Relation
    condition: Expression | None
    compared: tuple[Expression, ...] = ()
    units: tuple[Expression, ...] = ()
    """What is compared as the unit of the rows outside. Where it is NULL, other people's rows would decide."""
    at: Place | None = None

    def of(self, rows: PrivateRows, *, negated: bool) -> SemiJoin:
        """The test of these rows, once it is known what they are joined of."""
        if not all(map(rows.tells_unit, self.units)):
            raise Unsupported(MAYBE_NULL, at=self.at, hint="use the unit that is never NULL, or use EXISTS")
        return SemiJoin(rows.relation, self.other, self.condition, negated, self.compared)


@dataclass(frozen=True)
class MarkColumn:
    """The column that says whether a row has a match."""

    match: Match
    name: str

    def added_to(self, rows: PrivateRows) -> PrivateRows:
        return replace(rows, relation=Mark(self.match.of(rows, negated=False), self.name))


@dataclass(frozen=True)
class Inside:
    """The subquery's own rows, and the conditions that also read the row outside."""

    scope: Scope
    rows: PrivateRows
    linking: list[Expression]

    @property
    def is_of_one_unit(self) -> bool:
        """Whether its rows are public, or of the same unit as the row outside."""
        assert self.scope.outer is not None
        outside = self.scope.outer.outside
        return not self.rows.is_private or bool(equating_units(self.linking, outside, self.rows))


def read_inside(query: exp.Expr, outer: Scope, node: exp.Expr) -> Inside:
    resolver = outer.resolver
    select = copy_in_place(query)
    if not isinstance(select, exp.Select) or not from_nodes(select) or extra_clauses(select, CLAUSES):
        raise resolver.refuse(
            "a subquery that reads the outer row must be a plain SELECT", node, "move the rest into a WITH query"
        )
    scope = read_from(select, from_items(select, outer.named, resolver), outer.named, resolver, outer)
    parts_of_where = conditions_of(select.args.get("where"))
    conditions = [part for part in parts_of_where if as_test(part) is None]
    tests = [test for test in map(as_test, parts_of_where) if test is not None]
    scope = read_constants(scope, [*conditions, *scope.source.conditions])
    parts = [scope.condition(part, "WHERE") for part in conditions]
    own = {column.name for column in scope.source.columns.values() if column is not None} | scope.source.internal_names
    inside = [part for part in parts if names_read(part) <= own]
    rows = scope.source.joined(scope.condition, inside)
    whole = all_of(inside)
    if whole is not None:
        rows = replace(rows, relation=Filter(rows.relation, whole))
    for test in tests:
        rows = _tested(rows, test, scope)
    if rows.null_group is not None and not rows.null_group.is_left_out(parts):
        raise rows.null_group.refuse()
    return Inside(scope, rows, [part for part in parts if part not in inside])


def _tested(rows: PrivateRows, test: SubqueryTest, scope: Scope) -> PrivateRows:
    """The rows inside for which a test of theirs holds."""
    match = match_of(test, replace(scope, outer=None), is_open=test.negated)
    return replace(rows, relation=match.of(rows, negated=test.negated))


def other_people(inside: Inside, outer: Scope, node: exp.Expr, otherwise: str | None = None) -> Unsupported:
    """The refusal of a comparison with other people; `otherwise` is an additional way out."""
    return different_units(same_unit_said(outer.outside, inside.rows), outer.resolver.place(node), otherwise)


def match_of(test: SubqueryTest, scope: Scope, *, is_open: bool) -> Match:
    """The match that the test looks for. `is_open`: NOT precedes the test, so "no match" must differ from "unknown"."""
    if isinstance(test.node, exp.In):
        return _member(test, scope, is_open=is_open)
    if isinstance(test.query, exp.Select) and any(map(has_aggregate, test.query.selects)):
        raise scope.resolver.refuse(
            "EXISTS over an aggregate is always true", test.node, "compare the aggregate: (SELECT COUNT(*) ...) > 0"
        )
    inside = read_inside(test.query, scope, test.node)
    if not inside.is_of_one_unit:
        raise other_people(inside, scope, test.node)
    return Match(inside.rows.relation, all_of(inside.linking))


def _member(test: SubqueryTest, scope: Scope, *, is_open: bool) -> Match:
    values = [scope.lowering.lower(node) for node in test.values]
    other = _other_rows(test, scope)
    columns = list(other.plain_columns.values())
    if len(columns) != len(values):
        count = f"{len(values)} columns" if len(values) > 1 else "one column"
        raise scope.resolver.refuse(f"IN takes a subquery with {count} here", test.node, "select as many columns")
    equalities = [scope.lowering.build("=", test.node, (mine, its)) for mine, its in zip(values, columns, strict=True)]
    same_unit = equating_units(equalities, scope.outside, other) if other.is_private else []
    pairs = [
        pair
        for pair, equality in zip(zip(values, columns, strict=True), equalities, strict=True)
        if equality in same_unit
    ]
    if other.is_private and not pairs:
        raise scope.resolver.refuse("IN would compare different people", test.node, MEMBERSHIP_HINT)
    if other.null_group is not None and (is_open or not other.null_group.is_left_out(equalities)):
        raise other.null_group.refuse()
    if not is_open:
        return Match(other.relation, all_of(equalities))
    if not all(other.tells_unit(its) for _, its in pairs):
        raise scope.resolver.refuse(MAYBE_NULL, test.node, "add WHERE ... IS NOT NULL inside")
    units = tuple(mine for mine, _ in pairs)
    return Match(other.relation, all_of(equalities), tuple(equalities), units, scope.resolver.place(test.node))


def _other_rows(test: SubqueryTest, scope: Scope) -> PrivateRows:
    for column in outside_columns(test.query, scope):
        raise scope.resolver.refuse(READS_OUTSIDE, column, COMPARE_UNITS)
    query = copy_in_place(test.query)
    found = scope.resolver.query(query, scope.named)
    if isinstance(found, PrivateRows):
        rows = found
    else:
        rows = found.rows or adaptive_rows(scope.resolver, exp.Subquery(this=found.tree or query), scope.named)
    if rows.kept is not None:
        raise rows.kept.refuse("IN would also compare with these", "use an inner join")
    return rows.apart_from(scope.source.internal_names)


# -- correlated --------------------------------------------------------------------------------------------------------
# Subqueries that read the row outside. They may look at rows of the same person, and at public rows.
#
# EXISTS (SELECT 1 FROM visits v WHERE v.person = p.pid AND v.minutes > p.age)
# (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      an aggregate within the person, joined to the row

OVER_EVERYBODY = "to compare with everybody, join a subquery: (SELECT key, AVG(x) FROM t GROUP BY key)"
VALUE_HINT = (
    "write (SELECT COUNT(*) FROM t WHERE t.unit = outside.unit), with only equalities between the two; join public "
    "tables in FROM"
)


@dataclass(frozen=True)
class JoinedColumns:
    """Aggregates joined to the rows that they belong to."""

    values: Relation
    meets: Expression | None

    def added_to(self, rows: PrivateRows) -> PrivateRows:
        return replace(rows, relation=Join(rows.relation, self.values, "LEFT", self.meets))


def correlated_value(node: exp.Expr, outer: Scope) -> tuple[Expression, JoinedColumns]:
    """An aggregate over the rows of the same person, as a column of the row outside."""
    select = unwrapped(node)
    refusal = outer.resolver.refuse(READS_OUTSIDE, node, VALUE_HINT)
    if not isinstance(select, exp.Select) or len(select.selects) != 1 or not has_aggregate(select.selects[0]):
        raise refusal
    inside = read_inside(select, outer, node)
    if not inside.is_of_one_unit:
        return _over_everybody(inside, select, outer, node)
    lowering = read_constants(inside.scope, select.selects).lowering
    own = {column.name for column in inside.rows.columns.values()}
    keys = [key for part in inside.linking if (key := _key(part, own)) is not None]
    if not inside.rows.is_private or len(keys) < len(inside.linking):
        raise refusal
    name = outer.new_name
    calls: list[AggregateCall] = []

    def replaced(part: exp.Expr) -> exp.Expr:
        if not is_aggregate(part):
            return part
        call = aggregate_call(part, lowering)
        column = internal_column(Column(f"{name}_{len(calls)}", per_unit_type(call)))
        calls.append(call)
        # Who has no rows at all has a count of none.
        return exp.Coalesce(this=column, expressions=[exp.Literal.number(0)]) if call.name == "COUNT" else column

    value = unaliased(select.selects[0]).copy().transform(replaced)
    if any(INNER not in column.meta for column in nodes_of(value, exp.Column)):
        raise refusal
    per_unit = PerUnit(
        inside.rows.relation,
        tuple((f"{name}_k{number}", mine) for number, (mine, _) in enumerate(keys)),
        tuple((f"{name}_{number}", call) for number, call in enumerate(calls)),
        by_unit_alone=all(mine.name in inside.rows.unit_columns for mine, _ in keys),
    )
    meets = all_of([equal(Column(f"{name}_k{i}", mine.type), its) for i, (mine, its) in enumerate(keys)])
    return lowering.lower(value), JoinedColumns(per_unit, meets)


def _over_everybody(
    inside: Inside, select: exp.Select, outer: Scope, node: exp.Expr
) -> tuple[Expression, JoinedColumns]:
    """An aggregate of each key, joined to the rows that have it."""
    resolver, columns = outer.resolver, list(outside_columns(select, outer))
    public = PublicTables(node.find_ancestor(exp.Select), resolver.schema)
    found = grouped_by_key(select, {id(column) for column in columns}, public, outer.new_name)
    if found is None:
        raise other_people(inside, outer, node, OVER_EVERYBODY)
    answer = resolver.query(found.grouped, outer.named)
    assert isinstance(answer, PublicQuery)
    assert answer.tree is not None
    rows = adaptive_rows(resolver, exp.Subquery(this=answer.tree), outer.named).apart_from(outer.source.internal_names)
    meets = [outer.lowering.build("=", node, (rows.columns[key], outer.lowering.lower(its))) for key, its in found.keys]

    def replaced(part: exp.Expr) -> exp.Expr:
        return internal_column(rows.columns[part.name]) if isinstance(part, exp.Column) else part

    return outer.lowering.lower(found.value.transform(replaced)), JoinedColumns(rows.relation, all_of(meets))


def _key(part: Expression, own: set[str]) -> tuple[Column, Expression] | None:
    """column inside = expression outside"""
    match part:
        case Call(function, (first, second)) if function.name == "=":
            for mine, its in ((first, second), (second, first)):
                outside = names_read(its).isdisjoint(own)
                if isinstance(mine, Column) and mine.name in own and outside and mine.type == its.type:
                    return mine, its
    return None


# -- subqueries --------------------------------------------------------------------------------------------------------


def read_subqueries(scope: Scope, nodes: Iterable[exp.Expr]) -> Scope:
    """The scope in which all subqueries of these nodes have been read."""
    for node in subqueries_in(nodes, scope):
        if not scope.knows(node):
            scope = _read(scope, node)
    return scope


def _read(scope: Scope, node: exp.Expr) -> Scope:
    test = as_test(node)
    if test is not None:
        return _with_mark(scope, test)
    if reads_outside(node, scope):
        return scope.knowing(node, *correlated_value(node, scope))
    return scope.knowing(node, constant_value(node, scope))


def _with_mark(scope: Scope, test: SubqueryTest) -> Scope:
    """IN and EXISTS that are a part of a condition or a value."""
    scope = read_subqueries(scope, test.values)
    mark = Column(scope.new_name, Boolean())
    return scope.knowing(test.node, mark, MarkColumn(match_of(test, scope, is_open=True), mark.name))


# -- apply where -------------------------------------------------------------------------------------------------------
# WHERE: the items of FROM become one relation, of which the conditions and tests choose rows.


@dataclass(frozen=True)
class Filtered:
    """The input of the SELECT list: the rows from FROM and WHERE, and the scope that names their columns."""

    scope: Scope
    rows: PrivateRows
    conditions: tuple[Expression, ...]
    """The WHERE, but for its tests."""

    def reading(self, nodes: Iterable[exp.Expr]) -> Filtered:
        """The same rows, with a column for each such subquery in these nodes."""
        scope = read_subqueries(self.scope, nodes)
        added = scope.added[len(self.scope.added) :]
        if added and self.rows.kept is not None:
            raise self.rows.kept.refuse("a subquery would read these", "use an inner join")
        return replace(self, scope=scope, rows=reduce(lambda rows, column: column.added_to(rows), added, self.rows))


def _filtered(rows: PrivateRows, conditions: list[Expression]) -> PrivateRows:
    whole = all_of(conditions)
    return rows if whole is None else replace(rows, relation=Filter(rows.relation, whole))


def apply_where(scope: Scope, where: exp.Where | None) -> Filtered:
    parts = conditions_of(where)
    tests = [test for test in map(as_test, parts) if test is not None]
    plain = [part for part in parts if as_test(part) is None]
    scope = read_subqueries(scope, plain)
    conditions = [scope.condition(part, "WHERE") for part in plain]
    scope = read_constants_in_on(scope, scope.source.conditions)
    rows = scope.source.joined(scope.condition, conditions)
    scope = read_subqueries(scope, [value for test in tests for value in test.values])
    if (tests or scope.added) and rows.kept is not None:
        raise rows.kept.refuse("IN and EXISTS might select these", "put the test into a subquery of the private table")
    # First what reads the rows alone, as it joins a comma's items: nothing is added to every pair of them.
    own = {column.name for column in rows.columns.values()}
    alone = [part for part in conditions if names_read(part) <= own]
    rows = _filtered(rows, alone)
    for column in scope.added:
        rows = column.added_to(rows)
    rows = _filtered(rows, [part for part in conditions if part not in alone])
    # Last: an engine leaves a test where it is written, and should not make it on every pair of a comma's rows.
    for test in tests:
        match = match_of(test, scope, is_open=test.negated)
        rows = replace(rows, relation=match.of(rows, negated=test.negated))
    if rows.null_group is not None and rows.null_group.is_left_out(conditions):
        rows = replace(rows, null_group=None)
    return Filtered(scope, rows, tuple(conditions))

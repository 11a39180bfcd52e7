"""WHERE unit IN (SELECT unit ...), WHERE [NOT] EXISTS (... same unit ...), WHERE x IN (SELECT y FROM a public table).

Whether a person's rows are kept may depend on that person's other rows, and on public rows; never on other people's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.tree import names_read
from dpsql.relation.relation import Filter, Mark, SemiJoin
from dpsql.relation.units import different_units
from dpsql.resolve.adaptive_subqueries import adaptive_rows
from dpsql.resolve.constant_subqueries import outside_columns, read_constants
from dpsql.resolve.joins import all_of, same_unit, same_unit_said
from dpsql.resolve.read_from import from_items, read_from
from dpsql.resolve.rows import Rows
from dpsql.resolve.scope import COMPARE_UNITS, READS_OUTSIDE
from dpsql.resolve.syntax import (
    conditions_of,
    copy_in_place,
    extra_clauses,
    from_nodes,
    has_aggregate,
    is_test,
    unaliased,
    unwrapped,
)

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation
    from dpsql.resolve.scope import Scope
    from dpsql.source import Place

CLAUSES = {"expressions", "from_", "joins", "where"}
MAYBE_NULL = "a unit that an outer join may have left NULL cannot stand beside [NOT] IN"
MEMBERSHIP_HINT = "compare the unit with the unit: WHERE customer_id IN (SELECT customer_id FROM ...)"


@dataclass(frozen=True)
class Test:
    """IN or EXISTS over a subquery."""

    query: exp.Expr
    values: tuple[exp.Expr, ...]
    """What stands before IN, part by part."""
    negated: bool
    node: exp.Expr


def as_test(node: exp.Expr) -> Test | None:
    """The node as a test, if it is one."""
    if isinstance(node, exp.Not):
        inner = as_test(unaliased(node.this))
        return inner and replace(inner, negated=not inner.negated)
    if not is_test(node):
        return None
    if isinstance(node, exp.Exists):
        return Test(node.this, (), False, node)
    before = unaliased(node.this)
    values = before.expressions if isinstance(before, exp.Tuple) else [before]
    return Test(unwrapped(node.args["query"]), tuple(values), False, node)


@dataclass(frozen=True)
class Match:
    """The rows among which a match is looked for, what makes one a match, and what a NULL may leave open."""

    other: Relation
    condition: Expression | None
    compared: tuple[Expression, ...] = ()
    units: tuple[Expression, ...] = ()
    """What is compared as the unit of the rows outside. Where it is NULL, other people's rows would decide."""
    at: Place | None = None

    def of(self, rows: Rows, *, negated: bool) -> SemiJoin:
        """The test of these rows, once it is known what they are joined of."""
        if not all(map(rows.tells_unit, self.units)):
            raise Unsupported(MAYBE_NULL, at=self.at, hint="compare the unit that is never NULL, or use EXISTS")
        return SemiJoin(rows.relation, self.other, self.condition, negated, self.compared)


@dataclass(frozen=True)
class MarkColumn:
    """The column that says whether a row has a match."""

    match: Match
    name: str

    def added_to(self, rows: Rows) -> Rows:
        return replace(rows, relation=Mark(self.match.of(rows, negated=False), self.name))


@dataclass(frozen=True)
class Inside:
    """The subquery's own rows, and the conditions that also read the row outside."""

    scope: Scope
    rows: Rows
    linking: list[Expression]

    @property
    def is_of_one_unit(self) -> bool:
        """Whether its rows are public, or of the same unit as the row outside."""
        assert self.scope.outer is not None
        outside = self.scope.outer.outside
        return not self.rows.is_private or any(same_unit(part, outside, self.rows) for part in self.linking)


def read_inside(query: exp.Expr, outer: Scope, node: exp.Expr) -> Inside:
    resolver = outer.resolver
    select = copy_in_place(query)
    if not isinstance(select, exp.Select) or not from_nodes(select) or extra_clauses(select, CLAUSES):
        raise resolver.refuse(
            "a subquery that reads the row outside takes a plain SELECT", node, "put the rest into a WITH query"
        )
    scope = read_from(select, from_items(select, outer.named, resolver), outer.named, resolver, outer)
    parts_of_where = conditions_of(select.args.get("where"))
    conditions = [part for part in parts_of_where if as_test(part) is None]
    tests = [test for test in map(as_test, parts_of_where) if test is not None]
    scope = read_constants(scope, [*conditions, *scope.source.conditions])
    parts = [scope.condition(part, "WHERE") for part in conditions]
    own = {column.name for column in scope.source.columns.values() if column is not None} | scope.source.inner_names
    inside = [part for part in parts if names_read(part) <= own]
    rows = scope.source.joined(scope.condition, inside)
    whole = all_of(inside)
    if whole is not None:
        rows = replace(rows, relation=Filter(rows.relation, whole))
    for test in tests:
        rows = _tested(rows, test, scope)
    return Inside(scope, rows, [part for part in parts if part not in inside])


def _tested(rows: Rows, test: Test, scope: Scope) -> Rows:
    """The rows inside for which a test of theirs holds."""
    match = match_of(test, replace(scope, outer=None), is_open=test.negated)
    return replace(rows, relation=match.of(rows, negated=test.negated))


def other_people(inside: Inside, outer: Scope, node: exp.Expr, otherwise: str | None = None) -> Unsupported:
    """`otherwise` is said too."""
    return different_units(same_unit_said(outer.outside, inside.rows), outer.resolver.place(node), otherwise)


def match_of(test: Test, scope: Scope, *, is_open: bool) -> Match:
    """What the test looks for. `is_open`: no match must be told from an unknown one, since a NOT stands before it."""
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


def _member(test: Test, scope: Scope, *, is_open: bool) -> Match:
    values = [scope.lowering.lower(node) for node in test.values]
    other = _other_rows(test, scope)
    columns = list(other.plain_columns.values())
    if len(columns) != len(values):
        count = f"{len(values)} columns" if len(values) > 1 else "one column"
        raise scope.resolver.refuse(f"IN takes a subquery with {count} here", test.node, "select as many columns")
    equalities = [scope.lowering.build("=", test.node, (mine, its)) for mine, its in zip(values, columns, strict=True)]
    pairs = [
        pair
        for pair, equality in zip(zip(values, columns, strict=True), equalities, strict=True)
        if other.is_private and same_unit(equality, scope.outside, other)
    ]
    if other.is_private and not pairs:
        raise scope.resolver.refuse("IN would compare different people", test.node, MEMBERSHIP_HINT)
    if not is_open:
        return Match(other.relation, all_of(equalities))
    if not all(other.tells_unit(its) for _, its in pairs):
        raise scope.resolver.refuse(MAYBE_NULL, test.node, "add WHERE ... IS NOT NULL inside")
    units = tuple(mine for mine, _ in pairs)
    return Match(other.relation, all_of(equalities), tuple(equalities), units, scope.resolver.place(test.node))


def _other_rows(test: Test, scope: Scope) -> Rows:
    for column in outside_columns(test.query, scope):
        raise scope.resolver.refuse(READS_OUTSIDE, column, COMPARE_UNITS)
    query = copy_in_place(test.query)
    found = scope.resolver.query(query, scope.named)
    if isinstance(found, Rows):
        rows = found
    else:
        rows = found.rows or adaptive_rows(scope.resolver, exp.Subquery(this=found.tree or query), scope.named)
    if rows.kept is not None:
        raise rows.kept.refuse("IN would compare with these", "use an inner join")
    return rows.apart_from(scope.source.inner_names)

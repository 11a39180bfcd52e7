"""WHERE unit IN (SELECT unit ...), WHERE [NOT] EXISTS (... same unit ...), WHERE x IN (SELECT y FROM a public table).

Whether a person's rows are kept may depend on that person's other rows, and on public rows; never on other people's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.relation.relation import SemiJoin
from dpsql.resolve.correlated import read_inside
from dpsql.resolve.earlier import earlier_rows
from dpsql.resolve.joins import all_of, same_unit
from dpsql.resolve.rows import Rows
from dpsql.resolve.syntax import has_aggregate, unaliased

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation
    from dpsql.resolve.scope import Scope

MAYBE_NULL = "a unit that an outer join may have left NULL cannot stand beside [NOT] IN"
MEMBERSHIP_HINT = "compare the unit with the unit: WHERE customer_id IN (SELECT customer_id FROM ...)"


@dataclass(frozen=True)
class Test:
    """IN or EXISTS over a subquery; `value` is what stands before IN."""

    query: exp.Query
    value: exp.Expr | None
    negated: bool
    node: exp.Expr


def as_test(node: exp.Expr) -> Test | None:
    """The node as a test, if it is one."""
    if isinstance(node, exp.Not):
        inner = as_test(unaliased(node.this))
        return inner and replace(inner, negated=not inner.negated)
    if isinstance(node, exp.In) and node.args.get("query") is not None and not node.expressions:
        query = node.args["query"]
        return Test(query.this if isinstance(query, exp.Subquery) else query, node.this, False, node)
    if isinstance(node, exp.Exists) and isinstance(node.this, exp.Query):
        return Test(node.this, None, False, node)
    return None


@dataclass(frozen=True)
class Match:
    """The rows among which a match is looked for, what makes one a match, and what a NULL may leave open."""

    other: Relation
    condition: Expression | None
    compared: tuple[Expression, ...] = ()
    units: tuple[Expression, ...] = ()
    """What is compared as the unit of the rows outside. Where it is NULL, other people's rows would decide."""

    def of(self, rows: Rows, test: Test, scope: Scope, *, negated: bool) -> SemiJoin:
        """The test of these rows, once it is known what they are joined of."""
        if not all(map(rows.tells_unit, self.units)):
            raise scope.resolver.refuse(MAYBE_NULL, test.node, "compare the unit that is never NULL, or use EXISTS")
        return SemiJoin(rows.relation, self.other, self.condition, negated, self.compared)


def semi_joined(rows: Rows, test: Test, scope: Scope) -> Rows:
    """The rows that the test keeps."""
    found = match_of(test, scope, is_open=test.negated)
    return replace(rows, relation=found.of(rows, test, scope, negated=test.negated))


def match_of(test: Test, scope: Scope, *, is_open: bool) -> Match:
    """What the test looks for. `is_open`: no match must be told from an unknown one, since a NOT stands before it."""
    if test.value is not None:
        return _member(test, test.value, scope, is_open=is_open)
    if any(map(has_aggregate, test.query.selects)):
        raise scope.resolver.refuse(
            "EXISTS over an aggregate is always true", test.node, "compare the aggregate: (SELECT COUNT(*) ...) > 0"
        )
    inside = read_inside(test.query, scope, test.node)
    return Match(inside.rows.relation, all_of(inside.linking))


def _member(test: Test, value: exp.Expr, scope: Scope, *, is_open: bool) -> Match:
    before = unaliased(value)
    nodes = before.expressions if isinstance(before, exp.Tuple) else [before]
    values = [scope.lowering.lower(node) for node in nodes]
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
    return Match(other.relation, all_of(equalities), tuple(equalities), tuple(mine for mine, _ in pairs))


def _other_rows(test: Test, scope: Scope) -> Rows:
    inside = test.query.copy()
    inside.parent = test.query.parent  # so that a name of the row outside is told from one that there is not
    found = scope.resolver.query(inside, scope.named)
    if isinstance(found, Rows):
        rows = found
    else:
        source = exp.Subquery(this=found.tree or test.query)
        rows = found.rows or earlier_rows(scope.resolver, source, scope.named)
    return rows.apart_from(scope.inner_names)

"""WHERE unit IN (SELECT unit ...), WHERE [NOT] EXISTS (... same unit ...), WHERE x IN (SELECT y FROM a public table).

Whether a person's rows are kept may depend on that person's other rows, and on public rows; never on other people's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Expression
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Relation, SemiJoin
from dpsql.resolve.correlated import read_inside
from dpsql.resolve.earlier import earlier_rows
from dpsql.resolve.joins import all_of, same_unit
from dpsql.resolve.rows import Rows
from dpsql.resolve.syntax import has_aggregate, unaliased
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from dpsql.resolve.scope import Scope

Match: TypeAlias = tuple[Relation, Expression | None]
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


def semi_joined(rows: Rows, test: Test, scope: Scope) -> Rows:
    """The rows that the test keeps. x NOT IN (...) is never true where x is NULL."""
    (other, condition), null = match_of(test, scope)
    if test.negated and null is not None:
        known = Call(FUNCTIONS["NOT"], (null,), Boolean())
        rows = replace(rows, relation=Filter(rows.relation, known))
    return replace(rows, relation=SemiJoin(rows.relation, other, condition, test.negated))


def match_of(test: Test, scope: Scope, *, as_value: bool = False) -> tuple[Match, Expression | None]:
    """The other rows and what makes one a match; and when it is not known whether there is one.

    `as_value`: true and false must be told from unknown, since the analyst may put a NOT before it.
    """
    if test.value is not None:
        return _member(test, test.value, scope, as_value=as_value)
    if any(map(has_aggregate, test.query.selects)):
        raise scope.resolver.refuse(
            "EXISTS over an aggregate is always true", test.node, "compare the aggregate: (SELECT COUNT(*) ...) > 0"
        )
    inside = read_inside(test.query, scope, test.node)
    return (inside.rows.relation, all_of(inside.linking)), None


def _member(test: Test, value: exp.Expr, scope: Scope, *, as_value: bool) -> tuple[Match, Expression | None]:
    before = unaliased(value)
    nodes = before.expressions if isinstance(before, exp.Tuple) else [before]
    values = [scope.lowering.lower(node) for node in nodes]
    other = _other_rows(test, scope)
    columns = list(other.plain_columns.values())
    if len(columns) != len(values):
        count = f"{len(values)} columns" if len(values) > 1 else "one column"
        raise scope.resolver.refuse(f"IN takes a subquery with {count} here", test.node, "select as many columns")
    equalities = [scope.lowering.build("=", test.node, (mine, its)) for mine, its in zip(values, columns, strict=True)]
    if other.is_private and not any(same_unit(part, scope.outside, other) for part in equalities):
        raise scope.resolver.refuse("IN would compare different people", test.node, MEMBERSHIP_HINT)
    known = knowledge_of(other.relation).kept
    nullable = any(known[column.name].nullable and column.name not in other.all_units for column in columns)
    if nullable and (as_value or test.negated) and not (other.is_private and len(columns) == 1):
        if as_value or len(columns) > 1:
            raise scope.resolver.refuse(
                "[NOT] IN over values that may be NULL may be unknown", test.node, "add WHERE ... IS NOT NULL inside"
            )
        # x NOT IN (..., NULL) is never true: a NULL counts as a match.
        missing = Call(FUNCTIONS["IS NULL"], (columns[0],), Boolean())
        equalities = [Call(FUNCTIONS["OR"], (equalities[0], missing), Boolean())]
    unknown = [Call(FUNCTIONS["IS NULL"], (mine,), Boolean()) for mine in values]
    null: Expression = unknown[0]
    for part in unknown[1:]:
        null = Call(FUNCTIONS["OR"], (null, part), Boolean())
    return (other.relation, all_of(equalities)), null


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

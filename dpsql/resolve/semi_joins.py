"""WHERE unit IN (SELECT unit ...), WHERE [NOT] EXISTS (... same unit ...), WHERE x IN (SELECT y FROM a public table).

Whether a person's rows are kept may depend on that person's other rows, and on public rows; never on other people's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.lower import Lowering
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Expression, columns_of
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, SemiJoin
from dpsql.resolve.earlier import earlier_rows
from dpsql.resolve.joins import across_people, all_of, same_unit
from dpsql.resolve.rows import Rows
from dpsql.resolve.syntax import conditions_of, extra_clauses, from_nodes, has_aggregate, unaliased
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from dpsql.resolve.scope import Scope

MEMBERSHIP_HINT = "compare the unit with the unit: WHERE customer_id IN (SELECT customer_id FROM ...)"
EXISTS_CLAUSES = {"expressions", "from_", "joins", "where"}


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
    return _exists(rows, test, scope) if test.value is None else _member(rows, test, scope)


# -- IN ---------------------------------------------------------------------------------------------------------------


def _member(rows: Rows, test: Test, scope: Scope) -> Rows:
    assert test.value is not None
    value = scope.lowering.lower(test.value)
    found = scope.resolver.query(test.query, scope.named)
    if isinstance(found, Rows):
        other = found
    else:
        source = exp.Subquery(this=found.tree or test.query)
        other = found.rows or earlier_rows(scope.resolver, source, scope.named)
    if len(other.plain_columns) != 1:
        raise scope.resolver.refuse("IN takes a subquery with one column", test.node, "select one column")
    other = other.apart_from(knowledge_of(rows.relation).always)
    (column,) = other.plain_columns.values()
    if other.is_private:
        units = isinstance(value, Column) and value.name in rows.unit_columns and column.name in other.unit_columns
        if not units or not rows.is_private:
            raise scope.resolver.refuse("IN would compare different people", test.node, MEMBERSHIP_HINT)
    elif test.negated:
        rows = _never_null(rows, value, column, other, test, scope)
    return _kept(rows, other, scope.lowering.build("=", test.node, (value, column)), test)


def _never_null(rows: Rows, value: Expression, column: Column, other: Rows, test: Test, scope: Scope) -> Rows:
    """x NOT IN (...) is never true when x is NULL, or when one of the values is."""
    if knowledge_of(other.relation).kept[column.name].nullable:
        raise scope.resolver.refuse(
            "NOT IN over values that may be NULL keeps nothing", test.node, f"add WHERE {column.name} IS NOT NULL"
        )
    known = Call(FUNCTIONS["NOT"], (Call(FUNCTIONS["IS NULL"], (value,), Boolean()),), Boolean())
    return replace(rows, relation=Filter(rows.relation, known))


def _kept(rows: Rows, other: Rows, condition: Expression | None, test: Test) -> Rows:
    return replace(rows, relation=SemiJoin(rows.relation, other.relation, condition, test.negated))


# -- EXISTS -----------------------------------------------------------------------------------------------------------


def _exists(rows: Rows, test: Test, scope: Scope) -> Rows:
    """The subquery's WHERE may read both its own rows and those outside; for people it must compare the units."""
    other, inside, across = _correlated(rows, test, scope)
    if other.is_private and not (rows.is_private and any(same_unit(part, rows, other) for part in across)):
        raise across_people(rows, other, scope.resolver.place(test.node))
    whole = all_of(inside)
    if whole is not None:
        other = replace(other, relation=Filter(other.relation, whole))
    return _kept(rows, other, all_of(across), test)


def _correlated(rows: Rows, test: Test, scope: Scope) -> tuple[Rows, list[Expression], list[Expression]]:
    """The subquery's rows, the conditions on them alone, and those that also read rows outside."""
    resolver, select = scope.resolver, test.query
    nodes = from_nodes(select) if isinstance(select, exp.Select) else []
    if len(nodes) != 1 or extra_clauses(select, EXISTS_CLAUSES) or any(map(has_aggregate, select.selects)):
        raise resolver.refuse(
            "EXISTS takes a plain SELECT over one table here", test.node, "put joins and aggregates into a WITH query"
        )
    item = resolver.item(nodes[0], scope.named)
    other = resolver.rows_of(item, nodes[0], scope.named).apart_from(knowledge_of(rows.relation).always)

    def resolve(node: exp.Column) -> Expression:
        name = (f"{node.table}.{node.name}" if node.table else node.name).lower()
        return other.columns[name] if name in other.columns else scope.resolve(node)

    lowering = Lowering(resolver.text, resolve)
    parts = [lowering.lower(part) for part in conditions_of(select.args.get("where"))]
    own = {column.name for column in other.columns.values()}
    inside = [part for part in parts if {column.name for column in columns_of(part)} <= own]
    return other, inside, [part for part in parts if part not in inside]

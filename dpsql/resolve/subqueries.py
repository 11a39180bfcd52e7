"""Subqueries in expressions: each is looked at before the expression is read, and is one of three things.

WHERE a = 1 OR p IN (SELECT ...)                                      a test: a column that says whether it holds
WHERE n > (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      reads the row outside: a column of the row
WHERE n > (SELECT AVG(amount) FROM orders)                            a constant, which is asked first
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.expressions.tree import Column
from dpsql.resolve.constant_subqueries import constant_value, reads_outside, subqueries_in
from dpsql.resolve.correlated import correlated_value
from dpsql.resolve.semi_joins import MarkColumn, as_test, match_of
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

    from dpsql.resolve.scope import Scope
    from dpsql.resolve.semi_joins import Test


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


def _with_mark(scope: Scope, test: Test) -> Scope:
    """IN and EXISTS that are a part of a condition or a value."""
    scope = read_subqueries(scope, test.values)
    mark = Column(scope.new_name, Boolean())
    return scope.knowing(test.node, mark, MarkColumn(match_of(test, scope, is_open=True), mark.name))

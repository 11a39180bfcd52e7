"""Subqueries that read nothing of the row: each is asked first, and is a constant by the time that the row is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.resolve.adaptive_subqueries import adaptive_value
from dpsql.resolve.free_columns import free_columns
from dpsql.resolve.rows import Rows
from dpsql.resolve.syntax import copy_in_place, is_subquery, is_test, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dpsql.expressions.tree import Expression
    from dpsql.resolve.scope import Scope


def subqueries_in(nodes: Iterable[exp.Expr], scope: Scope) -> Iterator[exp.Expr]:
    """The outermost subqueries, those of the aliases that are used too."""
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
            raise scope.resolver.refuse(
                "a subquery in ON cannot read the rows that are joined", node, "put it into WHERE"
            )
    return read_constants(scope, nodes)


def constant_value(node: exp.Expr, scope: Scope) -> Expression:
    query = copy_in_place(unwrapped(node))
    found = scope.resolver.query(query, scope.named)
    if isinstance(found, Rows):
        raise scope.resolver.refuse(
            "a subquery would show rows of people", node, "let it aggregate: (SELECT AVG(x) ...)"
        )
    return adaptive_value(scope.resolver, found.tree or query, scope.named, node)

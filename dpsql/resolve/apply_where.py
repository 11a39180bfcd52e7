"""WHERE: the items of FROM become one relation, of which the conditions and tests choose rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from dpsql.relation.relation import Filter
from dpsql.resolve.constant_subqueries import read_constants_in_on
from dpsql.resolve.joins import all_of
from dpsql.resolve.semi_joins import as_test, match_of
from dpsql.resolve.subqueries import read_subqueries
from dpsql.resolve.syntax import conditions_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

    from dpsql.expressions.tree import Expression
    from dpsql.resolve.rows import Rows
    from dpsql.resolve.scope import Scope


@dataclass(frozen=True)
class Filtered:
    """What the SELECT list reads: the rows that FROM and WHERE give, and the scope that names their columns."""

    scope: Scope
    rows: Rows
    conditions: tuple[Expression, ...]
    """The WHERE, but for its tests."""

    def reading(self, nodes: Iterable[exp.Expr]) -> Filtered:
        """The same rows, with a column for each subquery of these nodes that is one."""
        scope = read_subqueries(self.scope, nodes)
        added = scope.added[len(self.scope.added) :]
        if added and self.rows.kept is not None:
            raise self.rows.kept.refuse("a subquery reads these", "use an inner join")
        return replace(self, scope=scope, rows=reduce(lambda rows, column: column.added_to(rows), added, self.rows))


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
        raise rows.kept.refuse("IN and EXISTS may choose these", "put the test into a subquery of the private table")
    for column in scope.added:
        rows = column.added_to(rows)
    whole = all_of(conditions)
    if whole is not None:
        rows = replace(rows, relation=Filter(rows.relation, whole))
    # Last: an engine leaves a test where it is written, and should not make it on every pair of a comma's rows.
    for test in tests:
        match = match_of(test, scope, is_open=test.negated)
        rows = replace(rows, relation=match.of(rows, negated=test.negated))
    return Filtered(scope, rows, tuple(conditions))

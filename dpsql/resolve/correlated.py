"""Subqueries that read the row outside. They may look at rows of the same person, and at public rows.

EXISTS (SELECT 1 FROM visits v WHERE v.person = p.pid AND v.minutes > p.age)
(SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      an aggregate within the person, joined to the row
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import nodes_of
from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.relation.relation import Join, PerUnit
from dpsql.resolve.adaptive_subqueries import adaptive_rows
from dpsql.resolve.calls import aggregate_call, per_unit_type
from dpsql.resolve.constant_subqueries import outside_columns, read_constants
from dpsql.resolve.inner import INNER, inner_column
from dpsql.resolve.joins import all_of, equal
from dpsql.resolve.per_key import PublicTables, grouped_by_key
from dpsql.resolve.rows import Answer
from dpsql.resolve.scope import READS_OUTSIDE
from dpsql.resolve.semi_joins import Inside, other_people, read_inside
from dpsql.resolve.syntax import (
    has_aggregate,
    is_aggregate,
    unaliased,
    unwrapped,
)

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall, Relation
    from dpsql.resolve.rows import Rows
    from dpsql.resolve.scope import Scope

OVER_EVERYBODY = "to compare with everybody, join a subquery: (SELECT key, AVG(x) FROM t GROUP BY key)"
VALUE_HINT = (
    "write (SELECT COUNT(*) FROM t WHERE t.unit = outside.unit), with nothing but equalities across; a public table is "
    "joined in FROM"
)


@dataclass(frozen=True)
class JoinedColumns:
    """Aggregates, beside each row that they are of."""

    values: Relation
    meets: Expression | None

    def added_to(self, rows: Rows) -> Rows:
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
        column = inner_column(Column(f"{name}_{len(calls)}", per_unit_type(call)))
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
    assert isinstance(answer, Answer)
    assert answer.tree is not None
    rows = adaptive_rows(resolver, exp.Subquery(this=answer.tree), outer.named).apart_from(outer.source.inner_names)
    meets = [outer.lowering.build("=", node, (rows.columns[key], outer.lowering.lower(its))) for key, its in found.keys]

    def replaced(part: exp.Expr) -> exp.Expr:
        return inner_column(rows.columns[part.name]) if isinstance(part, exp.Column) else part

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

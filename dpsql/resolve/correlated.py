"""Subqueries that read the row outside. They may look at rows of the same person, and at public rows.

EXISTS (SELECT 1 FROM visits v WHERE v.person = p.pid AND v.minutes > p.age)
(SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      an aggregate within the person, joined to the row
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.lower import Lowering
from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.relation.relation import Filter, Join, PerUnit
from dpsql.relation.units import different_units
from dpsql.resolve.calls import aggregate_call, per_unit_call
from dpsql.resolve.inner import INNER, inner_column
from dpsql.resolve.joins import all_of, equal, same_unit, same_unit_said
from dpsql.resolve.syntax import conditions_of, extra_clauses, from_nodes, has_aggregate, is_aggregate, unaliased

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall
    from dpsql.resolve.rows import Rows
    from dpsql.resolve.scope import Scope

CLAUSES = {"expressions", "from_", "joins", "where"}
OVER_EVERYBODY = "to compare with everybody, join a subquery: (SELECT key, AVG(x) FROM t GROUP BY key)"
VALUE_HINT = "write (SELECT COUNT(*) FROM t WHERE t.unit = outside.unit), with nothing but equalities across"


@dataclass(frozen=True)
class Inside:
    """The subquery's own rows, and the conditions that also read the row outside."""

    rows: Rows
    linking: list[Expression]
    lowering: Lowering


def read_inside(select: exp.Expr, scope: Scope, node: exp.Expr, otherwise: str | None = None) -> Inside:
    """`otherwise` is said too where the subquery reads other people's rows."""
    resolver = scope.resolver
    nodes = from_nodes(select) if isinstance(select, exp.Select) else []
    if not isinstance(select, exp.Select) or not nodes or extra_clauses(select, CLAUSES):
        raise resolver.refuse(
            "a subquery that reads the row outside takes a plain SELECT", node, "put the rest into a WITH query"
        )
    items = [resolver.item(part, scope.named) for part in nodes]
    source = resolver.source(select, items, scope.named, taken=scope.inner_names)

    def resolve(column: exp.Column) -> Expression:
        return source.column(column, resolver.place(column)) or scope.resolve(column)

    lowering = Lowering(resolver.text, resolve, scope.constant)
    parts = [lowering.lower(part) for part in conditions_of(select.args.get("where"))]
    own = {column.name for column in source.columns.values() if column is not None} | source.inner_names
    inside = [part for part in parts if names_read(part) <= own]
    rows = source.joined(lowering.lower, inside)
    whole = all_of(inside)
    if whole is not None:
        rows = replace(rows, relation=Filter(rows.relation, whole))
    linking = [part for part in parts if part not in inside]
    if rows.is_private and not any(same_unit(part, scope.outside, rows) for part in linking):
        raise different_units(same_unit_said(scope.outside, rows), resolver.place(node), otherwise)
    return Inside(rows, linking, lowering)


def correlated_value(select: exp.Expr, scope: Scope, node: exp.Expr) -> Expression:
    """An aggregate over the rows of the same person, as a column of the row outside."""
    refusal = scope.resolver.refuse("the subquery reads the row outside", node, VALUE_HINT)
    if not isinstance(select, exp.Select) or len(select.selects) != 1 or not has_aggregate(select.selects[0]):
        raise refusal
    inside = read_inside(select, scope, node, OVER_EVERYBODY)
    own = {column.name for column in inside.rows.columns.values()}
    pairs = [_key(part, own) for part in inside.linking]
    if not inside.rows.is_private or None in pairs:
        raise refusal
    name = scope.new_name()
    calls: list[AggregateCall] = []

    def replaced(part: exp.Expr) -> exp.Expr:
        if not is_aggregate(part):
            return part
        call, facts = per_unit_call(aggregate_call(part, inside.lowering))
        calls.append(call)
        column = inner_column(Column(f"{name}_{len(calls) - 1}", facts.type))
        # Who has no rows at all has a count of none.
        return exp.Coalesce(this=column, expressions=[exp.Literal.number(0)]) if call.name == "COUNT" else column

    value = unaliased(select.selects[0]).copy().transform(replaced)
    if any(INNER not in column.meta for column in value.find_all(exp.Column)):
        raise refusal
    keys = [pair for pair in pairs if pair is not None]
    per_unit = PerUnit(
        inside.rows.relation,
        tuple((f"{name}_k{number}", mine) for number, (mine, _) in enumerate(keys)),
        tuple((f"{name}_{number}", call) for number, call in enumerate(calls)),
        by_unit_alone=all(mine.name in inside.rows.unit_columns for mine, _ in keys),
    )
    meets = all_of([equal(Column(f"{name}_k{i}", mine.type), its) for i, (mine, its) in enumerate(keys)])
    scope.add(lambda rows: replace(rows, relation=Join(rows.relation, per_unit, "LEFT", meets)))
    return scope.lowering.lower(value)


def _key(part: Expression, own: set[str]) -> tuple[Column, Expression] | None:
    """column inside = expression outside"""
    match part:
        case Call(function, (first, second)) if function.name == "=":
            for mine, its in ((first, second), (second, first)):
                outside = names_read(its).isdisjoint(own)
                if isinstance(mine, Column) and mine.name in own and outside and mine.type == its.type:
                    return mine, its
    return None

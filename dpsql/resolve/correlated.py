"""Subqueries that read the row outside. They may look at rows of the same person, and at public rows.

EXISTS (SELECT 1 FROM visits v WHERE v.person = p.pid AND v.minutes > p.age)
(SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      an aggregate within the person, joined to the row
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.relation.relation import Filter, Join, PerUnit
from dpsql.relation.units import different_units
from dpsql.resolve.calls import aggregate_call, per_unit_type
from dpsql.resolve.constant_subqueries import read_constants
from dpsql.resolve.inner import INNER, inner_column
from dpsql.resolve.joins import all_of, equal, same_unit, same_unit_said
from dpsql.resolve.read_from import from_items, read_from
from dpsql.resolve.scope import READS_OUTSIDE
from dpsql.resolve.syntax import (
    conditions_of,
    copy_in_place,
    extra_clauses,
    from_nodes,
    has_aggregate,
    is_aggregate,
    unaliased,
    unwrapped,
)

if TYPE_CHECKING:
    from dpsql.relation.relation import AggregateCall
    from dpsql.resolve.rows import Rows
    from dpsql.resolve.scope import Scope

CLAUSES = {"expressions", "from_", "joins", "where"}
OVER_EVERYBODY = "to compare with everybody, join a subquery: (SELECT key, AVG(x) FROM t GROUP BY key)"
VALUE_HINT = (
    "write (SELECT COUNT(*) FROM t WHERE t.unit = outside.unit), with nothing but equalities across; a public table is "
    "joined in FROM"
)


@dataclass(frozen=True)
class Inside:
    """The subquery's own rows, and the conditions that also read the row outside."""

    scope: Scope
    rows: Rows
    linking: list[Expression]


@dataclass(frozen=True)
class JoinedColumns:
    """Aggregates within the person, beside each row that they are of."""

    per_unit: PerUnit
    meets: Expression | None

    def added_to(self, rows: Rows) -> Rows:
        return replace(rows, relation=Join(rows.relation, self.per_unit, "LEFT", self.meets))


def read_inside(query: exp.Expr, outer: Scope, node: exp.Expr, otherwise: str | None = None) -> Inside:
    """`otherwise` is said too where the subquery reads other people's rows."""
    resolver = outer.resolver
    select = copy_in_place(query)
    if not isinstance(select, exp.Select) or not from_nodes(select) or extra_clauses(select, CLAUSES):
        raise resolver.refuse(
            "a subquery that reads the row outside takes a plain SELECT", node, "put the rest into a WITH query"
        )
    scope = read_from(select, from_items(select, outer.named, resolver), outer.named, resolver, outer)
    conditions = conditions_of(select.args.get("where"))
    scope = read_constants(scope, [*conditions, *scope.source.conditions])
    parts = [scope.condition(part, "WHERE") for part in conditions]
    own = {column.name for column in scope.source.columns.values() if column is not None} | scope.source.inner_names
    inside = [part for part in parts if names_read(part) <= own]
    rows = scope.source.joined(scope.condition, inside)
    whole = all_of(inside)
    if whole is not None:
        rows = replace(rows, relation=Filter(rows.relation, whole))
    linking = [part for part in parts if part not in inside]
    if rows.is_private and not any(same_unit(part, outer.outside, rows) for part in linking):
        raise different_units(same_unit_said(outer.outside, rows), resolver.place(node), otherwise)
    return Inside(scope, rows, linking)


def correlated_value(node: exp.Expr, outer: Scope) -> tuple[Expression, JoinedColumns]:
    """An aggregate over the rows of the same person, as a column of the row outside."""
    select = unwrapped(node)
    refusal = outer.resolver.refuse(READS_OUTSIDE, node, VALUE_HINT)
    if not isinstance(select, exp.Select) or len(select.selects) != 1 or not has_aggregate(select.selects[0]):
        raise refusal
    inside = read_inside(select, outer, node, OVER_EVERYBODY)
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
    if any(INNER not in column.meta for column in value.find_all(exp.Column)):
        raise refusal
    per_unit = PerUnit(
        inside.rows.relation,
        tuple((f"{name}_k{number}", mine) for number, (mine, _) in enumerate(keys)),
        tuple((f"{name}_{number}", call) for number, call in enumerate(calls)),
        by_unit_alone=all(mine.name in inside.rows.unit_columns for mine, _ in keys),
    )
    meets = all_of([equal(Column(f"{name}_k{i}", mine.type), its) for i, (mine, its) in enumerate(keys)])
    return lowering.lower(value), JoinedColumns(per_unit, meets)


def _key(part: Expression, own: set[str]) -> tuple[Column, Expression] | None:
    """column inside = expression outside"""
    match part:
        case Call(function, (first, second)) if function.name == "=":
            for mine, its in ((first, second), (second, first)):
                outside = names_read(its).isdisjoint(own)
                if isinstance(mine, Column) and mine.name in own and outside and mine.type == its.type:
                    return mine, its
    return None

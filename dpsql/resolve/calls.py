"""Which aggregate is asked for. FILTER (WHERE c) and COUNT_IF(c) are the aggregate of CASE WHEN c THEN ... END."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.relation.relation import AggregateCall
from dpsql.resolve.syntax import extra_clauses, has_aggregate, is_star

if TYPE_CHECKING:
    from dpsql.expressions.lower import Lowering

AGGREGATES: dict[type[exp.Expr], str] = {exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG"}


def aggregate_call(node: exp.Expr, lowering: Lowering) -> AggregateCall:
    place = lowering.place(node)
    plain = _plain(node)
    name = AGGREGATES.get(type(plain)) if plain is not None else None
    if plain is None or name is None or extra_clauses(plain, {"this", "big_int"}):
        raise Unsupported(
            f"{_spoken(node)} cannot be asked",
            at=place,
            hint="the aggregates are COUNT, COUNT(DISTINCT unit), SUM, AVG and COUNT_IF, with or without FILTER",
        )
    if is_star(plain):
        return AggregateCall(name, None, distinct=False, at=place)
    argument, distinct = plain.this, isinstance(plain.this, exp.Distinct)
    if distinct:
        if len(argument.expressions) != 1 or argument.args.get("on"):
            raise Unsupported("DISTINCT takes one column here", at=place, hint="count one column at a time")
        (argument,) = argument.expressions
    if has_aggregate(argument):
        raise ProgrammingError(
            "an aggregate cannot stand inside another", at=place, hint="aggregate in a subquery, then again outside"
        )
    return AggregateCall(name, lowering.lower(argument), distinct, place)


def _plain(node: exp.Expr) -> exp.Expr | None:
    """The aggregate without FILTER, under its usual name; None if it cannot be said so."""
    if isinstance(node, exp.Filter):
        inner, condition = _plain(node.this), node.expression.this
        if inner is None or isinstance(inner.this, exp.Distinct):
            return None
        return type(inner)(this=_where(condition, exp.Literal.number(1) if is_star(inner) else inner.this))
    if isinstance(node, exp.CountIf):
        return exp.Count(this=_where(node.this, exp.Literal.number(1)))
    if isinstance(node, exp.Anonymous):
        return exp.Avg(this=node.expressions[0]) if len(node.expressions) == 1 else None
    return node


def _where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _spoken(node: exp.Expr) -> str:
    return node.sql_name() if isinstance(node, exp.Func) else node.key.upper()

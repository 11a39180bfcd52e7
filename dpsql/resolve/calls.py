"""Which aggregate is asked for.

FILTER (WHERE c) and COUNT_IF(c) are the aggregate of CASE WHEN c THEN ... END.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.constants import as_beside
from dpsql.relation.per_unit import AGGREGATES, check_per_unit, result_type
from dpsql.relation.relation import AggregateCall
from dpsql.resolve.bounds import take_bounds, with_bounds
from dpsql.resolve.quantiles import is_quantile, read_quantiles
from dpsql.resolve.syntax import extra_clauses, has_aggregate, is_star

if TYPE_CHECKING:
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType
    from dpsql.source import Place

NAMES: dict[type[exp.Expr], str] = {
    exp.Count: "COUNT",
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Variance: "VAR_SAMP",
    exp.VariancePop: "VAR_POP",
    exp.Stddev: "STDDEV_SAMP",
    exp.StddevSamp: "STDDEV_SAMP",
    exp.StddevPop: "STDDEV_POP",
    exp.CovarPop: "COVAR_POP",
    exp.CovarSamp: "COVAR_SAMP",
    exp.Corr: "CORR",
    exp.RegrSlope: "REGR_SLOPE",
    exp.RegrIntercept: "REGR_INTERCEPT",
    exp.RegrR2: "REGR_R2",
    exp.Min: "MIN",
    exp.Max: "MAX",
    exp.Mode: "MODE",
    exp.AnyValue: "ANY_VALUE",
    exp.LogicalOr: "BOOL_OR",
    exp.LogicalAnd: "BOOL_AND",
    exp.RowNumber: "ROW_NUMBER",
    exp.Rank: "RANK",
    exp.DenseRank: "DENSE_RANK",
    exp.Lag: "LAG",
    exp.Lead: "LEAD",
    exp.FirstValue: "FIRST_VALUE",
    exp.LastValue: "LAST_VALUE",
    exp.NthValue: "NTH_VALUE",
    exp.Ntile: "NTILE",
    exp.PercentRank: "PERCENT_RANK",
    exp.CumeDist: "CUME_DIST",
}
# How many arguments there are, where it is not one.
COUNTS = {
    **dict.fromkeys(("COVAR_POP", "COVAR_SAMP", "CORR", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "NTH_VALUE"), (2,)),
    **dict.fromkeys(("LAG", "LEAD"), (1, 2, 3)),
}
WITHOUT_ARGUMENTS = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")
ARGUMENTS = ("this", "expression", "offset", "default")
HINT = (
    "the aggregates are COUNT, SUM, AVG, MIN, MAX, MEDIAN, QUANTILE_CONT, MODE, VARIANCE, STDDEV, COVAR_POP, CORR, "
    "REGR_SLOPE and COUNT_IF"
)


def aggregate_call(node: exp.Expr, lowering: Lowering) -> AggregateCall:
    calls = aggregate_calls(node, lowering)
    if isinstance(calls, AggregateCall):
        return calls
    raise Unsupported("a list of quantiles cannot be asked there", at=lowering.place(node), hint="ask for one quantile")


def aggregate_calls(node: exp.Expr, lowering: Lowering) -> AggregateCall | list[AggregateCall]:
    """One aggregate, or those that a list is made of: QUANTILE_CONT(x, [0.1, 0.9])."""
    place = lowering.place(node)
    node, bounds = take_bounds(node, lowering.source)
    if not is_quantile(node.this if isinstance(node, exp.Filter) else node):
        return with_bounds(_plain_call(node, lowering, place), bounds, node, lowering)
    calls, listed = _quantile_calls(node, lowering, place)
    calls = [with_bounds(call, bounds, node, lowering) for call in calls]
    return calls if listed else calls[0]


def _quantile_calls(node: exp.Expr, lowering: Lowering, place: Place | None) -> tuple[list[AggregateCall], bool]:
    plain = node.this if isinstance(node, exp.Filter) else node
    asked = read_quantiles(plain)
    if asked is None or extra_clauses(plain, {"this", "expression", "quantile"}):
        raise Unsupported(
            f"{_spoken(node)} cannot be asked in this form", at=place, hint="write MEDIAN(x) or QUANTILE_CONT(x, 0.9)"
        )
    for fraction in asked.fractions:
        if not 0 <= fraction <= 1:
            raise ProgrammingError(
                f"a quantile lies between 0 and 1, and {float(fraction):g} does not",
                at=place,
                hint="write QUANTILE_CONT(x, 0.9) for what 90 % are below",
            )
    value = _where(node.expression.this, asked.value) if isinstance(node, exp.Filter) else asked.value
    argument = _argument(value, lowering, place)
    return [AggregateCall(asked.name, (argument,), at=place, fraction=part) for part in asked.fractions], asked.listed


def _plain_call(node: exp.Expr, lowering: Lowering, place: Place | None) -> AggregateCall:
    plain = _plain(node)
    name = NAMES.get(type(plain)) if plain is not None else None
    if plain is None or name is None or extra_clauses(plain, {*ARGUMENTS, "big_int"}):
        raise Unsupported(f"{_spoken(node)} cannot be asked", at=place, hint=HINT)
    if is_star(plain) or name in WITHOUT_ARGUMENTS:
        return AggregateCall(name, (), at=place)
    nodes = [plain.args[key] for key in ARGUMENTS if plain.args.get(key) is not None]
    distinct = isinstance(plain.this, exp.Distinct)
    if distinct:
        nodes = plain.this.expressions
    if len(nodes) not in COUNTS.get(name, (1,)) or (distinct and plain.this.args.get("on")):
        raise Unsupported(f"{name} takes one column there", at=place, hint="ask about one column at a time")
    value, *rest = (_argument(part, lowering, place) for part in nodes)
    arguments = (value, *(as_beside(part, [value]) for part in rest))
    return AggregateCall(name, arguments, distinct, place, wide=_is_count_if(node))


def _argument(node: exp.Expr, lowering: Lowering, place: Place | None) -> Expression:
    if has_aggregate(node):
        raise ProgrammingError(
            "an aggregate cannot stand inside another", at=place, hint="aggregate in a subquery, then again outside"
        )
    return lowering.lower(node)


def _plain(node: exp.Expr) -> exp.Expr | None:
    """The aggregate without FILTER, under its usual name; None if it cannot be said so."""
    if isinstance(node, exp.Filter):
        inner, condition = _plain(node.this), node.expression.this
        if inner is None:
            return None
        return _filtered(inner, condition)
    if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
        return node.this
    if isinstance(node, exp.ApproxDistinct) and not extra_clauses(node, {"this"}):
        return exp.Count(this=exp.Distinct(expressions=[node.this]))
    if isinstance(node, exp.CountIf):
        return exp.Count(this=_where(node.this, exp.Literal.number(1)))
    if isinstance(node, exp.Anonymous):
        return exp.Avg(this=node.expressions[0]) if len(node.expressions) == 1 else None
    return node


def _is_count_if(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Filter) else node, exp.CountIf)


def _filtered(call: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """The aggregate over rows that satisfy the condition: of the others its (first) argument is NULL."""
    if isinstance(call.this, exp.Distinct):
        first, *more = call.this.expressions
        distinct = exp.Distinct(expressions=[_where(condition, first), *more], on=call.this.args.get("on"))
        return type(call)(**{**call.args, "this": distinct})
    argument = exp.Literal.number(1) if is_star(call) else call.this
    return type(call)(**{**call.args, "this": _where(condition, argument)})


def _where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _spoken(node: exp.Expr) -> str:
    if isinstance(node, exp.Filter | exp.IgnoreNulls):
        return _spoken(node.this)
    return node.sql_name() if isinstance(node, exp.Func) else node.key.upper()


def per_unit_type(call: AggregateCall) -> ColumnType:
    """The type of an aggregate within one unit, which not every one can be."""
    check_per_unit(call, AGGREGATES)
    return result_type(call).type

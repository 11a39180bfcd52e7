"""The answer of an aggregate as SQL over its noisy measures. It runs after the release, and touches nobody."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.estimate import Estimate, Linear, Ratio
from dpsql.expressions.write import cast, clamp, column, huge, integer, literal, when
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from dpsql.schema.types import ColumnType

WIDEST_DECIMAL = 38


def final_sql(estimate: Estimate, kind: ColumnType) -> exp.Expr:
    if isinstance(estimate, Ratio):
        return _ratio(estimate)
    whole, unit = _whole_part(estimate)
    match kind:
        case Integer():
            return exp.Paren(this=exp.Mul(this=whole, expression=integer(int(unit))))
        case Decimal():
            return _decimal(whole, kind.scale)
        case _:
            return exp.Paren(this=exp.Mul(this=cast(whole, Double()), expression=literal(unit, Double())))


def _whole_part(linear: Linear) -> tuple[exp.Expr, Fraction]:
    """The sum as an exact integer, and the value of its unit: no rounding before the last multiplication."""
    unit = _common_unit([weight for _, weight in linear.weights] + ([linear.constant] if linear.constant else []))
    terms: list[exp.Expr] = [
        exp.Mul(this=huge(column(name)), expression=integer(int(weight / unit))) for name, weight in linear.weights
    ]
    if linear.constant or not terms:
        terms.append(huge(integer(int(linear.constant / unit))))
    return exp.Paren(this=reduce(lambda left, right: exp.Add(this=left, expression=right), terms)), unit


def _common_unit(weights: list[Fraction]) -> Fraction:
    """The largest number of which all weights are whole multiples."""
    if not weights:
        return Fraction(1)
    below = math.lcm(*(weight.denominator for weight in weights))
    return Fraction(math.gcd(*(int(weight * below) for weight in weights)), below)


def _decimal(whole: exp.Expr, scale: int) -> exp.Expr:
    digits = exp.DataType.build(f"DECIMAL({WIDEST_DECIMAL - scale - 1}, 0)", dialect="duckdb")
    unit = literal(Fraction(1, 10**scale), Decimal(scale + 1, scale))
    return exp.Paren(this=exp.Mul(this=exp.TryCast(this=whole, to=digits, safe=True), expression=unit))


def _ratio(ratio: Ratio) -> exp.Expr:
    """Nothing can be said of an average over no rows, so it is NULL there."""
    above, below = final_sql(ratio.above, Double()), final_sql(ratio.below, Double())
    value: exp.Expr = exp.Div(this=above, expression=below)
    if ratio.low is not None and ratio.high is not None:
        value = clamp(exp.Paren(this=value), literal(ratio.low, Double()), literal(ratio.high, Double()))
    return when(exp.GT(this=below.copy(), expression=integer(0)), value)

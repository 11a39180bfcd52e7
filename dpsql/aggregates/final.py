"""The answer of an aggregate as SQL over its noisy measures. It runs after the release, and touches nobody."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Estimate, Formula, Linear, Ratio, Reported
from dpsql.expressions.write import (
    Sql,
    binary,
    cast,
    clamp,
    column,
    engine_type,
    huge,
    integer,
    literal,
    try_cast,
    when,
)
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from dpsql.aggregates.answer import Answer
    from dpsql.schema.types import ColumnType


def answer_type(answer: Answer) -> str:
    """In the engine's words."""
    return "HUGEINT" if answer.wide and isinstance(answer.type, Integer) else str(engine_type(answer.type))


def _is_plain(estimate: Estimate | Formula) -> bool:
    """Whether the answer is one measure as it stands: a count."""
    return isinstance(estimate, Linear) and [weight for _, weight in estimate.weights] == [1] and not estimate.constant


def final_sql(estimate: Estimate | Formula, kind: ColumnType) -> Sql:
    match estimate:
        case Formula(sql=sql):
            return sql
        case Ratio():
            return _ratio(estimate)
        case Reported(answer=answer):
            return column(answer)
        case Linear():
            return linear_sql(estimate, kind)


def linear_sql(estimate: Linear, kind: ColumnType) -> Sql:
    if isinstance(kind, Integer) and _is_plain(estimate):
        return column(estimate.weights[0][0])
    whole, unit = _whole_part(estimate)
    match kind:
        case Integer():
            return binary(whole, "*", integer(int(unit)))
        case Decimal():
            return _decimal(whole, unit, kind.scale)
        case _:
            return binary(cast(whole, Double()), "*", literal(unit, Double()))


def _whole_part(linear: Linear) -> tuple[Sql, Fraction]:
    """The sum as an exact integer, and the value of its unit: no rounding before the last multiplication."""
    constants = [linear.constant] if linear.constant or not linear.weights else []
    unit = _common_unit([weight for _, weight in linear.weights] + constants)
    terms = [binary(huge(column(name)), "*", integer(int(weight / unit))) for name, weight in linear.weights]
    terms += [huge(integer(int(constant / unit))) for constant in constants]
    return Sql(f"({' + '.join(terms)})"), unit


def _common_unit(weights: list[Fraction]) -> Fraction:
    """The largest number of which all weights are whole multiples."""
    if not any(weights):
        return Fraction(1)
    below = math.lcm(*(weight.denominator for weight in weights))
    return Fraction(math.gcd(*(int(weight * below) for weight in weights)), below)


def _decimal(whole: Sql, unit: Fraction, scale: int) -> Sql:
    steps = unit * 10**scale
    if steps.denominator != 1:
        return try_cast(binary(cast(whole, Double()), "*", literal(unit, Double())), Decimal(WIDEST_DECIMAL, scale))
    digits = try_cast(binary(whole, "*", integer(int(steps))), Decimal(WIDEST_DECIMAL - scale - 1, 0))
    return binary(digits, "*", literal(Fraction(1, 10**scale), Decimal(scale + 1, scale)))


def _ratio(ratio: Ratio) -> Sql:
    """Nothing can be said of an average over no rows, so it is NULL there."""
    above, below = linear_sql(ratio.above, Double()), linear_sql(ratio.below, Double())
    value = binary(above, "/", below)
    if ratio.low is not None and ratio.high is not None:
        value = clamp(value, literal(ratio.low, Double()), literal(ratio.high, Double()))
    return when(Sql(f"{below} > 0"), value)

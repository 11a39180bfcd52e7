"""VARIANCE, STDDEV, COVAR, CORR, REGR_SLOPE and its kin: from noisy counts, sums and sums of products.

Everything is counted from the middle of the range, which keeps the products small, so that little is lost when the
square of a sum is taken off:  variance = (sum of squares - sum^2 / count) / count.  docs/proofs/moments.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Answer, Context
from dpsql.aggregates.count import count_linear
from dpsql.aggregates.estimate import Formula
from dpsql.aggregates.final import linear_sql
from dpsql.aggregates.sum import sum_linear, summed
from dpsql.expressions.narrow import kept_facts
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Expression, Literal
from dpsql.expressions.write import Sql, binary, call, literal, when
from dpsql.relation.relation import AggregateCall
from dpsql.schema.types import Boolean, Double, Integer, Text

if TYPE_CHECKING:
    from fractions import Fraction

    from dpsql.aggregates.estimate import Linear

SAMPLES = ("VAR_SAMP", "STDDEV_SAMP", "COVAR_SAMP")


def variance(asked: AggregateCall, context: Context) -> Answer:
    (argument,) = asked.arguments
    middle = _middle(asked, argument, context)
    count = _double(count_linear(asked, context))
    away = _away(argument, middle)
    total = _double(sum_linear(asked, away, context))
    squares = _double(sum_linear(asked, _square(away), context))
    spread = _spread(squares, total, total, count)
    # Noise may push it below what any data could have.
    held = call("greatest", spread, literal(0, Double()))
    result = binary(held, "/", _divisor(asked, count))
    if asked.name.startswith("STDDEV"):
        result = call("sqrt", result)
    return Answer(Formula(when(_enough(asked, count), result)), Double())


def covariance(asked: AggregateCall, context: Context) -> Answer:
    pairs = _pair_sums(asked, context)
    divided = binary(pairs.together, "/", _divisor(asked, pairs.count))
    return Answer(Formula(when(_enough(asked, pairs.count), divided)), Double())


def correlation(asked: AggregateCall, context: Context) -> Answer:
    """CORR, and its square REGR_R2, which explains all of a y that does not vary."""
    pairs = _pair_sums(asked, context)
    scale = call("sqrt", binary(pairs.of_y, "*", pairs.of_x))
    held = call(
        "least",
        call("greatest", binary(pairs.together, "/", scale), literal(-1, Double())),
        literal(1, Double()),
    )
    known = Sql(f"{_enough(asked, pairs.count)} AND {pairs.of_x} > 0")
    y_varies = Sql(f"{pairs.of_y} > 0")
    if asked.name == "REGR_R2":
        return Answer(Formula(when(known, when(y_varies, binary(held, "*", held), literal(1, Double())))), Double())
    return Answer(Formula(when(Sql(f"{known} AND {y_varies}"), held)), Double())


def regression(asked: AggregateCall, context: Context) -> Answer:
    """REGR_SLOPE(y, x): how much y grows with x. REGR_INTERCEPT(y, x): what y is where x is 0."""
    pairs = _pair_sums(asked, context)
    result = binary(pairs.together, "/", pairs.of_x)
    if asked.name == "REGR_INTERCEPT":
        result = binary(pairs.mean_y, "-", binary(result, "*", pairs.mean_x))
    return Answer(Formula(when(Sql(f"{_enough(asked, pairs.count)} AND {pairs.of_x} > 0"), result)), Double())


@dataclass(frozen=True)
class Pairs:
    """Over rows where both are known: their number, the spreads of y with x, of y and of x, and the means."""

    count: Sql
    together: Sql
    of_y: Sql
    of_x: Sql
    mean_y: Sql
    mean_x: Sql


def _pair_sums(asked: AggregateCall, context: Context) -> Pairs:
    y, x = asked.arguments
    y, x = _where_known(y, x, context), _where_known(x, y, context)
    pairs = AggregateCall(asked.name, (y,), at=asked.at)
    count = _double(count_linear(pairs, context))
    middles = [_middle(asked, value, context) for value in (y, x)]
    from_y, from_x = (_away(value, middle) for value, middle in zip((y, x), middles, strict=True))
    sum_y, sum_x = (_double(sum_linear(pairs, away, context)) for away in (from_y, from_x))
    product = Call(FUNCTIONS["*"], (from_y, from_x), Double())
    mean_y, mean_x = (
        binary(literal(middle, Double()), "+", binary(total, "/", count))
        for middle, total in zip(middles, (sum_y, sum_x), strict=True)
    )
    return Pairs(
        count,
        _spread(_double(sum_linear(pairs, product, context)), sum_y, sum_x, count),
        _spread(_double(sum_linear(pairs, _square(from_y), context)), sum_y, sum_y, count),
        _spread(_double(sum_linear(pairs, _square(from_x), context)), sum_x, sum_x, count),
        mean_y,
        mean_x,
    )


def _where_known(value: Expression, other: Expression, context: Context) -> Expression:
    if not kept_facts(other, context.known).nullable:
        return value
    unknown = Call(FUNCTIONS["IS NULL"], (other,), Boolean())
    known = Call(FUNCTIONS["NOT"], (unknown,), Boolean())
    return Call(FUNCTIONS["CASE"], (known, value, Literal(None, Text())), value.type)


def _middle(asked: AggregateCall, value: Expression, context: Context) -> Fraction:
    measure = summed(asked, value, context, centred=True)
    return measure.centre * measure.quantum


def _away(value: Expression, middle: Fraction) -> Expression:
    return Call(FUNCTIONS["-"], (value, Literal(middle, Double())), Double())


def _square(away: Expression) -> Expression:
    return Call(FUNCTIONS["POWER"], (away, Literal(2, Integer())), Double())


def _double(linear: Linear) -> Sql:
    return linear_sql(linear, Double())


def _spread(products: Sql, first: Sql, second: Sql, count: Sql) -> Sql:
    """Sum of (y - mean y)(x - mean x)."""
    return Sql(f"({products} - {first} * {second} / {count})")


def _divisor(asked: AggregateCall, count: Sql) -> Sql:
    return binary(count, "-", literal(1, Double())) if asked.name in SAMPLES else count


def _enough(asked: AggregateCall, count: Sql) -> Sql:
    """A sample of one has no variance, and nothing has none."""
    return Sql(f"{count} > {1 if asked.name in SAMPLES else 0}")

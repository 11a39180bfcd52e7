"""VARIANCE, STDDEV, COVAR, CORR, REGR_SLOPE and its kin: from noisy counts, sums and sums of products.

Everything is counted from the middle of the range, which keeps the products small, so that little is lost when the
square of a sum is taken off:  variance = (sum of squares - sum^2 / count) / count.  A spread that noise alone could
have made is not divided by: a slope would be a number without meaning.  docs/proofs/moments.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from dpsql.aggregates.count import count_linear
from dpsql.aggregates.estimate import Formula, noise_of
from dpsql.aggregates.final import Answer, Context, linear_sql
from dpsql.aggregates.function import AggregateFunction, Bounds, ErrorBars, Word
from dpsql.aggregates.sum import sum_linear, summed
from dpsql.engine_sql.build import apply, double, integer, test, when
from dpsql.engine_sql.tree import Field
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Expression, Literal, properties_of
from dpsql.relation.relation import AggregateCall
from dpsql.schema.types import Boolean, Double, Integer, Text

if TYPE_CHECKING:
    from fractions import Fraction

    from dpsql.aggregates.estimate import Linear
    from dpsql.aggregates.function import Aggregator
    from dpsql.engine_sql.tree import Term

DEVIATIONS = 2
"""A spread this many standard deviations of its noise away from none is more than noise."""


def variance(asked: AggregateCall, context: Context, *, sample: bool, root: bool) -> Answer:
    (argument,) = asked.arguments
    middle = _middle(asked, argument, context)
    count = count_linear(asked, context)
    away = _away(argument, middle)
    total, squares = (sum_linear(asked, value, context) for value in (away, _square(away)))
    spread = Spread(squares, total, total, count).sql
    # Noise may push it below what any data could have.
    clamped = _do("greatest", spread, double(0))
    result = _do("/", clamped, _divisor(_double(count), sample))
    if root:
        result = _do("sqrt", result)
    return Answer(Formula(when(_enough(_double(count), sample), result), (count, total, squares)), Double())


def covariance(asked: AggregateCall, context: Context, *, sample: bool) -> Answer:
    pairs = _pair_sums(asked, context)
    divided = _do("/", pairs.together.sql, _divisor(pairs.count, sample))
    return Answer(Formula(when(_enough(pairs.count, sample), divided), pairs.parts), Double())


def correlation(asked: AggregateCall, context: Context, *, squared: bool) -> Answer:
    """CORR, and its square REGR_R2, which explains all of a y that is a constant."""
    pairs = _pair_sums(asked, context)
    scale = _do("sqrt", _do("*", pairs.of_y.sql, pairs.of_x.sql))
    clamped = _do("least", _do("greatest", _do("/", pairs.together.sql, scale), double(-1)), double(1))
    if squared:
        clamped = _do("*", clamped, clamped)
        values = properties_of(asked.arguments[0], context.known).values
        if values is not None and len(values) == 1:
            return _over(pairs, double(1), pairs.of_x)
    return _over(pairs, clamped, pairs.of_x, pairs.of_y)


def regression(asked: AggregateCall, context: Context, *, intercept: bool) -> Answer:
    """REGR_SLOPE(y, x): how much y grows with x. REGR_INTERCEPT(y, x): what y is where x is 0."""
    pairs = _pair_sums(asked, context)
    result = _do("/", pairs.together.sql, pairs.of_x.sql)
    if intercept:
        result = _do("-", pairs.mean_y, _do("*", result, pairs.mean_x))
    return _over(pairs, result, pairs.of_x)


def _over(pairs: Pairs, result: Term, *divisors: Spread) -> Answer:
    """The result where there are pairs, and what it is divided by is more than noise."""
    varied = [test(">", divisor.sql, divisor.noise) for divisor in divisors]
    weighed = frozenset[str]().union(*(divisor.measures for divisor in divisors))
    return Answer(Formula(when(test("and", _enough(pairs.count), *varied), result), pairs.parts, weighed), Double())


@dataclass(frozen=True)
class Spread:
    """Sum of (y - mean y)(x - mean x): of the products, less what the means make of them."""

    products: Linear
    first: Linear
    second: Linear
    count: Linear

    @property
    def sql(self) -> Term:
        products, first, second, count = map(_double, (self.products, self.first, self.second, self.count))
        return _do("-", products, _do("/", _do("*", first, second), count))

    @property
    def noise(self) -> Term:
        """How far a spread of x with itself may be from the truth by noise, and by rounding to quanta.

        d(Q - S^2/n) = dQ - 2 (S/n) dS + (S/n)^2 dn
        """
        count = _double(self.count)
        mean = _do("abs", _do("/", _double(self.first), count))
        twice = _do("*", double(2), mean)
        by_first, by_count = _do("*", twice, _std(self.first)), _do("*", _do("*", mean, mean), _std(self.count))
        by_noise = _do("+", _do("+", _std(self.products), by_first), by_count)
        by_rounding = _do("+", _coarse(self.products), _do("*", twice, _coarse(self.first)))
        return _do("+", _do("*", double(DEVIATIONS), by_noise), _do("*", count, by_rounding))

    @property
    def measures(self) -> frozenset[str]:
        return frozenset(name for part in (self.products, self.first, self.count) for name, _ in part.weights)


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Over rows where both are known: their number, the spreads of y with x, of y and of x, and the means."""

    count: Term
    together: Spread
    of_y: Spread
    of_x: Spread
    mean_y: Term
    mean_x: Term
    parts: tuple[Linear, ...]
    """The number, the sums, and the sums of products."""


def _pair_sums(asked: AggregateCall, context: Context) -> Pairs:
    y, x = asked.arguments
    y, x = _where_known(y, x, context), _where_known(x, y, context)
    pairs = AggregateCall(name=asked.name, arguments=(y,), at=asked.at)
    count = count_linear(pairs, context)
    middles = [_middle(asked, value, context) for value in (y, x)]
    from_y, from_x = (_away(value, middle) for value, middle in zip((y, x), middles, strict=True))
    product = Call(FUNCTIONS["*"], (from_y, from_x), Double())
    sum_y, sum_x, together, of_y, of_x = (
        sum_linear(pairs, value, context) for value in (from_y, from_x, product, _square(from_y), _square(from_x))
    )
    mean_y, mean_x = (
        _do("+", double(middle), _do("/", _double(total), _double(count)))
        for middle, total in zip(middles, (sum_y, sum_x), strict=True)
    )
    return Pairs(
        count=_double(count),
        together=Spread(together, sum_y, sum_x, count),
        of_y=Spread(of_y, sum_y, sum_y, count),
        of_x=Spread(of_x, sum_x, sum_x, count),
        mean_y=mean_y,
        mean_x=mean_x,
        parts=(count, sum_y, sum_x, together, of_y, of_x),
    )


def _where_known(value: Expression, other: Expression, context: Context) -> Expression:
    if not kept_properties(other, context.known).nullable:
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


def _do(operation: str, *arguments: Term) -> Term:
    """In doubles."""
    return apply(operation, *arguments, kind=Double())


def _double(linear: Linear) -> Term:
    return linear_sql(linear, Double())


def _std(linear: Linear) -> Term:
    """At most this is the standard deviation of its noise: noises that are added cancel rather than pile up."""
    terms = [_do("*", double(abs(weight)), Field(noise_of(name))) for name, weight in linear.weights]
    return reduce(lambda left, right: _do("+", left, right), terms)


def _coarse(linear: Linear) -> Term:
    """How far one value may be from itself after rounding."""
    return double(linear.weights[0][1])


def _divisor(count: Term, sample: bool) -> Term:
    return _do("-", count, double(1)) if sample else count


def _enough(count: Term, sample: bool = False) -> Term:
    """A sample of one has no variance, and nothing has none."""
    return test(">", count, integer(1 if sample else 0))


def _of_one(name: str, *, sample: bool, root: bool) -> AggregateFunction:
    answer = partial(variance, sample=sample, root=root)
    return AggregateFunction(
        name=name, of="bounded numbers", error=ErrorBars.UNKNOWN, answer=answer, clip_power=1 if root else 2
    )


def _of_two(name: str, answer: Aggregator) -> AggregateFunction:
    return AggregateFunction(
        name=name, of="two bounded numbers", error=ErrorBars.UNKNOWN, answer=answer, arguments=(2,), bounds=()
    )


VARIANCE = Word("var", "VAR_SAMP({})", "The variance, with n - 1 as in pandas.")
DEVIATION = Word("std", "STDDEV_SAMP({})", "The standard deviation, with n - 1 as in pandas.")

MOMENTS = (
    replace(_of_one("VAR_POP", sample=False, root=False), clamped=Bounds.PER_ROW),
    replace(_of_one("VAR_SAMP", sample=True, root=False), also=("VARIANCE",), words=(VARIANCE,)),
    replace(_of_one("STDDEV_POP", sample=False, root=True), clamped=Bounds.PER_ROW),
    replace(_of_one("STDDEV_SAMP", sample=True, root=True), also=("STDDEV",), words=(DEVIATION,)),
    _of_two("COVAR_POP", partial(covariance, sample=False)),
    _of_two("COVAR_SAMP", partial(covariance, sample=True)),
    _of_two("CORR", partial(correlation, squared=False)),
    _of_two("REGR_R2", partial(correlation, squared=True)),
    _of_two("REGR_SLOPE", partial(regression, intercept=False)),
    _of_two("REGR_INTERCEPT", partial(regression, intercept=True)),
)

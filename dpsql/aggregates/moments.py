"""VARIANCE, STDDEV, COVAR, CORR, REGR_SLOPE and others: from noisy counts, sums and sums of products.

Values are recentred at the middle of their range, which keeps the products small and avoids cancellation in
variance = (sum of squares - sum^2 / count) / count.  A spread that noise alone could have produced is not divided by,
because the slope would be meaningless.  docs/proofs/moments.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from itertools import product
from typing import TYPE_CHECKING

from dpsql.aggregates.count_sum import count_linear, sum_linear, summed
from dpsql.aggregates.estimate import (
    DEVIATIONS,
    Answer,
    Context,
    Formula,
    SmoothFunction,
    linear_sql,
    margin_sql,
    std_sql,
    stds_sql,
)
from dpsql.aggregates.function import AggregateFunction, BoundsRule, ErrorBars, Word
from dpsql.engine_sql.build import apply, double, test, when
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Expression, Literal, properties_of
from dpsql.relation.relation import AggregateCall
from dpsql.schema.types import Boolean, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpsql.aggregates.estimate import Linear
    from dpsql.aggregates.function import Aggregator
    from dpsql.engine_sql.tree import Term

# -- moment values -----------------------------------------------------------------------------------------------------
# Variances, covariances, correlations and lines as functions of their parts: for their error bars and their budget.
#
# Parts are count, sums and sums of products, counted from the middles of ranges; of each the variance of its noise is
# given. moments.py has the same in SQL.  docs/proofs/moments.md.

PLACES = (0.25, 0.75)
"""Where typical means and spreads lie in what there is room for."""
ROWS = 1e6
"""The number of rows of typical data: so many that sample and population statistics agree."""
WIDEST = 1e30


def variance_of(values: Sequence[float], variances: Sequence[float], *, sample: bool, root: bool) -> float:
    count, total, squares = values
    if count <= sample:
        raise ValueError("a sample of one value has no variance")
    found = _spread_of(total, variances[1], squares, count) / (count - sample)
    return math.sqrt(found) if root else found


def _together(values: Sequence[float]) -> float:
    """The covariance of y with x."""
    count, y, x, products = values[:4]
    return products - y * x / count


def _spread_of(total: float, noise: float, squares: float, count: float) -> float:
    return squares - (total**2 - noise) / count


def covariance_of(values: Sequence[float], variances: Sequence[float], *, sample: bool) -> float:
    return _together(values) / (values[0] - sample)


def correlation_of(values: Sequence[float], variances: Sequence[float], *, squared: bool) -> float:
    count, y, x, _, squares_x, squares_y = values
    of_y = _spread_of(y, variances[1], squares_y, count)
    of_x = _spread_of(x, variances[2], squares_x, count)
    found = _together(values) / math.sqrt(of_y * of_x)
    return found**2 if squared else found


def line_of(
    values: Sequence[float], variances: Sequence[float], *, middles: tuple[Fraction, Fraction], at_zero: bool
) -> float:
    count, y, x, _, squares_x = values
    slope = _together(values) / _spread_of(x, variances[2], squares_x, count)
    mean_y, mean_x = (float(middle) + total / count for middle, total in zip(middles, (y, x), strict=True))
    return mean_y - slope * mean_x if at_zero else slope


def _typical(half: float) -> list[tuple[float, float]]:
    """Means (from the middle of the range) and mean squares, for a variety of data that the range allows.

    None over a range that is a point, or so wide or narrow that its powers are no numbers.
    """
    if not 1 / WIDEST < half < WIDEST:
        return []
    means = [half * mean for mean in PLACES]
    return [(mean, mean**2 + spread * (half**2 - mean**2)) for mean in means for spread in PLACES]


def typical_sums(half: float) -> Iterator[tuple[float, ...]]:
    """Typical values of count, sum and sum of squares."""
    for mean, square in _typical(half):
        yield ROWS, ROWS * mean, ROWS * square


def typical_pairs(half_y: float, half_x: float) -> Iterator[tuple[float, ...]]:
    """Typical values of count, sums of y and x, of their products, and of the squares of x and y."""
    for (y, of_y), (x, of_x) in product(_typical(half_y), _typical(half_x)):
        covaried = math.sqrt((of_y - y**2) * (of_x - x**2)) / 2
        for together in (y * x - covaried, y * x + covaried):
            yield tuple(ROWS * mean for mean in (1, y, x, together, of_x, of_y))


# -- moments -----------------------------------------------------------------------------------------------------------


def variance(asked: AggregateCall, context: Context, *, sample: bool, root: bool) -> Answer:
    (argument,) = asked.arguments
    count = count_linear(asked, context)
    x = _variable(asked, argument, asked, context)
    squares = sum_linear(asked, _square(x.away), context)
    spread = Spread(squares, x.total, x.total, count, in_totals=context.in_totals)
    # Noise may push it out of what data could have: at most half of the values at either end, or two of a sample.
    most = (1 + sample) * x.half * x.half
    result = _do("/", _do("greatest", spread.sql, double(0)), _divisor(_double(count), sample))
    if most < math.inf:
        result = _do("least", result, double(Fraction(most)))
    if root:
        result = _do("sqrt", result)
    parts = (count, x.total, squares)
    smooth = SmoothFunction(
        parts,
        partial(variance_of, sample=sample, root=root),
        low=0.0,
        high=math.sqrt(most) if root else most,
        typical=tuple(typical_sums(x.half)),
    )
    weighed = frozenset(name for part in (count, x.total) for name, _ in part.weights)
    formula = Formula(when(_enough(count, sample), result), parts, weighed, smooth)
    return Answer(formula, Double())


def covariance(asked: AggregateCall, context: Context, *, sample: bool) -> Answer:
    y, x = asked.arguments
    if y == x:
        return variance(replace(asked, arguments=(x,)), context, sample=sample, root=False)
    pairs = _pair_sums(asked, context)
    divided = _do("/", pairs.together.sql, _divisor(pairs.number, sample))
    smooth = pairs.smooth(pairs.sums, partial(covariance_of, sample=sample))
    weighed = frozenset(name for name, _ in pairs.count.weights)
    return Answer(Formula(when(_enough(pairs.count, sample), divided), pairs.sums, weighed, smooth), Double())


def correlation(asked: AggregateCall, context: Context, *, squared: bool) -> Answer:
    """CORR, and its square REGR_R2, which is 1 for a constant y."""
    pairs = _pair_sums(asked, context)
    of_x = pairs.spread_of(pairs.x)
    if squared:
        values = properties_of(asked.arguments[0], context.known).values
        if values is not None and len(values) == 1:
            return _over(pairs, double(1), None, of_x)
    of_y = pairs.spread_of(pairs.y)
    scale = _do("sqrt", _do("*", of_y.sql, of_x.sql))
    clamped = _do("least", _do("greatest", _do("/", pairs.together.sql, scale), double(-1)), double(1))
    result = _do("*", clamped, clamped) if squared else clamped
    parts = (*pairs.sums, of_x.products, of_y.products)
    smooth = pairs.smooth(parts, partial(correlation_of, squared=squared), 0.0 if squared else -1.0, 1.0)
    return _over(pairs, result, smooth, of_x, of_y)


def regression(asked: AggregateCall, context: Context, *, intercept: bool) -> Answer:
    """REGR_SLOPE(y, x): how much y grows with x. REGR_INTERCEPT(y, x): what y is where x is 0."""
    pairs = _pair_sums(asked, context)
    of_x = pairs.spread_of(pairs.x)
    result = _do("/", pairs.together.sql, of_x.sql)
    if intercept:
        result = _do("-", pairs.mean_of(pairs.y), _do("*", result, pairs.mean_of(pairs.x)))
    value = partial(line_of, middles=(pairs.y.middle, pairs.x.middle), at_zero=intercept)
    return _over(pairs, result, pairs.smooth((*pairs.sums, of_x.products), value), of_x)


def _over(pairs: Pairs, result: Term, smooth: SmoothFunction | None, *divisors: Spread) -> Answer:
    """The result, if there are pairs and the divisor is larger than its noise; else NULL."""
    varied = [test(">", divisor.sql, divisor.noise) for divisor in divisors]
    weighed = frozenset[str]().union(*(divisor.measures for divisor in divisors))
    parts = (*pairs.sums, *(divisor.products for divisor in divisors))
    formula = Formula(when(test("and", _enough(pairs.count), *varied), result), parts, weighed, smooth)
    return Answer(formula, Double())


@dataclass(frozen=True)
class Spread:
    """The sum of (y - mean y)(x - mean x), from the sums of products and of values."""

    products: Linear
    first: Linear
    second: Linear
    count: Linear
    in_totals: bool = False
    """Whether ROLLUP or CUBE adds up the sums over groups afterwards."""

    @property
    def sql(self) -> Term:
        products, first, second, count = map(_double, (self.products, self.first, self.second, self.count))
        together = _do("*", first, second)
        if self.first == self.second and not self.in_totals:
            # The square of a noisy sum is too large, on average by the variance of its noise.
            together = _do("-", together, _variance(self.first))
        return _do("-", products, _do("/", together, count))

    @property
    def noise(self) -> Term:
        """The possible error of the spread of x from noise and from rounding to quanta.

        d(Q - S^2/n) = dQ - 2 (S/n) dS + (S/n)^2 dn
        """
        count = _double(self.count)
        mean = _do("abs", _do("/", _double(self.first), count))
        twice = _do("*", double(2), mean)
        by_first, by_count = _do("*", twice, std_sql(self.first)), _do("*", _do("*", mean, mean), std_sql(self.count))
        by_noise = _do("+", _do("+", std_sql(self.products), by_first), by_count)
        by_rounding = _do("+", _coarse(self.products), _do("*", twice, _coarse(self.first)))
        return _do("+", _do("*", double(DEVIATIONS), by_noise), _do("*", count, by_rounding))

    @property
    def measures(self) -> frozenset[str]:
        return frozenset(name for part in (self.products, self.first, self.count) for name, _ in part.weights)


@dataclass(frozen=True)
class Variable:
    """One of two variables, recentred at the middle of its range, and its sum."""

    away: Expression
    middle: Fraction
    half: float
    """The half-width of its range."""
    total: Linear


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The count, the sums and the sum of products over rows where both variables have a value."""

    asked: AggregateCall
    """The sums of one variable."""
    context: Context
    count: Linear
    y: Variable
    x: Variable
    products: Linear

    @property
    def number(self) -> Term:
        return _double(self.count)

    @property
    def sums(self) -> tuple[Linear, ...]:
        return self.count, self.y.total, self.x.total, self.products

    @property
    def together(self) -> Spread:
        return Spread(self.products, self.y.total, self.x.total, self.count, in_totals=self.context.in_totals)

    def spread_of(self, one: Variable) -> Spread:
        """The spread of one variable. Only this call makes its sum of squares a measure."""
        squares = sum_linear(self.asked, _square(one.away), self.context)
        return Spread(squares, one.total, one.total, self.count, in_totals=self.context.in_totals)

    def mean_of(self, one: Variable) -> Term:
        return _do("+", double(one.middle), _do("/", _double(one.total), self.number))

    def smooth(
        self,
        parts: tuple[Linear, ...],
        value: Callable[[Sequence[float], Sequence[float]], float],
        low: float = -math.inf,
        high: float = math.inf,
    ) -> SmoothFunction:
        """The estimate from the sums and, if measured, the squares of x and y."""
        typical = (values[: len(parts)] for values in typical_pairs(self.y.half, self.x.half))
        return SmoothFunction(parts, value, low, high, tuple(typical))


def _pair_sums(asked: AggregateCall, context: Context) -> Pairs:
    y, x = asked.arguments
    y, x = _where_known(y, x, context), _where_known(x, y, context)
    pairs = AggregateCall(name=asked.name, arguments=(y,), at=asked.at)
    count = count_linear(pairs, context)
    of_y, of_x = (_variable(asked, value, pairs, context) for value in (y, x))
    multiplied = Call(FUNCTIONS["*"], (of_y.away, of_x.away), Double())
    products = sum_linear(pairs, multiplied, context)
    return Pairs(asked=pairs, context=context, count=count, y=of_y, x=of_x, products=products)


def _where_known(value: Expression, other: Expression, context: Context) -> Expression:
    if not kept_properties(other, context.known).nullable:
        return value
    unknown = Call(FUNCTIONS["IS NULL"], (other,), Boolean())
    known = Call(FUNCTIONS["NOT"], (unknown,), Boolean())
    return Call(FUNCTIONS["CASE"], (known, value, Literal(None, Text())), value.type)


def _variable(asked: AggregateCall, value: Expression, rows: AggregateCall, context: Context) -> Variable:
    """A measure that is summed over the rows of another call."""
    measure = summed(asked, value, context, centred=True)
    middle, half = measure.centre * measure.quantum, (measure.high - measure.low) * measure.quantum / 2
    away = Call(FUNCTIONS["-"], (value, Literal(middle, Double())), Double())
    return Variable(away, middle, float(half), sum_linear(rows, away, context))


def _square(away: Expression) -> Expression:
    return Call(FUNCTIONS["POWER"], (away, Literal(2, Integer())), Double())


def _do(operation: str, *arguments: Term) -> Term:
    """The term as a double."""
    return apply(operation, *arguments, kind=Double())


def _double(linear: Linear) -> Term:
    return linear_sql(linear, Double())


def _variance(linear: Linear) -> Term:
    """The variance of its noise: independent noises add in quadrature."""
    return reduce(lambda left, right: _do("+", left, right), [_do("*", std, std) for std in stds_sql(linear)])


def _coarse(linear: Linear) -> Term:
    """The largest rounding error of one value."""
    return double(linear.weights[0][1])


def _divisor(count: Term, sample: bool) -> Term:
    return _do("-", count, double(1)) if sample else count


def _enough(count: Linear, sample: bool = False) -> Term:
    """Whether there are enough rows, at least two for a sample, and more than noise alone could have made."""
    margin = margin_sql(count)
    return test(">", _double(count), _do("greatest", margin, double(1)) if sample else margin)


def _of_one(name: str, *, sample: bool, root: bool) -> AggregateFunction:
    answer = partial(variance, sample=sample, root=root)
    return AggregateFunction(
        name=name, of="bounded numbers", error=ErrorBars.WHERE_STRAIGHT, answer=answer, clip_power=1 if root else 2
    )


def _of_two(name: str, answer: Aggregator) -> AggregateFunction:
    return AggregateFunction(
        name=name, of="two bounded numbers", error=ErrorBars.WHERE_STRAIGHT, answer=answer, arguments=(2,), bounds=()
    )


VARIANCE = Word("var", "VAR_SAMP({})", "The variance, with n - 1 as in pandas.")
DEVIATION = Word("std", "STDDEV_SAMP({})", "The standard deviation, with n - 1 as in pandas.")

MOMENTS = (
    replace(_of_one("VAR_POP", sample=False, root=False), clamped=BoundsRule.PER_ROW),
    replace(_of_one("VAR_SAMP", sample=True, root=False), also=("VARIANCE",), words=(VARIANCE,)),
    replace(_of_one("STDDEV_POP", sample=False, root=True), clamped=BoundsRule.PER_ROW),
    replace(_of_one("STDDEV_SAMP", sample=True, root=True), also=("STDDEV",), words=(DEVIATION,)),
    _of_two("COVAR_POP", partial(covariance, sample=False)),
    _of_two("COVAR_SAMP", partial(covariance, sample=True)),
    _of_two("CORR", partial(correlation, squared=False)),
    _of_two("REGR_R2", partial(correlation, squared=True)),
    _of_two("REGR_SLOPE", partial(regression, intercept=False)),
    _of_two("REGR_INTERCEPT", partial(regression, intercept=True)),
)

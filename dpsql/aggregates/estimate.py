"""Estimates: how an answer follows from noisy measures, and its error.

A `Linear` is a weighted sum of measures: COUNT, SUM, and their sums and differences. A `Ratio` is one linear over
another: AVG, and shares. Arithmetic with constants keeps both forms; anything else has an unknown error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.engine_sql.build import WIDE, all_of, apply, cast, double, integer, test, when, wide
from dpsql.engine_sql.tree import Constant, Field, TryCast
from dpsql.engines.duckdb.render import type_name
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from dpsql.aggregates.measure import Measure, Statistic
    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.tree import Expression, Known
    from dpsql.schema.types import ColumnType


@dataclass(frozen=True)
class Linear:
    """A weighted sum of measures: constant + sum of weight * measure."""

    weights: tuple[tuple[str, Fraction], ...]
    """Pairs of a measure's column and its weight."""
    constant: Fraction = Fraction(0)
    rounding: Fraction = Fraction(0)
    """The most that rounding of its parts can change the answer."""
    is_whole: bool = False
    """Whether the answer is rounded to an integer."""

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        merged, added = dict(self.weights), other.times(factor)
        for name, weight in added.weights:
            merged[name] = merged[name] + weight if name in merged else weight
        kept = tuple((name, weight) for name, weight in merged.items() if weight)
        is_whole = self.is_whole and not added.weights
        return Linear(kept, _plus(self.constant, added.constant), _plus(self.rounding, added.rounding), is_whole)

    def times(self, factor: Fraction) -> Linear:
        if factor == 1:
            return self
        weights = ((name, factor * weight) for name, weight in self.weights) if factor else ()
        is_whole = self.is_whole and factor == -1
        return Linear(tuple(weights), _times(factor, self.constant), _times(abs(factor), self.rounding), is_whole)


def _plus(left: Fraction, right: Fraction) -> Fraction:
    """The sum of two constants; most are 0, and adding fractions is slow."""
    return left + right if right else left


def _times(factor: Fraction, value: Fraction) -> Fraction:
    return factor * value if value else value


DEVIATIONS = 2
"""A number above this many standard deviations of its noise is taken for real."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two linear estimates. An average is clamped to its range [low, high]; other quotients have none."""

    above: Linear
    below: Linear
    low: Fraction | None = None
    high: Fraction | None = None

    def plus(self, constant: Fraction) -> Ratio:
        return Ratio(
            self.above.plus(self.below, constant),
            self.below,
            *(None if end is None else end + constant for end in (self.low, self.high)),
        )

    def times(self, factor: Fraction) -> Ratio:
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        low, high = ends if factor >= 0 else reversed(ends)
        return Ratio(self.above.times(factor), self.below, low, high)

    @property
    def weighed(self) -> frozenset[str]:
        """The measures whose noise decides whether there is an answer: those that an average divides by."""
        return frozenset(name for name, _ in self.below.weights) if self.low is not None else frozenset()

    def margin(self, stds: Mapping[str, float]) -> float:
        """An average is NULL where its count is not above this. docs/proofs/average.md."""
        if self.low is None:
            return 0.0
        return DEVIATIONS * math.fsum(float(abs(weight)) * stds[name] for name, weight in self.below.weights)


@dataclass(frozen=True)
class SmoothFunction:
    """A smooth function of linear parts, the first of them a count: a variance, a correlation, a slope.

    It lies within [low, high] where that is known.
    """

    parts: tuple[Linear, ...]
    value: Callable[[Sequence[float], Sequence[float]], float] = field(compare=False, repr=False)
    """The value, from the parts and the variances of their noise; ArithmeticError or ValueError if there is none."""
    low: float = -math.inf
    high: float = math.inf
    typical: tuple[tuple[float, ...], ...] = ()
    """Typical values of its parts, over varied data with the same number of rows: the budget is allocated for these."""

    def slope(self, values: Sequence[float], variances: Sequence[float], part: int, step: float) -> float:
        """The partial derivative with respect to one part."""
        ends = [
            self.value([value + side * (place == part) for place, value in enumerate(values)], variances)
            for side in (-step, step)
        ]
        return (ends[1] - ends[0]) / (2 * step)


@dataclass(frozen=True)
class Formula:
    """An answer that is computed in another way from the measures."""

    sql: Term
    parts: tuple[Linear, ...] = ()
    """The sums and counts that it reads."""
    weighed: frozenset[str] = frozenset()
    """The measures whose standard deviation of noise it reads, from the columns `noise_of`."""
    smooth: SmoothFunction | None = None
    """The smooth function that gives its error, if there is one."""


def noise_of(measure: str) -> str:
    """The name of the column with the standard deviation of a measure's noise."""
    return f"{measure}_std"


@dataclass(frozen=True)
class Reported:
    """A number estimated from randomised reports, times a factor; separate columns hold its error."""

    answer: str
    factor: Fraction = Fraction(1)

    @property
    def standard_error(self) -> str:
        return f"{self.answer}_error"

    @property
    def kurtosis(self) -> str:
        return f"{self.answer}_kurtosis"

    def times(self, factor: Fraction) -> Reported:
        return Reported(self.answer, self.factor * factor)


Estimate: TypeAlias = Linear | Ratio | Reported
WithError: TypeAlias = Estimate | SmoothFunction
"""The estimates whose error is known."""


# Errors through arithmetic: 2 * SUM(x) - 1 is linear, SUM(x) / COUNT(*) a ratio, anything else unknown.


def estimate_of(node: exp.Expr, answers: Mapping[str, Estimate]) -> Estimate | None:
    """The estimate of an expression over answers; `answers` maps each column to its estimate."""
    match node:
        case exp.Alias() | exp.Paren() | exp.Nullif():
            return estimate_of(node.this, answers)
        case exp.Column():
            return answers.get(node.name)
        case exp.Literal() if not node.is_string:
            return Linear((), Fraction(node.this))
        case exp.Neg():
            inner = estimate_of(node.this, answers)
            return inner.times(Fraction(-1)) if inner is not None else None
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            left, right = estimate_of(node.left, answers), estimate_of(node.right, answers)
            return _combined(node, left, right) if left is not None and right is not None else None
    return None


def _combined(node: exp.Binary, left: Estimate, right: Estimate) -> Estimate | None:
    match node:
        case exp.Add():
            return _sum(left, right)
        case exp.Sub():
            return _sum(left, right.times(Fraction(-1)))
        case exp.Mul():
            return _scaled(left, _constant(right)) or _scaled(right, _constant(left))
        case _:
            return _quotient(left, right)


def _constant(estimate: Estimate) -> Fraction | None:
    return estimate.constant if isinstance(estimate, Linear) and not estimate.weights else None


def _scaled(estimate: Estimate, factor: Fraction | None) -> Estimate | None:
    return None if factor is None else estimate.times(factor)


def _sum(left: Estimate, right: Estimate) -> Estimate | None:
    if isinstance(left, Linear) and isinstance(right, Linear):
        return left.plus(right)
    if isinstance(left, Ratio) and (constant := _constant(right)) is not None:
        return left.plus(constant)
    if isinstance(right, Ratio) and (constant := _constant(left)) is not None:
        return right.plus(constant)
    return None


def _quotient(left: Estimate, right: Estimate) -> Estimate | None:
    divisor = _constant(right)
    if divisor is not None:
        return left.times(1 / divisor) if divisor else None
    return Ratio(left, right) if isinstance(left, Linear) and isinstance(right, Linear) else None


# -- final -------------------------------------------------------------------------------------------------------------
# The answer of an aggregate as SQL over its noisy measures: post-processing, which reads no private row.


def answer_type(answer: Answer) -> str:
    """The type as SQL names it."""
    return type_name(WIDE if answer.wide and isinstance(answer.type, Integer) else answer.type)


def _is_plain(estimate: Estimate | Formula) -> bool:
    """Whether the answer is exactly one measure, such as a count."""
    return isinstance(estimate, Linear) and [weight for _, weight in estimate.weights] == [1] and not estimate.constant


def final_sql(estimate: Estimate | Formula, kind: ColumnType) -> Term:
    match estimate:
        case Formula(sql=sql):
            return sql
        case Ratio():
            return _ratio(estimate)
        case Reported(answer=answer):
            return Field(answer)
        case Linear():
            return linear_sql(estimate, kind)


def linear_sql(estimate: Linear, kind: ColumnType) -> Term:
    if isinstance(kind, Integer) and _is_plain(estimate):
        return Field(estimate.weights[0][0])
    whole, unit = _whole_part(estimate)
    match kind:
        case Integer():
            times = whole if unit.numerator == 1 else apply("*", whole, integer(unit.numerator), kind=WIDE)
            return _rounded(times, unit.denominator.bit_length() - 1)
        case Decimal():
            return _decimal(whole, unit, kind.scale)
        case _:
            number = cast(whole, Double())
            return number if unit == 1 else apply("*", number, double(unit), kind=Double())


def as_shown(answer: Answer) -> Estimate | Formula:
    """The answer rounded to an integer, if its parts are fractions."""
    estimate = answer.estimate
    if not isinstance(estimate, Linear) or not isinstance(answer.type, Integer):
        return estimate
    halves = any(weight.denominator > 1 for _, weight in estimate.weights)
    return replace(estimate, rounding=Fraction(1, 2), is_whole=True) if halves else estimate


def _rounded(whole: Term, bits: int) -> Term:
    """The value divided by 2^bits, rounded half to even, so that rounding has no bias."""
    if not bits:
        return whole
    odd = apply("&", apply(">>", whole, integer(bits), kind=WIDE), wide(integer(1)), kind=WIDE)
    raised = apply("+", apply("+", whole, integer((1 << bits - 1) - 1), kind=WIDE), odd, kind=WIDE)
    return apply(">>", raised, integer(bits), kind=WIDE)


def _whole_part(linear: Linear) -> tuple[Term, Fraction]:
    """The sum as an exact integer and the value of its quantum, so that only the last multiplication rounds."""
    constants = [linear.constant] if linear.constant or not linear.weights else []
    multiples, unit = _in_common_units([weight for _, weight in linear.weights] + constants)
    fields = [wide(Field(name)) for name, _ in linear.weights]
    terms = [
        part if times == 1 else apply("*", part, integer(times), kind=WIDE)
        for part, times in zip(fields, multiples, strict=False)
    ]
    terms += [wide(integer(times)) for times in multiples[len(fields) :]]
    return reduce(lambda left, right: apply("+", left, right, kind=WIDE), terms), unit


def _in_common_units(weights: list[Fraction]) -> tuple[list[int], Fraction]:
    """The weights as integer multiples of their greatest common divisor, and that divisor."""
    below = math.lcm(*(weight.denominator for weight in weights))
    scaled = [weight.numerator * (below // weight.denominator) for weight in weights]
    common = math.gcd(*scaled) or below
    return [number // common for number in scaled], Fraction(common, below)


def _decimal(whole: Term, unit: Fraction, scale: int) -> Term:
    steps = unit * 10**scale
    if steps.denominator != 1:
        scaled = apply("*", cast(whole, Double()), double(unit), kind=Double())
        return TryCast(scaled, Decimal(WIDEST_DECIMAL, scale))
    digits = TryCast(apply("*", whole, integer(int(steps)), kind=WIDE), Decimal(WIDEST_DECIMAL - scale - 1, 0))
    one = Constant(Fraction(1, 10**scale), Decimal(scale + 1, scale))
    return apply("*", digits, one, kind=Decimal(WIDEST_DECIMAL, scale))


def std_sql(linear: Linear) -> Term:
    """An upper bound on the standard deviation of its noise, from the columns `noise_of`."""
    start: Term = double(0)
    return reduce(lambda left, right: apply("+", left, right, kind=Double()), stds_sql(linear), start)


def stds_sql(linear: Linear) -> list[Term]:
    """The standard deviations of the noise of its columns."""
    return [apply("*", double(abs(weight)), Field(noise_of(name)), kind=Double()) for name, weight in linear.weights]


def margin_sql(count: Linear) -> Term:
    """What a count must exceed to be told from 0."""
    return apply("*", double(DEVIATIONS), std_sql(count), kind=Double())


def _ratio(ratio: Ratio) -> Term:
    """The quotient; of an average NULL if noise alone could have made its count, else where it is not above 0."""
    above, below = linear_sql(ratio.above, Double()), linear_sql(ratio.below, Double())
    value: Term = apply("/", above, below, kind=Double())
    known = [test(">", below, margin_sql(ratio.below) if ratio.weighed else integer(0))]
    if ratio.low is not None and ratio.high is not None:
        # Written once, while clamp() would write it four times; least and greatest would make a bound of NULL.
        known.append(test("is not null", above))
        value = apply("greatest", value, double(ratio.low), kind=Double())
        value = apply("least", value, double(ratio.high), kind=Double())
    return when(all_of(known), value)


# The shape of an aggregate's answer: an estimate over measures and statistics, and the type that SQL gives it.


@dataclass(frozen=True)
class ProposalTest:
    """The test of a proposed clip: `clipped` is NULL if the noisy count `exceeding` finds too many units beyond it."""

    exceeding: str
    clipped: str


@dataclass(frozen=True)
class Answer:
    estimate: Estimate | Formula
    type: ColumnType
    test: ProposalTest | None = None
    wide: bool = False
    """Whether an integer answer has the width of the engine's sum of integers."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an aggregate may use while it is planned: column facts, unit columns, counts that are measured anyway."""

    known: Known
    unit_columns: frozenset[str]
    counted: frozenset[Measure]
    bundled: Container[Expression]
    """Disjoint values, which share a bound and are recentred only by their own count."""
    column_of: Callable[[Measure], str]
    """The column of a measure in the release; equal measures share a column."""
    linear_of: Callable[[Measure], Linear]
    """The measure as a weighted sum of columns: its own, or its own and the number of units."""
    drawn_as: Callable[[Statistic], str]
    """The column of a statistic in the release."""
    drawn: frozenset[type[Statistic]]
    """The statistics that the named mechanism draws, although the aggregate could be answered from measures."""
    propose: Fraction | None
    """The proposal of the analyst: the most that one unit adds."""
    in_totals: bool = False
    """Whether ROLLUP, CUBE or GROUPING SETS also need sums of groups."""

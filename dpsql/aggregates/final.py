"""The answer of an aggregate as SQL over its noisy measures. It runs after the release, and touches nobody."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Estimate, Formula, Linear, Ratio, Reported
from dpsql.engine_sql.build import WIDE, all_of, apply, cast, double, integer, test, when, wide
from dpsql.engine_sql.tree import Constant, Field, TryCast
from dpsql.engines.duckdb.render import type_name
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from dpsql.aggregates.estimate import Estimate
    from dpsql.aggregates.measure import Measure
    from dpsql.aggregates.statistic import Statistic
    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.tree import Expression, Known
    from dpsql.schema.types import ColumnType


def answer_type(answer: Answer) -> str:
    """In the engine's words."""
    return type_name(WIDE if answer.wide and isinstance(answer.type, Integer) else answer.type)


def _is_plain(estimate: Estimate | Formula) -> bool:
    """Whether the answer is one measure as it stands: a count."""
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
    """A whole number that is made of halves, or of finer parts, is rounded."""
    estimate = answer.estimate
    if not isinstance(estimate, Linear) or not isinstance(answer.type, Integer):
        return estimate
    halves = any(weight.denominator > 1 for _, weight in estimate.weights)
    return replace(estimate, rounding=Fraction(1, 2), is_whole=True) if halves else estimate


def _rounded(whole: Term, bits: int) -> Term:
    """Over 2^bits, to the nearest whole number; half-way to the even one, so that many are neither more nor less."""
    if not bits:
        return whole
    odd = apply("&", apply(">>", whole, integer(bits), kind=WIDE), wide(integer(1)), kind=WIDE)
    raised = apply("+", apply("+", whole, integer((1 << bits - 1) - 1), kind=WIDE), odd, kind=WIDE)
    return apply(">>", raised, integer(bits), kind=WIDE)


def _whole_part(linear: Linear) -> tuple[Term, Fraction]:
    """The sum as an exact integer, and the value of its unit: no rounding before the last multiplication."""
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
    """The weights as multiples of the largest number of which all of them are whole multiples, and that number."""
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


def _ratio(ratio: Ratio) -> Term:
    """Nothing can be said of an average over no rows, so it is NULL there."""
    above, below = linear_sql(ratio.above, Double()), linear_sql(ratio.below, Double())
    value: Term = apply("/", above, below, kind=Double())
    known = [test(">", below, integer(0))]
    if ratio.low is not None and ratio.high is not None:
        # Written once, while clamp() would write it four times; least and greatest would make a bound of NULL.
        known.append(test("is not null", above))
        value = apply("greatest", value, double(ratio.low), kind=Double())
        value = apply("least", value, double(ratio.high), kind=Double())
    return when(all_of(known), value)


# The shape of an aggregate's answer: an estimate over measures and statistics, and the type that SQL gives it.


@dataclass(frozen=True)
class Test:
    """A proposed bound: where too many units exceed it, by the noisy count in `exceeding`, `clipped` is not shown."""

    exceeding: str
    clipped: str


@dataclass(frozen=True)
class Answer:
    estimate: Estimate | Formula
    type: ColumnType
    test: Test | None = None
    wide: bool = False
    """Whether a whole number is as wide as the engine makes a sum of integers."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an aggregate may look at: facts of columns, which columns are the unit, which counts are taken anyway."""

    known: Known
    unit_columns: frozenset[str]
    counted: frozenset[Measure]
    bundled: Container[Expression]
    """Values that exclude others, so that they share a bound and lean on nothing but their own count."""
    column_of: Callable[[Measure], str]
    """Gives the measure a column of the release; the same measure always the same one."""
    linear_of: Callable[[Measure], Linear]
    """The measure as it is found from columns of the release: its own, or that and the number of units."""
    drawn_as: Callable[[Statistic], str]
    """The same for a statistic."""
    drawn: frozenset[type[Statistic]]
    """Statistics that the analyst's mechanism draws, where an aggregate could also be answered from measures."""
    propose: Fraction | None
    """What one unit adds at most, as the analyst proposes, if anything."""
    in_totals: bool = False
    """Whether answers are also made of sums of groups, by ROLLUP and its kin."""

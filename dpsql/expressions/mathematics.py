"""ABS, SIGN, roots, logarithms, powers and trigonometry. What has no real value is NULL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import WIDE, all_of, apply, cast, double, in_64_bits, one_zero, test, when, wide
from dpsql.expressions.arithmetic import argument_ranges, need_numbers, number
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import Properties, bounded, one_of
from dpsql.expressions.ranges import UNKNOWN, Exact, Range, double_range, magnitude, monotone, nearby, range_of
from dpsql.expressions.types import written_as
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term

LARGEST_POWER = 64


def abs_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("ABS", arguments, 1)
    ((low, high),) = argument_ranges(arguments)
    kind, whole = arguments[0].type, arguments[0].whole
    if low is None or high is None:
        return number(arguments, kind, UNKNOWN, whole=whole)
    least: Exact = 0 if low <= 0 <= high else min(magnitude(low), magnitude(high))
    return number(arguments, kind, (least, max(magnitude(low), magnitude(high))), whole=whole)


def abs_sql(arguments: Sequence[Written]) -> Term:
    (argument,) = arguments
    kind = argument.properties.type
    if isinstance(kind, Integer):
        return in_64_bits(apply("abs", wide(argument.sql), kind=WIDE))
    return apply("abs", argument.sql, kind=kind)


def sign_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("SIGN", arguments, 1)
    low, high = range_of(arguments[0])
    signs = (-1 if low is None else (low > 0) - (low < 0), 1 if high is None else (high > 0) - (high < 0))
    return bounded(Integer(), *signs, nullable=arguments[0].nullable)


def sign_sql(arguments: Sequence[Written]) -> Term:
    return cast(apply("sign", arguments[0].sql), Integer())


@dataclass(frozen=True)
class Real:
    """A rising function of the reals between two ends; outside, and with `open_end` at the lower end, it is NULL."""

    name: str
    change: Callable[[float], float]
    least: float = -math.inf
    most: float = math.inf
    open_end: bool = False
    low: float = -math.inf
    """No result is below this."""
    high: float = math.inf
    exact: bool = False
    """Whether the engine rounds correctly."""

    def properties(self, arguments: Sequence[Properties]) -> Properties:
        need_numbers(self.name, arguments, 1)
        (properties,) = arguments
        low, high = double_range(properties)
        result = monotone(lambda end: _value(self.change, end), (self._inside(low), self._inside(high)))
        if not self.exact:
            result = nearby(result)
        outside = not (self._holds(low) and self._holds(high))
        return bounded(Double(), *self._clamped(result), nullable=properties.nullable or outside)

    def sql(self, arguments: Sequence[Written]) -> Term:
        value = written_as(Double(), arguments[0])
        conditions: list[Term] = []
        if self.least > -math.inf:
            conditions.append(test(">" if self.open_end else ">=", value, double(Fraction(self.least))))
        if self.most < math.inf:
            conditions.append(test("<=", value, double(Fraction(self.most))))
        result = apply(self.name.lower(), value, kind=Double())
        return when(all_of(conditions), result) if conditions else result

    def function(self) -> Function:
        return Function(self.name, f"{self.name}(number)", self.properties, self.sql)

    def _holds(self, end: Exact | None) -> bool:
        """Whether the function has a value there; without limits it has one everywhere."""
        if end is None:
            return self.least == -math.inf and self.most == math.inf
        return self.least <= end <= self.most and not (self.open_end and end == self.least)

    def _inside(self, end: Exact | None) -> Exact | None:
        """The nearest point at which the function has a value; None if that is unknown, or if it goes to -infinity."""
        if end is None or self._holds(end):
            return end
        if self.open_end and end <= self.least:
            return None
        return Fraction(self.least if end < self.least else self.most)

    def _clamped(self, result: Range) -> Range:
        low, high = result
        if self.low > -math.inf and (low is None or low < self.low):
            low = Fraction(self.low)
        if self.high < math.inf and (high is None or high > self.high):
            high = Fraction(self.high)
        return low, high


def _value(change: Callable[[float], float], end: Exact) -> Exact | None:
    try:
        value = change(float(end))
    except OverflowError:
        return None
    return Fraction(value) if math.isfinite(value) else None


def power_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("POWER", arguments, 2)
    base, exponent = arguments
    power = exponent.constant
    known = isinstance(power, int | Fraction) and 0 <= power <= LARGEST_POWER
    low_high = _power_range(double_range(base), Fraction(power)) if known else UNKNOWN  # type: ignore[arg-type]
    return bounded(Double(), *nearby(low_high), nullable=base.nullable or exponent.nullable)


def _power_range(low_high: Range, power: Fraction) -> Range:
    """A power rises from 0 on; an even one falls before that, an odd one rises everywhere, others have no value."""
    low, high = low_high
    if low is None or high is None or (low < 0 and power.denominator != 1):
        return UNKNOWN
    ends = [_value(lambda x: x ** float(power), end) for end in (low, high)]
    reached = [*ends, Fraction(0)] if low < 0 < high else ends
    if any(end is None for end in reached):
        return UNKNOWN
    return min(reached), max(reached)  # type: ignore[type-var]


def power_sql(arguments: Sequence[Written]) -> Term:
    base, exponent = (written_as(Double(), argument) for argument in arguments)
    return apply("pow", base, exponent, kind=Double())


def wave_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    """SIN and COS; of infinity they have no value."""
    need_numbers(name, arguments, 1)
    return bounded(Double(), -1, 1, nullable=arguments[0].nullable or not _is_finite(arguments[0]))


def wave_sql(name: str, arguments: Sequence[Written]) -> Term:
    value = written_as(Double(), arguments[0])
    result = apply(name, value, kind=Double())
    return result if _is_finite(arguments[0].properties) else when(test("is finite", value), result)


def _is_finite(properties: Properties) -> bool:
    return None not in range_of(properties)


def tan_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("TAN", arguments, 1)
    return bounded(Double(), None, None, nullable=arguments[0].nullable or not _is_finite(arguments[0]))


def angle_properties(arguments: Sequence[Properties]) -> Properties:
    """ATAN2 is the angle of a point; it has none for what is no number."""
    need_numbers("ATAN2", arguments, 2)
    nullable = any(properties.nullable or not _is_finite(properties) for properties in arguments)
    return bounded(Double(), -Fraction(math.pi), Fraction(math.pi), nullable=nullable)


def angle_sql(arguments: Sequence[Written]) -> Term:
    y, x = (one_zero(written_as(Double(), argument)) for argument in arguments)
    result = apply("atan2", y, x, kind=Double())
    if all(_is_finite(argument.properties) for argument in arguments):
        return result
    return when(test("not", test("or", test("is nan", y), test("is nan", x))), result)


def falling_arc_properties(arguments: Sequence[Properties]) -> Properties:
    """ACOS falls from pi at -1 to 0 at 1."""
    need_numbers("ACOS", arguments, 1)
    low, high = double_range(arguments[0])
    outside = low is None or high is None or low < -1 or high > 1
    return bounded(Double(), 0, Fraction(math.pi), nullable=arguments[0].nullable or outside)


def falling_arc_sql(arguments: Sequence[Written]) -> Term:
    return Real("acos", math.acos, -1, 1).sql(arguments)


def pi_properties(arguments: Sequence[Properties]) -> Properties:
    if arguments:
        raise Misfit("PI takes no arguments")
    return one_of(Double(), (Fraction(math.pi),), nullable=False)


RISING = (
    Real("SQRT", math.sqrt, 0.0, low=0.0, exact=True),
    Real("CBRT", math.cbrt),
    Real("LN", math.log, 0.0, open_end=True),
    Real("LOG10", math.log10, 0.0, open_end=True),
    Real("LOG2", math.log2, 0.0, open_end=True),
    Real("EXP", math.exp, low=0.0),
    Real("ASIN", math.asin, -1.0, 1.0, low=-math.pi / 2, high=math.pi / 2),
    Real("ATAN", math.atan),
    Real("DEGREES", math.degrees),
    Real("RADIANS", math.radians),
)

FUNCTIONS = (
    Function("ABS", "ABS(number)", abs_properties, abs_sql),
    Function("SIGN", "SIGN(number)", sign_properties, sign_sql),
    *(real.function() for real in RISING),
    Function("POWER", "POWER(base, exponent)", power_properties, power_sql),
    *(
        Function(name, f"{name}(number)", partial(wave_properties, name), partial(wave_sql, name.lower()))
        for name in ("SIN", "COS")
    ),
    Function("TAN", "TAN(number)", tan_properties, partial(wave_sql, "tan")),
    Function("ACOS", "ACOS(number)", falling_arc_properties, falling_arc_sql),
    Function("ATAN2", "ATAN2(y, x)", angle_properties, angle_sql),
    Function("PI", "PI()", pi_properties, lambda arguments: double(Fraction(math.pi))),
)

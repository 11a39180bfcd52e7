"""ABS, SIGN, roots, logarithms, powers and trigonometry. What has no real value is NULL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import (
    NULL,
    WIDE,
    all_of,
    apply,
    arithmetic,
    cast,
    double,
    in_64_bits,
    integer,
    one_zero,
    test,
    when,
    wide,
)
from dpsql.engine_sql.tree import Case
from dpsql.expressions.arithmetic import argument_ranges, need_numbers, number
from dpsql.expressions.properties import (
    MOST_VALUES,
    UNKNOWN,
    Exact,
    Properties,
    Range,
    bounded,
    double_range,
    magnitude,
    monotone,
    nearby,
    one_of,
    range_of,
    rounded_out,
)
from dpsql.expressions.tree import Function, Misfit, Written, written_as
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

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
    """NULL where a power is infinite or no real number, such as 0^-1 and (-1)^0.5."""
    need_numbers("POWER", arguments, 2)
    low_high = _powers(arguments)
    nullable = any(properties.nullable for properties in arguments) or low_high == UNKNOWN
    return bounded(Double(), *nearby(low_high), nullable=nullable)


def _powers(arguments: Sequence[Properties]) -> Range:
    base, exponent = arguments
    power = exponent.constant
    known = isinstance(power, int | Fraction) and 0 <= power <= LARGEST_POWER
    return _power_range(double_range(base), Fraction(power)) if known else UNKNOWN  # type: ignore[arg-type]


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
    result = apply("pow", base, exponent, kind=Double())
    if _powers([argument.properties for argument in arguments]) != UNKNOWN:
        return result
    return when(test("is finite", result), result)


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

MATHEMATICS = (
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


# -- rounding ----------------------------------------------------------------------------------------------------------
# FLOOR, CEIL, ROUND, TRUNC and WIDTH_BUCKET: bins of numbers. Their ranges are whole, so bins are public groups.
#
# Decimals are rounded as decimals (1.005 is half way between 1.00 and 1.01, the nearest double is not) and stay
# decimals.

if TYPE_CHECKING:
    Whole: TypeAlias = Callable[[Exact], int]

MOST_DIGITS = 15
MOST_BUCKETS = 1_000_000


def half_away(value: Exact) -> int:
    """Rounded as SQL rounds: halves away from zero.

    >>> half_away(Fraction(-5, 2)), half_away(Fraction(12, 5))
    (-3, 2)
    """
    away = math.floor(magnitude(value) + Fraction(1, 2))
    return away if value >= 0 else -away


def to_whole_properties(name: str, whole: Whole, arguments: Sequence[Properties]) -> Properties:
    need_numbers(name, arguments, 1)
    (properties,) = arguments
    if isinstance(properties.type, Decimal):
        return _decimal_digits(properties, whole, 0)
    ends = monotone(whole, double_range(properties))
    return bounded(Double(), *rounded_out(ends), nullable=properties.nullable, whole=True)


def _decimal_digits(value: Properties, whole: Whole, digits: int) -> Properties:
    """So many digits after the point are left. Rounding up may need one more before it, which those left out give."""
    assert isinstance(value.type, Decimal)
    if digits >= value.type.scale:
        return value
    precision = value.type.precision + (value.type.scale == 0)
    if precision > WIDEST_DECIMAL:
        raise Misfit(f"{value.type.name} has no room for rounding up; CAST it to DOUBLE or to fewer digits")
    step = Fraction(10) ** -digits
    ends = monotone(lambda end: whole(Fraction(end) / step) * step, range_of(value))
    return bounded(Decimal(precision, max(0, digits)), *ends, nullable=value.nullable, whole=digits <= 0)


def to_whole_sql(name: str, arguments: Sequence[Written]) -> Term:
    return _rounded(name, arguments[0], 0)


def _rounded(name: str, argument: Written, digits: int, *said: Term) -> Term:
    kind = argument.properties.type
    if not isinstance(kind, Decimal):
        return apply(name, written_as(Double(), argument), *said, kind=Double())
    if digits >= kind.scale:
        return argument.sql
    wider = cast(argument.sql, Decimal(kind.precision + 1, 0)) if kind.scale == 0 else argument.sql
    return apply(name, wider, *said)


def digits_properties(name: str, whole: Whole, arguments: Sequence[Properties]) -> Properties:
    value, *rest = arguments
    need_numbers(name, [value], 1)
    digits = rest[0].constant if rest else 0
    if len(rest) > 1 or not isinstance(digits, int) or abs(digits) > MOST_DIGITS:
        raise Misfit(f"{name} takes a constant number of digits from -{MOST_DIGITS} to {MOST_DIGITS}")
    if isinstance(value.type, Integer):
        return _whole_digits(value, whole, digits)
    if isinstance(value.type, Decimal):
        return stepped(_decimal_digits(value, whole, digits), -digits)
    ends = monotone(lambda end: _as_engine(whole, end, digits), range_of(value))
    return stepped(bounded(Double(), *ends, nullable=value.nullable, whole=digits <= 0), -digits)


def stepped(properties: Properties, zeros: int) -> Properties:
    """Integers that end in this many zeros, listed individually if there are few."""
    low, high = range_of(properties)
    step = 10 ** max(0, zeros)
    if step == 1 or low is None or high is None or (high - low) / step > MOST_VALUES:
        return properties
    return one_of(properties.type, range(math.floor(low), math.floor(high) + 1, step), nullable=properties.nullable)


def _whole_digits(value: Properties, whole: Whole, digits: int) -> Properties:
    if digits >= 0:
        return value
    step = 10**-digits
    ends = monotone(lambda end: whole(Fraction(end, step)) * step, range_of(value))
    return number([value], value.type, ends, whole=True)


def _as_engine(whole: Whole, end: Exact, digits: int) -> Exact:
    """What the engine makes of a double, with its rounding: it multiplies by a power of ten, or divides by one."""
    value, power = float(end), 10.0 ** abs(digits)
    scaled = value * power if digits >= 0 else value / power
    if not math.isfinite(scaled):
        return end
    steps = float(whole(Fraction(scaled)))
    return Fraction(steps / power if digits >= 0 else steps * power)


def digits_sql(name: str, arguments: Sequence[Written]) -> Term:
    value, *rest = arguments
    digits = rest[0].properties.constant if rest else 0
    assert isinstance(digits, int)
    if not isinstance(value.properties.type, Integer):
        return _rounded(name, value, digits, *([integer(digits)] if rest else []))
    if digits >= 0:
        return value.sql
    # In 128 bits, because rounding up can leave 64; // cuts off towards zero.
    step = integer(10**-digits)
    half = integer(10**-digits // 2 if name == "round" else 0)
    below, above = (apply(sign, wide(value.sql), half, kind=WIDE) for sign in "-+")
    moved = when(test("<", value.sql, integer(0)), below, above)
    return in_64_bits(apply("*", apply("//", moved, wide(step), kind=WIDE), wide(step), kind=WIDE))


def bucket_properties(arguments: Sequence[Properties]) -> Properties:
    """Bucket 0 is below, bucket count + 1 above."""
    value, *rest = arguments
    need_numbers("WIDTH_BUCKET", [value], 1)
    low, high, count = _buckets(rest)
    exact = _in_integers(arguments)
    if not exact:
        low, high = Fraction(float(low)), Fraction(float(high))

    def bucket(end: Exact) -> int:
        if end < low or end >= high:
            return 0 if end < low else count + 1
        if exact:
            return math.floor((end - low) * count / Fraction(high - low)) + 1
        return min(count, math.floor((float(end) - float(low)) / (float(high) - float(low)) * count) + 1)

    least, most = monotone(bucket, range_of(value) if exact else double_range(value))
    return bounded(
        Integer(), 0 if least is None else least, count + 1 if most is None else most, nullable=value.nullable
    )


def _buckets(rest: Sequence[Properties]) -> tuple[Exact, Exact, int]:
    low, high, count = (properties.constant for properties in rest) if len(rest) == 3 else (None, None, None)
    if not isinstance(low, int | Fraction) or not isinstance(high, int | Fraction) or not isinstance(count, int):
        raise Misfit("WIDTH_BUCKET takes a number, constant ends and a constant whole number of buckets")
    if not (1 <= count <= MOST_BUCKETS and 0 < float(high) - float(low) < math.inf):
        raise Misfit(f"WIDTH_BUCKET takes low < high and 1 to {MOST_BUCKETS} buckets")
    return low, high, count


def _in_integers(arguments: Sequence[Properties]) -> bool:
    return all(isinstance(properties.type, Integer) for properties in arguments)


def bucket_sql(arguments: Sequence[Written]) -> Term:
    low, high, count = _buckets([argument.properties for argument in arguments[1:]])
    if _in_integers([argument.properties for argument in arguments]):
        value, first, last = (argument.sql for argument in arguments[:3])
        scaled = apply("*", apply("-", wide(value), wide(first), kind=WIDE), integer(count), kind=WIDE)
        inside: Term = apply("//", scaled, wide(integer(int(high) - int(low))), kind=WIDE)
    else:
        value, first, last = (written_as(Double(), argument) for argument in arguments[:3])
        width = double(Fraction(float(high) - float(low)))
        share = apply("/", apply("-", value, first, kind=Double()), width, kind=Double())
        steps = apply("floor", apply("*", share, double(count), kind=Double()), kind=Double())
        inside = apply("least", steps, integer(count - 1), kind=Double())
    found = arithmetic("+", in_64_bits(inside), integer(1))
    # LEAST passes over NULL, so NULL is no bucket only because no condition holds for it.
    outside = ((test("<", value, first), integer(0)), (test(">=", value, last), integer(count + 1)))
    return Case((*outside, (test("is not null", value), found)), NULL)


def _to_whole(name: str, whole: Whole) -> Function:
    return Function(
        name, f"{name}(number)", partial(to_whole_properties, name, whole), partial(to_whole_sql, name.lower())
    )


def _digits(name: str, whole: Whole) -> Function:
    return Function(
        name,
        f"{name}(number [, digits])",
        partial(digits_properties, name, whole),
        partial(digits_sql, name.lower()),
    )


ROUNDING = (
    _to_whole("FLOOR", math.floor),
    _to_whole("CEIL", math.ceil),
    _digits("ROUND", half_away),
    _digits("TRUNC", math.trunc),
    Function("WIDTH_BUCKET", "WIDTH_BUCKET(number, low, high, count)", bucket_properties, bucket_sql),
)


FUNCTIONS = (*MATHEMATICS, *ROUNDING)

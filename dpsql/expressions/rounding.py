"""FLOOR, CEIL, ROUND, TRUNC and WIDTH_BUCKET: bins of numbers. Their ranges are whole, so bins are public groups.

Decimals are rounded as decimals (1.005 is half way between 1.00 and 1.01, the nearest double is not) and stay decimals.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import NULL, WIDE, apply, arithmetic, cast, double, in_64_bits, integer, test, when, wide
from dpsql.engine_sql.tree import Case
from dpsql.expressions.arithmetic import need_numbers, number
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import MOST_VALUES, Properties, bounded, one_of
from dpsql.expressions.ranges import Exact, double_range, magnitude, monotone, range_of, rounded_out
from dpsql.expressions.types import written_as
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term

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
        raise Misfit(f"{value.type.name} has no room for rounding up; CAST it to DOUBLE, or to fewer digits")
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
    """Whole numbers that end in so many zeros, one by one where they are few."""
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


FUNCTIONS = (
    _to_whole("FLOOR", math.floor),
    _to_whole("CEIL", math.ceil),
    _digits("ROUND", half_away),
    _digits("TRUNC", math.trunc),
    Function("WIDTH_BUCKET", "WIDTH_BUCKET(number, low, high, count)", bucket_properties, bucket_sql),
)

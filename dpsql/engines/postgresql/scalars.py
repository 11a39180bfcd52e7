"""Arithmetic of doubles that cannot fail. PostgreSQL raises an error if a result overflows or underflows;
here such a result is infinite or zero, as in IEEE 754, and all other results are the engine's own.

Whether a result is too large is found from operands scaled by powers of two, which is exact. All operands are short
texts that can be written several times, or constants.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_left
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Short, Wide
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.engine_sql.tree import Kind, Known
    from dpsql.schema.types import ColumnType

TOO_LARGE = Fraction(2) ** 1024 - Fraction(2) ** 970
"""From here on the nearest double is infinite."""
TOO_SMALL = Fraction(1, 2**1075)
"""Up to here the nearest double is zero."""
CANNOT_CARRY = 1e290
"""Less than half of the last digit of any double that is near the largest."""
USUAL = 1e150
"""The product of two numbers up to it, or down to its reciprocal, is a double."""
ONE, INFINITE_BITS = 1023 << 52, 2047 << 52
"""1 and infinity as 64 bits."""


def number(value: float) -> str:
    """
    >>> number(0.5), number(-math.inf)
    ("float8 '0.5'", "float8 '-Infinity'")
    """
    return f"float8 '{value!r}'" if math.isfinite(value) else f"float8 '{'-' if value < 0 else ''}Infinity'"


def power(exponent: int) -> str:
    return number(2.0**exponent)


INFINITE = number(math.inf)


def at_least(least: Fraction) -> float:
    """The smallest double that is not less."""
    near = _nearest(least)
    return near if math.isinf(near) or Fraction(near) >= least else math.nextafter(near, math.inf)


def at_most(most: Fraction) -> float:
    """The largest double that does not exceed the value."""
    near = _nearest(most)
    return near if math.isfinite(near) and Fraction(near) <= most else math.nextafter(near, -math.inf)


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def added(left: str, sign: str, right: str) -> str:
    """The sum, or the difference. Only two doubles that are both very large leave the doubles."""
    plain = f"({left} {sign} {right})"
    half = f"({left} * {number(0.5)} {sign} {right} * {number(0.5)})"
    large = f"CASE WHEN abs({half}) >= {power(1023)} THEN {half} * {INFINITE} ELSE {plain} END"
    both = f"abs({left}) > {number(CANNOT_CARRY)} AND abs({right}) > {number(CANNOT_CARRY)}"
    return f"CASE WHEN {both} THEN {large} ELSE {plain} END"


def scaled(value: str, factor: Fraction, written: str, most: float = math.inf) -> str:
    """The product with a constant, or with the reciprocal of one, as it is written: `written` may fail.

    The value is at most `most`, on either side.
    """
    if factor == 0:
        return written
    first, last = at_least(TOO_LARGE / abs(factor)), at_most(TOO_SMALL / abs(factor))
    sign = 1 if factor > 0 else -1
    if first <= most and math.isfinite(first):
        return f"CASE WHEN abs({value}) >= {number(first)} THEN {value} * {number(sign * math.inf)} ELSE {written} END"
    if last > 0:
        small = f"{value} <> {number(0.0)} AND abs({value}) <= {number(last)}"
        return f"CASE WHEN {small} THEN {value} * {number(sign * 0.0)} ELSE {written} END"
    return written


def multiplied(left: str, right: str, most: float = math.inf) -> str:
    """Both at least 1: too large at 2^1024. Both below 1: too small at 2^-1075. One of each: between the two.

    Neither is more than `most`.
    """
    plain, a, b = f"({left} * {right})", f"abs({left})", f"abs({right})"
    halves = f"abs(({left} * {power(-512)}) * ({right} * {power(-512)}))"
    large = f"CASE WHEN {halves} >= {number(1.0)} THEN {left} * {INFINITE} * {right} ELSE {plain} END"
    less, more = f"least({a}, {b})", f"greatest({a}, {b})"
    zero = f"{number(0.0)} * {left} * {right}"
    small = (
        f"CASE WHEN {left} = {number(0.0)} OR {right} = {number(0.0)} THEN {plain} "
        f"WHEN {more} < {power(-600)} THEN {zero} "
        f"WHEN {less} * {power(600)} * {more} <= {power(-475)} THEN {zero} ELSE {plain} END"
    )
    one = number(1.0)
    if most <= USUAL:
        usual = " AND ".join(f"{side} >= {number(1 / USUAL)}" for side in (a, b))
        return f"CASE WHEN {usual} OR {a} >= {one} OR {b} >= {one} THEN {plain} ELSE {small} END"
    usual = " AND ".join(f"{side} BETWEEN {number(1 / USUAL)} AND {number(USUAL)}" for side in (a, b))
    return (
        f"CASE WHEN {usual} THEN {plain} WHEN {a} >= {one} AND {b} >= {one} THEN {large} "
        f"WHEN {a} < {one} AND {b} < {one} THEN {small} ELSE {plain} END"
    )


def divided(left: str, right: str) -> str:
    """a / b is too large where a >= b * 2^1024, and too small where a <= b * 2^-1075."""
    plain, a, b = f"({left} / {right})", f"abs({left})", f"abs({right})"
    large = f"CASE WHEN {a} * {power(-512)} >= {b} * {power(512)} THEN {left} * {INFINITE} * {right} ELSE {plain} END"
    zero = f"{left} * {number(0.0)} / {right}"
    small = f"CASE WHEN {a} * {power(537)} <= {b} * {power(-538)} THEN {zero} ELSE {plain} END"
    edge = power(-50)
    return (
        f"CASE WHEN {b} < {number(1.0)} AND {a} >= {edge} THEN {large} "
        f"WHEN {b} > {number(1.0)} AND {a} < {edge} AND {left} <> {number(0.0)} THEN {small} ELSE {plain} END"
    )


def rounded(value: str) -> str:
    """Halves away from zero; the engine's own round() takes them to the even number.

    What is added is the largest double below a half: with a half itself the sum of 0.49999999999999994 would be 1.
    """
    return f"trunc({value} + sign({value}) * {number(math.nextafter(0.5, 0))})"


def exponential(value: str) -> str:
    largest, smallest = 709.782712893384, -745.1332191019412
    return (
        f"CASE WHEN {value} > {number(largest)} THEN {value} * {INFINITE} "
        f"WHEN {value} < {number(smallest)} THEN {number(0.0)} ELSE exp({value}) END"
    )


def raised(value: str, exponent: float) -> str:
    """A constant power. Of a number below zero only whole powers have a value."""
    written = f"power({value}, {number(exponent)})"
    if exponent == 0:
        return written
    far, near = (INFINITE, number(0.0)) if exponent > 0 else (number(0.0), INFINITE)
    # Of odd powers the sign is that of the angle, which zero has too.
    sign = f" * sign(atan2({value}, {number(1.0)}) + atan2({value}, {number(-1.0)}))" if exponent % 2 == 1 else ""
    least, most = _ends(exponent)
    below_zero = f"{value} < {number(0.0)} AND {value} > {number(-math.inf)}"
    negative = "" if exponent.is_integer() else f"WHEN {below_zero} THEN float8 'NaN' "
    return (
        f"CASE {negative}WHEN {value} = float8 'NaN' THEN {value} WHEN abs({value}) > {number(most)} THEN {far}{sign} "
        f"WHEN abs({value}) < {number(least)} THEN {near}{sign} ELSE {written} END"
    )


@cache
def _ends(exponent: float) -> tuple[float, float]:
    """The least and the largest number whose power is a double other than zero: 1 is between them."""

    def beyond(bits: int) -> bool:
        try:
            return bool(_double(bits) ** exponent == 0.0)
        except OverflowError:
            return True

    least = bisect_left(range(1, ONE), 1, key=lambda bits: int(not beyond(bits)))
    most = bisect_left(range(ONE, INFINITE_BITS), 1, key=lambda bits: int(beyond(bits)))
    return _double(1 + least), _double(ONE + most - 1)


def _double(bits: int) -> float:
    """The double with these bits. Positive doubles sort in the same order as their bits."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


# -- casts -------------------------------------------------------------------------------------------------------------
# Casts that give NULL where a value does not fit, written for the kind that they come from: PostgreSQL has none.

if TYPE_CHECKING:
    Once = Callable[[list[str], Callable[..., str]], str]

WHOLE = (Integer, Wide, Short)
NUMERIC = (*WHOLE, Decimal)
LONG = 2**63
TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE PRECISION",
    Text: "TEXT",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP",
    Wide: "NUMERIC",
}


def type_name(kind: Kind) -> str:
    match kind:
        case Decimal(precision, scale):
            return f"NUMERIC({precision}, {scale})"
        case Short(bits):
            return "INTEGER" if bits == 32 else "SMALLINT"
        case _:
            return TYPES[type(kind)]


def by_code_points(text: str) -> str:
    return f'({text} COLLATE "C")'


def within(value: str, kind: str, first_below: object, first_above: object) -> str:
    """The value between these two, NULL beyond; it is written once. NULL itself and NaN become the upper end first."""
    below, above = f"{kind} '{first_below}'", f"{kind} '{first_above}'"
    return f"nullif(nullif(greatest(least({value}, {above}), {below}), {above}), {below})"


def try_cast(value: str, source: Known, kind: Kind, once: Once) -> str:
    if source == kind:
        return value
    match kind:
        case Integer():
            return f"CAST({_whole(value, source, LONG)} AS BIGINT)"
        case Short(bits):
            return f"CAST({_whole(value, source, 2 ** (bits - 1))} AS {type_name(kind)})"
        case Double() if isinstance(source, NUMERIC):
            return f"CAST({value} AS DOUBLE PRECISION)"
        case Wide() if isinstance(source, WHOLE):
            return f"CAST({value} AS NUMERIC)"
        case Wide() if isinstance(source, Decimal):
            return f"round({value})"
        case Wide() if isinstance(source, Double):
            return once([f"round({value})"], _exact)
        case Decimal() if isinstance(source, NUMERIC):
            return _decimal(f"round(CAST({value} AS NUMERIC), {kind.scale})", kind)
        case Decimal() if isinstance(source, Double):
            return _rounded_decimal(value, kind, once)
        case Decimal() if isinstance(source, Boolean):
            # TRUE is too large for a decimal without digits before its point.
            return _decimal(f"CAST(CAST({value} AS INTEGER) AS NUMERIC)", kind)
        case Double() | Wide() if isinstance(source, Boolean):
            return f"CAST(CAST({value} AS INTEGER) AS {type_name(kind)})"
        case Boolean() if isinstance(source, (*NUMERIC, Double)):
            return f"({value} <> 0)"
        case Text() if isinstance(source, (*WHOLE, Boolean, Date, Timestamp)):
            return by_code_points(f"CAST({value} AS TEXT)")
        case Text() if isinstance(source, Decimal):
            # With all digits after its point, and however many before: 99.99 is rounded to 100.
            return by_code_points(f"CAST(round({value}, {source.scale}) AS TEXT)")
        case Date() | Timestamp() if isinstance(source, Date | Timestamp):
            return f"CAST({value} AS {type_name(kind)})"
    raise no_cast(source, kind)


def no_cast(source: Known, kind: Kind) -> Unsupported:
    before = "this value" if source is None else source.name
    return Unsupported(
        f"on PostgreSQL {before} cannot be cast to {kind.name}",
        hint="that engine reads text and writes doubles differently; drop the cast, or store a column that has the "
        "value",
    )


def _whole(value: str, source: Known, limit: int) -> str:
    """Doubles are rounded half to even by the cast itself, decimals half away from zero before."""
    match source:
        case Boolean():
            return f"CAST({value} AS INTEGER)"
        case Double():
            return within(f"round({value})", "float8", math.nextafter(-limit, -math.inf), float(limit))
        case Decimal():
            return within(f"round({value})", "numeric", -limit - 1, limit)
        case Wide():
            return within(value, "numeric", -limit - 1, limit)
        case Integer() | Short():
            return value if limit == LONG else within(value, "bigint", -limit - 1, limit)
    raise no_cast(source, Integer())


def _decimal(value: str, kind: Decimal) -> str:
    end = 10 ** (kind.precision - kind.scale)
    return f"CAST({within(value, 'numeric', -end, end)} AS {type_name(kind)})"


def _rounded_decimal(value: str, kind: Decimal, once: Once) -> str:
    """Rounds to a whole number of units of the last digit, as a double, then converts that number to a decimal."""
    units = Fraction(10**kind.scale)

    def product(double: str) -> str:
        return scaled(double, units, f"({double} * {number(float(units))})")

    def fitted(count: str) -> str:
        held = f"CASE WHEN abs({count}) < {number(float(10**kind.precision))} THEN {_exact(count)} END"
        return f"CAST({held} * numeric '1e-{kind.scale}' AS {type_name(kind)})"

    return once([once([once([value], product)], rounded)], fitted)


def _exact(whole: str) -> str:
    """A whole double as NUMERIC, of up to 127 bits. The engine's own cast keeps 15 digits.

    From 2^63 on the last bits of a double are zero, so that they need not fit into 64 bits.
    """
    high, low = f"trunc({whole} * {power(-64)})", f"({whole} - trunc({whole} * {power(-64)}) * {power(64)})"
    long = f"CAST({high} AS BIGINT) * numeric '{2**64}' + CAST({low} * {power(-2)} AS BIGINT) * numeric '4'"
    return (
        f"CASE WHEN abs({whole}) < {power(63)} THEN CAST(CAST({whole} AS BIGINT) AS NUMERIC) "
        f"WHEN abs({whole}) < {power(127)} THEN {long} END"
    )


def from_numeric(column: str, kind: ColumnType, digits: tuple[int, int] | None) -> str:
    """A stored NUMERIC, which may be NaN, infinite, or longer than every double, unless its digits are limited."""
    if isinstance(kind, Decimal):
        return _decimal(f"round({column}, {kind.scale})", kind)
    if digits is not None and digits[0] <= 300 and digits[1] <= 300:
        return f"CAST({column} AS DOUBLE PRECISION)"
    end = int(TOO_LARGE)
    return f"CAST(round({within(column, 'numeric', -end, end)}, 323) AS DOUBLE PRECISION)"


# -- moments -----------------------------------------------------------------------------------------------------------
# Dates and timestamps in the words of PostgreSQL.

MONTHS = {"year": 12, "quarter": 3, "month": 1}
SECONDS = {"hour": 3_600, "minute": 60, "second": 1}
FORMATS = {"%Y": "YYYY", "%m": "MM", "%d": "DD", "%H": "HH24", "%M": "MI", "%S": "SS"}
PARTS = {"dayofweek": "dow", "dayofyear": "doy"}
FRACTIONAL = ("second", "millisecond", "microsecond", "epoch")
EPOCH, FIRST_DAY, LAST_DAY = "DATE '1970-01-01'", "DATE '0001-01-01'", "DATE '9999-12-31'"
FIRST_YEAR = -4_000
"""The engine's calendar begins a little earlier, and an earlier moment is none."""


def timestamp(moment: str) -> str:
    return f"CAST({moment} AS TIMESTAMP)"


def part(name: str, moment: str) -> str:
    if name == "yearweek":
        return f"CAST(extract(isoyear FROM {moment}) * 100 + extract(week FROM {moment}) AS BIGINT)"
    name = PARTS.get(name, name)
    if name in FRACTIONAL:
        return f"CAST(trunc(extract({name} FROM {timestamp(moment)})) AS BIGINT)"
    # As a double, which is exact for whole numbers and much faster than NUMERIC.
    return f"CAST(date_part('{name}', {timestamp(moment)}) AS BIGINT)"


def microseconds(moment: str) -> str:
    return f"CAST(extract(epoch FROM {moment}) * 1000000 AS BIGINT)"


def days_between(first: str, last: str) -> str:
    return f"(CAST({last} AS DATE) - CAST({first} AS DATE))"


def starts_between(unit: str, first: str, last: str) -> str:
    """DATE_DIFF."""
    if unit in MONTHS:
        return f"CAST({_starts(unit, last)} - {_starts(unit, first)} AS BIGINT)"
    if unit in SECONDS:
        size = SECONDS[unit]
        counted = (f"floor(extract(epoch FROM {timestamp(moment)}) / {size})" for moment in (last, first))
        return f"CAST({' - '.join(counted)} AS BIGINT)"
    days = days_between(first, last)
    return f"CAST({days} AS BIGINT)" if unit == "day" else f"CAST({days} / 7 AS BIGINT)"


def _starts(unit: str, moment: str) -> str:
    years = f"extract(year FROM {moment})"
    if unit == "year":
        return years
    months = f"({years} * 12 + extract(month FROM {moment}) - 1)"
    return months if unit == "month" else f"div({months}, 3)"


def whole_units_between(unit: str, first: str, last: str) -> str:
    """DATE_SUB."""
    if unit in MONTHS:
        raise Unsupported(
            f"on PostgreSQL DATE_SUB does not support {unit}", hint="use DATE_DIFF, or DATE_SUB with 'day' or shorter"
        )
    size = {**SECONDS, "day": 86_400, "week": 604_800}[unit] * 1_000_000
    return f"(({microseconds(timestamp(last))} - {microseconds(timestamp(first))}) / {size})"


def days_later(day: str, days: str) -> str:
    """NULL before the year 1: the engine's calendar begins a little earlier, and an earlier date fails."""
    return f"CASE WHEN {day} - {FIRST_DAY} + {days} >= 0 THEN {day} + {days} END"


def shifted(moment: str, amount: int, unit: str) -> str:
    """The shifted moment; NULL outside the engine's calendar, like everything before the year 1."""
    name, count = ("month", amount * MONTHS[unit]) if unit in MONTHS else (unit, amount)
    moved = f"({moment} + INTERVAL '{count} {name}')"
    years = {"month": 12, "week": 52, "day": 365, "hour": 8_760, "minute": 525_600, "second": 31_536_000}
    first = FIRST_YEAR - count // years[name]
    if first < 1:
        return moved
    return f"CASE WHEN {moment} >= TIMESTAMP '{min(first, 9_999):04d}-01-01' THEN {moved} END"


def last_day(moment: str) -> str:
    return f"CAST(date_trunc('month', {timestamp(moment)}) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)"


def made(year: str, month: str, day: str) -> str:
    """Counts from the first of the month; if the result falls into the next month, there is no such day."""
    first = f"make_date(CAST({year} AS INTEGER), CAST({month} AS INTEGER), 1)"
    found = f"({first} + CAST({day} - 1 AS INTEGER))"
    return f"CASE WHEN extract(month FROM {found}) = {month} THEN {found} END"


def from_microseconds(count: str) -> str:
    day = 86_400_000_000
    days, rest = f"CAST({count} / {day} AS INTEGER)", f"({count} % {day}) / float8 '1000000'"
    return f"(TIMESTAMP '1970-01-01' + make_interval(days => {days}, secs => {rest}))"


def formatted(moment: str, pattern: str, literal: Callable[[str], str]) -> str:
    """STRFTIME: plain text is in double quotes."""
    pieces = re.findall("%.|[^%]+", pattern, re.DOTALL)
    spelled = (FORMATS.get(piece) or '"' + re.sub(r'(["\\])', r"\\\1", piece) + '"' for piece in pieces)
    return f"to_char({timestamp(moment)}, {literal(''.join(spelled))})"

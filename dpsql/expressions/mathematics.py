"""ABS, SIGN, FLOOR, CEIL, ROUND, TRUNC, SQRT, LN, LOG10, LOG2, EXP, POWER. What has no real value is NULL."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.expressions.arithmetic import UNKNOWN, Exact, Range, fits, magnitude, need_numbers, number, range_of
from dpsql.expressions.facts import Facts, bounded
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import number_type, written_as
from dpsql.expressions.write import Sql, binary, call, huge, literal, try_cast, when
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_DIGITS = 15


def monotone(change: Callable[[Exact], Exact], low_high: Range) -> Range:
    """The range of a function that never decreases."""
    low, high = low_high
    return (None if low is None else change(low), None if high is None else change(high))


def abs_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("ABS", arguments, 1)
    low, high = range_of(arguments[0])
    if low is None or high is None:
        return number(arguments, UNKNOWN, whole=arguments[0].whole)
    least: Exact = 0 if low <= 0 <= high else min(magnitude(low), magnitude(high))
    return number(arguments, (least, max(magnitude(low), magnitude(high))), whole=arguments[0].whole)


def abs_sql(arguments: Sequence[Written]) -> Sql:
    (argument,) = arguments
    kind = number_type([argument.facts])
    if isinstance(kind, Integer) and not fits(abs_facts([argument.facts])):
        return try_cast(call("abs", huge(argument.sql)), kind)
    return call("abs", written_as(kind, argument))


def sign_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("SIGN", arguments, 1)
    low, high = range_of(arguments[0])
    signs = (-1 if low is None else (low > 0) - (low < 0), 1 if high is None else (high > 0) - (high < 0))
    return bounded(Integer(), *signs, nullable=arguments[0].nullable)


def sign_sql(arguments: Sequence[Written]) -> Sql:
    value = arguments[0].sql
    return Sql(f"CASE WHEN {value} > 0 THEN 1 WHEN {value} < 0 THEN (-1) WHEN {value} = 0 THEN 0 END")


def to_whole_facts(name: str, change: Callable[[Exact], Exact], arguments: Sequence[Facts]) -> Facts:
    need_numbers(name, arguments, 1)
    (facts,) = arguments
    return bounded(Double(), *monotone(change, range_of(facts)), nullable=facts.nullable, whole=True)


def double_sql(name: str, arguments: Sequence[Written]) -> Sql:
    return call(name, written_as(Double(), arguments[0]))


def half_away(value: Exact, digits: int = 0) -> Exact:
    """Rounded as SQL rounds: halves away from zero."""
    unit = Fraction(10) ** digits
    scaled = Fraction(value) * unit
    rounded = math.floor(abs(scaled) + Fraction(1, 2))
    return Fraction(rounded if scaled >= 0 else -rounded) / unit


def round_facts(arguments: Sequence[Facts]) -> Facts:
    value, *rest = arguments
    digits = rest[0].constant if rest else 0
    need_numbers("ROUND", [value], 1)
    if not isinstance(digits, int) or not 0 <= digits <= MOST_DIGITS:
        raise Misfit(f"ROUND takes a constant number of digits from 0 to {MOST_DIGITS}")
    if isinstance(value.type, Integer):
        return value
    low_high = monotone(lambda end: half_away(end, digits), range_of(value))
    return bounded(Double(), *low_high, nullable=value.nullable, whole=digits == 0)


def round_sql(arguments: Sequence[Written]) -> Sql:
    value, *rest = arguments
    if isinstance(value.facts.type, Integer):
        return value.sql
    return call("round", written_as(Double(), value), *(digits.sql for digits in rest))


def real_facts(
    name: str, change: Callable[[float], float], least: float, open_end: bool, arguments: Sequence[Facts]
) -> Facts:
    """A rising function of the reals from `least` on; below it, and with `open_end` at it, there is no value."""
    need_numbers(name, arguments, 1)
    (facts,) = arguments
    low, high = range_of(facts)
    outside = low is None or low < least or (open_end and low <= least)
    below = None if open_end and outside else _float(change, max(low, Fraction(least)) if low is not None else least)
    above = None if high is None or high < least or (open_end and high <= least) else _float(change, high)
    return bounded(Double(), below, above, nullable=facts.nullable or outside)


def _float(change: Callable[[float], float], end: float | Exact) -> Fraction | None:
    try:
        return Fraction(change(float(end)))
    except OverflowError:
        return None


def real_sql(name: str, least: float, open_end: bool, arguments: Sequence[Written]) -> Sql:
    value = written_as(Double(), arguments[0])
    result = call(name, value)
    if least == -math.inf:
        return result
    return when(binary(value, ">" if open_end else ">=", literal(Fraction(least), Double())), result)


def power_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("POWER", arguments, 2)
    base, exponent = arguments
    nullable = base.nullable or exponent.nullable
    low, high = range_of(base)
    power = exponent.constant
    if low is None or high is None or not isinstance(power, int | Fraction) or power < 0:
        return bounded(Double(), None, None, nullable=nullable)
    if power == int(power):
        ends = [Fraction(low) ** int(power), Fraction(high) ** int(power)] if power <= 64 else []
        if low < 0 < high and power % 2 == 0:
            ends.append(Fraction(0))
    else:
        ends = (
            [end for end in (_float(lambda x: x ** float(power), end) for end in (low, high)) if end] if low > 0 else []
        )
    return bounded(Double(), min(ends, default=None), max(ends, default=None), nullable=nullable)


def power_sql(arguments: Sequence[Written]) -> Sql:
    base, exponent = (written_as(Double(), argument) for argument in arguments)
    return call("pow", base, exponent)


def _to_whole(name: str, change: Callable[[Exact], Exact]) -> Function:
    return Function(name, f"{name}(number)", partial(to_whole_facts, name, change), partial(double_sql, name.lower()))


def _real(name: str, change: Callable[[float], float], least: float = -math.inf, *, open_end: bool = False) -> Function:
    return Function(
        name,
        f"{name}(number)",
        partial(real_facts, name, change, least, open_end),
        partial(real_sql, name.lower(), least, open_end),
    )


def _exp(value: float) -> float:
    return math.exp(value) if value > -math.inf else 0.0


FUNCTIONS = (
    Function("ABS", "ABS(number)", abs_facts, abs_sql),
    Function("SIGN", "SIGN(number)", sign_facts, sign_sql),
    _to_whole("FLOOR", math.floor),
    _to_whole("CEIL", math.ceil),
    _to_whole("TRUNC", math.trunc),
    Function("ROUND", "ROUND(number [, digits])", round_facts, round_sql),
    _real("SQRT", math.sqrt, 0.0),
    _real("LN", math.log, 0.0, open_end=True),
    _real("LOG10", math.log10, 0.0, open_end=True),
    _real("LOG2", math.log2, 0.0, open_end=True),
    _real("EXP", _exp),
    Function("POWER", "POWER(base, exponent)", power_facts, power_sql),
)

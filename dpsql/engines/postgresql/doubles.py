"""Arithmetic of doubles that cannot fail. PostgreSQL raises where a result is too large or too small to be a double;
here it is infinite or zero then, as IEEE 754 says, and every other result is the engine's own.

Whether a result is too large is found from operands scaled by powers of two, which is exact. All operands are short
texts that can be written several times, or constants.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from fractions import Fraction
from functools import cache

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
    """The largest double that is not more."""
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
    """Doubles above zero are in the order of their bits."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])

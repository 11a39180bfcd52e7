"""Ranges of numbers, exact, and what an operation makes of them. Where the engine rounds, a range reaches out to the
next doubles, so that no rounded result lies outside it.

A range of doubles that is known on both sides also says that the value is finite.
"""

from __future__ import annotations

import math
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dpsql.schema.types import Decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.expressions.properties import Properties

Exact: TypeAlias = int | Fraction
Range: TypeAlias = tuple[Exact | None, Exact | None]
UNKNOWN: Range = (None, None)
EXACT_DECIMAL_DIGITS = 15
"""Decimals of up to this many digits become the nearest double; of longer ones the last bit is not certain."""


def range_of(properties: Properties) -> Range:
    low, high = properties.low, properties.high
    return None if isinstance(low, date) else low, None if isinstance(high, date) else high


def double_range(properties: Properties) -> Range:
    """The range of the value once it is cast to double."""
    found = rounded_out(range_of(properties))
    if isinstance(properties.type, Decimal) and properties.type.precision > EXACT_DECIMAL_DIGITS:
        return nearby(found)
    return found


def magnitude(value: Exact) -> Exact:
    return -value if value < 0 else value


def corners(
    operation: Callable[[Exact, Exact], Exact], left: Sequence[Exact | None], right: Sequence[Exact | None]
) -> Range:
    """The range of an operation that is monotone in each argument: its extremes lie at the corners."""
    if None in left or None in right or not right:
        return UNKNOWN
    reached = [operation(a, b) for a in left for b in right]  # type: ignore[arg-type]
    return min(reached), max(reached)


def monotone(change: Callable[[Exact], Exact | None], low_high: Range) -> Range:
    """The range of a function that never decreases."""
    low, high = low_high
    return (None if low is None else change(low), None if high is None else change(high))


def rounded_out(low_high: Range) -> Range:
    """The doubles around: the result of one correctly rounded operation stays between them.

    >>> rounded_out((0, 3 * Fraction(0.1)))[1] == Fraction(0.1 * 3)
    True
    """
    low, high = low_high
    return (None if low is None else double_below(low), None if high is None else double_above(high))


def nearby(low_high: Range) -> Range:
    """Two doubles further out, for functions of the reals that are not rounded correctly.

    A whole result stays, where doubles have fractions: the libraries are exact there, and FLOOR(LOG10(x)) should not
    get one more group.
    """
    (low, high), (below, above) = low_high, next_doubles(low_high)
    return (low if low is None or _stays(low) else below, high if high is None or _stays(high) else above)


def next_doubles(low_high: Range) -> Range:
    """Two doubles further out."""
    low, high = low_high
    return (
        None if low is None else double_below(_steps(low, -math.inf)),
        None if high is None else double_above(_steps(high, math.inf)),
    )


def _stays(value: Exact) -> bool:
    return value == int(value) and magnitude(value) < 2**52


def _steps(value: Exact, towards: float) -> Exact:
    further = math.nextafter(math.nextafter(float(value), towards), towards)
    return Fraction(further) if math.isfinite(further) else value


def double_below(value: Exact) -> Exact | None:
    """The largest double that is not above the value; None beyond the doubles."""
    if value.denominator == 1 and abs(value.numerator) <= 2**53:
        return value
    try:
        nearest = float(value)
    except OverflowError:
        return None
    if nearest == value:
        return value
    below = math.nextafter(nearest, -math.inf) if nearest > value else nearest
    return Fraction(below) if math.isfinite(below) else None


def double_above(value: Exact) -> Exact | None:
    below = double_below(-value)
    return None if below is None else -below


def power_above(value: Exact) -> int:
    """The least b with value <= 2^b.

    >>> power_above(8), power_above(9), power_above(Fraction(1, 3))
    (3, 4, -1)
    """
    exact = Fraction(value)
    above, below = exact.numerator, exact.denominator
    bits = above.bit_length() - below.bit_length() - 1
    while below << max(bits, 0) < above << max(-bits, 0):
        bits += 1
    return bits

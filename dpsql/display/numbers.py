"""Numbers for people: no more digits than the error justifies, NULL for missing values."""

from __future__ import annotations

import math
from decimal import Decimal

Ends = tuple[float, float]
NULL = "NULL"
UNKNOWN: Ends = (math.nan, math.nan)
LONG = 10**15
"""From here on all digits of a number are more than can be read."""
OFF_CENTRE = 0.1
"""A value further from the middle of its interval, in half-widths, is not well described by ±."""


def plain(value: object) -> str:
    """
    >>> plain(0.1 + 0.2), plain(2024), plain(None)
    ('0.3', '2024', 'NULL')
    """
    if value is None:
        return NULL
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def significant(value: float, digits: int = 4) -> str:
    """The number with this many significant digits; known digits are never replaced by zeros.

    >>> significant(0.123456), significant(9470.4), significant(135796.2), significant(1e300)
    ('0.1235', '9,470', '135,796', '1e+300')
    """
    if 10**digits <= abs(value) < LONG:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"


def rounded_up(value: float) -> str:
    """A number that nothing is above, in two digits.

    >>> rounded_up(4_812_345.6), rounded_up(37), rounded_up(0.231)
    ('4,900,000', '37', '0.24')
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 and math.isfinite(value) else 0.0
    return significant(math.ceil(value / step - 1e-9) * step if step else value)


def several(number: int, one: str, more: str) -> str:
    """
    >>> several(1, "query", "queries"), several(1200, "query", "queries")
    ('1 query', '1,200 queries')
    """
    return f"{number:,} {one if number == 1 else more}"


def number(value: object) -> float:
    """NaN for what is none."""
    return float(value) if isinstance(value, int | float | Decimal) else math.nan


def with_error(value: object, ends: Ends | None) -> tuple[str, str]:
    """The value and its error, to two digits of the error; the interval itself where the value is not its middle.

    Where the error is infinite the value has two digits, not to seem better than others; where it is not known (NaN),
    no digit is known to be wrong.

    >>> with_error(1204, (1180.0, 1228.0)), with_error(40.59298669, (40.314794, 40.870705)), with_error("north", None)
    (('1,204', '± 24'), ('40.59', '± 0.28'), ('north', ''))
    >>> with_error(6.25, (0.0, 120.0)), with_error(2.5, (-math.inf, math.inf)), with_error(1e300, (0.0, 2e300))
    (('6', '[0, 120]'), ('2.5', '± ∞'), ('1e+300', '± 1e+300'))
    >>> with_error(60.91, (50.95, 70.87)), with_error(1.09694, (-math.inf, math.inf)), with_error(9.32105, UNKNOWN)
    (('61', '± 10'), ('1.1', '± ∞'), ('9.32105', '± ?'))
    >>> with_error(25.0, (25.0, 25.0))
    ('25', '± 0')
    """
    if ends is None or not isinstance(value, int | float | Decimal):
        return plain(value), ""
    low, high = ends
    half, middle = high / 2 - low / 2, float(value)
    if math.isnan(half):
        return significant(middle, 6), "" if math.isnan(middle) else "± ?"
    if math.isinf(half):
        return significant(middle, 2), "± ∞"
    whole = isinstance(value, int) and half.is_integer()
    # Rounded before its digits are counted: 9.96 is 10, and not 10.0.
    digits = 0 if whole else max(0, 1 - math.floor(math.log10(float(f"{half:.1e}")))) if half else 6
    shown = f"{value:,}" if isinstance(value, int) else _written(middle, digits) if half else f"{middle:,.6g}"
    if abs(middle - low - half) > OFF_CENTRE * half:
        return shown, f"[{_written(low, digits)}, {_written(high, digits)}]"
    return shown, f"± {_written(half, digits) if half else 0}"


def _written(number: float, digits: int) -> str:
    return f"{number:,.{digits}f}" if abs(number) < LONG else f"{number:.6g}"

"""Doubles in the words of Spark: as IEEE 754 has them, except that its own rounding gives 64-bit integers.

All operands are short texts that can be written several times, or constants.
"""

from __future__ import annotations

import math

INFINITE = "CAST('Infinity' AS DOUBLE)"
BELOW_HALF = f"{math.nextafter(0.5, 0)!r}D"
"""What is added to round: with a half itself 0.49999999999999994 would become 1."""


def number(value: float) -> str:
    """
    >>> number(0.5), number(-math.inf)
    ('0.5D', "CAST('-Infinity' AS DOUBLE)")
    """
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"({value!r}D)" if math.copysign(1, value) < 0 else f"{value!r}D"


def truncated(value: str) -> str:
    """What is no 64-bit integer has nothing after the point, or is no number."""
    return f"coalesce(CAST(TRY_CAST({value} AS BIGINT) AS DOUBLE), {value})"


def floor(value: str) -> str:
    return f"(rint({value}) - CASE WHEN rint({value}) > {value} THEN 1D ELSE 0D END)"


def ceil(value: str) -> str:
    return f"(rint({value}) + CASE WHEN rint({value}) < {value} THEN 1D ELSE 0D END)"


def rounded(value: str) -> str:
    """Halves away from zero. NaN has the sign NaN, and zero none."""
    return truncated(f"({value} + sign({value}) * {BELOW_HALF})")


def raised(value: str, exponent: str) -> str:
    """Java has no value for two powers that IEEE 754 has one for."""
    certain = f"{value} = 1D OR ({value} = -1D AND abs({exponent}) = {INFINITE})"
    return f"CASE WHEN {certain} THEN 1D ELSE power({value}, {exponent}) END"

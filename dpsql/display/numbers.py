"""Numbers as people read them: no more digits than their error leaves, NULL where there is none."""

from __future__ import annotations

import math
from decimal import Decimal

Ends = tuple[float, float]
NULL = "NULL"
LONG = 10**15
"""From here on all digits of a number are more than can be read."""


def plain(value: object) -> str:
    """
    >>> plain(0.1 + 0.2), plain(2024), plain(None)
    ('0.3', '2024', 'NULL')
    """
    if value is None:
        return NULL
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def half(ends: Ends) -> float:
    return (ends[1] - ends[0]) / 2


def with_error(value: object, ends: Ends | None) -> tuple[str, str]:
    """The value and its error, to two digits of the error.

    >>> with_error(1204, (1180.0, 1228.0)), with_error(40.59298669, (40.314794, 40.870705)), with_error("north", None)
    (('1,204', '± 24'), ('40.59', '± 0.28'), ('north', ''))
    >>> with_error(2.5, (-math.inf, math.inf)), with_error(1e300, (0.0, 2e300))
    (('2.5', '± ∞'), ('1e+300', '± 1e+300'))
    """
    if ends is None or not isinstance(value, int | float | Decimal):
        return plain(value), ""
    width = half(ends)
    if not math.isfinite(width):
        return plain(value), "± ∞" if math.isinf(width) else ""
    if abs(float(value)) >= LONG or width >= LONG:
        return f"{float(value):.6g}", f"± {width:.3g}"
    digits = max(0, 1 - math.floor(math.log10(width))) if width else 6
    error = f"± {width:,.{digits}f}" if width else "± 0"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}", error

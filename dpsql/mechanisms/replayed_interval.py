"""The error bar of a value that was computed from noisy ones: what it became when their noise was drawn again.

docs/proofs/intervals.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ASIDE = 0.12
"""Replicas are half on either side of a value, up to this part of them."""
TRUSTED = 2
"""The second replica from either end is the last of which the level is known."""
FAR = 3
"""The farthest replica is no farther than so many half-widths."""
NEAR = 1e-9
"""Or than this part of the value: no divisor is near 0 then, whatever the shape of so little noise."""
CROWDED = 1.2
"""The outermost replica is farther than the ends by less than this only where a function has a fold or a bound."""
LOPSIDED = 1.5
"""Two sides that differ by less are taken to be the same: the longer one."""
ROUNDING = 1e-4
"""Of places, which are whole numbers."""


def replayed_interval(value: float, replicas: NDArray[np.float64], level: float) -> tuple[float, float] | None:
    """None where one row's noise does not tell: replicas that lie to one side of the value (the largest of many), that
    are NULL or far away (a quotient whose divisor may be 0).
    """
    ordered, number = np.sort(replicas), len(replicas)
    aside = max(int(np.sum(ordered < value)), int(np.sum(ordered > value)))
    if not np.isfinite(ordered).all() or aside > (0.5 + ASIDE) * number:
        return None
    known = min(level, 1 - 2 * TRUSTED / (number + 1))
    place = math.floor((1 - known) / 2 * (number + 1) + ROUNDING)
    first, last = value - ordered[0], ordered[-1] - value
    low, high = value - ordered[place - 1], ordered[-place] - value
    if max(first, last) > max(FAR * max(low, high), NEAR * abs(value)) and max(low, high) > 0:
        return None
    # The tails of noise fall at least exponentially, so those of several noises added up do.
    stretch = math.log(1 - level) / math.log(1 - known) if level > known else 1.0
    low, high = _side(low, first, stretch), _side(high, last, stretch)
    if max(low, high) <= LOPSIDED * min(low, high):
        low = high = max(low, high)
    return value - max(low, 0.0), value + max(high, 0.0)


def around_all(intervals: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    """Rows that look the same may have different errors. What holds each of their intervals holds for whichever."""
    known = [found for found in intervals if found is not None]
    if not known or len(known) < len(intervals):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _side(end: float, farthest: float, stretch: float) -> float:
    """How long the interval is on one side of the value."""
    if end < farthest < CROWDED * end:
        end = 2 * farthest - end
    return max(stretch * end, farthest) if stretch > 1 else end

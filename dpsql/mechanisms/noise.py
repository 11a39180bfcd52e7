"""Integer noise: the interface of all additive noise distributions.

A noise gives its exact tail; the interval around an answer and the threshold that hides rare groups follow from it.
All of these err to the safe side: tails are never too small, intervals and thresholds never too short.
"""

from __future__ import annotations

from fractions import Fraction
from math import expm1, log1p
from sys import float_info
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


# Tails are computed in float64, as exp(-x) or erfc(z) with x and z^2 at most 745. A few roundings of the argument
# become a relative error below 2^-39; this is eight times that.
SAFETY = 2.0**-36


# Beyond this the noise would leave 64 bits, and the answer would be nothing but noise.
LARGEST_STD = 1 << 56


class Noise(Protocol):
    """A symmetric distribution on the integers."""

    name: ClassVar[str]

    @property
    def kurtosis(self) -> float:
        """The excess kurtosis of wide noise, which is 0 for a normal distribution."""
        ...

    @property
    def std(self) -> float:
        """The standard deviation."""
        ...

    def sample(self, n: int) -> NDArray[np.int64]:
        """`n` exact draws, modulo 2^64: add them with wrapping 64-bit arithmetic, as numpy does."""
        ...

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """P[X >= t] for whole t >= 1, up to a relative error of SAFETY while it is a normal float64."""
        ...

    def tail(self, t: int) -> float:
        """P[X >= t] or slightly more. Never 0: a tail below the least float64 is given as that."""
        beyond = float(self.survival(np.array([max(t, 1 - t)], dtype=np.float64))[0])
        probability = beyond if t > 0 else 1 - beyond
        return min(1.0, max(probability * (1 + SAFETY), float_info.min))

    def half_width(self, level: float | Fraction) -> int:
        """The least t with P[|X| <= t] >= level."""
        if not 0 <= level < 1:
            raise ValueError(f"a confidence level lies in [0, 1), unlike {level}")
        outside = 1 - Fraction(level)
        return _least(lambda t: 2 * self.tail(t + 1) <= outside)

    def threshold(self, groups: int, delta: Fraction) -> int:
        """The least tau that hides a unit which is alone in each of `groups` groups, except with probability delta.

        That is, 1 - (1 - P[1 + X >= tau])^groups <= delta. Proof: docs/proofs/thresholding.md.
        """
        if groups < 1 or not 0 < delta <= Fraction(1, 2):
            raise ValueError("a threshold needs at least one group and a delta above 0 and up to 1/2")
        each = -expm1(log1p(-float(delta)) / groups) * (1 - SAFETY)
        if each <= float_info.min:
            raise ValueError("delta is too small for a threshold")
        return 1 + _least(lambda t: self.tail(t) <= each)


def _least(holds: Callable[[int], bool]) -> int:
    """The least t >= 0 from which on `holds`."""
    low, high = -1, 0
    while not holds(high):
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high

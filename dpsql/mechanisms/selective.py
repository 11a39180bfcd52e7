"""Selective inference: what a noisy count says of the true one, given that it was shown for being large enough.

A group is shown if its noisy count n + X reaches a threshold. Small groups are shown because of their noise, so their X
is not symmetric: it follows the distribution of X from threshold - n upwards. The interval consists of all n that a
test with this truncated distribution accepts, so it holds for the groups that are shown, whatever their size. It reads
released numbers only. Proof: docs/proofs/intervals.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dpsql.mechanisms.additive import Noise

FAR = Fraction(1, 25)
"""A group of which the threshold hides less than this part of what its interval may miss has the ordinary interval."""
LEAST_TAIL = Fraction(1, 10**280)
"""Tails below this leave the range of float64."""


@dataclass(frozen=True)
class ShownCount:
    """A noisy count that is shown because it is at least `least`, both in steps of the noise.

    >>> from dpsql.mechanisms.laplace import LaplaceNoise
    >>> count = ShownCount(LaplaceNoise(Fraction(2)), least=30)
    >>> count.interval(30, 0.95), count.interval(38, 0.95), count.interval(60, 0.95)
    ((0, 34), (32, 44), (54, 66))
    """

    noise: Noise
    least: int

    def is_near(self, value: int, level: float) -> bool:
        """Whether the noise that a value may have had could have decided that it is shown."""
        return value < self.least + _half_width(self, 1 - FAR * (1 - Fraction(level)))

    def interval(self, value: int, level: float) -> tuple[int, int]:
        """The counts, from 0 on, that are plausible at this level, and the value itself."""
        return _interval(self, value, level)

    def quantiles(self, value: int, levels: NDArray[np.float64]) -> NDArray[np.int64]:
        """The plausible counts as a distribution: of these, the part `level` is smaller."""
        return self._first(lambda n: (self._chance(value, n) + self._chance(value + 1, n)) / 2 >= levels, value, levels)

    def _chance(self, value: int, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability of at least this value where it is shown, for each true count; it grows with the count."""
        return self._beyond(value - counts) / self._beyond(self.least - counts)

    def _beyond(self, t: NDArray[np.int64]) -> NDArray[np.float64]:
        """P[X >= t]."""
        tail = self.noise.survival(np.maximum(t, 1 - t).astype(np.float64))
        return np.where(t > 0, tail, 1 - tail)

    def _first(
        self, holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]], value: int, levels: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The least count for each level from which on `holds`; 0 if it does as far down as tails can be computed."""
        floor = max(0, self.least - _half_width(self, 1 - LEAST_TAIL))
        low = np.full(len(levels), floor - 1)
        high = np.full(len(levels), value + 1 + _half_width(self, 1 - 2 * _least_level(levels)))
        while (high - low > 1).any():
            middle = (low + high) // 2
            reached = (middle >= floor) & holds(np.maximum(middle, floor))
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return np.where(high <= floor, 0, high)


def _least_level(levels: NDArray[np.float64]) -> Fraction:
    return Fraction(float(np.minimum(levels, 1 - levels).min()))


@lru_cache(maxsize=4096)
def _half_width(count: ShownCount, level: Fraction) -> int:
    return count.noise.half_width(level)


@lru_cache(maxsize=1 << 16)
def _interval(count: ShownCount, value: int, level: float) -> tuple[int, int]:
    outside = np.array([(1 - level) / 2])
    (low,) = count._first(lambda n: count._chance(value, n) > outside, value, outside)
    (end,) = count._first(lambda n: count._chance(value + 1, n) >= 1 - outside, value, outside)
    return min(int(low), value), max(int(end) - 1, value)

"""K-norm noise by a box: epsilon-DP for all measures that one unit moves at once. Proof: docs/proofs/k_norm.md.

One unit moves each of d measures of a group within its own bound, so the vector of changes lies in a box. Separate
Laplace noise would charge for each measure in turn; one draw, whose density falls with the largest coordinate, is
charged once for the box. The standard deviation is sqrt((d + 1)(d + 2)/3) bounds over epsilon instead of sqrt(2) d.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import lgamma, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.mechanisms.additive import Box, Noise, PureMechanism
from dpsql.sampling import rounded_box

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

SMALL_SCALE = 4
"""Up to here the variance is summed up; from here on rounding adds 1/12 to it, and next to nothing else."""


@dataclass(frozen=True)
class KNormNoise(Noise):
    """One coordinate of a box: X = floor(scale R U + 1/2), R ~ Gamma(d + 1) being that of all of its box, U uniform on
    [-1, 1]. |R U| is Gamma(N) for N uniform on 1, ..., d.

    >>> from fractions import Fraction
    >>> KNormNoise(Fraction(10), Box(2)).half_width(0.95)
    41
    """

    name: ClassVar[str] = "knorm"
    scale: Fraction
    box: Box

    def __post_init__(self) -> None:
        if self.scale < 0:
            raise ValueError("a scale is not negative")

    @property
    def kurtosis(self) -> float:
        return coordinate_kurtosis(self.box.dimension, 1.0)

    @property
    def std(self) -> float:
        d, scale = self.box.dimension, float(self.scale)
        if self.scale >= SMALL_SCALE:
            return sqrt(scale**2 * coordinate_variance(d) + 1 / 12 - (7 / 960 / scale**2 if d == 1 else 0))
        return _summed_std(self.scale, d)

    def sample(self, n: int) -> NDArray[np.int64]:
        """A coordinate by itself. Those of one box are private when they are drawn together, by `drawn_together`."""
        return drawn_together([self], n)[0]

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        # For scales so small that the quotient would overflow (or 0) a number with the same effect.
        return _survival(float(self.scale), self.box.dimension, t)


def _survival(scale: float, d: int, t: NDArray[np.float64]) -> NDArray[np.float64]:
    return gamma_series([(1 - k / d) / 2 for k in range(d)], (t - 0.5) / max(scale, 1e-200))


@lru_cache(maxsize=1024)
def _summed_std(scale: Fraction, d: int) -> float:
    """Of few steps: many measures of a release have the same, and are asked for theirs several times."""
    k = np.arange(1.0, float(scale) * (60 + 2 * d) + 2)
    return sqrt(2 * float(np.sum((2 * k - 1) * _survival(float(scale), d, k))))


def drawn_together(noises: Sequence[Noise], n: int) -> list[NDArray[np.int64]]:
    """`n` draws of each noise; draws of one box share their radius, all others are independent."""
    boxes: dict[Box, list[int]] = {}
    drawn = [np.zeros(n, dtype=np.int64)] * len(noises)
    for place, noise in enumerate(noises):
        if not isinstance(noise, KNormNoise):
            drawn[place] = noise.sample(n)
        elif noise.scale:
            boxes.setdefault(noise.box, []).append(place)
    for box, places in boxes.items():
        scales = [noise.scale for place in places if isinstance(noise := noises[place], KNormNoise)]
        for place, values in zip(places, rounded_box(scales, box.dimension, n), strict=True):
            drawn[place] = values
    return drawn


class KNormMechanism(PureMechanism):
    """The K-norm mechanism: measures of a box share one part of the budget, each with noise for its own bound."""

    boxed = True

    def noise(self, scale: Fraction, box: Box) -> KNormNoise:
        return KNormNoise(scale, box)

    def width(self, dimension: int) -> float:
        return coordinate_variance(dimension) / 2


def coordinate_variance(d: int) -> float:
    """The variance of R U."""
    return (d + 1) * (d + 2) / 3


def coordinate_kurtosis(d: int, concentration: float) -> float:
    """In excess, of R W: W is a sum of uniforms, one alone having a concentration of 1 and many of about 0."""
    return (3 - 1.2 * concentration) * (d + 3) * (d + 4) / ((d + 1) * (d + 2)) - 3


def gamma_series(coefficients: Sequence[float], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^-x times the sum of c_k x^k / k! for x > 0, by logarithms: e^-x alone may be 0 where its product is not."""
    logarithm = np.log(x)
    terms = (c * np.exp(k * logarithm - lgamma(k + 1) - x) for k, c in enumerate(coefficients))
    total: NDArray[np.float64] = sum(terms, np.zeros_like(x))
    return total

"""K-norm noise by a box: epsilon-DP for all measures that one unit moves together. Proof: docs/proofs/k_norm.md.

One unit moves each of d measures of a group by at most its own bound: a vector within a box. Laplace noise for each by
itself pays for all of them in turn; one draw whose density falls with the largest coordinate pays for the box once. The
standard deviation is sqrt((d + 1)(d + 2)/3) bounds over epsilon instead of sqrt(2) d.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import fsum, lgamma, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.mechanisms.additive import Box, PureMechanism
from dpsql.mechanisms.noise import Noise
from dpsql.sampling import rounded_box

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Cells of a sum of uniforms, which is taken to be at the upper end of its cell; and those in which it is added up.
CELLS = 1024
FINE = 16_000

# For so many points at once there is a table: of t over the largest w, and of w over that, between these logarithms.
MANY = 64
FACTOR = 0.001
LOW, HIGH = -8.0, 7.0
LEAST = -10.0
TABLE = 1 << 16
SMALL_SCALE = 4
"""Up to here the variance is summed up; from here on rounding adds 1/12 to it, and next to nothing else."""


@dataclass(frozen=True)
class KNormNoise(Noise):
    """One coordinate of a box: X = floor(scale R U + 1/2), R ~ Gamma(d + 1) being that of all of its box, U uniform on
    [-1, 1]. |R U| is Gamma(N) for N uniform on 1, ..., d.

    >>> KNormNoise(Fraction(10), Box(2)).half_width(0.95)
    40
    """

    name: ClassVar[str] = "knorm"
    scale: Fraction
    box: Box

    def __post_init__(self) -> None:
        if self.scale < 0:
            raise ValueError("a scale is not negative")

    @property
    def kurtosis(self) -> float:
        return _kurtosis(self.box.dimension, 1.0)

    @property
    def std(self) -> float:
        d, scale = self.box.dimension, float(self.scale)
        if self.scale >= SMALL_SCALE:
            return sqrt(scale**2 * _variance(d) + 1 / 12 - (7 / 960 / scale**2 if d == 1 else 0))
        k = np.arange(1.0, scale * (60 + 2 * d) + 2)
        return sqrt(2 * float(np.sum((2 * k - 1) * self.survival(k))))

    def sample(self, n: int) -> NDArray[np.int64]:
        """A coordinate by itself. Those of one box are private when they are drawn together, by `drawn_together`."""
        return drawn_together([self], n)[0]

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        # For scales so small that the quotient would overflow (or 0) a number with the same effect.
        x = (t - 0.5) / max(float(self.scale), 1e-200)
        d = self.box.dimension
        return _polynomial([(1 - k / d) / 2 for k in range(d)], x)


def drawn_together(noises: Sequence[Noise], n: int) -> list[NDArray[np.int64]]:
    """`n` draws of each; those of one box have their radius in common, all others are independent."""
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
    """Measures of one box share one part of the budget, and each has noise for its own bound at all of it."""

    boxed = True

    def noise(self, scale: Fraction, box: Box) -> KNormNoise:
        return KNormNoise(scale, box)

    def width(self, dimension: int) -> float:
        return _variance(dimension) / 2


@dataclass(frozen=True)
class BoxSum(Noise):
    """A weighted sum of coordinates of one box, rounding aside: R (a_1 U_1 + ... + a_k U_k), in steps so small that it
    may be taken as whole."""

    name: ClassVar[str] = "knorm"
    dimension: int
    widths: tuple[float, ...]

    @property
    def kurtosis(self) -> float:
        squares = [width**2 for width in self.widths]
        return _kurtosis(self.dimension, fsum(square**2 for square in squares) / fsum(squares) ** 2)

    @property
    def std(self) -> float:
        return sqrt(_variance(self.dimension) * fsum(width**2 for width in self.widths))

    def sample(self, n: int) -> NDArray[np.int64]:
        noises = [KNormNoise(Fraction(width), Box(self.dimension)) for width in self.widths]
        return sum(drawn_together(noises, n), np.zeros(n, dtype=np.int64))

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of P[R >= t/w] over where |a_1 U_1 + ...| = w may lie: from above, as w is the end of its cell."""
        if len(t) > MANY:
            found: NDArray[np.float64] = self._table[_log_places(t / sum(self.widths), LOW, HIGH)]
            return found
        masses, ends = self._cells
        return np.array([masses @ _gamma_tail(self.dimension + 1, x / ends) / 2 for x in t])

    @cached_property
    def _cells(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The probability and the upper end of each cell of w."""
        masses, ends = self._fine
        cells = np.ceil(ends * CELLS).astype(np.int64)
        ends = np.maximum(np.arange(CELLS + 1), 0.5) * sum(self.widths) / CELLS
        return np.bincount(cells, weights=masses, minlength=CELLS + 1).astype(np.float64), ends

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """The survival at many points that grow by a factor: as t/w is a difference of logarithms, by a convolution."""
        masses, ends = self._fine
        places = -np.floor(-np.log(np.maximum(ends, np.exp(LEAST))) / FACTOR).astype(np.int64)
        by_logarithm = np.bincount(places - round(LEAST / FACTOR), masses)
        spectrum = _spectrum(self.dimension + 1) * np.fft.rfft(by_logarithm, TABLE)
        # Point i + (number of the largest w) of the convolution is at t = e^(LOW + i FACTOR).
        whole = np.fft.irfft(spectrum, TABLE)[len(by_logarithm) - 1 :]
        found: NDArray[np.float64] = np.clip(whole[: round((HIGH - LOW) / FACTOR) + 1], 0, 1) / 2
        found[0] = 0.5
        return found

    @cached_property
    def _fine(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same cells, but finer and of w over the largest that it can be."""
        reach, terms = sum(self.widths), len(self.widths)
        size = 1 << (2 * (FINE + terms)).bit_length()
        spectrum = np.ones(size // 2 + 1)
        for width in self.widths:
            spectrum *= 2 * np.fft.rfft(_uniform_masses(width / reach * FINE), size).real
        found = np.fft.irfft(spectrum, size)[: FINE + terms]
        masses = np.maximum(np.concatenate((found[:1], 2 * found[1:])), 0)
        # A value in cell j is at most (j + terms/2) steps; none is more than all of them.
        return masses / masses.sum(), np.minimum((np.arange(FINE + terms) + terms / 2) / FINE, 1.0)


@lru_cache(maxsize=64)
def _spectrum(n: int) -> NDArray[np.complex128]:
    """Of P[R >= x], R ~ Gamma(n), at all points at which t/w may lie."""
    points = np.exp(np.arange(round(LOW / FACTOR), round((HIGH - LEAST) / FACTOR) + 1) * FACTOR)
    return np.fft.rfft(_gamma_tail(n, points), TABLE)


def _log_places(x: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """For each x the last of the points e^low, e^(low + FACTOR), ..., e^high that does not exceed it, or the first."""
    places: NDArray[np.int64] = np.floor((np.clip(np.log(x), low, high) - low) / FACTOR).astype(np.int64)
    return places


def _uniform_masses(cells: float) -> NDArray[np.float64]:
    """Of a uniform number on [-cells, cells]: half of the probability of cell 0, and that of cells 1, 2, ..., FINE."""
    edges = np.minimum(np.concatenate(([0.0], np.arange(FINE + 1) + 0.5)), cells)
    masses: NDArray[np.float64] = np.diff(edges) / (2 * cells)
    return masses


def _variance(d: int) -> float:
    """Of R U."""
    return (d + 1) * (d + 2) / 3


def _kurtosis(d: int, concentration: float) -> float:
    """In excess, of R W: W is a sum of uniforms, one alone having a concentration of 1 and many of about 0."""
    return (3 - 1.2 * concentration) * (d + 3) * (d + 4) / ((d + 1) * (d + 2)) - 3


def _gamma_tail(n: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """P[R >= x] for R ~ Gamma(n)."""
    return _polynomial([1.0] * n, x)


def _polynomial(coefficients: Sequence[float], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^-x times the sum of c_k x^k / k! for x > 0, by logarithms: e^-x alone may be 0 where its product is not."""
    logarithm = np.log(x)
    terms = (c * np.exp(k * logarithm - lgamma(k + 1) - x) for k, c in enumerate(coefficients))
    total: NDArray[np.float64] = sum(terms, np.zeros_like(x))
    return total

"""A weighted sum of coordinates of one box: the error bar of what is made of several measures with K-norm noise.

They have their radius in common, so they are not independent: given w, the weighted sum of the uniforms, the whole is
beyond t as often as a Gamma number is beyond t/w. w counts as the upper end of its cell, so no error bar is too short.
docs/proofs/k_norm.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import fsum, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.mechanisms.additive import Box
from dpsql.mechanisms.k_norm import KNormNoise, coordinate_kurtosis, coordinate_variance, drawn_together, gamma_series
from dpsql.mechanisms.noise import Noise

if TYPE_CHECKING:
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
        return coordinate_kurtosis(self.dimension, fsum(square**2 for square in squares) / fsum(squares) ** 2)

    @property
    def std(self) -> float:
        return sqrt(coordinate_variance(self.dimension) * fsum(width**2 for width in self.widths))

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


def _gamma_tail(n: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """P[R >= x] for R ~ Gamma(n)."""
    return gamma_series([1.0] * n, x)

"""Error bars of weighted sums of independent noises, as of a SUM that is a X + b Y."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import fsum, hypot, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.mechanisms.additive import Box, Noise
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.k_norm import KNormNoise, coordinate_kurtosis, coordinate_variance, drawn_together, gamma_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# -- box sum -----------------------------------------------------------------------------------------------------------
# A weighted sum of coordinates of one box: the error bar of what is made of several measures with K-norm noise.
#
# They have their radius in common, so they are not independent: given w, the weighted sum of the uniforms, the whole is
# beyond t as often as a Gamma number is beyond t/w. w counts as the upper end of its cell, so no error bar is too
# short. docs/proofs/k_norm.md.

# Cells of a sum of uniforms, which is taken to be at the upper end of its cell; and those in which it is added up.
BOX_CELLS = 1024
BOX_FINE = 16_000

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
        cells = np.ceil(ends * BOX_CELLS).astype(np.int64)
        ends = np.maximum(np.arange(BOX_CELLS + 1), 0.5) * sum(self.widths) / BOX_CELLS
        return np.bincount(cells, weights=masses, minlength=BOX_CELLS + 1).astype(np.float64), ends

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """The survival function on a geometric grid, by a convolution: in logarithms t/w is a difference."""
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
        size = 1 << (2 * (BOX_FINE + terms)).bit_length()
        spectrum = np.ones(size // 2 + 1)
        for width in self.widths:
            spectrum *= 2 * np.fft.rfft(_uniform_masses(width / reach * BOX_FINE), size).real
        found = np.fft.irfft(spectrum, size)[: BOX_FINE + terms]
        masses = np.maximum(np.concatenate((found[:1], 2 * found[1:])), 0)
        # A value in cell j is at most (j + terms/2) steps; none is more than all of them.
        return masses / masses.sum(), np.minimum((np.arange(BOX_FINE + terms) + terms / 2) / BOX_FINE, 1.0)


@lru_cache(maxsize=64)
def _spectrum(n: int) -> NDArray[np.complex128]:
    """The spectrum of P[R >= x], R ~ Gamma(n), at all possible points t/w."""
    points = np.exp(np.arange(round(LOW / FACTOR), round((HIGH - LEAST) / FACTOR) + 1) * FACTOR)
    return np.fft.rfft(_gamma_tail(n, points), TABLE)


def _log_places(x: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """For each x the last of the points e^low, e^(low + FACTOR), ..., e^high that does not exceed it, or the first."""
    places: NDArray[np.int64] = np.floor((np.clip(np.log(x), low, high) - low) / FACTOR).astype(np.int64)
    return places


def _uniform_masses(cells: float) -> NDArray[np.float64]:
    """Of a uniform number on [-cells, cells]: half of the probability of cell 0, and that of cells 1 to BOX_FINE."""
    edges = np.minimum(np.concatenate(([0.0], np.arange(BOX_FINE + 1) + 0.5)), cells)
    masses: NDArray[np.float64] = np.diff(edges) / (2 * cells)
    return masses


def _gamma_tail(n: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """P[R >= x] for R ~ Gamma(n)."""
    return gamma_series([1.0] * n, x)


# -- spread ------------------------------------------------------------------------------------------------------------

# Cells of the grid, per term, from 0 to as far as the terms reach together.
CELLS = 8000

# The part of the probability outside the interval that may be lost at the ends of the grid.
LOST = Fraction(1, 1000)

# The transform's own error, summed over the grid, is some thousand times smaller.
TRANSFORM_ERROR = 1e-12

# A normal distribution fine enough to read quantiles off it.
FINE = 2**20


@dataclass(frozen=True)
class Combined:
    """A weighted sum of independent noises, for a number that is computed from several."""

    terms: tuple[tuple[float, Noise], ...]

    @property
    def std(self) -> float:
        return hypot(*(weight * noise.std for weight, noise in self.terms))


def half_width(terms: Sequence[tuple[float, Noise | Combined]], level: float, cells: int = CELLS) -> float:
    """The least t with P[|sum of w X| <= t] >= level, or up to about 0.5 % more; with fewer cells, somewhat more.

    >>> from dpsql.mechanisms.laplace import LaplaceNoise
    >>> half_width([(0.5, LaplaceNoise(Fraction(10)))], 0.95)
    15.0
    """
    single = (
        part
        for weight, noise in terms
        for part in (
            [(weight * own, inner) for own, inner in noise.terms] if isinstance(noise, Combined) else [(weight, noise)]
        )
    )
    noisy = [(abs(weight), noise) for weight, noise in single if weight and noise.std]
    if not noisy:
        return 0.0
    if len(noisy) == 1:
        [(weight, noise)] = noisy
        return weight * noise.half_width(level)
    normal = _normal_half_width(noisy, level)
    if normal is not None:
        return normal
    terms, rounding = independent(noisy)
    width = (
        terms[0][0] * terms[0][1].half_width(level) if len(terms) == 1 else _convolved_half_width(terms, level, cells)
    )
    # Where the noise is about as fine as its rounding, each of them within its own width is enough.
    each = 1 - (1 - Fraction(level)) / len(noisy)
    return min(width + rounding, sum(weight * noise.half_width(each) for weight, noise in noisy)) if rounding else width


def independent(terms: Sequence[tuple[float, Noise]]) -> tuple[list[tuple[float, Noise]], float]:
    """Those of one box, which were drawn together, as one; and by how much rounding may move them."""
    boxes: dict[Box, list[tuple[float, KNormNoise]]] = {}
    found = []
    for weight, noise in terms:
        if isinstance(noise, KNormNoise) and weight and float(noise.scale):
            boxes.setdefault(noise.box, []).append((weight, noise))
        else:
            found.append((weight, noise))
    rounding = 0.0
    for box, parts in boxes.items():
        if len(parts) == 1:
            found += parts
            continue
        widths = [abs(weight) * float(noise.scale) for weight, noise in parts]
        step = hypot(*widths) / FINE
        found.append((step, BoxSum(box.dimension, tuple(width / step for width in widths))))
        rounding += sum(abs(weight) for weight, _ in parts) / 2
    return found, rounding


def _normal_half_width(terms: Sequence[tuple[float, Noise]], level: float) -> float | None:
    """Gaussian terms: their sum before rounding is normal, and rounding moves each by at most half its weight.

    None if some term is of another kind, or if the rounding would matter.
    """
    sigmas = [weight * float(noise.sigma) for weight, noise in terms if isinstance(noise, GaussianNoise)]
    if len(sigmas) < len(terms):
        return None
    quantile = (GaussianNoise(Fraction(FINE)).half_width(level) + 0.5) / FINE
    before, rounding = quantile * hypot(*sigmas), sum(weight for weight, _ in terms) / 2
    return before + rounding if rounding <= before / 200 else None


def _convolved_half_width(terms: Sequence[tuple[float, Noise]], level: float, each: int) -> float:
    """Each term is put on a common grid, every value in its nearest cell, and the grids are convolved.

    A term is cut where it leaves its share of LOST outside. What is lost counts as far away, and the shift to the
    cells is added in full, so the result errs upwards only.
    """
    outside = 1 - Fraction(level)
    inside = 1 - LOST * outside / len(terms)
    reaches = [weight * noise.half_width(inside) for weight, noise in terms]
    cells = each * len(terms)
    # A noise so concentrated that nothing of it reaches beyond 0 still has the grid of a whole step.
    step = sum(reaches) / cells or min(weight for weight, _ in terms) / cells
    size = 1 << (2 * (cells + len(terms))).bit_length()
    spectrum = np.ones(size // 2 + 1)
    for (weight, noise), reach in zip(terms, reaches, strict=True):
        masses = _masses(noise, step / weight, round(reach / step))
        spectrum *= 2 * np.fft.rfft(masses, size).real - masses[0]
    masses = np.fft.irfft(spectrum, size)[: cells + len(terms)]
    exceeded = 1 - (2 * np.cumsum(masses) - masses[0]) + TRANSFORM_ERROR
    enough = np.flatnonzero(exceeded <= float(outside))
    return float((enough[0] + len(terms) / 2) * step) if len(enough) else sum(reaches)


def _masses(noise: Noise, step: float, last: int) -> NDArray[np.float64]:
    """The probability of cell 0 and of cells 1 to `last` on one side; cell j holds what is nearest to j * step."""
    edges = np.ceil((np.arange(1, last + 2) - 0.5) * step)
    beyond = noise.survival(np.maximum(edges, 1.0))
    return np.concatenate(([1 - 2 * beyond[0]], beyond[:-1] - beyond[1:]))

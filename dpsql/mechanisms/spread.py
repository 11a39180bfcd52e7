"""How far a weighted sum of independent noises strays: the error bar of a SUM that is a X + b Y."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import hypot
from typing import TYPE_CHECKING

import numpy as np

from dpsql.mechanisms.box_sum import BoxSum
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.k_norm import KNormNoise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsql.mechanisms.additive import Box
    from dpsql.mechanisms.noise import Noise

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
    """A weighted sum of independent noises, where one number was made of several."""

    terms: tuple[tuple[float, Noise], ...]

    @property
    def std(self) -> float:
        return hypot(*(weight * noise.std for weight, noise in self.terms))


def half_width(terms: Sequence[tuple[float, Noise | Combined]], level: float) -> float:
    """The least t with P[|sum of w X| <= t] >= level, or up to about 0.5 % more.

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
    width = terms[0][0] * terms[0][1].half_width(level) if len(terms) == 1 else _convolved_half_width(terms, level)
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


def _convolved_half_width(terms: Sequence[tuple[float, Noise]], level: float) -> float:
    """Each term is put on a common grid, every value in its nearest cell, and the grids are convolved.

    A term is cut where it leaves its share of LOST outside. What is lost counts as far away, and the shift to the
    cells is added in full, so the result errs upwards only.
    """
    outside = 1 - Fraction(level)
    inside = 1 - LOST * outside / len(terms)
    reaches = [weight * noise.half_width(inside) for weight, noise in terms]
    cells = CELLS * len(terms)
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

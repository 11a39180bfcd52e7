"""Noise drawn once more, for error bars: what else could have been added to the same answers.

Each noise runs through the same number of its quantiles, in a random order for every row (a Latin hypercube), so that
what is made of one noise alone has exactly its quantiles. Noises of one box keep their common radius. Nobody's privacy
depends on these draws: they come from released numbers, and are the same for the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsql.mechanisms.k_norm import KNormNoise
from dpsql.mechanisms.spread import Combined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsql.mechanisms.additive import Box
    from dpsql.mechanisms.noise import Noise
    from dpsql.sampling import Randomness

    Draws = NDArray[np.float64]

REPLICAS = 199
"""Of 199 draws and the truth, each is as likely to be the fifth from either end: between those lie 95 %."""
TO_UNIT = 2.0**-64
ROUNDING = 1e-12
"""Of tails and levels, in float64."""


def redrawn(noises: Sequence[Noise | Combined], rows: int, source: Randomness) -> list[Draws]:
    """For each noise REPLICAS draws for so many rows."""
    radii: dict[Box, Draws] = {}
    return [_redrawn(noise, rows, source, radii) for noise in noises]


def _redrawn(noise: Noise | Combined, rows: int, source: Randomness, radii: dict[Box, Draws]) -> Draws:
    if isinstance(noise, Combined):
        parts = [weight * _redrawn(part, rows, source, radii) for weight, part in noise.terms]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)
    drawn = _uniform(rows, source)
    if isinstance(noise, KNormNoise):
        if noise.box not in radii:
            radii[noise.box] = _radii(noise.box.dimension, rows, source)
        drawn = radii[noise.box] * (2 * drawn - 1)
    ranks = np.argsort(np.argsort(drawn, axis=0), axis=0)
    return np.asarray(quantiles(noise)[ranks], dtype=np.float64)


def _radii(dimension: int, rows: int, source: Randomness) -> Draws:
    """Gamma(d + 1): a sum of exponential numbers."""
    parts = [-np.log(_uniform(rows, source)) for _ in range(dimension + 1)]
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def _uniform(rows: int, source: Randomness) -> Draws:
    words = source.words(REPLICAS * rows).reshape(REPLICAS, rows)
    return np.asarray((words + 0.5) * TO_UNIT, dtype=np.float64)


def quantiles(noise: Noise) -> Draws:
    """At 1/200, ..., 199/200: each the half-width of the interval that ends there, with its sign."""
    levels = np.abs(2 * np.arange(1, REPLICAS + 1) / (REPLICAS + 1) - 1)
    low, high = np.full(REPLICAS, -1.0), np.full(REPLICAS, float(noise.half_width(float(levels.max()))))
    for _ in range(64):
        middle = np.ceil((low + high) / 2)
        inside = 2 * noise.survival(middle + 1) <= 1 - levels + ROUNDING
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    # The outermost two stand for all that lies beyond: with them the variance is that of the noise.
    missing = REPLICAS * noise.std**2 - float(np.sum(high**2))
    high[[0, -1]] = np.hypot(high[[0, -1]], np.sqrt(max(missing, 0.0) / 2))
    return np.asarray(np.copysign(high, np.arange(REPLICAS) - REPLICAS // 2), dtype=np.float64)

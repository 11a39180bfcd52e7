"""Parametric bootstrap: error bars from noise that is drawn again around the released values.

Each noise runs through the same number of its quantiles, in a random order per row (a Latin hypercube), so that a
function of one noise alone has exactly its quantiles. Noises of one K-norm box share their radius. These draws are
post-processing: they depend on released numbers only, and are the same for the same numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpsql.mechanisms.combined import Combined
from dpsql.mechanisms.k_norm import KNormNoise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsql.mechanisms.additive import Box, Noise
    from dpsql.mechanisms.selective import ShownCount
    from dpsql.sampling import Randomness

# -- bootstrap interval ------------------------------------------------------------------------------------------------
# The error bar of a value that was computed from noisy ones: what it became when their noise was drawn again.
#
# docs/proofs/intervals.md.

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
ROUNDING_OF_PLACES = 1e-4
"""Of places, which are whole numbers."""


def bootstrap_interval(value: float, replicates: NDArray[np.float64], level: float) -> tuple[float, float] | None:
    """None where one row's noise does not tell: replicas that lie to one side of the value (the largest of many), that
    are NULL or far away (a quotient whose divisor may be 0).
    """
    ordered, number = np.sort(replicates), len(replicates)
    aside = max(int(np.sum(ordered < value)), int(np.sum(ordered > value)))
    if not np.isfinite(ordered).all() or aside > (0.5 + ASIDE) * number:
        return None
    known = min(level, 1 - 2 * TRUSTED / (number + 1))
    place = math.floor((1 - known) / 2 * (number + 1) + ROUNDING_OF_PLACES)
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
    """The interval around all intervals of rows that look the same but have different errors."""
    known = [found for found in intervals if found is not None]
    if not known or len(known) < len(intervals):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _side(end: float, farthest: float, stretch: float) -> float:
    """The length of the interval on one side of the value."""
    if end < farthest < CROWDED * end:
        end = 2 * farthest - end
    return max(stretch * end, farthest) if stretch > 1 else end


# -- replicas ----------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Draws = NDArray[np.float64]

REPLICATES = 199
"""Of 199 draws and the truth, each is as likely to be the fifth from either end: between those lie 95 %."""
PLACES = np.arange(1, REPLICATES + 1) / (REPLICATES + 1)
"""The quantiles that replicas are."""
REPLAYED = 0.02
"""The replicas beyond the last that are trusted."""
TO_UNIT = 2.0**-64
ROUNDING = 1e-12
"""Of tails and levels, in float64."""


def redrawn(noises: Sequence[Noise | Combined], rows: int, source: Randomness) -> list[Draws]:
    """REPLICATES draws of each noise for a number of rows."""
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


def redrawn_if_shown(count: ShownCount, values: NDArray[np.int64], drawn: Draws) -> Draws:
    """The draws of a count that selects its rows.

    Where noise may have shown a row, its replicas are the plausible counts of a row that is shown, in the order of the
    draws.
    """
    found = drawn.copy()
    for value in np.unique(values).tolist():
        if count.is_near(value, 1 - REPLAYED):
            rows = np.flatnonzero(values == value)
            ranks = np.argsort(np.argsort(drawn[:, rows], axis=0), axis=0)
            found[:, rows] = (count.quantiles(value, PLACES) - value)[ranks]
    return found


def _radii(dimension: int, rows: int, source: Randomness) -> Draws:
    """Gamma(d + 1): a sum of exponential numbers."""
    parts = [-np.log(_uniform(rows, source)) for _ in range(dimension + 1)]
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def _uniform(rows: int, source: Randomness) -> Draws:
    words = source.words(REPLICATES * rows).reshape(REPLICATES, rows)
    return np.asarray((words + 0.5) * TO_UNIT, dtype=np.float64)


def quantiles(noise: Noise) -> Draws:
    """At 1/200, ..., 199/200: each the half-width of the interval that ends there, with its sign."""
    levels = np.abs(2 * PLACES - 1)
    low, high = np.full(REPLICATES, -1.0), np.full(REPLICATES, float(noise.half_width(float(levels.max()))))
    for _ in range(64):
        middle = np.ceil((low + high) / 2)
        inside = 2 * noise.survival(middle + 1) <= 1 - levels + ROUNDING
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    # The outermost two stand for all that lies beyond: with them the variance is that of the noise.
    missing = REPLICATES * noise.std**2 - float(np.sum(high**2))
    high[[0, -1]] = np.hypot(high[[0, -1]], np.sqrt(max(missing, 0.0) / 2))
    return np.asarray(np.copysign(high, np.arange(REPLICATES) - REPLICATES // 2), dtype=np.float64)

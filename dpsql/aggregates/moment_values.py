"""Variances, covariances, correlations and lines as functions of their parts: for their error bars and their budget.

Parts are count, sums and sums of products, counted from the middles of ranges; of each the variance of its noise is
given. moments.py has the same in SQL.  docs/proofs/moments.md.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

PLACES = (0.25, 0.75)
"""Where typical means and spreads lie in what there is room for."""
ROWS = 1e6
"""Of which typical data are: so many that those of a sample are as those of all."""
WIDEST = 1e30


def variance_of(values: Sequence[float], variances: Sequence[float], *, sample: bool, root: bool) -> float:
    count, total, squares = values
    if count <= sample:
        raise ValueError("a sample of one has no variance")
    found = _spread_of(total, variances[1], squares, count) / (count - sample)
    return math.sqrt(found) if root else found


def _together(values: Sequence[float]) -> float:
    """Of y with x."""
    count, y, x, products = values[:4]
    return products - y * x / count


def _spread_of(total: float, noise: float, squares: float, count: float) -> float:
    return squares - (total**2 - noise) / count


def covariance_of(values: Sequence[float], variances: Sequence[float], *, sample: bool) -> float:
    return _together(values) / (values[0] - sample)


def correlation_of(values: Sequence[float], variances: Sequence[float], *, squared: bool) -> float:
    count, y, x, _, squares_x, squares_y = values
    of_y = _spread_of(y, variances[1], squares_y, count)
    of_x = _spread_of(x, variances[2], squares_x, count)
    found = _together(values) / math.sqrt(of_y * of_x)
    return found**2 if squared else found


def line_of(
    values: Sequence[float], variances: Sequence[float], *, middles: tuple[Fraction, Fraction], at_zero: bool
) -> float:
    count, y, x, _, squares_x = values
    slope = _together(values) / _spread_of(x, variances[2], squares_x, count)
    mean_y, mean_x = (float(middle) + total / count for middle, total in zip(middles, (y, x), strict=True))
    return mean_y - slope * mean_x if at_zero else slope


def _typical(half: float) -> list[tuple[float, float]]:
    """Means from the middle of a range, and means of squares, over data of all kinds that it has room for.

    None over a range that is a point, or so wide or narrow that its powers are no numbers.
    """
    if not 1 / WIDEST < half < WIDEST:
        return []
    means = [half * mean for mean in PLACES]
    return [(mean, mean**2 + spread * (half**2 - mean**2)) for mean in means for spread in PLACES]


def typical_sums(half: float) -> Iterator[tuple[float, ...]]:
    """Count, sum and sum of squares."""
    for mean, square in _typical(half):
        yield ROWS, ROWS * mean, ROWS * square


def typical_pairs(half_y: float, half_x: float) -> Iterator[tuple[float, ...]]:
    """Count, sums of y and x, of their products, and of the squares of x and y."""
    for (y, of_y), (x, of_x) in product(_typical(half_y), _typical(half_x)):
        covaried = math.sqrt((of_y - y**2) * (of_x - x**2)) / 2
        for together in (y * x - covaried, y * x + covaried):
            yield tuple(ROWS * mean for mean in (1, y, x, together, of_x, of_y))

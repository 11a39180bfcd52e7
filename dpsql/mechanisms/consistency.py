"""Consistency: totals and groups that were measured separately, by generalised least squares. docs/proofs/totals.md.

Cells lie on a grid of keys. A level has sums over all keys but its own, with independent noise of one variance. Split
every table into its mean, its deviations along each key, along each pair of keys, ...: each part of a level is a
multiple of the same part of the cells, and the parts are orthogonal. So the best estimate of a part is the mean over
all levels that have it, weighted by their precisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

KeptKeys: TypeAlias = tuple[int, ...]
"""The keys of a level in ascending order: the axes of its table."""


@dataclass(frozen=True)
class Agreed:
    """The estimate of a level's sums from all levels."""

    variance: float
    own: float
    """The weight of a sum in its own estimate."""


def agreed(variances: Mapping[KeptKeys, float], sizes: Mapping[int, int]) -> dict[KeptKeys, Agreed]:
    """The remaining noise of each level; `sizes` is the number of values of each key.

    >>> round(agreed({(): 10.0, (0,): 1.0}, {0: 90})[()].variance, 3)
    9.0
    """
    found = {}
    for kept in variances:
        below = _sums_over(kept, sizes)
        parts = [(math.prod(1 - 1 / sizes[key] for key in part), part) for part in _parts(kept)]
        variance = sum(below**2 * free / _precision(part, variances, sizes) for free, part in parts)
        own = sum(
            free / _size(set(kept) - set(part), sizes) * _weights(part, variances, sizes)[kept] for free, part in parts
        )
        found[kept] = Agreed(variance, own)
    return found


def reconciled(
    tables: Mapping[KeptKeys, NDArray[np.float64]], variances: Mapping[KeptKeys, float], sizes: Mapping[int, int]
) -> dict[KeptKeys, NDArray[np.float64]]:
    """The consistent tables that are nearest to these, by least squares; axes are the keys of each level."""
    means: dict[KeptKeys, NDArray[np.float64]] = {}
    for part in {part for kept in tables for part in _parts(kept)}:
        weights = _weights(part, variances, sizes)
        means[part] = sum(
            (
                weight / _sums_over(kept, sizes) * _deviations(tables[kept], kept, part)
                for kept, weight in weights.items()
            ),
            np.zeros(()),
        )
    return {
        kept: _sums_over(kept, sizes)
        * sum((_spread_out(means[part], part, kept) for part in _parts(kept)), np.zeros(()))
        for kept in tables
    }


def _parts(kept: KeptKeys) -> Iterator[KeptKeys]:
    for length in range(len(kept) + 1):
        yield from combinations(kept, length)


def _size(keys: set[int], sizes: Mapping[int, int]) -> int:
    return math.prod(sizes[key] for key in keys)


def _sums_over(kept: KeptKeys, sizes: Mapping[int, int]) -> int:
    """The number of cells per sum of the level."""
    return _size(set(sizes) - set(kept), sizes)


def _weights(part: KeptKeys, variances: Mapping[KeptKeys, float], sizes: Mapping[int, int]) -> dict[KeptKeys, float]:
    """The weight of each level that measures the part."""
    whole = _precision(part, variances, sizes)
    return {kept: _own_precision(part, kept, variances, sizes) / whole for kept in variances if set(part) <= set(kept)}


def _precision(part: KeptKeys, variances: Mapping[KeptKeys, float], sizes: Mapping[int, int]) -> float:
    return sum(_own_precision(part, kept, variances, sizes) for kept in variances if set(part) <= set(kept))


def _own_precision(
    part: KeptKeys, kept: KeptKeys, variances: Mapping[KeptKeys, float], sizes: Mapping[int, int]
) -> float:
    """The inverse variance with which one level estimates a part of the cells' means, up to a constant factor."""
    return _size(set(kept) - set(part), sizes) * _sums_over(kept, sizes) ** 2 / variances[kept]


def _deviations(table: NDArray[np.float64], kept: KeptKeys, part: KeptKeys) -> NDArray[np.float64]:
    """The means over all keys but those of the part, from which along each of these its own mean is taken."""
    found = table.mean(axis=tuple(axis for axis, key in enumerate(kept) if key not in part))
    for axis in range(len(part)):
        found = found - found.mean(axis=axis, keepdims=True)
    return np.asarray(found)


def _spread_out(mean: NDArray[np.float64], part: KeptKeys, kept: KeptKeys) -> NDArray[np.float64]:
    """The same along the other keys of the level."""
    return mean.reshape([mean.shape[part.index(key)] if key in part else 1 for key in kept])

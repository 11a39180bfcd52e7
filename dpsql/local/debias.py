"""From counted reports to what they say of answers: a linear map, with the error that the coins leave in it.

A report that supports a value has the *score* (1 - q) / (p - q), one that does not -q / (p - q): on average 1 if the
value is the truth, and 0 else. The product of the scores of several columns, whose coins are independent, does the same
for a combination of values: the Kronecker product of the inverted channels. So a weighted sum of scores over all
reports estimates the sum of the weights of all answers. docs/proofs/local.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.local.domain import chunks
from dpsql.local.k_ary import KaryResponse
from dpsql.local.subset_selection import SubsetSelection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsql.local.mechanism import Mechanism

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CountNoise:
    """What each count carries besides, where it was released with noise: standard deviation and excess kurtosis."""

    std: float = 0.0
    kurtosis: float = 0.0


@dataclass(frozen=True)
class Estimates:
    """For each group (a row) and each functional (a column): the value, its standard error, its excess kurtosis."""

    values: Floats
    """NaN where an average is over no rows."""
    standard_errors: Floats
    kurtosis: Floats


def is_report(mechanism: Mechanism, column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries of a column can be reports of the mechanism."""
    if isinstance(mechanism, KaryResponse):
        values = {*mechanism.domain.values}
        return np.fromiter((value in values for value in column.tolist()), dtype=np.bool_, count=len(column))
    numbers = np.array([-1 if value is None else value for value in column.tolist()], dtype=np.int64)
    possible = (numbers >= 0) & (numbers < 1 << len(mechanism.domain))
    if isinstance(mechanism, SubsetSelection):
        possible &= np.bitwise_count(np.maximum(numbers, 0)) == mechanism.size
    return possible


def scores(mechanism: Mechanism, column: NDArray[Any]) -> Floats:
    """A row for each value of the domain, a column for each report."""
    numbers = np.arange(len(mechanism.domain))[:, None]
    if isinstance(mechanism, KaryResponse):
        supported = numbers == mechanism.domain.encode(column)[None, :]
    else:
        supported = (column.astype(np.int64)[None, :] >> numbers) & 1 == 1
    return np.asarray((supported - float(mechanism.other)) / float(mechanism.truth - mechanism.other))


def estimate(
    tables: Sequence[Floats],
    counts: NDArray[np.int64],
    groups: NDArray[np.intp],
    group_count: int,
    weights: tuple[Floats, Floats | None],
    noise: CountNoise,
) -> Estimates:
    """What functionals of the answers are, in each group of rows.

    `tables`: the scores of each column of reports, for every row. `counts`: how often such a row was found. `weights`:
    a row for each functional, a column for each combination of answers, the last column of reports fastest: what is
    summed, and, where an average is asked, what it is divided by: 1 where a combination counts.
    """
    above, below = weights[0], np.zeros_like(weights[0]) if weights[1] is None else weights[1]
    sums = _Sums(len(above), group_count)
    for part in chunks(len(counts), max(above.shape)):
        basis = reduce(_kronecker, [table[:, part] for table in tables], np.ones((1, part.stop - part.start)))
        sums.add(above @ basis, below @ basis, above**2 @ basis, counts[part], groups[part])
    return sums.estimates(weights[1] is not None, noise)


def _kronecker(left: Floats, right: Floats) -> Floats:
    """Column by column."""
    return np.asarray((left[:, None, :] * right[None, :, :]).reshape(-1, left.shape[1]))


class _Sums:
    """By group and functional: sums of scores A (above) and B (below) over reports, and of their products."""

    def __init__(self, functionals: int, groups: int) -> None:
        self.groups = groups
        shape = (groups, functionals)
        self.above, self.below, self.squared_weight = (np.zeros(shape) for _ in range(3))
        # Of A^2, AB, B^2 over reports; of these, and of A^4, A^3 B, ..., B^4, over rows, which have one noise each.
        self.coins = [np.zeros(shape) for _ in range(3)]
        self.rows = {order: [np.zeros(shape) for _ in range(order + 1)] for order in (2, 4)}

    def add(self, a: Floats, b: Floats, squared: Floats, counts: NDArray[np.int64], groups: NDArray[np.intp]) -> None:
        self.above += self._by_group(a * counts, groups)
        self.below += self._by_group(b * counts, groups)
        self.squared_weight += self._by_group(squared * counts, groups)
        for power in range(3):
            self.coins[power] += self._by_group(a ** (2 - power) * b**power * counts, groups)
        for order, sums in self.rows.items():
            for power in range(order + 1):
                sums[power] += self._by_group(a ** (order - power) * b**power, groups)

    def _by_group(self, values: Floats, groups: NDArray[np.intp]) -> Floats:
        return np.array([np.bincount(groups, weights=row, minlength=self.groups) for row in values]).T

    def estimates(self, is_average: bool, noise: CountNoise) -> Estimates:
        """An average t = A / B errs like (A - t B) / B, which is a sum of scores too."""
        counted = np.where(self.below > 0, self.below, 1.0)
        t = self.above / counted if is_average else np.zeros_like(self.above)
        # A score's expected square is the square of the weight and the variance of the coins. The weights of an
        # average are w - t where an answer counts, and 0 elsewhere.
        squared = self.squared_weight - 2 * t * self.above + t**2 * self.below
        coins = np.maximum(_powers(self.coins, t) - squared, 0.0) / counted**2
        # Where A is t B in every row, rounding may leave a bit less than nothing.
        second, fourth = (np.maximum(_powers(self.rows[order], t), 0.0) for order in (2, 4))
        variance = coins + noise.std**2 * second / counted**2
        fourth = noise.kurtosis * noise.std**4 * fourth / counted**4
        values = np.where(self.below > 0, t, np.nan) if is_average else self.above
        return Estimates(values, np.sqrt(variance), fourth / np.where(variance > 0, variance, 1.0) ** 2)


def _powers(sums: Sequence[Floats], t: Floats) -> Floats:
    """The sum of (A - t B)^n, from the sums of A^n, A^(n-1) B, ..., B^n."""
    order = len(sums) - 1
    return np.asarray(sum(comb(order, power) * (-t) ** power * part for power, part in enumerate(sums)))

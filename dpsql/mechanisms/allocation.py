"""Budget allocation: the part of a query's budget that each measure gets, for the least error of its columns.

A column is a weighted sum of measures. A matrix holds the variance that measure i adds to column j with the whole
budget; with a part p it is p^-k times that (k = 1 for Gaussian noise, 2 for Laplace). Any parts that add up
to 1 are private; they only decide errors. docs/proofs/weights.md. Disjoint measures of a bundle count with the parts of
the largest case (docs/proofs/exclusive.md).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Variances: TypeAlias = "NDArray[np.float64]"
"""The variance that each measure (column) contributes to each column of the answer (row)."""

Places: TypeAlias = "Sequence[tuple[int, int]]"
"""The bundle and the case of each measure. A measure that is not disjoint from others is a bundle of its own."""

Numbers: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""The same as indices: the case of each measure, and the bundle of each case."""

STEPS = 500
CLOSE = 1e-7
"""The iteration stops when parts change by less than this factor."""
LEAST = 1e-3
"""The least part of a measure, relative to an equal share: a column that it hardly affects may matter later."""
FINEST = 1 << 24
TINY = float(np.finfo(np.float64).tiny)


def least_geometric_mean(
    variances: Variances, importance: Sequence[float], variance_exponent: int, places: Places
) -> NDArray[np.float64]:
    """The parts that minimise the geometric mean of the columns' errors, weighted by importance.

    >>> least_geometric_mean(np.array([[1.0, 0.0], [1.0, 1.0]]), [1, 1], 1, [(0, 0), (1, 0)]).round(3).tolist()
    [0.667, 0.333]
    >>> least_geometric_mean(np.eye(3), [1, 1, 1], 1, [(0, 0), (0, 1), (1, 0)]).round(3).tolist()
    [0.667, 0.667, 0.333]
    """
    numbers = _cases(places)
    weights = np.asarray(importance, dtype=np.float64) / sum(importance)
    parts = np.full(variances.shape[1], 1 / variances.shape[1])
    for _ in range(STEPS):
        before = parts
        parts = _best(weights / _errors(variances, parts, variance_exponent) @ variances, variance_exponent, numbers)
        if np.abs(parts - before).max() < CLOSE:
            break
    return parts


def least_worst_ratio(
    variances: Variances, importance: Sequence[float], variance_exponent: int, places: Places
) -> NDArray[np.float64]:
    """The parts that minimise the largest ratio of a column's error, times its importance, to its error alone.

    >>> least_worst_ratio(np.array([[1.0, 0.0], [1.0, 1.0]]), [1, 1], 1, [(0, 0), (1, 0)]).round(3).tolist()
    [0.75, 0.25]
    """
    numbers = _cases(places)
    alone = np.array(
        [_errors(row[None], _best(row, variance_exponent, numbers), variance_exponent) for row in variances]
    )
    return least_worst(variances / alone, importance, variance_exponent, places)


def least_worst(
    variances: Variances, importance: Sequence[float], variance_exponent: int, places: Places
) -> NDArray[np.float64]:
    """The parts that minimise the largest error of a column, times its importance.

    >>> least_worst(np.array([[1.0, 0.0], [0.0, 9.0]]), [1, 1], 1, [(0, 0), (1, 0)]).round(3).tolist()
    [0.1, 0.9]
    """
    numbers = _cases(places)
    compared = variances * (np.asarray(importance, dtype=np.float64)[:, None] / max(importance)) ** 2
    weights = np.full(len(variances), 1 / len(variances))
    parts = _best(weights @ compared, variance_exponent, numbers)
    for _ in range(STEPS):
        # A column that does worse than the others weighs more in the next step.
        weights *= np.sqrt(_errors(compared, parts, variance_exponent))
        weights /= weights.sum()
        before, parts = parts, _best(weights @ compared, variance_exponent, numbers)
        if np.abs(parts - before).max() < CLOSE:
            break
    return parts


def as_fractions(parts: NDArray[np.float64], places: Places) -> tuple[Fraction, ...]:
    """The parts as positive fractions that add up to exactly 1.

    >>> as_fractions(np.array([0.5, 0.5]), [(0, 0), (1, 0)])
    (Fraction(1, 2), Fraction(1, 2))
    """
    raised = np.maximum(parts, LEAST / max(1, len(parts)))
    steps = np.ceil(raised * FINEST)
    whole = int(together(steps, places))
    return tuple(Fraction(int(step), whole) for step in steps)


def together(parts: NDArray[np.float64], places: Places) -> float:
    """The sum of the parts, where a bundle counts with its largest case."""
    cases, bundles = _cases(places)
    largest = np.zeros(len(set(bundles)))
    np.maximum.at(largest, bundles, np.bincount(cases, weights=parts))
    return float(largest.sum())


def _errors(variances: Variances, parts: NDArray[np.float64], variance_exponent: int) -> NDArray[np.float64]:
    """The variance of each column. A measure with weight 0 adds nothing, even if its share is 0."""
    added = np.divide(variances, parts**variance_exponent, out=np.zeros_like(variances), where=variances > 0)
    found: NDArray[np.float64] = added.sum(axis=1)
    return found


def _best(costs: NDArray[np.float64], variance_exponent: int, numbers: Numbers) -> NDArray[np.float64]:
    """The parts that minimise the sum of cost / part^k.

    Within a case, parts are proportional to roots of costs; between bundles, to roots of their cases' total costs.
    """
    order = variance_exponent + 1
    cases, bundles = numbers
    roots = np.maximum(costs, TINY) ** (1 / order)
    by_case = np.bincount(cases, weights=roots)
    by_bundle = np.bincount(bundles, weights=by_case**order) ** (1 / order)
    found: NDArray[np.float64] = (by_bundle / by_bundle.sum())[bundles[cases]] * roots / by_case[cases]
    return found


def _cases(places: Places) -> Numbers:
    cases = {place: number for number, place in enumerate(dict.fromkeys(places))}
    bundles = {bundle: number for number, bundle in enumerate(dict.fromkeys(bundle for bundle, _ in places))}
    return np.array([cases[place] for place in places]), np.array([bundles[bundle] for bundle, _ in cases])

"""Levels that are made to agree: the same as least squares by matrices, in estimates, variances and weights."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dpsql.mechanisms.consistency import KeptKeys, agreed, reconciled

LEVELS: dict[str, list[KeptKeys]] = {
    "a total": [(0,), ()],
    "rollup": [(0, 1, 2), (0, 1), (0,), ()],
    "cube": [(0, 1), (0,), (1,), ()],
    "sets that overlap": [(0, 1), (1, 2)],
    "sets with nothing in common": [(0,), (1,)],
    "one level": [(0, 2)],
}


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_it_is_generalised_least_squares(levels: list[KeptKeys]) -> None:
    rng = np.random.default_rng(len(levels))
    sizes = {key: size for key, size in {0: 3, 1: 4, 2: 2}.items() if any(key in kept for kept in levels)}
    variances = {kept: float(rng.exponential() + 0.1) for kept in levels}
    tables = {kept: rng.normal(size=[sizes[key] for key in kept]) * 100 for kept in levels}
    cells = list(product(*map(range, sizes.values())))
    rows, measured, precisions = [], [], []
    for kept in levels:
        for place in product(*(range(sizes[key]) for key in kept)):
            keys = dict(zip(kept, place, strict=True))
            rows.append([float(all(cell[list(sizes).index(key)] == at for key, at in keys.items())) for cell in cells])
            measured.append(float(tables[kept][place]))
            precisions.append(1 / variances[kept])
    design, weights = np.array(rows), np.diag(precisions)
    # Cells need not be determined where no level has all keys, but the sums that were measured are.
    hat = design @ np.linalg.pinv(design.T @ weights @ design) @ design.T
    found, left = reconciled(tables, variances, sizes), agreed(variances, sizes)
    flat = np.concatenate([found[kept].ravel() for kept in levels])
    spread = [part for kept in levels for part in [left[kept]] * found[kept].size]
    assert flat == pytest.approx(hat @ weights @ np.array(measured))
    assert [part.variance for part in spread] == pytest.approx(np.diag(hat))
    assert [part.own for part in spread] == pytest.approx(np.diag(hat @ weights))


def test_what_agrees_already_stays() -> None:
    cells = np.random.default_rng(1).normal(size=(5, 3))
    tables: dict[KeptKeys, np.ndarray] = {(0, 1): cells, (0,): cells.sum(axis=1), (): cells.sum()}
    found = reconciled(tables, {(0, 1): 1.0, (0,): 7.0, (): 0.2}, {0: 5, 1: 3})
    assert all(found[kept] == pytest.approx(tables[kept]) for kept in tables)

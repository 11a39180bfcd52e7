"""Groups and totals of one release, made to agree where all of them are there. docs/proofs/totals.md.

Where keys are not public some groups are hidden, so a total is not the sum of what is shown and says nothing about it:
levels then stay as they were measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.aggregates.release import LEVEL
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.reconcile import agreed, reconciled
from dpsql.mechanisms.spread import Combined
from dpsql.pipeline.totals import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.release import Release
    from dpsql.intervals import NoisyColumns
    from dpsql.mechanisms.reconcile import Agreed, Kept
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.pipeline.candidates import NoisyMeasure

    Columns = Mapping[str, NDArray[Any]]

MOST_KEYS = 6
"""There are as many parts to every level as sets of its keys."""
NO_NOISE = 1e-100
"""A variance below this is none; its inverse may be none either."""
ROUNDING = 1 / 6
"""The variance of rounding to whole numbers such that they add up: the difference of two roundings."""


@dataclass(frozen=True)
class Grid:
    """Where each row of the stacked levels stands in the table of its level."""

    sizes: Mapping[int, int]
    """How many values each key has."""
    rows: Mapping[Kept, NDArray[np.intp]]
    places: Mapping[Kept, NDArray[np.intp]]

    def shape(self, kept: Kept) -> tuple[int, ...]:
        return tuple(self.sizes[key] for key in kept)


def agreeing(columns: Columns, release: CalibratedRelease) -> tuple[Columns, tuple[NoisyColumns, ...]]:
    """The columns, and for each level the noise that is left in them."""
    plan = release.planned.release
    grid = _grid(columns, plan)
    if grid is None:
        return columns, levels_noises(release)
    found, noises = dict(columns), [dict(noise) for noise in levels_noises(release)]
    by_column = {measure.bounded.column: measure for measure in release.measures}
    for position, fine in enumerate(plan.measures):
        own = {level.kept: by_column[level.measures[position].column] for level in plan.levels}
        variances = {kept: measure.std**2 for kept, measure in own.items()}
        if min(variances.values()) < NO_NOISE:
            continue
        found[fine.column] = _agreeing(np.asarray(columns[fine.column], dtype=np.int64), grid, variances)
        left = agreed(variances, grid.sizes)
        for number, level in enumerate(plan.levels):
            noises[number][fine.column] = (_left(own[level.kept], left[level.kept]), 1)
    return found, tuple(noises)


def levels_noises(release: CalibratedRelease) -> tuple[NoisyColumns, ...]:
    """For each level the noise of the measures as they were drawn, by the names of the finest."""
    plan, noises = release.planned.release, release.noises
    return tuple(
        {fine.column: noises[own.column] for fine, own in zip(plan.measures, level.measures, strict=True)}
        for level in plan.levels
    )


def _left(measure: NoisyMeasure, agreed_on: Agreed) -> GaussianNoise | Combined:
    """A sum's own noise, and what the many others bring, which together is nearly normal."""
    if isinstance(measure.noise, GaussianNoise):
        return GaussianNoise(Fraction(math.sqrt(agreed_on.variance + ROUNDING)))
    others = max(0.0, agreed_on.variance - (agreed_on.own * measure.std) ** 2) + ROUNDING
    step = agreed_on.own * (1 << measure.shift)
    return Combined(((step, measure.noise), (1.0, GaussianNoise(Fraction(math.sqrt(others))))))


def _grid(columns: Columns, plan: Release) -> Grid | None:
    """None unless every level has all combinations of its keys."""
    if plan.domain is None or plan.partition_selection is not None or len(plan.key_names) > MOST_KEYS:
        return None
    level = columns[LEVEL]
    rows = {one.kept: np.flatnonzero(level == number) for number, one in enumerate(plan.levels)}
    sizes: dict[int, int] = {}
    places = {kept: np.zeros(len(own), dtype=np.intp) for kept, own in rows.items()}
    for key, name in enumerate(plan.key_names):
        keeping = [kept for kept in rows if key in kept]
        if not keeping:
            continue
        together = np.concatenate([rows[kept] for kept in keeping])
        codes, sizes[key] = numbered(columns[name][together])
        for kept, own in zip(
            keeping, np.split(codes, np.cumsum([len(rows[kept]) for kept in keeping])[:-1]), strict=True
        ):
            places[kept] = places[kept] * sizes[key] + own
    grid = Grid(sizes, rows, places)
    whole = all(len(np.unique(places[kept])) == math.prod(grid.shape(kept)) for kept in rows)
    return grid if whole else None


def _agreeing(values: NDArray[np.int64], grid: Grid, variances: Mapping[Kept, float]) -> NDArray[np.int64]:
    tables = {kept: _table(values, kept, grid) for kept in grid.rows}
    base = _base(tables)
    # What is left beside sums that agree already is noise alone, small enough for doubles.
    beside = {kept: (tables[kept] - base[kept]).astype(np.float64) for kept in tables}
    moved = _whole(reconciled(beside, variances, grid.sizes))
    found = values.copy()
    for kept, rows in grid.rows.items():
        found[rows] = (base[kept] + moved[kept]).ravel()[grid.places[kept]]
    return found


def _table(values: NDArray[np.int64], kept: Kept, grid: Grid) -> NDArray[np.int64]:
    table = np.zeros(math.prod(grid.shape(kept)), dtype=np.int64)
    table[grid.places[kept]] = values[grid.rows[kept]]
    return table.reshape(grid.shape(kept))


def _base(tables: Mapping[Kept, NDArray[np.int64]]) -> dict[Kept, NDArray[np.int64]]:
    """The sums of the level that has the keys of all others, if there is one."""
    whole = max(tables, key=len)
    if not all(set(kept) <= set(whole) for kept in tables):
        return {kept: np.zeros_like(table) for kept, table in tables.items()}
    return {kept: _summed(tables[whole], whole, kept) for kept in tables}


def _summed(table: NDArray[np.int64], keys: Sequence[int], kept: Kept) -> NDArray[np.int64]:
    return np.asarray(table.sum(axis=tuple(axis for axis, key in enumerate(keys) if key not in kept)))


def _whole(tables: Mapping[Kept, NDArray[np.float64]]) -> dict[Kept, NDArray[np.int64]]:
    """Whole numbers near these. Those of levels that lie within each other add up, as in ROLLUP.

    The cells in the order of their keys have the differences of rounded running sums, so that any that stand together
    add up to such a difference too.
    """
    found = {kept: np.rint(table).astype(np.int64) for kept, table in tables.items()}
    nested: list[Kept] = []
    for kept in sorted(tables, key=len, reverse=True):
        if not nested or set(kept) <= set(nested[-1]):
            nested.append(kept)
    order: list[int] = []
    for kept in reversed(nested):
        order += [key for key in kept if key not in order]
    whole = nested[0]
    cells = tables[whole].transpose([whole.index(key) for key in order])
    running = np.rint(np.cumsum(cells.ravel())).astype(np.int64)
    rounded = np.diff(running, prepend=0).reshape(cells.shape)
    for kept in nested:
        axes = [key for key in order if key in kept]
        found[kept] = _summed(rounded, order, kept).transpose([axes.index(key) for key in kept])
    return found

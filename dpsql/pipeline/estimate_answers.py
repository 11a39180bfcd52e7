"""estimate_answers: linear post-processing across the rows of a release, with the resulting errors.

Randomised reports are de-biased: counts of reports become estimated counts of answers. This is free if only reports are
read. If private columns are read too, the counts have noise, and the error includes it.

    reports    yes 400, no 600  (two coins)        answers    yes 300 ± 54, no 700 ± 54

Totals and groups that were measured separately are made consistent (mechanisms/consistency.py). Other releases pass
through. docs/proofs/local.md, section 6; docs/proofs/totals.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.aggregates.estimate import Linear, Reported
from dpsql.aggregates.release import LEVEL
from dpsql.errors import DataError, OperationalError
from dpsql.local.column import declared_mechanism
from dpsql.local.estimate import CountNoise, estimate, is_report, scores
from dpsql.mechanisms.combined import Combined
from dpsql.mechanisms.consistency import agreed, reconciled
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.pipeline.add_noise import numbered
from dpsql.pipeline.execute import read_public
from dpsql.pipeline.plan_query import CountedResponses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.release import Release
    from dpsql.engines.post_processor import ImmutableTable
    from dpsql.intervals import NoisyColumns, Thresholds
    from dpsql.local.estimate import Floats
    from dpsql.mechanisms.consistency import Agreed, KeptKeys
    from dpsql.pipeline.add_noise import Noisy
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.pipeline.choose_mechanism import NoisyMeasure
    from dpsql.pipeline.environment import Environment
    from dpsql.relation.reports import RandomizedResponses, ResponseCall

# -- consistency of totals ---------------------------------------------------------------------------------------------
# Groups and totals of one release, made to agree where all of them are there. docs/proofs/totals.md.
#
# Where keys are not public some groups are hidden, so a total is not the sum of what is shown and says nothing about
# it: levels then stay as they were measured.

if TYPE_CHECKING:
    Columns = Mapping[str, NDArray[Any]]

MOST_KEYS = 6
"""There are as many parts to every level as sets of its keys."""
NO_NOISE = 1e-100
"""A variance below this is none; its inverse may be none either."""
ROUNDING = 1 / 6
"""The variance of rounding to whole numbers such that they add up: the difference of two roundings."""


@dataclass(frozen=True)
class TotalsGrid:
    """The position of each row of the stacked levels in the table of its level."""

    sizes: Mapping[int, int]
    """How many values each key has."""
    rows: Mapping[KeptKeys, NDArray[np.intp]]
    places: Mapping[KeptKeys, NDArray[np.intp]]

    def shape(self, kept: KeptKeys) -> tuple[int, ...]:
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
    """For each number in LEVEL the noise of the measures as they were drawn, by the names of the finest."""
    plan, noises = release.planned.release, release.noises
    found = tuple(
        {fine.column: noises[own.column] for fine, own in zip(plan.measures, level.measures, strict=True)}
        for level in plan.levels
    )
    return found * 2 if plan.names_totals else found


def levels_thresholds(release: CalibratedRelease) -> tuple[Thresholds, ...]:
    """For each number in LEVEL the thresholds of the counts that select its groups, by the names of the finest.

    Totals that a shown group names are shown whatever their own noise is.
    """
    plan = release.planned.release
    if not plan.levels:
        return (release.thresholds,)
    found: tuple[Thresholds, ...] = tuple(
        {
            fine.column: release.thresholds[own.column]
            for fine, own in zip(plan.measures, level.measures, strict=True)
            if own.column in release.thresholds
        }
        for level in plan.levels
    )
    return (*found, *({} for _ in found)) if plan.names_totals else found


def _left(measure: NoisyMeasure, agreed_on: Agreed) -> GaussianNoise | Combined:
    """A sum's own noise, and what the many others bring, which together is nearly normal."""
    if isinstance(measure.noise, GaussianNoise):
        return GaussianNoise(Fraction(math.sqrt(agreed_on.variance + ROUNDING)))
    others = max(0.0, agreed_on.variance - (agreed_on.own * measure.std) ** 2) + ROUNDING
    step = agreed_on.own * (1 << measure.shift)
    return Combined(((step, measure.noise), (1.0, GaussianNoise(Fraction(math.sqrt(others))))))


def _grid(columns: Columns, plan: Release) -> TotalsGrid | None:
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
    grid = TotalsGrid(sizes, rows, places)
    whole = all(len(np.unique(places[kept])) == math.prod(grid.shape(kept)) for kept in rows)
    return grid if whole else None


def _agreeing(values: NDArray[np.int64], grid: TotalsGrid, variances: Mapping[KeptKeys, float]) -> NDArray[np.int64]:
    tables = {kept: _table(values, kept, grid) for kept in grid.rows}
    base = _base(tables)
    # What is left beside sums that agree already is noise alone, small enough for doubles.
    beside = {kept: (tables[kept] - base[kept]).astype(np.float64) for kept in tables}
    moved = _whole(reconciled(beside, variances, grid.sizes))
    found = values.copy()
    for kept, rows in grid.rows.items():
        found[rows] = (base[kept] + moved[kept]).ravel()[grid.places[kept]]
    return found


def _table(values: NDArray[np.int64], kept: KeptKeys, grid: TotalsGrid) -> NDArray[np.int64]:
    table = np.zeros(math.prod(grid.shape(kept)), dtype=np.int64)
    table[grid.places[kept]] = values[grid.rows[kept]]
    return table.reshape(grid.shape(kept))


def _base(tables: Mapping[KeptKeys, NDArray[np.int64]]) -> dict[KeptKeys, NDArray[np.int64]]:
    """The sums of the level that has the keys of all others, if there is one."""
    whole = max(tables, key=len)
    if not all(set(kept) <= set(whole) for kept in tables):
        return {kept: np.zeros_like(table) for kept, table in tables.items()}
    return {kept: _summed(tables[whole], whole, kept) for kept in tables}


def _summed(table: NDArray[np.int64], keys: Sequence[int], kept: KeptKeys) -> NDArray[np.int64]:
    return np.asarray(table.sum(axis=tuple(axis for axis, key in enumerate(keys) if key not in kept)))


def _whole(tables: Mapping[KeptKeys, NDArray[np.float64]]) -> dict[KeptKeys, NDArray[np.int64]]:
    """The values, rounded to integers such that nested levels, as in ROLLUP, still add up.

    Cells, in the order of their keys, are differences of rounded running sums, so any consecutive cells
    add up to such a difference too.
    """
    found = {kept: np.rint(table).astype(np.int64) for kept, table in tables.items()}
    nested: list[KeptKeys] = []
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


# -- estimate answers --------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Counts = Sequence[tuple[NDArray[np.int64], CountNoise]]


@dataclass(frozen=True)
class Estimated:
    noisy: Noisy
    columns: tuple[Columns | None, ...]
    """For each release what the post-processing reads: keys and noisy measures, or keys and estimates."""
    public: tuple[Columns | ImmutableTable, ...]
    """The same for each public table, and for reports that were counted as they are."""
    noises: tuple[tuple[NoisyColumns, ...], ...] = ()
    """For each release the noise that is left in each level of totals, if it has any."""


def estimate_answers(noisy: Noisy, environment: Environment) -> Estimated:
    if noisy.has_failed:
        return Estimated(noisy, noisy.columns, ())
    calibrated = noisy.charged.calibrated
    found = [_estimated_from(release, noisy.columns[number]) for number, release in enumerate(calibrated.releases)]
    public = tuple(
        _as_they_are(table, environment) if isinstance(table, CountedResponses) else read_public(table, environment)
        for table in calibrated.public
    )
    return Estimated(noisy, tuple(columns for columns, _ in found), public, tuple(noises for _, noises in found))


def _estimated_from(
    release: CalibratedRelease, columns: Columns | None
) -> tuple[Columns | None, tuple[NoisyColumns, ...]]:
    if columns is None:
        return None, ()
    if release.planned.reports is not None:
        return _below_noise(release, columns), ()
    return agreeing(columns, release) if release.planned.release.levels else (columns, ())


def _below_noise(release: CalibratedRelease, columns: Columns) -> Columns:
    reports, counts = release.planned.reports, []
    assert reports is not None
    measures = {measure.bounded.column: measure for measure in release.measures}
    for answer in release.planned.release.answers:
        assert isinstance(answer.estimate, Linear)
        ((name, _),) = answer.estimate.weights
        noise = CountNoise(measures[name].std, measures[name].noise.kurtosis)
        counts.append((np.asarray(columns[name], dtype=np.int64), noise))
    return _estimated(reports, release.planned.answers, columns, counts)


def _as_they_are(table: CountedResponses, environment: Environment) -> Columns:
    try:
        columns = environment.engine.run(table.sql)
    except Exception:
        # The engine may quote a row, and not all of the table is reports.
        columns = None
    if columns is None:
        raise OperationalError("the reports cannot be read", hint="the data owner can check the table")
    _check_reports(table.reports, columns)
    counts = [(np.asarray(columns[name], dtype=np.int64), CountNoise()) for name in table.counts]
    return _estimated(table.reports, table.answers, columns, counts)


def _check_reports(reports: RandomizedResponses, columns: Columns) -> None:
    """Checks that all values are possible reports; any other value would bias the estimates."""
    rows = np.asarray(columns["rows"], dtype=np.int64)
    for report, column in zip(reports.columns, _report_columns(reports, columns), strict=True):
        outside = int(rows[~is_report(declared_mechanism(report.collected), column)].sum())
        if outside:
            raise DataError(
                f'"{report.declared}": {outside:,} of {int(rows.sum()):,} reports are outside the declared values',
                hint="the data owner can compare the table with what is declared under  collected: mechanism, values",
            )


def _report_columns(reports: RandomizedResponses, columns: Columns) -> list[NDArray[Any]]:
    own = _own_keys(reports)
    return [_plain(columns[f"_k{own + number}"]) for number in range(len(reports.columns))]


def _own_keys(reports: RandomizedResponses) -> int:
    """The number of keys that are not reports; they come first."""
    return sum(isinstance(key, int) for key in reports.keys)


def _plain(column: np.ndarray) -> NDArray[Any]:
    """Python's values, None for NULL."""
    plain = np.empty(len(column), dtype=object)
    plain[:] = column.tolist()
    return plain


def _estimated(
    reports: RandomizedResponses, answers: Sequence[tuple[Any, ...]], columns: Columns, counts: Counts
) -> dict[str, np.ndarray]:
    mechanisms = [declared_mechanism(report.collected) for report in reports.columns]
    found = _report_columns(reports, columns)
    kept = np.ones(len(counts[0][0]), dtype=np.bool_)
    for mechanism, column in zip(mechanisms, found, strict=True):
        kept &= is_report(mechanism, column)
    tables = [scores(mechanism, column[kept]) for mechanism, column in zip(mechanisms, found, strict=True)]
    own = [_plain(columns[f"_k{number}"])[kept] for number in range(_own_keys(reports))]
    groups, numbers = _grouped(own, int(kept.sum()))
    possible = Possible(reports, answers)
    rows = [(group, key) for group in groups for key in possible.keys]
    made: dict[str, np.ndarray] = {}
    for number in range(len(reports.keys)):
        made[f"_k{number}"] = _objects([_key(reports, number, *row) for row in rows])
    for number, call in enumerate(reports.calls):
        counted, noise = counts[call.counted]
        weights = possible.weights(number, call)
        estimates = estimate(tables, counted[kept], numbers, len(groups), weights, noise)
        name = Reported(f"_a{number}")
        made[name.answer] = np.ma.masked_invalid(estimates.values.ravel())
        made[name.standard_error] = estimates.standard_errors.ravel()
        made[name.kurtosis] = estimates.kurtosis.ravel()
    return made


def _grouped(keys: list[NDArray[Any]], rows: int) -> tuple[list[tuple[Any, ...]], NDArray[np.intp]]:
    """All distinct keys, and the index of each row's key. Without keys there is one group, whatever the rows."""
    if not keys:
        return [()], np.zeros(rows, dtype=np.intp)
    found: dict[tuple[Any, ...], int] = {}
    numbers = [found.setdefault(row, len(found)) for row in zip(*keys, strict=True)]
    return list(found), np.array(numbers, dtype=np.intp)


def _key(reports: RandomizedResponses, number: int, group: tuple[Any, ...], of_answers: tuple[Any, ...]) -> object:
    key = reports.keys[number]
    if isinstance(key, int):
        return group[key]
    return of_answers[sum(not isinstance(other, int) for other in reports.keys[:number])]


def _objects(values: list[object]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


class Possible:
    """All combinations of answers, in the order of the scores, and the query's columns over them."""

    def __init__(self, reports: RandomizedResponses, answers: Sequence[tuple[Any, ...]]) -> None:
        width = len(reports.columns)
        places = [{value: i for i, value in enumerate(report.collected.values)} for report in reports.columns]
        ordered = sorted(answers, key=lambda row: [place[row[i]] for i, place in enumerate(places)])
        keys = width + 1 + sum(not isinstance(key, int) for key in reports.keys)
        self.chosen = [row[width] is True for row in ordered]
        self.of_answers = [tuple(row[width + 1 : keys]) for row in ordered]
        with_argument = [number for number, call in enumerate(reports.calls) if call.argument is not None]
        self.values = {number: [row[keys + i] for row in ordered] for i, number in enumerate(with_argument)}
        met = dict.fromkeys(key for key, chosen in zip(self.of_answers, self.chosen, strict=True) if chosen)
        self.keys = list(met) if keys > width + 1 else [()]

    def weights(self, number: int, call: ResponseCall) -> tuple[Floats, Floats | None]:
        """For each group of answers, what each combination adds to the sum, and to what an average is divided by."""
        values = self.values.get(number, [1] * len(self.chosen))
        counted = np.array([value is not None for value in values], dtype=float)
        amounts = np.array([float(value or 0) for value in values]) if call.name != "COUNT" else counted
        inside = np.array(
            [[c and of == key for c, of in zip(self.chosen, self.of_answers, strict=True)] for key in self.keys],
            dtype=float,
        ).reshape(len(self.keys), len(self.chosen))
        return inside * amounts, inside * counted if call.name == "AVG" else None

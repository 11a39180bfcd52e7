"""post_process: HAVING, ORDER BY, LIMIT, arithmetic, windows, joins of releases: ordinary SQL over noisy values.

It runs in a database of its own, which never sees private data, so whatever the analyst wrote there is free and safe.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpsql.aggregates.release import LEVEL as TOTALS
from dpsql.engines.post_processor import Lasting
from dpsql.errors import SealedExecutionError
from dpsql.intervals import ends
from dpsql.pipeline.notes import (
    bounding_notes,
    choice_note,
    constant_note,
    diagnosis_notes,
    drawn_notes,
    found_notes,
    lost_note,
    mostly_noise,
    share_notes,
)
from dpsql.pipeline.replay import Released, Replay
from dpsql.result import LEVEL, Receipt, Result, ResultColumn, is_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpsql.accounting.ledger.ledger import Ledger
    from dpsql.engines.public import PostProcessingTable
    from dpsql.intervals import NoisyColumns
    from dpsql.pipeline.add_noise import Noisy
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.counted_reports import CountedReports
    from dpsql.pipeline.environment import Environment
    from dpsql.pipeline.estimate_answers import Estimated
    from dpsql.pipeline.output import Output
    from dpsql.pipeline.planned_release import PublicTable

    Columns = Mapping[str, np.ndarray]


def post_process(estimated: Estimated, environment: Environment) -> Result:
    noisy = estimated.noisy
    calibrated = noisy.charged.calibrated
    if noisy.has_failed:
        raise _sealed(environment.ledger)
    tables = [release.planned.post_processing_table for release in calibrated.releases]
    tables += [table.post_processing_table for table in calibrated.public]
    private = [
        {**release.with_noise_columns(columns, levels), **_interval_ends(columns, release, levels)}
        for columns, release, levels in zip(estimated.columns, calibrated.releases, estimated.noises, strict=True)
        if columns is not None
    ]
    finished = environment.post_processor.run(calibrated.post_processing, tables, [*private, *estimated.public])
    visible = len(calibrated.outputs)
    replay = _replay(estimated, private, tables, environment)
    columns = tuple(
        ResultColumn(
            name=name,
            type=kind,
            estimate=output.estimate,
            noises=_noises(output, calibrated),
            levels=() if output.release is None else estimated.noises[output.release],
            hidden=dict(output.hidden),
            is_key=output.is_key,
            chosen_from=_chosen_from(output, estimated, environment),
            replicas=None if replay is None or not output.replica else partial(replay.replicas, output.name),
            lost=output.lost and is_number(kind),
        )
        for name, kind, output in zip(finished.names[:visible], finished.types, calibrated.outputs, strict=False)
    )
    receipt = Receipt(
        cost=noisy.charged.cost(noisy.refund),
        mechanism=calibrated.mechanism,
        recalled=noisy.charged.entry is None,
        refused=_refused(noisy),
        number=noisy.charged.entry.number if noisy.charged.entry else None,
        bounds=tuple(found_notes(calibrated.releases)),
        budget=environment.ledger.budget,
    )
    faint = list(mostly_noise(columns, finished.cells, receipt.epsilon or calibrated.cost.epsilon))
    notes = (
        *calibrated.request.notes,
        *receipt.bounds,
        *bounding_notes(calibrated.releases),
        *constant_note(calibrated.releases),
        *share_notes(calibrated.outputs, calibrated.releases),
        *drawn_notes(calibrated.outputs, calibrated.releases),
        *diagnosis_notes(calibrated.releases, estimated.columns),
        *lost_note(calibrated.outputs),
        *choice_note(columns),
        *map(str, faint),
    )
    return Result(columns, finished.cells, receipt, notes, frozenset(column.name for column in faint))


def _replay(
    estimated: Estimated, private: Sequence[Columns], tables: Sequence[PostProcessingTable], environment: Environment
) -> Replay | None:
    """The post-processing over other noise, for when somebody asks for the errors of what it computed."""
    calibrated = estimated.noisy.charged.calibrated
    if calibrated.followed is None:
        return None
    released = zip(calibrated.releases, private, estimated.noises, strict=True)
    return Replay(
        calibrated.followed,
        calibrated.outputs,
        [Released(*part) for part in released],
        list(zip(tables[len(private) :], estimated.public, strict=True)),
        environment.post_processor.still_open(),
    )


def _sealed(ledger: Ledger) -> SealedExecutionError:
    """The same words for every failure."""
    if ledger.on_failure == "warn":
        return SealedExecutionError(
            "the database could not run the query; the charge stands, and the failure is outside the guarantee",
            hint="find out why with the SQL that explain() shows, before asking more: it may depend on one person",
        )
    return SealedExecutionError(
        "the database could not run the query; the charge stands, and the account is suspended",
        hint=f"the data owner can run the SQL that explain() shows to see why, and lift it: {ledger.way_to_resume}",
    )


def _refused(noisy: Noisy) -> bool:
    """Whether a test refused some cell."""
    parts = zip(noisy.charged.calibrated.releases, noisy.columns, strict=True)
    return any(
        bool(np.ma.getmaskarray(columns[name]).any())
        for release, columns in parts
        if columns is not None
        for name in release.refusable
    )


def _noises(output: Output, calibrated: Calibrated) -> NoisyColumns:
    """The noise of each measure that the output may be made of, in the column's units."""
    return {} if output.release is None else calibrated.releases[output.release].noises


def _chosen_from(output: Output, estimated: Estimated, environment: Environment) -> int:
    """How many rows there were to choose from, if they were chosen by their noise."""
    if not output.chosen:
        return 1
    if output.replica:
        return math.prod(_length(columns or {}) for columns in estimated.columns)
    if output.release is not None:
        return _length(estimated.columns[output.release] or {})
    tables = zip(estimated.noisy.charged.calibrated.public, estimated.public, strict=True)
    return max((_rows(table, data, environment) for table, data in tables), default=1)


def _rows(table: PublicTable | CountedReports, data: Columns | Lasting, environment: Environment) -> int:
    return environment.post_processor.rows_kept(table.name) if isinstance(data, Lasting) else _length(data)


def _length(columns: Columns) -> int:
    return max(map(len, columns.values()), default=1)


def _interval_ends(
    columns: Mapping[str, np.ndarray], release: CalibratedRelease, levels: tuple[NoisyColumns, ...]
) -> Mapping[str, np.ndarray]:
    """The columns that DP_INTERVAL_LOW and DP_INTERVAL_HIGH stand for; NULL where no error is known."""
    if not release.planned.ends:
        return {}
    made: dict[str, np.ndarray] = {}
    by_level = levels or (release.noises,)
    measures = {name: columns[name].tolist() for name in by_level[0]}
    length = len(next(iter(columns.values()), ()))
    level_of = columns[TOTALS].tolist() if levels else [0] * length
    rows = [{name: values[row] for name, values in measures.items()} for row in range(length)]
    for number, estimate in enumerate(release.planned.ends):
        found = [
            None if estimate is None else next(ends(estimate, [row], by_level[level], LEVEL))
            for row, level in zip(rows, level_of, strict=True)
        ]
        unknown = [end is None for end in found]
        for position, name in enumerate((f"_low{number}", f"_high{number}")):
            values = [math.nan if end is None else end[position] for end in found]
            made[name] = np.ma.masked_array(np.array(values, dtype=float), mask=unknown)
    return made

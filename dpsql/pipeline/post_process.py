"""post_process: HAVING, ORDER BY, LIMIT, arithmetic, windows, joins of releases: ordinary SQL over noisy values.

It runs in a DuckDB of its own, which never sees private data, so whatever the analyst wrote there is free and safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.aggregates.measure import CountRows, CountUnits
from dpsql.aggregates.release import LEVEL as TOTALS
from dpsql.engines.post_processor import ImmutableTable
from dpsql.engines.render import quoted
from dpsql.errors import ProgrammingError, SealedExecutionError
from dpsql.intervals import NO_THRESHOLDS, ends, for_all, half_width
from dpsql.mechanisms.bootstrap import REPLICATES, redrawn, redrawn_if_shown
from dpsql.mechanisms.combined import Combined
from dpsql.mechanisms.selective import ShownCount
from dpsql.pipeline.estimate_answers import levels_thresholds
from dpsql.pipeline.notes import (
    age_note,
    bounding_notes,
    choice_note,
    constant_note,
    data_note,
    diagnosis_notes,
    drawn_notes,
    empty_groups_notes,
    found_notes,
    is_noise_only,
    left_out_note,
    left_out_notes,
    left_out_of,
    lost_note,
    mostly_noise,
    rounding_notes,
    share_notes,
    unaveraged_notes,
    unranked_notes,
)
from dpsql.result import LEVEL, Receipt, Result, ResultColumn, is_number
from dpsql.sampling import RepeatableRandomness
from dpsql.sql.noise_tracking import Kind, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from dpsql.accounting.ledger.ledger import Ledger
    from dpsql.aggregates.release import Drawn
    from dpsql.engines.base import PostProcessingTable
    from dpsql.engines.post_processor import PostProcessor
    from dpsql.intervals import NoisyColumns, Thresholds
    from dpsql.mechanisms.left_out import LeftOut, RowsPerPerson
    from dpsql.pipeline.add_noise import Noisy
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.environment import Environment
    from dpsql.pipeline.estimate_answers import Estimated
    from dpsql.pipeline.format import Output
    from dpsql.pipeline.plan_query import CountedResponses, PublicTable
    from dpsql.sql.noise_tracking import PropagatedError

# -- parametric bootstrap ----------------------------------------------------------------------------------------------
# Parametric bootstrap: computed columns over noise that is drawn again around the released values.
#
#     released    a 120, b 80, share of a 0.60        noise drawn again    a 127, b 75, share of a 0.63, and 198 more
#
# It reads what was released and nothing else, so it is free. It runs when somebody looks at an error bar, and once.
# docs/proofs/intervals.md.

if TYPE_CHECKING:
    Columns = Mapping[str, np.ndarray]

MOST_NUMBERS = 1 << 22
"""The most replicas; more would take seconds, and the error is then unknown."""


@dataclass(frozen=True)
class Released:
    """A release as the post-processing reads it, with the noise of each level of totals."""

    release: CalibratedRelease
    columns: Columns
    levels: tuple[NoisyColumns, ...]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Bootstrap:
    propagated: PropagatedError
    outputs: Sequence[Output]
    released: Sequence[Released]
    public: Sequence[tuple[PostProcessingTable, Columns | ImmutableTable]]
    post_processor: PostProcessor

    def replicates(self, column: str, row: tuple[Any, ...]) -> list[NDArray[np.float64]]:
        """The replicas of a cell, and of all cells in rows that look the same, except those that cannot be computed."""
        return [found[self._places[column]] for found in self._by_row.get(repr(row[: len(self.outputs)]), [])]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {output.name: place for place, output in enumerate(out for out in self.outputs if out.replicate)}

    @cached_property
    def _by_row(self) -> dict[str, list[NDArray[np.float64]]]:
        """The replicas of computed columns, by the visible values of the row."""
        if sum(part.rows * len(_answers(part, self.propagated)) for part in self.released) * REPLICATES > MOST_NUMBERS:
            return {}
        try:
            return self._run()
        except ProgrammingError:  # what DuckDB cannot compute of some replica has no error that is known
            return {}

    def _run(self) -> dict[str, list[NDArray[np.float64]]]:
        source = RepeatableRandomness(b"".join(_seed(part) for part in self.released))
        private = [_with_replicates(part, self.propagated, source, self.post_processor) for part in self.released]
        tables, data = zip(*private, *self.public, strict=True)
        shown = [quoted(output.name) for output in self.outputs]
        replicates = [
            quoted(numbered(output.replicate, number))
            for output in self.outputs
            if output.replicate
            for number in range(REPLICATES)
        ]
        numbers = ", ".join(f"TRY_CAST({name} AS DOUBLE)" for name in replicates)
        sql = f"SELECT {', '.join(shown)}, [{numbers}] FROM ({self.propagated.sql(REPLICATES)})"
        found: dict[str, list[NDArray[np.float64]]] = {}
        for *row, cells in self.post_processor.run(sql, tables, data).rows:
            found.setdefault(repr(tuple(row)), []).append(np.array(cells, dtype=np.float64).reshape(-1, REPLICATES))
        return found


def _seed(part: Released) -> bytes:
    """The seed: the noisy values, so that the same answer has the same error bars."""
    names = sorted(name for name in part.release.noises if name in part.columns)
    return b"".join(np.ma.getdata(part.columns[name]).astype(np.int64).tobytes() for name in names)


def _answers(part: Released, propagated: PropagatedError) -> dict[str, str]:
    """The noisy columns, and the names of their replicas."""
    rows = propagated.tables[part.release.planned.name]
    return {name: made.replicate for name, made in rows.columns if made.kind is Kind.NOISY}


def _with_replicates(
    part: Released, propagated: PropagatedError, source: RepeatableRandomness, post_processor: PostProcessor
) -> tuple[PostProcessingTable, Columns]:
    """The release's table, with columns of replicas of its answers."""
    table, answers = part.release.planned.post_processing_table, _answers(part, propagated)
    drawn = _answered_again(part, list(answers), source, post_processor)
    wide = {
        numbered(replicate, number): (table.columns[name][0], values)
        for (name, replicate), column in zip(answers.items(), drawn, strict=True)
        for number, values in enumerate(column)
    }
    columns = {name: (kind, f"TRY_CAST({quoted(name)} AS {kind})") for name, (kind, _) in wide.items()}
    stored = {**table.stored, **dict.fromkeys(wide, "DOUBLE")}
    values = {name: values for name, (_, values) in wide.items()}
    return replace(table, stored=stored, columns={**table.columns, **columns}), {**part.columns, **values}


def _answered_again(
    part: Released, names: Sequence[str], source: RepeatableRandomness, post_processor: PostProcessor
) -> list[np.ndarray]:
    """The answers from measures whose noise is drawn again, one row per replica."""
    if not names:
        return []
    table, keys = part.release.planned.post_processing_table, part.release.planned.release.key_names
    drawn = _redrawn(part, source)
    stacked = {
        name: drawn[name].ravel() if name in drawn else np.tile(part.columns[name], REPLICATES)
        for name in table.stored
        if name not in keys
    }
    stored = {name: table.stored[name] for name in stacked}
    columns = {name: table.columns[name] for name in names}
    answers = ", ".join(f"CAST({quoted(name)} AS DOUBLE)" for name in names)
    sql, slim = f"SELECT {answers} FROM {quoted(table.name)}", replace(table, stored=stored, columns=columns)
    found = post_processor.run(sql, [slim], [stacked]).cells.columns
    assert found is not None
    return [column.reshape(REPLICATES, part.rows) for column in found]


def _redrawn(part: Released, source: RepeatableRandomness) -> dict[str, np.ndarray]:
    """The replicas of each noisy column, end to end."""
    levels = part.levels or (part.release.noises,)
    level = np.asarray(part.columns[TOTALS]) if part.levels else np.zeros(part.rows, dtype=np.int64)
    found = {name: np.zeros((REPLICATES, part.rows), dtype=np.int64) for name in levels[0] if name in part.columns}
    for number, (noises, thresholds) in enumerate(zip(levels, levels_thresholds(part.release), strict=True)):
        rows = np.flatnonzero(level == number)
        draws = redrawn([noises[name][0] for name in found], len(rows), source)
        for name, drawn in zip(found, draws, strict=True):
            noise, unit = noises[name]
            if name in thresholds and not isinstance(noise, Combined):
                values = np.ma.getdata(part.columns[name]).astype(np.int64)[rows] // unit
                drawn = redrawn_if_shown(ShownCount(noise, -(-thresholds[name] // unit)), values, drawn)
            found[name][:, rows] = np.rint(drawn * unit).astype(np.int64)
    return {
        name: np.ma.masked_array(
            np.ma.getdata(part.columns[name]).astype(np.int64) + drawn,
            mask=np.broadcast_to(np.ma.getmaskarray(part.columns[name]), drawn.shape),
        )
        for name, drawn in found.items()
    }


# -- post process ------------------------------------------------------------------------------------------------------


def post_process(estimated: Estimated, environment: Environment, people: RowsPerPerson | None = None) -> Result:
    """Runs the query's outer SQL over the noisy tables, and derives the error of each column.

    `people` tells how much contribution bounds may leave out, if that is known.
    """
    noisy = estimated.noisy
    calibrated = noisy.charged.calibrated
    if noisy.has_failed:
        raise _sealed(environment.ledger)
    tables = [release.planned.post_processing_table for release in calibrated.releases]
    tables += [table.post_processing_table for table in calibrated.public]
    hides = calibrated.request.empty_groups == "hide"
    released = [
        (_told_from_empty(columns, release, levels) if hides else columns, release, levels)
        for columns, release, levels in zip(estimated.columns, calibrated.releases, estimated.noises, strict=True)
        if columns is not None
    ]
    hopeless = [_hopeless(columns, release) for columns, release, _ in released]
    released = [
        (_without(columns, found), release, levels)
        for (columns, release, levels), found in zip(released, hopeless, strict=True)
    ]
    private = [
        {**release.with_noise_columns(columns, levels), **_interval_ends(columns, release, levels)}
        for columns, release, levels in released
    ]
    lengths = (_length(columns) for columns in estimated.columns if columns is not None)
    hidden = [(before, _length(columns)) for before, (columns, _, _) in zip(lengths, released, strict=True)]
    finished = environment.post_processor.run(calibrated.post_processing, tables, [*private, *estimated.public])
    bootstrap = _bootstrap(estimated, private, tables, environment)
    columns = tuple(
        _column(name, kind, output, estimated, environment, bootstrap, people)
        for name, kind, output in zip(finished.names, finished.types, calibrated.outputs, strict=False)
    )
    receipt = _receipt(noisy, environment)
    faint = list(mostly_noise(columns, finished.cells, float(calibrated.request.epsilon)))
    empty = empty_groups_notes(calibrated, hidden)
    unranked = unranked_notes(calibrated.outputs, calibrated.releases, hopeless)
    unaveraged = unaveraged_notes(calibrated.outputs, [release for _, release, _ in released], private)
    told = _notes(estimated, columns, receipt, environment, people)
    notes = (*told, *unranked, *unaveraged, *empty, *map(str, faint))
    return Result(columns, finished.cells, receipt, notes, frozenset(column.name for column in faint))


def _column(
    name: str,
    kind: str,
    output: Output,
    estimated: Estimated,
    environment: Environment,
    bootstrap: Bootstrap | None,
    people: RowsPerPerson | None,
) -> ResultColumn:
    calibrated = estimated.noisy.charged.calibrated
    if calibrated.reads_noise(output):
        output = replace(output, estimate=None, replicate="", lost=True)
    left_out = _left_out(output, estimated, people)
    return ResultColumn(
        name=name,
        type=kind,
        estimate=output.estimate,
        noises=_noises(output, calibrated),
        levels=() if output.release is None else estimated.noises[output.release],
        thresholds=_thresholds(output, calibrated),
        hidden=dict(output.hidden),
        is_key=output.is_key,
        chosen_from=_chosen_from(output, estimated, environment),
        replicates=None if bootstrap is None or not output.replicate else partial(bootstrap.replicates, output.name),
        lost=output.lost and is_number(kind),
        noise_only=left_out is None and _is_noise_only(output, calibrated),
        left_out=left_out,
    )


def _left_out(output: Output, estimated: Estimated, people: RowsPerPerson | None) -> LeftOut | None:
    """What bounding may leave out; None if it is not known, or if it may be most of an average."""
    if people is None or output.release is None:
        return None
    planned = estimated.noisy.charged.calibrated.releases[output.release].planned
    found, columns = left_out_of(output, planned, people), estimated.columns[output.release]
    if found is None or columns is None or not isinstance(output.estimate, Ratio):
        return found
    below = output.estimate.below
    counted = sum(float(weight) * np.ma.getdata(columns[name]).astype(float) for name, weight in below.weights)
    return found if bool(np.all(counted + float(below.constant) >= found.most(LEVEL))) else None


def _is_noise_only(output: Output, calibrated: Calibrated) -> bool:
    """Whether a column with an error reads a release that may be biased; if it is not known which one, any may be."""
    if output.estimate is None and not output.replicate:
        return False
    read = calibrated.releases if output.release is None else [calibrated.releases[output.release]]
    return any(is_noise_only(part.planned.release) for part in read)


def _receipt(noisy: Noisy, environment: Environment) -> Receipt:
    charged = noisy.charged
    return Receipt(
        cost=charged.cost(noisy.refund),
        mechanism=charged.calibrated.mechanism,
        recalled=charged.entry is None,
        asked=_drawn_at(charged),
        data=tuple(dict.fromkeys(_data_of(charged, environment.ledger.answers.data))),
        clock=charged.calibrated.request.now,
        refused=_refused(noisy),
        number=charged.entry.number if charged.entry else None,
        bounds=tuple(found_notes(charged.calibrated.releases)),
        budget=environment.ledger.budget,
    )


def _drawn_at(charged: Charged) -> datetime | None:
    """When the oldest stored part of the answer was drawn."""
    known = zip(charged.recalled, charged.calibrated.on_record, strict=False)
    times = [answer.drawn_at for payload, answer in known if payload is not None and answer is not None]
    return min((time for time in times if time is not None), default=None)


def _data_of(charged: Charged, now: str | None) -> Iterator[str]:
    """The names of the data that the stored parts and the new ones were drawn from."""
    known = zip(charged.recalled, charged.calibrated.on_record, strict=False)
    stored = [answer for payload, answer in known if payload is not None and answer is not None]
    yield from (answer.data for answer in stored if answer.data is not None)
    if now is not None and any(payload is None for payload in charged.recalled):
        yield now


def _notes(
    estimated: Estimated,
    columns: Sequence[ResultColumn],
    receipt: Receipt,
    environment: Environment,
    people: RowsPerPerson | None,
) -> Iterator[str]:
    calibrated = estimated.noisy.charged.calibrated
    yield from calibrated.request.notes
    yield from age_note(receipt, environment.engine.guarantees.changed)
    yield from data_note(receipt, environment.ledger.answers.data)
    yield from receipt.bounds
    yield from left_out_notes(calibrated.releases, estimated.columns)
    may_be_asked = environment.schema.minimum_people is None
    told = bool(calibrated.request.diagnose) or not may_be_asked or not any(column.noise_only for column in columns)
    yield from bounding_notes(calibrated.releases, told=told)
    yield from left_out_note(calibrated.outputs, [part.planned for part in calibrated.releases], people)
    yield from rounding_notes(calibrated.releases)
    yield from constant_note(calibrated.releases)
    yield from share_notes(calibrated.outputs, calibrated.releases)
    yield from drawn_notes(calibrated.outputs, calibrated.releases)
    yield from diagnosis_notes(calibrated.releases, estimated.columns)
    yield from lost_note(calibrated.outputs)
    yield from choice_note(columns)


def _bootstrap(
    estimated: Estimated, private: Sequence[Columns], tables: Sequence[PostProcessingTable], environment: Environment
) -> Bootstrap | None:
    """The bootstrap of the post-processing, run when somebody looks at an error."""
    calibrated = estimated.noisy.charged.calibrated
    if calibrated.propagated is None:
        return None
    released = zip(calibrated.releases, private, estimated.noises, strict=True)
    return Bootstrap(
        calibrated.propagated,
        calibrated.outputs,
        [Released(*part) for part in released],
        list(zip(tables[len(private) :], estimated.public, strict=True)),
        environment.post_processor.still_open(),
    )


def _sealed(ledger: Ledger) -> SealedExecutionError:
    """The one error for every failure after the charge."""
    if ledger.on_failure == "warn":
        return SealedExecutionError(
            "the database could not run the query; the charge stands, and the failure is outside the guarantee",
            hint="before you query further, find out why with the SQL that explain() shows: the cause may be one "
            "person's row",
        )
    return SealedExecutionError(
        "the database could not run the query; the charge stands, and the account is suspended",
        hint="the data owner can find out why with the SQL that explain() shows, then lift the suspension: "
        f"{ledger.way_to_resume}",
    )


def _refused(noisy: Noisy) -> bool:
    """Whether a test refused any cell."""
    parts = zip(noisy.charged.calibrated.releases, noisy.columns, strict=True)
    return any(
        bool(np.ma.getmaskarray(columns[name]).any())
        for release, columns in parts
        if columns is not None
        for name in release.refusable
    )


def _noises(output: Output, calibrated: Calibrated) -> NoisyColumns:
    """The noise of each measure that may enter the column, in its quanta."""
    return {} if output.release is None else calibrated.releases[output.release].noises


def _thresholds(output: Output, calibrated: Calibrated) -> tuple[Thresholds, ...]:
    return (NO_THRESHOLDS,) if output.release is None else levels_thresholds(calibrated.releases[output.release])


def _chosen_from(output: Output, estimated: Estimated, environment: Environment) -> int:
    """The number of rows to choose from, if noisy values chose them; else 1."""
    calibrated = estimated.noisy.charged.calibrated
    hides = calibrated.request.empty_groups == "hide" and output.release is not None
    if not output.chosen and not (hides and _may_hide(calibrated.releases[output.release or 0])):
        return 1
    if output.replicate:
        return math.prod(_length(columns or {}) for columns in estimated.columns)
    if output.release is not None:
        return _length(estimated.columns[output.release] or {})
    tables = zip(calibrated.public, estimated.public, strict=True)
    return max((_rows(table, data, environment) for table, data in tables), default=1)


def _rows(table: PublicTable | CountedResponses, data: Columns | ImmutableTable, environment: Environment) -> int:
    return environment.post_processor.rows_kept(table.name) if isinstance(data, ImmutableTable) else _length(data)


def _length(columns: Columns) -> int:
    return max(map(len, columns.values()), default=1)


def _may_hide(release: CalibratedRelease) -> bool:
    """Whether it has public groups, and measures of them that are 0 where nobody is in a group."""
    aggregate, domain = release.planned.release.aggregate, release.planned.release.domain
    return aggregate.grouped and not aggregate.is_auxiliary and domain is not None and bool(release.measures)


def _hopeless(columns: Columns, release: CalibratedRelease) -> dict[str, NDArray[np.bool_]]:
    """Where a quantile may be off by all rows of its group, as far as the released counts tell."""
    found = {}
    for drawn, draw in release.statistics:
        values = _most_values(columns, release, drawn)
        if draw.ranks is not None and values is not None:
            found[drawn.column] = values <= draw.ranks
    return found


def _without(columns: Columns, hopeless: Mapping[str, NDArray[np.bool_]]) -> Columns:
    return {**columns, **{name: np.ma.masked_array(columns[name], mask=mask) for name, mask in hopeless.items()}}


def _most_values(columns: Columns, release: CalibratedRelease, drawn: Drawn) -> NDArray[np.int64] | None:
    """The noisy number of values in each group, at the most; None if no count was released."""
    plan = release.planned.release
    factors = {
        part.column: drawn.rows_of(plan.rows) if isinstance(part.measure, CountUnits) else 1
        for part in plan.measures
        if isinstance(part.measure, CountRows | CountUnits)
    }
    counts = [np.ma.getdata(columns[name]).astype(np.int64) * factor for name, factor in factors.items()]
    return np.asarray(np.min(counts, axis=0)) if counts else None


def _told_from_empty(columns: Columns, release: CalibratedRelease, levels: tuple[NoisyColumns, ...]) -> Columns:
    """The public groups with a measure that noise alone would not make so large, at 95 % for all measures at once."""
    if not _may_hide(release):
        return columns
    drawn = {drawn.column for drawn, _ in release.statistics}
    measures = [name for name in (levels or (release.noises,))[0] if name in columns and name not in drawn]
    level_of = np.asarray(columns[TOTALS]) if levels else np.zeros(_length(columns), dtype=np.int64)
    told = np.zeros(_length(columns), dtype=bool)
    for number, noises in enumerate(levels or (release.noises,)):
        for name in measures:
            width = half_width(Linear(((name, Fraction(1)),)), noises, for_all(LEVEL, len(measures)))
            told |= (level_of == number) & (np.abs(np.ma.getdata(columns[name]).astype(float)) > (width or 0))
    return {name: values[told] for name, values in columns.items()}


def _interval_ends(
    columns: Mapping[str, np.ndarray], release: CalibratedRelease, levels: tuple[NoisyColumns, ...]
) -> Mapping[str, np.ndarray]:
    """The columns behind DP_INTERVAL_LOW and DP_INTERVAL_HIGH; NULL if the error is unknown."""
    if not release.planned.ends:
        return {}
    made: dict[str, np.ndarray] = {}
    by_level = levels or (release.noises,)
    measures = {name: columns[name].tolist() for name in by_level[0]}
    length = len(next(iter(columns.values()), ()))
    level_of = columns[TOTALS].tolist() if levels else [0] * length
    rows = [{name: values[row] for name, values in measures.items()} for row in range(length)]
    thresholds = levels_thresholds(release)
    for number, estimate in enumerate(release.planned.ends):
        found = [
            None
            if estimate is None or release.planned.reads_noise
            else next(ends(estimate, [row], by_level[level], LEVEL, thresholds[level]))
            for row, level in zip(rows, level_of, strict=True)
        ]
        unknown = [end is None for end in found]
        for position, name in enumerate((f"_low{number}", f"_high{number}")):
            values = [math.nan if end is None else end[position] for end in found]
            made[name] = np.ma.masked_array(np.array(values, dtype=float), mask=unknown)
    return made

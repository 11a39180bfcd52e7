"""run_rounds: runs the charged releases and adds noise; a release that reads the answer of another runs after it.

    SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)

First round: the sums behind AVG get noise, and the post-processing database computes the average. Second round: the
count, with that noisy average as a constant. Both were charged before the first round, and only noisy values pass from
round to round. docs/proofs/adaptive.md. How the charge ended is recorded before anything is said (`finalize_charge`).
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dpsql.accounting.events import Composed
from dpsql.engines.base import ConnectionLost, TableUnavailable, TimedOut
from dpsql.engines.post_processor import ImmutableTable
from dpsql.errors import INTERRUPTED_AFTER_CHARGE, Error, OperationalError, QueryTimeout
from dpsql.limits import MOST_COPIES
from dpsql.pipeline.add_noise import Fetched, Noisy, add_noise
from dpsql.pipeline.replan import with_bounds
from dpsql.relation.reports import AdaptiveTable, known_rows
from dpsql.sampling import CryptographicRandomness, uniform_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from dpsql.accounting.ledger.journal import Entry
    from dpsql.engine_sql.tree import Query
    from dpsql.engines.post_processor import Data
    from dpsql.mechanisms.draw import Refund
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.environment import Environment
    from dpsql.pipeline.plan_query import PlannedAdaptiveSubquery, PublicTable

# -- execute query -----------------------------------------------------------------------------------------------------
# execute_query: the engine runs the releases that were charged. The exact numbers exist from here to add_noise only.
#
# Whatever the engine says when it fails may quote a person's row, so none of it is repeated: not in the message, not in
# the error's cause or context. A connection that breaks, by a network's fault or a restart of the server, is made anew
# and the same SELECT asked once more, under the same charge: nothing of the first was seen. But a row may have taken
# the server down, and the delay tells: so this is on record first, and happens once until the owner has looked. What
# breaks after that is a failure like any other. docs/proofs/ledger.md.

SALTS = 2**63


def execute_query(charged: Charged, environment: Environment) -> Fetched:
    releases = zip(charged.calibrated.releases, charged.recalled, strict=True)
    return Fetched(
        charged,
        tuple(_fetch(release, charged, environment) if answer is None else None for release, answer in releases),
    )


def _fetch(release: CalibratedRelease, charged: Charged, environment: Environment) -> Mapping[str, np.ndarray] | None:
    # A fresh secret for every release decides which of a unit's groups count.
    query = release.salted(uniform_below(SALTS, CryptographicRandomness()))
    try:
        columns = _run(query, release.planned.materialized, charged, environment)
        whole = all(columns[measure.column].dtype.kind == "i" for measure in release.planned.release.measures)
        return columns if whole else None
    except (TimedOut, TableUnavailable):
        raise
    except Exception:
        # Forgotten here, and told at the end, when nothing exact is left that a traceback could show.
        return None


def _run(
    query: str, materialized: Mapping[str, str], charged: Charged, environment: Environment
) -> Mapping[str, np.ndarray]:
    try:
        return environment.engine.run(query, materialized)
    except ConnectionLost:
        if charged.entry is not None and not environment.ledger.may_retry(charged.entry):
            raise
    return environment.engine.run(query, materialized)


# -- finalize charge ---------------------------------------------------------------------------------------------------
# How a charge ends: in an answer, in a part that is given back, stopped, or in a failure that trips the wire.
#
# Whether a question fails after its charge, or takes so long that somebody stops it, may depend on one person. So every
# way out of here is on record before anything is said, and all failures look alike: the engine's, the noise's, one
# question too many that was stopped, and an answer that was ready when the analyst was suspended for another question.
# docs/proofs/ledger.md.

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended."""

if TYPE_CHECKING:
    Draw = Callable[[Charged, Environment], Noisy]


def finalize_charge(draw: Draw, charged: Charged, environment: Environment) -> Noisy:
    if charged.entry is None:
        return draw(charged, environment)
    try:
        noisy, stop = _drawn_or_stopped(draw, charged, environment)
        if noisy is not None:
            _mark(charged.entry, noisy, environment)
            return noisy
        if isinstance(stop, TimedOut):
            if environment.ledger.stopped(charged.entry, "timed out").state == "suspended":
                return _failed(charged)
            stop = _timed_out(environment.engine.timeout)
        elif isinstance(stop, KeyboardInterrupt):
            environment.ledger.stopped(charged.entry, "interrupted")
            stop.add_note(INTERRUPTED_AFTER_CHARGE)
        elif isinstance(stop, Error):
            # Public tables, noisy values, the ledger's file, a changed or locked table: nobody's row is behind these.
            environment.ledger.abandoned(charged.entry)
        else:
            environment.ledger.failed(charged.entry)
    finally:
        environment.ledger.release(charged.entry)
    assert stop is not None
    raise stop


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM stops a paid question as Ctrl-C does, and then ends the process.

    Otherwise the server's query would go on, and the charge look like a crash. A process with a handler of its own
    decides for itself.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except Terminated as stopped:
        raise SystemExit(TERMINATED) from stopped
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(*_: object) -> None:
    raise Terminated


def abandon(charged: Charged, environment: Environment) -> None:
    """Records that a query is not run, because another one of the same batch was stopped."""
    if charged.entry is not None:
        try:
            environment.ledger.abandoned(charged.entry)
        finally:
            environment.ledger.release(charged.entry)


def _drawn_or_stopped(
    draw: Draw, charged: Charged, environment: Environment
) -> tuple[Noisy | None, BaseException | None]:
    """The noisy result, or the exception that ended it, stripped of everything that could show exact numbers."""
    try:
        return draw(charged, environment), None
    except (Error, TimedOut) as problem:
        return None, problem.with_traceback(None)
    except Exception:
        return _failed(charged), None
    except BaseException as problem:
        problem.__cause__ = problem.__context__ = None
        return None, problem.with_traceback(None)


def _failed(charged: Charged) -> Noisy:
    return Noisy(charged, (None,) * len(charged.recalled))


def _timed_out(seconds: float | None) -> QueryTimeout:
    return QueryTimeout(
        f"the query was stopped after {seconds:g} seconds; the charge stands",
        hint="simplify the query (fewer joins, fewer groups), or ask the data owner for a longer timeout=",
    )


def _mark(charge: Entry, noisy: Noisy, environment: Environment) -> None:
    if noisy.has_failed:
        environment.ledger.failed(charge)
    elif noisy.refused:
        events = Composed(tuple(part.event for part in noisy.refused))
        environment.ledger.refused(charge, events, noisy.refund)
    else:
        environment.ledger.released(charge)


# -- run rounds --------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Columns = Mapping[str, np.ndarray]

ANSWER_KEPT = "the answer is stored; repeat the query when the table can be read, which is free"
CHARGE_STANDS = "repeat the query when the table can be read; the charge stands, because part of the query was answered"


def run_rounds(charged: Charged, environment: Environment) -> Noisy:
    """Runs every release and adds noise."""
    return finalize_charge(_drawn, charged, environment)


def run_rounds_of_all(charges: Sequence[Charged], environment: Environment) -> list[Noisy]:
    """Runs several queries in order. If one is stopped, the rest is not run, which is recorded too."""
    noisy: list[Noisy] = []
    try:
        for charged in charges:
            noisy.append(run_rounds(charged, environment))
    except BaseException:
        for charged in charges[len(noisy) + 1 :]:
            abandon(charged, environment)
        raise
    return noisy


def _drawn(charged: Charged, environment: Environment) -> Noisy:
    """Runs the releases round by round, and stops at the first that fails."""
    calibrated = charged.calibrated
    drawn: dict[int, Columns | None] = dict.fromkeys(range(len(calibrated.releases)))
    refused: tuple[Refund, ...] = ()
    for numbers in _rounds(calibrated):
        for number in numbers:
            if calibrated.releases[number].planned.auto_bounds:
                recalled = charged.recalled[number]
                calibrated = with_bounds(calibrated, number, drawn, recalled, environment.public())
        releases = tuple(_ready(calibrated.releases[number], drawn, calibrated, environment) for number in numbers)
        part = replace(
            charged,
            calibrated=replace(calibrated, releases=releases),
            recalled=tuple(charged.recalled[number] for number in numbers),
        )
        noisy = add_noise(execute_query(part, environment), environment)
        drawn |= zip(numbers, noisy.columns, strict=True)
        refused += noisy.refused
        if noisy.has_failed:
            break
    return Noisy(replace(charged, calibrated=calibrated), tuple(drawn.values()), refused)


def _rounds(calibrated: Calibrated) -> list[list[int]]:
    """The rounds: each release runs after those that it reads, and after the histograms of its auto bounds."""
    binned = [release.planned.release.aggregate.binned for release in calibrated.releases]

    @cache
    def depth(number: int) -> int:
        read = {n for part in calibrated.releases[number].planned.adaptive for n in part.releases}
        histograms = {n for n, part in enumerate(binned) if part is not None and part.release == number}
        return max((depth(before) + 1 for before in read | histograms), default=0)

    depths = [depth(number) for number in range(len(binned))]
    return [[n for n, level in enumerate(depths) if level == now] for now in range(max(depths, default=0) + 1)]


def _ready(
    release: CalibratedRelease, drawn: Mapping[int, Columns | None], calibrated: Calibrated, environment: Environment
) -> CalibratedRelease:
    """The release, with the answers that it reads inserted."""
    if not release.planned.adaptive:
        return release
    adaptive = tuple(
        replace(part, table=_filled(part, drawn, calibrated, environment)) for part in release.planned.adaptive
    )
    _check_matches(release.planned.answers_met, [part.table for part in adaptive], environment)
    return replace(release, planned=replace(release.planned, adaptive=adaptive))


def _filled(
    part: PlannedAdaptiveSubquery, drawn: Mapping[int, Columns | None], calibrated: Calibrated, environment: Environment
) -> AdaptiveTable:
    if part.table.rows is not None:
        return part.table
    tables = [calibrated.releases[number].planned.post_processing_table for number in part.releases]
    tables += [table.post_processing_table for table in part.public]
    data: list[Data] = [
        None if columns is None else calibrated.releases[number].with_noise_columns(columns)
        for number in part.releases
        for columns in (drawn[number],)
    ]
    data += [read_public(table, environment, CHARGE_STANDS) for table in part.public]
    rows = environment.post_processor.run(part.post_processing, tables, data).rows
    return replace(part.table, rows=known_rows(rows, [kind for _, kind in part.table.columns]))


def _check_matches(met: tuple[Query, ...], answers: list[AdaptiveTable], environment: Environment) -> None:
    """Checks what was presumed before the charge: how many rows of a noisy answer one private row is joined with."""
    public = environment.public().public_rows
    if any(public.number(query, answers) > MOST_COPIES for query in met):
        raise OperationalError(
            f"a row would be joined with more than {MOST_COPIES} rows of the subquery's answer",
            hint="join on a unique key, or write the rows into the query; the charge stands",
        )


def read_public(table: PublicTable, environment: Environment, way_out: str = ANSWER_KEPT) -> Columns | ImmutableTable:
    """The columns of a public table, read when the post-processing needs them."""
    if environment.engine.guarantees.immutable:
        return ImmutableTable(lambda names: _read(replace(table, read=tuple(names)), environment, way_out))
    return _read(table, environment, way_out)


def _read(table: PublicTable, environment: Environment, way_out: str) -> Columns:
    try:
        return environment.engine.run_public(table.sql)
    except Exception as problem:
        raise OperationalError(f'the public table "{table.name}" cannot be read', hint=way_out) from problem

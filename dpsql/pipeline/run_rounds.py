"""run_rounds: what was charged is asked and gets its noise, releases that read answers of others after these.

    SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)

First round: the sums behind AVG get their noise, and the post-processing database makes a number of them. Second
round: the count, with that number as a constant. All was charged before the first, and only noisy values pass from
round to round. docs/proofs/adaptive.md. How the charge ended is on record before anything is said (settle.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dpsql.engines.post_processor import Lasting
from dpsql.errors import OperationalError
from dpsql.pipeline.add_noise import Noisy, add_noise
from dpsql.pipeline.execute_query import execute_query
from dpsql.pipeline.found_bounds import with_bounds_found
from dpsql.pipeline.settle import settled
from dpsql.relation.adaptive_subquery import AdaptiveTable, known_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.engines.post_processor import Data
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.environment import Environment
    from dpsql.pipeline.planned_release import PlannedAdaptiveSubquery, PublicTable
    from dpsql.statistics.draw import Refund

    Columns = Mapping[str, np.ndarray]

ANSWER_KEPT = "the answer is kept: ask again when the table can be read, and it is free"
CHARGE_STANDS = "ask again when the table can be read; the charge stands, since a part of the question was answered"


def run_rounds(charged: Charged, environment: Environment) -> Noisy:
    """Every release with its noise."""
    return settled(_drawn, charged, environment)


def _drawn(charged: Charged, environment: Environment) -> Noisy:
    """Where one fails, those that wait for it are not asked."""
    calibrated = charged.calibrated
    drawn: dict[int, Columns | None] = dict.fromkeys(range(len(calibrated.releases)))
    refused: tuple[Refund, ...] = ()
    for numbers in _rounds(calibrated):
        for number in numbers:
            if calibrated.releases[number].planned.seeking:
                recalled = charged.recalled[number]
                calibrated = with_bounds_found(calibrated, number, drawn, recalled, environment.public())
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
    """Each release one round after the last that it reads of, or on which its bounds are found."""
    sought = [release.planned.release.aggregate.sought for release in calibrated.releases]

    @cache
    def depth(number: int) -> int:
        read = {n for part in calibrated.releases[number].planned.adaptive for n in part.releases}
        ladders = {n for n, part in enumerate(sought) if part is not None and part.release == number}
        return max((depth(before) + 1 for before in read | ladders), default=0)

    depths = [depth(number) for number in range(len(sought))]
    return [[n for n, level in enumerate(depths) if level == now] for now in range(max(depths, default=0) + 1)]


def _ready(
    release: CalibratedRelease, drawn: Mapping[int, Columns | None], calibrated: Calibrated, environment: Environment
) -> CalibratedRelease:
    """The release with the rows of all answers that it reads."""
    if not release.planned.adaptive:
        return release
    adaptive = tuple(
        replace(part, table=_filled(part, drawn, calibrated, environment)) for part in release.planned.adaptive
    )
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


def read_public(table: PublicTable, environment: Environment, way_out: str = ANSWER_KEPT) -> Columns | Lasting:
    """Its columns, or how to read them if the post-processing has no copy of them yet."""
    if environment.engine.guarantees.rows_stay:
        return Lasting(lambda names: _read(replace(table, read=tuple(names)), environment, way_out))
    return _read(table, environment, way_out)


def _read(table: PublicTable, environment: Environment, way_out: str) -> Columns:
    try:
        return environment.engine.run_public(table.sql)
    except Exception as problem:
        raise OperationalError(f'the public table "{table.name}" cannot be read', hint=way_out) from problem

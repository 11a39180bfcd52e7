"""run_rounds: what was charged is asked and gets its noise, releases that read answers of others after these.

    SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)

First round: the sums behind AVG get their noise, and the scratch database makes a number of them. Second round: the
count, with that number as a constant. All was charged before the first, and only noisy values pass from round to
round. docs/proofs/adaptive.md. How the charge ended is on record before anything is said (settle.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import OperationalError
from dpsql.flow.add_noise import Noisy, add_noise
from dpsql.flow.execute_query import execute_query
from dpsql.flow.settle import settled
from dpsql.relation.earlier import EarlierTable, known_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.flow.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.flow.charge_budget import Charged
    from dpsql.flow.plan_query import PlannedEarlier, PublicTable
    from dpsql.flow.setting import Setting

    Columns = Mapping[str, np.ndarray]


def run_rounds(charged: Charged, setting: Setting) -> Noisy:
    """Every release with its noise."""
    return settled(_drawn, charged, setting)


def _drawn(charged: Charged, setting: Setting) -> Noisy:
    """Where one fails, those that wait for it are not asked."""
    calibrated = charged.calibrated
    drawn: dict[int, Columns | None] = dict.fromkeys(range(len(calibrated.releases)))
    for numbers in _rounds(calibrated):
        releases = tuple(_ready(calibrated.releases[number], drawn, charged, setting) for number in numbers)
        part = replace(
            charged,
            calibrated=replace(calibrated, releases=releases),
            recalled=tuple(charged.recalled[number] for number in numbers),
        )
        noisy = add_noise(execute_query(part, setting), setting)
        drawn |= zip(numbers, noisy.columns, strict=True)
        if noisy.has_failed:
            break
    return Noisy(charged, tuple(drawn.values()), noisy.refused)


def _rounds(calibrated: Calibrated) -> list[list[int]]:
    """Each release one round after the last that it reads of."""
    depths: list[int] = []
    for release in calibrated.releases:
        depths.append(max((depths[n] + 1 for part in release.planned.earlier for n in part.releases), default=0))
    return [[n for n, depth in enumerate(depths) if depth == level] for level in range(max(depths, default=0) + 1)]


def _ready(
    release: CalibratedRelease, drawn: Mapping[int, Columns | None], charged: Charged, setting: Setting
) -> CalibratedRelease:
    """The release with the rows of all answers that it reads."""
    earlier = tuple(
        replace(part, table=_filled(part, drawn, charged.calibrated, setting)) for part in release.planned.earlier
    )
    return replace(release, planned=replace(release.planned, earlier=earlier))


def _filled(
    part: PlannedEarlier, drawn: Mapping[int, Columns | None], calibrated: Calibrated, setting: Setting
) -> EarlierTable:
    if part.table.rows is not None:
        return part.table
    tables = [calibrated.releases[number].planned.scratch_table for number in part.releases]
    tables += [table.scratch_table for table in part.public]
    data = [
        None if columns is None else calibrated.releases[number].with_noise_columns(columns)
        for number in part.releases
        for columns in (drawn[number],)
    ]
    data += [read_public(table, setting) for table in part.public]
    rows = setting.scratch.run(part.finish, tables, data).rows
    return replace(part.table, rows=known_rows(rows, [kind for _, kind in part.table.columns]))


def read_public(table: PublicTable, setting: Setting) -> Columns:
    try:
        return setting.engine.run(table.sql)
    except Exception as problem:
        raise OperationalError(
            f'the public table "{table.scan.table}" cannot be read',
            hint="the answer is kept: ask again when the table can be read, and it is free",
        ) from problem

"""finish_result: HAVING, ORDER BY, LIMIT, arithmetic, windows, joins of releases: ordinary SQL over noisy values.

It runs in the scratch database, which never sees private data, so whatever the analyst wrote there is free and safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import OperationalError, SealedExecutionError
from dpsql.result import Receipt, Result, ResultColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.flow.add_noise import Noisy
    from dpsql.flow.calibrate_noise import Calibrated
    from dpsql.flow.plan_query import Output, PublicTable
    from dpsql.flow.setting import Setting
    from dpsql.intervals import NoisyColumns


def finish_result(noisy: Noisy, setting: Setting) -> Result:
    calibrated = noisy.charged.calibrated
    if any(columns is None for columns in noisy.columns):
        raise SealedExecutionError(
            "the database could not run the query; the charge stands",
            hint="the data owner can run the SQL that explain() shows to see why",
        )
    tables = [release.planned.scratch_table for release in calibrated.releases]
    tables += [table.scratch_table for table in calibrated.public]
    public = [_read_public(table, setting) for table in calibrated.public]
    finished = setting.scratch.run(calibrated.finish, tables, [*noisy.columns, *public])
    visible = len(calibrated.outputs)
    columns = tuple(
        ResultColumn(name, kind, output.estimate, _noises(output, calibrated), dict(output.hidden))
        for name, kind, output in zip(finished.names[:visible], finished.types, calibrated.outputs, strict=False)
    )
    receipt = Receipt(
        cost=noisy.charged.cost,
        mechanism=calibrated.mechanism,
        recalled=noisy.charged.entry is None,
        refused=False,
        number=noisy.charged.entry.number if noisy.charged.entry else None,
    )
    return Result(columns, finished.rows, receipt)


def _read_public(table: PublicTable, setting: Setting) -> Mapping[str, np.ndarray]:
    try:
        return setting.engine.run(table.sql)
    except Exception as problem:
        raise OperationalError(
            f'the public table "{table.scan.table}" cannot be read',
            hint="the answer is kept: ask again when the table can be read, and it is free",
        ) from problem


def _noises(output: Output, calibrated: Calibrated) -> NoisyColumns:
    """The noise of each measure that the output may be made of, in the column's units."""
    if output.release is None:
        return {}
    measures = calibrated.releases[output.release].measures
    return {measure.bounded.column: (measure.noise, 1 << measure.shift) for measure in measures}

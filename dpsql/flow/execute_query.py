"""execute_query: the engine runs the releases that were charged. The exact numbers exist from here to add_noise only.

Whatever the engine says when it fails may quote a person's row, so none of it is repeated: not in the message, not in
the error's cause or context.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.errors import SealedExecutionError
from dpsql.sampling import CryptographicRandomness, uniform_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.flow.calibrate_noise import CalibratedRelease
    from dpsql.flow.charge_budget import Charged
    from dpsql.flow.setting import Setting

SALTS = 2**63


@dataclass(frozen=True)
class Fetched:
    charged: Charged
    columns: tuple[Mapping[str, np.ndarray] | None, ...] = field(repr=False)
    """For each release its exact columns; None for a recalled one."""


def execute_query(charged: Charged, setting: Setting) -> Fetched:
    releases = zip(charged.calibrated.releases, charged.recalled, strict=True)
    return Fetched(charged, tuple(_fetch(release, setting) if answer is None else None for release, answer in releases))


def _fetch(release: CalibratedRelease, setting: Setting) -> Mapping[str, np.ndarray]:
    # A fresh secret for every release decides which of a unit's groups count.
    query = release.planned.salted(uniform_below(SALTS, CryptographicRandomness()))
    try:
        columns = setting.engine.run(query)
        if all(columns[measure.bounded.column].dtype.kind == "i" for measure in release.measures):
            return columns
    except Exception:
        pass
    # Raised outside the except block: inside, Python would keep the engine's error as its context.
    raise sealed()


def sealed() -> SealedExecutionError:
    return SealedExecutionError(
        "the database could not run the query; the charge stands",
        hint="the data owner can run the SQL that explain() shows to see why",
    )

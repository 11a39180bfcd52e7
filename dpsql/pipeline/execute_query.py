"""execute_query: the engine runs the releases that were charged. The exact numbers exist from here to add_noise only.

Whatever the engine says when it fails may quote a person's row, so none of it is repeated: not in the message, not in
the error's cause or context. A connection that breaks, by a network's fault or a restart of the server, is made anew
and the same SELECT asked once more, under the same charge: nothing of the first was seen. But a row may have taken the
server down, and the delay tells: so this is on record first, and happens once until the owner has looked. What breaks
after that is a failure like any other. docs/proofs/ledger.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.engines.engine import ConnectionLost
from dpsql.sampling import CryptographicRandomness, uniform_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.environment import Environment

SALTS = 2**63


@dataclass(frozen=True)
class Fetched:
    charged: Charged
    columns: tuple[Mapping[str, np.ndarray] | None, ...] = field(repr=False)
    """For each release its exact columns; None for a recalled one, and where the engine failed."""


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
        columns = _run(query, release.planned.lasting, charged, environment)
        whole = all(columns[measure.column].dtype.kind == "i" for measure in release.planned.release.measures)
        return columns if whole else None
    except Exception:
        # Forgotten here, and told at the end, when nothing exact is left that a traceback could show.
        return None


def _run(
    query: str, lasting: Mapping[str, str], charged: Charged, environment: Environment
) -> Mapping[str, np.ndarray]:
    try:
        return environment.engine.run(query, lasting)
    except ConnectionLost:
        if charged.entry is not None and not environment.ledger.may_retry(charged.entry):
            raise
    return environment.engine.run(query, lasting)

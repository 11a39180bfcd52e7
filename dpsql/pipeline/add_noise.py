"""add_noise: exact integers in, noisy integers out. Groups that too few people share end here.

The noise is exact (docs/proofs/exact_sampling.md); statistics are drawn from their profiles. A group whose keys are not
public is kept if its noisy number of units reaches the threshold, and that very number decides. It is drawn first, and
nothing else is drawn for a group that is not kept: its data costs no time. What is kept is stored, so that the same
question has the same answer; nothing else of what the engine said outlives this stage. Releases that were run
together are stored together or, if one of them failed, not at all: so none tells which one it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.ledger.answers import Stored
from dpsql.aggregates.release import quantiles_in_order
from dpsql.mechanisms.k_norm import drawn_together
from dpsql.pipeline.stored_answers import as_text, from_text
from dpsql.pipeline.totals import with_totals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dpsql.aggregates.release import Bounded
    from dpsql.pipeline.calibrate_noise import CalibratedRelease
    from dpsql.pipeline.candidates import NoisyMeasure
    from dpsql.pipeline.charge_budget import Charged
    from dpsql.pipeline.environment import Environment
    from dpsql.pipeline.execute_query import Fetched
    from dpsql.statistics.draw import Refund


@dataclass(frozen=True)
class Noisy:
    charged: Charged
    columns: tuple[Mapping[str, np.ndarray] | None, ...]
    """For each release its keys, noisy measures and drawn statistics; None where it failed or was not asked."""
    refused: tuple[Refund, ...] = ()
    """What of the charge is given back, because tests refused."""

    @property
    def has_failed(self) -> bool:
        return any(columns is None for columns in self.columns)

    @property
    def refund(self) -> Fraction:
        return sum((part.epsilon for part in self.refused), Fraction(0))


def add_noise(fetched: Fetched, environment: Environment) -> Noisy:
    charged = fetched.charged
    columns: list[Mapping[str, np.ndarray] | None] = []
    stored = []
    for release, answer, exact in zip(charged.calibrated.releases, charged.recalled, fetched.columns, strict=True):
        if answer is not None:
            columns.append(_revived(answer, release))
            continue
        noisy = None if exact is None else _noisy_or_none(exact, release)
        columns.append(noisy)
        if noisy is not None:
            stored.append(Stored(release.fingerprint, release.subject, as_text(noisy, release.planned.found.written)))
    if any(column is None for column in columns) or (stored and not environment.ledger.keep(stored)):
        return Noisy(charged, (None,) * len(columns))
    return Noisy(charged, tuple(columns), _refused(charged, columns))


def _refused(charged: Charged, columns: list[Mapping[str, np.ndarray] | None]) -> tuple[Refund, ...]:
    """What tests refused in every group, so that it was not spent."""
    return tuple(
        part
        for release, answer, noisy in zip(charged.calibrated.releases, charged.recalled, columns, strict=True)
        if answer is None and noisy is not None
        for name, part in release.refusable.items()
        if np.ma.getmaskarray(noisy[name]).all()
    )


def _noisy_or_none(exact: Mapping[str, np.ndarray], release: CalibratedRelease) -> Mapping[str, np.ndarray] | None:
    try:
        return with_noise(exact, release)
    except Exception:
        return None  # an error from here could show exact numbers


def with_noise(exact: Mapping[str, np.ndarray], release: CalibratedRelease) -> Mapping[str, np.ndarray]:
    """All that is shown of a release: the keys, noisy measures and drawn statistics of the groups that may be seen."""
    plan = release.planned.release
    if plan.levels:
        return with_totals(exact, plan, lambda summed, level: _measured(summed, release, level.measures)[1])
    shown, noisy = _measured(exact, release, plan.measures)
    return noisy | _drawn(shown, release) | _tested(noisy, release)


def _measured(
    exact: Mapping[str, np.ndarray], release: CalibratedRelease, bounds: Sequence[Bounded]
) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray]]:
    """What the engine said of the groups that are shown; their keys and noisy measures."""
    noises = {measure.bounded.column: measure for measure in release.measures}
    counted: dict[str, np.ndarray] = {}
    for column in (part.column for part in bounds if part.column in release.thresholds):
        noisy = noised({column: exact[column]}, noises)[column]
        passed = noisy >= release.thresholds[column]
        exact, counted = {name: values[passed] for name, values in exact.items()}, {column: noisy[passed]}
    keys = {name: exact[name] for name in release.planned.release.key_names if name in exact}
    others = [part.column for part in bounds if part.column not in counted]
    return exact, keys | counted | noised({column: exact[column] for column in others}, noises)


def _drawn(exact: Mapping[str, np.ndarray], release: CalibratedRelease) -> dict[str, np.ndarray]:
    """The statistics; quantiles of the same values are put in order, unless a test refused one of them."""
    columns: dict[str, np.ndarray] = {
        drawn.column: draw.draw([exact[name] for name in drawn.profile]) for drawn, draw in release.statistics
    }
    for names in quantiles_in_order(release.planned.release.statistics):
        drawn = np.ma.stack([columns[name] for name in names])
        whole = ~np.ma.getmaskarray(drawn).any(axis=0)
        drawn[:, whole] = np.sort(drawn.data[:, whole], axis=0)
        columns |= zip(names, drawn, strict=True)
    return columns


def _tested(measures: Mapping[str, np.ndarray], release: CalibratedRelease) -> dict[str, np.ndarray]:
    """The clipped sums, without those whose clip too many units exceed."""
    return {
        part.test.clipped: np.ma.masked_array(
            measures[part.test.clipped], mask=measures[part.test.exceeding] > part.most
        )
        for part in release.tests
    }


def noised(columns: Mapping[str, NDArray[Any]], measures: Mapping[str, NoisyMeasure]) -> dict[str, np.ndarray]:
    """Each column with its noise, which is drawn for all of them together."""
    rows = len(next(iter(columns.values()), ()))
    drawn = drawn_together([measures[column].noise for column in columns], rows)
    return {
        column: _added(values, noise, measures[column].shift)
        for (column, values), noise in zip(columns.items(), drawn, strict=True)
    }


def _added(values: NDArray[Any], noise: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """Low bits that drown in the noise are rounded off first, to the nearest; the sum wraps like 64-bit integers do."""
    exact = np.asarray(values, dtype=np.int64)
    coarse = (exact + (1 << shift >> 1)) >> shift if shift else exact
    return (coarse + noise) << shift


def _revived(answer: str, release: CalibratedRelease) -> dict[str, np.ndarray]:
    columns = from_text(answer)
    keys = release.planned.release.key_names
    return {name: _keys(values) if name in keys else _numbers(values) for name, values in columns.items()}


def _numbers(values: list[int | None]) -> np.ndarray:
    unknown = [value is None for value in values]
    return np.ma.masked_array(np.array([value or 0 for value in values], dtype=np.int64), mask=unknown)


def _keys(values: list[Any]) -> np.ndarray:
    """Keys as objects, None for NULL; the post-processing gives them their types."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column

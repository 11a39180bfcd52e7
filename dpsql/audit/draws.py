"""Many noisy answers of one release, as cells that an audit can compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsql.aggregates.statistic import Matched
from dpsql.flow.add_noise import with_noise

if TYPE_CHECKING:
    from dpsql.audit.lower_bound import Answers
    from dpsql.flow.calibrate_noise import CalibratedRelease

Exact = dict[str, np.ndarray]
COPY = "_k0"


def noisy_cells(here: Exact, there: Exact, release: CalibratedRelease, runs: int) -> tuple[Answers, Answers]:
    """For each run a row, and for each group of either a cell for every column; NaN where nothing is shown."""
    keys = release.planned.release.key_names
    both = {key: place for place, key in enumerate(dict.fromkeys([*_keys(here, keys), *_keys(there, keys)]))}
    mine, its = ([both[key] for key in _keys(exact, keys)] for exact in (here, there))
    return _cells(here, mine, len(both), release, runs), _cells(there, its, len(both), release, runs)


def _keys(exact: Exact, names: list[str]) -> list[tuple[str, ...]]:
    """The groups, by the repr of their keys; without keys the one that there is."""
    if not names:
        return [()]
    return list(zip(*([repr(value) for value in exact[name].tolist()] for name in names), strict=True))


def _cells(exact: Exact, places: list[int], width: int, release: CalibratedRelease, runs: int) -> Answers:
    columns = release.planned.release.columns
    found = np.full((runs, width, len(columns)), np.nan)
    if not places:
        return found
    for start, copies in _batches(release, runs):
        # Every copy of the groups is drawn by itself, and its number stands where a key was.
        copied = {name: column[np.tile(np.arange(len(places)), copies)] for name, column in exact.items()}
        numbered = np.arange(len(places) * copies)
        noisy = with_noise(copied | dict.fromkeys(release.planned.release.key_names, numbered), release)
        shown = noisy.get(COPY, numbered)
        values = np.ma.stack([noisy[name] for name in columns], axis=-1).astype(np.float64)
        found[start + shown // len(places), np.array(places)[shown % len(places)]] = np.ma.filled(values, np.nan)
    return found


def _batches(release: CalibratedRelease, runs: int) -> list[tuple[int, int]]:
    """Where each begins, and how many copies it has: one where all groups are drawn together."""
    alone = any(isinstance(drawn.statistic, Matched) for drawn, _ in release.statistics)
    return [(start, 1) for start in range(runs)] if alone else [(0, runs)]

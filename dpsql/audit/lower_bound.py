"""How much epsilon is certainly lost between two inputs, from noisy answers alone.

Half of the answers choose a set of outcomes that tells the two inputs apart; the other half say how often it happens,
with exact (Clopper-Pearson) bounds. What is found is a lower bound on epsilon, but for one audit in 10^6: whoever
claims less is wrong. Jagielski, Ullman, Oprea 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsql.aggregates.statistic import Matched
from dpsql.pipeline.add_noise import with_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsql.pipeline.calibrate_noise import CalibratedRelease

FALSE_ALARM = 1e-6
HALVINGS = 50
NOTICEABLE = 3.0
"""A cell takes part if some outcome of it differs by so many standard deviations in the first half."""

Answers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def certain_epsilon(here: Answers, there: Answers, delta: float) -> float:
    """The largest epsilon for which P[here in S] > e^epsilon P[there in S] + delta is proven for some S, either way.

    A row is an answer; its numbers are cells, NaN where there is none.
    """
    first, second = _scores(here, there)
    return max(_one_way(first, second, delta), _one_way(-second, -first, delta))


def apart(here: Answers, there: Answers) -> float:
    """How much more answers speak for their own input than those of the other do; of few answers a hint, no proof."""
    first, second = _scores(here, there)
    return float(first[1::2].mean() - second[1::2].mean())


def _scores(here: Answers, there: Answers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For every answer how much it speaks for `here`: the logarithm of how often the first halves had its cells."""
    here, there = (np.asarray(part, dtype=np.float64).reshape(len(part), -1) for part in (here, there))
    first, second = np.zeros(len(here)), np.zeros(len(there))
    for cell in range(here.shape[1]):
        mine, its = _weighed(here[:, cell], there[:, cell])
        first += mine
        second += its
    return first, second


def _weighed(here: NDArray[np.float64], there: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # Few enough intervals that each is met often, so that the best ones are not just the luckiest.
    seen = np.concatenate((here[::2], there[::2]))
    present = seen[~np.isnan(seen)]
    shares = np.linspace(0, 1, int(np.sqrt(len(here)) / 2))
    edges = np.unique(np.floor(np.quantile(present, shares))) if len(present) else np.empty(0)

    def places(values: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right"))

    mine, its = places(here), places(there)
    counts = [np.bincount(part[::2], minlength=len(edges) + 2) for part in (mine, its)]
    if (np.abs(counts[0] - counts[1]) / np.sqrt(counts[0] + counts[1] + 1)).max() < NOTICEABLE:
        return np.zeros(len(here)), np.zeros(len(there))
    weights = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    return weights[mine], weights[its]


def _one_way(likely: NDArray[np.float64], unlikely: NDArray[np.float64], delta: float) -> float:
    """With S all answers whose score is at least the best limit."""
    limits = np.unique(np.concatenate((likely[::2], unlikely[::2])))
    p, q = (1 - np.searchsorted(np.sort(part[::2]), limits) / len(part[::2]) for part in (likely, unlikely))
    chosen = limits[int(np.argmax(_roughly(p, q, len(likely[::2]), delta)))]
    found, met = (int(np.count_nonzero(part[1::2] >= chosen)) for part in (likely, unlikely))
    # Two ways and two ends share the false alarms.
    least = lowest(found, len(likely[1::2]), FALSE_ALARM / 4) - delta
    most = 1 - lowest(len(unlikely[1::2]) - met, len(unlikely[1::2]), FALSE_ALARM / 4)
    return float(np.log(least / most)) if least > 0 else -np.inf


def _roughly(p: NDArray[np.float64], q: NDArray[np.float64], runs: int, delta: float) -> NDArray[np.float64]:
    """What the bound will be, about: five standard deviations off on either side."""
    low = p - 5 * np.sqrt(p * (1 - p) / runs) - 12 / runs - delta
    high = q + 5 * np.sqrt(q * (1 - q) / runs) + 12 / runs
    bounds: NDArray[np.float64] = np.log(np.maximum(low, 1e-300) / high)
    return bounds


def lowest(found: int, runs: int, tail: float) -> float:
    """Clopper and Pearson's bound: a probability below it is met so often in so many runs less often than `tail`.

    >>> round(lowest(90, 100, 0.025), 4)
    0.8238
    """
    if found == 0:
        return 0.0
    logarithms = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, runs + 1)))))
    k = np.arange(found, runs + 1)
    ways = logarithms[runs] - logarithms[k] - logarithms[runs - k]
    low, high = 0.0, found / runs
    for _ in range(HALVINGS):
        p = (low + high) / 2
        met = np.exp(ways + k * np.log(p) + (runs - k) * np.log1p(-p)).sum()
        low, high = (p, high) if met <= tail else (low, p)
    return low


# Many noisy answers of one release, as cells that an audit can compare.

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

"""An audit: how much epsilon a mechanism certainly loses between two inputs, from its answers alone.

Half of the answers choose the set of outcomes that tells the two inputs apart best; the other half say how often it
happens, with exact (Clopper-Pearson) bounds. What is found is a lower bound on epsilon, but for one audit in 10^6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

Answers = NDArray[np.int64]
Counts = NDArray[np.int64]

FALSE_ALARM = 1e-6


def certain_epsilon(here: Answers, there: Answers, delta: float) -> float:
    """The largest epsilon for which P[here in S] > e^epsilon P[there in S] + delta is proven for some S, either way."""
    return max(_one_way(here, there, delta), _one_way(there, here, delta))


def _one_way(here: Answers, there: Answers, delta: float) -> float:
    # Few enough intervals that each is met often, so that the best ones are not just the luckiest.
    shares = np.linspace(0, 1, int(np.sqrt(len(here)) / 2))
    edges = np.unique(np.quantile(np.concatenate((here[::2], there[::2])), shares).astype(int))

    def counted(answers: Answers) -> Counts:
        return np.bincount(np.searchsorted(edges, answers, side="right"), minlength=len(edges) + 1)

    seen_here, seen_there = counted(here[::2]), counted(there[::2])
    order = np.argsort(-(seen_here + 0.5) / (seen_there + 0.5))
    runs = np.array([len(here[::2]), len(there[::2])])
    bounds = _bounds(np.cumsum(seen_here[order]), np.cumsum(seen_there[order]), *runs, delta)
    chosen = order[: int(np.argmax(bounds)) + 1]
    found_here, found_there = (counted(answers[1::2])[chosen].sum(keepdims=True) for answers in (here, there))
    return float(_bounds(found_here, found_there, len(here[1::2]), len(there[1::2]), delta)[0])


def _bounds(here: Counts, there: Counts, runs_here: int, runs_there: int, delta: float) -> NDArray[np.float64]:
    """ln((p - delta) / q) with p from below and q from above; two ways and two ends share the false alarms."""
    tail = FALSE_ALARM / 4
    p = np.where(here > 0, stats.beta.ppf(tail, np.maximum(here, 1), runs_here - here + 1), 0.0)
    inside = np.minimum(there, runs_there - 1)
    q = np.where(there < runs_there, stats.beta.ppf(1 - tail, inside + 1, runs_there - inside), 1.0)
    return np.log(np.maximum(p - delta, 1e-300) / q)


@pytest.fixture(name="certain_epsilon")
def certain_epsilon_fixture() -> Callable[[Answers, Answers, float], float]:
    return certain_epsilon

"""The longest damped stretch, against all pairs; and no data makes it slower."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.mechanisms import local_sensitivity
from dpsql.mechanisms.local_sensitivity import largest_stretch

LENGTH = 1 << 14


def every_pair(above: NDArray[np.int64], below: NDArray[np.int64], rows: int, b: float, most: int) -> float:
    pairs = ((s, t) for s in range(len(below)) for t in range(len(above)) if 0 < s + t <= most and (s + t) % rows == 0)
    return max((int(above[t]) + int(below[s])) * np.exp(-b * ((s + t) // rows - 1)) for s, t in pairs)


def rising(gaps: list[int], length: int) -> NDArray[np.int64]:
    """From 0, in steps that are repeated as often as it takes."""
    return np.concatenate(([0], np.cumsum(np.resize(gaps, length))))


gaps = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**40)), min_size=1, max_size=12)


@given(gaps, gaps, st.integers(1, 4), st.integers(1, 7), st.sampled_from([1e-6, 0.05, 0.5, 3.0]))
def test_it_is_the_largest(up: list[int], down: list[int], rows: int, steps: int, b: float) -> None:
    """Pairs that reach farther than is known may count or not: they are below the whole range."""
    above, below = rising(up, rows * steps), rising(down, rows * steps)
    found = largest_stretch(above, below, rows, b)
    known = every_pair(above, below, rows, b, rows * steps)
    assert known * (1 - 1e-12) <= found <= every_pair(above, below, rows, b, 2 * rows * steps) * (1 + 1e-12)


GEOMETRIC = np.floor(np.exp(np.arange(LENGTH + 1) * 40 / LENGTH)).astype(np.int64) - 1
LINEAR = np.arange(LENGTH + 1, dtype=np.int64) * 1000
FLAT = np.zeros(LENGTH + 1, dtype=np.int64)


@pytest.mark.parametrize("rows", [1, 2, 1024])
def test_no_data_takes_longer(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rises that tie all local_sensitivity, that favour the shortest or the longest, or none at all.

    In each of log2(n) rounds n values are compared, and one more for each of those that share a fence.
    """
    compared: list[int] = []
    reduceat = np.maximum.reduceat

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        class maximum:  # noqa: N801 - numpy's name
            @staticmethod
            def reduceat(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
                compared.append(len(values))
                return reduceat(values, starts)

    monkeypatch.setattr(local_sensitivity, "np", Counting())
    b, rounds = 40 * rows / LENGTH, (LENGTH // rows).bit_length()
    for above, below in product((GEOMETRIC, LINEAR, FLAT), repeat=2):
        compared.clear()
        largest_stretch(above, below, rows, b)
        assert len(compared) == rounds
        assert max(compared) <= 2 * LENGTH

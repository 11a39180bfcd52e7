"""Sources whose words are known, and the chi-square test that both samplers must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats


class FixedWords:
    def __init__(self, words: Iterable[int]) -> None:
        self.left = list(words)

    def words(self, n: int) -> NDArray[np.uint64]:
        assert len(self.left) >= n, "the sampler wants more bits than it should need"
        taken, self.left = self.left[:n], self.left[n:]
        return np.array(taken, dtype=np.uint64)


@pytest.fixture
def fixed_words() -> type[FixedWords]:
    return FixedWords


Survival = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def p_value(draws: NDArray[np.int64], scale: float, survival: Survival) -> float:
    """Chi-square of `draws` against a symmetric integer distribution, given P[X >= t] for t >= 1.

    The bins are about scale/25 wide out to 6 scales, or single integers; those expected to hold few draws are joined.
    """
    cuts = np.unique(np.ceil(scale * np.linspace(0.04, 6, 150)))
    beyond = survival(cuts)
    above = np.concatenate(([1.0], 1 - beyond[::-1], beyond, [0.0]))
    expected = -np.diff(above) * len(draws)
    edges = np.concatenate((1 - cuts[::-1], cuts)).astype(np.int64)
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(expected)).astype(float)
    few = expected < 20
    if few.any():
        expected = np.append(expected[~few], expected[few].sum())
        observed = np.append(observed[~few], observed[few].sum())
    return float(stats.chisquare(observed, expected, sum_check=False).pvalue)


@pytest.fixture(name="p_value")
def p_value_fixture() -> Callable[..., float]:
    return p_value

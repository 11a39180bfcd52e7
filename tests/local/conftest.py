"""A source of coins that falls the same way in every run, so that a statistical test has one outcome."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray


class Seeded:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def words(self, n: int) -> NDArray[np.uint64]:
        return self.generator.integers(0, 2**64, n, dtype=np.uint64)


@pytest.fixture
def coins() -> Seeded:
    return Seeded(13)

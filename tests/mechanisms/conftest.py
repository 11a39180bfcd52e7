"""The audit of the package, for mechanisms that are asked by themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.verification.audit import certain_epsilon

Answers = NDArray[np.int64]


@pytest.fixture(name="certain_epsilon")
def certain_epsilon_fixture() -> Callable[[Answers, Answers, float], float]:
    return certain_epsilon

"""The winner without noise: how many units away is a database with another winner?

A unit counts at most c for each value, so it moves the lead of one value over another by at most c: whether it comes or
goes, it moves both counts the same way. With g the lead of the most frequent value over the second,

    dist = max(0, floor((g - 1) / c))

is 0 wherever one unit could change the winner, and one unit moves it by at most 1. `StabilityTest` then decides
whether the winner is released as it is. Proof: docs/proofs/stable_values.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def distances(leads: NDArray[np.int64], per_value: int) -> NDArray[np.int64]:
    """For each group, from the lead of its winner, the distance to data with another one.

    A value that does not occur counts 0, so a lone value leads by all that it counts.

    >>> distances(np.array([20, 0, 5]), per_value=2)
    array([9, 0, 2])
    """
    return np.maximum((leads - 1) // per_value, 0)

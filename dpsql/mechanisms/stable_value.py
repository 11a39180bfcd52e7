"""Winners without noise: how many units away is a database with other winners?

A unit counts at most c for each value, so it moves the lead of one value over another by at most c: whether it comes or
goes, it moves both counts the same way. With g the least lead among the winners and over the first loser,

    dist = max(0, floor((g - 1) / c))

is 0 wherever one unit could change the winners, and one unit moves it by at most 1. `StabilityTest` then decides
whether the winners are released as they are. Proof: docs/proofs/stable_values.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def distances(leading: NDArray[np.int64], per_value: int) -> NDArray[np.int64]:
    """For each row of counts, from the first winner down to the first loser, the distance to another order of winners.

    A value that does not occur counts 0, so a lone value is followed by a 0.

    >>> distances(np.array([[120, 100], [7, 7], [5, 0]]), per_value=2)
    array([9, 0, 2])
    """
    if per_value < 1 or leading.ndim != 2 or leading.shape[1] < 2 or (np.diff(leading) > 0).any():
        raise ValueError("a distance needs the counts of winners and first loser, falling, and at least 1 per value")
    least_lead: NDArray[np.int64] = -np.diff(leading).max(axis=1)
    return np.maximum((least_lead - 1) // per_value, 0)

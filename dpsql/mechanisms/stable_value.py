"""Stable values: the exact mode, if databases with another mode are many units away.

A unit adds at most c to each count, and its arrival or departure moves all counts in the same direction, so it changes
the lead of one value over another by at most c. With g the lead of the most frequent value over the second,

    dist = max(0, floor((g - 1) / c))

is 0 wherever one unit could change the mode, and one unit changes it by at most 1. `StabilityTest` then decides whether
the mode is released. Proof: docs/proofs/stable_values.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def distances(leads: NDArray[np.int64], per_value: int) -> NDArray[np.int64]:
    """The distance of each group to data with another winner, from the lead of its winner.

    A value that does not occur counts 0, so a lone value leads by all that it counts.

    >>> distances(np.array([20, 0, 5]), per_value=2)
    array([9, 0, 2])
    """
    return np.maximum((leads - 1) // per_value, 0)

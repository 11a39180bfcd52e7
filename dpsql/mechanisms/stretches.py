"""The largest of (above_t + below_s) e^(-b k) over all s and t with s + t = rows * (k + 1), in a fixed number of steps.

For one s the terms are lines in below_s with slopes e^(-b t): the larger below_s, the steeper the best of them. So the
best t falls as s grows, and once it is known for some s it fences those in between: log(n) rounds of n comparisons
instead of n^2. How many there are depends on the lengths alone. Proof: docs/proofs/local_sensitivity.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def largest_stretch(above: NDArray[np.int64], below: NDArray[np.int64], rows: int, b: float) -> float:
    """`above` and `below` begin with a 0, rise, and are equally long: a whole number of times `rows`, and one more.

    In float64, less than 2^-40 off, relatively, if b k stays below 256.

    >>> [largest_stretch(np.array([0, 1, 9]), np.array([0, 4, 5]), 1, b) for b in (0.0, 100.0)]
    [13.0, 4.0]
    """
    steps = (len(above) - 1) // rows
    if not steps:
        return 0.0
    damping = np.exp(-b * np.arange(steps))
    # A row for each remainder of t by `rows`, from 1 on: its partners are the s with the opposite remainder.
    ups = above[1:].astype(np.float64).reshape(steps, rows).T
    downs = below[:-1].astype(np.float64).reshape(steps, rows).T[::-1]
    alone = (below[rows::rows] * damping).max()
    return max(float(alone), float((_best(ups * damping, downs, damping) * damping).max()))


def _best(weighed: Table, downs: Table, damping: NDArray[np.float64]) -> Table:
    """For each row and each j the largest weighed_i + downs_j damping_i."""
    rows, steps = downs.shape
    best = np.empty((rows, steps))
    stride = 1 << steps.bit_length() - 1
    # The best i of column j stands at j + 1; before the first it could be anywhere up to the end.
    fences = np.zeros((rows, steps + stride + 1), dtype=np.int64)
    fences[:, 0] = steps - 1
    while stride:
        asked = np.arange(stride - 1, steps, 2 * stride)
        least, most = fences[:, asked + 1 + stride].ravel(), fences[:, asked + 1 - stride].ravel()
        lengths = most - least + 1
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        i = np.arange(len(owner)) + (least - starts)[owner]
        values = weighed[owner // len(asked), i] + downs[:, asked].ravel()[owner] * damping[i]
        found = np.maximum.reduceat(values, starts)
        reached = np.flatnonzero(values == found[owner])
        least[owner[reached]] = i[reached]
        fences[:, asked + 1] = least.reshape(rows, -1)
        best[:, asked] = found.reshape(rows, -1)
        stride //= 2
    return best

"""What reports say about all people together: how often each value is the truth, and how sure that is.

The error is that of the coins alone: the people are who they are. docs/proofs/local.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """For each value of the domain how many of the n people have it, and the standard error of that."""

    values: tuple[object, ...]
    n: int
    counts: NDArray[np.float64]
    standard_errors: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        return self.counts / max(1, self.n)

    def intervals(self, level: float = LEVEL) -> pd.DataFrame:
        """A row for each value: its count between count_low and count_high."""
        import pandas as pd

        width = quantile(level) * self.standard_errors
        columns = {"count": self.counts, "count_low": self.counts - width, "count_high": self.counts + width}
        return pd.DataFrame({"value": pd.Series(self.values, dtype=object), **columns})

    def projected(self) -> Estimate:
        """The nearest counts that could be: none below 0, and n together. Better on the whole, no longer unbiased."""
        return replace(self, counts=on_simplex(self.counts, self.n))


def quantile(level: float) -> float:
    """How many standard errors on either side hold the truth so often."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ProgrammingError(f"a confidence level lies between 0 and 1, unlike {level!r}", hint="write 0.95")
    return NormalDist().inv_cdf((1 + level) / 2)


def on_simplex(counts: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """The point nearest to `counts`, by Euclid, among those that are not negative and sum to n.

    All counts are lowered by the same amount and held at 0 (Duchi et al. 2008; Norm-Sub in Wang et al. 2020).

    >>> on_simplex(np.array([60.0, 50.0, -10.0]), 100)
    array([55., 45.,  0.])
    """
    falling = np.sort(counts)[::-1]
    lowered = (np.cumsum(falling) - n) / np.arange(1, len(counts) + 1)
    kept = np.flatnonzero(falling > lowered)
    amount = lowered[kept[-1]] if len(kept) else lowered[-1]
    nearest: NDArray[np.float64] = np.maximum(counts - amount, 0.0)
    return nearest

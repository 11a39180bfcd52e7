"""The mode of public values, by permute-and-flip.

Visit the values in random order, and take each with probability exp(-rate * its deficit to the most frequent), which is
always taken. The result is uniform among all values whose coin came up, so all coins are flipped, and the time tells
nothing about the counts. It is never worse than the exponential mechanism at the same epsilon, and needs exact coins
only.

A unit adds at most `per_value` to each count, and its arrival or departure moves all counts in the same direction. So a
rate of epsilon / per_value costs epsilon, without the factor 2 of other choices.
Proof: docs/proofs/permute_and_flip.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting.events import Event, PureRelease
from dpsql.sampling import CryptographicRandomness, Randomness, bernoulli_exp, uniform_below

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class MostFrequent:
    epsilon: Fraction
    per_value: int

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.per_value < 1:
            raise ValueError("a choice of the most frequent needs an epsilon above 0 and a count per value")

    @property
    def rate(self) -> Fraction:
        return self.epsilon / self.per_value

    @property
    def event(self) -> Event:
        return PureRelease(self.epsilon)

    def sample(self, counts: NDArray[np.int64], source: Randomness | None = None) -> int:
        """Draws the index of a count, with high probability a large one."""
        source = source or CryptographicRandomness()
        (survivors,) = np.nonzero(bernoulli_exp(counts.max() - counts, self.rate, source))
        return int(survivors[uniform_below(len(survivors), source)])

    def shortfall(self, candidates: int, level: float | Fraction) -> int:
        """The number of rows by which the answer may trail the most frequent value, with probability `level`."""
        if not 0 <= level < 1:
            raise ValueError(f"a confidence level lies in [0, 1), unlike {level}")
        return ceil(Fraction(log(candidates / (1 - Fraction(level)))) / self.rate)

"""Propose-test-release: noise for a proposed sensitivity, if a private test finds that it holds far around the data.

This is for proposals on which privacy depends: a bound on what one unit can change near this data.
Proof: docs/proofs/propose_test_release.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.events import ApproximateRelease, Event
from dpsql.mechanisms.laplace import LaplaceNoise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A distance this far above the threshold passes but for 2^-SURE; more need not be known.
SURE = 40

# Then noise leaves 64 bits with a probability that is far below any delta.
WIDEST = 1 << 50


@dataclass(frozen=True)
class StabilityTest:
    """The test: passes if a distance of sensitivity 1, plus noise, exceeds a threshold.

    >>> test = StabilityTest(Fraction(1), Fraction(1, 10**6))
    >>> test.threshold, test.limit
    (13, 42)
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if self.epsilon * WIDEST < 1:
            raise ValueError("a test needs an epsilon above 0, and not too small")
        _ = self.threshold  # refuses a delta that has none

    @property
    def noise(self) -> LaplaceNoise:
        return LaplaceNoise(1 / self.epsilon)

    @property
    def threshold(self) -> int:
        """The least threshold that a group at distance 0 passes with probability at most delta."""
        return self.noise.threshold(1, self.delta) - 2

    @property
    def limit(self) -> int:
        """The cap on the distance; larger distances count as this one."""
        return self.threshold + 1 + self.noise.half_width(1 - Fraction(1, 2**SURE))

    @property
    def event(self) -> Event:
        """The privacy event of the test alone, whatever its outcome; the release has its own."""
        return ApproximateRelease(self.epsilon, self.delta)

    def passes(self, distances: NDArray[np.int64]) -> NDArray[np.bool_]:
        noisy = distances + self.noise.sample(len(distances))
        return noisy > self.threshold

    def pass_probability(self, distance: int) -> float:
        return self.noise.tail(self.threshold + 1 - distance)

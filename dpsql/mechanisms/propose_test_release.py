"""Propose, test, release: noise for what the analyst proposes, if a private test finds the data far from breaking it.

`StabilityTest` is for proposals that privacy leans on: a bound on what one unit can do near this data. `ClipTest` is
for those that only accuracy leans on: a clip that few units exceed. Proof: docs/proofs/propose_test_release.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.events import ApproximateRelease, Event, PureRelease
from dpsql.mechanisms.laplace import LaplaceNoise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpsql.sampling import Randomness

# A distance this far above the threshold passes but for 2^-SURE; more need not be known.
SURE = 40

# Then noise leaves 64 bits with a probability that is far below any delta.
WIDEST = 1 << 50


def _noise(groups: int, epsilon: Fraction) -> LaplaceNoise:
    if groups < 1 or groups > WIDEST * epsilon:
        raise ValueError("a test needs an epsilon above 0, not too small, and at least one group")
    return LaplaceNoise(groups / epsilon)


@dataclass(frozen=True)
class StabilityTest:
    """Passes a group if its distance, plus noise, is above a threshold.

    One unit moves the distance by at most 1, in at most `groups` groups.

    >>> test = StabilityTest(Fraction(1), Fraction(1, 10**6))
    >>> test.threshold, test.limit
    (13, 42)
    """

    epsilon: Fraction
    delta: Fraction
    groups: int = 1

    def __post_init__(self) -> None:
        # Refuses what has no threshold.
        _ = self.threshold

    @property
    def noise(self) -> LaplaceNoise:
        return _noise(self.groups, self.epsilon)

    @property
    def threshold(self) -> int:
        """The least t such that groups at distance 0, as many as a unit can be in, all fail but for delta."""
        return self.noise.threshold(self.groups, self.delta) - 2

    @property
    def limit(self) -> int:
        """Distances beyond this count as this."""
        return self.threshold + 1 + self.noise.half_width(1 - Fraction(1, 2**SURE))

    @property
    def event(self) -> Event:
        """What the test costs, whatever it says. What is released when it passes is paid for by itself."""
        return ApproximateRelease(self.epsilon, self.delta)

    def passes(self, distances: NDArray[np.int64], source: Randomness | None = None) -> NDArray[np.bool_]:
        noisy = distances + self.noise.sample(len(distances), source)
        return noisy > self.threshold

    def pass_probability(self, distance: int) -> float:
        return self.noise.tail(self.threshold + 1 - distance)


@dataclass(frozen=True)
class ClipTest:
    """Passes a group if, up to noise, at most `allowed` of its units exceed the proposed clip. epsilon-DP, no delta."""

    epsilon: Fraction
    allowed: int
    groups: int = 1

    def __post_init__(self) -> None:
        _ = self.noise

    @property
    def noise(self) -> LaplaceNoise:
        return _noise(self.groups, self.epsilon)

    @property
    def event(self) -> Event:
        return PureRelease(self.epsilon)

    def passes(self, exceeding: NDArray[np.int64], source: Randomness | None = None) -> NDArray[np.bool_]:
        noisy = exceeding + self.noise.sample(len(exceeding), source)
        return noisy <= self.allowed

    def pass_probability(self, exceeding: int) -> float:
        """P[X <= allowed - exceeding], by symmetry."""
        return self.noise.tail(exceeding - self.allowed)

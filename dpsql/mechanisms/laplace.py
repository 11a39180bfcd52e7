"""Discrete Laplace noise: epsilon-DP exactly, with no delta. Proof: docs/proofs/discrete_laplace.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.accounting.events import Event, Laplace
from dpsql.mechanisms.additive import Box, Noise, PureMechanism
from dpsql.sampling import discrete_laplace

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class LaplaceNoise(Noise):
    """P[X = k] = (1 - q)/(1 + q) q^|k| with q = exp(-1/scale). Scale 0, always 0, is for sensitivity 0.

    >>> LaplaceNoise(Fraction(10)).half_width(0.95)
    30
    """

    name: ClassVar[str] = "laplace"
    scale: Fraction

    def __post_init__(self) -> None:
        if self.scale < 0:
            raise ValueError("a scale is not negative")

    @property
    def kurtosis(self) -> float:
        return 3.0

    @property
    def std(self) -> float:
        rate = self._rate
        return sqrt(2) * exp(-rate / 2) / -expm1(-rate)

    def sample(self, n: int) -> NDArray[np.int64]:
        return discrete_laplace(self.scale, n) if self.scale else np.zeros(n, dtype=np.int64)

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        tails: NDArray[np.float64] = np.exp(-self._rate * t) / (1 + exp(-self._rate))
        return tails

    @property
    def _rate(self) -> float:
        """1/scale; for scales so small that it would overflow (or 0) a number with the same effect."""
        return 1 / max(float(self.scale), 1e-200)


def calibrated(l1: int, epsilon: Fraction) -> LaplaceNoise:
    """The noise that makes integers that one unit moves by at most `l1`, in total, epsilon-DP.

    >>> calibrated(3, Fraction(1, 10))
    LaplaceNoise(scale=Fraction(30, 1))
    """
    if l1 < 0 or epsilon <= 0:
        raise ValueError("calibration needs a sensitivity >= 0 and an epsilon > 0")
    return LaplaceNoise(Fraction(l1) / epsilon)


class LaplaceMechanism(PureMechanism):
    """The Laplace mechanism: all groups of one unit share one L1 sensitivity."""

    def noise(self, scale: Fraction, box: Box) -> LaplaceNoise:
        return LaplaceNoise(scale)

    def event(self, epsilon: Fraction) -> Event:
        return Laplace(1 / epsilon)

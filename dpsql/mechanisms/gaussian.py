"""Rounded Gaussian noise: (L2/sigma)-GDP exactly, in any dimension. Proof: docs/proofs/rounded_gaussian.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, erfc, isqrt, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsql.mechanisms.noise import Noise
from dpsql.sampling import rounded_gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Enough that rounding sigma up is invisible, few enough that fractions stay short.
SIGNIFICANT_BITS = 60


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """X = floor(sigma Z + 1/2), Z standard normal. Sigma 0, always 0, is for what nobody can change.

    >>> GaussianNoise(Fraction(10)).half_width(0.95)
    20
    """

    name: ClassVar[str] = "gaussian"
    sigma: Fraction

    def __post_init__(self) -> None:
        if self.sigma < 0:
            raise ValueError("a standard deviation is not negative")

    @property
    def std(self) -> float:
        """Rounding adds 1/12 to the variance, up to terms like exp(-2 pi^2 sigma^2): small sigmas need the series."""
        if self.sigma >= 2:
            return sqrt(float(self.sigma) ** 2 + 1 / 12)
        k = np.arange(1.0, 100.0)
        return sqrt(2 * float(np.sum((2 * k - 1) * self.survival(k))))

    def sample(self, n: int) -> NDArray[np.int64]:
        return rounded_gaussian(self.sigma, n) if self.sigma else np.zeros(n, dtype=np.int64)

    def survival(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        # For sigmas so small that the quotient would overflow (or 0) a number with the same effect.
        z = (t - 0.5) / (max(float(self.sigma), 1e-200) * sqrt(2))
        return np.array([erfc(x) for x in z.tolist()]) / 2


def calibrated(l2_squared: int | Fraction, noise_multiplier: Fraction) -> GaussianNoise:
    """The noise of sigma = noise_multiplier * L2, rounded up, for integers that one unit moves by at most L2.

    >>> calibrated(4, Fraction(3, 2))
    GaussianNoise(sigma=Fraction(3, 1))
    """
    if l2_squared < 0 or noise_multiplier <= 0:
        raise ValueError("calibration needs a sensitivity >= 0 and a noise multiplier > 0")
    variance = l2_squared * noise_multiplier**2
    if variance == 0:
        return GaussianNoise(Fraction(0))
    bits_of_sigma = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    unit = Fraction(2) ** (bits_of_sigma - SIGNIFICANT_BITS)
    # The least m with m^2 >= x is that with m^2 >= ceil(x).
    multiple = isqrt(ceil(variance / unit**2) - 1) + 1
    return GaussianNoise(multiple * unit)

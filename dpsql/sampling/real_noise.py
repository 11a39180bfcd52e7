"""Real noise, rounded: the whole number next to center + scale * Z, for Z Cauchy or Laplace.

The scale may depend on the data, so the integer noises will not do: what is released has to be a function of the ideal
real number. It is: Z is revealed digit by digit until the rounding is decided. Proof: docs/proofs/exact_sampling.md,
section 7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal, getcontext
from fractions import Fraction
from math import floor

import numpy as np

from dpsql.sampling.bernoulli import LazyUniform
from dpsql.sampling.enclosure import LEAST_RELIABLE, LIBM_ERROR, LOW_63_BITS, common_floor, cos_sin, exactly, precise
from dpsql.sampling.randomness import CryptographicRandomness, Randomness
from dpsql.sampling.rounded_gaussian import MOST_RELIABLE

Interval = tuple[Decimal, Decimal]

# Eight roundings of float64, relatively; and what float64 holds with room to spare.
ROUNDING = 2.0**-50
LARGEST = 1 << 400


class Standard(ABC):
    """A real number of which some digits are known."""

    def __init__(self, source: Randomness) -> None:
        self.word = int(source.words(1)[0])
        self.uniform = LazyUniform(self.word & LOW_63_BITS, 63, source)

    def reveal(self) -> None:
        self.uniform.reveal()

    @abstractmethod
    def estimate(self) -> tuple[float, float]:
        """Z by float64, from the first word, and how far off it is at most, if `trusted`."""

    @property
    def trusted(self) -> bool:
        """Neither end of U so near that float64 blurs it."""
        return LEAST_RELIABLE <= self.uniform.numerator <= MOST_RELIABLE

    @abstractmethod
    def enclosure(self) -> Interval | None:
        """Where it lies, up to roundings of 10^(6 - precision) of 1 + |Z|; None while one end is infinite."""


class Cauchy(Standard):
    """cot(pi U)."""

    def estimate(self) -> tuple[float, float]:
        angle = self.uniform.numerator * (np.pi / 2**63)
        z = float(np.cos(angle) / np.sin(angle))
        return z, 8 * LIBM_ERROR * (1 + z * z)

    def enclosure(self) -> Interval | None:
        v, bits = self.uniform.numerator, self.uniform.bits
        if v == 0 or v + 1 == 1 << bits:
            return None
        return _cotangent(v + 1, bits)[0], _cotangent(v, bits)[1]


def _cotangent(v: int, bits: int) -> Interval:
    """cot(pi v / 2^bits), from below and from above."""
    cosine, sine = cos_sin(Decimal(v) / Decimal(2 << bits))
    error = Decimal(10) ** (6 - getcontext().prec)
    ends = [(cosine + i * error) / (sine + j * error) for i in (-1, 1) for j in (-1, 1)]
    return min(ends), max(ends)


class Laplace(Standard):
    """-ln U with a fair sign."""

    def estimate(self) -> tuple[float, float]:
        z = -float(np.log(self.uniform.numerator * 2.0**-63))
        return -z if self.word >> 63 else z, 16 * LIBM_ERROR

    def enclosure(self) -> Interval | None:
        v, unit = self.uniform.numerator, Decimal(1 << self.uniform.bits)
        if v == 0:
            return None
        low, high = -((v + 1) / unit).ln(), -(v / unit).ln()
        return (-high, -low) if self.word >> 63 else (low, high)


def rounded_real(
    center: Fraction, scale: Fraction, noise: type[Standard], low: int, high: int, source: Randomness | None = None
) -> int:
    """floor(center + scale Z + 1/2), clamped to [low, high]. Some 20 microseconds, or 500 if float64 is in doubt."""
    if scale == 0:
        return min(max(floor(center + Fraction(1, 2)), low), high)
    z = noise(source or CryptographicRandomness())
    if z.trusted and (quick := _quickly(center, scale, *z.estimate(), low, high)) is not None:
        return quick
    while True:
        with precise(z.uniform.bits):
            ends = z.enclosure()
            rounded = None if ends is None else _rounded(center, exactly(scale), ends, low, high)
        if rounded is not None:
            return rounded
        z.reveal()


def _quickly(center: Fraction, scale: Fraction, z: float, radius: float, low: int, high: int) -> int | None:
    """The floor by float64, if that decides it: with three roundings of the center, the scale and their sum."""
    if max(abs(center), scale) >= LARGEST:
        return None
    middle, width = float(center) + 0.5, float(scale)
    error = width * (radius + (abs(z) + 1) * ROUNDING) + (abs(middle) + 1) * ROUNDING
    ends = (middle + width * z - error, middle + width * z + error)
    least, most = (floor(min(max(end, low), high)) for end in ends)
    return least if least == most else None


def _rounded(center: Fraction, scale: Decimal, ends: Interval, low: int, high: int) -> int | None:
    """The floor, if all of the interval has the same. Everything was computed with a handful of roundings."""
    middle, (least, most) = exactly(center) + Decimal("0.5"), ends
    size = abs(middle) + scale * (1 + max(abs(least), abs(most)))
    slack = size * Decimal(10) ** (10 - getcontext().prec)
    bounds = (middle + scale * least - slack, middle + scale * most + slack)
    return common_floor(*(min(max(end, Decimal(low)), Decimal(high)) for end in bounds))

"""Rounded real noise: the integer nearest to center + scale * Z, for Z Gaussian, Cauchy or Laplace.

The scale may depend on the data, so the integer noises will not do: what is released has to be a function of the ideal
real number. It is: Z is revealed digit by digit until the rounding is decided. Proof: docs/proofs/exact_sampling.md,
section 7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal, getcontext
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from dpsql.sampling.bernoulli import LazyUniform
from dpsql.sampling.randomness import (
    CHUNK,
    LEAST_RELIABLE,
    LIBM_ERROR,
    LOW_63_BITS,
    CryptographicRandomness,
    Randomness,
    check_width,
    common_floor,
    cos_sin,
    exactly,
    precise,
    wrapped,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

# -- rounded gaussian --------------------------------------------------------------------------------------------------
# Rounded Gaussian noise: the whole number next to sigma Z, Z a real standard normal.
#
# Two draws at once from two uniforms (Box-Muller): with R = sqrt(-2 ln U) and an angle of V turns,
#
#     X = floor(sigma R cos(2 pi V) + 1/2),    Y = floor(sigma R sin(2 pi V) + 1/2).
#
# Proof: docs/proofs/exact_sampling.md, section 3.

# Above 1 - 2^-15 the logarithm is so small that the square root blows up its error.
MOST_RELIABLE = (1 << 63) - (1 << 48)


def rounded_gaussian(sigma: Fraction, n: int, source: Randomness | None = None) -> NDArray[np.int64]:
    """`n` independent exact draws, modulo 2^64: add them with wrapping 64-bit arithmetic, as numpy does.

    Fast up to a sigma of about 2^34; from there on more and more draws need `decimal`, some 300 microseconds each.
    """
    check_width(sigma)
    source = source or CryptographicRandomness()
    drawn = np.empty(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        wanted = min(CHUNK, n - start)
        words = source.words(wanted + wanted % 2).reshape(2, -1)
        pairs, undecided = _enclose(words, float(sigma))
        for i in np.flatnonzero(undecided):
            pairs[:, i] = _decide(int(words[0, i]), int(words[1, i]), sigma, source)
        drawn[start : start + CHUNK] = pairs.reshape(-1)[:wanted]
    return drawn


def _enclose(words: NDArray[np.uint64], sigma: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The pair of draws that each pair of words determines, and where it does not.

    Where we trust U, 2^-7 <= R < 4.8. In units of LIBM_ERROR:
        -ln U = R^2/2 by R^2/2 for log's error, 0.04 for rounding U, and 2.2 for its unknown bits if U < 1/2;
        R by twice that over R, plus R for sqrt's error: 2R + max(0.08 * 2^7, 4.4/1.17) < 20;
        cos and sin by 1 + 0.4, the latter for the rounding and the unknown bits of V;
        R cos and R sin by 20 + 1.4 * 4.8 + 0.6 for rounding < 28,
    hence y by less than 32 sigma, and 2^-51 for rounding the half.
    """
    radius = 32 * LIBM_ERROR * sigma + 2.0**-50
    leading = (words[0] & LOW_63_BITS | 1).view(np.int64)
    r = leading * 2.0**-63
    np.log(r, out=r)
    r *= -2
    np.sqrt(r, out=r)
    r *= sigma
    angle = words[1].view(np.int64) * (2 * np.pi / 2**64)
    y = np.empty(words.shape)
    np.cos(angle, out=y[0])
    np.sin(angle, out=y[1])
    y *= r
    y += 0.5 - radius
    low = np.floor(y)
    y += 2 * radius
    np.floor(y, out=y)
    undecided = (low != y).any(axis=0) | (leading < LEAST_RELIABLE) | (leading > MOST_RELIABLE)
    low[:, undecided] = 0
    return low.astype(np.int64), undecided


def _decide(radius_word: int, angle_word: int, sigma: Fraction, source: Randomness) -> tuple[int, int]:
    """The same pair in arbitrary precision, with as many more bits as it takes."""
    u = LazyUniform(radius_word & LOW_63_BITS, 63, source)
    v = LazyUniform(angle_word, 64, source)
    while True:
        with precise(u.bits):
            x, y = _pair(u, v, sigma)
        if x is not None and y is not None:
            return wrapped(x), wrapped(y)
        u.reveal()
        v.reveal()


def _pair(u: LazyUniform, v: LazyUniform, sigma: Fraction) -> tuple[int | None, int | None]:
    """Both draws, each if the bits revealed so far determine it.

    The unknown bits of the angle move cos and sin by at most 2 pi < 7 cells.
    """
    if u.numerator == 0:
        return None, None
    cell = Decimal(2) ** -u.bits
    longest, shortest = ((-2 * (Decimal(end) * cell).ln()).sqrt() for end in (u.numerator, u.numerator + 1))
    error = longest - shortest + (7 * longest + 1) * cell
    cosine, sine = cos_sin(Decimal(v.numerator) / Decimal(1 << v.bits))
    s, half = exactly(sigma), Decimal("0.5")
    return (
        common_floor(s * (longest * cosine - error) + half, s * (longest * cosine + error) + half),
        common_floor(s * (longest * sine - error) + half, s * (longest * sine + error) + half),
    )


# -- real noise --------------------------------------------------------------------------------------------------------

Interval = tuple[Decimal, Decimal]

# Eight roundings of float64, relatively; and what float64 holds with room to spare.
ROUNDING = 2.0**-50
LARGEST = 1 << 400


class Standard(ABC):
    """A real number with some known digits."""

    def __init__(self, source: Randomness) -> None:
        self.word = int(source.words(1)[0])
        self.uniform = LazyUniform(self.word & LOW_63_BITS, 63, source)

    def reveal(self) -> None:
        self.uniform.reveal()

    @abstractmethod
    def estimate(self) -> tuple[float, float]:
        """Z in float64, from the first word, and its maximum error, where `trusted`."""

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


class StandardLaplace(Standard):
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

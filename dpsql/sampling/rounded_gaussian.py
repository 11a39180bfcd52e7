"""Rounded Gaussian noise: the whole number next to sigma Z, Z a real standard normal.

Two draws at once from two uniforms (Box-Muller): with R = sqrt(-2 ln U) and an angle of V turns,

    X = floor(sigma R cos(2 pi V) + 1/2),    Y = floor(sigma R sin(2 pi V) + 1/2).

Proof: docs/proofs/exact_sampling.md, section 3.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from dpsql.sampling.bernoulli import LazyUniform
from dpsql.sampling.enclosure import (
    CHUNK,
    LEAST_RELIABLE,
    LIBM_ERROR,
    LOW_63_BITS,
    check_width,
    common_floor,
    cos_sin,
    exactly,
    precise,
    wrapped,
)
from dpsql.sampling.randomness import CryptographicRandomness, Randomness

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

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

"""Discrete Laplace noise: P[X = k] proportional to exp(-|k| / scale).

With q = exp(-1/b), P[|X| >= k] = 2 q^k / (1 + q) for k >= 1, so that by inversion

    |X| = floor(-b ln U + c),    c = b ln(2 / (1 + q)),    0 < c <= 1/2,

with a fair sign (it does not matter at 0). Proof: docs/proofs/exact_sampling.md, section 2.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
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
    exactly,
    precise,
    wrapped,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray


def discrete_laplace(scale: Fraction, n: int, source: Randomness | None = None) -> NDArray[np.int64]:
    """`n` independent exact draws, modulo 2^64: add them with wrapping 64-bit arithmetic, as numpy does.

    Fast up to scales of about 2^36; from there on more and more draws need `decimal`, some 100 microseconds each.
    """
    check_width(scale)
    source = source or CryptographicRandomness()
    offset = float(_offset(scale, bits=64))
    drawn = np.empty(n, dtype=np.int64)
    for start in range(0, n, CHUNK):
        words = source.words(min(CHUNK, n - start))
        values, undecided = _enclose(words, float(scale), offset)
        for i in np.flatnonzero(undecided):
            values[i] = _decide(int(words[i]), scale, source)
        drawn[start : start + CHUNK] = values
    return drawn


def _enclose(words: NDArray[np.uint64], scale: float, offset: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The draw that each word determines, and where it does not.

    The top bit is the sign and the others begin U, which is at least 2^-16 where we trust it. In units of LIBM_ERROR,
    y = -b ln U + c is off by at most
        b (11.1 for log's error, as -ln U < 11.1; 2.2 for the unknown bits of U; 1.4 for rounding) < 16 b,
    plus 2^-51 for rounding c. As y >= 0, no boundary lies at 0, and truncation is the floor that knows it.
    """
    radius = 16 * LIBM_ERROR * scale + 2.0**-50
    leading = (words & LOW_63_BITS | 1).view(np.int64)
    y = leading * 2.0**-63
    np.log(y, out=y)
    y *= -scale
    y += offset - radius
    magnitude = np.trunc(y)
    y += 2 * radius
    undecided = (magnitude != np.trunc(y)) | (leading < LEAST_RELIABLE)
    magnitude[undecided] = 0
    return np.copysign(magnitude, words.view(np.float64)).astype(np.int64), undecided


def _decide(word: int, scale: Fraction, source: Randomness) -> int:
    """The same draw in arbitrary precision, with as many more bits as it takes."""
    u = LazyUniform(word & LOW_63_BITS, 63, source)
    while True:
        with precise(u.bits):
            magnitude = _magnitude(u, scale)
        if magnitude is not None:
            return wrapped(-magnitude if word >> 63 else magnitude)
        u.reveal()


def _magnitude(u: LazyUniform, scale: Fraction) -> int | None:
    """|X|, if the bits revealed so far determine it. From v/2^n to (v+1)/2^n, ln rises by less than 1/v."""
    if u.numerator == 0:
        return None
    b, slack = exactly(scale), Decimal(2) ** -u.bits
    highest = -b * (Decimal(u.numerator) / Decimal(1 << u.bits)).ln() + _offset(scale, u.bits)
    lowest = highest - b / u.numerator
    return common_floor(max(lowest - slack, Decimal(0)), highest + slack)


@lru_cache(maxsize=64)
def _offset(scale: Fraction, bits: int) -> Decimal:
    """c, which float64 would lose to cancellation: b large makes it b times the logarithm of nearly 1."""
    with precise(bits):
        return exactly(scale) * (2 / (1 + (-exactly(1 / scale)).exp())).ln()

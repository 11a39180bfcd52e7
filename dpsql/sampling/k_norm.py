"""Joint K-norm noise over a box: the integers nearest to s_1 R U_1, ..., s_d R U_d.

R is one Gamma(k + 1) variable for all of them, k at least d, and each U_i uniform on [-1, 1]: for k = d real numbers
of density proportional to exp(-max |z_i| / s_i), rounded. With uniforms V_j, R = -ln V_1 - ... - ln V_(k+1).
Proof: docs/proofs/exact_sampling.md, section 8.
"""

from __future__ import annotations

from decimal import Decimal
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
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

HALF = Decimal("0.5")


def rounded_box(
    scales: Sequence[Fraction], dimension: int, n: int, source: Randomness | None = None
) -> NDArray[np.int64]:
    """A row for each scale with `n` exact draws modulo 2^64; a column is drawn together, and columns independently.

    `dimension` is k above: it may be more than the scales that are there, and the draws are then those of a part.
    """
    for scale in scales:
        check_width(scale)
    if not 1 <= len(scales) <= dimension:
        raise ValueError("a box has at least one scale, and no more than its dimension")
    source = source or CryptographicRandomness()
    widths = np.array([float(scale) for scale in scales])[:, None]
    drawn = np.empty((len(scales), n), dtype=np.int64)
    together = max(1, CHUNK // (dimension + 1 + len(scales)))
    for start in range(0, n, together):
        wanted = min(together, n - start)
        words = source.words((dimension + 1 + len(scales)) * wanted).reshape(-1, wanted)
        values, undecided = _enclose(words[: dimension + 1], words[dimension + 1 :], widths)
        for i in np.flatnonzero(undecided):
            values[:, i] = _decide([int(word) for word in words[:, i]], scales, source)
        drawn[:, start : start + wanted] = values
    return drawn


def _enclose(
    radii: NDArray[np.uint64], places: NDArray[np.uint64], widths: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The draws that each column of words determines, and where it does not.

    Each of m = k + 1 uniforms V >= 2^-16 has a logarithm below 11.1, off by 13.3 in units of LIBM_ERROR: 11.1 for log,
    2.2 for its unknown bits. Adding them up rounds m - 1 times numbers below 11.1 m, which is less than 0.35 m^2. U has
    63 bits and a sign; it, s, and two products are rounded, which is less than 1.4 m. As |U| <= 1, y is off by less
    than (16 + m) m s in all, and 2^-51 for rounding the half.
    """
    m = len(radii)
    leading = (radii & LOW_63_BITS | 1).view(np.int64)
    logarithms = leading * 2.0**-63
    np.log(logarithms, out=logarithms)
    y = (places & LOW_63_BITS | 1).view(np.int64) * 2.0**-63
    np.copysign(y, places.view(np.float64), out=y)
    y *= -logarithms.sum(axis=0)
    y *= widths
    radius = (16 + m) * m * LIBM_ERROR * widths + 2.0**-50
    y += 0.5 - radius
    low = np.floor(y)
    y += 2 * radius
    np.floor(y, out=y)
    undecided = (low != y).any(axis=0) | (leading < LEAST_RELIABLE).any(axis=0)
    low[:, undecided] = 0
    return low.astype(np.int64), undecided


def _decide(words: Sequence[int], scales: Sequence[Fraction], source: Randomness) -> list[int]:
    """The same draws in arbitrary precision, with as many more bits as it takes."""
    uniforms = [LazyUniform(word & LOW_63_BITS, 63, source) for word in words]
    radii, places = uniforms[: -len(scales)], uniforms[-len(scales) :]
    negative = [word >> 63 for word in words[-len(scales) :]]
    while True:
        with precise(radii[0].bits):
            drawn = _drawn(radii, places, negative, scales)
        if None not in drawn:
            return [wrapped(value) for value in drawn if value is not None]
        for uniform in uniforms:
            uniform.reveal()


def _drawn(
    radii: Sequence[LazyUniform], places: Sequence[LazyUniform], negative: Sequence[int], scales: Sequence[Fraction]
) -> list[int | None]:
    """Each draw, if the bits revealed so far determine it. From v/2^n to (v+1)/2^n, ln rises by less than 1/v."""
    if any(v.numerator == 0 for v in radii):
        return [None] * len(scales)
    cell = Decimal(2) ** -radii[0].bits
    longest = -sum((Decimal(v.numerator) * cell).ln() for v in radii)
    shortest = longest - sum(1 / Decimal(v.numerator) for v in radii)
    slack = (longest + len(radii)) * cell
    found: list[int | None] = []
    for u, below, scale in zip(places, negative, scales, strict=True):
        s = exactly(scale)
        near = s * (max(shortest - slack, Decimal(0)) * u.numerator * cell - slack)
        far = s * ((longest + slack) * (u.numerator + 1) * cell + slack)
        low, high = (-far, -near) if below else (near, far)
        found.append(common_floor(low + HALF, high + HALF))
    return found

"""Coins whose bias is exp(-gamma), exactly, many at once.

With a uniform U the coin says yes if U < exp(-gamma). float64 says so where the two are not near, arbitrary precision
elsewhere: what a coin says does not show in the time that it takes. Proof: docs/proofs/exact_sampling.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, getcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpsql.sampling.enclosure import exactly, precise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsql.sampling.randomness import Randomness

# From there on exp(-gamma) is far below a cell of U, and may be given as anything that is.
FARTHEST = 700.0


def bernoulli_exp(scores: NDArray[np.int64], rate: Fraction, source: Randomness) -> NDArray[np.bool_]:
    """For each whole score, at least 0, True with probability exp(-rate * score).

    A score and the rate are rounded, multiplied, and exp errs: gamma, at most 700, is off by 2^-41.8 and exp(-gamma) by
    2^-41.7, relatively; a word says U up to 2^-64 and is rounded to 2^-53 of itself. Together: less than the radius.
    """
    if rate < 0 or (scores < 0).any():
        raise ValueError("a coin needs a score and a rate that are not negative")
    words = source.words(len(scores))
    biases = np.exp(-np.minimum(scores * float(min(rate, Fraction(1 << 10))), FARTHEST))
    at, radius = words * 2.0**-64, biases * 2.0**-40 + 2.0**-63
    heads: NDArray[np.bool_] = at < biases
    for i in np.flatnonzero(np.abs(at - biases) <= radius):
        heads[i] = _decide(int(words[i]), int(scores[i]) * rate, source)
    return heads


def _decide(word: int, gamma: Fraction, source: Randomness) -> bool:
    """The same coin in arbitrary precision, with as many more bits as it takes. Without gamma it always says yes."""
    u = LazyUniform(word, 64, source)
    while gamma:
        with precise(u.bits):
            cells = (-exactly(gamma)).exp() * (1 << u.bits)
            slack = cells * (1 + exactly(gamma)) * Decimal(10) ** (2 - getcontext().prec)
            least, most = cells - slack, cells + slack
        if u.numerator + 1 <= least:
            return True
        if u.numerator >= most:
            return False
        u.reveal()
    return True


# Uniform numbers: a whole one below a bound, and a real one whose bits are revealed when they are needed.


def uniform_below(n: int, source: Randomness) -> int:
    """One of 0, 1, ..., n - 1, each exactly as likely, for n of any size."""
    if n < 1:
        raise ValueError(f"there is no whole number from 0 to below {n}")
    bits = (n - 1).bit_length()
    while True:
        words = source.words(-(-bits // 64))
        drawn = int.from_bytes(words.tobytes(), "little") >> (-bits % 64)
        if drawn < n:
            return drawn


@dataclass
class LazyUniform:
    """A uniform real number, so far known to lie in [numerator, numerator + 1] / 2^bits."""

    numerator: int
    bits: int
    source: Randomness

    def reveal(self) -> None:
        """64 bits more."""
        self.numerator = self.numerator << 64 | int(self.source.words(1)[0])
        self.bits += 64

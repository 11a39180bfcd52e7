"""Bernoulli(exp(-gamma)) samples, exact and vectorised.

With a uniform U the coin says yes if U < exp(-gamma). float64 says so where the two are not near, arbitrary precision
elsewhere: what a coin says does not show in the time that it takes. Proof: docs/proofs/exact_sampling.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from dpsql.sampling.randomness import CryptographicRandomness, Randomness, exactly, precise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

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
    """A uniform draw from 0, 1, ..., n - 1, for n of any size."""
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


# -- choice ------------------------------------------------------------------------------------------------------------
# One of many, with probability proportional to n exp(-rate * score), for many lists at once.
#
# With cumulative weights C_1 < C_2 < ... < C_m and a uniform U it is number i for which C_(i-1) <= U C_m < C_i. float64
# says which where no boundary is near, arbitrary precision elsewhere. Proof: docs/proofs/exact_sampling.md, section 6.

# Weights below e^-700 of the heaviest may be off as a whole: together they are less than 2^-900 of it.
FARTHEST_WEIGHT = 700.0

# Cells of the table of weights that are handled together, so that it stays in the cache.
CELLS = 1 << 17


def choose(
    sizes: NDArray[np.int64],
    scores: NDArray[np.int64],
    starts: NDArray[np.int64],
    rate: Fraction,
    source: Randomness | None = None,
) -> NDArray[np.int64]:
    """Draws one position of `sizes` from each list; list g is sizes[starts[g] : starts[g + 1]] and is not empty.

    Sizes are at least 1, scores at least 0, the rate is not negative.
    """
    lengths = np.diff(starts)
    if rate < 0 or (lengths < 1).any() or (sizes < 1).any() or (scores < 0).any():
        raise ValueError("a choice needs non-empty lists, sizes above 0, and scores and a rate that are not negative")
    source = source or CryptographicRandomness()
    words = source.words(len(lengths))
    chosen = np.empty(len(lengths), dtype=np.int64)
    for lists in _batches(lengths):
        columns, last = np.arange(lengths[lists].max()), lengths[lists, None] - 1
        places = starts[:-1][lists, None] + np.minimum(columns, last)
        weights = _weights(sizes[places], scores[places], rate)
        weights[columns > last] = 0
        passed, undecided = _enclose(words[lists], weights, columns >= last)
        chosen[lists] = starts[:-1][lists] + passed
        for i in lists[undecided]:
            part = slice(starts[i], starts[i + 1])
            chosen[i] = starts[i] + _decide_choice(
                int(words[i]), sizes[part].tolist(), scores[part].tolist(), rate, source
            )
    return chosen


def uniform_each(sizes: NDArray[np.int64], source: Randomness | None = None) -> NDArray[np.int64]:
    """For each size n, a uniform draw from 0, 1, ..., n - 1.

    It draws as many bits as n - 1 has, and redraws while the result is n or more.
    """
    if (sizes < 1).any():
        raise ValueError("a uniform choice needs at least one possibility")
    source = source or CryptographicRandomness()
    masks = sizes - 1
    for shift in (1, 2, 4, 8, 16, 32):
        masks = masks | masks >> shift
    drawn = np.empty_like(masks)
    again = np.arange(len(sizes))
    while len(again):
        drawn[again] = source.words(len(again)).view(np.int64) & masks[again]
        again = again[drawn[again] >= sizes[again]]
    return drawn


def _batches(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Batches from the longest lists to the shortest, so that their tables have few empty cells."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        together = max(1, CELLS // int(lengths[order[0]]))
        yield order[:together]
        order = order[together:]


def _weights(sizes: NDArray[np.int64], scores: NDArray[np.int64], rate: Fraction) -> NDArray[np.float64]:
    """Weights relative to that of a point with the best score, so that sums are at least 1 and do not overflow."""
    exponents: NDArray[np.float64] = (scores - scores.min(axis=1, keepdims=True)) * float(min(rate, Fraction(1000)))
    np.minimum(exponents, FARTHEST_WEIGHT, out=exponents)
    np.negative(exponents, out=exponents)
    np.exp(exponents, out=exponents)
    exponents *= sizes
    return exponents


def _enclose(
    words: NDArray[np.uint64], weights: NDArray[np.float64], final: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """How many boundaries each word has passed, and where it does not determine that. U < 1 never passes the `final`.

    A weight is off by less than 2^-41.8, relatively: three roundings of an exponent up to 700, exp, two more. A sum of
    m adds m 2^-53. U C_m carries the error of C_m once more, and three roundings. Together: less than the radius.
    """
    np.cumsum(weights, axis=1, out=weights)
    total = weights[:, -1].copy()
    weights[final] = np.inf
    at = words * 2.0**-64 * total
    radius = total * (2.0**-40 + weights.shape[1] * 2.0**-51)
    passed = np.count_nonzero(weights <= (at - radius)[:, None], axis=1)
    perhaps = np.count_nonzero(weights <= (at + radius)[:, None], axis=1)
    return passed, passed != perhaps


def _decide_choice(word: int, sizes: Sequence[int], scores: Sequence[int], rate: Fraction, source: Randomness) -> int:
    """The same choice in arbitrary precision, with as many more bits as it takes."""
    u = LazyUniform(word, 64, source)
    best = min(scores)
    while True:
        with precise(u.bits):
            sums = list(accumulate(n * (-exactly(rate) * (s - best)).exp() for n, s in zip(sizes, scores, strict=True)))
            cell = Decimal(2) ** -u.bits
            at, slack = u.numerator * cell * sums[-1], cell * sums[-1]
            passed = sum(boundary <= at - slack for boundary in sums[:-1])
            perhaps = sum(boundary <= at + 2 * slack for boundary in sums[:-1])
        if passed == perhaps:
            return passed
        u.reveal()

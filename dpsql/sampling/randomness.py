"""Random words: cryptographic ones for noise, repeatable ones for what is not secret."""

from __future__ import annotations

import hashlib
import os
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, getcontext, localcontext
from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from fractions import Fraction

    from numpy.typing import NDArray

# -- enclosure ---------------------------------------------------------------------------------------------------------
# What the certified samplers share.
#
# Both compute floor(g(U)) for a real uniform U whose leading bits are known. They enclose g(U) in an interval that
# holds whatever the other bits are, and take the floor only when the whole interval agrees on it. The interval comes
# from float64 first and, where that does not decide, from `decimal` with ever more bits. Proof:
# docs/proofs/exact_sampling.md.

# What is assumed of the platform's float64 functions, some 32 times what they really do: the relative error of log,
# sqrt and exp, and the absolute error of sin and cos (near their zeros a relative bound would be wrong). Tests measure.
LIBM_ERROR = 2.0**-48

# A cell of the uniform is 2^-62 wide and is represented by its middle; below 2^-16 that is too coarse, relatively.
LEAST_RELIABLE = 1 << 47

LOW_63_BITS = (1 << 63) - 1

# Draws handled together, so that the arrays stay in the cache.
CHUNK = 16384

# Noise wider than the integers that it is added to is a mistake.
WIDEST = 1 << 62


def check_width(width: Fraction) -> None:
    if not 0 < width <= WIDEST:
        raise ValueError("exact noise needs a scale above 0 and at most 2^62")


def precise(bits: int) -> AbstractContextManager[Context]:
    """Decimal arithmetic for a uniform known to `bits` bits.

    Each operation errs by less than 10^-38 2^(-1.6 bits), relatively. What accumulates stays far below 2^-bits, even
    through the square root of a number near 2^-bits and a scale of 2^62.
    """
    return localcontext(Context(prec=bits // 2 + 40, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[]))


def exactly(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def common_floor(low: Decimal, high: Decimal) -> int | None:
    """The floor of every number in [low, high], if they have the same."""
    least = floor(low)
    return least if least == floor(high) else None


def wrapped(value: int) -> int:
    """`value` modulo 2^64, as a signed 64-bit number.

    Noise that leaves 64 bits wraps around instead of saturating: (x + noise) modulo 2^64 is a function of x + noise,
    hence as private as it, whereas x + saturated(noise) would show x itself.
    """
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# pi, cosine and sine in the precision of the current `decimal` context, which has none of its own.


def cos_sin(turns: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine of an angle between 0 and 1 turns, each off by less than 10^(6 - precision).

    Taylor's series, both at once. With an angle below 2 pi its terms fall geometrically from the eighth on, and their
    absolute values sum to at most e^(2 pi) < 10^3, each with as many roundings as its index.
    """
    angle = 2 * _pi(getcontext().prec) * turns
    negligible = Decimal(10) ** -getcontext().prec
    sums = [Decimal(0), Decimal(0)]
    term, k = Decimal(1), 0
    while k < 8 or term > negligible:
        sums[k % 2] += term if k % 4 < 2 else -term
        k += 1
        term *= angle / k
    return sums[0], sums[1]


@lru_cache(maxsize=16)
def _pi(precision: int) -> Decimal:
    """Machin's formula, in whole multiples of a unit with ten digits to spare."""
    unit: int = 10 ** (precision + 10)
    with localcontext(prec=precision):
        return Decimal(16 * _arctan_inverse(5, unit) - 4 * _arctan_inverse(239, unit)) / unit


def _arctan_inverse(x: int, unit: int) -> int:
    """arctan(1/x) = 1/x - 1/(3 x^3) + 1/(5 x^5) - ..."""
    power, total, k = unit // x, 0, 1
    while power:
        total += power // k if k % 4 == 1 else -(power // k)
        power //= x * x
        k += 2
    return total


# -- randomness --------------------------------------------------------------------------------------------------------

# From here on keying a cipher is cheaper than asking the operating system for all the bytes.
MANY_WORDS = 512


class Randomness(Protocol):
    def words(self, n: int) -> NDArray[np.uint64]:
        """`n` independent uniform 64-bit words, never given out before."""
        ...


class CryptographicRandomness:
    """Few words come from the operating system, many from AES-256 in counter mode under a key that it gave.

    Made afresh for every release and used by one thread. A process that inherits an instance by fork holds the same key
    as its parent, so it takes a new one before the next word.
    """

    def __init__(self) -> None:
        self._rekey()

    def words(self, n: int) -> NDArray[np.uint64]:
        if n < MANY_WORDS:
            return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)
        if self._process != os.getpid():
            self._rekey()
        return np.frombuffer(self._keystream.update(bytes(8 * n)), dtype=np.uint64)

    def _rekey(self) -> None:
        self._process = os.getpid()
        # Each key is used for one stream only, so the counter may start anywhere: here at zero.
        self._keystream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()


class RepeatableRandomness:
    """The same words for the same seed. Only for replicas of released noise, never for noise that protects people."""

    def __init__(self, seed: bytes) -> None:
        key = hashlib.sha256(seed).digest()
        self._keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._keystream.update(bytes(8 * n)), dtype=np.uint64)

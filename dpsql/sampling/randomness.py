"""Random words that nobody can predict or replay; and some that can be replayed, for what is no secret."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """The same words for the same seed. Never for what protects somebody: replicas of noise that was released."""

    def __init__(self, seed: bytes) -> None:
        key = hashlib.sha256(seed).digest()
        self._keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._keystream.update(bytes(8 * n)), dtype=np.uint64)

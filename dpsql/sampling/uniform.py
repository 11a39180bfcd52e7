"""Uniform numbers: a whole one below a bound, and a real one whose bits are revealed when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.sampling.randomness import Randomness


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

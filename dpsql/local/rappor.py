"""RAPPOR (Erlingsson, Pihur, Korolova 2014), one bit per value: permanent noise, and fresh noise on top.

The permanent bits are drawn once and kept by the person. All later reports are computed from them, so that all
reports together tell no more than e^epsilon. The instantaneous bits hide that two reports come from the same person.
Proof: docs/proofs/local.md, section 4.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.accounting.exact import exact, rounded_up
from dpsql.errors import ProgrammingError
from dpsql.local.mechanism import WORDS, chunks, least_share, logarithm_above
from dpsql.local.unary import UnaryEncoding
from dpsql.sampling import CryptographicRandomness, Randomness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dpsql.local.mechanism import Column


class Rappor(UnaryEncoding):
    """Every bit is flipped with probability f/2 = 1 / (1 + e^(epsilon/2)).

    `instantaneous=(p, q)` adds fresh noise to each report: a permanent 0 is reported as 1 with probability p, a
    permanent 1 with probability q. The paper uses (1/2, 3/4).
    """

    name = "rappor"

    def __init__(
        self, domain: Iterable[object], epsilon: object, *, instantaneous: tuple[object, object] | None = None
    ) -> None:
        super().__init__(domain, epsilon)
        self._flipped = least_share(self.exact_epsilon / 2)
        self._fresh = None if instantaneous is None else tuple(map(_share, instantaneous))
        if self._fresh is not None and self._fresh[0] >= self._fresh[1]:
            raise ProgrammingError(
                "a permanent 1 must be reported as 1 more often than a permanent 0",
                hint="write instantaneous=(0.5, 0.75)",
            )
        self._raised, self._kept = (self._flipped, WORDS - self._flipped)

    @property
    def truth(self) -> Fraction:
        return self._reported(Fraction(WORDS - self._flipped, WORDS))

    @property
    def other(self) -> Fraction:
        return self._reported(Fraction(self._flipped, WORDS))

    def _reported(self, permanent: Fraction) -> Fraction:
        """The probability that a bit is reported as 1, given the probability that it is permanently 1."""
        if self._fresh is None:
            return permanent
        low, high = (Fraction(share, WORDS) for share in self._fresh)
        return permanent * high + (1 - permanent) * low

    @property
    def epsilon_once(self) -> float:
        """The epsilon of a single report: less than `epsilon`, which covers all reports from the same bits."""
        return rounded_up(logarithm_above(self.ratio))

    def permanent(self, values: Column, source: Randomness | None = None) -> NDArray[np.uint8]:
        """The bits that a person draws once for a value, and keeps."""
        bits: NDArray[np.uint8] = super().perturb(values, source)
        return bits

    def report(self, permanent: Column, source: Randomness | None = None) -> NDArray[np.uint8]:
        """One report from permanent bits; without instantaneous noise, the bits themselves."""
        kept = self.checked(permanent)
        return kept if self._fresh is None else self._freshened(kept, np.empty_like(kept), source)

    def perturb(self, values: Column, source: Randomness | None = None) -> NDArray[Any]:
        """Reports are rows of packed bits, each made of permanent bits that are drawn for it and forgotten."""
        kept = self.permanent(values, source)
        return kept if self._fresh is None else self._freshened(kept, kept, source)

    def _freshened(
        self, kept: NDArray[np.uint8], into: NDArray[np.uint8], source: Randomness | None
    ) -> NDArray[np.uint8]:
        assert self._fresh is not None
        source = source or CryptographicRandomness()
        low, high = map(np.uint64, self._fresh)
        k = len(self.domain)
        for part in chunks(len(kept), k):
            words = source.words((part.stop - part.start) * k).reshape(-1, k)
            into[part] = self.pack(words < np.where(self.unpack(kept[part]), high, low))
        return into


def _share(probability: object) -> int:
    number = exact(probability, "a probability")
    if not 0 < number < 1:
        raise ProgrammingError("a probability lies between 0 and 1", hint="write instantaneous=(0.5, 0.75)")
    return min(max(1, round(number * WORDS)), WORDS - 1)

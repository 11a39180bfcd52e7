"""Randomized response: the truth with probability p, any other value with probability q each.

Two values and p = 3/4 are Warner's survey with two coins. One random word decides a report: the words below p are the
truth, and of the rest, q each, every other value has its part. Proof: docs/proofs/local.md, section 2.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.local.mechanism import WORDS, LocalMechanism, least_share, logarithm_above
from dpsql.sampling import CryptographicRandomness, Randomness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dpsql.local.mechanism import Column


class KaryResponse(LocalMechanism):
    """
    >>> float(KaryResponse(["a", "b", "c"], epsilon=1.0).ratio)
    2.718281828459045
    """

    name = "kary"

    def __init__(self, domain: Iterable[object], epsilon: object) -> None:
        super().__init__(domain, epsilon)
        self._each_other = least_share(self.exact_epsilon, len(self.domain) - 1)

    @property
    def other(self) -> Fraction:
        return Fraction(self._each_other, WORDS)

    @property
    def truth(self) -> Fraction:
        return 1 - (len(self.domain) - 1) * self.other

    @property
    def ratio(self) -> Fraction:
        return self.truth / self.other

    @property
    def channel(self) -> list[list[Fraction]]:
        k = len(self.domain)
        self.check_written_out(k)
        return [[self.truth if i == j else self.other for j in range(k)] for i in range(k)]

    def perturb(self, values: Column, source: Randomness | None = None) -> NDArray[Any]:
        """Reports are values of the domain."""
        source = source or CryptographicRandomness()
        k, domain = len(self.domain), self.domain
        told, each = np.uint64(WORDS - (k - 1) * self._each_other), np.uint64(self._each_other)
        reports = np.empty(len(values), dtype=domain.stored.dtype)
        for part, codes in domain.encoded(values):
            words = source.words(len(codes))
            moved = codes + np.where(words < told, 0, ((words - told) // each).astype(np.intp) + 1)
            reports[part] = domain.decode(np.where(moved >= k, moved - k, moved))
        return reports

    def support(self, reports: Column) -> tuple[int, NDArray[np.int64]]:
        counts, n = np.zeros(len(self.domain), dtype=np.int64), 0
        for _, codes in self.domain.encoded(reports):
            counts += np.bincount(codes, minlength=len(self.domain))
            n += len(codes)
        return n, counts


class RandomizedResponse(KaryResponse):
    """A question with two answers, by default False and True."""

    name = "randomized_response"

    def __init__(self, epsilon: object, domain: Iterable[object] = (False, True)) -> None:
        super().__init__(domain, epsilon)

    @classmethod
    def two_coins(cls, domain: Iterable[object] = (False, True)) -> RandomizedResponse:
        """Tails: the truth. Heads: what a second coin says. The truth is told in 3 of 4 cases, so epsilon is ln 3.

        >>> RandomizedResponse.two_coins().truth
        Fraction(3, 4)
        """
        made = cls(logarithm_above(Fraction(3)), domain)
        made._each_other = WORDS // 4
        return made

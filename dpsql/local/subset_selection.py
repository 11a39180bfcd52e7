"""Subset selection: a report is a set of w values, which contains the true one more often than others.

With w near k / (e^epsilon + 1) it has the least error that any mechanism can have, from small to middle epsilon (Ye and
Barg 2018). With w = 1 it is k-ary response. Proof: docs/proofs/local.md, section 5.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.local.mechanism import WORDS, power_below, uniform
from dpsql.local.unary import BitReports
from dpsql.sampling import CryptographicRandomness, Randomness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dpsql.local.mechanism import Column


class SubsetSelection(BitReports):
    """`size` is how many values a report names."""

    name = "subset"

    def __init__(self, domain: Iterable[object], epsilon: object) -> None:
        super().__init__(domain, epsilon)
        ideal = len(self.domain) / (float(power_below(self.exact_epsilon)) + 1)
        sizes = {max(1, floor(ideal)), max(1, min(floor(ideal) + 1, len(self.domain) - 1))}
        self.size = min(sizes, key=lambda size: self._with_size(size).total_variance(1))
        self._with_size(self.size)

    def _with_size(self, size: int) -> SubsetSelection:
        """The largest share of sets with the true value whose odds to the others are at most e^epsilon."""
        k, weight = len(self.domain), power_below(self.exact_epsilon) * size
        self.size, self._holding = size, min(floor(WORDS * weight / (weight + k - size)), WORDS - 1)
        if self.truth <= self.other:
            raise ProgrammingError(
                f"at epsilon={self.epsilon:g} reports would carry no information",
                hint="use a larger epsilon, such as 0.1",
            )
        return self

    @property
    def truth(self) -> Fraction:
        return Fraction(self._holding, WORDS)

    @property
    def other(self) -> Fraction:
        """If the report contains the true value, it contains w - 1 of the k - 1 others; if not, w of them."""
        return (self.size - self.truth) / (len(self.domain) - 1)

    @property
    def ratio(self) -> Fraction:
        k, w, p = len(self.domain), self.size, self.truth
        return p * (k - w) / ((1 - p) * w)

    @property
    def channel(self) -> list[list[Fraction]]:
        """Reports in the order of itertools.combinations."""
        k, w = len(self.domain), self.size
        self.check_written_out(comb(k, w))
        holding, without = self.truth / comb(k - 1, w - 1), (1 - self.truth) / comb(k - 1, w)
        return [[holding if i in named else without for named in combinations(range(k), w)] for i in range(k)]

    def perturb(self, values: Column, source: Randomness | None = None) -> NDArray[Any]:
        """Reports are rows of packed bits, `size` of them 1."""
        source = source or CryptographicRandomness()
        reports = np.empty((len(values), self.width), dtype=np.uint8)
        for part, codes in self.domain.encoded(values, len(self.domain)):
            reports[part] = self.pack(self._named(codes, source))
        return reports

    def _named(self, codes: NDArray[np.intp], source: Randomness) -> NDArray[np.bool_]:
        """The first w steps of a shuffle of the other values; then a coin puts the true one in place of the last."""
        n, k = len(codes), len(self.domain)
        # Flat arrays, row after row: numpy reads and writes single cells of them twice as fast.
        others, rows = np.tile(np.arange(1, k, dtype=np.int32), n), np.arange(n) * (k - 1)
        bits, cells = np.zeros(n * k, dtype=np.bool_), np.arange(n) * k
        for step in range(self.size):
            drawn = rows + step + uniform(k - 1 - step, n, source)
            chosen = codes + others[drawn]
            chosen -= k * (chosen >= k)
            others[drawn] = others[rows + step]
            bits[cells + chosen] = True
        holds = source.words(n) < np.uint64(self._holding)
        bits[cells + chosen] = ~holds
        bits[cells + codes] = holds
        return bits.reshape(n, k)

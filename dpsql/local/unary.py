"""Unary encoding: the answer as one-hot bits, each randomised by its own coin.

A report is a row of packed bits, the first value in the lowest bit of the first byte. A bit that is 1 stays so with
probability p, one that is 0 becomes 1 with probability q; two values differ in two bits, so reports differ by the
factor p (1 - q) / (q (1 - p)). Proof: docs/proofs/local.md, section 4.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.local.mechanism import WORDS, LocalMechanism, chunks, least_share
from dpsql.sampling import CryptographicRandomness, Randomness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dpsql.local.mechanism import Column

WIDEST_INTEGER = 63
"""Bits that fit into a column of 64-bit integers."""


class BitReports(LocalMechanism):
    """A mechanism whose reports have one bit per value, set for the values that the report supports."""

    @property
    def width(self) -> int:
        """Bytes of one report."""
        return -(-len(self.domain) // 8)

    def pack(self, bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
        return np.packbits(bits, axis=1, bitorder="little")

    def unpack(self, packed: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return np.unpackbits(packed, axis=1, count=len(self.domain), bitorder="little").view(np.bool_)

    def checked(self, reports: Column) -> NDArray[np.uint8]:
        packed = np.asarray(reports)
        if packed.ndim != 2 or packed.dtype != np.uint8 or packed.shape[1] != self.width:
            raise ProgrammingError(
                f"reports are rows of {self.width} bytes, which hold {len(self.domain)} bits",
                hint="pass the output of perturb(): a uint8 array with one row per report",
            )
        spare = 8 * self.width - len(self.domain)
        beyond = int(np.count_nonzero(packed[:, -1] >> (8 - spare))) if spare else 0
        if beyond:
            raise ProgrammingError(
                f"{beyond:,} of {len(packed):,} reports have bits outside the domain",
                hint="use the same domain, in the same order, as when the reports were made",
            )
        return packed

    def support(self, reports: Column) -> tuple[int, NDArray[np.int64]]:
        packed = self.checked(reports)
        counts = np.zeros(len(self.domain), dtype=np.int64)
        for part in chunks(len(packed), len(self.domain)):
            counts += np.count_nonzero(self.unpack(packed[part]), axis=0)
        return len(packed), counts

    def as_integers(self, reports: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Each report as one whole number, for a column of a table: the first value is its lowest bit."""
        if len(self.domain) > WIDEST_INTEGER:
            raise ProgrammingError(
                f"{len(self.domain)} bits do not fit into a column of integers",
                hint=f'up to {WIDEST_INTEGER} values do; mechanism="kary" takes more',
            )
        whole = np.zeros((len(reports), 8), dtype=np.uint8)
        whole[:, : self.width] = reports
        return whole.view("<i8")[:, 0].astype(np.int64)

    def from_integers(self, column: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The reports that `as_integers` gave."""
        return np.ascontiguousarray(column, dtype="<i8").view(np.uint8).reshape(-1, 8)[:, : self.width]


class UnaryEncoding(BitReports):
    """Every bit by itself. `_kept` and `_raised` are p and q in shares of 2^-64."""

    _kept: int
    _raised: int

    @property
    def truth(self) -> Fraction:
        return Fraction(self._kept, WORDS)

    @property
    def other(self) -> Fraction:
        return Fraction(self._raised, WORDS)

    @property
    def ratio(self) -> Fraction:
        p, q = self.truth, self.other
        return p * (1 - q) / (q * (1 - p))

    @property
    def channel(self) -> list[list[Fraction]]:
        """Reports in the order of their bits, the first value's bit first: 00, 01, 10, 11."""
        k = len(self.domain)
        self.check_written_out(2**k)
        chances = (self.other, self.truth)

        def chance(bits: tuple[int, ...], value: int) -> Fraction:
            ones = [chances[j == value] for j in range(k)]
            return prod((one if bit else 1 - one for bit, one in zip(bits, ones, strict=True)), start=Fraction(1))

        return [[chance(bits, value) for bits in product((0, 1), repeat=k)] for value in range(k)]

    def perturb(self, values: Column, source: Randomness | None = None) -> NDArray[Any]:
        """Reports are rows of packed bits."""
        source = source or CryptographicRandomness()
        k = len(self.domain)
        reports = np.empty((len(values), self.width), dtype=np.uint8)
        for part, codes in self.domain.encoded(values, k):
            words, rows = source.words(len(codes) * k).reshape(-1, k), np.arange(len(codes))
            bits = words < np.uint64(self._raised)
            bits[rows, codes] = words[rows, codes] < np.uint64(self._kept)
            reports[part] = self.pack(bits)
        return reports


class OptimizedUnaryEncoding(UnaryEncoding):
    """OUE (Wang et al. 2017): the true bit survives with probability 1/2, so that zeros need far less noise."""

    name = "oue"

    def __init__(self, domain: Iterable[object], epsilon: object) -> None:
        super().__init__(domain, epsilon)
        self._kept, self._raised = WORDS // 2, least_share(self.exact_epsilon)

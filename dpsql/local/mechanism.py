"""What all local mechanisms have in common: a report *supports* some values, the true one more often than others.

With p the probability that a report supports the value that it was made of, and q that it supports any other given one,
the number of reports that support a value has expectation n_v p + (n - n_v) q; solved for n_v this is the estimate
(Wang et al. 2017 call such protocols pure). Proof: docs/proofs/local.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.local.domain import Domain
from dpsql.local.estimate import Estimate
from dpsql.local.shares import read_epsilon

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from numpy.typing import NDArray

    from dpsql.local.domain import Column
    from dpsql.sampling import Randomness

MOST_REPORTS = 1 << 12
"""Reports of a channel that is written out."""


class Mechanism(ABC):
    """Randomises one value of a public domain so that the report tells little about it."""

    name: str
    """What the schema calls it."""

    def __init__(self, domain: Iterable[object], epsilon: object) -> None:
        self.domain = Domain(domain)
        self.exact_epsilon = read_epsilon(epsilon)

    @property
    def epsilon(self) -> float:
        """No two values make any report more than e^epsilon times as likely; `ratio` is how much more, exactly."""
        return float(self.exact_epsilon)

    @property
    @abstractmethod
    def truth(self) -> Fraction:
        """p: the probability that a report supports the value that it was made of."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """q: the probability that it supports any other given value."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """By which factor a report is more likely under one value than under another, at most: at most e^epsilon."""

    @abstractmethod
    def perturb(self, values: Column, source: Randomness | None = None) -> NDArray[Any]:
        """One report for each value, independently."""

    @abstractmethod
    def support(self, reports: Column) -> tuple[int, NDArray[np.int64]]:
        """How many reports there are, and how many support each value."""

    @property
    @abstractmethod
    def channel(self) -> list[list[Fraction]]:
        """The probability of each possible report (a column) under each value (a row)."""

    def estimate(self, reports: Column, *, project: bool = False) -> Estimate:
        """Unbiased counts; with `project` the nearest ones that could be."""
        found = self.estimate_from(*self.support(reports))
        return found.projected() if project else found

    def estimate_from(self, n: int, support: NDArray[np.int64]) -> Estimate:
        """The same, from how many of n reports support each value."""
        counts = np.asarray((support - n * float(self.other)) / float(self.truth - self.other), dtype=np.float64)
        return Estimate(self.domain.values, n, counts, np.sqrt(self.variance(n, counts.clip(0, n))))

    def variance(self, n: int, count: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Of the estimate of a value that `count` of n people have, by the coins alone."""
        p, q = float(self.truth), float(self.other)
        coins = np.multiply(count, p * (1 - p)) + np.multiply(n - np.asarray(count), q * (1 - q))
        return np.asarray(coins / float(self.truth - self.other) ** 2)

    def total_variance(self, n: int) -> float:
        """Summed over all values; the same whatever the people say."""
        k = len(self.domain)
        return float(k * self.variance(n, n / k))

    def check_written_out(self, reports: int) -> None:
        if reports > MOST_REPORTS:
            raise ProgrammingError(
                f"the channel has {reports:,} columns, which are too many to be written out",
                hint="`truth`, `other` and `ratio` say what there is to know of it",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.domain)} values, epsilon={self.epsilon:g})"

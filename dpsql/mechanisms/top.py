"""The n most frequent of public values, one after the other: each round takes one and leaves the others.

A unit counts at most `per_value` for each value, and whether it comes or goes it moves all counts the same way. So one
round at the rate epsilon / (n per_value) costs epsilon / n, without the factor 2 of other choices.
Proof: docs/proofs/permute_and_flip.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting.events import Composed, Event, Exponential, PureRelease
from dpsql.mechanisms.permute_and_flip import permute_and_flip
from dpsql.sampling import CryptographicRandomness, Randomness, choose

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Top(ABC):
    epsilon: Fraction
    answers: int
    per_value: int

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.answers < 1 or self.per_value < 1:
            raise ValueError("a choice of the most frequent needs an epsilon above 0, an answer, and a count per value")

    @property
    def rate(self) -> Fraction:
        return self.epsilon / (self.answers * self.per_value)

    @property
    @abstractmethod
    def event(self) -> Event:
        """All rounds together."""

    @abstractmethod
    def choose_one(self, counts: Sequence[int], source: Randomness) -> int:
        """The position of one value."""

    def sample(self, counts: Sequence[int], source: Randomness | None = None) -> list[int]:
        """Positions of the chosen values, or of all if there are fewer than were asked for."""
        source = source or CryptographicRandomness()
        left = dict(enumerate(counts))
        chosen: list[int] = []
        while left and len(chosen) < self.answers:
            positions = list(left)
            chosen.append(positions[self.choose_one(list(left.values()), source)])
            del left[chosen[-1]]
        return chosen

    def shortfall(self, candidates: int, level: float | Fraction) -> int:
        """With a probability of at least `level`, no answer counts this much less than the true one at its place."""
        if not 0 <= level < 1:
            raise ValueError(f"a confidence level lies in [0, 1), unlike {level}")
        return ceil(log(candidates * self.answers / (1 - Fraction(level))) / self.rate)


@dataclass(frozen=True)
class TopByPermuteAndFlip(Top):
    """Best where pure epsilons are added up."""

    @property
    def event(self) -> Event:
        return Composed((PureRelease(self.epsilon / self.answers),) * self.answers)

    def choose_one(self, counts: Sequence[int], source: Randomness) -> int:
        return permute_and_flip(counts, self.rate, source)


@dataclass(frozen=True)
class TopByExponential(Top):
    """Best where the session counts in Gaussian or concentrated DP, whose price for it is that of half the epsilon."""

    @property
    def event(self) -> Event:
        return Composed((Exponential(self.epsilon / self.answers),) * self.answers)

    def choose_one(self, counts: Sequence[int], source: Randomness) -> int:
        shortfalls = max(counts) - np.array(counts, dtype=np.int64)
        return int(choose(np.ones_like(shortfalls), shortfalls, np.array([0, len(counts)]), self.rate, source)[0])

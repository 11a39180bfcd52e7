"""How an answer follows from noisy measures, and what its error is.

A `Linear` is a weighted sum of measures: COUNT, SUM, and sums and differences of those. A `Ratio` is one linear over
another: AVG, and shares. Arithmetic with constants keeps both forms; anything else has no known error.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Term


@dataclass(frozen=True)
class Linear:
    """constant + sum of weight * measure."""

    weights: tuple[tuple[str, Fraction], ...]
    """By the measure's column."""
    constant: Fraction = Fraction(0)

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        merged = dict(self.weights)
        for name, weight in other.weights:
            merged[name] = merged.get(name, Fraction(0)) + factor * weight
        kept = tuple((name, weight) for name, weight in merged.items() if weight)
        return Linear(kept, self.constant + factor * other.constant)

    def times(self, factor: Fraction) -> Linear:
        return Linear((), Fraction(0)).plus(self, factor)


@dataclass(frozen=True)
class Ratio:
    """above / below, held within [low, high] where that is known."""

    above: Linear
    below: Linear
    low: Fraction | None = None
    high: Fraction | None = None

    def plus(self, constant: Fraction) -> Ratio:
        return Ratio(
            self.above.plus(self.below, constant),
            self.below,
            *(None if end is None else end + constant for end in (self.low, self.high)),
        )

    def times(self, factor: Fraction) -> Ratio:
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        low, high = ends if factor >= 0 else reversed(ends)
        return Ratio(self.above.times(factor), self.below, low, high)


@dataclass(frozen=True)
class Formula:
    """Anything else, computed from the measures: its error is not known."""

    sql: Term
    weighed: frozenset[str] = frozenset()
    """The measures whose noise it asks about, each by the column `noise_of`."""


def noise_of(measure: str) -> str:
    """The column with the standard deviation of a measure's noise."""
    return f"{measure}_std"


@dataclass(frozen=True)
class Reported:
    """A number estimated from randomised reports, times a factor: its error is in columns of its own."""

    answer: str
    factor: Fraction = Fraction(1)

    @property
    def standard_error(self) -> str:
        return f"{self.answer}_error"

    @property
    def kurtosis(self) -> str:
        return f"{self.answer}_kurtosis"

    def times(self, factor: Fraction) -> Reported:
        return Reported(self.answer, self.factor * factor)


Estimate: TypeAlias = Linear | Ratio | Reported

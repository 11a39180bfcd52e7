"""How an answer follows from noisy measures, and what its error is.

A `Linear` is a weighted sum of measures: COUNT, SUM, and sums and differences of those. A `Ratio` is one linear over
another: AVG, and shares. Arithmetic with constants keeps both forms; anything else has no known error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpsql.engine_sql.tree import Term


@dataclass(frozen=True)
class Linear:
    """constant + sum of weight * measure."""

    weights: tuple[tuple[str, Fraction], ...]
    """By the measure's column."""
    constant: Fraction = Fraction(0)
    rounding: Fraction = Fraction(0)
    """By how much the answer may differ from it, since parts of it were rounded."""
    is_whole: bool = False
    """Whether it was rounded to a whole number, with noise as without."""

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        merged, added = dict(self.weights), other.times(factor)
        for name, weight in added.weights:
            merged[name] = merged[name] + weight if name in merged else weight
        kept = tuple((name, weight) for name, weight in merged.items() if weight)
        is_whole = self.is_whole and not added.weights
        return Linear(kept, _plus(self.constant, added.constant), _plus(self.rounding, added.rounding), is_whole)

    def times(self, factor: Fraction) -> Linear:
        if factor == 1:
            return self
        weights = ((name, factor * weight) for name, weight in self.weights) if factor else ()
        is_whole = self.is_whole and factor == -1
        return Linear(tuple(weights), _times(factor, self.constant), _times(abs(factor), self.rounding), is_whole)


def _plus(left: Fraction, right: Fraction) -> Fraction:
    """Most constants are 0, and to add fractions takes longer than to see that."""
    return left + right if right else left


def _times(factor: Fraction, value: Fraction) -> Fraction:
    return factor * value if value else value


@dataclass(frozen=True)
class Ratio:
    """above / below, clamped to [low, high] where that is known."""

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
class Smooth:
    """A smooth function of linear parts, the first of them a count: a variance, a correlation, a slope.

    It lies within [low, high] where that is known.
    """

    parts: tuple[Linear, ...]
    value: Callable[[Sequence[float], Sequence[float]], float] = field(compare=False, repr=False)
    """Of the parts and the variances of their noise; ArithmeticError or ValueError where there is none."""
    low: float = -math.inf
    high: float = math.inf
    typical: tuple[tuple[float, ...], ...] = ()
    """What its parts may be, over different data of the same number of rows: there its noise is to be small."""

    def slope(self, values: Sequence[float], variances: Sequence[float], part: int, step: float) -> float:
        """How much it grows with one of its parts."""
        ends = [
            self.value([value + side * (place == part) for place, value in enumerate(values)], variances)
            for side in (-step, step)
        ]
        return (ends[1] - ends[0]) / (2 * step)


@dataclass(frozen=True)
class Formula:
    """Anything else, computed from the measures."""

    sql: Term
    parts: tuple[Linear, ...] = ()
    """The sums and counts that it is made of."""
    weighed: frozenset[str] = frozenset()
    """The measures whose noise it asks about, each by the column `noise_of`."""
    smooth: Smooth | None = None
    """By which its error is known, where it is."""


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
WithError: TypeAlias = Estimate | Smooth
"""All whose error is known."""


# Errors through arithmetic: 2 * SUM(x) - 1 is linear, SUM(x) / COUNT(*) a ratio, anything else unknown.


def estimate_of(node: exp.Expr, answers: Mapping[str, Estimate]) -> Estimate | None:
    """The node as an estimate over measures, where `answers` gives that of each column."""
    match node:
        case exp.Alias() | exp.Paren() | exp.Nullif():
            return estimate_of(node.this, answers)
        case exp.Column():
            return answers.get(node.name)
        case exp.Literal() if not node.is_string:
            return Linear((), Fraction(node.this))
        case exp.Neg():
            inner = estimate_of(node.this, answers)
            return inner.times(Fraction(-1)) if inner is not None else None
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            left, right = estimate_of(node.left, answers), estimate_of(node.right, answers)
            return _combined(node, left, right) if left is not None and right is not None else None
    return None


def _combined(node: exp.Binary, left: Estimate, right: Estimate) -> Estimate | None:
    match node:
        case exp.Add():
            return _sum(left, right)
        case exp.Sub():
            return _sum(left, right.times(Fraction(-1)))
        case exp.Mul():
            return _scaled(left, _constant(right)) or _scaled(right, _constant(left))
        case _:
            return _quotient(left, right)


def _constant(estimate: Estimate) -> Fraction | None:
    return estimate.constant if isinstance(estimate, Linear) and not estimate.weights else None


def _scaled(estimate: Estimate, factor: Fraction | None) -> Estimate | None:
    return None if factor is None else estimate.times(factor)


def _sum(left: Estimate, right: Estimate) -> Estimate | None:
    if isinstance(left, Linear) and isinstance(right, Linear):
        return left.plus(right)
    if isinstance(left, Ratio) and (constant := _constant(right)) is not None:
        return left.plus(constant)
    if isinstance(right, Ratio) and (constant := _constant(left)) is not None:
        return right.plus(constant)
    return None


def _quotient(left: Estimate, right: Estimate) -> Estimate | None:
    divisor = _constant(right)
    if divisor is not None:
        return left.times(1 / divisor) if divisor else None
    return Ratio(left, right) if isinstance(left, Linear) and isinstance(right, Linear) else None

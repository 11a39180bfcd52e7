"""Numbers of the form value * exp(-exponent), kept as they are: no digit is lost before the last comparison."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dpsql.sampling.enclosure import exactly, precise

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Damped:
    value: Fraction
    exponent: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("a damped number is not negative")

    def __float__(self) -> float:
        return _to_float(self)

    def to_decimal(self) -> Decimal:
        """In the current precision, with the error of four operations."""
        return exactly(self.value) * (-exactly(self.exponent)).exp()


@lru_cache(maxsize=64)
def _to_float(number: Damped) -> float:
    with precise(64):
        return float(number.to_decimal())


def largest(numbers: Sequence[Damped]) -> Damped:
    """
    >>> largest([Damped(Fraction(10)), Damped(Fraction(30), Fraction(1)), Damped(Fraction(80), Fraction(2))])
    Damped(value=Fraction(30, 1), exponent=Fraction(1, 1))

    Two that are not the same number twice differ: a power of e with a rational exponent other than 0 is irrational. So
    enough digits tell them apart.
    """
    left, bits = [number for number in dict.fromkeys(numbers) if number.value] or [Damped(Fraction(0))], 64
    while len(left) > 1:
        with precise(bits):
            logarithms = [exactly(number.value).ln() - exactly(number.exponent) for number in left]
            close = max(logarithms) - Decimal(2) ** -bits
        left = [number for number, logarithm in zip(left, logarithms, strict=True) if logarithm >= close]
        bits *= 2
    return left[0]

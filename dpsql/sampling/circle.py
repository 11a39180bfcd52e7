"""pi, cosine and sine in the precision of the current `decimal` context, which has none of its own."""

from __future__ import annotations

from decimal import Decimal, getcontext, localcontext
from functools import lru_cache


def cos_sin(turns: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine of an angle between 0 and 1 turns, each off by less than 10^(6 - precision).

    Taylor's series, both at once. With an angle below 2 pi its terms fall geometrically from the eighth on, and their
    absolute values sum to at most e^(2 pi) < 10^3, each with as many roundings as its index.
    """
    angle = 2 * _pi(getcontext().prec) * turns
    negligible = Decimal(10) ** -getcontext().prec
    sums = [Decimal(0), Decimal(0)]
    term, k = Decimal(1), 0
    while k < 8 or term > negligible:
        sums[k % 2] += term if k % 4 < 2 else -term
        k += 1
        term *= angle / k
    return sums[0], sums[1]


@lru_cache(maxsize=16)
def _pi(precision: int) -> Decimal:
    """Machin's formula, in whole multiples of a unit with ten digits to spare."""
    unit: int = 10 ** (precision + 10)
    with localcontext(prec=precision):
        return Decimal(16 * _arctan_inverse(5, unit) - 4 * _arctan_inverse(239, unit)) / unit


def _arctan_inverse(x: int, unit: int) -> int:
    """arctan(1/x) = 1/x - 1/(3 x^3) + 1/(5 x^5) - ..."""
    power, total, k = unit // x, 0, 1
    while power:
        total += power // k if k % 4 == 1 else -(power // k)
        power //= x * x
        k += 2
    return total

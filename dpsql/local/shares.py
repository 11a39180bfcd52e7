"""Probabilities as whole multiples of 2^-64, so that one random word decides a coin exactly, with nothing left over.

e^epsilon is irrational, so no such probability reaches it. Shares are rounded to the private side: the odds between any
two of them that a mechanism uses are at most e^epsilon. Proof: docs/proofs/local.md, section 1.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting.exact import exact
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsql.sampling import Randomness

WORDS = 1 << 64
"""So many words there are, each as likely as any other."""

# From e^100 on every odds are beyond what shares can express.
LARGEST = Fraction(100)
PRECISION = 60


def read_epsilon(epsilon: object) -> Fraction:
    number = exact(epsilon)
    if number == 0:
        raise ProgrammingError("epsilon must be above 0", hint="write epsilon=1.0, for example")
    return number


def power_below(epsilon: Fraction) -> Fraction:
    """e^epsilon from below, off by less than 10^-50 of it. Decimal's exp is correctly rounded."""
    with localcontext(Context(prec=PRECISION, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        capped = min(epsilon, LARGEST)
        power = (Decimal(capped.numerator) / Decimal(capped.denominator)).exp()
    return Fraction(power) * (1 - Fraction(1, 10 ** (PRECISION - 5)))


def logarithm_above(ratio: Fraction) -> Fraction:
    """ln(ratio) from above, for a ratio above 1."""
    with localcontext(Context(prec=PRECISION, rounding=ROUND_CEILING)):
        logarithm = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
    return Fraction(logarithm) + Fraction(1, 10 ** (PRECISION - 5))


def least_share(epsilon: Fraction, others: int = 1) -> int:
    """The least q, in shares, with (1 - others q) / q <= e^epsilon: what each of the `others` has, beside the truth."""
    share = ceil(WORDS / (power_below(epsilon) + others))
    if WORDS - others * share <= share:
        raise ProgrammingError(
            f"at epsilon={float(epsilon):g} reports would say nothing", hint="name a larger epsilon, such as 0.1"
        )
    return share


def uniform(below: int, n: int, source: Randomness) -> NDArray[np.int64]:
    """n times one of 0, 1, ..., below - 1, each exactly as likely; the few words that would favour some are redrawn."""
    last = np.uint64(WORDS - WORDS % below - 1)
    words = source.words(n)
    while (beyond := np.flatnonzero(words > last)).size:
        words = words.copy()
        words[beyond] = source.words(len(beyond))
    return (words % np.uint64(below)).astype(np.int64)

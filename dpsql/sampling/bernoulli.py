"""A coin whose bias is exp(-gamma), exactly, from whole numbers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sampling.uniform import uniform_below

if TYPE_CHECKING:
    from dpsql.sampling.randomness import Randomness


def bernoulli_exp(numerator: int, denominator: int, source: Randomness) -> bool:
    """True with probability exp(-numerator / denominator). Proof: docs/proofs/exact_sampling.md, section 4.

    exp(-(w + f)) = exp(-1)^w exp(-f): a coin per whole unit, then one for the rest. The first tail ends it, so a huge
    exponent takes no longer than a small one.
    """
    if numerator < 0 or denominator < 1:
        raise ValueError(f"{numerator}/{denominator} is not a fraction >= 0")
    whole, rest = divmod(numerator, denominator)
    while whole:
        if not _at_most_one(1, 1, source):
            return False
        whole -= 1
    return _at_most_one(rest, denominator, source)


def _at_most_one(numerator: int, denominator: int, source: Randomness) -> bool:
    """For gamma <= 1: von Neumann's series. Flip coins of bias gamma/1, gamma/2, ... until one fails.

    The k-th is reached with probability gamma^(k-1)/(k-1)!, so the first failure has an odd number with probability
    1 - gamma + gamma^2/2! - ... = exp(-gamma).
    """
    k = 1
    while uniform_below(denominator * k, source) < numerator:
        k += 1
    return k % 2 == 1

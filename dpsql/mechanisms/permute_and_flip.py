"""Permute-and-flip: go through the candidates in random order, and take each with probability exp(-rate * shortfall).

The best one is always taken when it is met. Never worse than the exponential mechanism at the same epsilon, and made of
exact coins alone. Proof: docs/proofs/permute_and_flip.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sampling import Randomness, bernoulli_exp, uniform_below

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction


def permute_and_flip(gains: Sequence[int], rate: Fraction, source: Randomness) -> int:
    """The position of one of the gains, a large one with high probability."""
    best, order = max(gains), list(range(len(gains)))
    while True:
        # The next of a random permutation; the shuffle goes no further than it is needed.
        i = uniform_below(len(order), source)
        order[i], order[-1] = order[-1], order[i]
        candidate = order.pop()
        penalty = rate * (best - gains[candidate])
        if bernoulli_exp(penalty.numerator, penalty.denominator, source):
            return candidate

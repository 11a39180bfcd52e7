"""Exact random integers from a cryptographic source: the only place in dpsql where chance enters.

Nothing here is approximated. A vector of float64 is used where it *proves* the answer, arbitrary precision where it
does not (docs/proofs/exact_sampling.md).
"""

from __future__ import annotations

from dpsql.sampling.bernoulli import bernoulli_exp, uniform_below
from dpsql.sampling.choice import choose, uniform_each
from dpsql.sampling.discrete_laplace import discrete_laplace
from dpsql.sampling.randomness import CryptographicRandomness, Randomness, RepeatableRandomness
from dpsql.sampling.real_noise import rounded_real
from dpsql.sampling.rounded_box import rounded_box
from dpsql.sampling.rounded_gaussian import rounded_gaussian

__all__ = [
    "CryptographicRandomness",
    "Randomness",
    "RepeatableRandomness",
    "bernoulli_exp",
    "choose",
    "discrete_laplace",
    "rounded_box",
    "rounded_gaussian",
    "rounded_real",
    "uniform_below",
    "uniform_each",
]

"""Exact random integers from a cryptographic source: the only source of randomness in dpsql.

Nothing here is approximated. A vector of float64 is used where it *proves* the answer, arbitrary precision where it
does not (docs/proofs/exact_sampling.md).
"""

from __future__ import annotations

from dpsql.sampling.bernoulli import bernoulli_exp, choose, uniform_below, uniform_each
from dpsql.sampling.gaussian import rounded_gaussian, rounded_real
from dpsql.sampling.k_norm import rounded_box
from dpsql.sampling.laplace import discrete_laplace
from dpsql.sampling.randomness import CryptographicRandomness, Randomness, RepeatableRandomness

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

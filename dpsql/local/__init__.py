"""Local differential privacy: people randomise their own answers, and only reports are ever collected.

    reports = KaryResponse(["never", "sometimes", "daily"], epsilon=1.0).perturb(answers)
    KaryResponse(["never", "sometimes", "daily"], epsilon=1.0).estimate(reports).intervals()

Coins are exact and cryptographic, and no two values of the domain make any report more than e^epsilon times as likely.
Proof: docs/proofs/local.md.
"""

from __future__ import annotations

from dpsql.local.column import best_for
from dpsql.local.estimate import shuffled_epsilon
from dpsql.local.k_ary import KaryResponse, RandomizedResponse
from dpsql.local.mechanism import Estimate, LocalMechanism
from dpsql.local.rappor import Rappor
from dpsql.local.subset_selection import SubsetSelection
from dpsql.local.unary import OptimizedUnaryEncoding

__all__ = [
    "Estimate",
    "KaryResponse",
    "LocalMechanism",
    "OptimizedUnaryEncoding",
    "RandomizedResponse",
    "Rappor",
    "SubsetSelection",
    "best_for",
    "shuffled_epsilon",
]

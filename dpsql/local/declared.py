"""The mechanism that a schema says a column was collected with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.local.k_ary import KaryResponse, RandomizedResponse
from dpsql.local.rappor import Rappor
from dpsql.local.subset_selection import SubsetSelection
from dpsql.local.unary import OptimizedUnaryEncoding

if TYPE_CHECKING:
    from dpsql.local.mechanism import Mechanism
    from dpsql.schema.model import Collected

KINDS = (KaryResponse, OptimizedUnaryEncoding, SubsetSelection)


def declared_mechanism(collected: Collected) -> Mechanism:
    if collected.mechanism == Rappor.name:
        return Rappor(collected.values, collected.epsilon, instantaneous=collected.instantaneous)
    if collected.mechanism == RandomizedResponse.name:
        return RandomizedResponse(collected.epsilon, collected.values)
    (kind,) = (kind for kind in KINDS if kind.name == collected.mechanism)
    return kind(collected.values, collected.epsilon)

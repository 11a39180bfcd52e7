"""Which mechanism to collect with: the one whose estimates err least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError
from dpsql.local.k_ary import KaryResponse
from dpsql.local.rappor import Rappor
from dpsql.local.subset_selection import SubsetSelection
from dpsql.local.unary import OptimizedUnaryEncoding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.local.mechanism import Mechanism

# Simple ones first: among equals, the first is taken.
KINDS = (KaryResponse, SubsetSelection, OptimizedUnaryEncoding, Rappor)


def best_for(domain: Iterable[object], epsilon: object, n: int) -> Mechanism:
    """The least variance, summed over all values, of the counts of n people; it is the same whatever they answer.

    >>> best_for(range(4), 3.0, n=1000)
    KaryResponse(4 values, epsilon=3)
    >>> best_for(range(50), 1.0, n=1000)
    SubsetSelection(50 values, epsilon=1)
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ProgrammingError(f"n is how many people report, not {n!r}", hint="write n=1000, for example")
    listed = tuple(domain)
    return min((kind(listed, epsilon) for kind in KINDS), key=lambda mechanism: mechanism.total_variance(n))

"""Units with few rows count in full, wherever these are: neither ranked nor summed by group. docs/proofs/few_rows.md.

Noise hides what `groups` groups of `rows` rows can do: in L1 as much as groups * rows rows, in L2 as much as
sqrt(groups) * rows. A unit with no more rows than that, in all, can do no more, however they are spread. Where the L1
norm is all that matters, every row of a unit with more counts for a part, and none is left out.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountRows, CountValues, OneOf, Parted, SumValues

if TYPE_CHECKING:
    from collections.abc import Collection

    from dpsql.aggregates.measure import Measure

FINE_BITS = 32
"""Where rows count in parts, what a unit may add has at least so many bits: of a million rows little is cut off, and
what a billion units add to one group fits into 64 bits."""
LEAST = 16
"""Where so many rows are few, most units have no more, and the time to count them is well spent."""


def few_rows(groups: int, rows: int, measures: Collection[Measure]) -> int | None:
    """The largest number with few^2 <= groups * rows^2; None if it is not worth it, or not all measures add up."""
    few = isqrt(groups * rows * rows)
    return few if few >= LEAST and measures and all(map(adds_up, measures)) else None


def parted(measure: Measure, most: int) -> Parted:
    """The measure on a grid that is fine enough for parts of it."""
    assert isinstance(measure, CountRows | CountValues | SumValues | OneOf)
    return Parted(measure, most, 1 << max(0, FINE_BITS - measure.linf(most).bit_length()))


def adds_up(measure: Measure) -> bool:
    """Whether a unit adds to a group what its rows there add, each by itself, as long as none is cut."""
    match measure:
        case CountRows(most=most) | CountValues(most=most):
            return most is None
        case SumValues(group=group, mean=mean):
            return group is None and not mean
        case _:
            return False

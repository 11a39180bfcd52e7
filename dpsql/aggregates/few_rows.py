"""Units with few rows count in full, wherever these are: neither ranked nor summed by group. docs/proofs/few_rows.md.

Noise hides what `groups` groups of `rows` rows can do: in L1 as much as groups * rows rows, in L2 as much as
sqrt(groups) * rows. A unit with no more rows than that, in all, can do no more, however they are spread.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountRows, CountValues, SumValues

if TYPE_CHECKING:
    from collections.abc import Collection

    from dpsql.aggregates.measure import Measure

LEAST = 16
"""Where so many rows are few, most units have no more, and the time to count them is well spent."""


def few_rows(groups: int, rows: int, measures: Collection[Measure]) -> int | None:
    """How many rows are few, the largest number with few^2 <= groups * rows^2; None if that is not worth it, or if
    rows are not all that is measured."""
    few = isqrt(groups * rows * rows)
    return few if few >= LEAST and measures and all(map(_adds_up, measures)) else None


def _adds_up(measure: Measure) -> bool:
    """Whether a unit adds to a group what its rows there add, each by itself, as long as none is cut."""
    match measure:
        case CountRows(most=most) | CountValues(most=most):
            return most is None
        case SumValues(group=group, mean=mean):
            return group is None and not mean
        case _:
            return False

"""A count or sum of which the number of units, where that is counted anyway, bears a part.

A unit that has rows in a group adds 1 to `rows` of them, so it moves  rows - (1 + rows)/2 * units  by no more than half
of that range. At the right parts of the budget the count has no more noise than it would have alone, and the number of
units comes free. docs/proofs/weights.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import Centred, CountRows, CountUnits, CountValues, SumValues

if TYPE_CHECKING:
    from dpsql.aggregates.measure import Measure


def from_middle(measure: Measure, rows: int) -> tuple[tuple[Measure, Fraction], ...]:
    """The measures, with weights, of which it is the sum."""
    if not isinstance(measure, CountRows | CountValues | SumValues) or _is_centred(measure):
        return ((measure, Fraction(1)),)
    centred = Centred(measure)
    worth = Fraction(1, centred.times(rows))
    units = CountUnits(), worth * centred.middle(rows)
    return ((centred, worth), units) if centred.linf(rows) else (units,)


def _is_centred(measure: CountRows | CountValues | SumValues) -> bool:
    return isinstance(measure, SumValues) and (measure.centre != 0 or measure.low + measure.high == 0)

"""Partials of many units together, which count as they are, beside those of single units, which are cut to a bound.

Both are in the same columns. Sums of many need more bits, and so every sum has two:

    m0_all    the sum, in as many bits as that of all units may need
    m0        the same in as many as that of one unit needs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import Centred, CountUnits, SumValues
from dpsql.engine_sql.build import LONG, WIDE, apply, cast, integer, total
from dpsql.engine_sql.tree import Field, Named
from dpsql.schema.types import Decimal

if TYPE_CHECKING:
    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.summed import Summed
    from dpsql.engine_sql.tree import Term

TOGETHER = "_together"
"""How many rows are together, where units are counted by them."""


def partials_of_both(summed: Summed, *, in_decimals: bool = False) -> list[Named]:
    """What is computed of the rows of one unit in a group, or of many."""
    found: list[Named] = []
    for name, measure in summed.measures:
        part, values = _inner(measure), summed.values_of(name)
        first_and_others = part.partial(name, values)
        if isinstance(part, SumValues):
            kept = part.decimal if in_decimals else None
            first_and_others[0] = Named(_total(part, Field(values, kind=kept or part.kind)), _all(name))
        found += first_and_others
    return found


def sums_of_one(summed: Summed) -> list[Named]:
    """The sums that a bound reads."""
    return [
        Named(part.of_one(Field(_all(name), kind=WIDE)), name)
        for name, measure in summed.measures
        if isinstance(part := _inner(measure), SumValues)
    ]


def uncut(name: str, measure: ByUnit, rows: int) -> Term:
    """What is together as it is; a sum of no values is 0. What counts units, or is counted from the middle of what one
    unit may add, is right where each has one row."""
    number = Field(TOGETHER, kind=LONG)
    match measure:
        case CountUnits():
            return number
        case Centred(inner):
            return measure.moved(uncut(name, inner, rows), number, rows)
        case SumValues():
            return apply("coalesce", Field(_all(name), kind=WIDE), integer(0), kind=WIDE)
        case _:
            return Field(name, kind=LONG)


def _inner(measure: ByUnit) -> ByUnit:
    return measure.inner if isinstance(measure, Centred) else measure


def _total(measure: SumValues, values: Field) -> Term:
    """Whole numbers are counted from the centre before they are summed, decimals after."""
    if isinstance(values.kind, Decimal):
        return measure.sum_centred(values)
    return total(cast(values, LONG))


def _all(name: str) -> str:
    """The column of a sum over a unit, or over many."""
    return f"{name}_all"

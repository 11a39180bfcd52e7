"""The time between two dates: date - date, DATE_DIFF and DATE_SUB."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import Properties, bounded, midnight
from dpsql.expressions.ranges import Exact, Range, corners, monotone
from dpsql.expressions.temporal.arithmetic import SPANS, UNITS, ordinals
from dpsql.expressions.temporal.parts import need_time
from dpsql.expressions.types import common_type, written_as
from dpsql.schema.types import Date, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term

EPOCH = datetime(1970, 1, 1)
BOUNDARIES: dict[str, Callable[[datetime], int]] = {
    "year": lambda moment: moment.year,
    "quarter": lambda moment: moment.year * 4 + (moment.month - 1) // 3,
    "month": lambda moment: moment.year * 12 + moment.month,
    "day": lambda moment: moment.toordinal(),
    **{
        unit: lambda moment, span=SPANS[unit]: (moment - EPOCH) // span  # type: ignore[misc]
        for unit in ("hour", "minute", "second")
    },
}


def minus_properties(arguments: Sequence[Properties]) -> Properties:
    """The days from one date to another."""
    if not all(isinstance(properties.type, Date) for properties in arguments):
        raise Misfit(
            "the difference of timestamps is an interval, and no number", "for a - b write  DATE_DIFF('hour', b, a)"
        )
    left, right = arguments
    low_high = corners(lambda a, b: a - b, ordinals(left), ordinals(right))
    return bounded(Integer(), *low_high, nullable=left.nullable or right.nullable)


def minus_sql(arguments: Sequence[Written]) -> Term:
    left, right = (argument.sql for argument in arguments)
    return apply("date - date", left, right, kind=Integer())


def difference_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    """DATE_DIFF counts the boundaries of the unit between two moments, DATE_SUB the whole units; weeks are 7 days."""
    unit, first, last = arguments
    for properties in (first, last):
        need_time(name, properties)
    if unit.constant not in UNITS:
        raise Misfit(f"{name} takes one of {', '.join(UNITS)}")
    if unit.constant == "week":
        low, high = _weeks(first, last)
    else:
        low, high = _boundaries(str(unit.constant), first, last)
    if name == "DATE_SUB":
        low, high = _fewer(low, high)
    return bounded(Integer(), low, high, nullable=first.nullable or last.nullable)


def _boundaries(unit: str, first: Properties, last: Properties) -> Range:
    ends = [
        [None if end is None else midnight(end) for end in (properties.low, properties.high)]
        for properties in (last, first)
    ]
    counted = [[None if end is None else BOUNDARIES[unit](end) for end in pair] for pair in ends]
    return corners(lambda a, b: a - b, *counted)


def _weeks(first: Properties, last: Properties) -> Range:
    return monotone(lambda days: int(Fraction(days, 7)), _boundaries("day", first, last))


def _fewer(low: Exact | None, high: Exact | None) -> Range:
    """A unit that has begun is not counted, on either side of zero."""
    return (
        low if low is None or low <= 0 else low - 1,
        high if high is None or high >= 0 else high + 1,
    )


def difference_sql(name: str, arguments: Sequence[Written]) -> Term:
    unit, first, last = arguments
    kind = common_type([first.properties, last.properties])
    assert kind is not None
    return apply(name, unit.sql, written_as(kind, first), written_as(kind, last), kind=Integer())


def _difference(name: str) -> Function:
    return Function(
        name,
        f"{name}('unit', from, to)",
        partial(difference_properties, name),
        partial(difference_sql, name.lower().replace("_", " ")),
    )


FUNCTIONS = (
    Function("date - date", "date - date", minus_properties, minus_sql),
    _difference("DATE_DIFF"),
    _difference("DATE_SUB"),
)

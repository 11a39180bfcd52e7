"""Dates made of dates and numbers, and numbers of dates: LAST_DAY, MAKE_DATE, EPOCH, EPOCH_US."""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, integer, test, when
from dpsql.expressions.function import Function, Misfit, Written, need_count
from dpsql.expressions.properties import Properties, bounded, midnight, one_of
from dpsql.expressions.ranges import range_of, rounded_out
from dpsql.expressions.temporal.difference import EPOCH
from dpsql.expressions.temporal.parts import need_time, starts_within
from dpsql.schema.types import Date, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term


def last_day_properties(arguments: Sequence[Properties]) -> Properties:
    (moment,) = arguments
    need_time("LAST_DAY", moment)
    starts = starts_within("month", moment)
    if starts is not None:
        return one_of(Date(), (_last_day(start) for start in starts), nullable=moment.nullable)
    low, high = (_last_day(end) if isinstance(end, date) else None for end in (moment.low, moment.high))
    return bounded(Date(), low, high, nullable=moment.nullable)


def _last_day(day: date) -> date:
    return date(day.year, day.month, calendar.monthrange(day.year, day.month)[1])


def last_day_sql(arguments: Sequence[Written]) -> Term:
    return apply("last day", arguments[0].sql, kind=Date())


def make_date_properties(arguments: Sequence[Properties]) -> Properties:
    need_count("MAKE_DATE", arguments, 3)
    if not all(isinstance(properties.type, Integer) for properties in arguments):
        raise Misfit("MAKE_DATE takes a year, a month and a day as integers")
    low, high = range_of(arguments[0])
    first = None if low is None else date(max(1, min(int(low), 9999)), 1, 1)
    last = None if high is None else date(max(1, min(int(high), 9999)), 12, 31)
    return bounded(Date(), first, last, nullable=True)


def make_date_sql(arguments: Sequence[Written]) -> Term:
    parts = [argument.sql for argument in arguments]
    ranges = zip(parts, ((1, 9999), (1, 12), (1, 31)), strict=True)
    sound = test("and", *(test("between", part, integer(low), integer(high)) for part, (low, high) in ranges))
    return when(sound, apply("make date", *parts, kind=Date()))


def epoch_properties(arguments: Sequence[Properties]) -> Properties:
    """Seconds since 1970."""
    (moment,) = arguments
    need_time("EPOCH", moment)
    low, high = (None if end is None else _seconds(midnight(end)) for end in (moment.low, moment.high))
    return bounded(Double(), *rounded_out((low, high)), nullable=moment.nullable)


def _seconds(moment: datetime) -> Fraction:
    return Fraction((moment - EPOCH) // timedelta(microseconds=1), 1_000_000)


def epoch_sql(arguments: Sequence[Written]) -> Term:
    return apply("epoch", arguments[0].sql, kind=Double())


def microseconds_properties(arguments: Sequence[Properties]) -> Properties:
    """Microseconds since 1970, of a timestamp: a date has none that anybody looks at."""
    (moment,) = arguments
    if not isinstance(moment.type, Timestamp):
        raise Misfit(f"EPOCH_US takes a timestamp, not {moment.type.name}")
    low, high = (None if end is None else int(_seconds(midnight(end)) * 1_000_000) for end in (moment.low, moment.high))
    return bounded(Integer(), low, high, nullable=moment.nullable)


def microseconds_sql(arguments: Sequence[Written]) -> Term:
    return apply("epoch microseconds", arguments[0].sql, kind=Integer())


FUNCTIONS = (
    Function("LAST_DAY", "LAST_DAY(date)", last_day_properties, last_day_sql),
    Function("MAKE_DATE", "MAKE_DATE(year, month, day)", make_date_properties, make_date_sql),
    Function("EPOCH", "EPOCH(date)", epoch_properties, epoch_sql),
    Function("EPOCH_US", "EPOCH_US(timestamp)", microseconds_properties, microseconds_sql),
)

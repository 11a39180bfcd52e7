"""A date plus days, a moment plus an interval. What leaves the calendar is NULL."""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, integer
from dpsql.engine_sql.tree import Constant, Short, TryCast
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import Properties, bounded, midnight
from dpsql.expressions.ranges import corners, range_of
from dpsql.expressions.temporal.parts import in_calendar, need_time, start_of
from dpsql.expressions.types import written_as
from dpsql.schema.types import Date, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.ranges import Exact, Range

LAST_ORDINAL = date.max.toordinal()
LONGEST_INTERVAL = timedelta(days=3_660_000)

MONTHS = {"year": 12, "quarter": 3, "month": 1}
SPANS = {
    "week": timedelta(days=7),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
UNITS = (*MONTHS, *SPANS)


def ordinals(properties: Properties) -> Range:
    return tuple(end.toordinal() if isinstance(end, date) else None for end in (properties.low, properties.high))  # type: ignore[return-value]


def days_properties(arguments: Sequence[Properties]) -> Properties:
    day, days = arguments
    if not (isinstance(day.type, Date) and isinstance(days.type, Integer)):
        raise Misfit(f"a number of days is added to a date, not {days.type.name} to {day.type.name}")
    low, high = corners(lambda a, b: a + b, ordinals(day), range_of(days))
    nullable = day.nullable or days.nullable or not _within(low, high)
    return bounded(Date(), _day(low), _day(high), nullable=nullable)


def _within(low: Exact | None, high: Exact | None) -> bool:
    return low is not None and high is not None and low >= 1 and high <= LAST_ORDINAL


def _day(ordinal: Exact | None) -> date | None:
    return None if ordinal is None else date.fromordinal(max(1, min(int(ordinal), LAST_ORDINAL)))


def days_sql(arguments: Sequence[Written]) -> Term:
    """Held within the length of the calendar the days cannot carry a date out of what the engine can add to."""
    day, days = arguments
    # NULL is held too, and leads out of the calendar like all that is too far.
    clamped = apply("least", apply("greatest", days.sql, integer(-LAST_ORDINAL)), integer(LAST_ORDINAL), kind=Integer())
    moved = apply("date + days", day.sql, TryCast(clamped, Short(32)), kind=Date())
    properties = days_properties([day.properties, days.properties])
    return in_calendar(moved, Date()) if properties.nullable else moved


def interval_properties(arguments: Sequence[Properties]) -> Properties:
    moment = arguments[0]
    low, high = _interval_ends(arguments)
    nullable = moment.nullable or not (isinstance(low, datetime) and isinstance(high, datetime))
    return bounded(Timestamp(), _clamped(low), _clamped(high), nullable=nullable)


def _interval_ends(arguments: Sequence[Properties]) -> tuple[datetime | int | None, datetime | int | None]:
    """Where the ends of the range go; -1 before the calendar begins, 1 after it ends, None if that is not known."""
    moment, (amount, unit) = arguments[0], _interval(arguments)
    low = None if moment.low is None else _moved(midnight(moment.low), amount, unit)
    high = None if moment.high is None else _moved(midnight(moment.high), amount, unit)
    if unit in MONTHS and isinstance(moment.type, Timestamp) and moment.low != moment.high:
        # Days are cut to the month's end and keep their time, so that moments may change their order within a day.
        low = start_of("day", low) if isinstance(low, datetime) else low
        high = high.replace(hour=23, minute=59, second=59, microsecond=999_999) if isinstance(high, datetime) else high
    return low, high


def _interval(arguments: Sequence[Properties]) -> tuple[int, str]:
    moment, amount, unit = arguments[0], arguments[1].constant, arguments[2].constant
    need_time("an INTERVAL", moment)
    if not isinstance(amount, int) or unit not in UNITS:
        raise Misfit(f"an INTERVAL is a constant whole number of one of {', '.join(UNITS)}")
    name = str(unit)
    if abs(amount) > LONGEST_INTERVAL // SPANS.get(name, timedelta(days=30 * MONTHS.get(name, 1))):
        raise Misfit("an INTERVAL is at most 10000 years")
    return amount, name


def _moved(moment: datetime, amount: int, unit: str) -> datetime | int:
    """The moment, or -1 before the calendar begins, 1 after it ends."""
    try:
        if unit in SPANS:
            return moment + amount * SPANS[unit]
        months = moment.year * 12 + moment.month - 1 + amount * MONTHS[unit]
        last = calendar.monthrange(months // 12, months % 12 + 1)[1] if 12 <= months < 120_000 else 1
        return moment.replace(year=months // 12, month=months % 12 + 1, day=min(moment.day, last))
    except (OverflowError, ValueError):
        return -1 if amount < 0 else 1


def _clamped(moved: datetime | int | None) -> datetime | None:
    if isinstance(moved, int):
        return datetime.min if moved < 0 else datetime.max
    return moved


def interval_sql(arguments: Sequence[Written]) -> Term:
    properties = [argument.properties for argument in arguments]
    amount, unit = _interval(properties)
    # At most 10000 years from a moment in the calendar: far from where the engine's timestamps end.
    moment = written_as(Timestamp(), arguments[0])
    moved = apply("shift", moment, integer(amount), Constant(unit, Text()), kind=Timestamp())
    certain = all(isinstance(end, datetime) for end in _interval_ends(properties))
    return moved if certain else in_calendar(moved, Timestamp())


FUNCTIONS = (
    Function("date + days", "date + days", days_properties, days_sql),
    Function("date + interval", "date + INTERVAL 1 MONTH", interval_properties, interval_sql),
)

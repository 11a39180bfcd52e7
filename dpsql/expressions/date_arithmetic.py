"""A date plus days, a moment plus an interval. What leaves the calendar is NULL."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.engine_sql.build import apply, arithmetic, integer, test, when
from dpsql.engine_sql.tree import Constant, Short, TryCast
from dpsql.errors import ProgrammingError
from dpsql.expressions.dates import in_calendar, need_time, start_of, starts_within, unit_named
from dpsql.expressions.properties import (
    MOST_VALUES,
    Exact,
    Properties,
    Range,
    bounded,
    corners,
    midnight,
    monotone,
    one_of,
    range_of,
    rounded_out,
)
from dpsql.expressions.tree import Function, Literal, Misfit, Written, common_type, need_count, written_as
from dpsql.schema.types import Date, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.lower import Lowering

LAST_ORDINAL = date.max.toordinal()
LONGEST_INTERVAL = timedelta(days=3_660_000)

MONTHS_OF_UNIT = {"year": 12, "quarter": 3, "month": 1}
SPANS = {
    "week": timedelta(days=7),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
UNITS = (*MONTHS_OF_UNIT, *SPANS)


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
    """The shifted ends of the range; -1 before the calendar, 1 after it, None if unknown."""
    moment, (amount, unit) = arguments[0], _interval(arguments)
    low = None if moment.low is None else _moved(midnight(moment.low), amount, unit)
    high = None if moment.high is None else _moved(midnight(moment.high), amount, unit)
    if unit in MONTHS_OF_UNIT and isinstance(moment.type, Timestamp) and moment.low != moment.high:
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
    if abs(amount) > LONGEST_INTERVAL // SPANS.get(name, timedelta(days=30 * MONTHS_OF_UNIT.get(name, 1))):
        raise Misfit("an INTERVAL is at most 10000 years")
    return amount, name


def _moved(moment: datetime, amount: int, unit: str) -> datetime | int:
    """The moment, or -1 before the calendar begins, 1 after it ends."""
    try:
        if unit in SPANS:
            return moment + amount * SPANS[unit]
        months = moment.year * 12 + moment.month - 1 + amount * MONTHS_OF_UNIT[unit]
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


DATE_ARITHMETIC = (
    Function("date + days", "date + days", days_properties, days_sql),
    Function("date + interval", "date + INTERVAL 1 MONTH", interval_properties, interval_sql),
)


# -- difference --------------------------------------------------------------------------------------------------------
# The time between two dates: date - date, DATE_DIFF and DATE_SUB.

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
            "the difference of two timestamps is an interval, not a number", "for a - b write  DATE_DIFF('hour', b, a)"
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


DIFFERENCES = (
    Function("date - date", "date - date", minus_properties, minus_sql),
    _difference("DATE_DIFF"),
    _difference("DATE_SUB"),
)


# -- buckets -----------------------------------------------------------------------------------------------------------
# TIME_BUCKET(width, timestamp) for any number of seconds: steps of that width, counted from Monday 2000-01-03.
#
# Its values are known as DATE_TRUNC's are: where few steps lie within the bounds of the moment, they are public groups.

FIRST_MONDAY = datetime(2000, 1, 3)
SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
LONGEST = 100 * 366 * 86_400
"""A step is shorter than a century, in seconds."""


def bucket_properties(arguments: Sequence[Properties]) -> Properties:
    width, moment = arguments
    if not isinstance(moment.type, Timestamp):
        raise Misfit(f"TIME_BUCKET takes a timestamp, not {moment.type.name}, unless its width is whole days")
    if not isinstance(width.constant, int) or not 0 < width.constant <= LONGEST:
        raise Misfit("TIME_BUCKET takes a constant width of a second to a century")
    step = width.constant * SECOND
    if moment.low is None or moment.high is None:
        return bounded(Timestamp(), None, None, nullable=True)
    low, high = midnight(moment.low), midnight(moment.high)
    first = max(low - datetime.min - (low - FIRST_MONDAY) % step, timedelta()) + datetime.min
    begins_before = (low - FIRST_MONDAY) % step > low - datetime.min
    nullable = moment.nullable or begins_before
    if begins_before or (high - first) // step >= MOST_VALUES:
        return bounded(Timestamp(), first, high, nullable=nullable)
    return one_of(Timestamp(), [first + n * step for n in range((high - first) // step + 1)], nullable=nullable)


def bucket_sql(arguments: Sequence[Written]) -> Term:
    width, moment = arguments
    assert isinstance(width.properties.constant, int)
    step = integer(width.properties.constant * SECOND // MICROSECOND)
    point = apply("epoch microseconds", moment.sql, kind=Integer())
    since = arithmetic("-", point, integer((FIRST_MONDAY - EPOCH) // MICROSECOND))
    # The remainder has the sign of the dividend, which lies before the first Monday for half of the calendar.
    rest = arithmetic("%", arithmetic("+", arithmetic("%", since, step), step), step)
    return in_calendar(apply("from epoch microseconds", arithmetic("-", point, rest), kind=Timestamp()), Timestamp())


BUCKETS = (Function("TIME_BUCKET", "TIME_BUCKET(INTERVAL 6 HOUR, timestamp)", bucket_properties, bucket_sql),)


# -- intervals ---------------------------------------------------------------------------------------------------------
# INTERVALs: several units in one, multiples, TO_DAYS and its like; added to a date, or compared with a difference.
#
# day + INTERVAL '1 year 2 months'         ->   (day + 14 months)
# seen - since < INTERVAL '3 days 2 hours' ->   seen < since + 266400 seconds

PART = re.compile(r"\s*([+-]?\d{1,15})\s*([a-z]+)\s*", re.IGNORECASE)
MONTHS_OF_SPAN = {"millennium": 12000, "century": 1200, "decade": 120, "year": 12, "quarter": 3, "month": 1}
DAYS = {"week": 7, "day": 1}
SECONDS = {"hour": 3600, "minute": 60, "second": 1}
DAYS_OF_A_MONTH, SECONDS_OF_A_DAY = 30, 86_400
"""As intervals are compared."""
HINT = "write it like  INTERVAL 3 MONTH  or  INTERVAL '1 year 2 months'"


@dataclass(frozen=True)
class Span:
    """Months, days and seconds, which are added in this order."""

    months: int = 0
    days: int = 0
    seconds: int = 0

    def __add__(self, other: Span) -> Span:
        return Span(self.months + other.months, self.days + other.days, self.seconds + other.seconds)

    def __mul__(self, factor: int) -> Span:
        return Span(self.months * factor, self.days * factor, self.seconds * factor)

    @property
    def length(self) -> int:
        """The length in seconds, for comparing intervals."""
        return (self.months * DAYS_OF_A_MONTH + self.days) * SECONDS_OF_A_DAY + self.seconds

    @property
    def parts(self) -> list[tuple[int, str]]:
        return [part for part in ((self.months, "month"), (self.days, "day"), (self.seconds, "second")) if part[0]]


PLURALS = {"millennium": "millennia", "century": "centuries"}
TO_SPANS = {f"TO_{PLURALS.get(unit, unit + 's').upper()}": unit for unit in (*MONTHS_OF_SPAN, *DAYS, *SECONDS)}


def is_interval(node: exp.Expr) -> bool:
    """Whether the node is an interval: one that is written, TO_DAYS(3), or a multiple or a sum of these."""
    node = node.unnest()
    if isinstance(node, exp.Mul):
        return is_interval(node.this) != is_interval(node.expression)
    if isinstance(node, exp.Add | exp.Sub):
        return is_interval(node.this) and is_interval(node.expression)
    if isinstance(node, exp.Neg):
        return is_interval(node.this)
    return isinstance(node, exp.Interval) or _to_unit(node) is not None


def span_of(node: exp.Expr, lowering: Lowering) -> Span:
    """The constant that an interval is."""
    node = node.unnest()
    match node:
        case exp.Neg():
            return span_of(node.this, lowering) * -1
        case exp.Add():
            return span_of(node.this, lowering) + span_of(node.expression, lowering)
        case exp.Sub():
            return span_of(node.this, lowering) + span_of(node.expression, lowering) * -1
        case exp.Mul():
            inner, factor = (node.this, node.expression) if is_interval(node.this) else (node.expression, node.this)
            return span_of(inner, lowering) * _whole(factor, node, lowering)
    unit = _to_unit(node)
    if unit is not None:
        (amount,) = node.expressions if isinstance(node, exp.Anonymous) else (node.this,)
        return _span(_whole(amount, node, lowering), unit)
    lowering.only(node, ("this", "unit"))
    return _written(node, lowering)


def _written(node: exp.Expr, lowering: Lowering) -> Span:
    unit = node.args.get("unit")
    if unit is None:
        return _read(node.this.name if isinstance(node.this, exp.Literal) else "", node, lowering)
    name = unit_named(unit.name) if isinstance(unit, exp.Var) else None
    if name is None:
        raise _refuse(node, lowering)
    return _span(_whole(node.this, node, lowering), name)


def _read(text: str, node: exp.Expr, lowering: Lowering) -> Span:
    """'1 year 2 months'"""
    found, end = Span(), 0
    for part in PART.finditer(text):
        unit = unit_named(part[2])
        if part.start() != end or unit is None:
            break
        found, end = found + _span(int(part[1]), unit), part.end()
    if end != len(text) or not text.strip():
        raise _refuse(node, lowering)
    return found


def _whole(node: exp.Expr, around: exp.Expr, lowering: Lowering) -> int:
    number = lowering.lower(node)
    value = number.value if isinstance(number, Literal) else None
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,15}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(around, lowering)
    return value


def _span(amount: int, unit: str) -> Span:
    if unit in MONTHS_OF_SPAN:
        return Span(months=amount * MONTHS_OF_SPAN[unit])
    return Span(days=amount * DAYS[unit]) if unit in DAYS else Span(seconds=amount * SECONDS[unit])


def _to_unit(node: exp.Expr) -> str | None:
    if isinstance(node, exp.ToDays):
        return "day"
    named = isinstance(node, exp.Anonymous) and len(node.expressions) == 1
    return TO_SPANS.get(node.name.upper()) if named else None


def _refuse(node: exp.Expr, lowering: Lowering) -> ProgrammingError:
    return ProgrammingError("an INTERVAL takes constant integers and units", at=lowering.place(node), hint=HINT)


# -- making ------------------------------------------------------------------------------------------------------------
# Dates made of dates and numbers, and numbers of dates: LAST_DAY, MAKE_DATE, EPOCH, EPOCH_US.


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


MAKING = (
    Function("LAST_DAY", "LAST_DAY(date)", last_day_properties, last_day_sql),
    Function("MAKE_DATE", "MAKE_DATE(year, month, day)", make_date_properties, make_date_sql),
    Function("EPOCH", "EPOCH(date)", epoch_properties, epoch_sql),
    Function("EPOCH_US", "EPOCH_US(timestamp)", microseconds_properties, microseconds_sql),
)


FUNCTIONS = (*DATE_ARITHMETIC, *DIFFERENCES, *MAKING, *BUCKETS)

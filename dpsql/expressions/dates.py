"""Date parts and truncation. The part is a constant; its range is known, so most parts are public groups.

Every date and timestamp lies in the years 1 to 9999: the scan sees to that for columns, and each function that makes
one gives NULL for what lies beyond. No part of such a date can fail.
"""

from __future__ import annotations

import itertools
import math
import re
from datetime import date, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, test, when
from dpsql.engine_sql.tree import Constant
from dpsql.expressions.properties import MOST_VALUES, Properties, bounded, midnight, one_of, property_of
from dpsql.expressions.tree import Call, Column, Function, Literal, Misfit, Written, written_as
from dpsql.schema.types import Date, Integer, Text, Timestamp, format_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.tree import Expression

PART_RANGES: dict[str, tuple[int, int]] = {
    "month": (1, 12),
    "quarter": (1, 4),
    "day": (1, 31),
    "dayofyear": (1, 366),
    "dayofweek": (0, 6),
    "isodow": (1, 7),
    "week": (1, 53),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
RISING_PARTS: dict[str, Callable[[date], int]] = {
    "year": lambda day: day.year,
    "decade": lambda day: day.year // 10,
    "century": lambda day: (day.year - 1) // 100 + 1,
    "millennium": lambda day: (day.year - 1) // 1000 + 1,
    "isoyear": lambda day: day.isocalendar().year,
}
PART_VALUES: dict[str, Callable[[datetime], int]] = {
    "month": lambda moment: moment.month,
    "quarter": lambda moment: (moment.month + 2) // 3,
    "day": lambda moment: moment.day,
    "dayofyear": lambda moment: moment.timetuple().tm_yday,
    "dayofweek": lambda moment: moment.isoweekday() % 7,
    "isodow": lambda moment: moment.isoweekday(),
    "week": lambda moment: moment.isocalendar().week,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
}
ROUNDS = {
    **dict.fromkeys(("month", "quarter"), timedelta(days=366)),
    "day": timedelta(days=62),
    **dict.fromkeys(("dayofweek", "isodow"), timedelta(days=7)),
    **dict.fromkeys(("dayofyear", "week"), timedelta(days=9 * 366)),
    "hour": timedelta(days=1),
    "minute": timedelta(hours=1),
    "second": timedelta(minutes=1),
}
"""Within so long every value of the part comes up: the 366th day and the 53rd week are not in every year."""
PARTS = (*RISING_PARTS, *PART_RANGES)
CLOCK_PARTS = ("hour", "minute", "second")


def need_time(name: str, properties: Properties) -> None:
    if not isinstance(properties.type, Date | Timestamp):
        raise Misfit(f"{name} takes a date or timestamp, not {properties.type.name}")


def in_calendar(moment: Term, kind: Date | Timestamp) -> Term:
    """The moment if it lies in the years 1 to 9999, NULL otherwise."""
    first, last = (date.min, date.max) if isinstance(kind, Date) else (datetime.min, datetime.max)
    return when(test("between", moment, Constant(first, kind), Constant(last, kind)), moment)


def part_properties(part: str, arguments: Sequence[Properties]) -> Properties:
    (moment,) = arguments
    need_time(part.upper(), moment)
    if part in RISING_PARTS:
        low, high = (RISING_PARTS[part](end) if isinstance(end, date) else None for end in (moment.low, moment.high))
    elif part in CLOCK_PARTS and isinstance(moment.type, Date):
        low, high = 0, 0
    else:
        return _recurring(part, moment)
    return bounded(Integer(), low, high, nullable=moment.nullable)


def _recurring(part: str, moment: Properties) -> Properties:
    """The parts that come again each minute, day, week or year: all of them, or those of a moment within less."""
    low, high = PART_RANGES[part]
    within = _between_starts(part, moment)
    if within is None:
        return bounded(Integer(), low, high, nullable=moment.nullable)
    found = sorted({PART_VALUES[part](start) for start in within})
    if found == list(range(found[0], found[-1] + 1)):
        return bounded(Integer(), found[0], found[-1], nullable=moment.nullable)
    return one_of(Integer(), found, nullable=moment.nullable)


def _between_starts(part: str, moment: Properties) -> Sequence[datetime] | None:
    """The starts of the units that decide the part, if the moment's range is shorter than a round of them."""
    if moment.low is None or moment.high is None:
        return None
    within = midnight(moment.high) - midnight(moment.low) < ROUNDS[part]
    return starts_within(GRAINS[part.upper()], moment) if within else None


def part_sql(part: str, arguments: Sequence[Written]) -> Term:
    return apply("date part", Constant(part, Text()), arguments[0].sql, kind=Integer())


def start_of(unit: str, moment: datetime) -> datetime:
    """The start of the unit that the moment lies in."""
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "year":
            return midnight.replace(month=1, day=1)
        case "quarter":
            return midnight.replace(month=(moment.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            return midnight.replace(day=1)
        case "week":
            return midnight - timedelta(days=moment.weekday())
        case "day":
            return midnight
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return moment.replace(second=0, microsecond=0)
    return moment.replace(microsecond=0)


UNIT_STEPS = {
    "year": timedelta(days=366),
    "quarter": timedelta(days=92),
    "month": timedelta(days=31),
    "week": timedelta(days=7),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
"""The longest that each unit lasts: a step of this size from one start lands in the next unit."""


def next_start(unit: str, start: datetime) -> datetime | None:
    """The start of the next unit; None where the calendar ends."""
    return None if start > datetime.max - UNIT_STEPS[unit] else start_of(unit, start + UNIT_STEPS[unit])


@lru_cache(maxsize=256)
def starts_between(unit: str, low: datetime, high: datetime) -> Sequence[datetime]:
    """The starts of the units from one moment to another."""
    starts: list[datetime] = []
    start: datetime | None = start_of(unit, low)
    while start is not None and start <= high:
        starts.append(start)
        start = next_start(unit, start)
    return tuple(starts)


def starts_within(unit: str, moment: Properties) -> Sequence[datetime] | None:
    """The starts of all units that the moment can lie in, if they are few enough to be written down."""
    if moment.low is None or moment.high is None:
        return None
    low, high = midnight(moment.low), midnight(moment.high)
    return starts_between(unit, low, high) if (high - low) / UNIT_STEPS[unit] < MOST_VALUES else None


def trunc_properties(arguments: Sequence[Properties]) -> Properties:
    unit, moment = arguments
    need_time("DATE_TRUNC", moment)
    if unit.constant not in UNIT_STEPS:
        raise Misfit(f"DATE_TRUNC takes one of {', '.join(UNIT_STEPS)}")
    name = str(unit.constant)
    starts = starts_within(name, moment)
    if starts is not None:
        return one_of(Timestamp(), starts, nullable=moment.nullable)
    low, high = (None if end is None else midnight(end) for end in (moment.low, moment.high))
    return bounded(Timestamp(), low and start_of(name, low), high, nullable=moment.nullable)


def trunc_sql(arguments: Sequence[Written]) -> Term:
    unit, moment = arguments
    return apply("date trunc", unit.sql, written_as(Timestamp(), moment), kind=Timestamp())


def yearweek_properties(arguments: Sequence[Properties]) -> Properties:
    """The ISO year and week as one number, 202453; not every number between two of these is one."""
    (moment,) = arguments
    need_time("YEARWEEK", moment)
    starts = starts_within("week", moment)
    if starts is not None:
        return one_of(Integer(), (_yearweek(start) for start in starts), nullable=moment.nullable)
    low, high = (None if end is None else _yearweek(midnight(end)) for end in (moment.low, moment.high))
    return bounded(Integer(), low, high, nullable=moment.nullable)


def _yearweek(moment: datetime) -> int:
    year, week, _ = moment.isocalendar()
    return year * 100 + week


def _part(part: str) -> Function:
    properties: Callable[[Sequence[Properties]], Properties] = partial(part_properties, part)
    return Function(part.upper(), f"{part.upper()}(date)", properties, partial(part_sql, part))


PARTS_OF_DATES = (
    *(_part(part) for part in PARTS),
    Function("YEARWEEK", "YEARWEEK(date)", yearweek_properties, partial(part_sql, "yearweek")),
    Function("DATE_TRUNC", "DATE_TRUNC('unit', date)", trunc_properties, trunc_sql),
)


# -- text --------------------------------------------------------------------------------------------------------------
# Dates as text: DAYNAME, MONTHNAME and STRFTIME with a few certain formats. What they can say is public.

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
# What may stand in a format, from the coarsest: the unit that it tells, and how many of it there are, with the first.
FORMAT_PARTS = {
    "%Y": ("year", None),
    "%m": ("month", range(1, 13)),
    "%d": ("day", range(1, 32)),
    "%H": ("hour", range(24)),
    "%M": ("minute", range(60)),
    "%S": ("second", range(60)),
}


def name_properties(name: str, values: Sequence[str], arguments: Sequence[Properties]) -> Properties:
    (moment,) = arguments
    need_time(name, moment)
    numbers = part_properties("isodow" if name == "DAYNAME" else "month", arguments).listed() or ()
    return one_of(Text(), [values[int(number) - 1] for number in numbers], nullable=moment.nullable)  # type: ignore[arg-type]


def format_properties(arguments: Sequence[Properties]) -> Properties:
    moment, pattern = arguments
    need_time("STRFTIME", moment)
    pieces = split_format(pattern.constant)
    values = _spelled(pieces, moment)
    if values is None:
        return property_of(Text(), nullable=moment.nullable)
    return one_of(Text(), values, nullable=moment.nullable)


def split_format(pattern: object) -> list[str]:
    """
    >>> split_format("%Y-%m")
    ['%Y', '-', '%m']
    """
    pieces = re.findall(r"%.|[^%]+|%", pattern, re.DOTALL) if isinstance(pattern, str) else ["%"]
    if any(piece.startswith("%") and piece not in FORMAT_PARTS for piece in pieces) or "\x00" in "".join(pieces):
        raise Misfit(f"STRFTIME takes a constant format made of {' '.join(FORMAT_PARTS)} and plain text")
    return pieces


def _spelled(pieces: list[str], moment: Properties) -> list[str] | None:
    """All possible texts in the format, if they are known and few."""
    used = [part for part in FORMAT_PARTS if part in pieces]
    starts = starts_within(FORMAT_PARTS[used[-1]][0], moment) if used else None
    if starts is not None:
        return [_spell(pieces, {part: _number(part, start) for part in used}) for start in starts]
    choices = [FORMAT_PARTS[part][1] for part in used]
    sizes = [len(numbers) for numbers in choices if numbers is not None]
    if len(sizes) < len(choices) or math.prod(sizes) > MOST_VALUES:
        return None
    return [_spell(pieces, dict(zip(used, numbers, strict=True))) for numbers in itertools.product(*choices)]  # type: ignore[arg-type]


def _number(part: str, start: datetime) -> int:
    return int(getattr(start, FORMAT_PARTS[part][0]))


def _spell(pieces: list[str], numbers: dict[str, int]) -> str:
    return "".join(f"{numbers[piece]:0{4 if piece == '%Y' else 2}d}" if piece in numbers else piece for piece in pieces)


def format_sql(arguments: Sequence[Written]) -> Term:
    moment, pattern = arguments
    return apply("strftime", moment.sql, pattern.sql, kind=Text())


def parse_properties(arguments: Sequence[Properties]) -> Properties:
    text, pattern = arguments
    if not isinstance(text.type, Text):
        raise Misfit(f"STRPTIME takes a text, not {text.type.name}")
    if not isinstance(pattern.constant, str):
        raise Misfit("STRPTIME takes a constant format, such as '%d.%m.%Y'")
    if problem := format_problem(pattern.constant, whole=False):
        raise Misfit(f"STRPTIME cannot read the format '{pattern.constant}': {problem}")
    return property_of(Timestamp(), nullable=True)


def parse_sql(arguments: Sequence[Written]) -> Term:
    text, pattern = arguments
    return in_calendar(apply("strptime", text.sql, pattern.sql, kind=Timestamp()), Timestamp())


def name_sql(name: str, arguments: Sequence[Written]) -> Term:
    return apply(name, arguments[0].sql, kind=Text())


def _name(name: str, values: Sequence[str]) -> Function:
    return Function(name, f"{name}(date)", partial(name_properties, name, values), partial(name_sql, name.lower()))


DATES_AS_TEXT = (
    _name("DAYNAME", DAYS),
    _name("MONTHNAME", MONTHS),
    Function("STRFTIME", "STRFTIME(date, '%Y-%m')", format_properties, format_sql),
    Function("STRPTIME", "STRPTIME(text, '%d.%m.%Y')", parse_properties, parse_sql),
)


# -- grains ------------------------------------------------------------------------------------------------------------
# The unit whose start decides a value: MONTH(ts) is the same all month long, HOUR(ts) all hour. Where values are to be
# listed, the start of each such unit stands for all of its moments.

GRAINS = {
    **dict.fromkeys(("YEAR", "DECADE", "CENTURY", "MILLENNIUM"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MONTHNAME", "LAST_DAY"), "month"),
    **dict.fromkeys(("ISOYEAR", "WEEK", "YEARWEEK"), "week"),
    **dict.fromkeys(("DAY", "DAYOFYEAR", "DAYOFWEEK", "ISODOW", "DAYNAME", "date - date", "date + days"), "day"),
    **{unit.upper(): unit for unit in CLOCK_PARTS},
}
FINEST_FIRST = ("second", "minute", "hour", "day", "month", "quarter", "year")
SECONDS_OF_A_UNIT = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


def common_grain(one: str | None, other: str | None) -> str | None:
    """The coarsest unit that both are whole numbers of; None stands for the moment itself.

    >>> common_grain("hour", "month"), common_grain("week", "month")
    ('hour', 'day')
    """
    if one is None or other is None or one == other:
        return one and other
    return min(("day" if unit == "week" else unit for unit in (one, other)), key=FINEST_FIRST.index)


def grains(expression: Expression, grain: str | None = None) -> Iterator[tuple[Column, str | None]]:
    """The dates and timestamps that an expression reads, each with the unit whose start decides the result, if only the
    grain of the expression's own value matters."""
    match expression:
        case Column(type=Date()):
            yield expression, "day" if grain is None or grain in CLOCK_PARTS else grain
        case Column(type=Timestamp()):
            yield expression, grain
        case Call(_, arguments):
            inner = _inner_grain(expression, grain)
            for argument in arguments:
                yield from grains(argument, inner)


def _inner_grain(call: Call, grain: str | None) -> str | None:
    own, moment = truncation(call)
    if moment is not None:
        return grain if grain is not None and common_grain(own, grain) == own else own
    match call.function.name, call.arguments:
        case "CAST AS timestamp", (argument,) if isinstance(argument.type, Date):
            return grain
        case "date + interval", (_, _, Literal(str(unit))):
            return common_grain(grain, unit if unit in CLOCK_PARTS else "day")
        case "STRFTIME", (_, Literal(str(pattern))):
            return [FORMAT_PARTS[part][0] for part in FORMAT_PARTS if part in ("%Y", *split_format(pattern))][-1]
        case "DATE_DIFF", (Literal(str(unit)), *_):
            return "day" if unit == "week" else unit
        case "TIME_BUCKET", (Literal(int(width)), _):
            return next(unit for unit, seconds in SECONDS_OF_A_UNIT if width % seconds == 0)
        case ("<" | ">=", (_, Literal(date() as limit))) | (">" | "<=", (Literal(date() as limit), _)):
            limit = midnight(limit)
            return next((unit for unit in reversed(FINEST_FIRST) if start_of(unit, limit) == limit), None)
        case name, _:
            return GRAINS.get(name)


def truncation(call: Call) -> tuple[str | None, Expression | None]:
    """The unit, and the moment whose unit's start this is, or says: DATE_TRUNC, a timestamp's date, its year."""
    match call.function.name, call.arguments:
        case "DATE_TRUNC", (Literal(str(unit)), moment):
            return unit, moment
        case "CAST AS date", (moment,) if isinstance(moment.type, Timestamp):
            return "day", moment
        case "YEAR", (moment,):
            return "year", moment
    return None, None


# -- units -------------------------------------------------------------------------------------------------------------
# The names of units of time: month, months, mon and mons are the same.

UNITS = {
    "millennium": ("millennia", "millenniums", "mil", "mils"),
    "century": ("centuries", "cent", "c"),
    "decade": ("decades", "dec", "decs"),
    "year": ("years", "yr", "yrs", "y"),
    "isoyear": (),
    "quarter": ("quarters",),
    "month": ("months", "mon", "mons"),
    "week": ("weeks", "w"),
    "day": ("days", "d", "dayofmonth"),
    "hour": ("hours", "hr", "hrs", "h"),
    "minute": ("minutes", "min", "mins", "m"),
    "second": ("seconds", "sec", "secs", "s"),
}
SPELLED = {name: unit for unit, others in UNITS.items() for name in (unit, *others)}


def unit_named(name: str) -> str | None:
    return SPELLED.get(name.lower())


FUNCTIONS = (*PARTS_OF_DATES, *DATES_AS_TEXT)

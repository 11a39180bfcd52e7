"""Date parts and truncation. The part is a constant; its range is known, so most parts are public groups."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from dpsql.expressions.facts import LONGEST_LIST, Facts, bounded, one_of
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import written_as
from dpsql.expressions.write import Sql, call, text
from dpsql.schema.types import Date, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
}
PARTS = ("year", *PART_RANGES)
CLOCK_PARTS = ("hour", "minute")


def need_time(name: str, facts: Facts) -> None:
    if not isinstance(facts.type, Date | Timestamp):
        raise Misfit(f"{name} takes a date or timestamp, not {facts.type.name}")


def part_facts(part: str, arguments: Sequence[Facts]) -> Facts:
    (moment,) = arguments
    need_time(part.upper(), moment)
    if part == "year":
        low, high = (end.year if isinstance(end, date) else None for end in (moment.low, moment.high))
    elif part in CLOCK_PARTS and isinstance(moment.type, Date):
        low, high = 0, 0
    else:
        low, high = PART_RANGES[part]
    return bounded(Integer(), low, high, nullable=moment.nullable)


def part_sql(part: str, arguments: Sequence[Written]) -> Sql:
    return call("date_part", text(part), arguments[0].sql)


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
    return moment.replace(minute=0, second=0, microsecond=0)


UNIT_STEPS = {
    "year": timedelta(days=366),
    "quarter": timedelta(days=92),
    "month": timedelta(days=31),
    "week": timedelta(days=7),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
}
"""The longest that each unit lasts: a step of this size from one start lands in the next unit."""


def starts_between(unit: str, low: datetime, high: datetime) -> Iterator[datetime]:
    start = start_of(unit, low)
    while start <= high:
        yield start
        start = start_of(unit, start + UNIT_STEPS[unit])


def as_moment(end: object) -> datetime | None:
    if isinstance(end, datetime):
        return end
    return datetime(end.year, end.month, end.day) if isinstance(end, date) else None


def trunc_facts(arguments: Sequence[Facts]) -> Facts:
    unit, moment = arguments
    need_time("DATE_TRUNC", moment)
    if unit.constant not in UNIT_STEPS:
        raise Misfit(f"DATE_TRUNC takes one of {', '.join(UNIT_STEPS)}")
    low, high = as_moment(moment.low), as_moment(moment.high)
    if low is None or high is None:
        return Facts(Timestamp(), moment.nullable)
    name = str(unit.constant)
    if (high - low) / UNIT_STEPS[name] < LONGEST_LIST:
        return one_of(Timestamp(), starts_between(name, low, high), nullable=moment.nullable)
    return bounded(Timestamp(), start_of(name, low), high, nullable=moment.nullable)


def trunc_sql(arguments: Sequence[Written]) -> Sql:
    unit, moment = arguments
    return call("date_trunc", unit.sql, written_as(Timestamp(), moment))


def _part(part: str) -> Function:
    facts: Callable[[Sequence[Facts]], Facts] = partial(part_facts, part)
    return Function(part.upper(), f"{part.upper()}(date)", facts, partial(part_sql, part))


FUNCTIONS = (
    *(_part(part) for part in PARTS),
    Function("DATE_TRUNC", "DATE_TRUNC('unit', date)", trunc_facts, trunc_sql),
)

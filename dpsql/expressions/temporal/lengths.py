"""Lengths of time: AGE(later, earlier), and the time of day. They are compared, or read in parts; no column holds them.

AGE(DATE '2024-01-01', born) > INTERVAL 30 YEAR     months, days and microseconds, as one number of microseconds
EXTRACT(year FROM AGE(DATE '2024-01-01', born))     the months, divided by 12
seen::TIME BETWEEN '08:00' AND '16:00'              microseconds since midnight

AGE counts as DuckDB does: from the earlier moment to the later one, field by field, where a field below zero borrows
from the next; a borrowed month has the days of the earlier moment's month. Then it takes its sign.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.lower_words import builder, remainder
from dpsql.expressions.temporal.constants import read_moment
from dpsql.expressions.temporal.intervals import DAYS_OF_A_MONTH, is_interval, span_of
from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Date, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.lower_words import Build

SECOND = 1_000_000
DAY = 86_400 * SECOND
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")
PARTS_OF_A_DAY = {"hour": (3600 * SECOND, 24), "minute": (60 * SECOND, 60), "second": (SECOND, 60)}


def is_age(node: exp.Expr) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Anonymous) and node.name.upper() == "AGE" and len(node.expressions) == 2


def is_time(node: exp.Expr) -> bool:
    """CAST(seen AS TIME), TIME '12:00'"""
    node = node.unnest()
    return isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.TIME


def lengths(lowering: Lowering, nodes: tuple[exp.Expr, ...]) -> tuple[Expression, ...] | None:
    """Things that are compared with each other, in microseconds; None if they are neither ages nor times of day."""
    if any(map(is_age, nodes)) and all(is_age(node) or is_interval(node) for node in nodes):
        return tuple(_age_or_interval(lowering, node) for node in nodes)
    if any(map(is_time, nodes)) and all(is_time(node) or _is_text(node) for node in nodes):
        return tuple(_time(lowering, node.unnest()) for node in nodes)
    return None


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _age_or_interval(lowering: Lowering, node: exp.Expr) -> Expression:
    if not is_age(node):
        return Literal(span_of(node, lowering).length * SECOND, Integer(), lowering.place(node))
    build, age = builder(lowering, node), Age(lowering, node.unnest())
    days = build("+", build("*", age.months, DAYS_OF_A_MONTH), age.days)
    return build("*", age.sign, build("+", build("*", days, DAY), age.clock))


class Age:
    """The parts of AGE(a, b), none below zero, and the sign of all."""

    def __init__(self, lowering: Lowering, node: exp.Expr) -> None:
        build, (a, b) = builder(lowering, node), (_moment(lowering.lower(part)) for part in node.expressions)
        swapped = build("<", a, b)
        self.sign = build("CASE", swapped, -1, 1)
        last, first = build("CASE", swapped, b, a), build("CASE", swapped, a, b)
        days = build("-", build("DAY", last), build("DAY", first))
        # Dates have no time of day; it is NULL where one of them is, as all other parts are.
        clock = build("*", days, 0)
        if isinstance(last.type, Timestamp):
            clock = build("-", since_midnight(build, last), since_midnight(build, first))
        self.clock, day = _borrowed(build, clock, DAY)
        days = build("-", days, day)
        self.days, month = _borrowed(build, days, build("DAY", build("LAST_DAY", first)))
        years = build("*", build("-", build("YEAR", last), build("YEAR", first)), 12)
        months = build("-", build("MONTH", last), build("MONTH", first))
        self.months = build("-", build("+", years, months), month)


def _borrowed(build: Build, value: Expression, whole: Expression | int) -> tuple[Expression, Expression]:
    """The value, increased by a whole of the next field where it is below zero, and how many were taken from there."""
    below = build("<", value, 0)
    return build("CASE", below, build("+", value, whole), value), build("CASE", below, 1, 0)


def _moment(value: Expression) -> Expression:
    """A text that is written where a moment is taken."""
    if isinstance(value, Literal) and isinstance(value.value, str):
        return read_moment(value, Timestamp())
    if not isinstance(value.type, Date | Timestamp):
        raise ProgrammingError(
            f"AGE takes two dates or timestamps, not {value.type.name}",
            at=value.at,
            hint="write it like  AGE(DATE '2024-01-31', day)",
        )
    return value


def since_midnight(build: Build, moment: Expression) -> Expression:
    return remainder(build, build("EPOCH_US", moment), DAY)


def _time(lowering: Lowering, node: exp.Expr) -> Expression:
    inner = node.this if is_time(node) else node
    value = lowering.lower(inner)
    if isinstance(value, Literal) and isinstance(value.value, str):
        return Literal(_clock(value), Integer(), value.at)
    if not isinstance(value.type, Timestamp):
        raise no_time(lowering, node)
    return since_midnight(builder(lowering, node), value)


def _clock(text: Literal) -> int:
    found = CLOCK.fullmatch(str(text.value))
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3]) if found else (99, 0, 0)
    if found is None or hours > 23 or minutes > 59 or seconds > 59:
        raise ProgrammingError(f"'{text.value}' is no time of day", at=text.at, hint="write it like '12:30:00'")
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND + int((found[4] or "").ljust(6, "0"))


def no_time(lowering: Lowering, node: exp.Expr) -> Unsupported:
    return Unsupported(
        "a time of day can be compared, and read in parts",
        at=lowering.place(node),
        hint="write  seen::TIME < '12:00'  or  HOUR(seen); for a key of groups DATE_TRUNC('hour', seen)",
    )


def no_age(lowering: Lowering, node: exp.Expr) -> Unsupported:
    return Unsupported(
        "an age can be compared with an INTERVAL, and read in parts",
        at=lowering.place(node),
        hint="write  AGE(DATE '2024-01-31', day) > INTERVAL 1 YEAR  or  EXTRACT(year FROM AGE(DATE '2024-01-31', day))",
    )


def lower_part_of(lowering: Lowering, node: exp.Expr, part: str, length: exp.Expr) -> Expression | None:
    """EXTRACT(year FROM AGE(a, b)), HOUR(seen::TIME); None where there is no such part."""
    build = builder(lowering, node)
    if is_time(length):
        clock, sign = _time(lowering, length.unnest()), None
    else:
        age = Age(lowering, length.unnest())
        clock, sign = age.clock, age.sign
        by_name = {"year": ("//", age.months, 12), "month": ("%", age.months, 12), "day": ("+", age.days, 0)}
        if part in by_name:
            return build("*", sign, build(*by_name[part]))
    if part not in PARTS_OF_A_DAY:
        return None
    size, count = PARTS_OF_A_DAY[part]
    found = build("%", build("//", clock, size), count)
    return found if sign is None else build("*", sign, found)

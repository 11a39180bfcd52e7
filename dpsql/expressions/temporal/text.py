"""Dates as text: DAYNAME, MONTHNAME and STRFTIME with a few certain formats. What they can say is public."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import MOST_VALUES, Properties, one_of, property_of
from dpsql.expressions.temporal.parts import need_time, starts_within
from dpsql.schema.types import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dpsql.engine_sql.tree import Term

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
PARTS = {
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
    return one_of(Text(), values, nullable=moment.nullable)


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
    if any(piece.startswith("%") and piece not in PARTS for piece in pieces) or "\x00" in "".join(pieces):
        raise Misfit(f"STRFTIME takes a constant format made of {' '.join(PARTS)} and plain text")
    return pieces


def _spelled(pieces: list[str], moment: Properties) -> list[str] | None:
    """Everything that the format can say, if that is known and not too much."""
    used = [part for part in PARTS if part in pieces]
    starts = starts_within(PARTS[used[-1]][0], moment) if used else None
    if starts is not None:
        return [_spell(pieces, {part: _number(part, start) for part in used}) for start in starts]
    choices = [PARTS[part][1] for part in used]
    sizes = [len(numbers) for numbers in choices if numbers is not None]
    if len(sizes) < len(choices) or math.prod(sizes) > MOST_VALUES:
        return None
    return [_spell(pieces, dict(zip(used, numbers, strict=True))) for numbers in itertools.product(*choices)]  # type: ignore[arg-type]


def _number(part: str, start: datetime) -> int:
    return int(getattr(start, PARTS[part][0]))


def _spell(pieces: list[str], numbers: dict[str, int]) -> str:
    return "".join(f"{numbers[piece]:0{4 if piece == '%Y' else 2}d}" if piece in numbers else piece for piece in pieces)


def format_sql(arguments: Sequence[Written]) -> Term:
    moment, pattern = arguments
    return apply("strftime", moment.sql, pattern.sql, kind=Text())


def name_sql(name: str, arguments: Sequence[Written]) -> Term:
    return apply(name, arguments[0].sql, kind=Text())


def _name(name: str, values: Sequence[str]) -> Function:
    return Function(name, f"{name}(date)", partial(name_properties, name, values), partial(name_sql, name.lower()))


FUNCTIONS = (
    _name("DAYNAME", DAYS),
    _name("MONTHNAME", MONTHS),
    Function("STRFTIME", "STRFTIME(date, '%Y-%m')", format_properties, format_sql),
)

"""What to write where two types are compared that do not meet: both are named, with a spelling that works.

age > 'old'           age is an integer, and 'old' is text
day = '03.05.2024'    '03.05.2024' is not written like a date here
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

from dpsql.expressions.readable import readable
from dpsql.expressions.tree import Literal, type_properties
from dpsql.expressions.types import compared_type
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType

NUMBERS = (Integer, Double, Decimal)
MOMENTS = (Date, Timestamp)
SPOKEN = {
    Integer: "an integer",
    Double: "a number",
    Decimal: "a decimal",
    Text: "text",
    Boolean: "true or false",
    Date: "a date",
    Timestamp: "a timestamp",
}
ORDERED = ("<", "<=", ">", ">=")
SEPARATED = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})")
YEARS = range(1000, 10_000)
DAYS = range(1000_01_01, 9999_12_32)


def mismatch(operator: str, arguments: Sequence[Expression]) -> tuple[str, str] | None:
    """The problem and the way out, where a comparison is between types that do not meet."""
    first, *others = arguments
    for other in others:
        if compared_type([type_properties(first), type_properties(other)]) is None:
            return _problem(first, other), _way_out(operator, first, other)
    return None


def spoken(kind: ColumnType) -> str:
    return SPOKEN[type(kind)]


def _problem(left: Expression, right: Expression) -> str:
    for one, other in ((left, right), (right, left)):
        if isinstance(one.type, MOMENTS) and isinstance(other, Literal) and isinstance(other.type, Text):
            return f"{readable(other)} is not written like {spoken(one.type)} here"
    return f"{readable(left)} is {spoken(left.type)}, and {readable(right)} is {spoken(right.type)}"


def _way_out(operator: str, left: Expression, right: Expression) -> str:
    shown = "=" if operator == "IN" else operator
    for one, other in ((left, right), (right, left)):
        name = readable(one)
        match one.type, other:
            case Boolean(), _:
                return f"write  {name}  or  NOT {name}"
            case Date() | Timestamp(), Literal(value) if isinstance(value, str):
                return written_dates(value)
            case Date() | Timestamp(), Literal(value) if isinstance(value, int) and value in YEARS:
                return f"write  YEAR({name}) {shown} {value}"
            case Date() | Timestamp(), Literal(value) if isinstance(value, int) and value in DAYS:
                digits = str(value)
                return f"write  {name} {shown} '{digits[:4]}-{digits[4:6]}-{digits[6:]}'"
            case Text(), Literal(value) if isinstance(other.type, NUMBERS) and shown not in ORDERED:
                quoted = f"'{readable(other)}'"
                return f"put numbers in quotes: {name} {f'IN ({quoted})' if operator == 'IN' else f'{shown} {quoted}'}"
            case Text(), _ if isinstance(other.type, NUMBERS):
                return f"compare numbers: CAST({name} AS DOUBLE) {shown} {readable(other)}"
            case ((Integer() | Double() | Decimal()), Literal(value)) if isinstance(value, str):
                return f"compare it with a number, without quotes: {name} {shown} 10"
    return f"CAST one of them: CAST({readable(right)} AS {left.type.name.upper()})"


def written_dates(text: str) -> str:
    """
    >>> written_dates("03.05.2024"), written_dates("05/03/2024"), written_dates("last week")
    ("write  '2024-05-03'", "write  '2024-05-03' or '2024-03-05', whichever is meant", "write it like '2024-01-31'")
    """
    found = SEPARATED.fullmatch(text.strip())
    meant = list(dict.fromkeys(_read(found))) if found else []
    if not meant:
        return "write it like '2024-01-31'"
    dates = " or ".join(f"'{day}'" for day in meant)
    return f"write  {dates}" + ", whichever is meant" * (len(meant) > 1)


def _read(found: re.Match[str]) -> Iterator[date]:
    """Dots stand in dates that begin with the day; other marks in those that begin with the month, too."""
    one, mark, two, year = int(found[1]), found[2], int(found[3]), int(found[4])
    for month, day in ((one, two), (two, one)) if mark != "." else ((two, one),):
        try:
            yield date(year, month, day)
        except ValueError:
            continue

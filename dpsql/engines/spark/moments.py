"""Dates and timestamps in the words of Spark. Its functions of moments take timestamps with a zone, which is UTC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

MONTHS = {"year": 12, "quarter": 3, "month": 1}
SECONDS = {"hour": 3_600, "minute": 60, "second": 1}
FORMATS = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss"}
PARTS: dict[str, str] = {
    **{name: f"{name}({{}})" for name in ("year", "quarter", "month", "day", "dayofyear", "hour", "minute", "second")},
    "week": "weekofyear({})",
    "dayofweek": "(dayofweek({}) - 1)",
    "isodow": "(weekday({}) + 1)",
    "isoyear": "extract(YEAROFWEEK FROM {})",
    "yearweek": "(extract(YEAROFWEEK FROM {0}) * 100 + weekofyear({0}))",
    "decade": "(year({}) div 10)",
    "century": "((year({}) - 1) div 100 + 1)",
    "millennium": "((year({}) - 1) div 1000 + 1)",
}


def timestamp(moment: str) -> str:
    return f"CAST({moment} AS TIMESTAMP)"


def without_zone(moment: str) -> str:
    return f"CAST({moment} AS TIMESTAMP_NTZ)"


def microseconds(moment: str) -> str:
    return f"unix_micros({timestamp(moment)})"


def part(name: str, moment: str) -> str:
    return f"CAST({PARTS[name].format(timestamp(moment))} AS BIGINT)"


def starts_between(unit: str, first: str, last: str) -> str:
    """DATE_DIFF."""
    if unit in MONTHS:
        return f"CAST({_starts(unit, last)} - {_starts(unit, first)} AS BIGINT)"
    if unit in SECONDS:
        return f"({_started(unit, last)} - {_started(unit, first)})"
    days = f"datediff({last}, {first})"
    return f"CAST({days} AS BIGINT)" if unit == "day" else f"CAST({days} div 7 AS BIGINT)"


def _starts(unit: str, moment: str) -> str:
    years = f"year({moment})"
    if unit == "year":
        return years
    months = f"({years} * 12 + month({moment}) - 1)"
    return months if unit == "month" else f"({months} div 3)"


def _started(unit: str, moment: str) -> str:
    """How many have begun since 1970; rounded down, also before."""
    size = SECONDS[unit] * 1_000_000
    count = microseconds(moment)
    return f"(({count} - pmod({count}, {size}L)) div {size}L)"


def whole_units_between(unit: str, first: str, last: str) -> str:
    """DATE_SUB."""
    if unit in MONTHS:
        raise Unsupported(
            f"on Spark DATE_SUB does not count {unit}s", hint="use DATE_DIFF, or DATE_SUB with 'day' or shorter"
        )
    size = {**SECONDS, "day": 86_400, "week": 604_800}[unit] * 1_000_000
    return f"(({microseconds(last)} - {microseconds(first)}) div {size}L)"


def shifted(moment: str, amount: int, unit: str) -> str:
    if unit in MONTHS:
        return f"({moment} + INTERVAL '{amount * MONTHS[unit]}' MONTH)"
    size = {**SECONDS, "day": 86_400, "week": 604_800}[unit] * 1_000_000
    return without_zone(f"timestamp_micros({microseconds(moment)} + ({amount * size}L))")


def made(year: str, month: str, day: str) -> str:
    """From the first of the month on: where that ends in the next month there is no such day."""
    first = f"make_date(CAST({year} AS INT), CAST({month} AS INT), 1)"
    found = f"date_add({first}, CAST({day} - 1 AS INT))"
    return f"CASE WHEN month({found}) = {month} THEN {found} END"


def formatted(moment: str, pattern: str, literal: Callable[[str], str]) -> str:
    """STRFTIME: plain text stands in quotes."""
    pieces = re.findall("%.|[^%]+", pattern, re.DOTALL)
    spelled = (FORMATS.get(piece) or "'" + piece.replace("'", "''") + "'" for piece in pieces)
    return f"date_format({timestamp(moment)}, {literal(''.join(spelled))})"

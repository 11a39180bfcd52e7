"""Dates and timestamps in the words of PostgreSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

MONTHS = {"year": 12, "quarter": 3, "month": 1}
SECONDS = {"hour": 3_600, "minute": 60, "second": 1}
FORMATS = {"%Y": "YYYY", "%m": "MM", "%d": "DD", "%H": "HH24", "%M": "MI", "%S": "SS"}
PARTS = {"dayofweek": "dow", "dayofyear": "doy"}
FRACTIONAL = ("second", "millisecond", "microsecond", "epoch")
EPOCH, FIRST_DAY, LAST_DAY = "DATE '1970-01-01'", "DATE '0001-01-01'", "DATE '9999-12-31'"
FIRST_YEAR = -4_000
"""The engine's calendar begins a little earlier, and an earlier moment is none."""


def timestamp(moment: str) -> str:
    return f"CAST({moment} AS TIMESTAMP)"


def part(name: str, moment: str) -> str:
    if name == "yearweek":
        return f"CAST(extract(isoyear FROM {moment}) * 100 + extract(week FROM {moment}) AS BIGINT)"
    name = PARTS.get(name, name)
    if name in FRACTIONAL:
        return f"CAST(trunc(extract({name} FROM {timestamp(moment)})) AS BIGINT)"
    # As a double, which is exact for whole numbers and much faster than NUMERIC.
    return f"CAST(date_part('{name}', {timestamp(moment)}) AS BIGINT)"


def microseconds(moment: str) -> str:
    return f"CAST(extract(epoch FROM {moment}) * 1000000 AS BIGINT)"


def days_between(first: str, last: str) -> str:
    return f"(CAST({last} AS DATE) - CAST({first} AS DATE))"


def starts_between(unit: str, first: str, last: str) -> str:
    """DATE_DIFF."""
    if unit in MONTHS:
        return f"CAST({_starts(unit, last)} - {_starts(unit, first)} AS BIGINT)"
    if unit in SECONDS:
        size = SECONDS[unit]
        counted = (f"floor(extract(epoch FROM {timestamp(moment)}) / {size})" for moment in (last, first))
        return f"CAST({' - '.join(counted)} AS BIGINT)"
    days = days_between(first, last)
    return f"CAST({days} AS BIGINT)" if unit == "day" else f"CAST({days} / 7 AS BIGINT)"


def _starts(unit: str, moment: str) -> str:
    years = f"extract(year FROM {moment})"
    if unit == "year":
        return years
    months = f"({years} * 12 + extract(month FROM {moment}) - 1)"
    return months if unit == "month" else f"div({months}, 3)"


def whole_units_between(unit: str, first: str, last: str) -> str:
    """DATE_SUB."""
    if unit in MONTHS:
        raise Unsupported(
            f"on PostgreSQL DATE_SUB does not count {unit}s", hint="use DATE_DIFF, or DATE_SUB with 'day' or shorter"
        )
    size = {**SECONDS, "day": 86_400, "week": 604_800}[unit] * 1_000_000
    return f"(({microseconds(timestamp(last))} - {microseconds(timestamp(first))}) / {size})"


def days_later(day: str, days: str) -> str:
    """NULL before the year 1: the engine's calendar begins a little earlier, and an earlier date fails."""
    return f"CASE WHEN {day} - {FIRST_DAY} + {days} >= 0 THEN {day} + {days} END"


def shifted(moment: str, amount: int, unit: str) -> str:
    """Where it would lead out of the engine's calendar it is NULL, as everything before the year 1 is."""
    name, count = ("month", amount * MONTHS[unit]) if unit in MONTHS else (unit, amount)
    moved = f"({moment} + INTERVAL '{count} {name}')"
    years = {"month": 12, "week": 52, "day": 365, "hour": 8_760, "minute": 525_600, "second": 31_536_000}
    first = FIRST_YEAR - count // years[name]
    if first < 1:
        return moved
    return f"CASE WHEN {moment} >= TIMESTAMP '{min(first, 9_999):04d}-01-01' THEN {moved} END"


def last_day(moment: str) -> str:
    return f"CAST(date_trunc('month', {timestamp(moment)}) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)"


def made(year: str, month: str, day: str) -> str:
    """From the first of the month on: where that ends in the next month there is no such day."""
    first = f"make_date(CAST({year} AS INTEGER), CAST({month} AS INTEGER), 1)"
    found = f"({first} + CAST({day} - 1 AS INTEGER))"
    return f"CASE WHEN extract(month FROM {found}) = {month} THEN {found} END"


def from_microseconds(count: str) -> str:
    day = 86_400_000_000
    days, rest = f"CAST({count} / {day} AS INTEGER)", f"({count} % {day}) / float8 '1000000'"
    return f"(TIMESTAMP '1970-01-01' + make_interval(days => {days}, secs => {rest}))"


def formatted(moment: str, pattern: str, literal: Callable[[str], str]) -> str:
    """STRFTIME: plain text stands in double quotes."""
    pieces = re.findall("%.|[^%]+", pattern, re.DOTALL)
    spelled = (FORMATS.get(piece) or '"' + re.sub(r'(["\\])', r"\\\1", piece) + '"' for piece in pieces)
    return f"to_char({timestamp(moment)}, {literal(''.join(spelled))})"

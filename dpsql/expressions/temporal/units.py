"""The names of units of time: month, months, mon and mons are the same."""

from __future__ import annotations

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

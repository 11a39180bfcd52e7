"""Formats of dates as PostgreSQL and Snowflake write them: 'YYYY-MM' for '%Y-%m'."""

from __future__ import annotations

import re

FORMATS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MONTH": "%B",
    "MON": "%b",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "DAY": "%A",
    "DY": "%a",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "AM": "%p",
    "PM": "%p",
    "IYYY": "%G",
    "IW": "%V",
    "ID": "%u",
}
"""The codes of TO_CHAR."""
FORMAT = re.compile("|".join(sorted(FORMATS, key=len, reverse=True)) + r'|"[^"]*"|[^A-Za-z"]+|.', re.IGNORECASE)


class Unreadable(Exception):
    """What has no meaning here; the text says why, the second argument what to write instead."""


def format_of(form: str) -> str:
    """
    >>> format_of("YYYY-MM")
    '%Y-%m'
    """
    codes = []
    for piece in FORMAT.findall(form):
        if piece.upper() in FORMATS:
            if piece.upper() in ("MONTH", "DAY", "MON", "DY") and not piece.istitle():
                raise Unreadable(f"TO_CHAR does not know {piece}", f"write {piece.title()}, or UPPER(TO_CHAR(...))")
            codes.append(FORMATS[piece.upper()])
        elif piece.isalpha():
            raise Unreadable(f"TO_CHAR does not know {piece}", f"it knows {', '.join(FORMATS)}")
        else:
            codes.append(piece.strip('"').replace("%", "%%"))
    return "".join(codes)

"""Answers as pictures, with their uncertainty: bars, lines, heat maps, by matplotlib or altair, whichever is there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.plot.chart import chart_of

if TYPE_CHECKING:
    from dpsql.result import Result

LIBRARIES = ("matplotlib", "altair")
"""The first that is installed draws. Both are shown as pictures, which need no network."""


def plot(result: Result, library: str | None = None) -> Any:
    """An altair chart or a matplotlib figure; a notebook shows either."""
    chart = chart_of(result)
    if _chosen(library) == "altair":
        from dpsql.plot.altair import draw_altair

        return draw_altair(chart)
    from dpsql.plot.matplotlib import draw_matplotlib

    return draw_matplotlib(chart)


def _chosen(library: str | None) -> str:
    if library is not None and library not in LIBRARIES:
        raise ProgrammingError(f"plots are not drawn by {library!r}", hint='library is "matplotlib" or "altair"')
    wanted = LIBRARIES if library is None else (library,)
    for name in wanted:
        if find_spec(name) is not None:
            return name
    raise NotSupportedError(f"plots need {' or '.join(wanted)}", hint=f"pip install {wanted[0]}")

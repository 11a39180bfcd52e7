"""The chart, independent of the plotting library: its keys, its kind, and the groups that fit on it.

    no key         one bar for each aggregate
    one key        bars in the order of the answer; a line with a band for dates
    two keys       a heat map
    more           bars again, their keys joined

Each aggregate has its own panel.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Literal

from dpsql.display.numbers import Ends, number, plain
from dpsql.errors import ProgrammingError
from dpsql.intervals import for_all
from dpsql.result import LEVEL, TIMES, is_number, with_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.result import Result, ResultColumn

MOST_GROUPS = 40
MOST_BINS = 200
"""Of bars that stand side by side, as those of a histogram, more fit than of names below each other."""
JOINT = " · "

Kind = Literal["bars", "line", "heat map"]
Row = tuple[Any, ...]
Chosen = tuple[list[Row], list[str]]
"""Rows, and what is to be said of those that were left out."""


@dataclass(frozen=True)
class Point:
    """One value; `low` and `high` are None where its error is not known or has no limit."""

    value: float
    low: float | None
    high: float | None
    shown: str

    @property
    def is_noise(self) -> bool:
        """Whether the value may as well be 0."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


@dataclass(frozen=True)
class Panel:
    """One aggregate: a point for each place; None where the answer is NULL."""

    name: str
    points: tuple[Point | None, ...]

    @property
    def middle(self) -> float:
        """Half way between the smallest and the largest value."""
        values = [point.value for point in self.points if point is not None] or [0.0]
        return min(values) / 2 + max(values) / 2


@dataclass(frozen=True, kw_only=True)
class Chart:
    kind: Kind
    axes: tuple[str, ...]
    """The names of the keys."""
    places: tuple[Row, ...]
    """Where each point stands: labels, or one date."""
    upright: bool
    """Whether bars stand side by side, as for numbers, or lie below each other, as for names."""
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]


def chart_of(result: Result) -> Chart:
    keys = [position for position, column in enumerate(result.columns) if _is_key(column)]
    values = [at for at, column in enumerate(result.columns) if at not in keys and _is_number(column)]
    columns = [result.columns[key] for key in keys]
    upright = len(columns) == 1 and _is_number(columns[0])
    kind = _kind(columns, [_at(row, keys) for row in result.full_rows])
    if not values:
        raise ProgrammingError("the answer has no numeric columns to plot", hint="plot COUNT, SUM or AVG")
    told, hidden = _told_from_empty(result, values, keys[0] if kind == "line" or upright else None)
    rows, notes = CHOICES[kind](told, keys, values[0], MOST_BINS if upright else MOST_GROUPS)
    if not rows:
        raise ProgrammingError("the answer has no rows to plot", hint="query groups that exist")
    # Noisy values that choose the rows have intervals that hold for all rows at once.
    chosen_from = len(result.full_rows) if hidden else 1
    drawn = [replace(column, chosen_from=max(chosen_from, column.chosen_from)) for column in result.columns]
    panels = tuple(_panel(drawn[position], position, rows) for position in values)
    names = tuple(column.name for column in columns)
    return Chart(
        kind=kind,
        axes=names if kind == "heat map" else (JOINT.join(names),),
        places=PLACES[kind]([_at(row, keys) for row in rows]),
        upright=upright,
        panels=panels,
        notes=tuple(hidden + notes + _unlimited(panels) + _noise_only(result, values)),
    )


def _noise_only(result: Result, values: Sequence[int]) -> list[str]:
    columns = [result.columns[position] for position in values]
    names = [column.name for column in columns if column.noise_only]
    left_out = [f"{column.name}: {column.caveat}" for column in columns if column.caveat and not column.noise_only]
    return ([f"± is that of the noise alone: {', '.join(names)}"] if names else []) + left_out


def _is_key(column: ResultColumn) -> bool:
    """If a column's origin is unknown, numbers count as results and anything else as keys."""
    return not _is_number(column) if column.is_key is None else column.is_key


def _is_number(column: ResultColumn) -> bool:
    return is_number(column.type)


def _kind(columns: Sequence[ResultColumn], places: Sequence[Row]) -> Kind:
    if len(columns) == 1 and columns[0].type.startswith(TIMES):
        return "line"
    # A map has one value in each place.
    return "heat map" if len(columns) == 2 and len(set(_labels(places))) == len(places) else "bars"


def _at(row: Row, keys: Sequence[int]) -> Row:
    return tuple(row[key] for key in keys)


# -- empty groups ------------------------------------------------------------------------------------------------------
# Public groups that the answer cannot tell from empty ones are left out, as empty_groups="hide" would: it is free.


def _told_from_empty(result: Result, values: Sequence[int], axis: int | None) -> Chosen:
    """Along an axis of dates or numbers only both ends are cut off: between them 0 is a value like any other."""
    rows, columns = result.full_rows, [result.columns[position] for position in values]
    may_be_empty = any(column.is_key for column in result.columns) and not any(map(_selects, columns))
    if not may_be_empty:
        return rows, []
    level = for_all(LEVEL, len(values))
    told = [row for row in rows if not _looks_empty(row, values, columns, level)]
    if axis is not None and told:
        places = [row[axis] for row in told if row[axis] is not None]
        told = [row for row in rows if row in told or (places and _is_between(row[axis], min(places), max(places)))]
    if not told or len(told) == len(rows):
        return rows, []
    return told, [f"{len(rows) - len(told):,} of {len(rows):,} groups are hidden: their numbers cannot be told from 0"]


def _is_between(place: Any, first: Any, last: Any) -> bool:
    return place is not None and first <= place <= last


def _selects(column: ResultColumn) -> bool:
    """Whether noise has chosen the rows already: by a threshold, or by what stands above the aggregates."""
    return column.chosen_from > 1 or any(column.thresholds)


def _looks_empty(row: Row, values: Sequence[int], columns: Sequence[ResultColumn], level: float) -> bool:
    found = [
        _point(row[position], column.interval(row, row[position], level))
        for position, column in zip(values, columns, strict=True)
    ]
    return any(found) and all(point is None or point.is_noise for point in found)


# -- which rows --------------------------------------------------------------------------------------------------------


def _dated(rows: Sequence[Row], keys: Sequence[int], noisy: int, most: int) -> Chosen:
    (key,) = keys
    dated = sorted((row for row in rows if row[key] is not None), key=lambda row: row[key])
    return dated, ["rows without a date are not shown"] if len(dated) < len(rows) else []


def _largest_rows(rows: Sequence[Row], keys: Sequence[int], noisy: int, most: int) -> Chosen:
    if len(rows) <= most:
        return list(rows), []
    largest = nlargest(most, range(len(rows)), key=lambda position: _size(rows[position][noisy]))
    return [rows[position] for position in sorted(largest)], [f"the {most} largest of {len(rows):,} groups"]


def _largest_of_each_key(rows: Sequence[Row], keys: Sequence[int], noisy: int, most: int) -> Chosen:
    chosen, notes = list(rows), []
    for key in keys:
        totals: dict[Any, float] = {}
        for row in rows:
            totals[row[key]] = totals.get(row[key], 0.0) + max(0.0, _size(row[noisy]))
        if len(totals) > most:
            largest = set(nlargest(most, totals, key=totals.__getitem__))
            chosen = [row for row in chosen if row[key] in largest]
            notes.append(f"the {most} largest of {len(totals):,} groups")
    return chosen, notes


CHOICES: dict[Kind, Callable[[Sequence[Row], Sequence[int], int, int], Chosen]] = {
    "bars": _largest_rows,
    "line": _dated,
    "heat map": _largest_of_each_key,
}


def _size(value: object) -> float:
    size = number(value)
    return -math.inf if math.isnan(size) else size


# -- where they stand --------------------------------------------------------------------------------------------------


def _labels(places: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(tuple(map(plain, place)) for place in places)


def _told_apart(places: Sequence[Row]) -> tuple[Row, ...]:
    """One label for each row; rows whose labels would be equal are numbered."""
    seen: Counter[str] = Counter()
    made = []
    for label in (JOINT.join(place) for place in _labels(places)):
        seen[label] += 1
        made.append((label if seen[label] == 1 else f"{label} ({seen[label]})",))
    return tuple(made)


PLACES: dict[Kind, Callable[[Sequence[Row]], tuple[Row, ...]]] = {
    "bars": _told_apart,
    "line": tuple,
    "heat map": _labels,
}


# -- what is drawn there -----------------------------------------------------------------------------------------------


def _panel(column: ResultColumn, position: int, rows: Sequence[Row]) -> Panel:
    return Panel(column.name, tuple(_point(row[position], column.interval(row, row[position], LEVEL)) for row in rows))


def _point(value: object, ends: Ends | None) -> Point | None:
    found = number(value)
    if not math.isfinite(found):
        return None
    low, high = ends if ends is not None and all(map(math.isfinite, ends)) else (None, None)
    return Point(found, low, high, with_error(value, ends))


def _unlimited(panels: Sequence[Panel]) -> list[str]:
    missing = any(point is not None and point.low is None for panel in panels for point in panel.points)
    return ["no error bar where the error is unknown or unbounded"] if missing else []


# Colours that can be read on white and on black: blue for values, orange for uncertainty, grey for the rest.

VALUE = "#6f9fec"
NOISE = "#a9adb3"
"""For a value that may as well be 0."""
ERROR = "#e07b2e"
INK = "#80868f"
FAINT = 0.25
"""How much of the ink is left in a grid line."""
SHADES = ("#dbe7fb", "#2b5db5")
ON_LIGHT, ON_DARK = "#1c2b45", "#ffffff"

MOST_WRITTEN = 12
"""A heat map with more columns than this has no room for numbers."""

"""An answer as a table: each value with its ±, a bar for it with the interval as a whisker, the receipt underneath."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from dpsql.display.numbers import NULL, Ends, number, significant, with_error
from dpsql.display.style import framed, text

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ROWS = 50


@dataclass(frozen=True)
class Cell:
    value: object
    ends: Ends | None = None
    """Where the value without noise lies, with 95 % probability; None where nothing is known of it."""
    faint: bool = False
    """Whether its column is mostly noise."""

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float | Decimal) and not isinstance(self.value, bool)


@dataclass(frozen=True)
class Scale:
    """What the bars of one column have in common: they show values from `low` to `high`, and 0 is among them."""

    low: float
    high: float

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Scale:
        ends = [end for cell in cells if cell.ends is not None for end in (*cell.ends, number(cell.value))]
        finite = [0.0, *filter(math.isfinite, ends)]
        return cls(min(finite), max(finite))

    def at(self, value: float) -> float:
        """In percent of the bar's width; what lies beyond ends at the edge."""
        if self.high == self.low:
            return 0.0
        # Halved first: the difference of two doubles may not be one.
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return 100 * min(1.0, max(0.0, share))


def table(names: Sequence[str], rows: Sequence[Sequence[Cell]], total: int, receipt: Sequence[str]) -> str:
    """The first rows of an answer with `total` of them, and what it cost."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    scales = [Scale.of(column) if any(cell.ends for cell in column) else None for column in columns]
    numeric = [all(cell.is_number or cell.value is None for cell in column) for column in columns]
    head = "".join(map(_heading, names, scales, numeric))
    body = "".join(f"<tr>{''.join(map(_cell, row, scales, numeric))}</tr>" for row in rows)
    notes = [f"{len(rows)} of {total:,} rows are shown"] if total > len(rows) else []
    foot = " · ".join(text(part) for part in (*notes, *receipt))
    return framed(
        f'<div class="dp-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<div class="dp-foot dp-muted">{foot}</div>'
    )


def _heading(name: str, scale: Scale | None, numeric: bool) -> str:
    span = ' colspan="3"' if scale else ""
    return f"<th{span}{_aligned(numeric and scale is None)}>{text(name)}</th>"


def _cell(cell: Cell, scale: Scale | None, numeric: bool) -> str:
    value, error = with_error(cell.value, cell.ends)
    shown = f'<span class="dp-null">{NULL}</span>' if cell.value is None else text(value)
    shown = f'<span class="dp-faint">{shown}</span>' if cell.faint else shown
    written = f"<td{_aligned(numeric)}{_hint(cell)}>{shown}</td>"
    return f'{written}<td class="dp-error">{error}</td><td>{_bar(cell, scale)}</td>' if scale else written


def _aligned(numeric: bool) -> str:
    return ' class="dp-number"' if numeric else ""


def _hint(cell: Cell) -> str:
    if cell.ends is None:
        return ""
    return f' title="{text(cell.value)}; 95 %: [{significant(cell.ends[0], 6)}, {significant(cell.ends[1], 6)}]"'


def _bar(cell: Cell, scale: Scale) -> str:
    if cell.ends is None or not math.isfinite(number(cell.value)):
        return ""
    zero, value = scale.at(0.0), scale.at(number(cell.value))
    low, high = (scale.at(end) for end in cell.ends)
    left, right = min(zero, value), max(zero, value)
    return (
        f'<span class="dp-bar"><b style="left:{left:.2f}%;width:{right - left:.2f}%"></b>'
        f'<u style="left:{zero:.2f}%"></u><i style="left:{low:.2f}%;width:{high - low:.2f}%"></i></span>'
    )

"""The HTML that notebooks show: one style sheet, scoped to `.dpsql`, light and dark.

Text has the notebook's own colour; lines and backgrounds are translucent greys, which suit any background. Only two
colours are ours: blue for values, orange for uncertainty. They follow the system's scheme, unless the notebook says
otherwise: JupyterLab sets body[data-jp-theme-light], VS Code body.vscode-dark, marimo [data-theme],
sites made with mkdocs-material [data-md-color-scheme]. Tables name their frame too, so that a notebook's own rules for
tables stand back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING

from dpsql.display.numbers import NULL, Ends, number, significant, with_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIGHT = "--dp-value:#3f74d1;--dp-pale:#c9daf8;--dp-error:#c2570c;color-scheme:light"
DARK = "--dp-value:#8ab1ff;--dp-pale:#2f4a7d;--dp-error:#ffab66;color-scheme:dark"

STYLE = f"""
.dpsql{{{LIGHT};
 color:var(--jp-content-font-color1,var(--vscode-editor-foreground,inherit));
 font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;max-width:60rem;margin:.3em 0}}
@media (prefers-color-scheme:dark){{.dpsql{{{DARK}}}}}
body[data-jp-theme-light=true] .dpsql,body.vscode-light .dpsql,[data-theme=light] .dpsql,
[data-md-color-scheme=default] .dpsql{{{LIGHT}}}
body[data-jp-theme-light=false] .dpsql,body.vscode-dark .dpsql,[data-theme=dark] .dpsql,
[data-md-color-scheme=slate] .dpsql{{{DARK}}}
.dpsql .dp-scroll{{overflow-x:auto}}
.dpsql .dp-scroll table{{border-collapse:collapse;margin:0;border:0;font-size:inherit;
 font-variant-numeric:tabular-nums}}
.dpsql .dp-scroll tbody tr{{background:none}}
.dpsql .dp-scroll tbody tr:hover{{background:rgba(128,128,128,.12)}}
.dpsql .dp-scroll th,.dpsql .dp-scroll td{{padding:.25em .9em .25em 0;text-align:left;vertical-align:middle;border:0;
 white-space:nowrap;max-width:26em;overflow:hidden;text-overflow:ellipsis}}
.dpsql .dp-scroll th{{font-weight:600;border-bottom:1px solid rgba(128,128,128,.5)}}
.dpsql .dp-scroll td{{border-bottom:1px solid rgba(128,128,128,.18)}}
.dpsql .dp-scroll .dp-number{{text-align:right}}
.dpsql .dp-scroll td.dp-number:has(+.dp-error){{padding-right:.4em}}
.dpsql .dp-scroll td.dp-error{{color:var(--dp-error)}}
.dpsql .dp-muted{{opacity:.68}}
.dpsql .dp-faint{{opacity:.45}}
.dpsql .dp-null{{opacity:.55;font-style:italic;font-size:.88em;letter-spacing:.04em}}
.dpsql .dp-bar{{position:relative;display:inline-block;width:8em;height:1em;vertical-align:middle}}
.dpsql .dp-bar>*{{position:absolute;display:block}}
.dpsql .dp-bar b{{top:.14em;bottom:.14em;background:var(--dp-pale);border-radius:2px}}
.dpsql .dp-bar i{{top:.25em;bottom:.25em;box-sizing:border-box;border:solid var(--dp-error);border-width:0 1.5px}}
.dpsql .dp-bar i::before{{content:"";position:absolute;left:0;right:0;top:calc(50% - .75px);
 border-top:1.5px solid var(--dp-error)}}
.dpsql .dp-bar u{{top:0;bottom:0;width:0;border-left:1px solid rgba(128,128,128,.6)}}
.dpsql .dp-foot{{margin-top:.5em;font-size:.92em}}
.dpsql .dp-card{{border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:.9em 1.1em}}
.dpsql .dp-title{{font-size:.85em;letter-spacing:.04em;opacity:.68;margin-bottom:.5em}}
.dpsql .dp-figures{{display:flex;flex-wrap:wrap;gap:.4em 2.4em;margin-bottom:.7em}}
.dpsql .dp-figure b{{display:block;font-size:1.55em;font-weight:600;line-height:1.2}}
.dpsql dl{{display:grid;grid-template-columns:max-content 1fr;gap:.22em 1.2em;margin:.5em 0}}
.dpsql dt{{opacity:.68;font-weight:400;margin:0}}
.dpsql dd{{margin:0;padding:0}}
.dpsql details{{margin-top:.5em}}
.dpsql summary{{cursor:pointer;opacity:.75}}
.dpsql pre{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:22em;overflow-y:auto;margin:.5em 0 0;padding:.7em;
 font:12px/1.5 ui-monospace,Menlo,Consolas,monospace;color:inherit;background:rgba(128,128,128,.12);border-radius:6px}}
.dpsql .dp-meter{{display:flex;height:1em;border-radius:5px;overflow:hidden;background:rgba(128,128,128,.2)}}
.dpsql .dp-meter b{{background:var(--dp-value);box-sizing:border-box;border-right:1px solid rgba(255,255,255,.75)}}
.dpsql .dp-steps{{display:flex;align-items:flex-end;gap:3px;height:6em;margin-top:1em;
 border-bottom:1px solid rgba(128,128,128,.5)}}
.dpsql .dp-step{{flex:0 1 2.2em;min-width:3px;height:100%;display:flex;flex-direction:column;justify-content:flex-end}}
.dpsql .dp-step>*{{display:block;box-sizing:border-box}}
.dpsql .dp-step b{{background:var(--dp-value);border-radius:2px 2px 0 0;min-height:2px}}
.dpsql .dp-step i{{background:var(--dp-pale)}}
.dpsql p{{margin:.6em 0}}
.dpsql ul{{margin:.4em 0;padding-left:1.3em}}
"""


def framed(content: str) -> str:
    """The content together with its style sheet."""
    return f'<div class="dpsql"><style>{STYLE}</style>{content}</div>'


def text(value: object) -> str:
    """
    >>> text("<b>&'")
    '&lt;b&gt;&amp;&#x27;'
    """
    return escape(str(value))


# -- card --------------------------------------------------------------------------------------------------------------
# A card: a title, a few large figures, facts by name, tables, and what is folded away.


def card(title: str, *parts: str) -> str:
    """The parts are HTML, made by the functions below; everything else is text."""
    return framed(f'<div class="dp-card"><div class="dp-title">{text(title)}</div>{"".join(parts)}</div>')


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Large figures with captions below; next to them if a notebook drops our style sheet."""
    shown = (f'<div class="dp-figure"><b>{text(number)}</b> {text(what)}</div>' for number, what in pairs)
    return f'<div class="dp-figures">{"".join(shown)}</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    shown = (f"<dt>{text(name)}</dt><dd>{text(fact)}</dd>" for name, fact in pairs)
    return f"<dl>{''.join(shown)}</dl>"


def grid(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table: its first column is text, the others are numbers."""
    head = "".join(_td("th", at, name) for at, name in enumerate(names))
    body = "".join(f"<tr>{''.join(_td('td', at, value) for at, value in enumerate(row))}</tr>" for row in rows)
    return f'<div class="dp-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def words(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table of text."""
    head = "".join(_td("th", 0, name) for name in names)
    body = "".join(f"<tr>{''.join(_td('td', 0, value) for value in row)}</tr>" for row in rows)
    return f'<div class="dp-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def paragraph(words: str) -> str:
    return f"<p>{text(words)}</p>"


def bullets(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(item)}</li>' for item in items)}</ul>"


def folded(summary: str, content: str) -> str:
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def code(source: str) -> str:
    return f"<pre>{text(source)}</pre>"


def _td(tag: str, position: int, value: str) -> str:
    numeric = ' class="dp-number"' if position else ""
    return f"<{tag}{numeric}>{text(value)}</{tag}>"


# What was spent, query by query: a meter that fills up, and a step for each query on the way.


@dataclass(frozen=True)
class SpendingStep:
    label: str
    before: float
    after: float
    """What was spent in all, without and with this step."""


def meter(steps: Sequence[SpendingStep], total: float) -> str:
    """All steps in one bar as long as the total."""
    parts = (
        f'<b style="width:{_percent(step.after - step.before, total)}" title="{text(step.label)}"></b>'
        for step in steps
    )
    return f'<div class="dp-meter">{"".join(parts)}</div>'


def staircase(steps: Sequence[SpendingStep]) -> str:
    """A column for each step: what was spent before, and on top of it what the step added."""
    total = steps[-1].after
    parts = (
        f'<span class="dp-step" title="{text(step.label)}">'
        f'<b style="height:{_percent(step.after - step.before, total)}"></b>'
        f'<i style="height:{_percent(step.before, total)}"></i></span>'
        for step in steps
    )
    return f'<div class="dp-steps">{"".join(parts)}</div>'


def _percent(part: float, total: float) -> str:
    share = part / total if total else 0.0
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


# -- table -------------------------------------------------------------------------------------------------------------
# An answer as a table: each value with its ±, a bar for it with the interval as a whisker, the receipt underneath.

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
    """The common scale of a column's bars: values from `low` to `high`, including 0."""

    low: float
    high: float

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Scale:
        ends = [end for cell in cells if cell.ends is not None for end in (*cell.ends, number(cell.value))]
        finite = [0.0, *filter(math.isfinite, ends)]
        return cls(min(finite), max(finite))

    def at(self, value: float) -> float:
        """The position in percent of the bar's width, cut off at the edges."""
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
    notes = [f"showing {len(rows)} of {total:,} rows"] if total > len(rows) else []
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

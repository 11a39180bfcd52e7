"""A card: a title, a few large figures, facts by name, tables, and what is folded away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.display.style import framed, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def card(title: str, *parts: str) -> str:
    """The parts are HTML, made by the functions below; everything else is text."""
    return framed(f'<div class="dp-card"><div class="dp-title">{text(title)}</div>{"".join(parts)}</div>')


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Large numbers, each over the words that say what it is; beside them where a notebook leaves our style out."""
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
class Step:
    label: str
    before: float
    after: float
    """What was spent in all, without and with this step."""


def meter(steps: Sequence[Step], total: float) -> str:
    """All steps in one bar as long as the total."""
    parts = (
        f'<b style="width:{_percent(step.after - step.before, total)}" title="{text(step.label)}"></b>'
        for step in steps
    )
    return f'<div class="dp-meter">{"".join(parts)}</div>'


def staircase(steps: Sequence[Step]) -> str:
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

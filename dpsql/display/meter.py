"""What was spent, query by query: a meter that fills up, and a step for each query on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.display.style import text

if TYPE_CHECKING:
    from collections.abc import Sequence


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

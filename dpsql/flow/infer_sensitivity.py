"""infer_sensitivity: what is measured for each release, and how far one unit can move it.

A unit reaches at most `groups` groups with at most `rows` rows each, so a measure to which it adds at most c in one
group moves by at most  L0 = groups, Linf = c, L1 = groups * c, L2 = sqrt(groups) * c.  docs/proofs/bounding.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Answer, Context
from dpsql.aggregates.avg import avg
from dpsql.aggregates.count import count, count_of
from dpsql.aggregates.measure import CountRows, CountUnits, Measure
from dpsql.aggregates.sum import sum_

if TYPE_CHECKING:
    from sqlglot import exp

    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.flow.track_units import Tracked, TrackedRelease

AGGREGATORS = {"COUNT": count, "SUM": sum_, "AVG": avg}
COUNTING = ("COUNT", "AVG")


@dataclass(frozen=True)
class Bounded:
    """A measure as a column of the release, with its sensitivities in units of that column."""

    column: str
    measure: Measure
    l0: int
    linf: int

    @property
    def l1(self) -> int:
        return self.l0 * self.linf

    @property
    def l2_squared(self) -> int:
        return self.l0 * self.linf**2

    @property
    def l2(self) -> float:
        return math.sqrt(self.l0) * self.linf


@dataclass(frozen=True)
class MeasuredRelease:
    tracked: TrackedRelease
    groups: int
    """One unit reaches at most so many groups, each with at most `rows` rows."""
    rows: int
    measures: tuple[Bounded, ...]
    answers: tuple[Answer, ...]
    """One for each aggregate, over the measures' columns."""
    selection: str | None
    """The column with the number of units, by which groups are shown or not; None for public groups."""


@dataclass(frozen=True)
class Measured:
    question: Question
    releases: tuple[MeasuredRelease, ...]
    finish: exp.Query = field(compare=False)


def infer_sensitivity(tracked: Tracked, setting: Setting) -> Measured:
    releases = tuple(_measure(release, tracked.question) for release in tracked.releases)
    return Measured(tracked.question, releases, tracked.finish)


def _measure(release: TrackedRelease, question: Question) -> MeasuredRelease:
    columns: dict[Measure, str] = {}

    def column_of(measure: Measure) -> str:
        if release.scan.one_row_per_unit and isinstance(measure, CountUnits):
            measure = CountRows()
        return columns.setdefault(measure, f"m{len(columns)}")

    context = Context(release.knowledge.kept, release.unit_columns, _counted(release), column_of)
    answers = tuple(AGGREGATORS[call.name](call, context) for call in release.aggregate.calls)
    selection = column_of(CountUnits()) if release.domain is None else None
    groups, rows = _contribution(release, question)
    measures = tuple(Bounded(column, measure, groups, measure.linf(rows)) for measure, column in columns.items())
    return MeasuredRelease(release, groups, rows, measures, answers, selection)


def _counted(release: TrackedRelease) -> frozenset[Measure]:
    """The counts that are taken anyway, so that sums of the same values can lean on them."""
    return frozenset(
        count_of(call.argument, release.knowledge.kept)
        for call in release.aggregate.calls
        if call.name in COUNTING and not call.distinct
    )


def _contribution(release: TrackedRelease, question: Question) -> tuple[int, int]:
    if release.scan.one_row_per_unit:
        return 1, 1
    declared = release.scan.contribution
    groups = question.max_groups or declared.max_groups
    rows = question.max_rows_per_group or declared.max_rows_per_group
    if not release.aggregate.grouped:
        return 1, rows
    # Fewer public groups than a unit may reach: it cannot reach more than there are.
    return (min(groups, max(1, release.domain.size)) if release.domain else groups), rows

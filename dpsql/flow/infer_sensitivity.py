"""infer_sensitivity: what is measured for each release, and how far one unit can move it.

A unit reaches at most `groups` groups with at most `rows` rows each, so a measure to which it adds at most c in one
group moves by at most  L0 = groups, Linf = c, L1 = groups * c, L2 = sqrt(groups) * c.  docs/proofs/bounding.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.aggregates.answer import Aggregator, Answer, Context
from dpsql.aggregates.avg import avg
from dpsql.aggregates.count import count
from dpsql.aggregates.measure import CountRows, CountUnits, CountValues, Measure, OverDistinct
from dpsql.aggregates.moments import correlation, covariance, regression, variance
from dpsql.aggregates.release import Bounded, Release
from dpsql.aggregates.sum import sum_
from dpsql.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.flow.track_units import Tracked, TrackedRelease
    from dpsql.relation.relation import AggregateCall, Scan
    from dpsql.resolve.earlier import EarlierAnswer

AGGREGATORS: dict[str, Aggregator] = {
    "COUNT": count,
    "SUM": sum_,
    "AVG": avg,
    **dict.fromkeys(("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"), variance),
    **dict.fromkeys(("COVAR_POP", "COVAR_SAMP"), covariance),
    **dict.fromkeys(("CORR", "REGR_R2"), correlation),
    **dict.fromkeys(("REGR_SLOPE", "REGR_INTERCEPT"), regression),
}


@dataclass(frozen=True)
class Measured:
    question: Question
    releases: tuple[Release, ...]
    public: tuple[Scan, ...]
    earlier: tuple[EarlierAnswer, ...]
    finish: exp.Query = field(compare=False)


def infer_sensitivity(tracked: Tracked, setting: Setting) -> Measured:
    releases = tuple(_measure(release, tracked.question) for release in tracked.releases)
    return Measured(tracked.question, releases, tracked.public, tracked.earlier, tracked.finish)


def _measure(release: TrackedRelease, question: Question) -> Release:
    columns: dict[Measure, str] = {}

    def column_of(measure: Measure) -> str:
        if release.one_row_per_unit and isinstance(measure, CountUnits):
            measure = CountRows()
        return columns.setdefault(measure, f"m{len(columns)}")

    def answered(counted: frozenset[Measure]) -> tuple[Answer, ...]:
        columns.clear()
        context = Context(release.knowledge.kept, release.unit_columns, counted, column_of)
        return tuple(_aggregator(call)(call, context) for call in release.aggregate.calls)

    # Twice: once to see which counts are taken anyway, so that sums of the same values can lean on them.
    answered(frozenset())
    answers = answered(frozenset(measure for measure in columns if is_count(measure)))
    _check_totals(release, columns)
    selecting = release.domain is None or question.min_units is not None
    selection = column_of(CountUnits()) if selecting else None
    groups, rows = _contribution(release, question)
    measures = tuple(Bounded(column, measure, groups, measure.linf(rows)) for measure, column in columns.items())
    return Release(
        release.aggregate,
        tuple(dict.fromkeys(str(scan.unit) for scan in release.scans)),
        release.knowledge,
        release.domain,
        release.one_row_per_unit,
        groups,
        rows,
        measures,
        answers,
        selection,
        question.min_units,
    )


def _check_totals(release: TrackedRelease, measures: Mapping[Measure, str]) -> None:
    """A total is the sum of its groups, which for people and distinct values is not their number in all."""
    if release.aggregate.totals and any(isinstance(measure, CountUnits | OverDistinct) for measure in measures):
        raise Unsupported(
            "COUNT(DISTINCT ...) cannot have totals: who is in several groups would be counted several times",
            at=release.aggregate.calls[0].at,
            hint="ask for the totals in a query of their own, without ROLLUP",
        )


def _aggregator(call: AggregateCall) -> Aggregator:
    if call.name in AGGREGATORS:
        return AGGREGATORS[call.name]
    if call.name in ("BOOL_OR", "BOOL_AND"):
        raise Unsupported(
            f"{call.name} over many people cannot be asked: one person can turn it, so an answer would be a coin toss",
            at=call.at,
            hint="count those who do (or do not): COUNT_IF(...), and look at its error bar",
        )
    raise Unsupported(
        f"{call.name} over many people cannot be asked",
        at=call.at,
        hint="these can: " + ", ".join(AGGREGATORS) + f"; {call.name} can be taken within one unit (GROUP BY the unit)",
    )


def is_count(measure: Measure) -> bool:
    inner = measure.inner if isinstance(measure, OverDistinct) else measure
    return isinstance(inner, CountRows | CountValues)


def _contribution(release: TrackedRelease, question: Question) -> tuple[int, int]:
    if release.one_row_per_unit:
        return 1, 1
    # Tables that meet in a query may declare different bounds: the widest count.
    declared = [scan.contribution for scan in release.scans]
    groups = question.max_groups or max(contribution.max_groups for contribution in declared)
    rows = question.max_rows_per_group or max(contribution.max_rows_per_group for contribution in declared)
    if not release.aggregate.grouped:
        return 1, rows
    # Fewer public groups than a unit may reach: it cannot reach more than there are.
    return (min(groups, max(1, release.domain.size)) if release.domain else groups), rows

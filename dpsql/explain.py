"""What is known about a query before it runs: cost, errors, engine SQL, sensitivities. Free: no data, no budget."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Linear, Ratio, Reported, SmoothFunction
from dpsql.aggregates.format import format_measure, format_statistic, quantum_of
from dpsql.aggregates.measure import Matched
from dpsql.aggregates.strategies import has_sums, strategy_of
from dpsql.display.html import card, code, facts, figures, folded, grid
from dpsql.display.numbers import several, significant
from dpsql.expressions.format import format_expression
from dpsql.intervals import for_all, half_width
from dpsql.pipeline.allocate import AUTO_BOUNDS
from dpsql.pipeline.auto_bounds import format_clipped
from dpsql.pipeline.estimate_answers import levels_noises
from dpsql.pipeline.notes import constant_note, heavy_unit_notes, histogram_note, rounding_notes
from dpsql.pipeline.plan_query import CountedResponses
from dpsql.result import LEVEL, asked_on, is_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from dpsql.accounting.privacy_loss import Cost
    from dpsql.aggregates.release import Bounded, Level
    from dpsql.mechanisms.additive import BundlePlace
    from dpsql.pipeline.auto_bounds import AutoBounds
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.format import Output
    from dpsql.relation.reports import RandomizedResponses

NOTICEABLE = 1.05
"""What is left may fall by more than the cost: by this factor it is told."""
FOUND_ROWS, FOUND_GROUPS = "rows per group", "groups per person"
MEASURED = ("measure", "one person moves a group by", "all groups by", "standard deviation of noise")


@dataclass(frozen=True, kw_only=True)
class ExplainedMeasure:
    """An integer column of a release. Sensitivities and noise are in the column's own quanta."""

    column: str
    """Its name in the engine SQL."""
    what: str
    """What is measured, for people to read."""
    l0: int
    """The most groups that one person can change."""
    l1: int
    """The L1 sensitivity over all groups."""
    l2: float
    """The L2 sensitivity over all groups."""
    linf: int
    """The sensitivity in one group."""
    mechanism: str
    """The additive mechanism."""
    std: float
    """The standard deviation of the noise; infinite for groups that are only measured for their totals."""
    quantum: float
    """The value of one quantum of the column."""
    place: BundlePlace | None
    """For disjoint measures: the bundle and the case. All cases of a bundle together move no more than one alone."""


@dataclass(frozen=True)
class ExplainedTotal:
    """A level of ROLLUP, CUBE or GROUPING SETS: sums over the finest groups, with their own noise."""

    keys: tuple[str, ...]
    measures: tuple[ExplainedMeasure, ...]
    threshold: int | None


@dataclass(frozen=True)
class ExplainedStatistic:
    """A statistic, such as a median, that a mechanism draws from a profile of each group."""

    column: str
    what: str
    mechanism: str
    note: str


@dataclass(frozen=True)
class ExplainedTest:
    """The test of a proposed clip: `column` is shown if at most `most` people, up to noise, exceed the clip."""

    column: str
    most: int


@dataclass(frozen=True, kw_only=True)
class ExplainedRelease:
    """One aggregation over people: its engine SQL, its contribution bounds, its measures."""

    sql: str
    """The engine SQL, without noise: one row per group, with keys, measures and profiles."""
    unit: str
    keys: tuple[str, ...]
    public_keys: bool
    threshold: int | None
    strategy: str | None
    """How what one unit adds to counts and sums is bounded (aggregates/strategies.py); None where there are none."""
    max_groups: int
    max_rows_per_group: int
    light_rows: int | None
    """People with at most this many rows in total count in full; None if rows per person are not counted."""
    is_down_weighted: bool
    """Whether the rows of people with more are down-weighted."""
    one_row_per_unit: bool
    rows_per_unit: int | None
    """The most rows that one person can have by the schema and public tables, if known."""
    pairs: bool
    """Whether the query counts pairs of different people."""
    epsilon: float
    """Its part of the query's cost."""
    reads: tuple[int, ...]
    """The releases (from 0) whose answers it reads; they run first."""
    measures: tuple[ExplainedMeasure, ...]
    totals: tuple[ExplainedTotal, ...]
    """The levels of ROLLUP, CUBE or GROUPING SETS."""
    statistics: tuple[ExplainedStatistic, ...]
    tests: tuple[ExplainedTest, ...]
    least_people: int | None = None
    """The data owner's minimum_people: a group of fewer is shown with a probability of at most 5 %."""
    found: tuple[str, ...] = ()
    """The bounds that the query will find by itself; SQL and measures shown here use presumed bounds."""


@dataclass(frozen=True)
class ExplainedReports:
    """Columns that people randomised themselves (local differential privacy), and how their counts are de-biased."""

    columns: tuple[str, ...]
    is_free: bool
    """Whether the query reads no other private column, so that reports are counted without noise."""
    sql: str

    def __str__(self) -> str:
        names = " and ".join(self.columns)
        if self.is_free:
            return f"{names}: counted exactly, then de-biased; free, because the query reads no other private column"
        return (
            f"{names}: the query also reads private columns, so report counts get noise before they are de-biased; "
            "intervals() cover both errors"
        )


@dataclass(frozen=True)
class ExplainedColumn:
    """A column of the answer and its expected error."""

    name: str
    half_width: float | None
    """The half-width of the 95 % interval; None for a key, and if it depends on the answer (an average, a ratio)."""
    note: str
    """What else is known about the error."""
    type: str = ""
    """The engine's name of its type."""
    is_noisy: bool = False
    """Whether noise enters the column."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """What a query would cost, how it would be answered, and how accurate it would be.

    `print` shows it without the SQL that would run, which `lines(sql=True)` adds.
    """

    cost: Cost
    """The epsilon and the delta that the query would be charged."""
    share: float
    """The part of the session's budget that it would take."""
    cost_if_refused: Cost
    """The cost if every private test withholds its part of the answer. Without tests, the same as `cost`."""
    remaining: Cost
    """What would be left of the session's budget."""
    left: Cost
    """What is left of it now."""
    mechanism: str
    """The additive mechanism."""
    reason: str
    """Why this mechanism was chosen."""
    columns: tuple[ExplainedColumn, ...]
    """The columns of the answer with their errors."""
    releases: tuple[ExplainedRelease, ...]
    """The aggregations over people."""
    post_processing: str
    """The SQL that runs on the noisy values."""
    reports: tuple[ExplainedReports, ...] = ()
    """The randomised columns that the query reads."""
    recalled: bool = False
    """Whether the answer is on record, and so free."""
    asked: datetime | None = None
    """When it was drawn; None if it is not on record, or without a date."""
    notes: tuple[str, ...] = ()
    """Caveats of the query."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return explanation_card(self)

    def lines(self, *, sql: bool = False) -> Iterator[str]:
        """The explanation line by line, as `print` shows it.

        Args:
            sql: whether to add the SQL that would run on the data.

        >>> [line.split()[0] for line in conn.explain("SELECT COUNT(*) FROM orders").lines(sql=True)][-2:]
        ['measure', 'sql']
        """
        return _lines(self, sql)


def explain_calibrated(
    calibrated: Calibrated, share: float, left: Cost, after: Cost, histogram: Calibrated | None = None
) -> Explanation:
    """The explanation of a calibrated query that takes `share` of the session's budget: of `left` it leaves `after`.

    `histogram` tells how much bounding leaves out, and is a part of the cost if it is not on record.
    """
    return Explanation(
        cost=calibrated.cost_with(histogram),
        share=share,
        cost_if_refused=calibrated.cost_with(histogram, is_refused=True),
        remaining=after,
        left=left,
        mechanism=calibrated.mechanism,
        reason=calibrated.reason,
        columns=tuple(
            replace(_column(output, calibrated), type=output.type, is_noisy=_is_noisy(output, calibrated))
            for output in calibrated.outputs
        ),
        releases=tuple(explain_release(release) for release in calibrated.releases),
        post_processing=calibrated.post_processing,
        reports=tuple(_reports(calibrated)),
        recalled=calibrated.recalled is not None,
        asked=None if calibrated.recalled is None else calibrated.recalled.drawn_at,
        notes=(
            *calibrated.request.notes,
            *heavy_unit_notes(calibrated.releases),
            *rounding_notes(calibrated.releases),
            *constant_note(calibrated.releases),
            *histogram_note(histogram),
        ),
    )


def _reports(calibrated: Calibrated) -> Iterator[ExplainedReports]:
    counted = [table for table in calibrated.public if isinstance(table, CountedResponses)]
    yield from (ExplainedReports(_collected(table.reports), True, table.sql) for table in counted)
    for release in calibrated.releases:
        if release.planned.reports is not None:
            yield ExplainedReports(_collected(release.planned.reports), False, release.sql)


def _collected(reports: RandomizedResponses) -> tuple[str, ...]:
    return tuple(
        f'"{part.declared}" ({part.collected.mechanism}, epsilon {part.collected.epsilon:g} per report)'
        for part in reports.columns
    )


def _is_noisy(output: Output, calibrated: Calibrated) -> bool:
    if output.lost or calibrated.reads_noise(output):
        return is_number(output.type)
    return output.estimate is not None or bool(output.replicate)


def _column(output: Output, calibrated: Calibrated) -> ExplainedColumn:
    if isinstance(output.estimate, Reported):
        return ExplainedColumn(output.name, None, "estimated from randomised reports: see intervals()")
    if calibrated.reads_noise(output):
        return ExplainedColumn(output.name, None, "error unknown, because rows are compared with a noisy answer")
    if output.replicate:
        return ExplainedColumn(output.name, None, "error depends on the answer: see intervals()")
    if output.lost:
        return ExplainedColumn(output.name, None, "error unknown")
    if output.estimate is None or output.release is None:
        return ExplainedColumn(output.name, None, "")
    release = calibrated.releases[output.release]
    if release.planned.release.levels:
        return ExplainedColumn(output.name, None, _by_level(output.estimate, release))
    domain = release.planned.release.domain
    rows = domain.size if output.chosen and domain is not None else 1
    width = half_width(output.estimate, release.noises, for_all(LEVEL, rows))
    if release.planned.auto_bounds:
        return ExplainedColumn(output.name, None, "error unknown until the query has found its bounds")
    if width is None:
        return ExplainedColumn(output.name, width, _note(output.estimate, release))
    if output.chosen and domain is None:
        note = f"more than ± {width:.4g} at 95 %, because noisy values choose the rows: see intervals()"
        return ExplainedColumn(output.name, None, note)
    if isinstance(output.estimate, Linear) and release.thresholds.keys() & dict(output.estimate.weights).keys():
        return ExplainedColumn(output.name, width, "and more for groups near the threshold")
    return ExplainedColumn(output.name, width, "for all groups at once" if rows > 1 else "")


def _by_level(estimate: Linear | Ratio | SmoothFunction, release: CalibratedRelease) -> str:
    """Each level has its own error; making levels consistent can only reduce it."""
    widths = [
        half_width(estimate, noises, LEVEL) for noises in levels_noises(release)[: len(release.planned.release.levels)]
    ]
    if None in widths:
        return "error depends on the answer: see intervals()"
    plan = release.planned.release
    kept = [[format_expression(plan.aggregate.keys[key]) for key in level.kept] for level in plan.levels]
    known = (significant(width) for width in widths if width is not None)
    parts = (
        f"± {width} by {', '.join(keys)}" if keys else f"± {width} overall"
        for width, keys in zip(known, kept, strict=True)
    )
    return f"at most, at 95 %: {'; '.join(parts)}"


def _note(estimate: Linear | Ratio | SmoothFunction, release: CalibratedRelease) -> str:
    if isinstance(estimate, Ratio | SmoothFunction):
        return "error depends on the answer: see intervals()"
    names = {name for name, _ in estimate.weights}
    return "; ".join(draw.note for drawn, draw in release.statistics if drawn.column in names)


def explain_release(release: CalibratedRelease) -> ExplainedRelease:
    plan = release.planned.release
    return ExplainedRelease(
        sql=release.sql,
        unit=" and ".join(plan.units),
        keys=tuple(plan.key_names),
        public_keys=plan.domain is not None,
        threshold=release.threshold,
        strategy=strategy_of(plan).name if has_sums(plan) else None,
        max_groups=plan.groups,
        max_rows_per_group=plan.rows,
        light_rows=plan.light_rows,
        is_down_weighted=plan.is_down_weighted,
        one_row_per_unit=plan.one_row_per_unit,
        rows_per_unit=plan.rows_per_unit,
        pairs=any(isinstance(drawn.statistic, Matched) for drawn in plan.statistics),
        epsilon=float(release.epsilon),
        reads=tuple(sorted({number for part in release.planned.adaptive for number in part.releases})),
        measures=tuple(_measure(bounded, release, plan.rows) for bounded in plan.measures),
        totals=tuple(_total(level, release) for level in plan.levels if len(level.kept) < len(plan.keys)),
        statistics=tuple(
            ExplainedStatistic(drawn.column, format_statistic(drawn.statistic), draw.name, draw.note)
            for drawn, draw in release.statistics
        ),
        tests=tuple(ExplainedTest(part.test.clipped, part.most) for part in release.tests),
        least_people=plan.least_people,
        found=tuple(_found(release.planned.auto_bounds)),
    )


def _found(auto_bounds: AutoBounds) -> Iterator[str]:
    yield from (
        what for what, is_found in ((FOUND_ROWS, auto_bounds.rows), (FOUND_GROUPS, auto_bounds.groups)) if is_found
    )
    for value, (low, high) in auto_bounds.values:
        yield f"clip bounds of {format_clipped(value)} within {float(low):g} to {float(high):g}"


def _total(level: Level, release: CalibratedRelease) -> ExplainedTotal:
    plan = release.planned.release
    keys = tuple(format_expression(plan.aggregate.keys[key]) for key in level.kept)
    thresholds = (release.thresholds.get(part.column) for part in level.measures)
    threshold = next((least for least in thresholds if least is not None), None)
    return ExplainedTotal(keys, tuple(_measure(part, release, plan.rows) for part in level.measures), threshold)


def _measure(bounded: Bounded, release: CalibratedRelease, rows: int) -> ExplainedMeasure:
    noises = {measure.bounded.column: measure for measure in release.measures}
    measure = noises.get(bounded.column)
    return ExplainedMeasure(
        column=bounded.column,
        what=format_measure(bounded.measure),
        l0=bounded.l0,
        l1=bounded.l1,
        l2=bounded.l2,
        linf=bounded.linf,
        mechanism="" if measure is None else measure.noise.name,
        std=math.inf if measure is None else measure.std,
        quantum=float(quantum_of(bounded.measure, rows)),
        place=bounded.place,
    )


def _lines(explanation: Explanation, with_sql: bool) -> Iterator[str]:
    cost, left = explanation.cost, explanation.remaining
    if explanation.recalled:
        yield f"cost       free: {asked_on(explanation.asked)}; epsilon {left.epsilon:.6g} is left"
    else:
        yield (
            f"cost       epsilon {cost.epsilon:.6g}, delta {cost.delta:.3g}: {explanation.share:.2%} of the budget; "
            f"epsilon {left.epsilon:.6g} would be left"
        )
    for name, fact in _cost_facts(explanation):
        yield f"{name:<10} {fact}"
    for column in explanation.columns:
        if column.half_width is not None:
            yield f"column     {column.name}: ± {significant(column.half_width)} at 95 % {column.note}".rstrip()
        elif column.note:
            yield f"column     {column.name}: {column.note}"
    for reports in explanation.reports:
        if reports.is_free and with_sql:
            yield f"sql        {reports.sql}"
    for number, release in enumerate(explanation.releases):
        if len(explanation.releases) > 1:
            yield _part_line(number, release)
        yield from _release_lines(release)
        if with_sql:
            yield f"sql        {release.sql}"


def _part_line(number: int, release: ExplainedRelease) -> str:
    first = " and ".join(str(other + 1) for other in release.reads)
    after = f"; runs after release {first}, whose noisy answer it reads" if first else ""
    return f"release {number + 1}  epsilon {release.epsilon:.6g} of the cost{after}"


def _release_lines(release: ExplainedRelease) -> Iterator[str]:
    for name, fact in _release_facts(release):
        yield f"{name:<10} {fact}"
    for measure in release.measures if not release.found else ():
        noise = f"noise with standard deviation {significant(measure.std * measure.quantum)}"
        yield (
            f"measure    {measure.what}: one person moves it by "
            f"{significant(measure.linf * measure.quantum, 6)} in a group, "
            f"{significant(measure.l1 * measure.quantum, 6)} in total; "
            f"{noise if measure.mechanism else 'shown only as part of the totals'}"
        )


def _cost_facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    yield from (("note", note) for note in explanation.notes)
    yield "noise", f"{explanation.mechanism or 'none'}: {explanation.reason}"
    yield from (("reports", str(reports)) for reports in explanation.reports)
    falls, cost = explanation.left.epsilon - explanation.remaining.epsilon, explanation.cost.epsilon
    if falls > NOTICEABLE * cost and cost:
        yield "left", f"falls by {falls:.3g}, more than the cost, because of how this session composes such noise"
    if explanation.cost_if_refused != explanation.cost:
        yield (
            "if refused",
            f"epsilon {explanation.cost_if_refused.epsilon:.6g}, if every test withholds its part of the answer",
        )


def _beyond_light(release: ExplainedRelease) -> str:
    """A phrase that says who is subject to the contribution bounds."""
    if release.light_rows is None or release.found or 0 < (release.rows_per_unit or 0) <= release.light_rows:
        return ""
    few = several(release.light_rows, "row", "rows")
    if release.is_down_weighted:
        return f": anyone with more than {few} in total is scaled down"
    return f", for anyone with more than {few} in total"


def _release_facts(release: ExplainedRelease) -> Iterator[tuple[str, str]]:
    yield "person", release.unit
    if release.one_row_per_unit:
        yield "bounds", "one row per person, guaranteed by the database"
    elif release.pairs:
        yield "bounds", f"at most {release.max_rows_per_group} rows per person on each side of the join"
    else:
        groups = "found" if FOUND_GROUPS in release.found else several(release.max_groups, "group", "groups")
        rows = "found" if FOUND_ROWS in release.found else several(release.max_rows_per_group, "row", "rows")
        yield "bounds", f"{groups} per person, {rows} per group{_beyond_light(release)}"
        most = release.rows_per_unit or 0
        cut = most > release.max_rows_per_group or (release.keys and most > release.max_groups)
        if cut and most > (release.light_rows or 0):
            yield "cut", f"the join can give one person up to {most} rows; rows beyond the bounds do not count"
    if release.strategy is not None and not release.found:
        yield "strategy", release.strategy
    if release.found:
        yield "auto", f"the query finds, for {float(AUTO_BOUNDS):.0%} of its cost: {', '.join(release.found)}"
    if release.threshold is not None and not release.found:
        why = "as requested" if release.public_keys else "the keys are not public"
        if release.least_people is not None:
            why = f"the data owner hides groups of fewer than {release.least_people:,} people, with 95 % certainty"
        yield "groups", f"shown if the noisy number of people is at least {release.threshold:,}: {why}"
    elif release.keys:
        yield "groups", "public: all are shown, even empty ones"
    for columns in _bundles(release):
        where = " in a group" if release.keys else ""
        together = f"at most {several(release.max_rows_per_group, 'row', 'rows')} per person in all of them{where}"
        yield (
            "disjoint",
            f"a row counts in only one of {columns} columns, so each has the noise of a single one; {together}",
        )
    named = "" if release.public_keys else ", or with a group that is shown"
    for total in release.totals:
        by = f"by {', '.join(total.keys)}" if total.keys else "of all groups"
        deviations = ", ".join(significant(measure.std * measure.quantum) for measure in total.measures)
        least = "" if total.threshold is None else f"; shown from {total.threshold:,} people up{named}"
        hidden = "" if release.public_keys else ", including groups that are not shown"
        yield "total", f"{by}: measured separately{hidden}; noise with standard deviations {deviations}{least}"
    for statistic in release.statistics:
        yield "statistic", f"{statistic.what} by {statistic.mechanism}: {statistic.note}"
    for test in release.tests:
        yield (
            "test",
            f"{test.column} is shown if the noisy number of people who exceed the proposal is at most {test.most}",
        )


def _bundles(release: ExplainedRelease) -> list[int]:
    """The number of cases of each bundle of disjoint measures."""
    places = {measure.place for measure in release.measures if measure.place is not None}
    return list(Counter(bundle for bundle, _ in sorted(places)).values())


def cost_figures(cost: Cost, left: Cost) -> Iterator[tuple[str, str]]:
    yield f"ε {cost.epsilon:.4g}", "cost" if not cost.delta else f"cost, with δ {cost.delta:.3g}"
    yield f"ε {left.epsilon:.4g}", "would be left"


def explanation_card(explanation: Explanation) -> str:
    columns = [
        (column.name, f"± {significant(column.half_width)}" if column.half_width is not None else column.note)
        for column in explanation.columns
        if column.half_width is not None or column.note
    ]
    return card(
        "What the query would do; explain is free",
        figures((*cost_figures(explanation.cost, explanation.remaining), (explanation.mechanism or "no", "noise"))),
        facts(_cost_facts(explanation)),
        grid(("column", "error at 95 %"), columns) if columns else "",
        *(_release_part(release) for release in explanation.releases),
    )


def _release_part(release: ExplainedRelease) -> str:
    measures = [
        (
            measure.what,
            *(significant(units * measure.quantum, 6) for units in (measure.linf, measure.l1, measure.std)),
        )
        for measure in release.measures
        if not release.found
    ]
    return (
        facts(_release_facts(release))
        + (grid(MEASURED, measures) if measures else "")
        + folded("SQL that would run on the data", code(release.sql))
    )

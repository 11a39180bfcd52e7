"""Everything that is known about a query before it runs, for people and for programs. Free: no data, no budget."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Ratio, Reported, Smooth
from dpsql.aggregates.format import quantum_of, readable_measure, readable_statistic
from dpsql.aggregates.measure import Matched
from dpsql.aggregates.strategies import has_sums, strategy_of
from dpsql.display.html import card, code, facts, figures, folded, grid
from dpsql.display.numbers import several, significant
from dpsql.expressions.format import readable
from dpsql.intervals import for_all, half_width
from dpsql.pipeline.allocate import SEEKING
from dpsql.pipeline.auto_bounds import readable_clipped
from dpsql.pipeline.estimate_answers import levels_noises
from dpsql.pipeline.notes import constant_note, heavy_unit_notes
from dpsql.pipeline.plan_query import CountedReports
from dpsql.result import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.accounting.privacy_loss import Cost
    from dpsql.aggregates.estimate import Linear
    from dpsql.aggregates.release import Bounded, Level
    from dpsql.mechanisms.additive import Place
    from dpsql.pipeline.auto_bounds import Seeking
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.format import Output
    from dpsql.relation.reports import Reports

FOUND_ROWS, FOUND_GROUPS = "rows per group", "groups per unit"
MEASURED = ("measure", "one unit moves a group by", "all groups by", "standard deviation of noise")


@dataclass(frozen=True, kw_only=True)
class ExplainedMeasure:
    """An integer column of a release; sensitivities and noise in that column's units."""

    column: str
    what: str
    l0: int
    l1: int
    l2: float
    linf: int
    mechanism: str
    std: float
    """Infinite where groups are measured for their totals alone, and not shown themselves."""
    quantum: float
    """What one unit of the column is worth."""
    place: Place | None
    """A bundle of measures whose values exclude each other, and its case there: all cases together move no further than
    one of them alone."""


@dataclass(frozen=True)
class ExplainedTotal:
    """Groups by some of the keys: sums over the finest groups, shown or not, with noise of their own."""

    keys: tuple[str, ...]
    measures: tuple[ExplainedMeasure, ...]
    threshold: int | None


@dataclass(frozen=True)
class ExplainedStatistic:
    """A value that a mechanism draws from a description of the group, instead of adding noise to a measure."""

    column: str
    what: str
    mechanism: str
    note: str


@dataclass(frozen=True)
class ExplainedTest:
    """Of a proposed clip: the measure `column` is shown where at most so many units, up to noise, exceed it."""

    column: str
    most: int


@dataclass(frozen=True, kw_only=True)
class ExplainedRelease:
    sql: str
    """Runs as it stands on the raw database: a row per group, keys first, then measures and profiles, without noise."""
    unit: str
    keys: tuple[str, ...]
    public_keys: bool
    threshold: int | None
    strategy: str | None
    """How what one unit adds to counts and sums is bounded (aggregates/strategies.py); None where there are none."""
    max_groups: int
    max_rows_per_group: int
    few_rows: int | None
    """Units with no more rows in all count in full; None where rows are not counted for that."""
    in_parts: bool
    """Whether each row of a unit with more counts for a part."""
    one_row_per_unit: bool
    rows_per_unit: int | None
    """How many rows the schema and public rows let a unit have, where that is known."""
    pairs: bool
    """Whether it is about pairs of different units."""
    epsilon: float
    """Its part of the query's cost."""
    reads: tuple[int, ...]
    """The releases (from 0) whose answers it reads: they run first."""
    measures: tuple[ExplainedMeasure, ...]
    totals: tuple[ExplainedTotal, ...]
    """ROLLUP, CUBE, GROUPING SETS: what is measured beside the finest groups, or instead of them."""
    statistics: tuple[ExplainedStatistic, ...]
    tests: tuple[ExplainedTest, ...]
    found: tuple[str, ...] = ()
    """Which bounds the query finds by itself: until then SQL and measures are those at bounds that are presumed."""


@dataclass(frozen=True)
class ExplainedReports:
    """Columns that people randomised themselves, and what is done to the counts of their reports."""

    columns: tuple[str, ...]
    is_free: bool
    """Whether nothing else of people is read, so that reports are counted as they are."""
    sql: str

    def __str__(self) -> str:
        names = " and ".join(self.columns)
        if self.is_free:
            return f"{names}: counted as they are, then de-biased; free, since nothing else of people is read"
        return (
            f"{names}: private columns are read too, so the counts of reports get noise; then they are de-biased, and "
            "intervals() hold both errors"
        )


@dataclass(frozen=True)
class ExplainedColumn:
    name: str
    half_width: float | None
    """+- at 95 %; None for a key, and where it depends on the answer itself (an average, a ratio)."""
    note: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    cost: Cost
    share: float
    """The part of the session that it takes."""
    cost_if_refused: Cost
    """The same, unless a test may refuse: what is spent when every test does."""
    remaining: Cost
    """What is left of the session if the query is asked now."""
    mechanism: str
    reason: str
    columns: tuple[ExplainedColumn, ...]
    releases: tuple[ExplainedRelease, ...]
    post_processing: str
    reports: tuple[ExplainedReports, ...] = ()
    """Where collected columns are read."""
    notes: tuple[str, ...] = ()
    """What the analyst should know about the question."""

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return explanation_card(self)


def explain_calibrated(calibrated: Calibrated, share: float, after: Cost) -> Explanation:
    """`share` is the part of the session that it takes, `after` what is left of it then."""
    return Explanation(
        cost=calibrated.cost,
        share=share,
        cost_if_refused=calibrated.cost_if_refused,
        remaining=after,
        mechanism=calibrated.mechanism,
        reason=calibrated.reason,
        columns=tuple(_column(output, calibrated) for output in calibrated.outputs),
        releases=tuple(explain_release(release) for release in calibrated.releases),
        post_processing=calibrated.post_processing,
        reports=tuple(_reports(calibrated)),
        notes=(
            *calibrated.request.notes,
            *heavy_unit_notes(calibrated.releases),
            *constant_note(calibrated.releases),
        ),
    )


def _reports(calibrated: Calibrated) -> Iterator[ExplainedReports]:
    counted = [table for table in calibrated.public if isinstance(table, CountedReports)]
    yield from (ExplainedReports(_collected(table.reports), True, table.sql) for table in counted)
    for release in calibrated.releases:
        if release.planned.reports is not None:
            yield ExplainedReports(_collected(release.planned.reports), False, release.sql)


def _collected(reports: Reports) -> tuple[str, ...]:
    return tuple(
        f'"{part.declared}" ({part.collected.mechanism}, epsilon {part.collected.epsilon:g} a report)'
        for part in reports.columns
    )


def _column(output: Output, calibrated: Calibrated) -> ExplainedColumn:
    if isinstance(output.estimate, Reported):
        return ExplainedColumn(output.name, None, "estimated from randomised reports: see intervals()")
    if output.replica:
        return ExplainedColumn(output.name, None, "its error depends on the answer: see intervals()")
    if output.lost:
        return ExplainedColumn(output.name, None, "its error is not known")
    if output.estimate is None or output.release is None:
        return ExplainedColumn(output.name, None, "")
    release = calibrated.releases[output.release]
    if release.planned.release.levels:
        return ExplainedColumn(output.name, None, _by_level(output.estimate, release))
    domain = release.planned.release.domain
    rows = domain.size if output.chosen and domain is not None else 1
    width = half_width(output.estimate, release.noises, for_all(LEVEL, rows))
    if release.planned.seeking:
        return ExplainedColumn(output.name, None, "its error is not known before the query has found its bounds")
    if width is None:
        return ExplainedColumn(output.name, width, _note(output.estimate, release))
    if output.chosen and domain is None:
        note = f"more than ± {width:.4g} at 95 %, since rows are chosen by their noise: see intervals()"
        return ExplainedColumn(output.name, None, note)
    return ExplainedColumn(output.name, width, "for all groups at once" if rows > 1 else "")


def _by_level(estimate: Linear | Ratio | Smooth, release: CalibratedRelease) -> str:
    """Each level has an error of its own; where levels are made to agree, it can only be less."""
    widths = [half_width(estimate, noises, LEVEL) for noises in levels_noises(release)]
    if None in widths:
        return "its error depends on the answer: see intervals()"
    plan = release.planned.release
    kept = [[readable(plan.aggregate.keys[key]) for key in level.kept] for level in plan.levels]
    known = (significant(width) for width in widths if width is not None)
    parts = (
        f"± {width} by {', '.join(keys)}" if keys else f"± {width} in all"
        for width, keys in zip(known, kept, strict=True)
    )
    return f"at 95 % at most {'; '.join(parts)}"


def _note(estimate: Linear | Ratio | Smooth, release: CalibratedRelease) -> str:
    if isinstance(estimate, Ratio | Smooth):
        return "its error depends on the answer: see intervals()"
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
        few_rows=plan.few_rows,
        in_parts=plan.in_parts,
        one_row_per_unit=plan.one_row_per_unit,
        rows_per_unit=plan.rows_per_unit,
        pairs=any(isinstance(drawn.statistic, Matched) for drawn in plan.statistics),
        epsilon=float(release.epsilon),
        reads=tuple(sorted({number for part in release.planned.adaptive for number in part.releases})),
        measures=tuple(_measure(bounded, release, plan.rows) for bounded in plan.measures),
        totals=tuple(_total(level, release) for level in plan.levels if len(level.kept) < len(plan.keys)),
        statistics=tuple(
            ExplainedStatistic(drawn.column, readable_statistic(drawn.statistic), draw.name, draw.note)
            for drawn, draw in release.statistics
        ),
        tests=tuple(ExplainedTest(part.test.clipped, part.most) for part in release.tests),
        found=tuple(_found(release.planned.seeking)),
    )


def _found(seeking: Seeking) -> Iterator[str]:
    yield from (what for what, is_found in ((FOUND_ROWS, seeking.rows), (FOUND_GROUPS, seeking.groups)) if is_found)
    for value, (low, high) in seeking.values:
        yield f"where to clip {readable_clipped(value)} within {float(low):g} to {float(high):g}"


def _total(level: Level, release: CalibratedRelease) -> ExplainedTotal:
    plan = release.planned.release
    keys = tuple(readable(plan.aggregate.keys[key]) for key in level.kept)
    thresholds = (release.thresholds.get(part.column) for part in level.measures)
    threshold = next((least for least in thresholds if least is not None), None)
    return ExplainedTotal(keys, tuple(_measure(part, release, plan.rows) for part in level.measures), threshold)


def _measure(bounded: Bounded, release: CalibratedRelease, rows: int) -> ExplainedMeasure:
    noises = {measure.bounded.column: measure for measure in release.measures}
    measure = noises.get(bounded.column)
    return ExplainedMeasure(
        column=bounded.column,
        what=readable_measure(bounded.measure),
        l0=bounded.l0,
        l1=bounded.l1,
        l2=bounded.l2,
        linf=bounded.linf,
        mechanism="" if measure is None else measure.noise.name,
        std=math.inf if measure is None else measure.std,
        quantum=float(quantum_of(bounded.measure, rows)),
        place=bounded.place,
    )


def _lines(explanation: Explanation) -> Iterator[str]:
    cost, left = explanation.cost, explanation.remaining
    yield (
        f"cost       epsilon {cost.epsilon:.6g}, delta {cost.delta:.3g}: {explanation.share:.2%} of the session; "
        f"after it epsilon {left.epsilon:.6g} is left"
    )
    for name, fact in _cost_facts(explanation):
        yield f"{name:<10} {fact}"
    for column in explanation.columns:
        if column.half_width is not None:
            yield f"column     {column.name}: ± {significant(column.half_width)} at 95 % {column.note}".rstrip()
        elif column.note:
            yield f"column     {column.name}: {column.note}"
    for reports in explanation.reports:
        if reports.is_free:
            yield f"sql        {reports.sql}"
    for number, release in enumerate(explanation.releases):
        if len(explanation.releases) > 1:
            yield _part_line(number, release)
        yield from _release_lines(release)


def _part_line(number: int, release: ExplainedRelease) -> str:
    first = " and ".join(str(other + 1) for other in release.reads)
    after = f"; runs after release {first}, whose noisy answer it reads" if first else ""
    return f"release {number + 1}  epsilon {release.epsilon:.6g} of the cost{after}"


def _release_lines(release: ExplainedRelease) -> Iterator[str]:
    for name, fact in _release_facts(release):
        yield f"{name:<10} {fact}"
    for measure in release.measures if not release.found else ():
        noise = f"the noise's standard deviation is {significant(measure.std * measure.quantum)}"
        yield (
            f"measure    {measure.what}: one unit moves it by "
            f"{significant(measure.linf * measure.quantum, 6)} in a group, "
            f"{significant(measure.l1 * measure.quantum, 6)} in all; "
            f"{noise if measure.mechanism else 'not shown, but summed'}"
        )
    yield f"sql        {release.sql}"


def _cost_facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    yield from (("note", note) for note in explanation.notes)
    yield "noise", f"{explanation.mechanism or 'none'}: {explanation.reason}"
    yield from (("reports", str(reports)) for reports in explanation.reports)
    if explanation.cost_if_refused != explanation.cost:
        yield "if refused", f"by every test, the cost is epsilon {explanation.cost_if_refused.epsilon:.6g}"


def _beyond_few(release: ExplainedRelease) -> str:
    """Whom the bounds are for, and what becomes of them."""
    if release.few_rows is None or release.found or 0 < (release.rows_per_unit or 0) <= release.few_rows:
        return ""
    few = several(release.few_rows, "row", "rows")
    if release.in_parts:
        return f": {few} in all, of more each counts for a part"
    return f", for units with more than {few}"


def _release_facts(release: ExplainedRelease) -> Iterator[tuple[str, str]]:
    yield "unit", release.unit
    if release.one_row_per_unit:
        yield "bounds", "one row per unit, guaranteed by the database"
    elif release.pairs:
        yield "bounds", f"at most {release.max_rows_per_group} rows of a unit on either side of the join, in all"
    else:
        groups = "found" if FOUND_GROUPS in release.found else several(release.max_groups, "group", "groups")
        rows = "found" if FOUND_ROWS in release.found else several(release.max_rows_per_group, "row", "rows")
        yield "bounds", f"{groups} per unit, {rows} per group{_beyond_few(release)}"
        most = release.rows_per_unit or 0
        cut = most > release.max_rows_per_group or (release.keys and most > release.max_groups)
        if cut and most > (release.few_rows or 0):
            yield "cut", f"the join gives a unit up to {most} rows: those beyond the bounds do not count"
    if release.strategy is not None and not release.found:
        yield "strategy", release.strategy
    if release.found:
        yield "found", f"by the query itself, for {float(SEEKING):.0%} of its cost: {', '.join(release.found)}"
    if release.threshold is not None and not release.found:
        why = "as asked for" if release.public_keys else "the keys are not public"
        yield "groups", f"shown where the noisy number of units is at least {release.threshold:,}: {why}"
    elif release.keys:
        yield "groups", "public: every one is returned, even when empty"
    for columns in _bundles(release):
        where = " in a group" if release.keys else ""
        together = f"of a unit at most {release.max_rows_per_group} in all of them{where}"
        yield "exclusive", f"{columns} columns, of which a row counts in one: each has the noise of one, and {together}"
    for total in release.totals:
        by = f"by {', '.join(total.keys)}" if total.keys else "of all groups"
        deviations = ", ".join(significant(measure.std * measure.quantum) for measure in total.measures)
        least = "" if total.threshold is None else f"; shown from {total.threshold:,} units on"
        hidden = "" if release.public_keys else ", groups that are not shown included"
        yield "total", f"{by}: measured{hidden}; the noise's standard deviations are {deviations}{least}"
    for statistic in release.statistics:
        yield "statistic", f"{statistic.what} by {statistic.mechanism}: {statistic.note}"
    for test in release.tests:
        yield (
            "test",
            f"{test.column} is shown where a noisy count of the units beyond the proposal is at most {test.most}",
        )


def _bundles(release: ExplainedRelease) -> list[int]:
    """Of each bundle how many cases it has."""
    places = {measure.place for measure in release.measures if measure.place is not None}
    return list(Counter(bundle for bundle, _ in sorted(places)).values())


def cost_figures(cost: Cost, left: Cost) -> Iterator[tuple[str, str]]:
    yield f"ε {cost.epsilon:.4g}", "cost" if not cost.delta else f"cost, with δ {cost.delta:.3g}"
    yield f"ε {left.epsilon:.4g}", "left after it"


def explanation_card(explanation: Explanation) -> str:
    columns = [
        (column.name, f"± {significant(column.half_width)}" if column.half_width is not None else column.note)
        for column in explanation.columns
        if column.half_width is not None or column.note
    ]
    return card(
        "What the query would do; asking costs nothing",
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
        + folded("the SQL that would run on the data", code(release.sql))
    )

"""infer_sensitivity: the measures of each release, and their sensitivities.

A unit is in at most `groups` groups with at most `rows` rows each. So a measure to which it adds at most c in one group
has the sensitivities  L0 = groups, Linf = c, L1 = groups * c, L2 = sqrt(groups) * c.  docs/proofs/bounding.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dpsql.aggregates.count_sum import check_proposal
from dpsql.aggregates.cross_unit import matched
from dpsql.aggregates.disjoint import exclusive_values
from dpsql.aggregates.estimate import Answer, Context
from dpsql.aggregates.format import format_answer, format_measure, format_statistic, quantum_of
from dpsql.aggregates.heavy_units import adds_up, light_rows
from dpsql.aggregates.measure import (
    ClippedInL2,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    DownWeighted,
    Matched,
    OverDistinct,
    Statistic,
)
from dpsql.aggregates.release import Bounded, Columns, Release, drawn_together, levels_of
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.format import format_expression, format_value
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.refusals import INSTEAD, about
from dpsql.mechanisms.registry import ADDITIVE, MECHANISMS, drawing, is_chosen
from dpsql.pipeline.auto_bounds import counts_auto_bounds
from dpsql.pipeline.format import about_releases, laid_out
from dpsql.pipeline.track_units import contribution_bounds
from dpsql.relation.facts import expected_of
from dpsql.relation.format import format_call
from dpsql.relation.relation import Aggregate
from dpsql.relation.units import different_units, one_row_per_unit, scans_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

    from dpsql.aggregates.function import Aggregator
    from dpsql.aggregates.measure import Measure
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.track_units import Tracked, TrackedRelease
    from dpsql.relation.domain import Domain, ListedKeys
    from dpsql.relation.relation import AggregateCall, CrossUnitJoin, Relation, Scan
    from dpsql.sql.adaptive import AdaptiveSubquery

    Presumed = tuple[tuple[Expression, Properties], ...]


@dataclass(frozen=True)
class Measured:
    request: QueryRequest
    releases: tuple[Release, ...]
    public: tuple[Scan | Aggregate, ...]
    adaptive: tuple[AdaptiveSubquery, ...]
    post_processing: exp.Query
    tracked: Tracked = field(repr=False)
    """The tracked query, from which it is inferred again once auto bounds are found."""

    def __str__(self) -> str:
        return laid_out(about_releases(map(_lines, self.releases)))


def infer_sensitivity(tracked: Tracked, public: PublicEnvironment) -> Measured:
    _check_owners_rules(tracked, public)
    releases = tuple(
        _measure(release, tracked.request.by_clause(release.aggregate.clause), public) for release in tracked.releases
    )
    _check_mechanism(tracked.request, releases)
    _check_clauses(tracked.request, releases)
    return Measured(tracked.request, releases, tracked.public, tracked.adaptive, tracked.post_processing, tracked)


def _measure(release: TrackedRelease, request: QueryRequest, public: PublicEnvironment) -> Release:
    least_people = None if release.aggregate.is_auxiliary else public.schema.minimum_people
    if release.aggregate.is_auxiliary:
        request = replace(request, propose=None, min_units=None, bounding="sample")
    elif least_people is not None:
        request = replace(request, min_units=max(request.min_units or 1, least_people))
    if release.across is not None:
        return _matched(release, release.across, request)
    if release.aggregate.reports is not None:
        _check_reports(release, request)
    groups, rows = release.contribution(request)
    asked = Asked(release, request)
    # Twice: once to see which counts are taken anyway, so that sums and other counts can lean on them.
    alone = Columns(rows, release.one_row_per_unit)
    _check_totals(release, asked.answers(alone), [*alone.measures, *alone.statistics])
    _check_least_units(release, request, groups)
    selecting = release.domain is None or request.min_units is not None
    columns = _beside_each_other(alone, request, _l2_clipped_to(release, request, groups), selecting=selecting)
    # On a session's curve g releases of epsilon/g are cheaper than one, so with a delta they stay such.
    in_l1 = groups == 1 or not public.budget.filter.delta
    if in_l1 and columns.l2_clipped_to is None and _may_down_weight(release, request, alone):
        columns = replace(columns, down_weighted_to=groups * rows)
    answers = asked.answers(columns, frozenset(measure for measure in alone.measures if is_count(measure)))
    for answer, call in zip(answers, release.aggregate.calls, strict=True):
        check_proposal(answer, columns.measures, rows, call)
    partition_selection = columns.column_of(CountUnits()) if selecting else None
    inferred = _release(release, request, groups, columns, answers, partition_selection)
    _check_ranges(asked.presumed, release.aggregate)
    return replace(inferred, presumed=asked.presumed, least_people=least_people)


def _check_owners_rules(tracked: Tracked, public: PublicEnvironment) -> None:
    """Refuses what the data owner does not let anybody ask."""
    counts_reports = any(isinstance(table, Aggregate) and table.reports is not None for table in tracked.public)
    if not tracked.releases and not counts_reports:
        return
    if public.schema.accuracy == "required" and tracked.request.accuracy is None:
        raise ProgrammingError(
            "the data owner requires each query to state its accuracy",
            hint='write accuracy=50, or accuracy="5%", and leave out epsilon=; one query at a time',
        )
    if public.schema.minimum_people is None:
        return
    if tracked.request.diagnose:
        raise ProgrammingError(
            "diagnose= shows how few people have many rows, and the data owner hides groups of fewer than "
            f"{public.schema.minimum_people} people",
            hint="leave it out",
        )
    if counts_reports:
        raise Unsupported(
            "reports are counted whole, and the data owner hides groups of fewer than "
            f"{public.schema.minimum_people} people",
            hint="ask about columns that are not collected",
        )
    for release in tracked.releases:
        if release.aggregate.totals:
            raise Unsupported(
                f"the data owner hides groups of fewer than {public.schema.minimum_people} people, which the totals "
                "of ROLLUP, CUBE and GROUPING SETS do not",
                at=release.aggregate.calls[0].at if release.aggregate.calls else None,
                hint="query the totals separately",
            )


def _check_ranges(presumed: Presumed, aggregate: Aggregate) -> None:
    """Refuses a quantity per person that max_rows_per_group alone decides: the average number of rows would be 1."""
    for argument, seen in presumed:
        if seen.low is not None and seen.low == seen.high:
            raise Unsupported(
                f"{format_expression(argument)} would be {format_value(seen.low)} for everybody, because of "
                "max_rows_per_group",
                at=aggregate.calls[0].at,
                hint='ask with max_rows_per_group="auto", or with as many rows as a person may have',
            )


def _beside_each_other(
    alone: Columns, request: QueryRequest, l2_clipped_to: tuple[int, int] | None, *, selecting: bool
) -> Columns:
    """The columns of the measures, which may be recentred, disjoint or L2-clipped."""
    units_counted = selecting or CountUnits() in alone.measures
    may_exclude = request.propose is None and l2_clipped_to is None
    return Columns(
        rows=alone.rows,
        one_row_per_unit=alone.one_row_per_unit,
        units_counted=units_counted,
        exclusive=exclusive_values(alone.measures, units_counted=units_counted) if may_exclude else {},
        l2_clipped_to=l2_clipped_to,
    )


@dataclass(frozen=True)
class Asked:
    """The aggregates of a release, as estimates over its columns."""

    release: TrackedRelease
    request: QueryRequest

    def answers(self, columns: Columns, counted: frozenset[Measure] = frozenset()) -> tuple[Answer, ...]:
        context = Context(
            known=self.release.facts.surviving,
            unit_columns=self.release.unit_columns,
            counted=counted,
            bundled=columns.exclusive,
            column_of=columns.column_of,
            linear_of=columns.linear_of,
            drawn_as=columns.drawn_as,
            drawn=_drawn_by(self.request),
            propose=self.request.propose,
            in_totals=bool(self.release.aggregate.totals),
        )
        return tuple(_aggregator(call)(call, self._seen_by(call, context)) for call in self.release.aggregate.calls)

    def _seen_by(self, call: AggregateCall, context: Context) -> Context:
        # A proposal is about sums and averages where there are any, and about counts where these stand alone.
        propose = None if call.name == "COUNT" and not self._counts_alone else context.propose
        known = self._expected if _unbounded(call, context.known) else context.known
        if propose is context.propose and known is context.known:
            return context
        return replace(context, propose=propose, known=known)

    @property
    def presumed(self) -> Presumed:
        """The arguments without declared bounds, and the bounds that max_rows_per_group implies."""
        calls = (call for call in self.release.aggregate.calls if call.name != "COUNT")
        unbounded = dict.fromkeys(
            argument for call in calls for argument in _unbounded(call, self.release.facts.surviving)
        )
        return tuple((argument, kept_properties(argument, self._expected)) for argument in unbounded)

    @cached_property
    def _counts_alone(self) -> bool:
        return all(call.name == "COUNT" for call in self.release.aggregate.calls)

    @cached_property
    def _expected(self) -> Known:
        """The column facts, with implied ranges for per-unit totals unless auto bounds are still to be found."""
        release, request = self.release, self.request
        if counts_auto_bounds(release.scans, request)[0]:
            return release.facts.surviving
        return expected_of(release.aggregate.source, contribution_bounds(release.scans, None, request)[1])


def _l2_clipped_to(release: TrackedRelease, request: QueryRequest, groups: int) -> tuple[int, int] | None:
    """max_groups and the number of public groups, if contributions are L2-clipped. docs/proofs/l2_clipping.md."""
    aggregate = release.aggregate
    if request.bounding != "l2_clip" or not aggregate.grouped or release.one_row_per_unit:
        return None
    reasons = {
        "the groups are not public": release.domain is None,
        "totals add up one person's values from several groups": bool(aggregate.totals),
        "groups are selected by their number of people": request.min_units is not None,
        "a private test counts the people who exceed the proposal": request.propose is not None,
        "diagnose= measures what bounding leaves out": request.diagnose,
        "the query finds max_groups itself": counts_auto_bounds(release.scans, request)[1],
        "reports are counted": aggregate.reports is not None,
    }
    for reason in (reason for reason, holds in reasons.items() if holds):
        raise Unsupported(
            f'bounding="l2_clip" is not available here: {reason}',
            at=aggregate.calls[0].at if aggregate.calls else None,
            hint="omit bounding=; then max_groups groups per person count",
        )
    assert release.domain is not None
    return (groups, release.domain.size) if release.domain.size > groups else None


def _unbounded(call: AggregateCall, known: Known) -> list[Expression]:
    """The numeric arguments without bounds, which alone get implied ranges."""
    aggregated = ((argument, kept_properties(argument, known)) for argument in call.arguments)
    return [argument for argument, seen in aggregated if seen.is_number and (seen.low is None or seen.high is None)]


def _release(
    release: TrackedRelease,
    request: QueryRequest,
    groups: int,
    columns: Columns,
    answers: tuple[Answer, ...],
    partition_selection: str | None,
) -> Release:
    rows = columns.rows
    few = _light_rows(release, request, groups, columns)
    measures = tuple(
        _bounded(column, measure, (groups, rows), few, release.domain) for measure, column in columns.measures.items()
    )
    return Release(
        aggregate=release.aggregate,
        units=tuple(dict.fromkeys(str(scan.unit) for scan in release.scans)),
        facts=release.facts,
        domain=release.domain,
        one_row_per_unit=release.one_row_per_unit,
        groups=groups,
        rows=rows,
        light_rows=few,
        rows_per_unit=release.rows_per_unit[0] if release.across is None else None,
        measures=measures,
        levels=levels_of(release.aggregate.totals, len(release.aggregate.keys), measures),
        statistics=drawn_together(columns.statistics, lambda statistic: is_chosen(statistic, request.mechanism)),
        answers=answers,
        partition_selection=partition_selection,
        min_units=None if release.domain is None and request.min_units == 1 else request.min_units,
    )


def _may_down_weight(release: TrackedRelease, request: QueryRequest, alone: Columns) -> bool:
    """Whether rows may be down-weighted: every measure is a sum over rows, and its L1 norm is what matters."""
    if release.aggregate.totals or alone.statistics:
        return False  # totals of parts, rounded to whole numbers, would not agree; statistics have ranks of their own
    return _tells_rows(release, request) and all(map(adds_up, alone.measures))


def _light_rows(release: TrackedRelease, request: QueryRequest, groups: int, columns: Columns) -> int | None:
    """Up to how many rows a unit counts in full; None if rows per unit are not counted."""
    if columns.down_weighted_to is not None:
        return columns.down_weighted_to
    if columns.statistics or not _tells_rows(release, request):
        return None
    return light_rows(groups, columns.rows, columns.measures)


def _tells_rows(release: TrackedRelease, request: QueryRequest) -> bool:
    """Whether units may be treated by their number of rows in all groups, which needs public groups."""
    aggregate = release.aggregate
    if not aggregate.grouped or release.domain is None or release.one_row_per_unit or release.across is not None:
        return False
    # A diagnosis is of the bounds as they are named.
    return not request.diagnose and request.min_units is None and aggregate.reports is None


def _bounded(
    column: str, measure: Measure, bounds: tuple[int, int], few: int | None, domain: Domain | ListedKeys | None
) -> Bounded:
    groups, rows = bounds
    each = measure.linf(rows)
    if isinstance(measure, ClippedInL2):
        return Bounded(column, measure, measure.all_groups, each, measure.groups, each)
    if few is None:
        return Bounded(column, measure, groups, each, groups, each)
    assert domain is not None
    if isinstance(measure, DownWeighted):
        # All rows of a unit do no more than if they were in one group, wherever they are and in whatever parts.
        whole = measure.linf(few)
        return Bounded(column, measure, domain.size, whole, 1, whole, sums=max(1, whole))
    # All of few rows may be in one group, or each in one of its own.
    return Bounded(column, measure, min(domain.size, max(groups, few)), measure.linf(few), groups, each, sums=rows)


def _matched(release: TrackedRelease, across: CrossUnitJoin, request: QueryRequest) -> Release:
    """A release of totals over pairs of people, by smooth sensitivity or propose-test-release, over public groups."""
    if Matched not in _drawn_by(request):
        otherwise = 'or count the pairs of people with mechanism="smooth", or "ptr" and propose=...'
        raise different_units(across.same_unit, across.at, otherwise)
    if release.domain is None or request.min_units is not None or release.aggregate.totals:
        raise Unsupported(
            "totals over joins across people need public groups",
            at=across.at,
            hint="group by columns with declared values or not at all, and omit ROLLUP",
        )
    sides = zip((across.left, across.right), release.rows_per_unit, strict=True)
    rows = tuple(_rows_of(side, most, request) for side, most in sides)
    columns = Columns(max(rows), release.one_row_per_unit)
    known, bounds = release.facts.surviving, (*rows, release.domain.size)
    answers = tuple(matched(call, known, across, bounds, columns.drawn_as) for call in release.aggregate.calls)
    return _release(release, request, 1, columns, answers, None)


def _rows_of(relation: Relation, most: int | None, request: QueryRequest) -> int:
    """The maximum number of rows of one unit on one side."""
    if one_row_per_unit(relation):
        return 1
    groups, rows = contribution_bounds([scan for scan in scans_of(relation) if scan.unit is not None], most, request)
    return groups * rows if most is None else min(groups * rows, most)


def _check_reports(release: TrackedRelease, request: QueryRequest) -> None:
    """Refuses what would drop counts of reports: de-biasing needs all of them."""
    at = release.aggregate.calls[0].at
    if release.domain is None:
        raise Unsupported(
            "with randomised reports, all other groups must be public",
            at=at,
            hint="group by columns with declared values, or by collected columns alone",
        )
    if request.min_units is not None or request.mechanism not in (None, *ADDITIVE):
        raise Unsupported(
            "counts of randomised reports need Laplace or Gaussian noise, and all of them are shown",
            at=at,
            hint="omit mechanism= and min_privacy_units_per_group",
        )


def _check_mechanism(request: QueryRequest, releases: tuple[Release, ...]) -> None:
    """Refuses a named mechanism that nothing in the query can use."""
    named = request.mechanism
    drawn = {type(drawn.statistic) for release in releases for drawn in release.statistics}
    measured = any(release.measures for release in releases)
    clipped = any(answer.test for release in releases for answer in release.answers)
    fitting = {*ADDITIVE} if measured else set()
    fitting |= {name for statistic in drawn for name in drawing(statistic)}
    if named is not None and named not in fitting and not clipped and releases:
        raise Unsupported(
            f'mechanism="{named}" does not fit this query',
            at=releases[0].aggregate.calls[0].at if releases[0].aggregate.calls else None,
            hint=f"use {' or '.join(sorted(fitting))}, or omit it",
        )


def _check_clauses(request: QueryRequest, releases: tuple[Release, ...]) -> None:
    """Refuses what several options clauses in one query do not support."""
    if request.clauses and any(release.aggregate.is_auxiliary for release in releases):
        raise Unsupported(
            '"auto" bounds and diagnose= need a query with a single options clause',
            at=request.clauses[0].options.at,
            hint="set the bounds: max_groups_contributed = 3, max_rows_contributed = 5",
        )
    for number, clause in enumerate(request.clauses):
        own = [release for release in releases if release.aggregate.clause == number]
        if any(release.statistics for release in own) or not any(release.measures for release in own):
            raise Unsupported(
                "several options clauses are supported only for counts, sums and averages",
                at=clause.options.at,
                hint="query medians, modes and lists of keys separately",
            )


def _check_totals(release: TrackedRelease, answers: tuple[Answer, ...], parts: list[Measure | Statistic]) -> None:
    """Refuses ROLLUP and CUBE of aggregates that are not sums over groups."""
    if not release.aggregate.totals or not release.aggregate.calls:
        return
    hint = "query the totals separately, without ROLLUP"
    at = release.aggregate.calls[0].at
    if any(isinstance(part, Statistic) for part in parts):
        raise Unsupported("a total's median, mode or MIN is not the sum of its groups'", at=at, hint=hint)
    if any(answer.test for answer in answers):
        raise Unsupported("a total has no value where the test refuses one of its groups", at=at, hint=hint)
    counted_apart = (OverDistinct,) if release.rows_per_unit == (1,) else (OverDistinct, CountUnits, CountUnitsWith)
    if any(isinstance(part, counted_apart) for part in parts):
        raise Unsupported(
            "COUNT(DISTINCT ...) has no totals: anyone in several groups would be counted several times",
            at=at,
            hint=hint,
        )


def _check_least_units(release: TrackedRelease, request: QueryRequest, groups: int) -> None:
    if release.aggregate.totals and request.min_units is not None and groups > 1:
        raise Unsupported(
            "a minimum number of people does not work with totals, which would count a person once for each group",
            at=release.aggregate.calls[0].at if release.aggregate.calls else None,
            hint="query the totals separately, without ROLLUP",
        )


def _drawn_by(request: QueryRequest) -> frozenset[type[Statistic]]:
    """The kinds of statistics that the named mechanism can draw."""
    return frozenset() if request.mechanism is None else frozenset(MECHANISMS[request.mechanism].draws)


def _aggregator(call: AggregateCall) -> Aggregator:
    if call.name in AGGREGATES:
        return AGGREGATES[call.name].answer
    if call.name in ("BOOL_OR", "BOOL_AND"):
        raise Unsupported(
            f"{call.name} over many people is not supported: one person can flip it, so the answer would be a coin "
            "toss",
            at=call.at,
            hint=f"count them instead:  COUNT_IF({format_expression(call.arguments[0])}); and look at its error bar",
        )
    instead = INSTEAD.get(call.name, "COUNT, SUM or AVG")
    if call.arguments:
        instead = about(format_expression(call.arguments[0]), instead)
    raise Unsupported(
        f"{call.name} over many people is not supported",
        at=call.at,
        hint=f"write  {instead}; {call.name} is supported within one person (GROUP BY the unit)",
    )


def is_count(measure: Measure) -> bool:
    inner = measure.inner if isinstance(measure, OverDistinct) else measure
    return isinstance(inner, CountRows | CountValues)


def _lines(release: Release) -> Iterator[str]:
    """For people to read."""
    yield f"bounds   groups per person: {release.groups}, rows per group: {release.rows}"
    for part in release.measures:
        one, every = (format_value(moved * quantum_of(part.measure, release.rows)) for moved in (part.linf, part.l1))
        yield f"measure  {part.column} = {format_measure(part.measure)}"
        yield f"         one person moves a group by {one}, all groups together by {every}"
    yield from (f"drawn    {part.column} = {format_statistic(part.statistic)}" for part in release.statistics)
    for call, answer in zip(release.aggregate.calls, release.answers, strict=True):
        tested = "" if answer.test is None else f", unless {answer.test.exceeding} finds too many people who exceed it"
        yield f"answer   {format_call(call)} = {format_answer(answer)}{tested}"
    if release.partition_selection is not None:
        yield f"groups   selected by {release.partition_selection}"

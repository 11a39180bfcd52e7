"""plan_query: the engine SQL of each release, and the SQL that finishes the answer from noisy values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.aggregates.estimate import Estimate, Formula, Linear, Ratio, Reported, Smooth, WithError, estimate_of
from dpsql.aggregates.final import as_shown
from dpsql.aggregates.release import LEVEL
from dpsql.aggregates.write_release import release_sql
from dpsql.engine_sql.tree import tables_read
from dpsql.engines.duckdb.render import render
from dpsql.errors import Unsupported
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.pipeline.counted_reports import CountedReports
from dpsql.pipeline.follow_outputs import follow_outputs, noisy_rows, plain_rows, reported_rows
from dpsql.pipeline.output import Output
from dpsql.pipeline.planned_release import PlannedAdaptiveSubquery, PlannedRelease, PublicTable
from dpsql.pipeline.readable import about_releases, laid_out
from dpsql.relation.relation import Aggregate
from dpsql.relation.write_reports import answers_sql
from dpsql.resolve.chosen_rows import chooses_by_noise, is_made_of
from dpsql.resolve.inner import reads_release, release_name, reports_name
from dpsql.resolve.passed_on import passed_on
from dpsql.resolve.public_columns import columns_read
from dpsql.resolve.syntax import is_interval_end, written

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dpsql.aggregates.release import Release
    from dpsql.engines.public import Render
    from dpsql.pipeline.infer_sensitivity import Measured
    from dpsql.pipeline.public_environment import PublicEnvironment
    from dpsql.pipeline.query_request import QueryRequest
    from dpsql.pipeline.track_units import Tracked
    from dpsql.relation.reports import Reports
    from dpsql.resolve.follow_noise import Followed
    from dpsql.resolve.noise_in_columns import Rows


@dataclass(frozen=True, kw_only=True)
class Planned:
    request: QueryRequest
    releases: tuple[PlannedRelease, ...]
    public: tuple[PublicTable | CountedReports, ...]
    outputs: tuple[Output, ...]
    asked: tuple[tuple[str, ...], tuple[str, ...]]
    """The engine SQL of the releases, with zeros in its blanks, and of the public tables."""
    post_processing: str
    """The SQL above the releases, over tables _release_0, _release_1, ..."""
    followed: Followed | None = field(repr=False)
    """The same once more with replicas of what is noisy, where an output needs them."""
    tracked: Tracked = field(repr=False)
    shape: Planned | None = field(default=None, repr=False, compare=False)
    """The plan for many that this one was made of: what it costs follows from the shape of the question."""

    def __str__(self) -> str:
        return laid_out(
            [
                *about_releases([sql] for sql in self.asked[0]),
                *((table.name, [sql]) for table, sql in zip(self.public, self.asked[1], strict=True)),
                ("post-processing", [self.post_processing]),
            ]
        )


def plan_query(measured: Measured, public: PublicEnvironment) -> Planned:
    post_processing = copied(measured.post_processing)
    ends = _interval_ends(post_processing, measured)
    releases = tuple(
        PlannedRelease(
            name=release_name(number),
            release=part,
            render=public.render,
            ends=ends[number],
            adaptive=_adaptive(number, measured, public.render),
            answers=_answers(part.aggregate.reports, public),
            seeking=measured.tracked.releases[number].seeking,
            found=measured.tracked.releases[number].found,
            literals=public.literals,
        )
        for number, part in enumerate(measured.releases)
    )
    read = tuple(_public(measured, public))
    # What the engine has no words for, or too many, is refused here, while nothing is charged.
    asked = tuple(release.shown for release in releases), tuple(table.sql for table in read)
    tables = [release.post_processing_table for release in releases] + [table.post_processing_table for table in read]
    above = copied(post_processing)
    outputs = _outputs(post_processing, measured)
    known = passed_on(post_processing, tables)
    sql = written(post_processing)
    described = public.post_processor.describe(sql, tables) if known is None else known
    outputs = outputs or tuple(Output(name, None, None) for name, _ in described)
    outputs, followed = follow_outputs(above, outputs, described, _noise_in_tables(releases, read))
    return Planned(
        request=measured.request,
        releases=releases,
        public=read,
        outputs=outputs,
        asked=asked,
        post_processing=sql,
        followed=followed,
        tracked=measured.tracked,
    )


def _noise_in_tables(
    releases: Sequence[PlannedRelease], public: Sequence[PublicTable | CountedReports]
) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for table in public:
        rows_of = reported_rows if isinstance(table, CountedReports) else plain_rows
        found[table.name.lower()] = rows_of(table.post_processing_table.columns)
    for release in releases:
        columns = release.post_processing_table.columns
        is_reported = release.reports is not None
        found[release.name] = reported_rows(columns) if is_reported else noisy_rows(columns, release.release)
    return found


def _public(measured: Measured, public: PublicEnvironment) -> Iterator[PublicTable | CountedReports]:
    counted = [part for part in measured.public if isinstance(part, Aggregate)]
    for part in measured.public:
        if isinstance(part, Aggregate):
            name = reports_name(counted.index(part))
            yield CountedReports(name, part, _answers(part.reports, public), public.render)
        else:
            yield PublicTable(part, columns_read(part, measured.post_processing), public.render)


def _answers(reports: Reports | None, public: PublicEnvironment) -> tuple[tuple[Any, ...], ...]:
    return () if reports is None else tuple(public.post_processor.constants(render(answers_sql(reports))))


def _adaptive(number: int, measured: Measured, render: Render) -> tuple[PlannedAdaptiveSubquery, ...]:
    """The answers that a release reads: those that were there before it, and are named in its SQL."""
    before = [answer for answer in measured.adaptive if answer.after <= number]
    read = tables_read(release_sql(measured.releases[number])) if before else set()
    return tuple(
        PlannedAdaptiveSubquery(
            answer.table,
            answer.sql,
            tuple(i for i in range(answer.after) if reads_release(answer.query, i)),
            tuple(PublicTable(scan, columns_read(scan, answer.query), render) for scan in answer.public),
        )
        for answer in before
        if answer.table.name in read
    )


def _outputs(post_processing: exp.Query, measured: Measured) -> tuple[Output, ...]:
    """The columns of an answer that is one SELECT over one release, with their errors; others have none."""
    if not isinstance(post_processing, exp.Select) or post_processing.find(exp.Star):
        return ()
    number, items = _release_below(post_processing), post_processing.expressions
    if (reports := _reports_below(post_processing, measured)) is not None:
        return _outputs_of_reports(post_processing, reports)
    if number is None:
        return tuple(Output(item.alias_or_name, None, None) for item in items)
    release = measured.releases[number]
    answers = _estimates(release)
    always = (LEVEL,) if release.levels else ()
    found = [estimate_of(item, answers) or _smooth(item, release) for item in items]
    return _with_hidden(post_processing, found, number, release.key_names, always)


def _outputs_of_reports(post_processing: exp.Select, reports: Reports) -> tuple[Output, ...]:
    items, keys = post_processing.expressions, [f"_k{number}" for number in range(len(reports.keys))]
    answers = _estimates_of(reports)
    return _with_hidden(post_processing, [estimate_of(item, answers) for item in items], None, keys)


def _estimates_of(reports: Reports) -> dict[str, Estimate]:
    return {f"_a{number}": Reported(f"_a{number}") for number in range(len(reports.calls))}


def _estimates(release: Release) -> dict[str, Estimate]:
    """By the release's column, where the error is known."""
    return {
        f"_a{i}": estimate
        for i, answer in enumerate(release.answers)
        if not isinstance(estimate := as_shown(answer), Formula)
    }


def _smooth(item: exp.Expr, release: Release) -> Smooth | None:
    """The error of a variance and its kin, where it stands for itself."""
    column = item.unalias()
    for number, answer in enumerate(release.answers if not release.aggregate.totals else ()):
        if isinstance(answer.estimate, Formula) and isinstance(column, exp.Column) and column.name == f"_a{number}":
            return answer.estimate.smooth
    return None


def _interval_ends(post_processing: exp.Query, measured: Measured) -> list[tuple[Linear | Ratio | None, ...]]:
    """DP_INTERVAL_LOW(x) in the post-processing becomes a column of its release; x is kept, as an estimate."""
    found: list[list[Linear | Ratio | None]] = [[] for _ in measured.releases]
    for node in [node for node in nodes_of(post_processing, exp.Anonymous) if is_interval_end(node)]:
        select = node.find_ancestor(exp.Select)
        number = _release_below(select) if select is not None else None
        if number is None or measured.releases[number].aggregate.reports is not None:
            raise Unsupported(
                f"{node.name} cannot be asked of estimates from randomised reports", hint="intervals() gives their ends"
            )
        estimate = estimate_of(node.expressions[0], _estimates(measured.releases[number]))
        assert not isinstance(estimate, Reported)
        if estimate not in found[number]:
            found[number].append(estimate)
        end = "low" if node.name.endswith("LOW") else "high"
        node.replace(exp.column(f"_{end}{found[number].index(estimate)}"))
    return [tuple(estimates) for estimates in found]


def _release_below(post_processing: exp.Select) -> int | None:
    return _number_below(post_processing, "_release")


def _reports_below(post_processing: exp.Select, measured: Measured) -> Reports | None:
    """The question about randomised reports that the post-processing is over."""
    if (number := _release_below(post_processing)) is not None:
        return measured.releases[number].aggregate.reports
    number = _number_below(post_processing, "_reports")
    counted = [part for part in measured.public if isinstance(part, Aggregate)]
    return None if number is None else counted[number].reports


def _number_below(post_processing: exp.Select, kind: str) -> int | None:
    source = post_processing.args.get("from_")
    name = source.this.name if source is not None and isinstance(source.this, exp.Table) else ""
    prefix, _, number = name.rpartition("_")
    return int(number) if prefix == kind and not post_processing.args.get("joins") else None


def _with_hidden(
    post_processing: exp.Select,
    estimates: Sequence[WithError | None],
    number: int | None,
    keys: Collection[str],
    always: tuple[str, ...] = (),
) -> tuple[Output, ...]:
    """A ratio's error depends on its own noisy parts, so these come along behind the visible columns."""
    items, chosen = post_processing.expressions, chooses_by_noise(post_processing, keys)
    positions: dict[str, int] = {}
    outputs = []
    for item, estimate in zip(items, estimates, strict=True):
        wanted: tuple[str, ...] = ()
        if estimate is not None and (always or not isinstance(estimate, Linear)):
            if post_processing.args.get("distinct"):
                estimate = None
            elif isinstance(estimate, Linear):
                wanted = always
            elif isinstance(estimate, Reported):
                wanted = (estimate.standard_error, estimate.kurtosis)
            else:
                sides = estimate.parts if isinstance(estimate, Smooth) else (estimate.above, estimate.below)
                wanted = (*always, *dict.fromkeys(part for side in sides for part, _ in side.weights))
        hidden = tuple((part, positions.setdefault(part, len(items) + len(positions))) for part in wanted)
        is_key, is_answer = is_made_of(item, keys), _is_answer(item)
        outputs.append(Output(item.alias_or_name, estimate, number, hidden, is_key, chosen, is_answer=is_answer))
    post_processing.set("expressions", [*items, *map(_hidden, positions)])
    return tuple(outputs)


def _is_answer(item: exp.Expr) -> bool:
    column = item.unalias()
    return isinstance(column, exp.Column) and column.name.startswith("_a")


def _hidden(part: str) -> exp.Alias:
    return exp.Alias(this=exp.column(part), alias=exp.to_identifier(f"_hidden_{part}"))

"""plan_query: the engine SQL of each release, and the SQL that finishes the answer from noisy values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.aggregates.estimate import (
    Estimate,
    Formula,
    Linear,
    Ratio,
    Reported,
    SmoothFunction,
    WithError,
    answer_type,
    as_shown,
    estimate_of,
    final_sql,
    noise_of,
)
from dpsql.aggregates.release import LEVEL
from dpsql.aggregates.release_sql import release_sql
from dpsql.engine_sql.build import SALT, select, with_tables
from dpsql.engine_sql.tree import Alias, Field, tables_read
from dpsql.engines.base import PostProcessingTable
from dpsql.engines.duckdb.render import render, render_term, type_name
from dpsql.engines.render import filled, quoted
from dpsql.errors import Unsupported
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.pipeline.auto_bounds import NO_AUTO_BOUNDS, NOTHING_FOUND, AutoBounds, FoundBounds
from dpsql.pipeline.format import Output, about_releases, laid_out
from dpsql.relation.relation import Aggregate
from dpsql.relation.reports import with_adaptive
from dpsql.relation.scan_sql import scan_sql
from dpsql.relation.sql import answers_sql, counted_reports_sql
from dpsql.result import is_number
from dpsql.sql.noise_tracking import LOST, MARK, PLAIN, Kind, Made, NoisyRows, propagate_error
from dpsql.sql.post_processing import chooses_by_noise, columns_read, is_made_of, passthrough
from dpsql.sql.rows import reads_release, release_name, reports_name
from dpsql.sql.syntax import is_interval_end, written

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dpsql.aggregates.estimate import Answer
    from dpsql.aggregates.release import Release
    from dpsql.engine_sql.tree import Query, Select
    from dpsql.engines.base import Render
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.infer_sensitivity import Measured
    from dpsql.pipeline.track_units import Tracked
    from dpsql.relation.relation import Scan
    from dpsql.relation.reports import AdaptiveTable, RandomizedResponses
    from dpsql.sql.adaptive import AdaptiveSubquery
    from dpsql.sql.noise_tracking import PropagatedError

# -- randomized responses ----------------------------------------------------------------------------------------------
# Randomised reports that the post-processing reads: how they are counted, and what becomes of them.


@dataclass(frozen=True)
class CountedResponses:
    """Randomised reports that are counted exactly, and the estimates that the post-processing reads."""

    name: str
    aggregate: Aggregate
    answers: tuple[tuple[Any, ...], ...]
    render: Render = field(compare=False)
    """How the engine at hand says it."""

    @property
    def reports(self) -> RandomizedResponses:
        assert self.aggregate.reports is not None
        return self.aggregate.reports

    @property
    def sql(self) -> str:
        return self.render(counted_reports_sql(self.aggregate))

    @property
    def counts(self) -> list[str]:
        return [f"n{number}" for number in range(len(self.aggregate.calls))]

    @property
    def post_processing_table(self) -> PostProcessingTable:
        return estimates_table(self.name, self.reports)


def estimates_table(name: str, reports: RandomizedResponses) -> PostProcessingTable:
    types = {f"_k{number}": type_name(kind) for number, kind in enumerate(reports.key_types)}
    for number in range(len(reports.calls)):
        found = Reported(f"_a{number}")
        types |= dict.fromkeys((found.answer, found.standard_error, found.kurtosis), "DOUBLE")
    return PostProcessingTable(name, types, {part: (kind, quoted(part)) for part, kind in types.items()})


# -- follow outputs ----------------------------------------------------------------------------------------------------
# Which columns of an answer are computed from noisy ones, and whether their error is found by bootstrap.


def propagate_to_outputs(
    query: exp.Query, outputs: Sequence[Output], described: Sequence[tuple[str, str]], tables: Mapping[str, NoisyRows]
) -> tuple[tuple[Output, ...], PropagatedError | None]:
    """The outputs, those without an estimate with the name of their replicas or with the word that they are lost."""
    pairs = list(zip(outputs, (kind for _, kind in described), strict=False))
    is_noisy = any(made.kind for rows in tables.values() for _, made in rows.columns)
    if not is_noisy or not any(map(_is_open, outputs)):
        return tuple(outputs), None
    propagated = propagate_error(query, tables)
    names = [output.name.lower() for output in outputs]
    if propagated is None:
        # Which of the texts are keys is not known then.
        return tuple(replace(output, lost=_is_open(output) and is_number(kind)) for output, kind in pairs), None
    columns = propagated.made(names)
    # A number that a release chose, a MODE, has no replicas, and a note says its error.
    pairs = [
        (replace(output, is_answer=output.is_answer and (made == LOST or not is_number(kind))), kind)
        for (output, kind), made in zip(pairs, columns, strict=True)
    ]
    if len(set(names)) < len(names):
        # Replicas are found by name; what is not noisy needs none.
        columns = [made.lost for made in columns]
    found = tuple(
        _with_error(*pair, made, chosen=propagated.rows.chosen) for pair, made in zip(pairs, columns, strict=True)
    )
    return found, propagated if any(output.replicate for output in found) else None


def _is_open(output: Output) -> bool:
    """Whether its error has yet to be found."""
    return output.estimate is None and not output.is_key


def _with_error(output: Output, kind: str, made: Made, *, chosen: bool) -> Output:
    is_key = made.kind is Kind.PLAIN if output.is_key is None else output.is_key
    if not _is_open(output) or made.kind is Kind.PLAIN:
        return replace(output, is_key=is_key)
    if not is_number(kind):  # a text, a date, a test: there is no interval of those
        return replace(output, is_key=is_key, lost=not output.is_answer)
    is_lost = made.kind is Kind.LOST and not output.is_answer
    return replace(output, is_key=is_key, replicate=made.replicate, lost=is_lost, chosen=output.chosen or chosen)


def plain_rows(columns: Iterable[str]) -> NoisyRows:
    """The columns of a public table."""
    return NoisyRows(tuple((name, PLAIN) for name in columns))


def reported_rows(columns: Iterable[str]) -> NoisyRows:
    """The columns estimated from randomised reports; errors of values computed from them are unknown."""
    return NoisyRows(tuple((name, LOST if name.startswith("_a") else PLAIN) for name in columns))


def noisy_rows(columns: Iterable[str], release: Release) -> NoisyRows:
    """The columns of a release: its answers are noisy, its keys are not."""
    measures, by_row = {part.column for part in release.measures}, bool(release.levels)
    made = {
        f"_a{number}": Made(Kind.NOISY, f"_a{number}{MARK}", by_row) if _is_of(answer, measures) else LOST
        for number, answer in enumerate(release.answers)
    }
    return NoisyRows(tuple((name, made.get(name, PLAIN)) for name in columns))


def _is_of(answer: Answer, measures: set[str]) -> bool:
    """Whether it is computed from measures only, whose noise is public."""
    match answer.estimate:
        case Linear():
            parts: tuple[Linear, ...] = (answer.estimate,)
        case Ratio(above, below):
            parts = (above, below)
        case Formula(parts=of):
            parts = of
        case _:
            return False
    return bool(parts) and {name for part in parts for name, _ in part.weights} <= measures


# -- planned release ---------------------------------------------------------------------------------------------------
# What a plan is made of: releases as engine SQL, the answers that they read, and public tables.


@dataclass(frozen=True)
class PlannedAdaptiveSubquery:
    """An answer that a release reads: its rows come from this SQL over releases and public tables."""

    table: AdaptiveTable
    post_processing: str
    releases: tuple[int, ...]
    public: tuple[PublicTable, ...]
    is_noisy: bool
    """Whether any of its columns is noisy, so that rows are compared with noise; a list of keys is not."""


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    name: str
    release: Release
    render: Render = field(compare=False)
    """How the engine at hand says it."""
    ends: tuple[Linear | Ratio | None, ...] = ()
    """What DP_INTERVAL_LOW and DP_INTERVAL_HIGH are asked of: its columns _low0, _high0, _low1, ..."""
    adaptive: tuple[PlannedAdaptiveSubquery, ...] = ()
    """The answers that it reads."""
    answers_met: tuple[Query, ...] = ()
    """How many of their rows one row meets, at the most."""
    auto_bounds: AutoBounds = NO_AUTO_BOUNDS
    """The bounds that are found before it is asked."""
    found: FoundBounds = NOTHING_FOUND
    """And what they turned out to be."""
    answers: tuple[tuple[Any, ...], ...] = ()
    """Where randomised reports are counted: all answers that there can be, and what is asked of each."""

    def salted(self, salt: int, reaches: Mapping[str, int]) -> str:
        """The engine SQL; the salt decides which of a unit's groups and values count."""
        return filled(self.render(self._over_materialized[0], reaches) if reaches else self._unsalted, SALT, salt)

    @cached_property
    def _unsalted(self) -> str:
        return self.render(self._over_materialized[0], self.zeros) if self.materialized else self._rendered

    @property
    def materialized(self) -> Mapping[str, str]:
        """The engine SQL of results that are reused across queries, by the name of the table that stores them."""
        return self._over_materialized[1]

    @cached_property
    def _over_materialized(self) -> tuple[Query, dict[str, str]]:
        tables: dict[str, str] = {}

        def name(part: Select) -> str:
            sql = self.render(part)
            name = f"dpsql.materialized.{sha256(sql.encode()).hexdigest()}"  # a declared name has no dots
            tables[name] = sql
            return name

        return with_tables(self.with_adaptive, name), tables

    @property
    def with_adaptive(self) -> Query:
        return with_adaptive([answer.table for answer in self.adaptive], self.query)

    @cached_property
    def query(self) -> Query:
        """Written once, with blanks for the salt and for what depends on the noise."""
        return release_sql(self.release)

    @property
    def shown(self) -> str:
        """The same for whatever noise: with zeros in the blanks."""
        return filled(self._rendered, SALT, 0)

    @cached_property
    def _rendered(self) -> str:
        """Rendered once, with the salt left open."""
        return self.render(self.with_adaptive, self.zeros)

    @property
    def reads_noise(self) -> bool:
        """Whether what it measures depends on the noise of an earlier answer, which no interval of its own includes."""
        return any(answer.is_noisy for answer in self.adaptive)

    @property
    def zeros(self) -> dict[str, int]:
        """Placeholders for values that depend on the noise, before anything is drawn."""
        return {drawn.column: 0 for drawn in self.release.statistics}

    @property
    def reports(self) -> RandomizedResponses | None:
        return self.release.aggregate.reports

    @cached_property
    def post_processing_table(self) -> PostProcessingTable:
        """The post-processing's input: keys, measures, statistics, and the aggregates computed from them."""
        if self.reports is not None:
            return estimates_table(self.name, self.reports)
        keys = {name: type_name(kind) for name, kind in self.release.keys}
        stored = keys | dict.fromkeys(self.release.columns, "BIGINT")
        answers = {
            f"_a{position}": (answer_type(answer), render_term(final_sql(answer.estimate, answer.type)))
            for position, answer in enumerate(self.release.answers)
        }
        stored |= dict.fromkeys((f"_{end}{i}" for i in range(len(self.ends)) for end in ("low", "high")), "DOUBLE")
        made = {name: (kind, quoted(name)) for name, kind in stored.items()} | answers
        if self.release.levels:
            stored[LEVEL] = "BIGINT"
            made |= {
                LEVEL: ("BIGINT", LEVEL),
                **{f"_g{key}": ("BIGINT", self._left_out(key)) for key in range(len(keys))},
            }
        stored |= dict.fromkeys(map(noise_of, self.weighed), "DOUBLE")
        return PostProcessingTable(self.name, stored, made)

    @property
    def weighed(self) -> list[str]:
        """The measures whose noise decides what the answer is."""
        estimates = [answer.estimate for answer in self.release.answers]
        return sorted(
            frozenset[str]().union(*(part.weighed for part in estimates if isinstance(part, Formula | Ratio)))
        )

    def _left_out(self, key: int) -> str:
        """GROUPING: 1 in the levels that leave the key out, 0 elsewhere."""
        levels = [number for number, level in enumerate(self.release.levels) if key in level.kept]
        kept = [str(found) for number in levels for found in self.release.level_numbers(number)]
        return f"CASE WHEN {LEVEL} IN ({', '.join(kept)}) THEN 0 ELSE 1 END" if kept else "1"


@dataclass(frozen=True)
class PublicTable:
    """A public table that the post-processing reads, as declared, with the columns that it may read."""

    declared: Scan
    read: tuple[str, ...]
    """The names that these columns are declared by."""
    render: Render = field(compare=False)
    """How the engine at hand says it."""

    @property
    def name(self) -> str:
        return self.declared.table

    @property
    def scan(self) -> Scan:
        columns = tuple(part for part in self.declared.columns if part.declared in self.read)
        return replace(self.declared, columns=columns)

    @property
    def sql(self) -> str:
        columns = [Alias(Field(part.name), part.declared) for part in self.scan.columns]
        return self.render(select(columns, scan_sql(self.scan, [part.name for part in self.scan.columns])))

    @property
    def post_processing_table(self) -> PostProcessingTable:
        types = {part.declared: type_name(part.properties.type) for part in self.scan.columns}
        return PostProcessingTable(self.scan.table, types, {name: (kind, quoted(name)) for name, kind in types.items()})


# -- plan query --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Planned:
    request: QueryRequest
    releases: tuple[PlannedRelease, ...]
    public: tuple[PublicTable | CountedResponses, ...]
    outputs: tuple[Output, ...]
    asked: tuple[tuple[str, ...], tuple[str, ...]]
    """The engine SQL of the releases, with zeros in its blanks, and of the public tables."""
    post_processing: str
    """The SQL above the releases, over tables _release_0, _release_1, ..."""
    propagated: PropagatedError | None = field(repr=False)
    """The same once more with replicas of what is noisy, where an output needs them."""
    tracked: Tracked = field(repr=False)

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
            answers_met=measured.tracked.releases[number].answers_met,
            answers=_answers(part.aggregate.reports, public),
            auto_bounds=measured.tracked.releases[number].auto_bounds,
            found=measured.tracked.releases[number].found,
        )
        for number, part in enumerate(measured.releases)
    )
    read = tuple(_public(measured, public))
    # What the engine has no words for, too many, or ones that it does not understand, is refused here, while nothing
    # is charged.
    asked = tuple(release.shown for release in releases), tuple(table.sql for table in read)
    if not all(map(public.can_run, asked[0])):
        raise Unsupported(
            "the database does not accept the SQL for this query; nothing was run or charged",
            hint="rephrase the query; `dpsql explain` shows the SQL on other databases. Please report this",
        )
    tables = [release.post_processing_table for release in releases] + [table.post_processing_table for table in read]
    above = copied(post_processing)
    outputs = _outputs(post_processing, measured)
    known = passthrough(post_processing, tables)
    sql = written(post_processing)
    described = public.post_processor.describe(sql, tables) if known is None else known
    outputs = outputs or tuple(Output(name, None, None) for name, _ in described)
    outputs, propagated = propagate_to_outputs(above, outputs, described, _noise_in_tables(releases, read))
    outputs = tuple(replace(output, type=kind) for output, (_, kind) in zip(outputs, described, strict=False))
    return Planned(
        request=measured.request,
        releases=releases,
        public=read,
        outputs=outputs,
        asked=asked,
        post_processing=sql,
        propagated=propagated,
        tracked=measured.tracked,
    )


def _noise_in_tables(
    releases: Sequence[PlannedRelease], public: Sequence[PublicTable | CountedResponses]
) -> dict[str, NoisyRows]:
    found: dict[str, NoisyRows] = {}
    for table in public:
        rows_of = reported_rows if isinstance(table, CountedResponses) else plain_rows
        found[table.name.lower()] = rows_of(table.post_processing_table.columns)
    for release in releases:
        columns = release.post_processing_table.columns
        is_reported = release.reports is not None
        found[release.name] = reported_rows(columns) if is_reported else noisy_rows(columns, release.release)
    return found


def _public(measured: Measured, public: PublicEnvironment) -> Iterator[PublicTable | CountedResponses]:
    counted = [part for part in measured.public if isinstance(part, Aggregate)]
    for part in measured.public:
        if isinstance(part, Aggregate):
            name = reports_name(counted.index(part))
            yield CountedResponses(name, part, _answers(part.reports, public), public.render)
        else:
            yield PublicTable(part, columns_read(part, measured.post_processing), public.render)


def _answers(reports: RandomizedResponses | None, public: PublicEnvironment) -> tuple[tuple[Any, ...], ...]:
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
            _is_noisy(answer, measured),
        )
        for answer in before
        if answer.table.name in read
    )


def _is_noisy(answer: AdaptiveSubquery, measured: Measured) -> bool:
    """Whether noise enters a column of the answer; also where that is not known."""
    tables = {
        release_name(number): NoisyRows(
            (*((name, PLAIN) for name in part.key_names), *((f"_a{place}", LOST) for place in range(len(part.answers))))
        )
        for number, part in enumerate(measured.releases)
    }
    public = {scan.table.lower(): plain_rows(columns_read(scan, answer.query)) for scan in answer.public}
    query = answer.query
    found = propagate_error(query, {**public, **tables}) if isinstance(query, exp.Query) else None
    return found is None or any(made.kind for _, made in found.rows.columns)


def _outputs(post_processing: exp.Query, measured: Measured) -> tuple[Output, ...]:
    """The columns of an answer that is one SELECT over one release, with their errors; others have none."""
    if not isinstance(post_processing, exp.Select) or post_processing.find(exp.Star):
        return ()
    number, items = _release_below(post_processing), post_processing.expressions
    if (reports := _reports_below(post_processing, measured)) is not None:
        return _outputs_of_reports(post_processing, reports)
    if number is None:
        return ()
    release = measured.releases[number]
    answers = _estimates(release)
    always = (LEVEL,) if release.levels else ()
    found = [estimate_of(item, answers) or _smooth(item, release) for item in items]
    return _with_hidden(post_processing, found, number, release.key_names, always, release.partition_selection)


def _outputs_of_reports(post_processing: exp.Select, reports: RandomizedResponses) -> tuple[Output, ...]:
    items, keys = post_processing.expressions, [f"_k{number}" for number in range(len(reports.keys))]
    answers = _estimates_of(reports)
    return _with_hidden(post_processing, [estimate_of(item, answers) for item in items], None, keys)


def _estimates_of(reports: RandomizedResponses) -> dict[str, Estimate]:
    return {f"_a{number}": Reported(f"_a{number}") for number in range(len(reports.calls))}


def _estimates(release: Release) -> dict[str, Estimate]:
    """By the release's column, where the error is known."""
    return {
        f"_a{i}": estimate
        for i, answer in enumerate(release.answers)
        if not isinstance(estimate := as_shown(answer), Formula)
    }


def _smooth(item: exp.Expr, release: Release) -> SmoothFunction | None:
    """The error of a variance or similar statistic, if the column is that statistic itself."""
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
                f"{node.name} is not supported on estimates from randomised reports", hint="use intervals() instead"
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


def _reports_below(post_processing: exp.Select, measured: Measured) -> RandomizedResponses | None:
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
    selecting: str | None = None,
) -> tuple[Output, ...]:
    """The error of a ratio depends on its own noisy parts, and that of a group which noise may have shown on the count
    that selects it, so these come along behind the visible columns."""
    items, chosen = post_processing.expressions, chooses_by_noise(post_processing, keys)
    positions: dict[str, int] = {}
    outputs = []
    for item, estimate in zip(items, estimates, strict=True):
        wanted: tuple[str, ...] = ()
        selected = _selecting(estimate, selecting)
        if estimate is not None and (always or selected or not isinstance(estimate, Linear)):
            if post_processing.args.get("distinct"):
                estimate = None
            elif isinstance(estimate, Linear):
                wanted = (*always, *selected)
            elif isinstance(estimate, Reported):
                wanted = (estimate.standard_error, estimate.kurtosis)
            else:
                sides = estimate.parts if isinstance(estimate, SmoothFunction) else (estimate.above, estimate.below)
                wanted = (*always, *dict.fromkeys(part for side in sides for part, _ in side.weights))
        hidden = tuple((part, positions.setdefault(part, len(items) + len(positions))) for part in wanted)
        is_key, is_answer = is_made_of(item, keys), _is_answer(item)
        outputs.append(Output(item.alias_or_name, estimate, number, hidden, is_key, chosen, is_answer=is_answer))
    post_processing.set("expressions", [*items, *map(_hidden, positions)])
    return tuple(outputs)


def _selecting(estimate: WithError | None, column: str | None) -> tuple[str, ...]:
    return tuple(part for part, _ in estimate.weights if part == column) if isinstance(estimate, Linear) else ()


def _is_answer(item: exp.Expr) -> bool:
    column = item.unalias()
    return isinstance(column, exp.Column) and column.name.startswith("_a")


def _hidden(part: str) -> exp.Alias:
    return exp.Alias(this=exp.column(part), alias=exp.to_identifier(f"_hidden_{part}"))

"""track_units: the privacy unit of each release, the facts about its columns, and its public groups."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpsql.engine_sql.build import count, select
from dpsql.engine_sql.tree import AggFunc, Alias, Field, tables_read
from dpsql.errors import OperationalError, ProgrammingError, Unsupported
from dpsql.expressions.format import format_properties
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.properties import NUMBERS, exact_value, one_of, range_of
from dpsql.expressions.tree import Column, names_read
from dpsql.limits import MOST_PUBLIC_GROUPS
from dpsql.pipeline.auto_bounds import (
    NO_AUTO_BOUNDS,
    NOTHING_FOUND,
    AutoBounds,
    FoundBounds,
    diagnosing,
    histograms,
    with_auto_bounds,
)
from dpsql.pipeline.format import about_releases, laid_out
from dpsql.relation.domain import Domain, ListedKeys, PublicColumn, in_one_row, public_column, public_domain
from dpsql.relation.facts import ColumnFacts, facts_of
from dpsql.relation.grouping import check_grouping
from dpsql.relation.relation import CrossUnitJoin, Filter, Project
from dpsql.relation.sql import listed_keys_sql, relation_sql, rows_per_unit
from dpsql.relation.units import (
    bounding_scans,
    different_units,
    one_row_per_unit,
    parts_of,
    reads,
    reads_unit,
    scans_of,
    with_scans,
)
from dpsql.relation.widths import check_copied
from dpsql.relation.work import bound_work, heaviest_counted
from dpsql.schema.types import Date
from dpsql.sql.rows import reads_release
from dpsql.sql.syntax import aggregates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlglot import exp

    from dpsql.engine_sql.tree import Query
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.options import QueryRequest, SqlOption, SqlOptions
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.resolve_names import Dependency, Resolved
    from dpsql.relation.relation import Aggregate, Relation, Scan, ScanColumn, SemiJoin
    from dpsql.relation.reports import AdaptiveTable
    from dpsql.sql.adaptive import AdaptiveSubquery

PRICES = ("epsilon", "delta")
PRESUMED_GROUPS = 4
"""The presumed max_groups while auto bounds are still to be found."""
THRESHOLD, PUBLIC = "LAPLACE_THRESHOLD", "PUBLIC_GROUPS"


@dataclass(frozen=True, kw_only=True)
class TrackedRelease:
    aggregate: Aggregate
    unit_columns: frozenset[str]
    scans: tuple[Scan, ...]
    """The private scans that the rows come from."""
    one_row_per_unit: bool
    rows_per_unit: tuple[int | None, ...]
    """The most rows per unit if the schema is right; for a join across people, one number per side."""
    facts: ColumnFacts
    domain: Domain | ListedKeys | None
    """The public groups; None if the keys are private, and groups are selected by a threshold."""
    across: CrossUnitJoin | None
    """The join across people below the aggregate, if there is one."""
    answers_met: tuple[Query, ...] = ()
    """Queries for how many rows of a pending answer one row is joined with, to be checked later (relation/work.py)."""
    auto_bounds: AutoBounds = NO_AUTO_BOUNDS
    """The auto bounds that are still to be found."""
    found: FoundBounds = NOTHING_FOUND
    """The auto bounds that were found."""

    def contribution(self, request: QueryRequest) -> tuple[int, int]:
        """The contribution bounds: max_groups and max_rows_per_group."""
        if self.one_row_per_unit:
            return 1, 1
        groups, rows = contribution_bounds(self.scans, self.rows_per_unit[0], request)
        groups, rows = self.found.groups or groups, self.found.rows or rows
        if not self.aggregate.grouped:
            return 1, rows
        # Fewer public groups than a unit may reach: it cannot reach more than there are.
        return (min(groups, max(1, self.domain.size)) if self.domain else groups), rows

    def lines(self) -> Iterator[str]:
        """For people to read."""
        yield f"person   {' and '.join(dict.fromkeys(str(scan.unit) for scan in self.scans))}"
        most = " and ".join("any number" if rows is None else f"at most {rows}" for rows in self.rows_per_unit)
        yield f"rows     {'one per person, guaranteed' if self.one_row_per_unit else f'{most} per person'}"
        if (heavy := heaviest_counted(self.aggregate.source)) is not None:
            yield f"left out people with more than {heavy:,} rows, which the query multiplies"
        if self.aggregate.grouped:
            groups = "people's own" if self.domain is None else f"public, at most {self.domain.size:,}"
            yield f"groups   {groups}"
        read = names_read(*self.aggregate.keys, *(value for call in self.aggregate.calls for value in call.arguments))
        yield from (f"column   {name}: {format_properties(self.facts.surviving[name])}" for name in sorted(read))


@dataclass(frozen=True)
class Tracked:
    request: QueryRequest
    releases: tuple[TrackedRelease, ...]
    public: tuple[Scan | Aggregate, ...]
    adaptive: tuple[AdaptiveSubquery, ...]
    post_processing: exp.Query

    def __str__(self) -> str:
        return laid_out(about_releases(release.lines() for release in self.releases))


def track_units(resolved: Resolved, public: PublicEnvironment) -> Tracked:
    for dependency in resolved.determined:
        _check_dependency(dependency, public)
    releases = tuple(
        _track(aggregate, units, resolved, public)
        for aggregate, units in zip(resolved.releases, resolved.unit_columns, strict=True)
    )
    _check_clauses(resolved.request, releases)
    releases = tuple(
        with_auto_bounds(release, resolved.request.by_clause(release.aggregate.clause)) for release in releases
    )
    for number, release in enumerate(releases):
        if release.domain is None and _is_asked_again(number, resolved):
            _check_keys(release.aggregate)
    if resolved.request.diagnose:
        releases += tuple(
            _track(aggregate, frozenset(), resolved, public)
            for release in releases
            if not release.one_row_per_unit and release.across is None and release.aggregate.reports is None
            for aggregate in diagnosing(
                release.aggregate, *release.contribution(resolved.request.by_clause(release.aggregate.clause))
            )
        )
    releases += tuple(
        _track(aggregate, frozenset(), resolved, public)
        for number, release in enumerate(releases)
        for aggregate in histograms(release, number)
    )
    return Tracked(resolved.request, releases, resolved.public, resolved.adaptive, resolved.post_processing)


def _track(
    aggregate: Aggregate, unit_columns: frozenset[str], resolved: Resolved, public: PublicEnvironment
) -> TrackedRelease:
    aggregate = _with_public_bounds(aggregate, public)
    above = (*aggregate.keys, *(argument for call in aggregate.calls for argument in call.arguments))
    source, answers_met = bound_work(aggregate.source, above, lambda sql: _counted(sql, resolved, public))
    aggregate = replace(aggregate, source=source)
    if not aggregate.is_auxiliary:
        check_grouping(aggregate, lambda table, column: _may_group(public, table, column))
    if not aggregate.is_auxiliary:  # which groups by the same keys, cut alike, and counts
        check_copied(aggregate)
    facts = facts_of(source)
    domain: Domain | ListedKeys | None
    if aggregate.listed is None:
        listed, in_rows = _listed_values(aggregate, facts, public)
        known = {**facts.declared, **listed}
        domain = public_domain(aggregate.keys, aggregate.source, known, MOST_PUBLIC_GROUPS, in_rows)
    else:
        _check_list(aggregate, aggregate.listed, resolved, public)
        domain = ListedKeys(aggregate.listed, aggregate.keys, MOST_PUBLIC_GROUPS)
    scans = tuple(scan for scan in scans_of(aggregate.source) if scan.unit is not None)
    single, across = one_row_per_unit(aggregate.source), _cross_unit_join(aggregate.source)
    sides = (aggregate.source,) if across is None else (across.left, across.right)
    most_rows = tuple(rows_per_unit(side, lambda sql: _count_public(sql, resolved, public)) for side in sides)
    return TrackedRelease(
        aggregate=aggregate,
        unit_columns=unit_columns,
        scans=scans,
        one_row_per_unit=single,
        rows_per_unit=most_rows,
        facts=facts,
        domain=domain,
        across=across,
        answers_met=answers_met,
    )


def _may_group(public: PublicEnvironment, table: str, column: str) -> bool:
    declared = public.schema.table(table)
    found = None if declared is None else declared.column(column)
    return found is None or found.group_by


# -- public columns ----------------------------------------------------------------------------------------------------
# What the rows of a public table say of its columns: which values of a declared range are there, as groups, and how far
# those go that are summed without declared bounds. It is enforced like what is declared, so the table may change.

MOST_LISTED = 10_000
"""A key of more values has all of its declared range as groups."""


def _with_public_bounds(aggregate: Aggregate, public: PublicEnvironment) -> Aggregate:
    """The aggregate, where columns of public tables without bounds that it sums have those of their values."""
    wanted: dict[Scan, set[ScanColumn]] = {}

    def is_wanted(scan: Scan, column: ScanColumn) -> bool:
        properties = column.properties
        if scan.unit is None and isinstance(properties.type, NUMBERS) and None in range_of(properties):
            wanted.setdefault(scan, set()).add(column)
        return False

    for call in aggregate.calls:
        for argument in call.arguments:
            reads(argument, aggregate.source, is_wanted)
    known = {scan: _bounded(scan, columns, public) for scan, columns in wanted.items()}
    return (
        replace(aggregate, source=with_scans(aggregate.source, lambda scan: known.get(scan, scan)))
        if known
        else aggregate
    )


def _bounded(scan: Scan, columns: Collection[ScanColumn], public: PublicEnvironment) -> Scan:
    fields = {column.name: Field(column.name, kind=column.properties.type) for column in columns}
    ends = [
        Alias(AggFunc(end, (value,), kind=value.kind), f"{end}_{name}")
        for name, value in fields.items()
        for end in ("min", "max")
    ]
    try:
        found = public.public_rows.columns(select(ends, relation_sql(scan, [*fields])))
    except OperationalError:
        return scan
    ranges = {name: (found[f"min_{name}"][0], found[f"max_{name}"][0]) for name in fields}
    return replace(scan, columns=tuple(_with_range(column, ranges.get(column.name)) for column in scan.columns))


def _with_range(column: ScanColumn, ends: tuple[Any, Any] | None) -> ScanColumn:
    if ends is None:
        return column
    low, high = (0 if end is None else end for end in ends)  # without values there is nothing to sum
    if not (math.isfinite(low) and math.isfinite(high)):
        return column
    properties = column.properties
    seen = one_of(properties.type, (exact_value(low), exact_value(high)), nullable=properties.nullable)
    return replace(column, properties=replace(properties, low=seen.low, high=seen.high))


def _check_dependency(needed: Dependency, public: PublicEnvironment) -> None:
    """Counts the combinations of keys, and those of keys and value: as many, if the keys determine the value."""
    counts = [
        public.public_rows.number(select([Alias(count(), "n")], listed_keys_sql(needed.rows, keys, names)), ())
        for keys in (needed.keys, (*needed.keys, needed.value))
        for names in ([f"_k{number}" for number in range(len(keys))],)
    ]
    if len({*counts}) > 1:
        raise Unsupported(
            f'"{needed.value.name}" has several values for some {", ".join(key.name for key in needed.keys)}',
            at=needed.at,
            hint="group by the column too, or by a key of its table",
        )


def _listed_values(
    aggregate: Aggregate, facts: ColumnFacts, public: PublicEnvironment
) -> tuple[dict[str, Properties], list[SemiJoin]]:
    """The values of public columns in keys that would else have all values of a declared range, and which of them are
    of one row.
    """
    found: dict[str, Properties] = {}
    places: dict[str, PublicColumn] = {}
    for name, declared in _ranges(aggregate.keys, facts.declared).items():
        place = public_column(name, aggregate.source)
        values = None if place is None else _values(place, public)
        if place is not None and values is not None:
            found[name] = one_of(declared.type, values, nullable=declared.nullable)
            places[name] = place
    of_one = [
        {name: place for name, place in places.items() if place.path == path and not found[name].nullable}
        for path in dict.fromkeys(place.path for place in places.values())
    ]
    return found, [in_one_row(columns) for columns in of_one if len(columns) > 1]


def _ranges(keys: Sequence[Expression], known: Known) -> dict[str, Properties]:
    """The columns of keys that have a range: their own, or that of what is computed from them."""
    listed = [key for key in keys if not isinstance(key, Column) and kept_properties(key, known).size is not None]
    return {
        name: known[name]
        for name in names_read(*keys)
        if known[name].values is None
        and isinstance(known[name].type, (*NUMBERS, Date))
        and (name in names_read(*listed) or not (known[name].low is None or known[name].high is None))
    }


def _values(place: PublicColumn, public: PublicEnvironment) -> list[Any] | None:
    """The values of a column of public rows; None if there are too many, or they cannot be read."""
    listed = listed_keys_sql(place.rows, (place.column,), ["_k0"])
    try:
        if public.public_rows.number(select([Alias(count(), "n")], listed), ()) > MOST_LISTED:
            return None
        return sorted(exact_value(value) for value in public.public_rows.columns(listed)["_k0"] if value is not None)
    except OperationalError:
        return None


def contribution_bounds(scans: Collection[Scan], most: int | None, request: QueryRequest) -> tuple[int, int]:
    """The contribution bounds of a release whose units have at most `most` rows, if that is known.

    Tables that meet in a query may declare different bounds: the widest count. What is still to be found is presumed.
    """
    declared = [scan.contribution for scan in bounding_scans(scans)]
    groups = max(_number(contribution.max_groups, PRESUMED_GROUPS) for contribution in declared)
    rows = max(_number(contribution.max_rows_per_group, 1) for contribution in declared)
    if most is not None:
        groups, rows = min(groups, most), min(rows, most)
    return _number(request.max_groups or groups, PRESUMED_GROUPS), _number(request.max_rows_per_group or rows, 1)


def _number(bound: int | str, presumed: int) -> int:
    return bound if isinstance(bound, int) else presumed


def _is_asked_again(number: int, resolved: Resolved) -> bool:
    """Whether the query reads all groups of the release at once: aggregates them again, or joins them."""
    return aggregates(resolved.post_processing) or any(
        reads_release(answer.query, number) for answer in resolved.adaptive
    )


def _check_keys(aggregate: Aggregate) -> None:
    """Refuses a key that is computed from the unit, because such groups are too small to be shown."""
    for key in aggregate.keys:
        if reads_unit(key, aggregate.source):
            raise Unsupported(
                "a key of the inner query is computed from the unit, so most of its groups have few people and "
                "would be hidden from the outer query",
                at=key.at,
                hint="group by the unit itself, or by a value that many people share",
            )


def _count_public(query: Query, resolved: Resolved, public: PublicEnvironment) -> int | None:
    """A number about public rows; None if it needs a pending answer, or the rows cannot be read."""
    try:
        return _counted(query, resolved, public)
    except OperationalError:
        return None


def _counted(query: Query, resolved: Resolved, public: PublicEnvironment) -> int | None:
    """The same; an error if they cannot be read."""
    lists = _adaptive(query, resolved)
    if any(table.rows is None for table in lists):
        return None
    return public.public_rows.number(query, lists)


def _adaptive(query: Query, resolved: Resolved) -> list[AdaptiveTable]:
    """The earlier answers that a relation reads."""
    read = tables_read(query)
    return [answer.table for answer in resolved.adaptive if answer.table.name in read]


def _cross_unit_join(relation: Relation) -> CrossUnitJoin | None:
    """The join across people below filters and projections; anything else above it is refused."""
    while isinstance(relation, Filter | Project):
        relation = relation.source
    above = (relation.left, relation.right) if isinstance(relation, CrossUnitJoin) else (relation,)
    for inner in (part for side in above for part in parts_of(side)):
        if isinstance(inner, CrossUnitJoin):
            raise different_units(inner.same_unit, inner.at, "a join across people supports only totals")
    return relation if isinstance(relation, CrossUnitJoin) else None


def _check_list(aggregate: Aggregate, listed: Relation, resolved: Resolved, public: PublicEnvironment) -> None:
    """The number of listed public keys, before conditions."""
    while isinstance(listed, Filter):
        listed = listed.source
    names = [f"_k{number}" for number in range(len(aggregate.keys))]
    keys = listed_keys_sql(listed, aggregate.keys, names)
    lists = _adaptive(keys, resolved)
    if any(table.rows is None for table in lists):
        raise Unsupported(
            "an outer join cannot keep rows of an answer that is not known yet",
            hint="use an inner join, or list the keys: VALUES or a public table",
        )
    number = public.public_rows.number(select([Alias(count(), "n")], keys), lists)
    if aggregate.listed_once and number < public.public_rows.number(_count_rows(listed), lists):
        raise Unsupported(
            "the outer join keeps public rows, and COUNT(*) would count those that no person matches",
            hint="aggregate a column of the private table: COUNT(v.id), not COUNT(*)",
        )
    if number > MOST_PUBLIC_GROUPS:
        raise Unsupported(
            f"the outer join lists more than {MOST_PUBLIC_GROUPS:,} groups", hint="filter the public rows with WHERE"
        )


def _count_rows(listed: Relation) -> Query:
    return select([Alias(count(), "n")], relation_sql(listed, ()))


def _check_clauses(request: QueryRequest, releases: tuple[TrackedRelease, ...]) -> None:
    if not request.clauses:
        _check_options(request.options, releases)
    for number, part in enumerate(request.clauses):
        spoken_for = tuple(release for release in releases if release.aggregate.clause == number)
        if not spoken_for:
            raise Unsupported(
                "this options clause applies to no aggregate over people",
                at=part.options.at,
                hint="put it in the SELECT that has the aggregates",
            )
        _check_options(replace(part.options, outermost=True), spoken_for)
    if request.clauses and any(release.aggregate.clause is None for release in releases):
        raise Unsupported(
            "one aggregate over people has no options clause, but others do",
            at=request.clauses[0].options.at,
            hint="put one in every SELECT that aggregates, or a single one for all of them",
        )


def _check_options(options: SqlOptions, releases: tuple[TrackedRelease, ...]) -> None:
    if len(releases) > 1 and not options.outermost:
        raise Unsupported(
            f"the options clause applies to the whole query, which aggregates {len(releases)} times",
            at=options.at,
            hint="put it in the outermost SELECT; all aggregates share its epsilon",
        )
    unit, strategy = options.get("privacy_unit_column"), options.get("group_selection_strategy")
    for option in options.options:
        if not releases and option.name not in PRICES:
            raise ProgrammingError(
                f"{option.name} applies to people, but the query reads only public rows",
                at=option.at,
                hint="omit the option; public rows are returned as they are, free",
            )
    for release in releases:
        if unit is not None:
            _check_unit(unit, release)
        if strategy is not None:
            _check_strategy(strategy, release)


def _check_unit(option: SqlOption, release: TrackedRelease) -> None:
    units = [scan.unit for scan in release.scans if scan.unit is not None]
    names = {name for unit in units for name in (unit.column, f"{unit.table}.{unit.column}")}
    if option.value.lower() not in {name.lower() for name in names | release.unit_columns}:
        declared = units[0].column
        raise ProgrammingError(
            f'the unit is "{declared}", not "{option.value}": it is the data owner\'s choice',
            at=option.at,
            hint=f"write privacy_unit_column = {declared}, or omit it",
        )


def _check_strategy(option: SqlOption, release: TrackedRelease) -> None:
    if option.value.upper() not in (THRESHOLD, PUBLIC):
        raise Unsupported(
            f'unknown way to select groups: "{option.value}"', at=option.at, hint=f"use {THRESHOLD} or {PUBLIC}"
        )
    if option.value.upper() == PUBLIC and release.domain is None:
        raise ProgrammingError(
            "the groups are not public",
            at=option.at,
            hint="ask the data owner to declare  values: [...]  for the keys, or omit the option",
        )

"""Auto bounds: the histograms from which a query finds its own bounds. Part of track_units.

`bounds: auto` on a column, `max_rows_per_group: auto` and `max_groups: auto` in the schema or in the question ask for
it. Each bound is found on a histogram, a release of its own that is drawn first for a part of the question's cost; what
is declared besides stays the limit. docs/proofs/auto_bounds.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.table import AGGREGATES, is_one_per_unit
from dpsql.engines.render import quoted
from dpsql.errors import Unsupported
from dpsql.expressions.format import format_expression
from dpsql.expressions.narrow import clamp_ends, clamped, is_clamped, kept_properties
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Literal
from dpsql.mechanisms.left_out import EDGES
from dpsql.mechanisms.registry import ADDITIVE
from dpsql.relation.facts import expected_of
from dpsql.relation.relation import Aggregate, AggregateCall, BinnedBound, Diagnosis, PerUnit, Project
from dpsql.relation.units import bounding_scans, reads
from dpsql.schema.model import AUTO
from dpsql.schema.types import Boolean, Decimal, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.options import QueryRequest
    from dpsql.pipeline.track_units import TrackedRelease
    from dpsql.relation.relation import Scan
    from dpsql.schema.types import ColumnType

# -- diagnosis ---------------------------------------------------------------------------------------------------------
# `diagnose=`: how much contribution bounding leaves out, as auxiliary releases: histograms of units by excess.
#
#     rows     the most rows that a unit has in a group, beside the bound on rows
#     groups   how many groups a unit has rows in, beside the bound on groups
#     lost     how many of a unit's rows do not count
#
# Every unit counts in one bin of a histogram, so one unit moves one count by 1. docs/proofs/bounding.md.

DIAGNOSIS_DOUBLINGS = 10
"""Histograms end at 1024 times the bound."""
ROWS, MOST, GROUPS, OVER, KEPT = "_rows", "_most", "_groups", "_over", "_kept"


def diagnosing(aggregate: Aggregate, groups: int, rows: int) -> Iterator[Aggregate]:
    """The auxiliary releases that `diagnose` adds to a release with these contribution bounds."""
    keys = tuple((f"_d{number}", key) for number, key in enumerate(aggregate.keys))
    by_group = PerUnit(aggregate.source, keys, ((ROWS, call_of("COUNT")),), by_unit_alone=not keys)
    kept = do("LEAST", whole(ROWS), number(rows))
    split = Project(by_group, ((ROWS, whole(ROWS)), (OVER, do("-", whole(ROWS), kept)), (KEPT, kept)))
    folded = (
        (MOST, call_of("MAX", whole(ROWS))),
        (OVER, call_of("SUM", whole(OVER))),
        (KEPT, call_of("SUM", whole(KEPT))),
        (GROUPS, call_of("COUNT")),
    )
    by_unit = PerUnit(split, (), folded, by_unit_alone=True)
    yield _histogram(by_unit, whole(MOST), Diagnosis("rows", _doubled(rows)))
    if keys:
        yield _histogram(by_unit, whole(GROUPS), Diagnosis("groups", _doubled(groups)))
    lost = do("+", whole(OVER), _dropped(groups)) if keys else whole(OVER)
    yield _histogram(by_unit, lost, Diagnosis("lost", (0, *_doubled(1))))


def rows_per_person(scan: Scan, column: str) -> str:
    """The question behind `mechanisms/left_out.py`: how many people, by this column, have how many rows of a table."""
    table = ".".join(map(quoted, scan.table.split(".")))
    bins = " ".join(f"WHEN n <= {most} THEN {place}" for place, most in enumerate(EDGES))
    by_unit = f"SELECT {quoted(column)}, COUNT(*) AS n FROM {table} GROUP BY 1"
    return f"SELECT CASE {bins} ELSE {len(EDGES)} END AS bin, COUNT(*) AS people FROM ({by_unit}) GROUP BY 1 ORDER BY 1"


def _doubled(first: int) -> tuple[int, ...]:
    return tuple(first << edge for edge in range(DIAGNOSIS_DOUBLINGS + 1))


def _histogram(source: PerUnit, value: Expression, diagnosis: Diagnosis) -> Aggregate:
    """A histogram of units: each counts in the first bin that its value does not exceed."""
    key = bin_of(value, diagnosis.bins, len(diagnosis.bins))
    return Aggregate(source=source, keys=(key,), calls=(call_of("COUNT"),), grouped=True, diagnosis=diagnosis)


def bin_of(value: Expression, bins: Sequence[int], beyond: int) -> Expression:
    """The index of the first bin that the value does not exceed."""
    branches: list[Expression] = []
    for place, most in enumerate(bins):
        branches += [Call(FUNCTIONS["<="], (value, number(most)), Boolean()), number(place)]
    return Call(FUNCTIONS["CASE"], (*branches, number(beyond)), Integer())


def _dropped(groups: int) -> Expression:
    """The expected number of rows in groups beyond max_groups, over random choices of groups."""
    beyond = do("-", whole(GROUPS), do("LEAST", whole(GROUPS), number(groups)))
    return do("//", do("*", whole(KEPT), beyond), whole(GROUPS))


def call_of(name: str, *arguments: Expression) -> AggregateCall:
    return AggregateCall(name=name, arguments=arguments)


def whole(name: str) -> Column:
    return Column(name, Integer())


def number(value: int) -> Literal:
    return Literal(value, Integer())


def do(name: str, *arguments: Expression) -> Expression:
    return Call(FUNCTIONS[name], arguments, Integer())


# -- seek bounds -------------------------------------------------------------------------------------------------------
# The log-spaced histograms from which a query finds its own bounds, as auxiliary releases over the same rows.
#
#     rows     the most rows that a unit has in a group
#     groups   how many groups a unit has rows in
#     values   the largest of a unit's values, on either side of an origin
#
# Every unit counts in one bin of a histogram, so one unit moves one count by 1. Bounds follow from the noisy counts by
# post-processing. docs/proofs/auto_bounds.md.

MOST_ROWS = 1 << 16
"""The largest bound on rows or groups that is searched."""
DOUBLINGS = 48
"""The smallest clip that is searched, relative to the widest range."""
WIDEST = 2**40
"""The search range of numbers without a declared range."""
MOST_BITS = 62
LARGEST, SMALLEST = "_largest", "_smallest"


def histogram_of_rows(aggregate: Aggregate, release: int, most: int | None) -> Aggregate:
    return _counted(aggregate, whole(MOST), BinnedBound(release=release, what="rows", bins=_numbers(most)))


def histogram_of_groups(aggregate: Aggregate, release: int, most: int | None) -> Aggregate:
    return _counted(aggregate, whole(GROUPS), BinnedBound(release=release, what="groups", bins=_numbers(most)))


def histogram_of_values(
    aggregate: Aggregate, release: int, value: Expression, limits: tuple[Fraction, Fraction]
) -> Aggregate:
    within = clamped(value, limits)
    calls = ((LARGEST, call_of("MAX", within)), (SMALLEST, call_of("MIN", within)))
    by_unit = PerUnit(aggregate.source, (), calls, by_unit_alone=True)
    binned = BinnedBound(release=release, what="values", bins=_clips(value.type, limits), value=value, limits=limits)
    key = Call(FUNCTIONS["CASE"], (*_branches(binned, value.type), number(0)), Integer())
    return Aggregate(source=by_unit, keys=(key,), calls=(call_of("COUNT"),), grouped=True, binned=binned)


def limits_of(kind: ColumnType, low: object, high: object) -> tuple[Fraction, Fraction]:
    """The limits of a value: its range, or else a public constant that the type can represent."""
    unit, most = Fraction(1), Fraction(2**MOST_BITS)
    if isinstance(kind, Decimal):
        unit, most = Fraction(1, 10**kind.scale), Fraction(10**kind.precision - 1, 10**kind.scale)
    ends = [Fraction(end) if isinstance(end, int | Fraction) else None for end in (low, high)]
    if isinstance(kind, Integer | Decimal):
        ends = [end and round_(end / unit) * unit for end, round_ in zip(ends, (math.floor, math.ceil), strict=True)]
    widest = min(most, Fraction(WIDEST))
    first = -widest if ends[0] is None else min(max(ends[0], -most), most)
    last = widest if ends[1] is None else min(max(ends[1], -most), most)
    return min(first, last), max(first, last)


def _counted(aggregate: Aggregate, value: Expression, binned: BinnedBound) -> Aggregate:
    keys = tuple((f"_d{place}", key) for place, key in enumerate(aggregate.keys))
    by_group = PerUnit(aggregate.source, keys, ((ROWS, call_of("COUNT")),), by_unit_alone=not keys)
    folded = ((MOST, call_of("MAX", whole(ROWS))), (GROUPS, call_of("COUNT")))
    by_unit = PerUnit(by_group, (), folded, by_unit_alone=True)
    bins = [int(edge) for edge in binned.bins]
    key = bin_of(value, bins, len(bins) - 1)
    return Aggregate(source=by_unit, keys=(key,), calls=(call_of("COUNT"),), grouped=True, binned=binned)


def _numbers(most: int | None) -> tuple[Fraction, ...]:
    """The bins 1, 2, 4, ..., up to the most that a unit can have, if that is known.

    >>> [int(bin) for bin in _numbers(6)]
    [1, 2, 4, 6]
    """
    last = MOST_ROWS if most is None else max(1, min(most, MOST_ROWS))
    return (*(Fraction(1 << edge) for edge in range((last - 1).bit_length())), Fraction(last))


def _clips(kind: ColumnType, limits: tuple[Fraction, Fraction]) -> tuple[Fraction, ...]:
    """The bins: powers of two below the longer side of the range, and that side itself."""
    origin = min(max(Fraction(0), limits[0]), limits[1])
    widest = max(limits[1] - origin, origin - limits[0])
    if not widest:
        return (Fraction(1),)
    unit = Fraction(1, 10**kind.scale) if isinstance(kind, Decimal) else Fraction(isinstance(kind, Integer))
    top = Fraction(2) ** math.floor(math.log2(widest))
    halves = [top / 2**doubling for doubling in range(DOUBLINGS)]
    written = {max(unit, edge // unit * unit) if unit else edge for edge in halves}
    return tuple(sorted(edge for edge in written | {widest} if edge <= widest))


def _branches(binned: BinnedBound, kind: ColumnType) -> Iterator[Expression]:
    """The first bin within which all of a unit's values lie, and behind all bins once more those for units that leave
    the bin before on the low side."""
    (low, high), bins, origin = binned.limits, binned.bins, binned.origin

    def above(edge: Fraction) -> Expression:
        return _compared(LARGEST, "<=", min(origin + edge, high), kind)

    def below(edge: Fraction) -> Expression:
        return _compared(SMALLEST, ">=", max(origin - edge, low), kind)

    for place, edge in enumerate(bins):
        if place and low < origin < high:
            yield from (_both(above(edge), below(bins[place - 1])), number(place))
        yield from (_both(above(edge), below(edge)), number(place + len(bins) * (place > 0 and low < origin)))


def _both(first: Expression, second: Expression) -> Expression:
    return Call(FUNCTIONS["AND"], (first, second), Boolean())


def _compared(name: str, comparison: str, end: Fraction, kind: ColumnType) -> Expression:
    return Call(FUNCTIONS[comparison], (Column(name, kind), clamp_ends(kind, (end, end))[0]), Boolean())


# -- auto bounds -------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Limits = tuple[Fraction, Fraction]

CLIPPED = frozenset(name for name, function in AGGREGATES.items() if function.clip_power or name == "COUNT")
"""The aggregates over clipped values. Their counts are unaffected, so that they can recentre sums."""


@dataclass(frozen=True)
class AutoBounds:
    """The bounds that a release must find."""

    rows: bool = False
    groups: bool = False
    values: tuple[tuple[Expression, Limits], ...] = ()
    """The summed values, and the limits of their clips."""

    def __bool__(self) -> bool:
        return self.rows or self.groups or bool(self.values)


NO_AUTO_BOUNDS = AutoBounds()


@dataclass(frozen=True)
class FoundBounds:
    """The bounds that a release has found."""

    rows: int | None = None
    groups: int | None = None
    clips: tuple[tuple[Expression, Limits], ...] = ()

    @property
    def written(self) -> tuple[int | str, ...]:
        """The bounds in the form that the ledger stores with an answer."""
        if self is NOTHING_FOUND:
            return ()
        return (self.rows or 0, self.groups or 0, *(str(end) for _, ends in self.clips for end in ends))


NOTHING_FOUND = FoundBounds()


def read_again(written: Sequence[int | str], auto_bounds: AutoBounds) -> FoundBounds:
    if not written:
        return NOTHING_FOUND
    rows, groups, *ends = written
    pairs = zip(map(Fraction, ends[::2]), map(Fraction, ends[1::2]), strict=True)
    clips = tuple((value, pair) for (value, _), pair in zip(auto_bounds.values, pairs, strict=True))
    return FoundBounds(int(rows) or None, int(groups) or None, clips)


def with_auto_bounds(release: TrackedRelease, request: QueryRequest) -> TrackedRelease:
    """The release with the bounds that it has to find. Numbers without a range are clamped to the search limits."""
    rows, groups = counts_auto_bounds(release.scans, request)
    is_bounded = release.one_row_per_unit or all(most == 1 for most in release.rows_per_unit)
    counted = rows and not all(is_one_per_unit(call) for call in release.aggregate.calls)
    auto_bounds = AutoBounds() if is_bounded else AutoBounds(counted, groups and release.aggregate.grouped)
    if auto_bounds:
        _check_counts(release, request)
    aggregate, known = release.aggregate, release.facts.surviving
    values: dict[Expression, Limits] = {}

    def limited(value: Expression) -> Expression:
        seen = kept_properties(value, known)
        is_left = not _is_open(seen) or is_clamped(value) or not _reads_auto(value, release, request, rows)
        return value if is_left else clamped(value, limits_of(seen.type, seen.low, seen.high))

    within = _with_values(aggregate, limited)
    for call, held_call in zip(aggregate.calls, within.calls, strict=True):
        if _is_clipped(call, request) and _reads_auto(call.arguments[0], release, request, rows):
            seen = kept_properties(call.arguments[0], known)
            if seen.is_number and seen.values is None:
                values[held_call.arguments[0]] = limits_of(seen.type, seen.low, seen.high)
    return replace(
        release, aggregate=within, auto_bounds=AutoBounds(auto_bounds.rows, auto_bounds.groups, tuple(values.items()))
    )


def counts_auto_bounds(scans: Collection[Scan], request: QueryRequest) -> tuple[bool, bool]:
    """Whether the bounds on rows and on groups are found by the query."""
    declared = [scan.contribution for scan in bounding_scans(scans)]
    rows = _is_auto(request.max_rows_per_group, [part.max_rows_per_group for part in declared])
    groups = _is_auto(request.max_groups, [part.max_groups for part in declared])
    return rows, groups


def _is_auto(named: int | str | None, declared: Sequence[int | str]) -> bool:
    """The bound of the query; else the widest declared bound, up to a limit."""
    return AUTO in declared if named is None else named == AUTO


def _check_counts(release: TrackedRelease, request: QueryRequest) -> None:
    """Refuses queries that cannot find bounds on rows or groups."""
    if release.across is not None or release.aggregate.reports is not None:
        raise _not_found(release, "for pairs of people or randomised reports,")
    if request.mechanism not in (None, *ADDITIVE):
        raise _not_found(release, f'with mechanism="{request.mechanism}"')
    if request.diagnose:
        raise _not_found(release, "together with diagnose=True, which needs fixed bounds,")


def _not_found(release: TrackedRelease, where: str) -> Unsupported:
    calls = release.aggregate.calls
    return Unsupported(
        f"bounds on rows and groups cannot be found {where.rstrip(',')}",
        at=calls[0].at if calls else None,
        hint="set them: max_rows_per_group=4, max_groups=4",
    )


def _is_clipped(call: AggregateCall, request: QueryRequest) -> bool:
    """Whether an aggregate's argument can be clipped freely, because neither query nor schema names a clip."""
    function = AGGREGATES.get(call.name)
    named = call.distinct or call.group_bounds is not None or (bool(call.arguments) and is_clamped(call.arguments[0]))
    return function is not None and function.clip_power > 0 and not named and request.mechanism in (None, *ADDITIVE)


def _reads_auto(value: Expression, release: TrackedRelease, request: QueryRequest, rows: bool) -> bool:
    """Whether the question says so, or the declaration of a column, or nothing bounds it but a number of rows that is
    found."""
    if request.bounds == AUTO or reads(value, release.aggregate.source, lambda _, column: column.auto):
        return True
    expected = expected_of(release.aggregate.source, MOST_ROWS) if rows else release.facts.surviving
    return _is_open(kept_properties(value, release.facts.surviving)) and not _is_open(kept_properties(value, expected))


def _is_open(properties: Properties) -> bool:
    return properties.is_number and properties.values is None and (properties.low is None or properties.high is None)


def format_clipped(value: Expression) -> str:
    """The value as the analyst wrote it, without the clamp."""
    return format_expression(value.arguments[0] if isinstance(value, Call) and is_clamped(value) else value)


# -- the histograms, and the release with what was found ---------------------------------------------------------------


def histograms(release: TrackedRelease, number: int) -> Iterator[Aggregate]:
    aggregate, auto_bounds, most = release.aggregate, release.auto_bounds, release.rows_per_unit[0]
    if auto_bounds.rows:
        yield histogram_of_rows(aggregate, number, most)
    if auto_bounds.groups:
        public = None if release.domain is None else max(1, release.domain.size)
        yield histogram_of_groups(aggregate, number, min((n for n in (most, public) if n is not None), default=None))
    for value, limits in auto_bounds.values:
        yield histogram_of_values(aggregate, number, value, limits)


def with_found(release: TrackedRelease, found: FoundBounds) -> TrackedRelease:
    """The release with the bounds that were found."""
    clips = dict(found.clips)

    def clipped(value: Expression) -> Expression:
        return clamped(value, clips[value]) if value in clips else value

    return replace(release, aggregate=_with_values(release.aggregate, clipped, CLIPPED), found=found)


def _with_values(
    aggregate: Aggregate, changed: Callable[[Expression], Expression], names: Collection[str] = AGGREGATES
) -> Aggregate:
    calls = tuple(
        call if call.distinct or call.name not in names else _with_arguments(call, tuple(map(changed, call.arguments)))
        for call in aggregate.calls
    )
    return aggregate if calls == aggregate.calls else replace(aggregate, calls=calls)


def _with_arguments(call: AggregateCall, arguments: tuple[Expression, ...]) -> AggregateCall:
    return call if arguments == call.arguments else replace(call, arguments=arguments)

"""Which bounds a question finds by itself, and what they turn out to be: part of track_units.

`bounds: auto` on a column, `max_rows_per_group: auto` and `max_groups: auto` in the schema or in the question ask for
it. Each is found on a ladder (relation/seek_bounds.py), a release of its own that is drawn first and has a part of the
question's cost; what a declaration says besides stays the limit. docs/proofs/found_bounds.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import Unsupported
from dpsql.expressions.hold import held, is_held
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.readable import readable
from dpsql.expressions.tree import Call
from dpsql.relation.expected import expected_of
from dpsql.relation.seek_bounds import MOST_ROWS, ladder_of_groups, ladder_of_rows, ladder_of_values, limits_of
from dpsql.relation.units import bounding_scans, reads
from dpsql.schema.declared import AUTO
from dpsql.statistics.mechanism_table import ADDITIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.pipeline.query_request import QueryRequest
    from dpsql.pipeline.track_units import TrackedRelease
    from dpsql.relation.relation import Aggregate, AggregateCall, Scan

    Limits = tuple[Fraction, Fraction]

CLIPPED = frozenset(name for name, function in AGGREGATES.items() if function.clip_power or name == "COUNT")
"""What reads clipped values; a count of them is the same, so that sums can lean on it."""


@dataclass(frozen=True)
class Seeking:
    """What is found for one release."""

    rows: bool = False
    groups: bool = False
    values: tuple[tuple[Expression, Limits], ...] = ()
    """What is summed, and the limits within which it is clipped."""

    def __bool__(self) -> bool:
        return self.rows or self.groups or bool(self.values)


NOTHING_SOUGHT = Seeking()


@dataclass(frozen=True)
class Found:
    """Bounds that were found."""

    rows: int | None = None
    groups: int | None = None
    clips: tuple[tuple[Expression, Limits], ...] = ()

    @property
    def written(self) -> tuple[int | str, ...]:
        """Beside an answer that is kept, to be read again when it is recalled."""
        if self is NOTHING_FOUND:
            return ()
        return (self.rows or 0, self.groups or 0, *(str(end) for _, ends in self.clips for end in ends))


NOTHING_FOUND = Found()


def read_again(written: Sequence[int | str], seeking: Seeking) -> Found:
    if not written:
        return NOTHING_FOUND
    rows, groups, *ends = written
    pairs = zip(map(Fraction, ends[::2]), map(Fraction, ends[1::2]), strict=True)
    clips = tuple((value, pair) for (value, _), pair in zip(seeking.values, pairs, strict=True))
    return Found(int(rows) or None, int(groups) or None, clips)


def with_seeking(release: TrackedRelease, request: QueryRequest) -> TrackedRelease:
    """The release with what is found for it. Numbers that have no range are held within the limits all the same."""
    rows, groups = counts_sought(release.scans, request)
    seeking = Seeking() if release.one_row_per_unit else Seeking(rows, groups and release.aggregate.grouped)
    if seeking:
        _check_counts(release, request)
    aggregate, known = release.aggregate, release.knowledge.kept
    values: dict[Expression, Limits] = {}

    def limited(value: Expression) -> Expression:
        seen = kept_properties(value, known)
        is_left = not _is_open(seen) or is_held(value) or not _reads_auto(value, release, request, rows)
        return value if is_left else held(value, limits_of(seen.type, seen.low, seen.high))

    within = _with_values(aggregate, limited)
    for call, held_call in zip(aggregate.calls, within.calls, strict=True):
        if _is_clipped(call, request) and _reads_auto(call.arguments[0], release, request, rows):
            seen = kept_properties(call.arguments[0], known)
            if seen.is_number and seen.values is None:
                values[held_call.arguments[0]] = limits_of(seen.type, seen.low, seen.high)
    return replace(release, aggregate=within, seeking=Seeking(seeking.rows, seeking.groups, tuple(values.items())))


def counts_sought(scans: Collection[Scan], request: QueryRequest) -> tuple[bool, bool]:
    """Whether the numbers of rows and of groups are found, and not declared or named."""
    declared = [scan.contribution for scan in bounding_scans(scans)]
    rows = _is_sought(request.max_rows_per_group, [part.max_rows_per_group for part in declared])
    groups = _is_sought(request.max_groups, [part.max_groups for part in declared])
    return rows, groups


def _is_sought(named: int | str | None, declared: Sequence[int | str]) -> bool:
    """What the question names comes first; of several declarations the widest counts, and none is wider than this."""
    return AUTO in declared if named is None else named == AUTO


def _check_counts(release: TrackedRelease, request: QueryRequest) -> None:
    """What has no ladder, or a price that depends on how many groups there are."""
    if release.across is not None or release.aggregate.reports is not None:
        raise _not_found(release, "of pairs of people, or of randomised reports,")
    if request.mechanism not in (None, *ADDITIVE):
        raise _not_found(release, f'with mechanism="{request.mechanism}"')
    if request.diagnose:
        raise _not_found(release, "beside diagnose=True, which is about bounds that are named,")


def _not_found(release: TrackedRelease, where: str) -> Unsupported:
    calls = release.aggregate.calls
    return Unsupported(
        f"how many rows and groups of a unit count cannot be found {where.rstrip(',')}",
        at=calls[0].at if calls else None,
        hint="name them: max_rows_per_group=4, max_groups=4",
    )


def _is_clipped(call: AggregateCall, request: QueryRequest) -> bool:
    """Whether a clip of what is aggregated is a matter of error alone, and nobody named one."""
    function = AGGREGATES.get(call.name)
    named = call.distinct or call.group_bounds is not None or (bool(call.arguments) and is_held(call.arguments[0]))
    return function is not None and function.clip_power > 0 and not named and request.mechanism in (None, *ADDITIVE)


def _reads_auto(value: Expression, release: TrackedRelease, request: QueryRequest, rows: bool) -> bool:
    """Whether the question says so, or the declaration of a column, or nothing bounds it but a number of rows that is
    found."""
    if request.bounds == AUTO or reads(value, release.aggregate.source, lambda _, column: column.auto):
        return True
    expected = expected_of(release.aggregate.source, MOST_ROWS) if rows else release.knowledge.kept
    return _is_open(kept_properties(value, release.knowledge.kept)) and not _is_open(kept_properties(value, expected))


def _is_open(properties: Properties) -> bool:
    return properties.is_number and properties.values is None and (properties.low is None or properties.high is None)


def readable_clipped(value: Expression) -> str:
    """What the analyst wrote, without the limits that hold it."""
    return readable(value.arguments[0] if isinstance(value, Call) and is_held(value) else value)


# -- the ladders, and the release with what was found -----------------------------------------------------------------


def ladders(release: TrackedRelease, number: int) -> Iterator[Aggregate]:
    aggregate, seeking, most = release.aggregate, release.seeking, release.rows_per_unit[0]
    if seeking.rows:
        yield ladder_of_rows(aggregate, number, most)
    if seeking.groups:
        public = None if release.domain is None else max(1, release.domain.size)
        yield ladder_of_groups(aggregate, number, min((n for n in (most, public) if n is not None), default=None))
    for value, limits in seeking.values:
        yield ladder_of_values(aggregate, number, value, limits)


def with_found(release: TrackedRelease, found: Found) -> TrackedRelease:
    """The release within the bounds that were found."""
    clips = dict(found.clips)

    def clipped(value: Expression) -> Expression:
        return held(value, clips[value]) if value in clips else value

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

"""Sums where units with few rows count in full. docs/proofs/few_rows.md.

    _own   the rows: _unit, the keys, the values
    _many  the units that have more than a few of them

Rows keep the unit that they are joined to, so that partials are of a unit with many rows and a group or, with NULL in
the unit's place, of all other units and a group. The former are ranked and cut, the latter are what they are. Or else
each row of a unit with many of them counts for a part, and there are no partials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountValues, OneOf, Parted, SumValues
from dpsql.aggregates.summed import summed_by, value_rows, with_columns
from dpsql.aggregates.write_bundles import cases_of_rows
from dpsql.engine_sql.build import (
    BELOW,
    LONG,
    SHORT,
    UNIT,
    WIDE,
    any_of,
    apply,
    cast,
    count,
    fields,
    in_64_bits,
    integer,
    select,
    test,
    total,
    when,
)
from dpsql.engine_sql.tree import Derived, Field, Joined, Named, Part, Select, Table, With, is_one_scan
from dpsql.expressions.fixed_point import LARGEST_BITS
from dpsql.relation.units import scans_of
from dpsql.relation.write import relation_sql
from dpsql.relation.write_domain import domain_sql

if TYPE_CHECKING:
    from dpsql.aggregates.summed import Summed
    from dpsql.aggregates.write_release import Writer
    from dpsql.engine_sql.tree import Query, Source, Term

OWN, MANY, NUMBER, LISTED = "_own", "_many", "_number", "_listed"


def with_many(writer: Writer, rows: Query, few: int) -> tuple[Part, Part]:
    """The rows, and the units that have more than a few of them: of the same rows, whatever a view may read twice.

    Of one table they are read again, and only whose they are: also those that are in no group, whatever their keys.
    """
    source = writer.release.aggregate.source
    if any(scan.is_view for scan in scans_of(source)):
        return Part(OWN, rows, kept=True), Part(MANY, _with_more(few, Table(OWN)))
    if is_one_scan(rows):
        return Part(OWN, rows, kept=False), Part(MANY, _with_more(few, Derived(relation_sql(source, ()), BELOW)))
    return Part(OWN, rows), Part(MANY, _with_more(few, Table(OWN)))


def _with_more(few: int, rows: Source) -> Query:
    """The units that have more rows than that, and how many."""
    numbers = Select((*fields([UNIT]), Named(count(), NUMBER)), rows, group_by=(Field(UNIT),))
    return select(fields([UNIT, NUMBER]), numbers, test(">", Field(NUMBER), integer(few)))


def sums_beside_few(writer: Writer, summed: Summed, rows: Query, few: int) -> Query:
    """The sums over units with many rows, ranked and cut, and over all others as they are."""
    release = writer.release
    partials = _partials(summed)
    seen = [UNIT, *(partial.name for partial in partials)]
    found = _by_unit(writer, summed, partials)
    if release.ranked and writer.listed_keys:
        found = _declared(writer, found, seen)
    own = [
        Named(_of_one(part, Field(_all(name), kind=WIDE)), name)
        for name, part in summed.measures
        if isinstance(part, SumValues)
    ]
    of_units = select([*writer.shown_keys, *fields(seen), *own], found)
    is_few = test("is null", writer.unit)
    kept = [
        Named(when(is_few, _uncut(name, seen), part.bounded(name, release.rows)), name)
        for name, part in summed.measures
    ]
    ranks = [writer.group_rank("row_number")] if release.ranked else []
    bounded = select([*fields([UNIT]), *writer.shown_keys, *kept, *ranks], of_units)
    counts = any_of([is_few, writer.in_first_groups]) if ranks else None
    return With(with_many(writer, rows, few), writer.by_keys(summed.totals, bounded, counts))


def sums_of_parts(writer: Writer) -> Query:
    """The sums over rows, each of which counts for a part where its unit has many."""
    measures = {part.column: part.measure for part in writer.release.measures if isinstance(part.measure, Parted)}
    (few,) = {part.most for part in measures.values()}
    summed = summed_by(writer, [(name, part.inner) for name, part in measures.items()])
    keys = writer.release.key_names
    rows = _joined(Named(Field(NUMBER, MANY), NUMBER), [*keys, *summed.values])
    clamped = select([*fields([NUMBER, *keys]), *summed.clamped], rows)
    seen = [NUMBER, *keys, *summed.values]
    cases = with_columns(clamped, seen, list(cases_of_rows(summed.measures)))
    parts = [Named(_part(part, summed.values_of(name)), name) for name, part in measures.items()]
    counted = select([*writer.shown_keys, *parts], cases)
    return With(with_many(writer, value_rows(writer, summed), few), writer.by_keys(summed.totals, counted))


def _part(measure: Parted, values: str) -> Term:
    """What one row adds; NULL, a part of nothing, if it has no value or counts for another case."""
    number, inner = Field(NUMBER, kind=LONG), measure.inner.inner if isinstance(measure.inner, OneOf) else measure.inner
    kind = LONG if measure.linf(measure.most).bit_length() < LARGEST_BITS else WIDE
    value = cast(Field(values, kind=inner.kind), kind) if isinstance(inner, SumValues) else integer(1)
    whole, most = (apply("*", value, integer(times * measure.finer), kind=kind) for times in (1, measure.most))
    added = when(test("is null", number), whole, apply("//", most, number, kind=kind))
    if isinstance(measure.inner, OneOf):
        added = when(test("=", Field(measure.inner.case_of_row), integer(measure.inner.case)), added)
    return when(test("is not null", Field(values)), added) if isinstance(inner, CountValues) else added


def _by_unit(writer: Writer, summed: Summed, partials: list[Named]) -> Query:
    """The partials of each unit with many rows and group, and of all other units and a group."""
    rows = _joined(Named(Field(UNIT, MANY), UNIT), [*writer.key_names, *summed.values])
    shown = [*fields([UNIT]), *writer.shown_keys]
    clamped = select([*shown, *summed.clamped], rows)
    return select([*shown, *partials], clamped, group_by=[writer.unit, *writer.keys])


def _joined(of_many: Named, names: list[str]) -> Query:
    """The rows, with a column that is NULL unless their unit has many."""
    same = test("=", Field(UNIT, OWN), Field(UNIT, MANY))
    columns = [of_many, *(Named(Field(name, OWN), name) for name in names)]
    return Select(tuple(columns), Joined("LEFT", Table(OWN), Table(MANY), same))


def _declared(writer: Writer, found: Query, names: list[str]) -> Query:
    """The partials of public groups: others take no place among those that count."""
    domain = writer.release.domain
    assert domain is not None
    listed = Derived(domain_sql(domain, writer.key_names), LISTED)
    columns = [Named(Field(name, BELOW), name) for name in (*writer.key_names, *names)]
    return Select(tuple(columns), Joined("INNER", Derived(found, BELOW), listed, writer.same_keys(BELOW, LISTED)))


def _partials(summed: Summed) -> list[Named]:
    """Sums over many units need more bits than one over the rows of a single one, and have names of their own."""
    found = []
    for name, part in summed.measures:
        values = summed.values_of(name)
        first, *others = part.partial(name, values)
        if isinstance(part, SumValues):
            first = Named(total(cast(Field(values, kind=part.kind), LONG)), _all(name))
        found += [first, *others]
    return found


def _of_one(measure: SumValues, summed: Term) -> Term:
    """The sum of one unit and group: 64 bits hold it where values have 32, as they do in its partial."""
    return in_64_bits(summed) if measure.kind == SHORT else summed


def _uncut(name: str, seen: list[str]) -> Term:
    """The partial as it is; a sum of no values is 0."""
    if _all(name) not in seen:
        return Field(name, kind=LONG)
    return apply("coalesce", Field(_all(name), kind=WIDE), integer(0), kind=WIDE)


def _all(name: str) -> str:
    """The column of a sum that may be over many units."""
    return f"{name}_all"

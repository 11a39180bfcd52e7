"""Contribution bounding of units with many rows alone: those with few count in full. docs/proofs/few_rows.md.

`sums_beside_few`: rows keep their unit where it has many rows, and have NULL in its place where it has few
(write_many.py), so that there are two kinds of partials:

    a unit with many rows, a group      ranked among the unit's groups, and cut or scaled to the bound of one group
    NULL, a group                       all units with few rows together, as they are

`sums_of_parts`: each row of a unit with many counts for a part, so nothing is ranked, and there are no partials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountValues, OneOf, Parted, SumValues
from dpsql.aggregates.summed import summed_by, with_columns
from dpsql.aggregates.uncut import partials_of_both, sums_of_one, uncut
from dpsql.aggregates.write_bundles import cases_of_rows
from dpsql.aggregates.write_many import NUMBER, beside_many
from dpsql.engine_sql.build import (
    BELOW,
    LONG,
    UNIT,
    WIDE,
    any_of,
    apply,
    cast,
    fields,
    integer,
    select,
    test,
    when,
)
from dpsql.engine_sql.tree import Derived, Field, Joined, Named, Part, Select, SetOperation, Table, With
from dpsql.expressions.fixed_point import LARGEST_BITS
from dpsql.relation.domain import ListedKeys
from dpsql.relation.write_domain import domain_sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.aggregates.summed import Summed
    from dpsql.aggregates.write_release import Writer
    from dpsql.engine_sql.tree import Query, Term

LISTED, PARTIALS = "_listed", "_partials"
MOST_SORTED = 1 << 12
"""Of more groups than these, the partials of units with few rows are kept apart, and not sorted with the others."""


def sums_beside_few(writer: Writer, summed: Summed, few: int) -> Query:
    """The sums over units with many rows, ranked and cut, and over all others as they are."""
    release = writer.release
    parts, rows = beside_many(writer, summed, few, UNIT)
    partials, is_few = _by_unit(writer, summed, rows), test("is null", writer.unit)
    kept = [
        Named(when(is_few, uncut(name, part, release.rows), part.bounded(name, release.rows)), name)
        for name, part in summed.measures
    ]
    columns = [*writer.shown_keys, *kept]
    if not release.ranked:
        return With(parts, writer.by_keys(summed.totals, select(columns, partials)))
    ranked = [*columns, writer.group_rank("row_number")]
    assert release.domain is not None
    if release.domain.size <= MOST_SORTED:
        counts = any_of([is_few, writer.in_first_groups])
        return With(parts, writer.by_keys(summed.totals, select([*fields([UNIT]), *ranked], partials), counts))
    few_units = Select(tuple(columns), Table(PARTIALS), is_few)
    many_units = Select(tuple(ranked), _partials_of_groups(writer, partials), test("not", is_few))
    first_groups = select(fields(column.name for column in columns), many_units, writer.in_first_groups)
    bounded = SetOperation("UNION ALL", few_units, first_groups)
    return With((*parts, Part(PARTIALS, partials)), writer.by_keys(summed.totals, bounded))


def _partials_of_groups(writer: Writer, partials: Select) -> Table | Derived:
    if not _may_be_unlisted(writer):
        return Table(PARTIALS)
    return Derived(_declared(writer, Table(PARTIALS), PARTIALS, [column.name for column in partials.columns]), BELOW)


def sums_of_parts(writer: Writer) -> Query:
    """The sums over rows, each of which counts for a part where its unit has many."""
    measures = {part.column: part.measure for part in writer.release.measures if isinstance(part.measure, Parted)}
    (few,) = {part.most for part in measures.values()}
    summed = summed_by(writer, [(name, part.inner) for name, part in measures.items()])
    keys = writer.release.key_names
    many, rows = beside_many(writer, summed, few, NUMBER)
    clamped = select([*fields([NUMBER, *keys]), *summed.clamped], rows)
    seen = [NUMBER, *keys, *summed.values]
    cases = with_columns(clamped, seen, list(cases_of_rows(summed.measures)))
    parts = [Named(_part(part, summed.values_of(name)), name) for name, part in measures.items()]
    counted = select([*writer.shown_keys, *parts], cases)
    return With(many, writer.by_keys(summed.totals, counted))


def _part(measure: Parted, values: str) -> Term:
    """What one row adds, most / n of its value; NULL, a part of nothing, if it has none or counts for another case."""
    inner = measure.inner.inner if isinstance(measure.inner, OneOf) else measure.inner
    # Of few rows each counts in full, which is to divide by what it is multiplied by.
    number = apply("coalesce", Field(NUMBER, kind=LONG), integer(measure.most), kind=LONG)
    kind = LONG if measure.linf(measure.most).bit_length() < LARGEST_BITS else WIDE
    value = cast(Field(values, kind=inner.kind), kind) if isinstance(inner, SumValues) else integer(1)
    most = apply("*", value, integer(measure.most * measure.finer), kind=kind)
    added: Term = apply("//", most, number, kind=kind)
    if isinstance(measure.inner, OneOf):
        added = when(test("=", Field(measure.inner.case_of_row), integer(measure.inner.case)), added)
    return when(test("is not null", Field(values)), added) if isinstance(inner, CountValues) else added


def _by_unit(writer: Writer, summed: Summed, rows: Query) -> Select:
    """The partials of each unit with many rows and group, and of all other units and a group."""
    release = writer.release
    assert release.domain is not None
    of_few_groups = release.domain.size <= MOST_SORTED
    shown, partials = [*fields([UNIT]), *writer.shown_keys], partials_of_both(summed, in_decimals=of_few_groups)
    clamped = select([*shown, *(summed.clamped_decimals if of_few_groups else summed.clamped)], rows)
    found: Query = select([*shown, *partials], clamped, group_by=[writer.unit, *writer.keys])
    names = [UNIT, *(partial.name for partial in partials)]
    if release.ranked and of_few_groups and _may_be_unlisted(writer):
        found = _declared(writer, Derived(found, BELOW), BELOW, [*writer.key_names, *names])
    return select([*writer.shown_keys, *fields(names), *sums_of_one(summed)], found)


def _may_be_unlisted(writer: Writer) -> bool:
    """Whether rows may have keys that are no group: those of others take no place among the groups that count."""
    return bool(writer.listed_keys) or isinstance(writer.release.domain, ListedKeys)


def _declared(writer: Writer, partials: Table | Derived, name: str, columns: Iterable[str]) -> Select:
    """The partials of public groups."""
    domain = writer.release.domain
    assert domain is not None
    listed = Derived(domain_sql(domain, writer.key_names), LISTED)
    shown = tuple(Named(Field(column, name), column) for column in columns)
    return Select(shown, Joined("INNER", partials, listed, writer.same_keys(name, LISTED)))

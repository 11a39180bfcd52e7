"""Sums over what each unit contributes: its one row, or else its partials, one for each group.

Of too many groups some are left out: they are ranked on the rows, before these are summed, or on the partials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import (
    SCALE,
    Centred,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    OneOf,
    Scaled,
    SumValues,
    UnitsBeyond,
)
from dpsql.aggregates.release import MANY_GROUPS
from dpsql.aggregates.summed import summed_by, value_rows, with_columns
from dpsql.aggregates.write_bundles import cases_of_rows, values_of_bundles
from dpsql.aggregates.write_by_hash import bounded_by_hash, may_be_ranked_by_hash
from dpsql.aggregates.write_few_rows import PARTIALS, sums_beside_few
from dpsql.aggregates.write_many import MANY, OWN, with_many
from dpsql.engine_sql.build import UNIT, apply, count, fields, integer, select, test, total, when
from dpsql.engine_sql.tree import (
    Derived,
    Either,
    Exists,
    Field,
    Joined,
    Named,
    Part,
    Select,
    SetOperation,
    Table,
    With,
)
from dpsql.expressions.fixed_point import saturated
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.summed import Summed
    from dpsql.aggregates.write_release import Writer
    from dpsql.engine_sql.tree import Query, Term

REACHED = "_reached"
"""In how many groups a unit is."""
SCALES = "_scales"


def sums_sql(writer: Writer, measures: list[tuple[str, ByUnit]]) -> Query:
    """The keys and, for each group, the sums of these measures."""
    release, summed = writer.release, summed_by(writer, measures)
    if release.one_row_per_unit:
        return _sums_of_rows(writer, summed, value_rows(writer, summed))
    if release.few_rows is not None:
        return sums_beside_few(writer, summed, release.few_rows)
    rows = writer.in_groups(value_rows(writer, summed), [UNIT, *summed.values])
    return _sums_of_units(writer, summed, rows)


def _sums_of_rows(writer: Writer, summed: Summed, rows: Query) -> Query:
    """Of one row per unit the centre can be taken from the whole sum."""
    clamped = [Named(part.input(value), name) for name, part, value in summed.stored]
    cases = list(cases_of_rows(summed.measures))
    counted = with_columns(select([*writer.shown_keys, *clamped], rows), [*writer.key_names, *summed.values], cases)
    totals = [Named(saturated(_row_total(summed.values_of(name), part)), name) for name, part in summed.measures]
    return writer.by_keys(totals, counted)


def _sums_of_units(writer: Writer, summed: Summed, rows: Query) -> Query:
    release, measures = writer.release, summed.measures
    ranked = release.ranked and not any(isinstance(part, Scaled) for _, part in measures)
    first = rows
    if ranked and release.ranked_by_row:
        # Before they are clamped: what is left out needs none of it.
        first = of_first_groups(writer, rows, [UNIT, *writer.key_names, *summed.values])
    kept = [Named(part.bounded(name, release.rows), name) for name, part in measures]
    ranks = [writer.group_rank("row_number")] if ranked and not release.ranked_by_row else []
    bounded: Query = select([*writer.shown_keys, *kept, *ranks], _by_unit(writer, summed, first))
    if ranked and may_be_ranked_by_hash(writer):
        bounded = Either(bounded_by_hash(writer, summed, rows), bounded)
    return writer.by_keys(summed.totals, bounded, writer.in_first_groups if ranks else None)


def _by_unit(writer: Writer, summed: Summed, rows: Query) -> Query:
    """For every unit and group its counts and sums, and what else they are bounded by."""
    measures, partials = summed.measures, summed.partials
    shown = [*fields([UNIT]), *writer.shown_keys]
    clamped = select([*shown, *summed.clamped], rows)
    by_unit = select([*shown, *partials], clamped, group_by=[writer.unit, *writer.keys])
    seen = [UNIT, *writer.key_names, *(partial.name for partial in partials)]
    bundled = with_columns(by_unit, seen, list(values_of_bundles(measures)))
    scaled = next((part for _, part in measures if isinstance(part, Scaled)), None)
    return bundled if scaled is None else _with_scale(bundled, seen, scaled)


def _with_scale(partials: Query, names: list[str], scaled: Scaled) -> Query:
    """The partials, each with the part that counts of all of its unit: to join them takes less than to sort them."""
    reached = Select((*fields([UNIT]), Named(count(), REACHED)), Table(PARTIALS), group_by=(Field(UNIT),))
    scale = Named(scaled.scale(Field(REACHED, kind=Integer())), SCALE)
    scales = Derived(select([*fields([UNIT]), scale], reached), SCALES)
    beside = Joined("INNER", Table(PARTIALS), scales, test("=", Field(UNIT, PARTIALS), Field(UNIT, SCALES)))
    columns = *(Named(Field(name, PARTIALS), name) for name in names), *fields([SCALE])
    return With((Part(PARTIALS, partials, kept=True),), Select(columns, beside))


def of_first_groups(writer: Writer, rows: Query, names: list[str]) -> Query:
    """The rows of each unit's groups that count."""
    groups, columns = writer.release.groups, fields(names)

    def ranked(rows: Query) -> Query:
        ranks = select([*columns, writer.group_rank("dense_rank")], rows)
        return select(columns, ranks, writer.in_first_groups)

    if groups < MANY_GROUPS:
        return ranked(rows)
    has_many = Exists(Select((), Table(MANY), test("=", Field(UNIT, MANY), Field(UNIT, OWN))))
    few_rows, many_rows = (
        Select(tuple(columns), Table(OWN), condition) for condition in (test("not", has_many), has_many)
    )
    parts = with_many(rows, writer.release.aggregate.source, groups)
    return With(parts, SetOperation("UNION ALL", few_rows, ranked(many_rows)))


def _row_total(column: str, measure: ByUnit) -> Term:
    """The sum of a measure over rows, each of a unit of its own."""
    match measure:
        case CountUnits() | CountRows():
            return count()
        case CountUnitsWith() | CountValues():
            return count(Field(column))
        case SumValues():
            value = Field(column, kind=measure.decimal or Integer())
            clamped = when(test("is not null", value), measure.clamped(value, 1)) if measure.group else value
            return measure.sum_centred(clamped)
        case Centred(inner):
            return measure.moved(apply("coalesce", _row_total(column, inner), integer(0)), count(), 1)
        case OneOf(inner):
            # A row counts for its first case alone, whatever an engine makes of the conditions.
            kind = inner.decimal if isinstance(inner, SumValues) else None
            own = when(test("=", Field(measure.case_of_row), integer(measure.case)), Field(column, kind=kind))
            return count(own) if isinstance(inner, CountValues) else inner.sum_centred(own)
        case Scaled():
            raise AssertionError("one row is in one group, and counts in full")
        case UnitsBeyond(SumValues()):
            return total(measure.outside(Field(column, kind=Integer()), 1))
        case UnitsBeyond():
            return integer(0)  # one row is never too many

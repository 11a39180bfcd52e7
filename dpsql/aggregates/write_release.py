"""The engine SQL of a release: one row per group, the keys, an integer for each measure, the profiles of statistics.

    rows      each unit's rows: _unit, the keys, every measured value as a whole number of quanta
    partials  one row per unit and group: counts and sums
    bounded   what of it may count: at most `rows` rows per group; groups ranked by a keyed hash
    released  the sum over units of their `groups` first groups

joined to the list of public groups, so that every one of them is returned, even when empty. Where no unit has two rows,
`rows` is summed directly. Counts and sums over distinct values, and the profiles of statistics, are taken on branches
of their own, from each unit's first `rows` values in its first groups. Nothing that the analyst wrote passes through as
text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import (
    Centred,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    OneOf,
    OverDistinct,
    SumValues,
    UnitsBeyond,
    read_by,
)
from dpsql.aggregates.write_bundles import cases_of_rows, values_of_bundles
from dpsql.aggregates.write_statistic import VALUE, profile_sql
from dpsql.engine_sql.build import SALT, UNIT, all_of, apply, count, fields, finite, integer, select, test, total, when
from dpsql.engine_sql.tree import Blank, Derived, Field, Fold, Joined, Named, Ordered, Over, Select
from dpsql.expressions.emit import emit, emit_into, emit_value
from dpsql.expressions.fixed_point import saturated
from dpsql.expressions.tree import Column, names_read, substituted
from dpsql.relation.unlisted import without_lists
from dpsql.relation.write import relation_sql
from dpsql.relation.write_domain import domain_sql
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.release import Release
    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.tree import Expression

GROUP_RANK = "_rank"
VALUE_RANK = "_value_rank"


def release_sql(release: Release) -> Query:
    """The whole release. Its blanks are the salt, which decides which of a unit's groups and values count, and for each
    quantile how many ranks on both sides its mechanism looks at, by its column."""
    writer = Writer(release)
    plain, distinct = writer.by_unit_measures(), writer.distinct_bases()
    branches = [writer.over_distinct(base) for base in distinct]
    branches += [profile_sql(writer, drawn) for drawn in release.statistics]
    if plain or not branches:
        branches.insert(0, writer.sums(plain))
    return writer.together(branches)


@dataclass(frozen=True)
class Writer:
    release: Release

    @property
    def keys(self) -> list[Field]:
        return [Field(name, kind=kind) for name, kind in self.release.keys]

    @property
    def shown_keys(self) -> list[Named]:
        return fields(self.release.key_names)

    def by_unit_measures(self) -> list[tuple[str, ByUnit]]:
        return [
            (bounded.column, bounded.measure)
            for bounded in self.release.measures
            if not isinstance(bounded.measure, OverDistinct)
        ]

    def distinct_bases(self) -> list[Expression]:
        bases = [part.measure.base for part in self.release.measures if isinstance(part.measure, OverDistinct)]
        return list(dict.fromkeys(bases))

    # -- sums of what each unit contributes ---------------------------------------------------------------------------

    def sums(self, measures: list[tuple[str, ByUnit]]) -> Query:
        release = self.release
        inputs = [(name, part) for name, measure in measures if (part := read_by(measure)) is not None]
        known = release.knowledge.properties
        values = [Named(emit_into(part.input, part.argument, known), name) for name, part in inputs]
        rows = self.rows(values, [part.argument for _, part in inputs])
        if release.one_row_per_unit:
            totals = [Named(saturated(row_total(name, part)), name) for name, part in measures]
            seen = [*release.key_names, *(value.name for value in values)]
            return self.by_keys(totals, with_columns(rows, seen, list(cases_of_rows(measures))))
        partials = [partial for name, part in measures for partial in part.partial(name)]
        grouping = [Field(UNIT), *self.keys]
        by_unit: Query = select([*fields([UNIT]), *self.shown_keys, *partials], rows, group_by=grouping)
        seen = [UNIT, *release.key_names, *(partial.name for partial in partials)]
        by_unit = with_columns(by_unit, seen, list(values_of_bundles(measures)))
        kept = [Named(part.bounded(name, release.rows), name) for name, part in measures]
        totals = [Named(saturated(total(Field(name))), name) for name, _ in measures]
        if not release.ranked:
            return self.by_keys(totals, select([*self.shown_keys, *kept], by_unit))
        bounded = select([*self.shown_keys, *kept, self.group_rank("row_number")], by_unit)
        # BETWEEN and not <=: DuckDB turns the latter into a top-N that needs far more memory.
        return self.by_keys(totals, bounded, self.is_first(GROUP_RANK, release.groups))

    def rows(self, values: list[Named], reading: list[Expression]) -> Query:
        """_unit, the keys and these values, for every row."""
        aggregate, known = self.release.aggregate, self.release.knowledge.properties
        names = zip(aggregate.keys, self.release.key_names, strict=True)
        keys = [Named(emit_value(key, known), name) for key, name in names]
        used = names_read(*aggregate.keys, *reading)
        source = aggregate.source
        if self.release.domain is not None and not self.release.ranked and aggregate.reports is None:
            source = without_lists(source, aggregate.keys, reading)
        return select([*fields([UNIT]), *keys, *values], relation_sql(source, used))

    def group_rank(self, rank: str) -> Named:
        """The order in which a unit's groups count: by a keyed hash."""
        order = (self.hashed(self.keys), *self.keys)
        return Named(Over(Fold(rank), (Field(UNIT),), tuple(map(Ordered, order))), GROUP_RANK)

    def hashed(self, parts: Sequence[Term]) -> Term:
        return apply("keyed hash", Blank(SALT), Field(UNIT), *parts)

    def is_first(self, rank: str, most: int) -> Term:
        return test("between", Field(rank), integer(1), integer(most))

    def by_keys(self, columns: list[Named], below: Query, where: Term | None = None) -> Query:
        return select([*self.shown_keys, *columns], below, where, self.keys)

    # -- values themselves --------------------------------------------------------------------------------------------

    def values(self, argument: Expression, *, distinct: bool) -> Query:
        """_unit, the keys and a value, or NULL, for each row that counts: each unit's first `rows`, in its groups."""
        release, value = self.release, Field(VALUE, kind=argument.type)
        written = (emit_value if distinct else emit)(argument, release.knowledge.properties)
        properties = release.knowledge.properties_of(argument)
        if isinstance(argument.type, Double) and (properties.low is None or properties.high is None):
            written = finite(written)
        rows = self.rows([Named(written, VALUE)], [argument])
        if release.one_row_per_unit:
            return rows
        kept = [*fields([UNIT]), *self.shown_keys, *fields([VALUE])]
        # NULL is no value, but where a unit has nothing else the group is one of its groups all the same.
        order = (test("is null", value), self.hashed([*self.keys, value]), value)
        place = Over(Fold("row_number"), (Field(UNIT), *self.keys), tuple(map(Ordered, order)))
        ranks = [Named(place, VALUE_RANK)]
        first = [test("is not null", value), self.is_first(VALUE_RANK, release.rows)]
        if release.ranked:
            # All rows of a group have the same rank here, and the same as on the other branches.
            ranks.append(self.group_rank("dense_rank"))
            first.append(self.is_first(GROUP_RANK, release.groups))
        own = replace(select(kept, rows), distinct=True) if distinct else rows
        return select(kept, select([*kept, *ranks], own), all_of(first))

    def over_distinct(self, base: Expression) -> Query:
        values = self.values(base, distinct=True)
        different = replace(select([*self.shown_keys, *fields([VALUE])], values), distinct=True)
        return self.by_keys(self.distinct_totals(base), different)

    def distinct_totals(self, base: Expression) -> list[Named]:
        known = {VALUE: self.release.knowledge.properties_of(base)}
        renamed = {base: Column(VALUE, base.type)}
        totals = []
        for bounded in self.release.measures:
            measure = bounded.measure
            if isinstance(measure, OverDistinct) and measure.base == base:
                value = measure.inner.input(emit(substituted(measure.inner.argument, renamed), known))
                folded = count(value) if isinstance(measure.inner, CountValues) else total(value)
                totals.append(Named(saturated(folded), bounded.column))
        return totals

    # -- all branches side by side ------------------------------------------------------------------------------------

    def together(self, branches: list[Query]) -> Query:
        """Sorted by key, since the order of an unsorted result could tell about a group that is not shown."""
        release = self.release
        if not self.keys:
            return self.side_by_side(branches)
        if release.domain is not None:
            branches = [domain_sql(release.domain, release.key_names), *branches]
        lone = branches[0]
        if len(branches) == 1 and isinstance(lone, Select):
            return replace(lone, order_by=tuple(map(Ordered, self.keys)))
        first, *others = (Derived(branch, f"found_{number}") for number, branch in enumerate(branches))
        joined: Source = first
        for other in others:
            joined = Joined("LEFT", joined, other, self.same_keys(first.alias, other.alias))
        keys = [Named(Field(name, first.alias), name) for name in release.key_names]
        totals = [Named(apply("coalesce", Field(part.column), integer(0)), part.column) for part in release.measures]
        order = tuple(Ordered(Field(name, first.alias)) for name in release.key_names)
        return Select((*keys, *totals, *fields(self.profiles)), joined, order_by=order)

    def side_by_side(self, branches: list[Query]) -> Query:
        """One row each."""
        if len(branches) == 1:
            return branches[0]
        sources: list[Source] = [Derived(branch, f"found_{number}") for number, branch in enumerate(branches)]
        names = [*(part.column for part in self.release.measures), *self.profiles]
        return Select(tuple(fields(names)), reduce(partial(Joined, "CROSS"), sources))

    @property
    def profiles(self) -> list[str]:
        return [name for drawn in self.release.statistics for name in drawn.profile]

    def same_keys(self, left: str, right: str) -> Term:
        return all_of([test("same", Field(name, left), Field(name, right)) for name in self.release.key_names])


def row_total(name: str, measure: ByUnit) -> Term:
    match measure:
        case CountUnits() | CountRows():
            return count()
        case CountUnitsWith() | CountValues():
            return count(Field(name))
        case SumValues():
            value = Field(name, kind=Integer())
            return total(when(test("is not null", value), measure.clamped(value, 1)) if measure.group else value)
        case Centred(inner):
            return measure.moved(apply("coalesce", row_total(name, inner), integer(0)), count(), 1)
        case OneOf(inner):
            # A row counts for its first case alone, whatever an engine makes of the conditions.
            own = when(test("=", Field(measure.case_of_row), integer(measure.case)), Field(name))
            return count(own) if isinstance(inner, CountValues) else total(own)
        case UnitsBeyond(SumValues()):
            return total(measure.outside(Field(name, kind=Integer()), 1))
        case UnitsBeyond():
            return integer(0)  # one row is never too many


def with_columns(below: Query, names: Sequence[str], more: list[Named]) -> Query:
    """The same rows with columns that are computed from theirs."""
    return select([*fields(names), *more], below) if more else below

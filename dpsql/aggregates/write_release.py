"""The engine SQL of a release: one row per group, the keys, an integer for each measure, the profiles of statistics.

    rows      each unit's rows: _unit, the keys, every measured value as a whole number of quanta
    partials  one row per unit and group: counts and sums
    bounded   what of it may count: at most `rows` rows per group, in the unit's `groups` first groups
    released  the sum over units

joined to the list of public groups, so that every one of them is returned, even when empty. Groups are ranked by a
keyed hash, on the rows or on the partials (write_sums.py); public ones have numbers (number_groups.py). Where no unit
has two rows, `rows` is summed directly; units with few rows may count as they are (write_few_rows.py). Counts and sums
over distinct values, and the profiles of statistics, are taken on branches of their own, from each unit's first `rows`
values in its first groups. Nothing that the analyst wrote passes through as text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountValues, OverDistinct, Parted
from dpsql.aggregates.number_groups import GROUP, GROUPS, are_numbered, number_type, numbered_groups, with_number
from dpsql.aggregates.release import GROUP_RANK
from dpsql.aggregates.write_few_rows import sums_of_parts
from dpsql.aggregates.write_statistic import VALUE, profile_sql, with_values_once
from dpsql.aggregates.write_sums import of_first_groups, sums_sql
from dpsql.engine_sql.build import SALT, UNIT, all_of, apply, cast, count, fields, finite, integer, select, test
from dpsql.engine_sql.tree import Blank, Derived, Field, Fold, Joined, Named, Ordered, Over, Part, Select, Table, With
from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.fixed_point import saturated
from dpsql.expressions.tree import Column, names_read, substituted
from dpsql.relation.as_stored import as_stored, listed_keys
from dpsql.relation.units import scans_of
from dpsql.relation.write import relation_sql
from dpsql.relation.write_domain import domain_sql
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.release import Release
    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.tree import Expression

VALUE_RANK = "_value_rank"


def release_sql(release: Release) -> Query:
    """The whole release. Its blanks are the salt, which decides which of a unit's groups and values count, and for each
    quantile how many ranks on both sides its mechanism looks at, by its column."""
    writer = Writer(release)
    plain, distinct = writer.by_unit_measures(), writer.distinct_bases()
    branches = [writer.over_distinct(base) for base in distinct]
    branches += [profile_sql(writer, drawn) for drawn in release.statistics]
    if release.in_parts:
        branches.insert(0, sums_of_parts(writer))
    elif plain or not branches:
        branches.insert(0, sums_sql(writer, plain))
    shared, branches = with_values_once(branches)
    together = writer.together(branches)
    if not shared:
        return together
    return With((*together.parts, *shared), together.query) if isinstance(together, With) else With(shared, together)


@dataclass(frozen=True)
class Writer:
    release: Release

    @cached_property
    def numbered(self) -> bool:
        return are_numbered(self.release)

    @property
    def key_names(self) -> list[str]:
        """The columns by which rows are grouped."""
        return [GROUP] if self.numbered else self.release.key_names

    @property
    def keys(self) -> list[Field]:
        if self.numbered:
            return [Field(GROUP, kind=number_type(self.release))]
        return [Field(name, kind=kind) for name, kind in self.release.keys]

    @property
    def shown_keys(self) -> list[Named]:
        return fields(self.key_names)

    def by_unit_measures(self) -> list[tuple[str, ByUnit]]:
        return [
            (bounded.column, bounded.measure)
            for bounded in self.release.measures
            if not isinstance(bounded.measure, OverDistinct | Parted)
        ]

    def distinct_bases(self) -> list[Expression]:
        bases = [part.measure.base for part in self.release.measures if isinstance(part.measure, OverDistinct)]
        return list(dict.fromkeys(bases))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def is_finite(self, argument: Expression) -> bool:
        """Whether it is no infinity, nor NaN."""
        properties = self.release.knowledge.properties_of(argument)
        return not isinstance(argument.type, Double) or (properties.low is not None and properties.high is not None)

    def rows(self, values: list[Named], reading: list[Expression], stored: Collection[str] = ()) -> Query:
        """_unit, the keys and these values, for every row. `stored` is what these values are clamped from."""
        release, aggregate = self.release, self.release.aggregate
        known = release.knowledge.properties
        names = zip(aggregate.keys, release.key_names, strict=True)
        keys = [Named(emit_value(key, known), name) for key, name in names]
        used = names_read(*aggregate.keys, *reading)
        looked_up = self.numbered or not release.ranked or release.few_rows is not None
        listed = as_stored(aggregate.source, self.listed_keys, "looked up later" if looked_up else "others left out")
        source = as_stored(listed, stored, "clamped later")
        return select([*fields([UNIT]), *keys, *values], relation_sql(source, used))

    def in_groups(self, rows: Query, names: list[str]) -> Query:
        """The same rows with the numbers of their groups, where these have some, and columns of these names."""
        return with_number(rows, self.release, names) if self.numbered else rows

    @property
    def listed_keys(self) -> list[str]:
        """Keys that are looked up in their declared values when groups are joined to these: the same on all branches,
        so that they rank a unit's groups alike."""
        release, aggregate = self.release, self.release.aggregate
        if release.domain is None or aggregate.reports is not None:
            return []
        arguments = [argument for call in aggregate.calls for argument in call.arguments]
        return listed_keys(aggregate.source, aggregate.keys, arguments)

    def group_rank(self, rank: str) -> Named:
        """The order in which a unit's groups count: by a keyed hash, those whose hashes tie by key."""
        order = [self.hashed(self.keys), *self.keys]
        return Named(Over(Fold(rank), (self.unit,), tuple(map(Ordered, order))), GROUP_RANK)

    @cached_property
    def unit(self) -> Field:
        scans = scans_of(self.release.aggregate.source)
        return Field(UNIT, kind=next(scan.unit.type for scan in scans if scan.unit is not None))

    def hashed(self, parts: Sequence[Term]) -> Term:
        """Units hash alike wherever they come from: one engine keeps a number as short as its column is."""
        unit = cast(self.unit, Integer()) if isinstance(self.unit.kind, Integer) else self.unit
        return apply("keyed hash", Blank(SALT), unit, *parts)

    @property
    def in_first_groups(self) -> Term:
        """Whether a group is one of those of its unit that count."""
        return self.is_first(GROUP_RANK, self.release.groups)

    def is_first(self, rank: str, most: int) -> Term:
        return test("between", Field(rank), integer(1), integer(most))

    def by_keys(self, columns: list[Named], below: Query, where: Term | None = None) -> Query:
        return select([*self.shown_keys, *columns], below, where, self.keys)

    # -- values themselves --------------------------------------------------------------------------------------------

    def values(self, argument: Expression, *, distinct: bool, stored: bool = False) -> Query:
        """_unit, the keys and a value, or NULL, for each row that counts: each unit's first `rows`, in its groups.

        `stored`: whether it is clamped later, and taken here as it is stored if nothing else reads it.
        """
        release, value = self.release, Field(VALUE, kind=argument.type)
        written = (emit_value if distinct else emit)(argument, release.knowledge.properties)
        unclamped = names_read(argument) - names_read(*release.aggregate.keys) if stored else set()
        if (unclamped and isinstance(argument.type, Double)) or not self.is_finite(argument):
            written = finite(written)
        rows = self.in_groups(self.rows([Named(written, VALUE)], [argument], unclamped), [UNIT, VALUE])
        if release.one_row_per_unit:
            return rows
        kept = [*fields([UNIT]), *self.shown_keys, *fields([VALUE])]
        if release.ranked:
            # First, on all of its rows: a unit has the same first groups as on the other branches.
            rows = of_first_groups(self, rows, [UNIT, *self.key_names, VALUE])
        # NULL is no value, but where a unit has nothing else the group is one of its groups all the same.
        order = (test("is null", value), self.hashed([*self.keys, value]), value)
        place = Over(Fold("row_number"), (self.unit, *self.keys), tuple(map(Ordered, order)))
        own = replace(select(kept, rows), distinct=True) if distinct else rows
        first = [test("is not null", value), self.is_first(VALUE_RANK, release.rows)]
        return select(kept, select([*kept, Named(place, VALUE_RANK)], own), all_of(first))

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
                folded = count(value) if isinstance(measure.inner, CountValues) else measure.inner.sum_centred(value)
                totals.append(Named(saturated(folded), bounded.column))
        return totals

    # -- all branches side by side ------------------------------------------------------------------------------------

    def together(self, branches: list[Query]) -> Query:
        """Sorted by key, since the order of an unsorted result could tell about a group that is not shown."""
        release = self.release
        if not self.keys:
            return self.side_by_side(branches)
        if self.numbered:
            return With((Part(GROUPS, numbered_groups(release)),), self.joined(Table(GROUPS), GROUPS, branches))
        if release.domain is not None:
            branches = [domain_sql(release.domain, release.key_names), *branches]
        lone, *others = branches
        if not others and isinstance(lone, Select):
            return replace(lone, order_by=tuple(map(Ordered, self.keys)))
        return self.joined(Derived(lone, "found_0"), "found_0", others)

    def joined(self, first: Source, alias: str, others: list[Query]) -> Query:
        """The groups of the first, each with what the others found of it."""
        release, found = self.release, first
        for number, other in enumerate(others, 1):
            found = Joined("LEFT", found, Derived(other, f"found_{number}"), self.same_keys(alias, f"found_{number}"))
        keys = [Named(Field(name, alias), name) for name in release.key_names]
        totals = [Named(apply("coalesce", Field(part.column), integer(0)), part.column) for part in release.measures]
        order = tuple(Ordered(Field(name, alias)) for name in release.key_names)
        return Select((*keys, *totals, *fields(self.profiles)), found, order_by=order)

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
        return all_of([test("same", Field(name, left), Field(name, right)) for name in self.key_names])

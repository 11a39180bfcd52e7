"""The engine SQL of a release: one row per group, the keys, an integer for each measure, the profiles of statistics.

    rows      each unit's rows: _unit, the keys, every measured value as a whole number of quanta
    partials  one row per unit and group: counts and sums
    bounded   the bounded contribution of each unit to each group
    released  the sum over units

joined to the list of public groups, so that every one of them is returned, even when empty. How counts and sums are
bounded is one of strategies.py. Counts and sums over distinct values, and the profiles of statistics, are taken on
branches of their own, from each unit's first `rows` values in its first groups. Nothing that the analyst wrote passes
through as text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from dpsql.aggregates.cross_unit import matched_sql
from dpsql.aggregates.measure import (
    Average,
    CountValues,
    DownWeighted,
    Matched,
    Mode,
    OverDistinct,
    Quantile,
)
from dpsql.aggregates.strategies import has_sums, strategy_of
from dpsql.engine_sql.build import (
    SALT,
    UNIT,
    WIDE,
    all_of,
    apply,
    cast,
    count,
    fields,
    finite,
    in_64_bits,
    integer,
    nonzero,
    select,
    test,
    total,
    wide,
)
from dpsql.engine_sql.tree import (
    CTE,
    AggFunc,
    Alias,
    AroundRank,
    Blank,
    Constant,
    Field,
    Joined,
    Ordered,
    Select,
    Subquery,
    Table,
    WindowFunc,
    With,
)
from dpsql.expressions.casts import clamps_column, in_fixed_point, saturated
from dpsql.expressions.emit import emit, emit_value
from dpsql.expressions.tree import Column, names_read, substituted
from dpsql.relation.scan_sql import as_stored, listed_keys
from dpsql.relation.sql import domain_sql, relation_sql
from dpsql.relation.units import reading_asked_units, scans_of
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.release import Drawn, Release
    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.tree import Expression

# -- write statistic ---------------------------------------------------------------------------------------------------
# The engine SQL of a statistic's profile: one row per group, the keys first.

VALUE = "_value"


def profile_sql(writer: ReleaseWriter, drawn: Drawn) -> Query:
    match drawn.statistic:
        case Quantile():
            return _around_rank(writer, drawn, drawn.statistic)
        case Mode():
            return _occurrences(writer, drawn, drawn.statistic)
        case Average():
            return _mean(writer, drawn, drawn.statistic)
        case Matched():
            return matched_sql(writer, drawn, drawn.statistic)


def with_values_once(branches: Sequence[Query]) -> tuple[tuple[CTE, ...], list[Query]]:
    """The parts, with values that several profiles share (such as MIN(x) and MAX(x)), and profiles over them.

    If no unit has two rows, nothing is selected and reading the rows again is cheap.
    """
    profiles = [branch for branch in branches if isinstance(branch, AroundRank) and not branch.single]
    often = [values for values, times in Counter(profile.values for profile in profiles).items() if times > 1]
    names = {values: f"_values_{number}" for number, values in enumerate(often)}
    parts = tuple(CTE(name, values, kept=True) for values, name in names.items())
    return parts, [_reading(branch, names) for branch in branches]


def _reading(branch: Query, names: Mapping[Query, str]) -> Query:
    if not isinstance(branch, AroundRank) or branch.values not in names:
        return branch
    columns = fields([UNIT, *branch.keys, branch.value])
    return replace(branch, values=Select(tuple(columns), Table(names[branch.values])))


def _around_rank(writer: ReleaseWriter, drawn: Drawn, statistic: Quantile) -> Query:
    """Only the values around one rank, which is all that a quantile needs."""
    release, grid, kind = writer.release, statistic.grid, statistic.argument.type
    points, counts, below, rows = drawn.profile
    known = release.facts.any_row
    # Clamped as points, which keeps the order: the ranks of what is stored are those of what it is clamped to.
    stored = clamps_column(statistic.argument, known, grid.quantum, grid.low, grid.high)
    if statistic.is_extreme:
        values = writer.extremes(statistic.argument, "max" if statistic.fraction else "min", stored=stored)
    else:
        values = writer.values(statistic.argument, distinct=False, stored=stored)
    return AroundRank(
        values=values,
        keys=tuple(writer.key_names),
        value=VALUE,
        kind=kind,
        fraction=statistic.fraction,
        reach=drawn.column,
        point=in_fixed_point(Field(VALUE, kind=kind), kind, grid.quantum, grid.low, grid.high),
        names=(points, counts, below, rows),
        most_rows=drawn.rows_of(release.rows),
        single=release.one_row_per_unit,
    )


def _occurrences(writer: ReleaseWriter, drawn: Drawn, statistic: Mode) -> Query:
    """Which of the public values occur, by their place in the list, and how often."""
    points, counts = drawn.profile
    kind = statistic.argument.type
    value, point = Field(VALUE, kind=kind), Field("_point", kind=Integer())
    values = writer.values(statistic.argument, distinct=False)
    columns = [*writer.shown_keys, Alias(value, VALUE), Alias(count(), "_count")]
    by_value = select(columns, values, group_by=[*writer.keys, value])
    listed = [Constant(possible, kind) for possible in statistic.values]
    # Where no declared value is left, there is no list: an empty one would have no type.
    place = apply("position", value, *listed, kind=Integer()) if listed else Constant(None, Integer())
    placed = select([*writer.shown_keys, *fields(["_count"]), Alias(place, "_point")], by_value)
    lists = [
        Alias(AggFunc("collect", (Field(part),), where=test("is not null", point), order_by=(Ordered(point),)), name)
        for part, name in (("_point", points), ("_count", counts))
    ]
    return writer.by_keys(lists, placed)


def _mean(writer: ReleaseWriter, drawn: Drawn, statistic: Average) -> Query:
    """The sum from the lowest value, divided by the rows: the whole part, the rest, and the rows."""
    whole, rest, rows = drawn.profile
    grid, finer, kind = statistic.grid, statistic.finer, statistic.argument.type
    low, high = grid.low // finer, grid.high // finer
    value = Field(VALUE, kind=kind)
    point = wide(in_fixed_point(value, kind, grid.quantum * finer, low, high))
    summed = total(apply("-", point, integer(low), kind=WIDE))
    columns = [Alias(summed, "_total"), Alias(count(value), "_rows")]
    by_group = writer.by_keys(columns, writer.values(statistic.argument, distinct=False))
    divisor = nonzero(Field("_rows", kind=Integer()), integer(0))
    parts = [(name, apply(sign, Field("_total", kind=WIDE), divisor)) for sign, name in (("//", whole), ("%", rest))]
    divided = [Alias(in_64_bits(apply("coalesce", part, integer(0), kind=WIDE)), name) for name, part in parts]
    return select([*writer.shown_keys, *divided, Alias(Field("_rows"), rows)], by_group)


# -- write release -----------------------------------------------------------------------------------------------------

GROUP_RANK, VALUE_RANK = "_rank", "_value_rank"
"""The place of a group among those of its unit, and of a value among those of its unit in a group."""


def release_sql(release: Release) -> Query:
    """The SQL of the release. Its placeholders are the salt, which selects the groups and values of a unit, and,
    for the column of each quantile, the number of ranks that its mechanism reads on either side."""
    aggregate = release.aggregate
    aggregate = replace(aggregate, source=reading_asked_units(aggregate.source))
    writer = ReleaseWriter(replace(release, aggregate=aggregate))
    branches = [writer.over_distinct(base) for base in writer.distinct_bases()]
    branches += [profile_sql(writer, drawn) for drawn in release.statistics if drawn.leader is None]
    if has_sums(release):
        branches.insert(0, strategy_of(release).sums(writer))
    shared, branches = with_values_once(branches)
    together = writer.together(branches)
    if not shared:
        return together
    return With((*together.parts, *shared), together.query) if isinstance(together, With) else With(shared, together)


@dataclass(frozen=True)
class ReleaseWriter:
    release: Release

    @property
    def key_names(self) -> list[str]:
        return self.release.key_names

    @property
    def keys(self) -> list[Field]:
        return [Field(name, kind=kind) for name, kind in self.release.keys]

    @property
    def shown_keys(self) -> list[Alias]:
        return fields(self.key_names)

    def by_unit_measures(self) -> list[tuple[str, ByUnit]]:
        return [
            (bounded.column, bounded.measure)
            for bounded in self.release.measures
            if not isinstance(bounded.measure, OverDistinct | DownWeighted)
        ]

    def distinct_bases(self) -> list[Expression]:
        bases = [part.measure.base for part in self.release.measures if isinstance(part.measure, OverDistinct)]
        return list(dict.fromkeys(bases))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def is_finite(self, argument: Expression) -> bool:
        """Whether the value is neither infinite nor NaN."""
        properties = self.release.facts.properties_of(argument)
        return not isinstance(argument.type, Double) or (properties.low is not None and properties.high is not None)

    def rows(self, values: list[Alias], reading: list[Expression], stored: Collection[str] = ()) -> Query:
        """_unit, the keys and these values, for every row. `stored` is what these values are clamped from."""
        release, aggregate = self.release, self.release.aggregate
        known = release.facts.any_row
        names = zip(aggregate.keys, release.key_names, strict=True)
        keys = [Alias(emit_value(key, known), name) for key, name in names]
        used = names_read(*aggregate.keys, *reading)
        looked_up = not release.ranked or release.light_rows is not None
        listed = as_stored(aggregate.source, self.listed_keys, "looked up later" if looked_up else "others left out")
        source = as_stored(listed, stored, "clamped later")
        return select([*fields([UNIT]), *keys, *values], relation_sql(source, used))

    @property
    def listed_keys(self) -> list[str]:
        """Keys that are looked up in their declared values when groups are joined to these: the same on all branches,
        so that they rank a unit's groups alike."""
        release, aggregate = self.release, self.release.aggregate
        if release.domain is None or aggregate.reports is not None:
            return []
        arguments = [argument for call in aggregate.calls for argument in call.arguments]
        return listed_keys(aggregate.source, aggregate.keys, arguments)

    def first_groups(self, rows: Query, names: list[str]) -> Query:
        """The rows of each unit's groups that count: the first by a keyed hash, those whose hashes tie by key."""
        columns, order = fields(names), [self.hashed(self.keys), *self.keys]
        rank = WindowFunc(AggFunc("dense_rank"), (self.unit,), tuple(map(Ordered, order)))
        ranked = select([*columns, Alias(rank, GROUP_RANK)], rows)
        return select(columns, ranked, self.is_first(GROUP_RANK, self.release.groups))

    @cached_property
    def unit(self) -> Field:
        scans = scans_of(self.release.aggregate.source)
        return Field(UNIT, kind=next(scan.unit.type for scan in scans if scan.unit is not None))

    def hashed(self, parts: Sequence[Term]) -> Term:
        """Units hash alike wherever they come from: one engine keeps a number as short as its column is."""
        unit = cast(self.unit, Integer()) if isinstance(self.unit.kind, Integer) else self.unit
        return apply("keyed hash", Blank(SALT), unit, *parts)

    def is_first(self, rank: str, most: int) -> Term:
        return test("between", Field(rank), integer(1), integer(most))

    def by_keys(self, columns: list[Alias], below: Query, where: Term | None = None) -> Query:
        return select([*self.shown_keys, *columns], below, where, self.keys)

    # -- values themselves --------------------------------------------------------------------------------------------

    def values(self, argument: Expression, *, distinct: bool, stored: bool = False) -> Query:
        """_unit, the keys and a value, or NULL, for each row that counts: each unit's first `rows`, in its groups.

        `stored`: whether the value is clamped later, and so can be read as stored unless something else reads it.
        """
        release, value = self.release, Field(VALUE, kind=argument.type)
        rows = self._values_in_groups(argument, (emit_value if distinct else emit), stored=stored)
        if release.one_row_per_unit:
            return rows
        kept = [*fields([UNIT]), *self.shown_keys, *fields([VALUE])]
        # NULL is no value, but where a unit has nothing else the group is one of its groups all the same.
        order = (test("is null", value), self.hashed([*self.keys, value]), value)
        place = WindowFunc(AggFunc("row_number"), (self.unit, *self.keys), tuple(map(Ordered, order)))
        own = replace(select(kept, rows), distinct=True) if distinct else rows
        first = [test("is not null", value), self.is_first(VALUE_RANK, release.rows)]
        return select(kept, select([*kept, Alias(place, VALUE_RANK)], own), all_of(first))

    def extremes(self, argument: Expression, which: str, *, stored: bool) -> Query:
        """_unit, the keys and the unit's own extreme in each of its groups, of as many rows as it has."""
        rows = self._values_in_groups(argument, emit, stored=stored)
        if self.release.one_row_per_unit:
            return rows
        value = Field(VALUE, kind=argument.type)
        own = Alias(AggFunc(which, (value,), kind=argument.type), VALUE)
        return select(
            [*fields([UNIT]), *self.shown_keys, own], rows, test("is not null", value), [self.unit, *self.keys]
        )

    def _values_in_groups(self, argument: Expression, write: Callable[..., Term], *, stored: bool) -> Query:
        """_unit, the keys and a value for every row in its unit's groups."""
        release = self.release
        written = write(argument, release.facts.any_row)
        unclamped = names_read(argument) - names_read(*release.aggregate.keys) if stored else set()
        if (unclamped and isinstance(argument.type, Double)) or not self.is_finite(argument):
            written = finite(written)
        rows = self.rows([Alias(written, VALUE)], [argument], unclamped)
        if not release.ranked:
            return rows
        # First, on all of its rows: a unit has the same first groups as on the other branches.
        return self.first_groups(rows, [UNIT, *self.key_names, VALUE])

    def over_distinct(self, base: Expression) -> Query:
        values = self.values(base, distinct=True)
        different = replace(select([*self.shown_keys, *fields([VALUE])], values), distinct=True)
        return self.by_keys(self.distinct_totals(base), different)

    def distinct_totals(self, base: Expression) -> list[Alias]:
        known = {VALUE: self.release.facts.properties_of(base)}
        renamed = {base: Column(VALUE, base.type)}
        totals = []
        for bounded in self.release.measures:
            measure = bounded.measure
            if isinstance(measure, OverDistinct) and measure.base == base:
                value = measure.inner.input(emit(substituted(measure.inner.argument, renamed), known))
                folded = count(value) if isinstance(measure.inner, CountValues) else measure.inner.sum_centred(value)
                totals.append(Alias(saturated(folded), bounded.column))
        return totals

    # -- all branches side by side ------------------------------------------------------------------------------------

    def together(self, branches: list[Query]) -> Query:
        """Sorted by key, because the order of an unsorted result could reveal a hidden group."""
        release = self.release
        if not self.keys:
            return self.side_by_side(branches)
        if release.domain is not None:
            branches = [domain_sql(release.domain, release.key_names), *branches]
        lone, *others = branches
        if not others and isinstance(lone, Select):
            return replace(lone, order_by=tuple(map(Ordered, self.keys)))
        return self.joined(Subquery(lone, "found_0"), "found_0", others)

    def joined(self, first: Source, alias: str, others: list[Query]) -> Query:
        """The groups of the first, each with what the others found of it."""
        release, found = self.release, first
        for number, other in enumerate(others, 1):
            found = Joined("LEFT", found, Subquery(other, f"found_{number}"), self.same_keys(alias, f"found_{number}"))
        keys = [Alias(Field(name, alias), name) for name in release.key_names]
        totals = [Alias(apply("coalesce", Field(part.column), integer(0)), part.column) for part in release.measures]
        order = tuple(Ordered(Field(name, alias)) for name in release.key_names)
        return Select((*keys, *totals, *fields(self.profiles)), found, order_by=order)

    def side_by_side(self, branches: list[Query]) -> Query:
        """One row each."""
        if len(branches) == 1:
            return branches[0]
        sources: list[Source] = [Subquery(branch, f"found_{number}") for number, branch in enumerate(branches)]
        names = [*(part.column for part in self.release.measures), *self.profiles]
        return Select(tuple(fields(names)), reduce(partial(Joined, "CROSS"), sources))

    @property
    def profiles(self) -> list[str]:
        return [name for drawn in self.release.statistics if drawn.leader is None for name in drawn.profile]

    def same_keys(self, left: str, right: str) -> Term:
        return all_of([test("same", Field(name, left), Field(name, right)) for name in self.key_names])

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

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import (
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    OverDistinct,
    SumValues,
    UnitsBeyond,
    read_by,
)
from dpsql.aggregates.write_statistic import VALUE, profile_sql
from dpsql.expressions.emit import emit, emit_into, emit_value
from dpsql.expressions.quanta import saturated
from dpsql.expressions.tree import Column, names_read, substituted
from dpsql.expressions.write import Sql, binary, call, column, finite, integer, listed, named, when
from dpsql.relation.write import relation_sql, select
from dpsql.relation.write_domain import domain_sql
from dpsql.relation.write_scan import UNIT
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.release import Release
    from dpsql.expressions.tree import Expression

GROUP_RANK = "_rank"
VALUE_RANK = "_value_rank"


def release_sql(release: Release, salt: int, reaches: Mapping[str, int]) -> Sql:
    """The whole release; the salt decides which of a unit's groups and values count.

    `reaches`: for each quantile how many ranks on both sides its mechanism looks at.
    """
    writer = Writer(release, salt)
    plain, distinct = writer.by_unit_measures(), writer.distinct_bases()
    branches = [writer.over_distinct(base) for base in distinct]
    branches += [profile_sql(writer, drawn, reaches.get(drawn.column, 0)) for drawn in release.statistics]
    if plain or not branches:
        branches.insert(0, writer.sums(plain))
    return writer.together(branches)


@dataclass(frozen=True)
class Writer:
    release: Release
    salt: int

    @property
    def keys(self) -> list[Sql]:
        return [column(name) for name in self.release.key_names]

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

    def sums(self, measures: list[tuple[str, ByUnit]]) -> Sql:
        release = self.release
        inputs = [(name, part) for name, measure in measures if (part := read_by(measure)) is not None]
        known = release.knowledge.always
        values = [named(emit_into(part.input, part.argument, known), name) for name, part in inputs]
        rows = self.rows(values, [part.argument for _, part in inputs])
        if release.one_row_per_unit:
            totals = [named(saturated(row_total(name, part)), name) for name, part in measures]
            return self.by_keys([*self.keys, *totals], rows)
        partials = [sql for name, part in measures for sql in part.partial(name)]
        by_unit = Sql(f"{select([column(UNIT), *self.keys, *partials], rows)} GROUP BY {self.unit_and_keys}")
        kept = [named(part.bounded(name, release.rows), name) for name, part in measures]
        bounded = select([*self.keys, *kept, *([self.group_rank()] if release.ranked else [])], by_unit)
        totals = [named(saturated(call("sum", column(name))), name) for name, _ in measures]
        return self.by_keys([*self.keys, *totals], self.first_groups(bounded))

    def rows(self, values: list[Sql], reading: list[Expression]) -> Sql:
        """_unit, the keys and these values, for every row."""
        aggregate, known = self.release.aggregate, self.release.knowledge.always
        names = zip(aggregate.keys, self.release.key_names, strict=True)
        keys = [named(emit_value(key, known), name) for key, name in names]
        used = names_read(*aggregate.keys, *reading)
        return select([column(UNIT), *keys, *values], relation_sql(aggregate.source, used))

    @property
    def unit_and_keys(self) -> Sql:
        return listed([column(UNIT), *self.keys])

    def group_rank(self) -> Sql:
        """The order in which a unit's groups count."""
        return named(Sql(f"row_number() OVER ({self.by_hash})"), GROUP_RANK)

    @property
    def by_hash(self) -> str:
        return f"PARTITION BY {column(UNIT)} ORDER BY {listed([self.hashed(self.keys), *self.keys])}"

    def hashed(self, parts: list[Sql]) -> Sql:
        """A keyed hash, hashed twice because once is not uniform."""
        return call("hash", call("hash", integer(self.salt), column(UNIT), *parts))

    def first_groups(self, bounded: Sql) -> Sql:
        if not self.release.ranked:
            return bounded
        # BETWEEN and not <=: DuckDB turns the latter into a top-N that needs far more memory.
        first = f"{column(GROUP_RANK)} BETWEEN 1 AND {integer(self.release.groups)}"
        return Sql(f"SELECT * FROM ({bounded}) AS _below WHERE {first}")

    def by_keys(self, columns: list[Sql], below: Sql) -> Sql:
        query = select(columns, below)
        return Sql(f"{query} GROUP BY {listed(self.keys)}") if self.keys else query

    # -- values themselves --------------------------------------------------------------------------------------------

    def values(self, argument: Expression, *, distinct: bool) -> Sql:
        """_unit, the keys and a value, or NULL, for each row that counts: each unit's first `rows`, in its groups."""
        release, value = self.release, column(VALUE)
        written = (emit_value if distinct else emit)(argument, release.knowledge.always)
        facts = release.knowledge.always_of(argument)
        if isinstance(argument.type, Double) and (facts.low is None or facts.high is None):
            written = finite(written)
        rows = self.rows([named(written, VALUE)], [argument])
        if release.one_row_per_unit:
            return rows
        # NULL is no value, but where a unit has nothing else the group is one of its groups all the same.
        order = f"{value} IS NULL, {self.hashed([*self.keys, value])}, {value}"
        place = Sql(f"row_number() OVER (PARTITION BY {self.unit_and_keys} ORDER BY {order})")
        kept = [column(UNIT), *self.keys, value]
        columns = [*kept, named(place, VALUE_RANK)]
        if release.ranked:
            # All rows of a group have the same rank here, and the same as on the other branches.
            columns.append(named(Sql(f"dense_rank() OVER ({self.by_hash})"), GROUP_RANK))
        own = Sql(f"SELECT DISTINCT * FROM ({rows}) AS _below") if distinct else rows
        first = f"{value} IS NOT NULL AND {column(VALUE_RANK)} BETWEEN 1 AND {integer(release.rows)}"
        return Sql(f"{select(kept, self.first_groups(select(columns, own)))} WHERE {first}")

    def over_distinct(self, base: Expression) -> Sql:
        values = self.values(base, distinct=True)
        different = Sql(f"SELECT DISTINCT {listed([*self.keys, column(VALUE)])} FROM ({values}) AS _below")
        return self.by_keys([*self.keys, *self.distinct_totals(base)], different)

    def distinct_totals(self, base: Expression) -> list[Sql]:
        known = {VALUE: self.release.knowledge.always_of(base)}
        renamed = {base: Column(VALUE, base.type)}
        totals = []
        for bounded in self.release.measures:
            measure = bounded.measure
            if isinstance(measure, OverDistinct) and measure.base == base:
                value = measure.inner.input(emit(substituted(measure.inner.argument, renamed), known))
                total = call("count" if isinstance(measure.inner, CountValues) else "sum", value)
                totals.append(named(saturated(total), bounded.column))
        return totals

    # -- all branches side by side ------------------------------------------------------------------------------------

    def together(self, branches: list[Sql]) -> Sql:
        """Sorted by key, since the order of an unsorted result could tell about a group that is not shown."""
        release = self.release
        if not self.keys:
            sources = [f"({branch}) AS found_{number}" for number, branch in enumerate(branches)]
            columns = listed([*(column(part.column) for part in release.measures), *map(column, self.profiles)])
            return branches[0] if len(branches) == 1 else Sql(f"SELECT {columns} FROM {' CROSS JOIN '.join(sources)}")
        order = f"ORDER BY {', '.join(f'{key} NULLS LAST' for key in self.keys)}"
        if release.domain is None and len(branches) == 1:
            return Sql(f"{branches[0]} {order}")
        if release.domain is not None:
            branches = [domain_sql(release.domain, release.key_names), *branches]
        first, *others = (Sql(f"({branch}) AS found_{number}") for number, branch in enumerate(branches))
        joined = [
            f"LEFT JOIN {other} ON {self.same_keys('found_0', f'found_{number + 1}')}"
            for number, other in enumerate(others)
        ]
        keys = [named(column(name, "found_0"), name) for name in release.key_names]
        totals = [named(call("coalesce", column(part.column), integer(0)), part.column) for part in release.measures]
        columns = listed([*keys, *totals, *map(column, self.profiles)])
        return Sql(f"SELECT {columns} FROM {first} {' '.join(joined)} {order}")

    @property
    def profiles(self) -> list[str]:
        return [name for drawn in self.release.statistics for name in drawn.profile]

    def same_keys(self, left: str, right: str) -> str:
        same = (
            binary(column(name, left), "IS NOT DISTINCT FROM", column(name, right)) for name in self.release.key_names
        )
        return " AND ".join(same) or "true"


def row_total(name: str, measure: ByUnit) -> Sql:
    match measure:
        case CountUnits() | CountRows():
            return Sql("count(*)")
        case CountUnitsWith() | CountValues():
            return call("count", column(name))
        case SumValues():
            value = column(name)
            return call("sum", when(Sql(f"{value} IS NOT NULL"), measure.held(value, 1)) if measure.group else value)
        case UnitsBeyond(SumValues()):
            return call("sum", measure.outside(column(name), 1))
        case UnitsBeyond():
            return integer(0)  # one row is never too many

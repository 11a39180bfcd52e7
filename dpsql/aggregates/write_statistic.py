"""The engine SQL of a statistic's profile: one row per group, the keys first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.aggregates.statistic import Average, Matched, Mode, Quantile
from dpsql.aggregates.write_cross_unit import matched_sql
from dpsql.engine_sql.build import (
    UNIT,
    WIDE,
    apply,
    count,
    fields,
    in_64_bits,
    integer,
    nonzero,
    select,
    test,
    total,
    wide,
)
from dpsql.engine_sql.tree import AroundRank, Constant, Field, Fold, Named, Ordered, Part, Select, Table
from dpsql.expressions.fixed_point import clamps_column, in_fixed_point
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpsql.aggregates.release import Drawn
    from dpsql.aggregates.write_release import Writer
    from dpsql.engine_sql.tree import Query

VALUE = "_value"


def profile_sql(writer: Writer, drawn: Drawn) -> Query:
    match drawn.statistic:
        case Quantile():
            return _around_rank(writer, drawn, drawn.statistic)
        case Mode():
            return _occurrences(writer, drawn, drawn.statistic)
        case Average():
            return _mean(writer, drawn, drawn.statistic)
        case Matched():
            return matched_sql(writer, drawn, drawn.statistic)


def with_values_once(branches: Sequence[Query]) -> tuple[tuple[Part, ...], list[Query]]:
    """Parts with the values that several profiles look at, as those of MIN(x) and MAX(x) do, and profiles over these.

    Where no unit has two rows nothing is chosen among them, and they are read again in no time.
    """
    profiles = [branch for branch in branches if isinstance(branch, AroundRank) and not branch.single]
    often = [values for values, times in Counter(profile.values for profile in profiles).items() if times > 1]
    names = {values: f"_values_{number}" for number, values in enumerate(often)}
    parts = tuple(Part(name, values, kept=True) for values, name in names.items())
    return parts, [_reading(branch, names) for branch in branches]


def _reading(branch: Query, names: Mapping[Query, str]) -> Query:
    if not isinstance(branch, AroundRank) or branch.values not in names:
        return branch
    columns = fields([UNIT, *branch.keys, branch.value])
    return replace(branch, values=Select(tuple(columns), Table(names[branch.values])))


def _around_rank(writer: Writer, drawn: Drawn, statistic: Quantile) -> Query:
    """A quantile needs the values around one rank, and those alone."""
    release, grid, kind = writer.release, statistic.grid, statistic.argument.type
    points, counts, below, rows = drawn.profile
    known = release.knowledge.properties
    # Clamped as points, which keeps the order: the ranks of what is stored are those of what it is clamped to.
    stored = clamps_column(statistic.argument, known, grid.quantum, grid.low, grid.high)
    return AroundRank(
        values=writer.values(statistic.argument, distinct=False, stored=stored),
        keys=tuple(writer.key_names),
        value=VALUE,
        kind=kind,
        fraction=statistic.fraction,
        reach=drawn.column,
        point=in_fixed_point(Field(VALUE, kind=kind), kind, grid.quantum, grid.low, grid.high),
        names=(points, counts, below, rows),
        most_rows=release.rows,
        single=release.one_row_per_unit,
    )


def _occurrences(writer: Writer, drawn: Drawn, statistic: Mode) -> Query:
    """Which of the public values occur, by their place in the list, and how often."""
    points, counts = drawn.profile
    kind = statistic.argument.type
    value, point = Field(VALUE, kind=kind), Field("_point", kind=Integer())
    values = writer.values(statistic.argument, distinct=False)
    columns = [*writer.shown_keys, Named(value, VALUE), Named(count(), "_count")]
    by_value = select(columns, values, group_by=[*writer.keys, value])
    place = apply("position", value, *(Constant(possible, kind) for possible in statistic.values), kind=Integer())
    placed = select([*writer.shown_keys, *fields(["_count"]), Named(place, "_point")], by_value)
    lists = [
        Named(Fold("collect", (Field(part),), where=test("is not null", point), order_by=(Ordered(point),)), name)
        for part, name in (("_point", points), ("_count", counts))
    ]
    return writer.by_keys(lists, placed)


def _mean(writer: Writer, drawn: Drawn, statistic: Average) -> Query:
    """The sum from the lowest value, divided by the rows: the whole part, the rest, and the rows."""
    whole, rest, rows = drawn.profile
    grid, finer, kind = statistic.grid, statistic.finer, statistic.argument.type
    low, high = grid.low // finer, grid.high // finer
    value = Field(VALUE, kind=kind)
    point = wide(in_fixed_point(value, kind, grid.quantum * finer, low, high))
    summed = total(apply("-", point, integer(low), kind=WIDE))
    columns = [Named(summed, "_total"), Named(count(value), "_rows")]
    by_group = writer.by_keys(columns, writer.values(statistic.argument, distinct=False))
    divisor = nonzero(Field("_rows", kind=Integer()), integer(0))
    parts = [(name, apply(sign, Field("_total", kind=WIDE), divisor)) for sign, name in (("//", whole), ("%", rest))]
    divided = [Named(in_64_bits(apply("coalesce", part, integer(0), kind=WIDE)), name) for name, part in parts]
    return select([*writer.shown_keys, *divided, Named(Field("_rows"), rows)], by_group)

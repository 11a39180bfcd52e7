"""The engine SQL of a statistic's profile: one row per group, the keys first.

A quantile needs the values around one rank, and those alone:

    _values   what each unit may bring: a value per row
    _guess    from one unit in 64: two fences that should hold the rank and `reach` ranks on both sides
    _counted  how many values are below, on and above the fences; those between them, sorted
    _again    the same without fences, for groups where they do not hold the ranks

so a guess that was wrong costs time and nothing else. Values become points of the grid only at the end: that keeps
their order. Only the needed ranks leave the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.aggregates.statistic import Average, Matched, Mode, Quantile
from dpsql.aggregates.write_matched import matched_sql
from dpsql.expressions.quanta import in_quanta
from dpsql.expressions.write import Sql, call, column, engine_type, huge, integer, listed, literal, named, try_cast
from dpsql.relation.write import select
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from dpsql.aggregates.release import Drawn
    from dpsql.aggregates.write_release import Writer

VALUE = "_value"
SAMPLED = 64
"""One unit in so many is in the sample that the fences come from."""
CHANCE = 2
"""A sampled rank is expected to be off by less than this times the root of the sample: four standard deviations."""
MARGIN = 2
"""Ranks to spare where they are compared as doubles."""


def profile_sql(writer: Writer, drawn: Drawn, reach: int) -> Sql:
    match drawn.statistic:
        case Quantile():
            return QuantileWriter(writer, drawn, drawn.statistic, reach).sql()
        case Mode():
            return _occurrences(writer, drawn, drawn.statistic)
        case Average():
            return _mean(writer, drawn, drawn.statistic)
        case Matched():
            return matched_sql(writer, drawn, drawn.statistic)


@dataclass(frozen=True)
class QuantileWriter:
    writer: Writer
    drawn: Drawn
    statistic: Quantile
    reach: int

    def sql(self) -> Sql:
        kept = "NOT MATERIALIZED" if self.writer.release.one_row_per_unit else "MATERIALIZED"
        parts = {
            f"_values AS {kept}": self.writer.values(self.statistic.argument, distinct=False),
            "_guess AS MATERIALIZED": self.guess(),
            "_counted AS MATERIALIZED": self.counted(self.fenced()),
            "_again AS MATERIALIZED": Sql(f"{self.counted(self.unfenced())} WHERE _rows > 0"),
        }
        before = ", ".join(f"{name} ({sql})" for name, sql in parts.items())
        found = Sql(f"SELECT * FROM _counted WHERE {self.holds} UNION ALL SELECT * FROM _again")
        return Sql(f"WITH {before} {self.collected(found)}")

    def guess(self) -> Sql:
        """Two fences for each group that was sampled; none where the sample does not reach as far."""
        keys, fraction = self.writer.keys, literal(self.statistic.fraction, Double())
        sample = Sql(f"SELECT * FROM _values WHERE {self.writer.hashed([])} & {SAMPLED - 1} = 0")
        sampled = self.writer.by_keys(
            [*keys, Sql(f"list_sort(list({VALUE}) FILTER (WHERE {VALUE} IS NOT NULL)) AS _sample")], sample
        )
        off = f"{self.reach // SAMPLED + 1} + {CHANCE} * sqrt({self.writer.release.rows} * len(_sample))"
        low = try_cast(Sql(f"floor({fraction} * len(_sample) - ({off}))"), Integer())
        high = try_cast(Sql(f"ceil({fraction} * len(_sample) + ({off}))"), Integer())
        fences = [
            Sql(f"CASE WHEN {low} >= 1 THEN _sample[{low}] END AS _low"),
            Sql(f"CASE WHEN {high} <= len(_sample) THEN _sample[{high}] END AS _high"),
        ]
        return select([*keys, *fences], sampled)

    def fenced(self) -> tuple[Sql, Sql, Sql]:
        """The values with the fences of their group, and what these are."""
        same = self.writer.same_keys("_values", "_guess")
        join = f"LEFT JOIN _guess ON {same}" if self.writer.keys else "CROSS JOIN _guess"
        return Sql(f"SELECT _values.*, _low, _high FROM _values {join}"), Sql("_low"), Sql("_high")

    def unfenced(self) -> tuple[Sql, Sql, Sql]:
        """The values of those groups whose fences do not hold."""
        nothing = Sql(f"CAST(NULL AS {engine_type(self.statistic.argument.type)})")
        failed, same = f"SELECT * FROM _counted WHERE NOT ({self.holds})", self.writer.same_keys("_values", "_failed")
        return Sql(f"SELECT _values.* FROM _values SEMI JOIN ({failed}) AS _failed ON {same}"), nothing, nothing

    def counted(self, fenced: tuple[Sql, Sql, Sql]) -> Sql:
        """What lies where; a fence that is NULL has nothing on it and nothing beyond."""
        source, low, high = fenced
        inside = f"{VALUE} IS NOT NULL AND ({VALUE} > {low}) IS NOT FALSE AND ({VALUE} < {high}) IS NOT FALSE"
        columns = [
            Sql(f"count({VALUE}) AS _rows"),
            _count(f"{VALUE} < {low}", "_under"),
            _count(f"{VALUE} = {low}", "_on_low"),
            _count(f"{VALUE} = {high} AND ({VALUE} > {low}) IS NOT FALSE", "_on_high"),
            Sql(f"any_value({low}) AS _low"),
            Sql(f"any_value({high}) AS _high"),
            Sql(f"list_sort(coalesce(list({VALUE}) FILTER (WHERE {inside}), [])) AS _inside"),
        ]
        counted = self.writer.by_keys([*self.writer.keys, *columns], source)
        middle = Sql(f"{literal(self.statistic.fraction, Double())} * _rows")
        ranks = [
            Sql(f"{try_cast(call('floor', middle), Integer())} - {self.reach + MARGIN} AS _first"),
            Sql(f"{try_cast(call('ceil', middle), Integer())} + {self.reach + MARGIN} AS _last"),
            Sql("_under + _on_low AS _before"),
            Sql("_under + _on_low + len(_inside) AS _upto"),
        ]
        return select([Sql("*"), *ranks], counted)

    @property
    def holds(self) -> str:
        """Whether every rank that is needed lies on the fences or between them."""
        return "_under < greatest(_first, 1) AND _upto + _on_high >= least(_last, _rows)"

    def collected(self, found: Sql) -> Sql:
        """The points of the needed ranks, how often each occurs, what is below them, and the number of rows."""
        points, counts, below, rows = self.drawn.profile
        grid = self.statistic.grid
        point = in_quanta(column(VALUE), self.statistic.argument.type, grid.quantum, grid.low, grid.high)
        first, last = "greatest(_first - _before, 1)", "greatest(least(_last - _before, len(_inside)), 0)"
        inside = f"_inside[{first}:{last}]"
        low, high = "_first <= _before AND _on_low > 0", "_last > _upto AND _on_high > 0"

        def joined(on_low: str, between: str, on_high: str) -> Sql:
            sides = (f"CASE WHEN {low} THEN [{on_low}] ELSE [] END", f"CASE WHEN {high} THEN [{on_high}] ELSE [] END")
            return Sql(f"list_concat({sides[0]}, {between}, {sides[1]})")

        values = joined("_low", inside, "_high")
        columns = [
            *self.writer.keys,
            named(Sql(f"list_transform({values}, lambda {VALUE}: {point})"), points),
            named(joined("_on_low", f"list_transform({inside}, lambda {VALUE}: 1)", "_on_high"), counts),
            named(Sql(f"CASE WHEN {low} THEN _under ELSE least(greatest(_before, _first - 1), _upto) END"), below),
            named(Sql("_rows"), rows),
        ]
        return select(columns, found)


def _count(condition: str, name: str) -> Sql:
    """Twice as fast as count(*) FILTER (WHERE ...); over nothing it would be NULL."""
    return Sql(f"CAST(coalesce(count_if({condition}), 0) AS BIGINT) AS {name}")


def _by_point(part: str, name: str) -> Sql:
    """The parts of a group as a list, in the order of their points."""
    return named(Sql(f"list({part} ORDER BY _point) FILTER (WHERE _point IS NOT NULL)"), name)


def _occurrences(writer: Writer, drawn: Drawn, statistic: Mode) -> Sql:
    """Which of the public values occur, by their place in the list, and how often."""
    points, counts = drawn.profile
    kind = statistic.argument.type
    keys, value = writer.keys, column(VALUE)
    places = listed([literal(possible, kind) for possible in statistic.values])
    by_value = Sql(
        f"{select([*keys, value, Sql('count(*) AS _count')], writer.values(statistic.argument, distinct=False))} "
        f"GROUP BY {listed([*keys, value])}"
    )
    placed = select(
        [*keys, Sql("_count"), Sql(f"CAST(list_position([{places}], {value}) - 1 AS BIGINT) AS _point")], by_value
    )
    return writer.by_keys([*keys, _by_point("_point", points), _by_point("_count", counts)], placed)


def _mean(writer: Writer, drawn: Drawn, statistic: Average) -> Sql:
    """The sum from the lowest value, divided by the rows: the whole part, the rest, and the rows."""
    whole, rest, rows = drawn.profile
    grid, finer = statistic.grid, statistic.finer
    low, high = grid.low // finer, grid.high // finer
    point = in_quanta(column(VALUE), statistic.argument.type, grid.quantum * finer, low, high)
    total = Sql(f"sum({huge(point)} - {integer(low)})")
    columns = [named(total, "_total"), named(call("count", column(VALUE)), "_rows")]
    summed = writer.by_keys([*writer.keys, *columns], writer.values(statistic.argument, distinct=False))
    divided = [
        named(try_cast(Sql(f"coalesce(_total {operator} nullif(_rows, 0), 0)"), Integer()), name)
        for operator, name in (("//", whole), ("%", rest))
    ]
    return select([*writer.keys, *divided, named(Sql("_rows"), rows)], summed)

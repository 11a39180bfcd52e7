"""The engine SQL of a statistic's profile: one row per group, the keys first.

A quantile needs the values around one rank, and those alone:

    _values   what each unit may bring: a value per row
    _guess    from one value in 64: two fences that should hold the rank and `reach` ranks on both sides
    _checked  how many values there are, and beyond each fence; for a fence that is too near the last value stands in
    points    the values between the fences as points of the grid, and how often each occurs

so a guess that was wrong costs time and nothing else. Values become points only at the end: that keeps their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.statistic import Average, Matched, Mode, Quantile
from dpsql.aggregates.write_matched import matched_sql
from dpsql.expressions.quanta import in_quanta, saturated
from dpsql.expressions.write import Sql, call, column, integer, listed, literal, named
from dpsql.relation.write import select
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from dpsql.aggregates.release import Drawn
    from dpsql.aggregates.write_release import Writer

VALUE = "_value"
SAMPLED = 64
FENCES = 12
"""Fences are sought at the fractions p +- 2^-j, j = 0 ... 11, of the sampled values."""
CHANCE = 3
"""Standard deviations by which a sampled rank is expected to be off at most."""
MARGIN = 2
"""Ranks to spare where they are compared as doubles."""


def profile_sql(writer: Writer, drawn: Drawn, reach: int) -> Sql:
    match drawn.statistic:
        case Quantile():
            return QuantileWriter(writer, drawn, drawn.statistic, reach).sql()
        case Mode():
            return _counted(writer, drawn, drawn.statistic)
        case Average():
            return _summed(writer, drawn, drawn.statistic)
        case Matched():
            return matched_sql(writer, drawn, drawn.statistic)


@dataclass(frozen=True)
class QuantileWriter:
    writer: Writer
    drawn: Drawn
    statistic: Quantile
    reach: int

    def sql(self) -> Sql:
        points, counts, below, rows = self.drawn.profile
        parts = {
            "_values": self.writer.values(self.statistic.argument, distinct=False),
            "_guess": self.guess(),
            "_checked": self.checked(),
            "_points": self.points(),
        }
        collected = [
            *(column(name, "_checked") for name in self.writer.release.key_names),
            named(Sql("_points"), points),
            named(Sql("_counts"), counts),
            named(Sql("_under"), below),
            named(Sql("_rows"), rows),
        ]
        same = self.writer.same_keys("_checked", "_points")
        before = ", ".join(f"{name} AS ({sql})" for name, sql in parts.items())
        return Sql(f"WITH {before} SELECT {listed(collected)} FROM _checked JOIN _points ON {same}")

    def guess(self) -> Sql:
        """Two fences for each group that was sampled."""
        keys = self.writer.keys
        sought = [self.statistic.fraction + side * Fraction(1, 2**j) for j in range(FENCES) for side in (-1, 1)]
        fractions = listed([literal(min(max(part, Fraction(0)), Fraction(1)), Double()) for part in sought])
        columns = [*keys, Sql("count(*) AS _sampled"), Sql(f"quantile_disc({VALUE}, [{fractions}]) AS _fences")]
        sample = Sql(f"SELECT * FROM _values WHERE hash({VALUE}) & {SAMPLED - 1} = 0")
        return select([*keys, self.nearest(1, "_low"), self.nearest(2, "_high")], self.writer.by_keys(columns, sample))

    def nearest(self, side: int, name: str) -> Sql:
        """The nearest fence that should be far enough."""
        need = f"({integer(self.reach // SAMPLED + 1)} + {CHANCE} * sqrt(_sampled))"
        cases = (f"WHEN _sampled >= {need} * {2**j} THEN _fences[{2 * j + side}]" for j in reversed(range(FENCES)))
        return Sql(f"CASE {' '.join(cases)} END AS {name}")

    def checked(self) -> Sql:
        """The number of values, those fences that are far enough, and how many values are under the lower one."""
        keys, need = self.writer.keys, integer(self.reach + MARGIN)
        source, low, high = self.fenced("LEFT JOIN", "_guess")
        counts = [
            Sql("count(*) AS _rows"),
            Sql(f"sum(CASE WHEN {VALUE} < {low} THEN 1 ELSE 0 END) AS _beyond_low"),
            Sql(f"sum(CASE WHEN {VALUE} > {high} THEN 1 ELSE 0 END) AS _beyond_high"),
            *(Sql(f"{end}({VALUE}) AS _{end}") for end in ("min", "max")),
            *(Sql(f"any_value({fence}) AS {name}") for fence, name in ((low, "_low"), (high, "_high"))),
        ]
        counted = self.writer.by_keys([*keys, *counts], source)
        rank = f"{literal(self.statistic.fraction, Double())} * _rows"
        low_holds = f"_low IS NOT NULL AND _beyond_low + {need} <= {rank}"
        high_holds = f"_high IS NOT NULL AND _rows - _beyond_high - {need} >= {rank}"
        fences = [
            Sql(f"CASE WHEN {low_holds} THEN _low ELSE _min END AS _low"),
            Sql(f"CASE WHEN {high_holds} THEN _high ELSE _max END AS _high"),
            Sql(f"CAST(CASE WHEN {low_holds} THEN _beyond_low ELSE 0 END AS BIGINT) AS _under"),
        ]
        return select([*keys, Sql("_rows"), *fences], counted)

    def points(self) -> Sql:
        """The points between the fences, in order, and how often each occurs."""
        grid, keys = self.statistic.grid, self.writer.keys
        source, low, high = self.fenced("JOIN", "_checked")
        between = Sql(f"SELECT * FROM ({source}) AS _below WHERE {VALUE} BETWEEN {low} AND {high}")
        point = in_quanta(column(VALUE), self.statistic.argument.type, grid.quantum, grid.low, grid.high)
        counted = Sql(f"{select([*keys, named(point, '_point'), Sql('count(*) AS _count')], between)} GROUP BY ALL")
        return self.writer.by_keys([*keys, _listed("_point", "_points"), _listed("_count", "_counts")], counted)

    def fenced(self, join: str, table: str) -> tuple[Sql, Sql, Sql]:
        """The values with the fences of their group, and how these are called."""
        if not self.writer.keys:
            # One group: fences are constants, which is much faster than a join.
            low, high = (Sql(f"(SELECT {end} FROM {table})") for end in ("_low", "_high"))
            return Sql("SELECT * FROM _values"), low, high
        same = self.writer.same_keys("_values", table)
        return Sql(f"SELECT _values.*, _low, _high FROM _values {join} {table} ON {same}"), Sql("_low"), Sql("_high")


def _listed(part: str, name: str) -> Sql:
    return named(Sql(f"list({part} ORDER BY _point) FILTER (WHERE _point IS NOT NULL)"), name)


def _counted(writer: Writer, drawn: Drawn, statistic: Mode) -> Sql:
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
    return writer.by_keys([*keys, _listed("_point", points), _listed("_count", counts)], placed)


def _summed(writer: Writer, drawn: Drawn, statistic: Average) -> Sql:
    total, rows = drawn.profile
    grid, finer = statistic.grid, statistic.finer
    ends = grid.low // finer, grid.high // finer
    point = in_quanta(column(VALUE), statistic.argument.type, grid.quantum * finer, *ends)
    columns = [named(saturated(call("sum", point)), total), named(Sql("count(*)"), rows)]
    return writer.by_keys([*writer.keys, *columns], writer.values(statistic.argument, distinct=False))

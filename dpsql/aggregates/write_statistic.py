"""The engine SQL of a statistic's profile: one row per group, the keys first.

A quantile needs the values around one rank, and those alone:

    _values   what each unit may bring: a value per row
    _guess    from one value in sixteen: two fences that should hold the rank and `reach` ranks on both sides
    _checked  how many values there are, and beyond each fence; a fence that is too near is dropped
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
from dpsql.expressions.write import Sql, call, column, integer, listed, literal, named, when
from dpsql.relation.write import select
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from dpsql.aggregates.release import Drawn
    from dpsql.aggregates.write_release import Writer

VALUE = "_value"
SAMPLED = 16
STEP, FENCES = 16, 6
"""Fences are sought at the fractions p +- 16^-j, j = 0 ... 5, of the sampled values."""
CHANCE = 4
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
        }
        collected = [
            _listed("_point", points),
            _listed("_count", counts),
            named(Sql("CAST(coalesce(sum(_count) FILTER (WHERE _point IS NULL), 0) AS BIGINT)"), below),
            named(Sql("any_value(_rows)"), rows),
        ]
        before = ", ".join(f"{name} AS ({sql})" for name, sql in parts.items())
        return Sql(f"WITH {before} {self.writer.by_keys([*self.writer.keys, *collected], self.points())}")

    def guess(self) -> Sql:
        """Two fences for each group that was sampled."""
        keys, value = self.writer.keys, column(VALUE)
        sought = [self.statistic.fraction + side * Fraction(1, STEP**j) for j in range(FENCES) for side in (-1, 1)]
        fractions = listed([literal(min(max(part, Fraction(0)), Fraction(1)), Double()) for part in sought])
        columns = [*keys, Sql("count(*) AS _sampled"), Sql(f"quantile_disc({value}, [{fractions}]) AS _fences")]
        sample = Sql(f"SELECT * FROM _values WHERE hash({value}) % {SAMPLED} = 0")
        return select([*keys, self.nearest(1, "_low"), self.nearest(2, "_high")], self.writer.by_keys(columns, sample))

    def nearest(self, side: int, name: str) -> Sql:
        """The nearest fence that should be far enough."""
        need = f"({integer(self.reach // SAMPLED + 1)} + {CHANCE} * sqrt(_sampled))"
        cases = (f"WHEN _sampled >= {need} * {STEP**j} THEN _fences[{2 * j + side}]" for j in reversed(range(FENCES)))
        return Sql(f"CASE {' '.join(cases)} END AS {name}")

    def checked(self) -> Sql:
        """The number of values, and those fences that are far enough."""
        keys, value, need = self.writer.keys, column(VALUE), integer(self.reach + MARGIN)
        same = self.writer.same_keys("_values", "_guess")
        fenced = Sql(f"SELECT _values.*, _low, _high FROM _values LEFT JOIN _guess ON {same}")
        counts = [
            Sql("count(*) AS _rows"),
            Sql(f"count(*) FILTER (WHERE {value} < _low) AS _under"),
            Sql(f"count(*) FILTER (WHERE {value} > _high) AS _over"),
            Sql("any_value(_low) AS _low"),
            Sql("any_value(_high) AS _high"),
        ]
        rank = f"{literal(self.statistic.fraction, Double())} * _rows"
        low = Sql(f"CASE WHEN _under + {need} <= {rank} THEN _low END AS _low")
        high = Sql(f"CASE WHEN _rows - _over - {need} >= {rank} THEN _high END AS _high")
        return select([*keys, Sql("_rows"), low, high], self.writer.by_keys([*keys, *counts], fenced))

    def points(self) -> Sql:
        """The points between the fences with their counts; what is below the lower fence counts as the point NULL."""
        value, grid = column(VALUE), self.statistic.grid
        point = in_quanta(value, self.statistic.argument.type, grid.quantum, grid.low, grid.high)
        keys = [column(name, "_values") for name in self.writer.release.key_names]
        columns = [*keys, Sql("_rows"), named(when(Sql(f"coalesce({value} >= _low, true)"), point), "_point")]
        return Sql(
            f"SELECT {listed([*columns, Sql('count(*) AS _count')])} "
            f"FROM _values JOIN _checked ON {self.writer.same_keys('_values', '_checked')} "
            f"WHERE coalesce({value} <= _high, true) GROUP BY ALL"
        )


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
    grid = statistic.grid
    point = in_quanta(column(VALUE), statistic.argument.type, grid.quantum, grid.low, grid.high)
    columns = [named(saturated(call("sum", point)), total), named(Sql("count(*)"), rows)]
    return writer.by_keys([*writer.keys, *columns], writer.values(statistic.argument, distinct=False))

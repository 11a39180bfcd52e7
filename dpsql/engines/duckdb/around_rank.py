"""The values around one rank, by DuckDB's lists:

    _values   what each unit may bring: a value per row
    _guess    from one unit in 32: two fences that should hold the rank and `reach` ranks on both sides
    _counted  how many values are below, on and above the fences; those between them, sorted
    _again    the same without fences, for groups where they do not hold the ranks

so a guess that was wrong costs time and nothing else. Values become points only at the end: that keeps their order.
Only the needed ranks leave the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import SALT, UNIT, apply
from dpsql.engine_sql.tree import Blank, Constant, Field
from dpsql.engines.quoting import quoted
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import AroundRank
    from dpsql.engines.render import Renderer

SAMPLED = 32
"""One unit in so many is in the sample that the fences come from."""
CHANCE = 2
"""A sampled rank is expected to be off by less than this times the root of the sample: four standard deviations."""
MARGIN = 2
"""Ranks to spare where they are compared as doubles."""


def around_rank(renderer: Renderer, profile: AroundRank) -> str:
    return Writer(renderer, profile).sql()


@dataclass(frozen=True)
class Writer:
    renderer: Renderer
    profile: AroundRank

    @property
    def keys(self) -> list[str]:
        return [quoted(name) for name in self.profile.keys]

    @property
    def value(self) -> str:
        return quoted(self.profile.value)

    @property
    def reach(self) -> int:
        return self.renderer.number(self.profile.reach)

    @property
    def fraction(self) -> str:
        return self.renderer.term(Constant(self.profile.fraction, Double()))

    def sql(self) -> str:
        kept = "NOT MATERIALIZED" if self.profile.single else "MATERIALIZED"
        parts = {
            f"_values AS {kept}": self.renderer.query(self.profile.values),
            "_guess AS MATERIALIZED": self.guess(),
            "_counted AS MATERIALIZED": self.fences_counted(),
            "_again AS MATERIALIZED": f"{self.unfenced()} WHERE _rows > 0",
        }
        before = ", ".join(f"{name} ({sql})" for name, sql in parts.items())
        found = f"SELECT * FROM _counted WHERE {self.HOLDS} UNION ALL SELECT * FROM _again"
        return f"WITH {before} {self.collected(found)}"

    def guess(self) -> str:
        """Two fences for each group that was sampled; none where the sample does not reach as far."""
        hashed = self.renderer.term(apply("one in 32", apply("keyed hash", Blank(SALT), Field(UNIT))))
        sample = f"SELECT * FROM _values WHERE {hashed}"
        values = f"list_sort(list({self.value}) FILTER (WHERE {self.value} IS NOT NULL)) AS _sample"
        off = f"{self.reach // SAMPLED + 1} + {CHANCE} * sqrt({self.profile.most_rows} * len(_sample))"
        low = f"TRY_CAST(floor({self.fraction} * len(_sample) - ({off})) AS BIGINT)"
        high = f"TRY_CAST(ceil({self.fraction} * len(_sample) + ({off})) AS BIGINT)"
        # There is nothing at place 0, nor beyond the end; a negative place would be counted from there.
        fences = f"_sample[greatest({low}, 0)] AS _low", f"_sample[{high}] AS _high"
        return f"SELECT {', '.join([*self.keys, *fences])} FROM ({self.by_keys([values], sample)}) AS _below"

    def by_keys(self, columns: list[str], below: str) -> str:
        grouping = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return f"SELECT {', '.join([*self.keys, *columns])} FROM ({below}) AS _below{grouping}"

    def same_keys(self, one: str, other: str) -> str:
        return " AND ".join(f"({one}.{key} IS NOT DISTINCT FROM {other}.{key})" for key in self.keys) or "true"

    def with_fences(self, rows: str) -> str:
        """Values, or what is counted of a group's, beside its fences."""
        return f"{rows} LEFT JOIN _guess ON {self.same_keys(rows, '_guess')}" if self.keys else f"{rows}, _guess"

    def unfenced(self) -> str:
        """The values of those groups whose fences do not hold."""
        failed = f"SELECT * FROM _counted WHERE NOT ({self.HOLDS})"
        values = (
            f"SELECT _values.* FROM _values SEMI JOIN ({failed}) AS _failed ON {self.same_keys('_values', '_failed')}"
        )
        nothing = [f"CAST(0 AS BIGINT) AS {name}" for name in ("_under", "_on_low", "_on_high")]
        none = self.renderer.typed_null(self.profile.kind)
        sums = self.counted(values, nothing, f"{self.value} IS NOT NULL")
        return self.with_ranks(sums, f"{none} AS _low, {none} AS _high", "_below")

    def fences_counted(self) -> str:
        """A fence that is NULL has nothing on it and nothing beyond."""
        value = self.value
        columns = [
            _count(f"{value} < _low", "_under"),
            _count(f"{value} = _low", "_on_low"),
            _count(f"{value} = _high AND ({value} > _low) IS NOT FALSE", "_on_high"),
        ]
        inside = f"{value} IS NOT NULL AND ({value} > _low) IS NOT FALSE AND ({value} < _high) IS NOT FALSE"
        values = f"SELECT _values.*, _low, _high FROM {self.with_fences('_values')}"
        # Beside sums once more, which are few: to carry fences through the sums takes longer.
        return self.with_ranks(self.counted(values, columns, inside), "_low, _high", self.with_fences("_below"))

    def counted(self, values: str, fences: list[str], inside: str) -> str:
        """What lies where."""
        value = self.value
        columns = [
            f"count({value}) AS _rows",
            *fences,
            f"list_sort(coalesce(list({value}) FILTER (WHERE {inside}), [])) AS _inside",
        ]
        return self.by_keys(columns, values)

    def with_ranks(self, sums: str, fences: str, source: str) -> str:
        """The same with the fences and the ranks that are needed."""
        middle = f"{self.fraction} * _rows"
        ranks = (
            f"TRY_CAST(floor({middle}) AS BIGINT) - {self.reach + MARGIN} AS _first",
            f"TRY_CAST(ceil({middle}) AS BIGINT) + {self.reach + MARGIN} AS _last",
            "_under + _on_low AS _before",
            "_under + _on_low + len(_inside) AS _upto",
        )
        return f"WITH _below AS ({sums}) SELECT _below.*, {fences}, {', '.join(ranks)} FROM {source}"

    HOLDS = "_under < greatest(_first, 1) AND _upto + _on_high >= least(_last, _rows)"
    """Whether every rank that is needed lies on the fences or between them."""

    def collected(self, found: str) -> str:
        """The points of the needed ranks, how often each occurs, what is below them, and the number of rows."""
        points, counts, below, rows = map(quoted, self.profile.names)
        point = self.renderer.term(self.profile.point)
        first, last = "greatest(_first - _before, 1)", "greatest(least(_last - _before, len(_inside)), 0)"
        needed = (
            f"_inside[{first}:{last}] AS _between",
            "_first <= _before AND _on_low > 0 AS _with_low",
            "_last > _upto AND _on_high > 0 AS _with_high",
        )

        def joined(low: str, between: str, high: str) -> str:
            sides = f"CASE WHEN _with_low THEN [{low}] ELSE [] END", f"CASE WHEN _with_high THEN [{high}] ELSE [] END"
            return f"list_concat({sides[0]}, {between}, {sides[1]})"

        columns = [
            *self.keys,
            f"list_transform({joined('_low', '_between', '_high')}, lambda {self.value}: {point}) AS {points}",
            f"{joined('_on_low', f'list_transform(_between, lambda {self.value}: 1)', '_on_high')} AS {counts}",
            f"CASE WHEN _with_low THEN _under ELSE least(greatest(_before, _first - 1), _upto) END AS {below}",
            f"_rows AS {rows}",
        ]
        ranks = f"SELECT *, {', '.join(needed)} FROM ({found}) AS _below"
        return f"SELECT {', '.join(columns)} FROM ({ranks}) AS _below"


def _count(condition: str, name: str) -> str:
    """Twice as fast as count(*) FILTER (WHERE ...); over nothing it would be NULL."""
    return f"CAST(coalesce(count_if({condition}), 0) AS BIGINT) AS {name}"

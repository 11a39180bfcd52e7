"""The columns of a release: every measure and statistic that its answers are made of, each of them once.

How a measure becomes columns depends on what else is measured: it may lean on the number of units (from_middle.py), its
values may exclude those of others (one_of.py), and what units in too many groups add to it may be scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.few_rows import parted
from dpsql.aggregates.from_middle import from_middle
from dpsql.aggregates.measure import CountRows, CountUnits, CountUnitsWith, CountValues, OverDistinct
from dpsql.aggregates.one_of import one_of, scaled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.aggregates.measure import Measure
    from dpsql.aggregates.statistic import Statistic
    from dpsql.expressions.exclusive import Place
    from dpsql.expressions.tree import Expression


@dataclass(frozen=True)
class Columns:
    rows: int
    """So many of a unit's rows count in a group."""
    one_row_per_unit: bool
    units_counted: bool = False
    exclusive: Mapping[Expression, Place] = field(default_factory=dict)
    """Values that exclude each other."""
    scaled_to: tuple[int, int] | None = None
    """To how many groups units are scaled, and how many groups there are."""
    parted_to: int | None = None
    """How many rows of a unit count in full, where each of more counts for a part."""
    measures: dict[Measure, str] = field(default_factory=dict)
    statistics: dict[Statistic, str] = field(default_factory=dict)

    def column_of(self, measure: Measure) -> str:
        return self.measures.setdefault(self._by_rows(measure), f"m{len(self.measures)}")

    def drawn_as(self, statistic: Statistic) -> str:
        return self.statistics.setdefault(statistic, f"s{len(self.statistics)}")

    def linear_of(self, measure: Measure) -> Linear:
        """The measure as a weighted sum of columns."""
        counted, row_by_row = self._by_rows(measure), self.one_row_per_unit or self.parted_to is not None
        if (one := one_of(counted, self.exclusive, self.rows, row_by_row=row_by_row)) is not None:
            return Linear((self._weighed(one, Fraction(1, one.finer)),))
        parts = from_middle(measure, self.rows) if self.units_counted else ((measure, Fraction(1)),)
        return Linear(tuple(self._weighed(part, weight) for part, weight in parts))

    def _weighed(self, part: Measure, weight: Fraction) -> tuple[str, Fraction]:
        if self.parted_to is not None:
            of_rows = parted(part, self.parted_to)
            return self.column_of(of_rows), weight / of_rows.finer
        if self.scaled_to is None or isinstance(part, OverDistinct):
            return self.column_of(part), weight
        on_grid = scaled(part, *self.scaled_to, self.rows)
        return self.column_of(on_grid), weight / on_grid.finer

    def _by_rows(self, measure: Measure) -> Measure:
        """Where units have one row each, they are counted by their rows."""
        if self.one_row_per_unit and isinstance(measure, CountUnits):
            return CountRows()
        if self.one_row_per_unit and isinstance(measure, CountUnitsWith):
            return CountValues(measure.argument)
        return measure

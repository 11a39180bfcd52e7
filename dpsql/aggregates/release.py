"""A release: groups of people's rows, what is measured of each group, and how far one unit can move it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.disjoint import one_of, scaled
from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.heavy_units import parted
from dpsql.aggregates.measure import (
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    OneOf,
    OverDistinct,
    Parted,
    Quantile,
    Scaled,
    from_middle,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpsql.aggregates.disjoint import Place
    from dpsql.aggregates.estimate import Answer
    from dpsql.aggregates.measure import Measure, Statistic
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.relation.domain import Domain, ListedKeys
    from dpsql.relation.facts import Knowledge
    from dpsql.relation.relation import Aggregate
    from dpsql.schema.types import ColumnType

# -- columns -----------------------------------------------------------------------------------------------------------
# The columns of a release: every measure and statistic that its answers are made of, each of them once.
#
# How a measure becomes columns depends on what else is measured: it may lean on the number of units (`from_middle`),
# its values may exclude those of others (one_of.py), and what units in too many groups add to it may be scaled.


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


# -- release -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounded:
    """A measure as a column of the release, with its sensitivities in units of that column."""

    column: str
    measure: Measure
    l0: int
    linf: int
    groups: int
    """In L1 and L2 one unit moves all groups together no further than so many of them, each by `each`; in L2 alone, if
    it is scaled."""
    each: int
    level: int = 0
    """Of which level of totals it is."""
    sums: int = 1
    """`each` is the sum of so many parts, which may be spread over as many groups."""

    @property
    def place(self) -> tuple[tuple[int, int], int] | None:
        """Its bundle and its case there, if its values exclude those of others: these have one bound together."""
        measure = self.measure.inner if isinstance(self.measure, Parted) else self.measure
        return ((self.level, measure.bundle), measure.case) if isinstance(measure, OneOf) else None

    @property
    def box(self) -> tuple[int, ...]:
        """Measures of one box are moved together, each within its own bound: those of a level, or of a case."""
        bundle, case = self.place or ((self.level, -1), 0)
        return *bundle, case

    @property
    def times_alone(self) -> Fraction:
        """All rows of a unit, in one group, move it by so many times `each`."""
        return Fraction(self.linf, self.each) if self.each else Fraction(1)

    @property
    def is_scaled(self) -> bool:
        """Whether it is bounded in L2 alone, so that only Gaussian noise will do."""
        return isinstance(self.measure, Scaled)

    @property
    def l1(self) -> int:
        """By the inequality of Cauchy and Schwarz, where it is scaled."""
        return (math.isqrt(self.l0 * self.groups) + 1 if self.is_scaled else self.groups) * self.each

    @property
    def l2(self) -> float:
        return math.sqrt(self.groups) * self.each


@dataclass(frozen=True)
class Level:
    """Groups by some of the keys: ROLLUP, CUBE and GROUPING SETS ask for several. docs/proofs/totals.md.

    What a unit adds to all groups of a level is the sum of what it adds to the finest ones. It may meet in one of them,
    so a level is bounded as if it were one group.
    """

    kept: tuple[int, ...]
    """Which of the keys."""
    measures: tuple[Bounded, ...]
    """Those of the finest groups, summed; in the same order."""


LEVEL = "_level"
"""The column that says of which level a row is."""


def levels_of(totals: Sequence[tuple[int, ...]], keys: int, measures: tuple[Bounded, ...]) -> tuple[Level, ...]:
    """Each set of keys once."""
    found = dict.fromkeys(tuple(sorted(kept)) for kept in totals)
    return tuple(
        Level(kept, measures if len(kept) == keys else tuple(_summed(part, number) for part in measures))
        for number, kept in enumerate(found)
    )


def _summed(part: Bounded, number: int) -> Bounded:
    """All groups of one unit may be in one of the level."""
    moved, sums = part.groups * part.each, part.groups * part.sums
    column = f"{part.column}_{number}"
    return replace(part, column=column, l0=1, linf=moved, groups=1, each=moved, level=number + 1, sums=sums)


@dataclass(frozen=True)
class Drawn:
    """A statistic as a column of the release."""

    column: str
    statistic: Statistic

    @property
    def profile(self) -> list[str]:
        """The columns of the engine's answer that describe the group."""
        return [f"{self.column}_{part}" for part in self.statistic.parts]


def quantiles_in_order(statistics: tuple[Drawn, ...]) -> list[list[str]]:
    """The columns of quantiles of the same values, from the lowest fraction to the highest."""
    found: dict[object, dict[str, Fraction]] = {}
    for drawn in statistics:
        if isinstance(drawn.statistic, Quantile):
            found.setdefault(drawn.statistic.argument, {})[drawn.column] = drawn.statistic.fraction
    return [sorted(columns, key=columns.__getitem__) for columns in found.values()]


@dataclass(frozen=True, kw_only=True)
class Release:
    aggregate: Aggregate
    units: tuple[str, ...]
    """How the rows lead to their units, one for each table, for people to read."""
    knowledge: Knowledge
    domain: Domain | ListedKeys | None
    """The public groups; None when the keys are people's own and must be selected privately."""
    one_row_per_unit: bool
    groups: int
    """One unit reaches at most so many groups, each with at most `rows` rows."""
    rows: int
    few_rows: int | None
    """Units with no more rows, in all, count in full, wherever these are (few_rows.py); None where rows are not
    counted for that."""
    rows_per_unit: int | None
    """How many rows a unit can have at most, if the schema is right and says so."""
    measures: tuple[Bounded, ...]
    """Of the finest groups, as the engine gives them."""
    levels: tuple[Level, ...]
    """Where totals are asked for: all that is shown. None where the groups themselves are."""
    statistics: tuple[Drawn, ...]
    answers: tuple[Answer, ...]
    """One for each aggregate, over the columns of measures and statistics."""
    partition_selection: str | None
    """The column with the number of units, by which groups are shown or not; None where all are shown."""
    min_units: int | None
    """Groups with fewer units are not shown, if the analyst says so."""
    presumed: tuple[tuple[Expression, Properties], ...] = ()
    """What is aggregated and has no ends but those which the contribution bounds give it, and these (expected.py)."""

    @property
    def noised(self) -> tuple[Bounded, ...]:
        """The measures that get noise."""
        return tuple(part for level in self.levels for part in level.measures) if self.levels else self.measures

    @property
    def selecting(self) -> list[str]:
        """The columns by which groups are shown or not. All together are one group, which is always shown."""
        if self.partition_selection is None or not self.levels:
            return [] if self.partition_selection is None else [self.partition_selection]
        position = [part.column for part in self.measures].index(self.partition_selection)
        return [level.measures[position].column for level in self.levels if level.kept]

    @property
    def columns(self) -> list[str]:
        """The noisy columns."""
        return [part.column for part in self.measures] + [part.column for part in self.statistics]

    @property
    def keys(self) -> list[tuple[str, ColumnType]]:
        return [(name, key.type) for name, key in zip(self.key_names, self.aggregate.keys, strict=True)]

    @property
    def key_names(self) -> list[str]:
        return [f"_k{number}" for number in range(len(self.aggregate.keys))]

    @property
    def ranked(self) -> bool:
        """Whether a unit could reach more groups than may count, so that some have to be dropped."""
        all_reached = self.in_parts or (self.domain is not None and self.domain.size <= self.groups)
        return self.aggregate.grouped and not self.one_row_per_unit and not all_reached

    @property
    def in_parts(self) -> bool:
        """Whether every row of a unit with more than a few of them counts for a part."""
        return any(isinstance(part.measure, Parted) for part in self.measures)

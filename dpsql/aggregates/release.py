"""A release: groups of private rows, the measures of each group, and their sensitivities."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.aggregates.disjoint import disjoint, l2_clipped
from dpsql.aggregates.estimate import Linear
from dpsql.aggregates.heavy_units import down_weighted
from dpsql.aggregates.measure import (
    ClippedInL2,
    CountRows,
    CountUnits,
    CountUnitsWith,
    CountValues,
    Disjoint,
    DownWeighted,
    OverDistinct,
    Quantile,
    midpoint_shift,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpsql.aggregates.disjoint import CasePlace
    from dpsql.aggregates.estimate import Answer
    from dpsql.aggregates.measure import Measure, Statistic
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.relation.domain import Domain, ListedKeys
    from dpsql.relation.facts import ColumnFacts
    from dpsql.relation.relation import Aggregate
    from dpsql.schema.types import ColumnType

# -- columns -----------------------------------------------------------------------------------------------------------
# The columns of a release: every measure and statistic that its answers are made of, each of them once.
#
# A measure becomes one or two columns, which depend on the others: it may be recentred by the number of units
# (`midpoint_shift`), belong to a bundle of disjoint measures (`disjoint`), or be L2-clipped (`l2_clipped`).


@dataclass(frozen=True)
class Columns:
    rows: int
    """How many rows of a unit count in a group."""
    one_row_per_unit: bool
    units_counted: bool = False
    exclusive: Mapping[Expression, CasePlace] = field(default_factory=dict)
    """Disjoint values, and their places in bundles."""
    l2_clipped_to: tuple[int, int] | None = None
    """For L2 clipping: max_groups, and the number of all groups."""
    down_weighted_to: int | None = None
    """For down-weighted rows: up to how many rows of a unit count in full."""
    measures: dict[Measure, str] = field(default_factory=dict)
    statistics: dict[Statistic, str] = field(default_factory=dict)

    def column_of(self, measure: Measure) -> str:
        return self.measures.setdefault(self._by_rows(measure), f"m{len(self.measures)}")

    def drawn_as(self, statistic: Statistic) -> str:
        return self.statistics.setdefault(statistic, f"s{len(self.statistics)}")

    def linear_of(self, measure: Measure) -> Linear:
        """The measure as a weighted sum of columns."""
        counted, row_by_row = self._by_rows(measure), self.one_row_per_unit or self.down_weighted_to is not None
        if (one := disjoint(counted, self.exclusive, self.rows, row_by_row=row_by_row)) is not None:
            return Linear((self._weighed(one, Fraction(1, one.finer)),))
        parts = midpoint_shift(measure, self.rows) if self.units_counted else ((measure, Fraction(1)),)
        return Linear(tuple(self._weighed(part, weight) for part, weight in parts))

    def _weighed(self, part: Measure, weight: Fraction) -> tuple[str, Fraction]:
        if self.down_weighted_to is not None:
            of_rows = down_weighted(part, self.down_weighted_to)
            return self.column_of(of_rows), weight / of_rows.finer
        if self.l2_clipped_to is None or isinstance(part, OverDistinct):
            return self.column_of(part), weight
        on_grid = l2_clipped(part, *self.l2_clipped_to, self.rows)
        return self.column_of(on_grid), weight / on_grid.finer

    def _by_rows(self, measure: Measure) -> Measure:
        """The measure, counting rows in place of units if every unit has one row."""
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
    """One unit moves all groups together no further, in L1 and L2, than this many of them by `each`; in L2 only, if the
    measure is L2-clipped."""
    each: int
    level: int = 0
    """The number of its level of totals."""
    sums: int = 1
    """How many contributions `each` is the sum of; they may be in different groups."""

    @property
    def place(self) -> tuple[tuple[int, int], int] | None:
        """Its bundle of disjoint measures, which share one bound, and its case in it."""
        measure = self.measure.inner if isinstance(self.measure, DownWeighted) else self.measure
        return ((self.level, measure.bundle), measure.case) if isinstance(measure, Disjoint) else None

    @property
    def box(self) -> tuple[int, ...]:
        """The K-norm box of the measure: one unit moves all measures of a box at once, each within its own bound."""
        bundle, case = self.place or ((self.level, -1), 0)
        return *bundle, case

    @property
    def times_alone(self) -> Fraction:
        """The sensitivity in one group as a multiple of `each`."""
        return Fraction(self.linf, self.each) if self.each else Fraction(1)

    @property
    def is_l2_clipped(self) -> bool:
        """Whether only its L2 sensitivity is bounded, so that only Gaussian noise protects it."""
        return isinstance(self.measure, ClippedInL2)

    @property
    def l1(self) -> int:
        """The L1 sensitivity over all groups; by Cauchy and Schwarz, if the measure is L2-clipped."""
        return (math.isqrt(self.l0 * self.groups) + 1 if self.is_l2_clipped else self.groups) * self.each

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
    """The keys of the level."""
    measures: tuple[Bounded, ...]
    """The measures of the finest groups, summed, in the same order."""


LEVEL = "_level"
"""The column with the number of a row's level; of totals that a shown group names, plus the number of levels."""


def levels_of(totals: Sequence[tuple[int, ...]], keys: int, measures: tuple[Bounded, ...]) -> tuple[Level, ...]:
    """The distinct levels of ROLLUP, CUBE or GROUPING SETS."""
    found = dict.fromkeys(tuple(sorted(kept)) for kept in totals)
    return tuple(
        Level(kept, measures if len(kept) == keys else tuple(_summed(part, number) for part in measures))
        for number, kept in enumerate(found)
    )


def _summed(part: Bounded, number: int) -> Bounded:
    """The measure of a level, in which all groups of a unit may fall into one."""
    moved, sums = part.groups * part.each, part.groups * part.sums
    column = f"{part.column}_{number}"
    return replace(part, column=column, l0=1, linf=moved, groups=1, each=moved, level=number + 1, sums=sums)


@dataclass(frozen=True)
class Drawn:
    """A statistic as a column of the release."""

    column: str
    statistic: Statistic
    together: tuple[Fraction, ...] = ()
    """The fractions of all quantiles that are drawn together with it, from the lowest, if there are many of them."""
    leader: str | None = None
    """The column of the first of these, which has the profile of all of them; None if this is the first, or alone."""

    @property
    def profile(self) -> list[str]:
        """The columns of the group's profile."""
        return [f"{self.leader or self.column}_{part}" for part in self.statistic.parts]

    def rows_of(self, most: int) -> int:
        """How many values a unit has in a group at most, where it has `most` rows."""
        return 1 if isinstance(self.statistic, Quantile) and self.statistic.is_extreme else most

    @property
    def draws(self) -> int:
        """How many draws of one statistic it costs: quantiles that are drawn together cost one for each level."""
        return 0 if self.leader else max(1, len(self.together).bit_length())


MANY_QUANTILES = 9
"""From so many on, quantiles of the same values are drawn together by bisection."""


def drawn_together(statistics: Mapping[Statistic, str], is_bisected: Callable[[Statistic], bool]) -> tuple[Drawn, ...]:
    """The statistics; many quantiles of the same values share a profile. MIN and MAX aim at ranks, not at fractions."""
    found: dict[object, dict[Fraction, str]] = {}
    for statistic, column in statistics.items():
        if isinstance(statistic, Quantile) and 0 < statistic.fraction < 1 and is_bisected(statistic):
            found.setdefault((statistic.argument, statistic.grid), {})[statistic.fraction] = column
    many = {
        column: columns for columns in found.values() if len(columns) >= MANY_QUANTILES for column in columns.values()
    }
    drawn = []
    for statistic, column in statistics.items():
        columns = many.get(column, {})
        first = next(iter(columns.values()), column)
        drawn.append(Drawn(column, statistic, tuple(sorted(columns)), None if first == column else first))
    return tuple(drawn)


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
    """The path from rows to their units, for each table, for people to read."""
    facts: ColumnFacts
    domain: Domain | ListedKeys | None
    """The public groups; None when the keys are people's own and must be selected privately."""
    one_row_per_unit: bool
    groups: int
    """How many groups of a unit count, each with at most `rows` rows."""
    rows: int
    light_rows: int | None
    """Up to how many rows in total a unit counts in full; None if rows per unit are not counted."""
    rows_per_unit: int | None
    """The most rows that a unit can have if the schema is right; None if unbounded."""
    measures: tuple[Bounded, ...]
    """The measures of the finest groups."""
    levels: tuple[Level, ...]
    """The levels of totals; empty without ROLLUP, CUBE or GROUPING SETS."""
    statistics: tuple[Drawn, ...]
    answers: tuple[Answer, ...]
    """The answer of each aggregate, over the columns of measures and statistics."""
    partition_selection: str | None
    """The column with the number of units that selects groups; None if all groups are shown."""
    min_units: int | None
    """The least number of units that the analyst requires for a group to be shown."""
    least_people: int | None = None
    """The least number of people that the data owner requires for a group to be shown, except with BETA."""
    presumed: tuple[tuple[Expression, Properties], ...] = ()
    """The arguments without declared bounds, and the bounds that max_rows_per_group implies (relation/facts.py)."""

    @property
    def noised(self) -> tuple[Bounded, ...]:
        """The measures that receive noise."""
        return tuple(part for level in self.levels for part in level.measures) if self.levels else self.measures

    @property
    def selecting(self) -> list[str]:
        """The columns that select groups. The grand total is always shown."""
        if self.partition_selection is None or not self.levels:
            return [] if self.partition_selection is None else [self.partition_selection]
        position = [part.column for part in self.measures].index(self.partition_selection)
        return [level.measures[position].column for level in self.levels if level.kept]

    @property
    def names_totals(self) -> bool:
        """Whether a group that is shown names the totals that it is in, and so shows them: not if a least number of
        people is required of each."""
        return self.partition_selection is not None and bool(self.levels) and self.min_units is None

    def level_numbers(self, number: int) -> tuple[int, ...]:
        """What the column LEVEL says of the rows of one level."""
        return (number, number + len(self.levels)) if self.names_totals else (number,)

    @property
    def columns(self) -> list[str]:
        """The names of the noisy columns."""
        return [part.column for part in self.measures] + [part.column for part in self.statistics]

    @property
    def keys(self) -> list[tuple[str, ColumnType]]:
        return [(name, key.type) for name, key in zip(self.key_names, self.aggregate.keys, strict=True)]

    @property
    def key_names(self) -> list[str]:
        return [f"_k{number}" for number in range(len(self.aggregate.keys))]

    @property
    def ranked(self) -> bool:
        """Whether a unit could be in more groups than count, so that groups are ranked."""
        all_reached = self.is_down_weighted or (self.domain is not None and self.domain.size <= self.groups)
        return self.aggregate.grouped and not self.one_row_per_unit and not all_reached

    @property
    def is_down_weighted(self) -> bool:
        """Whether the rows of units with many rows are down-weighted."""
        return any(isinstance(part.measure, DownWeighted) for part in self.measures)

"""Statistics: what is taken of a group's values as a whole, and is no sum over people.

One unit can move a median across the whole range, so no fixed noise fits it. The engine describes the group by a
*profile* (the values around a rank, how often each value occurs, a sum and a count), and a mechanism draws the answer
from it: exponential, smooth, propose-test-release, stable. Values are whole numbers of a public grid throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from dpsql.aggregates.measure import SumValues
from dpsql.expressions.fixed_point import LARGEST

if TYPE_CHECKING:
    from dpsql.aggregates.measure import CountRows, CountValues
    from dpsql.expressions.properties import Value
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import CrossUnitJoin


@dataclass(frozen=True)
class Grid:
    """The points low, low + 1, ..., high, each worth `quantum`."""

    quantum: Fraction
    low: int
    high: int


@dataclass(frozen=True)
class Quantile:
    """The value at a rank; its profile is the distinct values around it, how often each occurs, and what is below."""

    argument: Expression
    grid: Grid
    fraction: Fraction

    parts: ClassVar[tuple[str, ...]] = ("points", "counts", "below", "rows")


@dataclass(frozen=True)
class Mode:
    """The most frequent of some public values; its profile is how often each occurs."""

    argument: Expression
    values: tuple[Value, ...]
    parts: ClassVar[tuple[str, ...]] = ("points", "counts")


@dataclass(frozen=True)
class Average:
    """The mean, where its noise shall follow the number of rows.

    Its profile is that number, and what the sum of the values, counted from the lowest, is divided by it: the whole
    part and the rest. The sum itself might leave 64 bits.
    """

    argument: Expression
    grid: Grid
    """Of the answer, which is finer than that of the values."""
    finer: int
    """So many steps of the answer are one of the values."""
    parts: ClassVar[tuple[str, ...]] = ("whole", "rest", "rows")


@dataclass(frozen=True)
class Matched:
    """How many pairs of rows of different people match, or the sum of a value over them.

    One unit has at most `left_rows` and `right_rows`; its profile is the total, and how often the most frequent key
    occurs on either side.
    """

    across: CrossUnitJoin
    measure: CountRows | CountValues | SumValues
    left_rows: int
    right_rows: int
    groups: int
    """There are no more than so many, and one unit can change all of them."""
    parts: ClassVar[tuple[str, ...]] = ("total", "left", "right")

    @property
    def grid(self) -> Grid:
        """Of the answer, whose only range is that of sums which leave the engine."""
        quantum = self.measure.quantum if isinstance(self.measure, SumValues) else Fraction(1)
        return Grid(quantum, -LARGEST, LARGEST)


Statistic: TypeAlias = Quantile | Mode | Average | Matched

"""The shape of an aggregate's answer: an estimate over measures and statistics, and the type that SQL gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from dpsql.aggregates.estimate import Estimate, Formula
    from dpsql.aggregates.measure import Measure
    from dpsql.aggregates.statistic import Statistic
    from dpsql.expressions.tree import Known
    from dpsql.schema.types import ColumnType


@dataclass(frozen=True)
class Test:
    """A proposed bound: where too many units exceed it, by the noisy count in `exceeding`, `clipped` is not shown."""

    exceeding: str
    clipped: str


@dataclass(frozen=True)
class Answer:
    estimate: Estimate | Formula
    type: ColumnType
    test: Test | None = None
    wide: bool = False
    """Whether a whole number is as wide as the engine makes a sum of integers."""


@dataclass(frozen=True)
class Context:
    """What an aggregate may look at: facts of columns, which columns are the unit, which counts are taken anyway."""

    known: Known
    unit_columns: frozenset[str]
    counted: frozenset[Measure]
    column_of: Callable[[Measure], str]
    """Gives the measure a column of the release; the same measure always the same one."""
    drawn_as: Callable[[Statistic], str]
    """The same for a statistic."""
    drawn: frozenset[type[Statistic]]
    """Statistics that the analyst's mechanism draws, where an aggregate could also be answered from measures."""
    propose: Fraction | None
    """What one unit adds at most, as the analyst proposes, if anything."""

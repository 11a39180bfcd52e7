"""An aggregate function as a value: names, arguments, bounds, its answer over many people, its error bars.

The parser's names, hints, completion, the reference in docs/sql.md and the methods of df.dp all follow from these
values; table.py lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.estimate import Answer, Context
    from dpsql.aggregates.measure import CountRows, CountValues, SumValues
    from dpsql.expressions.tree import Known
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType

Aggregator: TypeAlias = "Callable[[AggregateCall, Context], Answer]"
"""Plans an aggregate: takes measures and statistics from the context, returns the answer as an estimate over them."""
Totaled: TypeAlias = "Callable[[AggregateCall, Known], CountRows | CountValues | SumValues]"


class BoundsRule(Enum):
    """Contribution bounds that an aggregate may carry as arguments, by argument name."""

    PER_ROW = "contribution_bounds_per_row"
    PER_GROUP = "contribution_bounds_per_group"


class ErrorBars(Enum):
    """Which error bars an aggregate has, as docs/sql.md states it."""

    INTERVAL = "yes"
    WHERE_STRAIGHT = "where there are enough people"
    RANKS = "in ranks: see `explain`"
    UNKNOWN = "no"


@dataclass(frozen=True)
class Word:
    """A method of df.dp: its SQL, and the first line of its docstring."""

    name: str
    sql: str
    says: str


def number_as_double(kind: ColumnType) -> ColumnType:
    return Double() if isinstance(kind, Integer | Decimal) else kind


@dataclass(frozen=True, kw_only=True)
class AggregateFunction:
    name: str
    of: str
    """Its argument, for the reference in docs/sql.md."""
    error: ErrorBars
    answer: Aggregator
    also: tuple[str, ...] = ()
    """Other names of the same function."""
    spellings: tuple[str, ...] = ()
    """Other spellings, for the reference; sql/ reads each of them."""
    arguments: tuple[int, ...] = (1,)
    """The possible numbers of arguments; 0 is a star."""
    clip_power: int = 0
    """The power of its argument by which its error grows, if `"auto"` can clip that argument; else 0."""
    one_per_unit: bool = False
    """Whether each unit counts once in a group, with its own answer, however many rows it has."""
    by_fraction: bool = False
    """Whether a constant argument names the quantile: sql/syntax.py reads it."""
    bounds: tuple[BoundsRule, ...] = (BoundsRule.PER_ROW,)
    clamped: BoundsRule | None = None
    """What CLAMPED BETWEEN bounds in ANON_<name> of BigQuery's older dialect; None if there is no such function."""
    words: tuple[Word, ...] = ()
    read_as: Callable[[ColumnType], ColumnType] = number_as_double
    """The type of the answer for outer queries, by the type of the argument."""
    wide: bool = False
    """Whether an integer answer has the width of the engine's sum of integers."""
    over_pairs: Totaled | None = None
    """The measure that is summed over a join of different people, if the aggregate supports one."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

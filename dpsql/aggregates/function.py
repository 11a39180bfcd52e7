"""An aggregate, whole: its names, what it takes, the bounds it may carry, its answer over many people, its error.

The parser's names, hints, completion, the reference in docs/sql.md and the words of df.dp all follow from these values;
table.py lists them.
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
"""Takes measures and statistics from the context, and says how the answer follows from them."""
Totaled: TypeAlias = "Callable[[AggregateCall, Known], CountRows | CountValues | SumValues]"


class Bounds(Enum):
    """Contribution bounds that an aggregate may carry itself, by the name of the argument."""

    PER_ROW = "contribution_bounds_per_row"
    PER_GROUP = "contribution_bounds_per_group"


class ErrorBars(Enum):
    """What is known of the error, in the words of docs/sql.md."""

    INTERVAL = "yes"
    WHERE_STRAIGHT = "where people are many enough"
    RANKS = "in ranks: see `explain`"
    UNKNOWN = "no"


@dataclass(frozen=True)
class Word:
    """A method of df.dp: how it is written in SQL, and what its documentation says."""

    name: str
    sql: str
    says: str


def number_as_double(kind: ColumnType) -> ColumnType:
    return Double() if isinstance(kind, Integer | Decimal) else kind


@dataclass(frozen=True, kw_only=True)
class AggregateFunction:
    name: str
    of: str
    """What it is taken of, for the reference."""
    error: ErrorBars
    answer: Aggregator
    also: tuple[str, ...] = ()
    """Other names of the very same function."""
    spellings: tuple[str, ...] = ()
    """Other ways to ask for it, for the reference; resolve/ reads each of them."""
    arguments: tuple[int, ...] = (1,)
    """How many there can be; none is a star."""
    clip_power: int = 0
    """The power of its argument with which its error grows, where a clip of that argument can be found; else 0."""
    by_fraction: bool = False
    """Whether a constant beside the argument says which quantile is meant: sql/syntax.py reads it."""
    bounds: tuple[Bounds, ...] = (Bounds.PER_ROW,)
    clamped: Bounds | None = None
    """What CLAMPED BETWEEN bounds in ANON_<name> of the older dialect; None where that has no such function."""
    words: tuple[Word, ...] = ()
    read_as: Callable[[ColumnType], ColumnType] = number_as_double
    """By the type of its argument, the type that a query around it reads the answer as."""
    wide: bool = False
    """Whether a whole number is as wide as the engine makes a sum of integers."""
    over_pairs: Totaled | None = None
    """The measure that is totaled over a join of different people, where it can be asked of one."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

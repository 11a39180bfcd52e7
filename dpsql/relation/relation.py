"""Relations whose every row belongs to exactly one unit.

    Scan      a declared private table, its declared facts enforced on every row
    Filter    the rows that satisfy a condition
    Project   the same rows with other columns

and on top of them the one thing that may leave: an `Aggregate`, which merges the rows of many units into groups. What
has no node here has no private meaning and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dpsql.expressions.facts import Facts
    from dpsql.expressions.tree import Expression
    from dpsql.schema.model import Contribution, Hop
    from dpsql.source import Place


@dataclass(frozen=True)
class Unit:
    """How a row of a table leads to its unit: over no, one or several foreign keys to a column."""

    path: tuple[Hop, ...]
    table: str
    column: str

    def __str__(self) -> str:
        hops = [f"{hop.column} = {hop.to_table}.{hop.to_column}" for hop in self.path]
        return " -> ".join([*hops, f"{self.table}.{self.column}"])


@dataclass(frozen=True)
class ScanColumn:
    """A declared column: its name in the engine SQL, its name in the table, and what is declared of it."""

    name: str
    declared: str
    facts: Facts


@dataclass(frozen=True)
class Scan:
    table: str
    unit: Unit
    columns: tuple[ScanColumn, ...]
    contribution: Contribution
    one_row_per_unit: bool
    """Whether the engine itself guarantees that no unit has two rows."""


@dataclass(frozen=True)
class Filter:
    source: Relation
    condition: Expression


@dataclass(frozen=True)
class Project:
    source: Relation
    columns: tuple[tuple[str, Expression], ...]


Relation: TypeAlias = Scan | Filter | Project


@dataclass(frozen=True)
class AggregateCall:
    """COUNT(*), SUM(x), ...: `argument` is None for a star."""

    name: str
    argument: Expression | None
    distinct: bool
    at: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Aggregate:
    """Groups of a relation's rows by keys. A bare aggregate has no keys, and one group whatever the data."""

    source: Relation
    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    grouped: bool


def scan_of(relation: Relation) -> Scan:
    """The table that a relation's rows come from."""
    while not isinstance(relation, Scan):
        relation = relation.source
    return relation

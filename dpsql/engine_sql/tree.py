"""Engine SQL as a tree: queries, and the terms in them.

A tree gives the meaning; renderers (engines/*/render.py) write it in an engine's SQL. Operations are those
of operations.py, each with a rule that every engine must follow. A tree never contains analyst text: names and
constants are separate parts, which renderers quote.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime
    from fractions import Fraction

    from dpsql.schema.types import ColumnType


@dataclass(frozen=True, slots=True)
class Wide:
    """Whole numbers of 128 bits: sums and products of 64-bit integers fit."""

    name = "wide integer"


@dataclass(frozen=True, slots=True)
class Short:
    """Whole numbers of so few bits that they count in a declared one's range only."""

    bits: Literal[8, 16, 32]

    @property
    def name(self) -> str:
        return f"{self.bits}-bit integer"


Kind: TypeAlias = "ColumnType | Wide | Short"
Known: TypeAlias = "Kind | None"
"""None: of whatever kind, since it is only passed on, or compared with its like."""

# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """A column of what is read."""

    name: str
    table: str | None = None
    kind: Known = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of exactly this kind; None is NULL. An integer without a kind takes the kind of its context."""

    value: int | Fraction | str | date | datetime | None
    kind: Known = None


@dataclass(frozen=True, slots=True)
class Blank:
    """A whole number that is filled in when the query is rendered: the salt of a keyed hash, or a rank."""

    name: str
    kind: Known = None


@dataclass(frozen=True, slots=True)
class Func:
    operation: str
    arguments: tuple[Term, ...]
    kind: Known = None


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast that cannot fail: to a kind that holds every value of the one before."""

    value: Term
    kind: Kind


@dataclass(frozen=True, slots=True)
class TryCast:
    """A cast that gives NULL where a value does not fit. Doubles are rounded half to even, decimals half away."""

    value: Term
    kind: Kind


@dataclass(frozen=True, slots=True)
class Stored:
    """A column read as its declared type; NULL where the stored value does not fit."""

    name: str
    table: str
    kind: ColumnType
    only_compared: bool = False
    """Whether its width does not matter, since it is compared and passed on and nothing is computed from it."""


@dataclass(frozen=True, slots=True)
class Case:
    branches: tuple[tuple[Term, Term], ...]
    otherwise: Term

    @property
    def kind(self) -> Known:
        return self.branches[0][1].kind


@dataclass(frozen=True, slots=True)
class Let:
    """A body with numbered Operands for these values; each value is computed once."""

    values: tuple[Term, ...]
    body: Term

    @property
    def kind(self) -> Known:
        return self.body.kind


@dataclass(frozen=True, slots=True)
class Operand:
    number: int
    kind: Known = None


@dataclass(frozen=True, slots=True)
class Ordered:
    """An ordering; NULLs come last by default."""

    value: Term
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class AggFunc:
    """An aggregate over rows; without arguments it counts them."""

    name: str
    arguments: tuple[Term, ...] = ()
    distinct: bool = False
    where: Term | None = None
    order_by: tuple[Ordered, ...] = ()
    kind: Known = None


@dataclass(frozen=True, slots=True)
class WindowFunc:
    """A window function: the fold over the rows of a partition, or their place in its order."""

    fold: AggFunc
    partition_by: tuple[Term, ...]
    order_by: tuple[Ordered, ...] = ()
    frame: str = ""
    """ROWS BETWEEN ... AND ..., in words that all engines share."""

    @property
    def kind(self) -> Known:
        return self.fold.kind


@dataclass(frozen=True, slots=True)
class Exists:
    query: Query

    kind = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """The one value of a query."""

    query: Query
    kind: Known = None


Term: TypeAlias = (
    Field
    | Constant
    | Blank
    | Func
    | Cast
    | TryCast
    | Stored
    | Case
    | Let
    | Operand
    | AggFunc
    | WindowFunc
    | Exists
    | Scalar
)


def parts_of(value: Term) -> tuple[Term, ...]:
    """The direct parts of a value, excluding subqueries and the values behind Operands."""
    match value:
        case Func(arguments=arguments) | AggFunc(arguments=arguments) | WindowFunc(fold=AggFunc(arguments=arguments)):
            return arguments
        case Cast(value=inner) | TryCast(value=inner):
            return (inner,)
        case Case(branches, otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Let(values=values):
            return values
        case _:
            return ()


# -- queries -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alias:
    value: Term
    name: str


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Subquery:
    query: Query
    alias: str


@dataclass(frozen=True, slots=True)
class Joined:
    kind: Literal["INNER", "LEFT", "RIGHT", "FULL", "CROSS"]
    left: Source
    right: Source
    on: Term | None = None


Source: TypeAlias = Table | Subquery | Joined


@dataclass(frozen=True, slots=True)
class Select:
    columns: tuple[Alias, ...]
    source: Source | None = None
    where: Term | None = None
    group_by: tuple[Term, ...] = ()
    order_by: tuple[Ordered, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class SetOperation:
    kind: str
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of constants. Without rows the kinds are all that is known of the columns."""

    names: tuple[str, ...]
    kinds: tuple[ColumnType, ...]
    rows: tuple[tuple[int | Fraction | str | date | datetime | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The whole numbers from 0 to count - 1, as one column."""

    count: int
    name: str


@dataclass(frozen=True, slots=True)
class CTE:
    """A query that others read by its name."""

    name: str
    query: Query
    kept: bool | None = None
    """Whether its rows are kept, or made again by each of them; None where an engine may do either."""


@dataclass(frozen=True, slots=True)
class With:
    parts: tuple[CTE, ...]
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class AroundRank:
    """The values of each group around one rank, which is all that a quantile needs. One row per group:

    points  the different values of the ranks that are needed, as `point` makes them, in order
    counts  how often each occurs
    below   how many values are less than the first of them
    rows    how many values the group has

    Ranks are needed from floor(fraction * rows) - reach to ceil(fraction * rows) + reach, at the least. More may come.
    """

    values: Query
    """_unit, the keys and the column `value`, sorted as it is."""
    keys: tuple[str, ...]
    value: str
    kind: ColumnType
    fraction: Fraction
    reach: str
    """The Blank that it is."""
    point: Term
    """What is made of a value; it keeps their order."""
    names: tuple[str, str, str, str]
    most_rows: int
    """A unit has at most so many in a group."""
    single: bool
    """Whether no unit has two rows at all."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """A query over immutable rows that does not depend on the analyst's query: its result is reused across queries,
    so it is computed only once."""

    query: Select


Query: TypeAlias = Select | SetOperation | Values | Series | With | AroundRank | Lasting


def tables_read(query: Query) -> set[str]:
    """The names of all tables in a query, at any depth."""
    return {part.name for part in _everything(query) if isinstance(part, Table)}


def is_one_scan(query: Query) -> bool:
    """Whether it looks at the rows of one table, each by itself."""
    more = Joined | SetOperation | With | AggFunc | Exists | Scalar
    return len(tables_read(query)) == 1 and not any(isinstance(part, more) for part in _everything(query))


def _everything(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        for part in node:
            yield from _everything(part)
    elif is_dataclass(node):
        yield node
        for part in fields(node):
            yield from _everything(getattr(node, part.name))

"""Engine SQL as a tree: queries, and the terms in them.

A tree gives the meaning; renderers (engines/*/render.py) write it in an engine's SQL. Operations are those of
OPERATIONS and FOLDS, each with a rule that every engine must follow. A tree never contains analyst text: names and
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
    is_clamp: bool = False
    """Whether the first branch gives the value itself, and every value that is not NULL is in a branch."""

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
class Materialized:
    """A query over immutable rows that does not depend on the analyst's query: its result is reused across queries,
    so it is computed only once."""

    query: Select


Query: TypeAlias = Select | SetOperation | Values | Series | With | AroundRank | Materialized


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


# -- operations --------------------------------------------------------------------------------------------------------
# The closed list of operations that engines implement, and the rule that each follows on every engine.
#
# For all of them: no row can raise an error, in any order of evaluation; undefined results are NULL; where an argument
# is NULL, so is the result, unless the rule says otherwise. `kind` of a Func is its result, and for arithmetic also the
# kind of the computation. tests/engines/test_render.py runs every rule on extreme values.

OPERATIONS: dict[str, str] = {
    # Comparisons and logic.
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), "two values of one kind; texts by their code points"),
    **dict.fromkeys(("same", "different"), "= and <> where NULL is a value like any other: never NULL"),
    **dict.fromkeys(("and", "or"), "of any number of conditions, in three-valued logic"),
    "not": "of NULL it is NULL",
    **dict.fromkeys(("is null", "is not null"), "never NULL"),
    "is not false": "true and NULL; never NULL",
    "in": "the first among the others, all of one kind; NULL where that is open",
    "between": "low <= value <= high",
    "is finite": "of a double: neither an infinity nor NaN",
    "is nan": "of a double",
    # Choices.
    **dict.fromkeys(("least", "greatest"), "of values of one kind; passes over NULL"),
    "coalesce": "the first that is not NULL",
    # Arithmetic, in its kind.
    **dict.fromkeys(
        ("+", "-", "*"),
        "doubles: nearest even, infinite where too large, zero where too small; whole numbers and decimals: exact, of"
        " operands whose result fits into the kind, which of 64 bits is to be proven",
    ),
    **dict.fromkeys(("try +", "try -", "try *"), "decimals: exact, NULL where the result does not fit into its kind"),
    "/": "doubles: nearest even; the divisor is not zero",
    "//": "whole numbers, cut off towards zero; the divisor is not zero, and of 64 bits not -1",
    "%": "the remainder of //, with the sign of the dividend; also of decimals",
    "double %": "the remainder of a division of doubles, exact, with the sign of the dividend; the divisor is not zero",
    "negate": "doubles and decimals",
    **dict.fromkeys(("&", "|", "xor"), "bits of whole numbers"),
    ">>": "a wide number divided by a power of two, rounded down",
    "abs": "doubles, decimals, wide numbers",
    "sign": "-1, 0 or 1 as a double or a whole number",
    # Rounding: doubles stay doubles, decimals have the digits that are left.
    **dict.fromkeys(("floor", "ceil", "trunc"), "down, up, towards zero; trunc with digits after the point or before"),
    "round": "half away from zero, with digits after the point or before",
    # Functions of doubles; the arguments are where they have a value. One unit in the last place off at most.
    **dict.fromkeys(("sqrt",), "nearest even"),
    **dict.fromkeys(("cbrt", "ln", "log10", "log2", "exp", "pow"), "infinite where too large, zero where too small"),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "degrees", "radians"), "angles in radians"),
    # Texts: lengths and positions in code points, from 1. Those after the first are constants.
    "by code points": "the text itself, compared by code points from here on, whatever collation its column has",
    "bytes": "the length of a text in bytes of UTF-8",
    **dict.fromkeys(("lower", "upper", "reverse"), "by the tables of Unicode"),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), "spaces, or the characters that are named"),
    **dict.fromkeys(("replace", "substring", "left", "right", "lpad", "rpad", "split_part"), "as in PostgreSQL"),
    **dict.fromkeys(("length", "strpos", "levenshtein", "ascii", "unicode", "md5"), "as in DuckDB"),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), "by code points"),
    "||": "NULL as soon as one part is",
    **dict.fromkeys(("concat", "concat_ws"), "pass over NULL"),
    **dict.fromkeys(("like", "ilike"), "no escape character but the one that is the third argument"),
    "glob": "as in DuckDB",
    **dict.fromkeys(("regexp_matches", "regexp_full_match", "regexp_replace", "regexp_extract"), "RE2"),
    "json_extract_string": "at a constant path, as text; NULL where the text is no JSON. As in DuckDB",
    # Dates and timestamps between the years 1 and 9999, without time zones.
    "date part": "the constant part of a moment, as a whole number; weeks by ISO 8601, Sunday is day 0",
    "date trunc": "the start of the constant unit that a timestamp lies in",
    "date diff": "how many starts of the constant unit lie between two moments",
    "date sub": "how many whole units lie between two moments",
    "date + days": "the date that is so many days later, up to 10000 years; NULL will do for one before the year 1",
    "date - date": "the days between",
    "shift": "a timestamp plus a constant number of constant units; months are cut to their last day",
    "last day": "of the month, as a date",
    "make date": "of a year, a month and a day in their ranges; NULL where there is no such day",
    "epoch": "seconds since 1970, as a double",
    "epoch days": "days since 1970, of a date",
    "epoch microseconds": "since 1970, of a timestamp",
    "from epoch days": "the date",
    "from epoch microseconds": "the timestamp",
    **dict.fromkeys(("dayname", "monthname"), "in English"),
    "strftime": "by a constant format of %Y %m %d %H %M %S and plain text",
    "strptime": "the timestamp that a text says by a constant format; NULL where it says none. As in DuckDB",
    # What bounds a unit's contribution.
    "keyed hash": "of a salt, the unit and other values, NULL too: for a random salt each order of them is as likely",
    "one in 32": "whether a keyed hash is one of a 32nd of all",
    # Groups as lists.
    "position": "of the first among the others, from 0; NULL where it is none of them",
}
FOLDS: dict[str, str] = {
    "count": "rows, or values that are not NULL",
    "sum": "of whole numbers in 128 bits, of decimals exactly; NULL over nothing. Where its kind is a 64-bit integer:"
    " of 32-bit ones that surely are too few to leave it",
    "sum of quanta": "of decimals of up to 18 digits, 8 of them after the point, as a whole number of units of the last"
    " digit; NULL over nothing",
    **dict.fromkeys(("min", "max"), "texts by code points"),
    **dict.fromkeys(("bool_or", "bool_and"), "of conditions that are not NULL"),
    "collect": "values as a list, in the order that is given",
    **dict.fromkeys(("row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist"), "places in an order"),
    **dict.fromkeys(("lag", "lead", "first_value", "last_value", "nth_value"), "values of other rows in an order"),
}

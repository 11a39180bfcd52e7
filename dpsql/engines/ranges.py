"""Ranges of terms in engine SQL: arithmetic that cannot leave the doubles needs no guard.

A range is a claim about the value itself, wherever the engine evaluates it. NULL is in every range; NaN is in those
that do not end. Ends are doubles, computed as an engine computes: where arithmetic rounds, it does so in order.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import NULL
from dpsql.engine_sql.tree import (
    AggFunc,
    Case,
    Cast,
    Constant,
    Field,
    Func,
    Joined,
    Let,
    Materialized,
    Operand,
    Select,
    SetOperation,
    Short,
    Subquery,
    TryCast,
    WindowFunc,
    With,
)
from dpsql.engines.render import Renderer
from dpsql.schema.types import Boolean, Decimal, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dpsql.engine_sql.tree import Known, Query, Source, Stored, Table, Term

# -- kinds -------------------------------------------------------------------------------------------------------------
# Of which kind a value is, also where its tree does not say.

RESULTS: dict[str, Known] = {
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "replace", "substring", "left", "right"), Text()),
    **dict.fromkeys(("lpad", "rpad", "split_part", "md5", "||", "concat", "concat_ws", "by code points"), Text()),
    **dict.fromkeys(("length", "bytes", "strpos", "ascii", "unicode"), Integer()),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), Boolean()),
}
FOLDED: dict[str, Known] = {
    **dict.fromkeys(("count", "row_number", "rank", "dense_rank", "ntile"), Integer()),
    **dict.fromkeys(("percent_rank", "cume_dist"), Double()),
    **dict.fromkeys(("bool_or", "bool_and"), Boolean()),
}


def kind_of(value: Term, operands: Sequence[Known] = ()) -> Known:
    """`operands`: the kinds of the values that the Let around it has."""
    if value.kind is not None:
        return value.kind
    match value:
        case Case(branches, otherwise):
            return _first([*(then for _, then in branches), otherwise], operands)
        case Let(values, body):
            return kind_of(body, [kind_of(part, operands) for part in values])
        case Operand(number) if number < len(operands):
            return operands[number]
        case AggFunc(name, arguments) | WindowFunc(AggFunc(name, arguments)):
            return FOLDED[name] if name in FOLDED else _first(arguments[:1], operands)
        case Func(operation, arguments):
            return RESULTS[operation] if operation in RESULTS else _first(arguments[:1], operands)
        case Constant(int()):
            return Integer()
        case _:
            return None


def _first(values: Sequence[Term], operands: Sequence[Known]) -> Known:
    known = [kind_of(value, operands) for value in values]
    return next((kind for kind in known if kind is not None), None)


# -- ranges ------------------------------------------------------------------------------------------------------------

Range: TypeAlias = tuple[float, float]
ANYTHING: Range = (-math.inf, math.inf)
NOTHING: Range = (math.inf, -math.inf)
PASSTHROUGH = ("min", "max", "lag", "lead", "first_value", "last_value", "nth_value")
ROUNDED = ("floor", "ceil", "trunc", "round", "abs", "negate")


def magnitude(ends: Range) -> float:
    return max(abs(ends[0]), abs(ends[1]))


class Ranges:
    """Finds them, of the columns of each query once."""

    def __init__(self) -> None:
        # By the id of a query, and with the query itself: while it is kept no other one has that id.
        self._found: dict[int, tuple[Query, dict[str, Range]]] = {}

    def of(self, value: Term, columns: Mapping[str, Range], operands: Sequence[Range] = ()) -> Range:
        match value:
            case Constant(int() | Fraction() as number):
                return float(number), float(number)
            case Constant(None):
                return NOTHING
            case Field(name, kind=kind):
                return columns.get(name, _of_kind(kind))
            case Operand(place):
                return operands[place] if place < len(operands) else ANYTHING
            case Let(values, body):
                return self.of(body, columns, [self.of(part, columns, operands) for part in values])
            case Case(branches, otherwise):
                found = [self._taken(test, then, columns, operands) for test, then in branches]
                return _union([*found, self.of(otherwise, columns, operands)])
            case Cast(inner, Double()) | TryCast(inner, Double()):
                return self.of(inner, columns, operands)
            case Cast(inner, kind) | TryCast(inner, kind):
                return _rounded(_within(self.of(inner, columns, operands), _of_kind(kind)))
            case AggFunc("count") | WindowFunc(AggFunc("count")):
                return 0.0, 2.0**63
            case AggFunc(name, (first, *_)) | WindowFunc(AggFunc(name, (first, *_))) if name in PASSTHROUGH:
                return self.of(first, columns, operands)
            case Func(operation, arguments):
                return self._applied(operation, arguments, [self.of(part, columns, operands) for part in arguments])
            case _:
                return _of_kind(value.kind)

    def _taken(self, test: Term, then: Term, columns: Mapping[str, Range], operands: Sequence[Range]) -> Range:
        """A branch that is taken between two constants lies there."""
        found = self.of(then, columns, operands)
        match test:
            case Func("between", (value, Constant() as low, Constant() as high)) if value == then:
                return _within(found, (self.of(low, columns)[0], self.of(high, columns)[1]))
        return found

    def _applied(self, operation: str, arguments: tuple[Term, ...], found: list[Range]) -> Range:
        match operation:
            case "+":
                return found[0][0] + found[1][0], found[0][1] + found[1][1]
            case "-":
                return found[0][0] - found[1][1], found[0][1] - found[1][0]
            case "*" if all(map(_is_finite, found)):
                corners = [one * other for one in found[0] for other in found[1]]
                return min(corners), max(corners)
            case "coalesce":
                return _union(found)
            case "least" | "greatest":
                ends = [ends for ends, part in zip(found, arguments, strict=True) if isinstance(part, Constant)]
                low, high = _union(found)
                if operation == "least":
                    return low, min([high, *(end for _, end in ends)])
                return max([low, *(end for end, _ in ends)]), high
            case name if name in ROUNDED and len(found) == 1:
                most = magnitude(found[0]) + 1
                return -most, most
        return ANYTHING

    # -- columns ------------------------------------------------------------------------------------------------------

    def of_columns(self, source: Source | None) -> dict[str, Range]:
        match source:
            case Subquery(query):
                return self.of_query(query)
            case Joined(_, left, right):
                lefts, rights = self.of_columns(left), self.of_columns(right)
                both = lefts.keys() & rights.keys()
                return {name: ends for name, ends in {**lefts, **rights}.items() if name not in both}
            case _:
                return {}

    def of_query(self, query: Query) -> dict[str, Range]:
        if id(query) not in self._found:
            self._found[id(query)] = query, self._of_query(query)
        return self._found[id(query)][1]

    def _of_query(self, query: Query) -> dict[str, Range]:
        match query:
            case Select(columns, source):
                known = self.of_columns(source)
                return {column.name: self.of(column.value, known) for column in columns}
            case SetOperation(_, left, right):
                pairs = zip(self.of_query(left).items(), self.of_query(right).values(), strict=False)
                return {name: _union([ends, others]) for (name, ends), others in pairs}
            case With(_, last) | Materialized(last):
                return self.of_query(last)
            case _:
                return {}


def _of_kind(kind: Known) -> Range:
    match kind:
        case Integer() | Short():
            return -(2.0**63), 2.0**63
        case Decimal(precision, scale):
            return -(10.0 ** (precision - scale)), 10.0 ** (precision - scale)
        case Boolean():
            return 0.0, 1.0
        case _:
            return ANYTHING


def _is_finite(ends: Range) -> bool:
    return math.isfinite(magnitude(ends))


def _union(found: list[Range]) -> Range:
    return reduce(lambda one, other: (min(one[0], other[0]), max(one[1], other[1])), found, NOTHING)


def _within(ends: Range, limits: Range) -> Range:
    return max(ends[0], limits[0]), min(ends[1], limits[1])


def _rounded(ends: Range) -> Range:
    return ends[0] - 1, ends[1] + 1


# -- ranged ------------------------------------------------------------------------------------------------------------
# What a renderer leaves out because the tree says between which numbers a value lies.


class RangedRenderer(Renderer):
    def __init__(self, blanks: Mapping[str, int] | None = None) -> None:
        super().__init__(blanks)
        self.ranges = Ranges()
        self.columns: list[Mapping[str, Range]] = [{}]
        self.operands: list[tuple[str, list[Known], list[Range]]] = []

    def kind_of(self, value: Term) -> Known:
        return kind_of(value, self.operands[-1][1] if self.operands else ())

    def range_of(self, value: Term) -> Range:
        return self.ranges.of(value, self.columns[-1], self.operands[-1][2] if self.operands else ())

    def most(self, value: Term) -> float:
        """The largest absolute value."""
        return magnitude(self.range_of(value))

    @contextmanager
    def bound(self, name: str, values: Sequence[Term]) -> Iterator[None]:
        """Within the context, operands refer to these values."""
        self.operands.append((name, list(map(self.kind_of, values)), list(map(self.range_of, values))))
        yield
        self.operands.pop()

    @contextmanager
    def reading(self, columns: Mapping[str, Range]) -> Iterator[None]:
        self.columns.append(columns)
        yield
        self.columns.pop()

    def select(self, select: Select) -> str:
        with self.reading(self.ranges.of_columns(select.source)):
            return super().select(select)

    def case(self, case: Case) -> str:
        """Doubles that lie within their bounds anyway are not clamped once more."""
        match case.branches[0]:
            case Func("between", (value, Constant() as low, Constant() as high)), then if then == value:
                least, most = self.range_of(value)
                others = (isinstance(test, Func) and test.arguments[0] == value for test, _ in case.branches[1:])
                if (
                    isinstance(self.kind_of(value), Double)
                    and self.range_of(low)[0] <= least <= most <= self.range_of(high)[1]
                    and case.otherwise == NULL
                    and all(others)
                ):
                    return self.term(value)
        return super().case(case)

    def surely_fits(self, cast: TryCast) -> bool:
        """Whether it is a double between whole numbers of the kind that it is cast to."""
        match cast:
            case TryCast(value, Integer() | Short() as kind) if isinstance(self.kind_of(value), Double):
                bits = kind.bits if isinstance(kind, Short) else 64
                return self.most(value) <= 2.0 ** (bits - 2)
        return False


# -- served ------------------------------------------------------------------------------------------------------------
# What renderers for servers share: tables that are read as they are declared, and values that are computed once.

SHORT = {1: math.inf, 2: 400, math.inf: 80}
"""How many characters a value may have that is written as often as it is read: once, twice, or more often."""


class ServedRenderer(RangedRenderer):
    """`tables`: for each declared table the SELECT that reads its declared columns as they are declared."""

    def __init__(self, blanks: Mapping[str, int] | None = None, tables: Mapping[str, str] | None = None) -> None:
        super().__init__(blanks)
        self.tables = tables or {}
        self.numbers = itertools.count()

    @abstractmethod
    def computed_once(self, values: Sequence[str], write: Callable[..., str]) -> str:
        """The SQL that `write` builds from names of values that are computed first."""

    def once(self, values: Sequence[str], write: Callable[..., str]) -> str:
        """The SQL that `write` builds from values that it reads more than once."""
        reads = max(write(*(f"\0{place}" for place in range(len(values)))).count(f"\0{n}") for n in range(len(values)))
        longest = next(length for most, length in SHORT.items() if reads <= most)
        short = all(len(value) <= longest for value in values)
        return write(*values) if short else self.computed_once(values, write)

    def stored(self, column: Stored) -> str:
        """The column, already read as declared."""
        return f"{self.quoted(column.table)}.{self.quoted(column.name)}"

    def table(self, table: Table) -> str:
        """A declared table, which has an alias, is what its declared columns are read as."""
        if table.alias is None or table.name not in self.tables:
            return super().table(table)
        return f"({self.tables[table.name]}) AS {self.quoted(table.alias)}"

"""Constructors for frequent trees of engine SQL."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import (
    AggFunc,
    Alias,
    AroundRank,
    Case,
    Cast,
    Constant,
    Field,
    Func,
    Joined,
    Materialized,
    Select,
    SetOperation,
    Short,
    Subquery,
    Table,
    TryCast,
    Wide,
    With,
)
from dpsql.schema.types import Boolean, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpsql.engine_sql.tree import Kind, Known, Query, Source, Term

UNIT = "_unit"
"""The column that says whose a row is."""
SALT = "salt"
"""The blank that keyed hashes have."""
NULL = Constant(None)
BOOLEAN = Boolean()
TRUE = Constant(True, BOOLEAN)
SHORT, LONG, WIDE = Short(32), Integer(), Wide()
"""Whole numbers of 32, 64 and 128 bits."""


def apply(operation: str, *arguments: Term, kind: Known = None) -> Func:
    return Func(operation, arguments, kind)


def test(operation: str, *arguments: Term) -> Func:
    """A condition."""
    return Func(operation, arguments, BOOLEAN)


def all_of(conditions: Sequence[Term]) -> Term:
    """No conditions always hold."""
    if not conditions:
        return TRUE
    return conditions[0] if len(conditions) == 1 else test("and", *conditions)


def any_of(conditions: Sequence[Term]) -> Term:
    return conditions[0] if len(conditions) == 1 else test("or", *conditions)


def integer(value: int) -> Constant:
    """A whole number that takes the kind of what it meets."""
    return Constant(value)


def cast(value: Term, kind: Kind) -> Term:
    return Cast(value, kind)


def wide(value: Term) -> Term:
    return Cast(value, WIDE)


def in_64_bits(value: Term) -> Term:
    """NULL where it does not fit."""
    return TryCast(value, Integer())


def arithmetic(operation: str, left: Term, right: Term) -> Term:
    """One operation on 64-bit integers, done in 128 bits; NULL where the result does not fit into 64.

    Engines move constants together, (x * a) * b -> x * (a * b), and fold them before or after any filter. The TryCast
    keeps neighbouring operations apart, so that nothing which an engine could make of them overflows.
    """
    return in_64_bits(apply(operation, wide(left), wide(right), kind=WIDE))


def when(condition: Term, then: Term, otherwise: Term = NULL) -> Term:
    return Case(((condition, then),), otherwise)


def nonzero(value: Term, zero: Term) -> Term:
    """NULL instead of zero. Not by nullif(), which engines expand into copies that escape our limits."""
    return when(test("=", value, zero), NULL, value)


def clamp(value: Term, low: Term, high: Term) -> Term:
    """The value moved into [low, high]; NULL stays NULL (least and greatest would turn it into a bound)."""
    branches = (test("between", value, low, high), value), (test("<", value, low), low), (test(">", value, high), high)
    is_clamp = all(isinstance(end, Constant) and end.value is not None for end in (low, high))
    return Case(branches, NULL, is_clamp)


def finite(value: Term) -> Term:
    """NaN and the infinities become NULL: they are no values that a sum could take."""
    return when(test("is finite", value), value)


def finite_clamp(value: Term, low: Term, high: Term) -> Term:
    """Both, in the order that is fastest where most values are within the bounds."""
    beyond = when(test("<", value, low), low, high)
    return Case(((test("between", value, low, high), value), (test("is finite", value), beyond)), NULL)


def double(value: object) -> Constant:
    return Constant(value, Double())  # type: ignore[arg-type]


def one_zero(number: Term) -> Term:
    """Turns -0.0 into 0.0, so that nothing can tell them apart."""
    return apply("+", number, double(0), kind=Double())


def count(*values: Term) -> AggFunc:
    return AggFunc("count", values, kind=Integer())


def total(value: Term) -> AggFunc:
    return AggFunc("sum", (value,), kind=WIDE)


def short_total(value: Term) -> AggFunc:
    """A sum of 32-bit numbers, few enough to fit into 64 bits."""
    return AggFunc("sum", (value,), kind=LONG)


@lru_cache(maxsize=4096)
def _passthrough(name: str) -> Alias:
    return Alias(Field(name), name)


def fields(names: Iterable[str]) -> list[Alias]:
    """Columns that are passed on."""
    return [_passthrough(name) for name in names]


BELOW = "_below"


def select(columns: Iterable[Alias], below: Query, where: Term | None = None, group_by: Sequence[Term] = ()) -> Select:
    return Select(tuple(columns), Subquery(below, BELOW), where, tuple(group_by))


# -- materialized ------------------------------------------------------------------------------------------------------
# Tables in place of results that are the same for every question, where an engine can keep them.
#
#     WITH _rows_per_unit AS (SELECT _unit, count(*) AS _number FROM orders GROUP BY _unit) SELECT ...
#     WITH _rows_per_unit AS (SELECT _unit, _number FROM kept) SELECT ...
#
# What stands inside a condition is left as it is: it is read for a few rows, and found there again.


def with_tables(query: Query, name: Callable[[Select], str]) -> Query:
    """The same over tables with these names, each with the rows of the query that it is named for."""
    match query:
        case Materialized(materialized):
            return Select(tuple(fields(column.name for column in materialized.columns)), Table(name(materialized)))
        case Select(source=Subquery() | Joined() as source):
            return replace(query, source=_over_tables(source, name))
        case SetOperation(left=left, right=right):
            return replace(query, left=with_tables(left, name), right=with_tables(right, name))
        case With(parts, last):
            read = tuple(replace(part, query=with_tables(part.query, name)) for part in parts)
            return With(read, with_tables(last, name))
        case AroundRank(values=values):
            return replace(query, values=with_tables(values, name))
    return query


def _over_tables(source: Source, name: Callable[[Select], str]) -> Source:
    match source:
        case Subquery(query):
            return replace(source, query=with_tables(query, name))
        case Joined(left=left, right=right):
            return replace(source, left=_over_tables(left, name), right=_over_tables(right, name))
    return source

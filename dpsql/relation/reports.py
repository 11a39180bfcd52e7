"""Queries over the answers behind randomised reports, evaluated on a table of all possible answers.

    SELECT region, COUNT(*) FROM survey WHERE smoker = 'yes' GROUP BY region      smoker was collected by k-ary response

No row reveals its answer, so answers cannot select rows. But the number of rows with each *report* is a linear function
of the number with each answer, and can be inverted: the engine counts reports per group, and the query's condition,
keys and values become weights of the possible answers. docs/proofs/local.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from dpsql.engine_sql.tree import CTE, Values, With
from dpsql.expressions.properties import exact_value, one_of
from dpsql.expressions.tree import Column, substituted
from dpsql.expressions.tree import Literal as Constant
from dpsql.relation.domain import Domain, source_name
from dpsql.schema import types
from dpsql.schema.types import Boolean, Date, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.engine_sql.tree import Query
    from dpsql.expressions.properties import Properties, Value
    from dpsql.expressions.tree import Expression
    from dpsql.schema.model import Collected
    from dpsql.schema.types import ColumnType

# -- adaptive subquery -------------------------------------------------------------------------------------------------
# Rows that are known before a release runs: a list of constants, or the answer of an earlier release.
#
# The engine reads them as a table of the release's own SQL, `WITH "_adaptive_0" AS (...)`. Until they are known, in
# explain(), the table is empty; one that stands for a single value holds NULL.

Row: TypeAlias = "tuple[Value | None, ...]"

INT64 = 2**63 - 1


@dataclass(frozen=True)
class AdaptiveTable:
    name: str
    columns: tuple[tuple[str, ColumnType], ...]
    single: bool
    """Whether the table is a single value: one row, one column."""
    rows: tuple[Row, ...] | None = None
    """None while they are unknown."""

    @property
    def part(self) -> CTE:
        """The definition, for a WITH clause."""
        names, kinds = zip(*self.columns, strict=True)
        missing = ((None,) * len(kinds),) if self.single else ()
        return CTE(self.name, Values(names, kinds, missing if self.rows is None else self.rows))


def with_adaptive(tables: Iterable[AdaptiveTable], query: Query) -> Query:
    """The query, with a WITH clause that defines these tables."""
    parts = tuple(table.part for table in tables)
    return With(parts, query) if parts else query


def known_rows(rows: Iterable[tuple[object, ...]], kinds: list[ColumnType]) -> tuple[Row, ...]:
    return tuple(tuple(known_value(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows)


def known_value(value: object, kind: ColumnType) -> Value | None:
    """A value of an answer as a constant of this type; NULL where it has none.

    >>> known_value(2.5, Double()), known_value(float("nan"), Double()), known_value(2**70, Integer()) == INT64
    (Fraction(5, 2), None, True)
    """
    match kind:
        case Double() if isinstance(value, int | float | Decimal) and math.isfinite(value):
            return Fraction(value)
        case types.Decimal() if isinstance(value, Decimal):
            return Fraction(value)
        case Integer() if isinstance(value, int):
            return max(-INT64, min(INT64, value))
        case Text() if isinstance(value, str) and "\0" not in value:
            return value
        case Boolean() if isinstance(value, bool):
            return value
        case Timestamp() if isinstance(value, datetime):
            return value
        case Date() if isinstance(value, date):
            return value
    return None


# -- reports -----------------------------------------------------------------------------------------------------------

PREFIX = "_r_"


def report_name(inner: str) -> str:
    """The name of the column of reports; without the prefix it is the column of answers."""
    return PREFIX + inner


@dataclass(frozen=True)
class Report:
    """A column of reports and the answers behind it."""

    name: str
    declared: str
    type: ColumnType
    collected: Collected

    @property
    def column(self) -> Column:
        """The column of answers, in the table of all possible answers."""
        return Column(self.name, self.type)

    @property
    def answers(self) -> Properties:
        return one_of(self.type, map(exact_value, self.collected.values), nullable=False)


@dataclass(frozen=True)
class ResponseCall:
    """COUNT, SUM or AVG of a function of the answers; without an argument, COUNT of rows."""

    name: Literal["COUNT", "SUM", "AVG"]
    argument: Expression | None
    counted: int
    """The count of the release that it is computed from."""


@dataclass(frozen=True, kw_only=True)
class RandomizedResponses:
    """The query over answers, above a release that counts reports; the reports are its last keys."""

    columns: tuple[Report, ...]
    condition: Expression | None
    keys: tuple[int | Expression, ...]
    """The keys of the query: the number of a key of the release, or a function of the answers."""
    key_types: tuple[ColumnType, ...]
    calls: tuple[ResponseCall, ...]
    is_free: bool
    """Whether the query reads no other private column, so that reports are counted without noise."""

    @property
    def answer_count(self) -> int:
        return prod(len(report.collected.values) for report in self.columns)

    @property
    def table(self) -> Domain:
        """All combinations of answers, each with the condition, the keys and the values of the query."""
        renamed: dict[Expression, Column] = {
            report.column: Column(source_name(number), report.type) for number, report in enumerate(self.columns)
        }
        asked = [
            *(report.column for report in self.columns),
            self.condition or Constant(True, Boolean()),
            *(key for key in self.keys if not isinstance(key, int)),
            *(call.argument for call in self.calls if call.argument is not None),
        ]
        sources = tuple(report.answers for report in self.columns)
        return Domain(sources, tuple(substituted(part, renamed) for part in asked), ())

"""Rows that are known before a release runs: a list of constants, or the answer of what was asked first.

The engine reads them as a table of the release's own SQL, `WITH "_adaptive_0" AS (...)`. Until they are known, in
explain(), the table is empty; one that stands for a single value holds NULL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.tree import Part, Values, With
from dpsql.schema import types
from dpsql.schema.types import Boolean, Date, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.engine_sql.tree import Query
    from dpsql.expressions.properties import Value
    from dpsql.schema.types import ColumnType

Row: TypeAlias = "tuple[Value | None, ...]"

INT64 = 2**63 - 1


@dataclass(frozen=True)
class AdaptiveTable:
    name: str
    columns: tuple[tuple[str, ColumnType], ...]
    single: bool
    """Whether it stands for one value: one row, one column."""
    rows: tuple[Row, ...] | None = None
    """None until they are known."""

    @property
    def part(self) -> Part:
        """The definition, for a WITH clause."""
        names, kinds = zip(*self.columns, strict=True)
        missing = ((None,) * len(kinds),) if self.single else ()
        return Part(self.name, Values(names, kinds, missing if self.rows is None else self.rows))


def with_adaptive(tables: Iterable[AdaptiveTable], query: Query) -> Query:
    """The query, which may read these tables."""
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

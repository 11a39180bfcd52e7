"""The cells of an answer: arrays where every column has a simple type, and rows on demand.

A row of Python's values costs a microsecond, so a million groups would take longer to hand over than to compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

if TYPE_CHECKING:
    Row = tuple[Any, ...]

SIMPLE = {"BOOLEAN", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "VARCHAR"}
WHOLE_IN_DOUBLES = 2**53
"""Below it a whole number is the same as a double, as which HUGEINT arrives."""


@dataclass(frozen=True)
class Cells:
    given: list[Row] | tuple[np.ndarray, ...]
    """Rows, or an array for each column, masked where there is a NULL."""

    @cached_property
    def rows(self) -> list[Row]:
        if isinstance(self.given, list):
            return self.given
        return self.of_first(len(self.given))

    def of_first(self, columns: int) -> list[Row]:
        """The rows, with only the first columns."""
        if isinstance(self.given, list):
            return [row[:columns] for row in self.given]
        return list(zip(*self.lists(columns), strict=True))

    def lists(self, columns: int) -> list[list[Any]]:
        """The values of each of the first columns."""
        if isinstance(self.given, list):
            return [[row[position] for row in self.given] for position in range(columns)]
        return [column.tolist() for column in self.given[:columns]]

    def numbers(self, position: int) -> np.ndarray:
        """One column as doubles, without NULL."""
        if isinstance(self.given, list):
            return np.array([float(row[position]) for row in self.given if row[position] is not None])
        return np.ma.compressed(self.given[position]).astype(np.float64)

    @property
    def columns(self) -> tuple[np.ndarray, ...] | None:
        return None if isinstance(self.given, list) else self.given


def fetch_cells(cursor: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[tuple[str, str]], Cells]:
    """The names and types of a query's columns, and its cells."""
    cursor.execute(sql)
    described = [(str(item[0]), str(item[1])) for item in cursor.description or []]
    names, types = {name.lower() for name, _ in described}, {kind for _, kind in described}
    if not types <= SIMPLE or len(names) < len(described):
        return described, Cells(cursor.fetchall())
    fetched = cursor.fetchnumpy()
    columns = [_whole(np.asanyarray(fetched[name]), kind) for name, kind in described]
    arrays = tuple(column for column in columns if column is not None)
    if len(arrays) < len(columns):
        return described, Cells(cursor.execute(sql).fetchall())
    return described, Cells(arrays)


def _whole(column: np.ndarray, kind: str) -> np.ndarray | None:
    """The column, with HUGEINT as 64 bits; None where these do not surely hold it."""
    if kind != "HUGEINT":
        return column
    missing = np.ma.getmaskarray(column)
    numbers = np.where(missing, 0, np.ma.getdata(column))
    if not (np.abs(numbers) < WHOLE_IN_DOUBLES).all():
        return None
    whole = numbers.astype(np.int64)
    return np.ma.masked_array(whole, mask=missing) if missing.any() else whole


def plain_numbers(column: np.ndarray) -> np.ndarray | None:
    """The column, if all of its cells are numbers or all are conditions, and none is missing."""
    if column.dtype == object or np.ma.getmaskarray(column).any():
        return None
    found: np.ndarray = np.ma.getdata(column)
    return found.astype(np.int64, copy=False) if found.dtype.kind == "i" else found


# -- fetched -----------------------------------------------------------------------------------------------------------
# Rows that a driver fetched as columns of numpy, NULL as masked values.

Fetched = Literal["integer", "integers", "boolean", "double", "moment", "decimal", "other"]
"""What a column holds; `integers` are lists."""
EMPTY: dict[str, tuple[Any, Any]] = {
    "integer": (0, np.int64),
    "boolean": (False, np.bool_),
    "double": (0.0, np.float64),
    "moment": (np.datetime64(0, "us"), "datetime64[us]"),
}


def columns(rows: Sequence[Sequence[Any]], kinds: Mapping[str, Fetched]) -> dict[str, np.ndarray]:
    """If there are decimals, which would lose digits as numbers, everything but integers is transferred as text."""
    as_text = "decimal" in kinds.values()
    return {
        name: _column([row[place] for row in rows], kind, as_text=as_text and kind not in ("integer", "integers"))
        for place, (name, kind) in enumerate(kinds.items())
    }


def _column(values: list[Any], kind: Fetched, *, as_text: bool) -> np.ndarray:
    missing = [value is None for value in values]
    if kind == "integers":
        return _objects([None if value is None else np.array(value, dtype=np.int64) for value in values])
    if as_text:
        return _objects([None if value is None else str(value) for value in values])
    if kind not in EMPTY:
        return np.ma.masked_array(_objects(values), mask=missing)
    instead, stored = EMPTY[kind]
    filled = [instead if gap else value for value, gap in zip(values, missing, strict=True)]
    return np.ma.masked_array(np.array(filled, dtype=stored), mask=missing)


def _objects(values: list[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found

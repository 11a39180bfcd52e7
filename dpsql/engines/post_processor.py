"""The post-processing database: a DuckDB in memory that never sees private data and runs all of SQL.

Before the charge it only describes the post-processing over empty tables, so that a mistake above the aggregates is
found while the question is still free.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import duckdb

from dpsql.engines.duckdb.catalog import lock
from dpsql.engines.results import Cells, fetch_cells
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy as np

    from dpsql.engines.base import PostProcessingTable

    Columns = Mapping[str, np.ndarray]
    Data: TypeAlias = "Columns | ImmutableTable | None"

Asked = ParamSpec("Asked")
Found = TypeVar("Found")

# The analyst's own SQL runs here, so nothing outside this memory may be reached.
# Given when the database is made, settings hold for every cursor of it.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
MOST_KEPT = 128
"""Descriptions that are kept."""
MOST_VIEWS = 16
"""Lists of tables whose views are kept."""
NO_COLUMN = '"NULL" INTEGER'
ORDINARY = "that part is ordinary DuckDB SQL over the groups and the noisy values"
SAID = (
    (r'Referenced column "(.*?)" not found', r'there is no column "\1"', "use the names that the subquery defines"),
    (r'Referenced table "(.*?)" not found', r'there is no table "\1"', "use the names and aliases from FROM"),
    (r"\w+ Function with name (\S+) does not exist", r"there is no function \1", "use one of DuckDB's"),
    (
        r"No function matches the given name and argument types '(\w+)\((.*?)\)'",
        r"\1 does not take (\2)",
        "CAST the argument, or use another function",
    ),
    (
        r'column "(.*?)" must appear in the GROUP BY clause',
        r'"\1" must be in GROUP BY or inside an aggregate',
        r"add \1 to GROUP BY, or aggregate it",
    ),
    (
        r"Set operations can only apply to expressions with the same number",
        "both sides of a UNION, INTERSECT or EXCEPT need the same number of columns",
        "select the same number of columns on both sides",
    ),
    (
        r"[Ww]indow functions are not (?:supported|allowed)",
        "a window function is not allowed there",
        "write it with OVER (...), in the SELECT list or in QUALIFY",
    ),
)
"""How DuckDB says what is wrong, what is said here, and the way out."""


@dataclass(frozen=True)
class PostProcessed:
    """The finished columns: their names, the engine's names of their types, and the cells."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    cells: Cells

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.cells.rows


@dataclass(frozen=True)
class ImmutableTable:
    """Public rows that cannot change while the connection is open, so columns are cached once read."""

    read: Callable[[Collection[str]], Columns]
    """The columns of these names."""


@dataclass(frozen=True)
class CopiedTable:
    """A typed copy of an immutable table's columns, under its own name."""

    name: str
    types: Mapping[str, str]
    rows: int


class CopiedTables:
    """Copies of public tables, in a database of the session's own, which is opened with the first of them."""

    def __init__(self) -> None:
        self.found: dict[str, CopiedTable] = {}

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        return _locked_connection()


@dataclass(frozen=True)
class Views:
    """A cursor that has the views of some tables, over frames that have columns only while an answer is made."""

    cursor: duckdb.DuckDBPyConnection
    frames: Mapping[str, dict[str, np.ndarray]]

    def fetch(self, sql: str, data: Mapping[str, Columns]) -> tuple[list[tuple[str, str]], Cells]:
        try:
            # The engine looks into a registered dict anew whenever it plans, so it need not be registered again.
            for name, frame in self.frames.items():
                frame |= data[name]
            return fetch_cells(self.cursor, sql)
        finally:
            for frame in self.frames.values():
                frame.clear()


def _in_plain_words(method: Callable[Asked, Found]) -> Callable[Asked, Found]:
    """The engine's error is not the context of dpsql's: dpsql raises its own after the other is handled."""

    @wraps(method)
    def spoken(*args: Asked.args, **kwargs: Asked.kwargs) -> Found:
        try:
            return method(*args, **kwargs)
        except duckdb.Error as error:
            problem = _complaint(error)
        raise problem

    return spoken


class PostProcessor:
    """For one session. Only cursors of its own see its tables and views, though all sessions share a database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = _shared_database(os.getpid()).cursor()
        self._described: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {}
        self._kept = CopiedTables()
        self._views: dict[tuple[str, ...], Views] = {}
        """The last that answers were made with, by their definitions: to make them takes as long as to read them."""

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        """The names and types of the post-processing's columns; raises ProgrammingError if it makes no sense.

        They follow from these texts alone, which are often the same where literals below the aggregates differ.
        """
        key = (sql, *map(_empty, tables))
        known = self._described.get(key)
        if known is None:
            rows = self._with_empty(tables, f"DESCRIBE {sql}")
            known = tuple((str(name), str(kind)) for name, kind, *_ in rows)
            if len(self._described) >= MOST_KEPT:
                self._described.clear()
            self._described[key] = known
        return known

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query that reads no table."""
        return self._with_empty([], sql)

    def still_open(self) -> PostProcessor:
        """The same database, for as long as somebody holds it."""
        return copy(self)

    def close(self) -> None:
        """Memory is freed with the last answer whose intervals may still be computed."""
        del self._connection, self._views, self._kept

    @_in_plain_words
    def _with_empty(self, tables: Sequence[PostProcessingTable], sql: str) -> list[tuple[Any, ...]]:
        # A cursor has temporary tables and views of its own, so that questions do not meet.
        with self._lock, self._connection.cursor() as cursor:
            for table in tables:
                cursor.execute(_empty(table))
            (statement,) = cursor.extract_statements(sql)  # whatever was written, it is one
            return cursor.execute(statement).fetchall()

    def rows_kept(self, table: str) -> int:
        """The number of rows of an immutable table that has been read."""
        return self._kept.found[table].rows

    @_in_plain_words
    def run(self, sql: str, tables: Sequence[PostProcessingTable], data: Sequence[Data]) -> PostProcessed:
        """The post-processing over the tables filled with these columns; None leaves a table empty."""
        filled = list(zip(tables, data, strict=True))
        with self._lock:
            asked = tuple(_empty(table) if columns is None else self._view(table, columns) for table, columns in filled)
            raw = {
                _raw(table): {name: columns[name] for name in table.stored}
                for table, columns in filled
                if isinstance(columns, Mapping)
            }
            views = self._views.pop(asked, None)
            if views is None:
                reads_copies = any(isinstance(columns, ImmutableTable) for columns in data)
                cursor = (self._kept.connection if reads_copies else self._connection).cursor()
                views = _created(cursor, asked, raw)
            try:
                described, cells = views.fetch(sql, raw)
            except BaseException:
                views.cursor.close()
                raise
            self._keep(asked, views)
        return PostProcessed(tuple(name for name, _ in described), tuple(kind for _, kind in described), cells)

    def _keep(self, asked: tuple[str, ...], views: Views) -> None:
        self._views[asked] = views
        if len(self._views) > MOST_VIEWS:
            self._views.pop(next(iter(self._views))).cursor.close()

    def _view(self, table: PostProcessingTable, data: Columns | ImmutableTable) -> str:
        rows = f"(FROM {self._copy(table, data).name})" if isinstance(data, ImmutableTable) else f"({_typed(table)})"
        made = ", ".join(f'CAST({sql} AS {kind}) AS "{name}"' for name, (kind, sql) in table.columns.items())
        return f'CREATE TEMP VIEW "{table.name}" AS SELECT {made or "NULL"} FROM {rows}'

    def _copy(self, table: PostProcessingTable, immutable: ImmutableTable) -> CopiedTable:
        """One copy of each table, with all columns that were ever read."""
        kept = self._kept.found.get(table.name)
        if kept is not None and table.stored.keys() <= kept.types.keys():
            return kept
        types = table.stored if kept is None else {**kept.types, **table.stored}
        wanted = replace(table, stored=types)
        copy = f"_kept{len(self._kept.found)}" if kept is None else kept.name
        with self._kept.connection.cursor() as cursor:
            cursor.register(_raw(table), dict(immutable.read(types)))
            cursor.execute(f"CREATE OR REPLACE TABLE {copy} AS {_typed(wanted)}")
            ((rows,),) = cursor.execute(f"SELECT count(*) FROM {copy}").fetchall()
        self._kept.found[table.name] = CopiedTable(copy, types, rows)
        return self._kept.found[table.name]


def _created(cursor: duckdb.DuckDBPyConnection, definitions: Sequence[str], raw: Mapping[str, Columns]) -> Views:
    views = Views(cursor, {name: dict(columns) for name, columns in raw.items()})
    try:
        for name, frame in views.frames.items():
            cursor.register(name, frame)
        for definition in definitions:
            cursor.execute(definition)
    except BaseException:
        cursor.close()
        raise
    return views


@cache
def _shared_database(process: int) -> duckdb.DuckDBPyConnection:
    """One for all sessions of a process: to open it takes as long as all else of `connect`. A fork shares none."""
    return _locked_connection()


def _locked_connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=SETTINGS)
    lock(connection)
    return connection


def _empty(table: PostProcessingTable) -> str:
    """Types are all that a description needs; the expressions would take most of its time."""
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _) in table.columns.items())
    return f'CREATE TEMP TABLE "{table.name}" ({columns or NO_COLUMN})'


def _typed(table: PostProcessingTable) -> str:
    """The stored columns of the frame that is registered, in which dates are timestamps and decimals are text."""
    typed = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in table.stored.items())
    return f'SELECT {typed} FROM "{_raw(table)}"'


def _raw(table: PostProcessingTable) -> str:
    return f"_raw{table.name}"


def _complaint(error: duckdb.Error) -> ProgrammingError:
    """The error above the aggregates. Only noisy values are involved, so the engine's message may be shown."""
    message = str(error).splitlines()[0].partition(": ")[2] or str(error)
    for pattern, problem, hint in SAID:
        if (found := re.match(pattern, message)) is not None:
            return ProgrammingError(f"above the aggregates {found.expand(problem)}", hint=found.expand(hint))
    return ProgrammingError(f"above the aggregates: {message}", hint=ORDINARY)

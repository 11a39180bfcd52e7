"""A DuckDB in memory that never sees private data: it makes answers of noisy values with all of SQL.

Before the charge it only describes the post-processing over empty tables, so that a mistake above the aggregates is
found while the question is still free.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from dpsql.engines.cells import Cells, fetch_cells
from dpsql.engines.duckdb.lock import lock
from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from dpsql.engines.public import PostProcessingTable

    Columns = Mapping[str, np.ndarray]

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


NO_COLUMN = '"NULL" INTEGER'


ORDINARY = "that part is ordinary DuckDB SQL over the groups and the noisy values"
SAID = (
    (r'Referenced column "(.*?)" not found', r'there is no column "\1"', "use the names that the query below gives"),
    (r'Referenced table "(.*?)" not found', r'there is no table "\1"', "use the names and aliases that stand in FROM"),
    (r"\w+ Function with name (\S+) does not exist", r"there is no function \1", "use one of DuckDB's"),
    (
        r"No function matches the given name and argument types '(\w+)\((.*?)\)'",
        r"\1 does not take (\2)",
        "CAST its argument, or use another function",
    ),
    (
        r'column "(.*?)" must appear in the GROUP BY clause',
        r'"\1" must be in GROUP BY or inside an aggregate',
        r"add \1 to GROUP BY, or aggregate it",
    ),
    (
        r"Set operations can only apply to expressions with the same number",
        "both sides of a UNION, INTERSECT or EXCEPT need the same number of columns",
        "select as many columns on either side",
    ),
    (
        r"[Ww]indow functions are not (?:supported|allowed)",
        "a window function cannot stand there",
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


class PostProcessor:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = _locked_connection()

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        """The names and types of the post-processing's columns; raises ProgrammingError if it makes no sense."""
        return tuple((str(name), str(kind)) for name, kind, *_ in self._with_empty(tables, f"DESCRIBE {sql}"))

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query that reads no table."""
        return self._with_empty([], sql)

    def close(self) -> None:
        self._connection.close()

    def _with_empty(self, tables: Sequence[PostProcessingTable], sql: str) -> list[tuple[Any, ...]]:
        def asked(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
            for table in tables:
                cursor.execute(_empty(table))
            return cursor.execute(sql).fetchall()

        return self._with_cursor(asked)

    def run(self, sql: str, tables: Sequence[PostProcessingTable], data: Sequence[Columns | None]) -> PostProcessed:
        """The post-processing over the tables filled with these columns; None leaves a table empty."""

        def finished(cursor: duckdb.DuckDBPyConnection) -> PostProcessed:
            for table, columns in zip(tables, data, strict=True):
                if columns is not None:
                    cursor.register(f"_raw{table.name}", dict(columns))
                cursor.execute(_empty(table) if columns is None else _view(table))
            described, cells = fetch_cells(cursor, sql)
            return PostProcessed(tuple(name for name, _ in described), tuple(kind for _, kind in described), cells)

        return self._with_cursor(finished)

    def _with_cursor(self, work: Callable[[duckdb.DuckDBPyConnection], Found]) -> Found:
        """A cursor has temporary tables and views of its own, so that questions do not meet."""
        problem = None
        with self._lock:
            cursor = self._connection.cursor()
            try:
                return work(cursor)
            except duckdb.Error as error:
                problem = _complaint(error)
            finally:
                cursor.close()
        raise problem


def _locked_connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=SETTINGS)
    lock(connection)
    return connection


def _empty(table: PostProcessingTable) -> str:
    """Types are all that a description needs; the expressions would take most of its time."""
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _) in table.columns.items())
    return f'CREATE TEMP TABLE "{table.name}" ({columns or NO_COLUMN})'


def _view(table: PostProcessingTable) -> str:
    # Registered dates arrive as timestamps, decimals as text.
    typed = ", ".join(f'CAST({_total(table, name)} AS {kind}) AS "{name}"' for name, kind in table.stored.items())
    made = ", ".join(f'CAST({sql} AS {kind}) AS "{name}"' for name, (kind, sql) in table.columns.items())
    if table.totals:
        keys = [name for name in table.stored if name.startswith("_k")]
        typed += "".join(f', GROUPING("{name}") AS _g{number}' for number, name in enumerate(keys))
    rows = f'SELECT {typed} FROM "_raw{table.name}"{table.totals}'
    return f'CREATE TEMP VIEW "{table.name}" AS SELECT {made or "NULL"} FROM ({rows})'


def _total(table: PostProcessingTable, name: str) -> str:
    """A key as it is, and a measure summed over the groups of a total: 0 where there is none."""
    if not table.totals or name.startswith("_k"):
        return f'"{name}"'
    return f'sum("{name}")' if name.startswith("_") else f'coalesce(sum("{name}"), 0)'


def _complaint(error: duckdb.Error) -> ProgrammingError:
    """What is wrong above the aggregates. Only noisy values were there, so the engine's words may be repeated."""
    message = str(error).splitlines()[0].partition(": ")[2] or str(error)
    for pattern, problem, hint in SAID:
        if (found := re.match(pattern, message)) is not None:
            return ProgrammingError(f"above the aggregates {found.expand(problem)}", hint=found.expand(hint))
    return ProgrammingError(f"above the aggregates: {message}", hint=ORDINARY)

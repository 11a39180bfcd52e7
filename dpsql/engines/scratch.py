"""A DuckDB in memory that never sees private data: it finishes answers from noisy values with all of SQL.

Before the charge it only describes the finish over empty tables, so that a mistake above the aggregates is found while
the question is still free.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    Types = Mapping[str, Mapping[str, str]]
    """Table -> column -> type, in the engine's words."""
    Data = Mapping[str, Mapping[str, np.ndarray]]

# The analyst's own SQL runs here, so nothing outside this memory may be reached.
LOCKED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET enable_progress_bar = false",
    "SET lock_configuration = true",
)


@dataclass(frozen=True)
class Finished:
    """The finished columns: their names, the engine's names of their types, and the rows."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Scratch:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._connection = _locked_connection()

    def describe(self, sql: str, types: Types) -> tuple[str, ...]:
        """The names of the finish's columns; raises ProgrammingError if it makes no sense."""
        return tuple(str(row[0]) for row in self._run(f"DESCRIBE {sql}", types, {}).rows)

    def run(self, sql: str, types: Types, data: Data) -> Finished:
        return self._run(sql, types, data)

    def close(self) -> None:
        self._connection.close()

    def _run(self, sql: str, types: Types, data: Data) -> Finished:
        problem = None
        with self._lock:
            if self._owner != os.getpid():
                # DuckDB's threads do not survive a fork.
                self._owner, self._connection = os.getpid(), _locked_connection()
            # A cursor has temporary views of its own, so questions do not meet.
            cursor = self._connection.cursor()
            try:
                for name, columns in types.items():
                    if name in data:
                        cursor.register(f"_raw{name}", dict(data[name]))
                    cursor.execute(_view(name, columns, filled=name in data))
                cursor.execute(sql)
                described = cursor.description or []
                return Finished(
                    tuple(item[0] for item in described), tuple(str(item[1]) for item in described), cursor.fetchall()
                )
            except duckdb.Error as error:
                problem = _complaint(error)
            finally:
                cursor.close()
        raise problem


def _locked_connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    for setting in LOCKED:
        connection.execute(setting)
    return connection


def _view(name: str, columns: Mapping[str, str], *, filled: bool) -> str:
    """The registered columns as what they are (dates arrive as timestamps, decimals as text), or none."""
    values = {key: f'"{key}"' if filled else "NULL" for key in columns}
    chosen = ", ".join(f'CAST({values[key]} AS {kind}) AS "{key}"' for key, kind in columns.items())
    source = f'FROM "_raw{name}"' if filled else "WHERE false"
    return f'CREATE TEMP VIEW "{name}" AS SELECT {chosen or "NULL"} {source}'


def _complaint(error: duckdb.Error) -> ProgrammingError:
    """What is wrong above the aggregates. Only noisy values were there, so the engine's words may be repeated."""
    message = str(error).splitlines()[0].partition(": ")[2] or str(error)
    return ProgrammingError(
        f"above the aggregates: {message}", hint="that part is ordinary DuckDB SQL over the groups and the noisy values"
    )

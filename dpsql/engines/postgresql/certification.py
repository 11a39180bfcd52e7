"""Made-up rows in PostgreSQL, in a schema of their own that is dropped again: for `dpsql certify`."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from dpsql.engines.render import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from dpsql.engines.base import MadeUpTables

BEFORE_CHRIST = "4713-01-01 BC"
TYPES = {
    r"\bDOUBLE\b": "DOUBLE PRECISION",
    r"\bFLOAT\b": "REAL",
    r"\bTINYINT\b": "SMALLINT",
    r"\bHUGEINT\b": "NUMERIC(38, 0)",
}


class InPostgreSQL:
    keeps_constraints = True

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def place(self, name: str) -> Iterator[str]:
        """A schema that is empty, and its URL."""
        self._execute(f"DROP SCHEMA IF EXISTS {quoted(name)} CASCADE; CREATE SCHEMA {quoted(name)}")
        try:
            yield f"{self.url}{'&' if '?' in self.url else '?'}options=-csearch_path%3D{name}"
        finally:
            self._execute(f"DROP SCHEMA {quoted(name)} CASCADE")

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def fill(self, database: str, create: str, tables: MadeUpTables, model: duckdb.DuckDBPyConnection) -> None:
        for theirs, ours in TYPES.items():
            create = re.sub(theirs, ours, create)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(create.encode())
            for name, rows in tables.items():
                with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row([_in_its_calendar(value) for value in row])


def _in_its_calendar(value: object) -> str | None:
    """PostgreSQL's dates begin later than DuckDB's; in either such a one is long before all that is declared."""
    return None if value is None else BEFORE_CHRIST if "(BC)" in str(value) else str(value)

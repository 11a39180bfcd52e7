"""Made-up rows in Spark, copied from DuckDB into a database of their own that is dropped again: for `dpsql certify`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.engines.spark.engine import own_session
from dpsql.engines.spark.scalars import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from dpsql.engines.base import MadeUpTables

LAST_DAY, LAST_MOMENT = 2**31 - 1, 2**63 - 1
"""What DuckDB keeps as infinity; less than nothing is their negative."""
READS = {
    "VARCHAR": "CAST({} AS STRING)",
    "HUGEINT": "CAST({} AS DECIMAL(38, 0))",
    "DATE": "date_from_unix_date(CAST({} AS INT))",
    "TIMESTAMP": "CAST(timestamp_micros(CAST({} AS BIGINT)) AS TIMESTAMP_NTZ)",
}
"""How a text is read as what DuckDB has of this type."""


class InSpark:
    """Spark keeps no constraint."""

    keeps_constraints = False

    def __init__(self, database: str) -> None:
        self.database = database

    @contextmanager
    def place(self, name: str) -> Iterator[str]:
        """A database that is empty, and its URL."""
        self._execute(f"DROP DATABASE IF EXISTS {name} CASCADE")
        self._execute(f"CREATE DATABASE {name}")
        try:
            yield f"{self.database}/;database={name}"
        finally:
            self._execute(f"DROP DATABASE {name} CASCADE")

    def _execute(self, sql: str) -> None:
        session, _ = own_session(self.database)
        try:
            session.sql(sql).collect()
        finally:
            session.stop()

    def fill(self, database: str, create: str, tables: MadeUpTables, model: duckdb.DuckDBPyConnection) -> None:
        self.copy(database, model, list(tables))

    def copy(self, database: str, model: duckdb.DuckDBPyConnection, names: list[str]) -> None:
        """Copies tables of DuckDB unchanged."""
        session, place = own_session(database)
        try:
            for name in names:
                session.sql(self._table(place.table(name), name, model)).collect()
        finally:
            session.stop()

    def _table(self, qualified: str, name: str, model: duckdb.DuckDBPyConnection) -> str:
        kinds = model.execute(
            f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = {literal(name)}"
        ).fetchall()
        rows = model.execute(f"SELECT {', '.join(_as_text(*column) for column in kinds)} FROM {name}").fetchall()
        listed = ", ".join(f"({', '.join(map(_spelled, row))})" for row in rows)
        names = ", ".join(quoted(column) for column, _ in kinds)
        if rows:
            source = f"FROM VALUES {listed} AS listed({names})"
        else:
            source = f"FROM (SELECT {', '.join(f'CAST(NULL AS STRING) AS {quoted(c)}' for c, _ in kinds)}) WHERE false"
        read = (f"{_read(quoted(column), kind)} AS {quoted(column)}" for column, kind in kinds)
        return f"CREATE TABLE {qualified} USING parquet AS SELECT {', '.join(read)} {source}"


def _read(column: str, kind: str) -> str:
    return READS.get(kind, f"CAST({{}} AS {kind})").format(column)


def _as_text(column: str, kind: str) -> str:
    """Dates and timestamps as numbers, which have the same range in both engines."""
    if kind == "DATE":
        return _ended(column, f"date_diff('day', DATE '1970-01-01', {column})", LAST_DAY)
    if kind == "TIMESTAMP":
        return _ended(column, f"epoch_us({column})", LAST_MOMENT)
    return f"CAST({column} AS VARCHAR)"


def _ended(column: str, number: str, last: int) -> str:
    ends = f"WHEN {column} = 'infinity' THEN {last} WHEN {column} = '-infinity' THEN -{last}"
    return f"CASE {ends} ELSE CAST({number} AS BIGINT) END"


def _spelled(value: object) -> str:
    return "CAST(NULL AS STRING)" if value is None else literal(str(value))

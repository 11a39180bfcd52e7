"""The same rows in DuckDB and in the engine that is to be certified, in places of their own that are dropped again."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.certify.rows import fill
from dpsql.engines.opened import is_spark
from dpsql.engines.spark.texts import literal, quoted
from dpsql.errors import InterfaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from dpsql.certify.corpus import CaseFile
    from dpsql.certify.rows import Tables

PREFIX = "dpsql_certify_"
BEFORE_CHRIST = "4713-01-01 BC"
LAST_DAY, LAST_MOMENT = 2**31 - 1, 2**63 - 1
"""What DuckDB keeps as infinity; less than nothing is their negative."""
CONSTRAINTS = r" (PRIMARY KEY|UNIQUE|NOT NULL)\b"


POSTGRESQL_TYPES = {
    r"\bDOUBLE\b": "DOUBLE PRECISION",
    r"\bFLOAT\b": "REAL",
    r"\bTINYINT\b": "SMALLINT",
    r"\bHUGEINT\b": "NUMERIC(38, 0)",
}
SPARK_READS = {
    "VARCHAR": "CAST({} AS STRING)",
    "HUGEINT": "CAST({} AS DECIMAL(38, 0))",
    "DATE": "date_from_unix_date(CAST({} AS INT))",
    "TIMESTAMP": "CAST(timestamp_micros(CAST({} AS BIGINT)) AS TIMESTAMP_NTZ)",
}
"""How a text is read as what DuckDB has of this type."""


class InPostgreSQL:
    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def place(self, name: str) -> Iterator[str]:
        """A schema that is empty, and its URL."""
        self._execute(f"DROP SCHEMA IF EXISTS {PREFIX}{name} CASCADE; CREATE SCHEMA {PREFIX}{name}")
        try:
            yield f"{self.url}{'&' if '?' in self.url else '?'}options=-csearch_path%3D{PREFIX}{name}"
        finally:
            self._execute(f"DROP SCHEMA {PREFIX}{name} CASCADE")

    def _execute(self, sql: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def fill(self, database: str, file: CaseFile, tables: Tables, model: duckdb.DuckDBPyConnection) -> None:
        import psycopg

        fill(model, file, tables)
        create = file.create
        for theirs, ours in POSTGRESQL_TYPES.items():
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


class InSpark:
    """By its server's URL. Spark keeps no constraint, so DuckDB's tables have none either."""

    def __init__(self, database: str) -> None:
        self.database = database

    @contextmanager
    def place(self, name: str) -> Iterator[str]:
        """A database that is empty, and its URL."""
        self._execute(f"DROP DATABASE IF EXISTS {PREFIX}{name} CASCADE")
        self._execute(f"CREATE DATABASE {PREFIX}{name}")
        try:
            yield f"{self.database}/;database={PREFIX}{name}"
        finally:
            self._execute(f"DROP DATABASE {PREFIX}{name} CASCADE")

    def _execute(self, sql: str) -> None:
        from dpsql.engines.spark.connection import own_session

        session, _ = own_session(self.database)
        try:
            session.sql(sql).collect()
        finally:
            session.stop()

    def fill(self, database: str, file: CaseFile, tables: Tables, model: duckdb.DuckDBPyConnection) -> None:
        fill(model, _without_constraints(file), tables)
        self.copy(database, model, list(tables))

    def copy(self, database: str, model: duckdb.DuckDBPyConnection, names: list[str]) -> None:
        """Tables of DuckDB, as they are."""
        from dpsql.engines.spark.connection import own_session

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
    return SPARK_READS.get(kind, f"CAST({{}} AS {kind})").format(column)


def _without_constraints(file: CaseFile) -> CaseFile:
    return replace(file, create=re.sub(CONSTRAINTS, "", file.create))


def _as_text(column: str, kind: str) -> str:
    """Dates and timestamps as numbers, which reach as far in either engine."""
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


def target(database: str) -> InPostgreSQL | InSpark:
    """Where an engine is asked to be certified."""
    if is_spark(database):
        return InSpark(database)
    if database.startswith(("postgresql://", "postgres://")):
        return InPostgreSQL(database)
    raise InterfaceError(
        "dpsql writes SQL for PostgreSQL and Spark, besides DuckDB: no other engine can be certified",
        hint="name one by its URL: postgresql://user@host/database, sc://host:15002",
    )

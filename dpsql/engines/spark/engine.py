"""Spark runs the engine SQL, and nothing but its result leaves it.

The session is our own. Every declared table is read through its declared columns alone, by its full name; functions are
Spark's own, which other sessions cannot replace here.
"""

from __future__ import annotations

import logging
import re
import threading
import warnings
from contextlib import contextmanager
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

from dpsql.engines.base import ConnectionLost, Guarantees, TimedOut, run_twice_if_lost, stopped_after
from dpsql.engines.results import columns
from dpsql.engines.spark.catalog import FORMATS, Namespace, current_place, found_table, table_names
from dpsql.engines.spark.render import render
from dpsql.engines.spark.scalars import literal, quoted
from dpsql.engines.tables import Described, check_table
from dpsql.errors import OperationalError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb
    import numpy as np
    from pyspark.sql import DataFrame, SparkSession

    from dpsql.engines.base import MadeUpTables, Render
    from dpsql.engines.results import Fetched
    from dpsql.engines.spark.catalog import SparkTable
    from dpsql.schema.model import Schema, Table

# -- connection --------------------------------------------------------------------------------------------------------
# A session of Spark that is our own: what it is asked means the same whatever other sessions have set.

CERTIFIED = ("4.3",)
OLDEST = (4, 0)
# What our SQL was certified with. The meaning of a query depends on these, or whether a row can make it fail.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.groupByAliases": "false",
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Constants must not be moved together: (x * a) * b may be a number where a * b is none.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
    # One old date of one row would make every query fail.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Changes no result: rows would be sorted once more, to leave out few of them before they are sent around.
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    # Nor do these. People are many: they are counted faster while they fit into the first, small table of a task. And
    # what is sent for each is short: less of it is put together into one task, so that no core waits for another.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "128k",
    # Plans are described for whoever watches Spark, anew after each of their stages: in few words.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
RESTART, PAUSE = 60.0, 1.0
"""Seconds that a question which is paid for waits for a server that went away, and between two tries."""
PROBES = {
    "try_multiply(try_multiply(id, 4611686018427387904L), 3L) = 0": "it reorders constants",
    "try_add(id + 9223372036854775807L, 1L) IS NULL": "its integers wrap around",
    "rint(id + 2.5D) = 2 AND round(id + 2.5D) = 3": "it rounds differently",
    "dayofweek(date_add(DATE '2024-02-25', CAST(id AS INT))) = 1": "its weeks start on another day",
    "CAST(CAST(id + 0.5D AS DOUBLE) AS BIGINT) = 0": "its casts round differently",
    "concat(CAST(id AS STRING), NULL) IS NULL": "its NULL behaves differently",
    "xxhash64(id) <> xxhash64(id + 1)": "it does not hash",
}
"""What is true of Spark for id = 0. Others speak its protocol, and compute otherwise."""


def own_session(database: object) -> tuple[SparkSession, Namespace]:
    """For a URL, a session on that server; for a session, another one on the same Spark that resolves tables alike."""
    with quiet():
        if isinstance(database, str):
            url, name = _without_database(database)
            session = _reached(url)
            place = current_place(session) if name is None else Namespace(current_place(session).catalog, name)
        else:
            given: Any = database
            session, place = given.newSession(), current_place(given)
        _prepare(session)
    return session, place


def answers(session: SparkSession) -> bool:
    try:
        return len(session.sql("SELECT 1").collect()) == 1
    except Exception:
        return False


def reached_again(url: str, patience: float) -> tuple[SparkSession, Namespace]:
    """Retries for this many seconds, because a restarted server is usually back soon."""
    until = monotonic() + patience
    while True:
        try:
            return own_session(url)
        except OperationalError:
            if monotonic() > until:
                raise
        sleep(PAUSE)


def _without_database(url: str) -> tuple[str, str | None]:
    """
    >>> _without_database("sc://host:15002/;database=sales;user_id=me")
    ('sc://host:15002/;user_id=me', 'sales')
    """
    found = re.search(";database=([^;]*)", url)
    return (url, None) if found is None else (url.replace(found[0], "", 1), found[1])


def _reached(url: str) -> SparkSession:
    try:
        with warnings.catch_warnings():
            # What the client thinks of the versions that it meets here, and of an answer that does not come.
            warnings.simplefilter("ignore")
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as RemoteSession

            session: Any = RemoteSession.builder.remote(url).create()
            session.client.set_retry_policies([DefaultPolicy(max_retries=3)])
            session.sql("SELECT 1").collect()
        return cast("SparkSession", session)
    except Exception:
        problem = OperationalError("Spark cannot be reached", hint="a Spark Connect server listens at sc://host:15002")
    raise problem


def _prepare(session: SparkSession) -> None:
    version = session.version
    if tuple(int(part) for part in re.findall("[0-9]+", version)[:2]) < OLDEST:
        raise OperationalError(f"Spark {version} is too old", hint="dpsql needs Spark 4.0 or newer")
    if not version.startswith(tuple(f"{known}." for known in CERTIFIED)):
        warnings.warn(
            f"dpsql is certified on Spark {', '.join(CERTIFIED)}, but this is {version}; see docs/engines.md",
            stacklevel=2,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a setting may go with later versions
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
    wrong = _wrong(session)
    if wrong is not None:
        raise OperationalError(
            f"dpsql is not certified on this Spark: {wrong}",
            hint="other servers that speak Spark's protocol are refused until `dpsql certify` passes on them",
        )


def _wrong(session: SparkSession) -> str | None:
    columns = ", ".join(f"{probe} AS p{number}" for number, probe in enumerate(PROBES))
    try:
        ((*found,),) = session.sql(f"SELECT {columns} FROM range(1)").collect()
    except Exception:
        return "it does not know Spark's functions"
    return next((meaning for true, meaning in zip(found, PROBES.values(), strict=True) if not true), None)


@contextmanager
def quiet() -> Iterator[None]:
    """The client writes what a query failed of into a log, with values of rows in it."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


# -- describe ----------------------------------------------------------------------------------------------------------
# Names and types of the tables that Spark has: what a schema can be begun from. No value is read.


def describe(url: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and its tables and views by theirs."""
    session, place = own_session(url)
    try:
        tables = [found_table(session, place, name) for name in table_names(session, place).values()]
    finally:
        session.stop()
    return place.database, {
        table.found.name: Described(dict(table.found.columns), is_view=table.found.is_view) for table in tables
    }


# -- engine ------------------------------------------------------------------------------------------------------------


class SparkEngine:
    copied = False

    def __init__(self, session: SparkSession, place: Namespace, url: str | None, schema: Schema) -> None:
        """Raises SchemaError unless every declared table and column is there, with a type that fits."""
        self._session, self._url = session, url
        self.timeout: float | None = None
        self._lost = False
        self._lock = threading.RLock()
        self._places = {
            table.name.lower(): Namespace(place.catalog, table.place[0] or place.database)
            for table in schema.tables.values()
        }
        names = {where: table_names(session, where) for where in set(self._places.values())}
        self._tables = {
            table.name.lower(): _checked(session, where, table, names[where])
            for table, where in zip(schema.tables.values(), self._places.values(), strict=True)
        }
        reads = {name: self._read(table) for name, table in schema.tables.items()}
        self.render: Render = partial(render, tables=reads)
        self.guarantees = Guarantees()

    @classmethod
    def open(cls, database: object, schema: Schema) -> SparkEngine:
        """For a URL, a lost session is replaced."""
        session, place = own_session(database)
        url = database if isinstance(database, str) else None
        try:
            return cls(session, place, url, schema)
        except BaseException:
            if url is not None:
                session.stop()
            raise

    def _read(self, table: Table) -> str:
        """The declared columns, read as declared."""
        found = self._tables[table.name.lower()]
        read_columns = []
        for column in table.columns.values():
            own = found.found.column(column.name) or column.name
            read = found.types[own].read_as(f"_stored.{quoted(own)}", column.stored_type)
            read_columns.append(f"{read} AS {quoted(column.name)}")
        stored = self._places[table.name.lower()].table(found.found.name)
        return f"SELECT {', '.join(read_columns)} FROM {stored} AS _stored"

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""
        with self._lock, quiet():
            try:
                self._compare()
            except OperationalError:
                if not self._is_lost():
                    raise
                self._connect_again(patience=0)

    def _compare(self) -> None:
        try:
            now = {
                name: found_table(self._session, self._places[name], table.found.name)
                for name, table in self._tables.items()
            }
        except Exception:
            problem = OperationalError(
                "Spark does not answer, or a declared table is gone", hint="check it with spark-sql, then reconnect"
            )
        else:
            if now == self._tables:
                return
            problem = OperationalError(
                "a declared table was changed since the connection was opened", hint="reconnect to check it again"
            )
        raise problem

    def _is_lost(self) -> bool:
        """Whether the session does not answer any more, and another one can be made."""
        self._lost = self._url is not None and not answers(self._session)
        return self._lost

    def _connect_again(self, patience: float) -> None:
        assert self._url is not None
        self._session, _ = reached_again(self._url, patience)
        self._compare()
        self._lost = False

    def can_run(self, sql: str) -> bool:
        """The session analyses it, which looks names and types up. No job is run."""
        with self._lock, quiet():
            try:
                return self._lost or bool(self._session.sql(sql).schema.fields)
            except Exception:
                if self._is_lost():
                    return True
        self.check_unchanged()
        return False

    def run(self, sql: str, materialized: Mapping[str, str] | None = None) -> Mapping[str, np.ndarray]:
        assert not materialized, "rows on a server can be changed by others"
        return self._run(sql, self.timeout)

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        return run_twice_if_lost(self._run, sql)

    def _run(self, sql: str, seconds: float | None = None) -> Mapping[str, np.ndarray]:
        with self._lock, quiet():
            if self._lost:
                self._connect_again(RESTART)
            try:
                # The session is our own, and asks one thing at a time: all that it runs is this.
                with stopped_after(seconds, self._session.interruptAll):
                    return _fetched(self._session.sql(sql))
            except KeyboardInterrupt:
                self._session.interruptAll()
                raise
            except TimedOut:
                raise
            except Exception:
                if not self._is_lost():
                    raise
        raise ConnectionLost

    def close(self) -> None:
        if self._url is not None:
            self._session.stop()


def _checked(session: SparkSession, place: Namespace, table: Table, names: Mapping[str, str]) -> SparkTable:
    own = table.place[1].lower()
    if own not in names:
        raise SchemaError(
            f'tables.{table.name}: the database {place} has no table "{table.place[1]}"',
            hint=did_you_mean(own, names)
            or "a temporary view exists only in its own session; save it with  df.write.saveAsTable(...)",
        )
    found = found_table(session, place, names[own])
    if table.view is None and found.kept_as not in (*FORMATS, "VIEW"):
        raise SchemaError(
            f"tables.{table.name}: it is stored as {found.kept_as or 'something unknown'}, so reading a row may fail",
            hint=f"CREATE TABLE ... USING parquet AS SELECT * FROM {table.name}; or write  view: trusted  in it, "
            "if no row can make it fail; docs/owners.md says why",
        )
    check_table(table, found.found)
    return found


INTEGERS = ("tinyint", "smallint", "int", "bigint")
KINDS: dict[str, Fetched] = {
    **dict.fromkeys(INTEGERS, "integer"),
    **{f"array<{kind}>": "integers" for kind in INTEGERS},
    "boolean": "boolean",
    "double": "double",
    **dict.fromkeys(("date", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
}


def _fetched(frame: DataFrame) -> Mapping[str, np.ndarray]:
    kinds: dict[str, Fetched] = {
        field.name: KINDS.get(field.dataType.simpleString().partition("(")[0], "other") for field in frame.schema.fields
    }
    return columns(frame.collect(), kinds)


# -- certification -----------------------------------------------------------------------------------------------------
# Made-up rows in Spark, copied from DuckDB into a database of their own that is dropped again: for `dpsql certify`.

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

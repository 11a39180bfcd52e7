"""PostgreSQL runs the engine SQL, and nothing but its result leaves it.

The connection is our own and only reads. Every declared table is read through its declared columns alone, by its full
name; functions and types are found in pg_catalog. Each query sees one state of the database, in which the tables are
those that were opened. Settings are those of a transaction and no statement has a name, so that a pooler may give each
transaction to another process of the server.
"""

from __future__ import annotations

import math
import re
import threading
import warnings
from contextlib import closing, contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import DiagnosticField, ExecStatus

from dpsql.engines.base import ConnectionLost, Guarantees, TableUnavailable, TimedOut, run_twice_if_lost
from dpsql.engines.postgresql.catalog import current_schema, found_tables
from dpsql.engines.postgresql.render import render
from dpsql.engines.render import literal, quoted
from dpsql.engines.results import columns
from dpsql.engines.tables import Described, check_table, is_present
from dpsql.errors import OperationalError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import duckdb
    import numpy as np

    from dpsql.engines.base import MadeUpTables, Render
    from dpsql.engines.postgresql.catalog import PostgreSQLTable
    from dpsql.engines.results import Fetched
    from dpsql.schema.model import Schema, Table

CERTIFIED = (15,)
OLDEST = 14
LOCK_SECONDS = 10
# What our SQL was certified with. The meaning of a query depends on these, or the form of its result.
SETTINGS = {
    "search_path": "pg_catalog, pg_temp",
    "standard_conforming_strings": "on",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "transform_null_equals": "off",
    "array_nulls": "on",
    "client_encoding": "UTF8",
    "row_security": "on",
    "jit": "off",
    # A hash table that several processes share may outgrow the shared memory that a container has.
    "enable_parallel_hash": "off",
    # Where it expects few rows PostgreSQL compares each with each, and one person's rows would meet everybody's.
    "enable_nestloop": "off",
    # Most of our queries group rows by unit, where several processes save time and hand over nearly as much as they
    # read: for less than the planner thinks, and for the less, the fewer of them have rows of the same unit.
    "parallel_tuple_cost": "0.01",
    "parallel_leader_participation": "off",
    # Somebody else's lock is said to be one, long before a time limit ends the query.
    "lock_timeout": f"{LOCK_SECONDS}s",
}
"""For the transaction of each query alone."""
WORKING_MEMORY = 64 * 1024
"""Kilobytes for each sort and hash of a query, where the server gives less: people are told apart by hashing them."""
LONGEST_WAIT = "1h"
"""A query's time, where the server has no limit of its own."""

PATIENCE = {"connect_timeout": 10, "keepalives_idle": 60, "keepalives_interval": 10, "keepalives_count": 6}
"""Seconds after which a server that says nothing is taken for gone, unless the URL says otherwise."""
CHANGED = "a declared table was changed since the connection was opened, is gone, or can no longer be read"
CONNECT_AGAIN = "reconnect to check it again"
LOCKED = "a table that the query reads is locked by another session"
ASK_AGAIN = "try again later; whoever alters, truncates or rewrites a table locks it until the end of that transaction"
LOCK_NOT_AVAILABLE = b"55P03"
WAITED_TOO_LONG = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected)
RESTART, PAUSE = 30.0, 0.2
"""Seconds that a question which is paid for waits for a server that went away, and between two tries."""


class PostgreSQLEngine:
    copied = False

    def __init__(self, connection: psycopg.Connection, url: str, place: str, schema: Schema) -> None:
        """Raises SchemaError unless every declared table and column is there, with a type that fits."""
        self._connection, self._url = connection, url
        self._settings = _settings(connection)
        self.timeout: float | None = None
        self._lock = threading.RLock()
        self._places = {
            table.name.lower(): (table.place[0] or place, table.place[1].lower()) for table in schema.tables.values()
        }
        with self._transaction():
            found = self._found(connection)
        for table in schema.tables.values():
            _check(table, found[self._places[table.name.lower()][0]], self._places[table.name.lower()])
        self._tables = {name: found[where][own] for name, (where, own) in self._places.items()}
        reads = {name: self._read(table) for name, table in schema.tables.items()}
        self._reads = {name.lower(): read for name, read in reads.items()}
        for name, read in reads.items():
            self._try(name, read)
        self.render: Render = partial(render, tables=reads)
        self.guarantees = _guarantees(schema, self._tables)

    @classmethod
    def open(cls, url: str, schema: Schema) -> PostgreSQLEngine:
        connection, place = connected(url)
        try:
            return cls(connection, url, place, schema)
        except BaseException:
            connection.close()
            raise

    def _found(self, connection: psycopg.Connection) -> dict[str, dict[str, PostgreSQLTable]]:
        """The contents of each schema that has a declared table."""
        return {place: found_tables(connection, place) for place in {place for place, _ in self._places.values()}}

    def _read(self, table: Table) -> str:
        """The declared columns, read as declared."""
        found = self._tables[table.name.lower()]
        read_columns = []
        for column in table.columns.values():
            own = found.found.column(column.name) or column.name
            read = found.types[own].read_as(f"_stored.{quoted(own)}", column.type)
            read_columns.append(f"{read} AS {quoted(column.name)}")
        return f"SELECT {', '.join(read_columns)} FROM {self._qualified(table.name.lower())} AS _stored"

    def _qualified(self, name: str) -> str:
        return f"{quoted(self._places[name][0])}.{quoted(self._tables[name].found.name)}"

    def _try(self, table: str, read: str) -> None:
        """Checks, without reading a row, that the role may read the declared columns."""
        try:
            with self._transaction() as connection:
                connection.execute(f"{read} WHERE false".encode())
            return
        except psycopg.errors.LockNotAvailable:
            problem = OperationalError(f"tables.{table}: it is locked by another session", hint=ASK_AGAIN)
        except psycopg.Error:
            problem = OperationalError(
                f"tables.{table}: this role cannot read the declared columns",
                hint=f'GRANT SELECT ON "{table}" TO the role',
            )
        raise problem

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""
        try:
            return self._look()
        except psycopg.Error:
            lost = self._connection.closed
        if lost:
            with suppress(psycopg.Error):
                return self._look()
            raise OperationalError("PostgreSQL does not answer", hint="check it with psql, then try again")
        raise OperationalError(CHANGED, hint=CONNECT_AGAIN)

    def _look(self) -> None:
        with self._reading(None):
            pass

    def can_run(self, sql: str) -> bool:
        """The server parses it and looks its names up. It plans nothing, so that statistics have no part in it."""
        with self._lock:
            if self._connection.closed:
                return True
            with suppress(psycopg.Error), self._transaction() as connection:
                answer = connection.pgconn.prepare(b"", sql.encode())
                if answer.status == ExecStatus.COMMAND_OK:
                    return True
                if answer.error_field(DiagnosticField.SQLSTATE) == LOCK_NOT_AVAILABLE:
                    raise TableUnavailable(LOCKED, hint=ASK_AGAIN)
            if self._connection.closed:
                return True
        self.check_unchanged()
        return False

    def run(self, sql: str, materialized: Mapping[str, str] | None = None) -> Mapping[str, np.ndarray]:
        assert not materialized, "rows on a server can be changed by others"
        return self._run(sql, self.timeout)

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        return run_twice_if_lost(self._run, sql)

    def _run(self, sql: str, seconds: float | None = None) -> Mapping[str, np.ndarray]:
        try:
            with self._reading(sql, patience=RESTART) as connection:
                if seconds is not None:
                    # For this transaction, in the place of the server's own limit.
                    connection.execute(_set_local("statement_timeout", str(math.ceil(1000 * seconds))))
                return _fetched(connection.execute(sql.encode()))
        except psycopg.errors.QueryCanceled:
            if seconds is None:
                raise
            is_late = True
        except psycopg.Error:
            if not self._connection.closed:
                raise
            is_late = False
        raise TimedOut if is_late else ConnectionLost

    @contextmanager
    def _reading(self, sql: str | None, patience: float = 0) -> Iterator[psycopg.Connection]:
        """A snapshot of the database in which the tables that `sql` reads are unchanged, and nobody can alter them from
        here on; without `sql`, all declared tables are unchanged, and none is locked. Reconnects if necessary.
        """
        with self._lock:
            if self._connection.closed:
                self._connection = _connected_again(self._url, patience)
                self._settings = _settings(self._connection)
            with self._transaction() as connection:
                read = self._tables.keys() if sql is None else self._read_by(sql)
                if sql is not None:
                    self._lock_tables(connection, read)
                if not self._is_unchanged(connection, read):
                    raise TableUnavailable(CHANGED, hint=CONNECT_AGAIN)
                yield connection

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        with self._connection.transaction(force_rollback=True):
            self._connection.execute(self._settings)
            yield self._connection

    def _read_by(self, sql: str) -> Collection[str]:
        return [name for name in self._tables if f"FROM {self._qualified(name)} AS _stored" in sql]

    def _lock_tables(self, connection: psycopg.Connection, read: Collection[str]) -> None:
        """Before the transaction's snapshot, which the first SELECT takes. No row decides how long this takes."""
        lockable = [name for name in read if self._tables[name].can_be_locked]
        locks = [f"LOCK TABLE {', '.join(map(self._qualified, lockable))} IN ACCESS SHARE MODE"] if lockable else []
        # Who may not lock a table has it locked by a query of it.
        locks += [f"{self._reads[name]} WHERE false" for name in read if name not in lockable]
        locked = None
        try:
            for lock in locks:
                connection.execute(lock.encode())
        except WAITED_TOO_LONG:
            locked = True
        except psycopg.Error:
            if connection.closed:
                raise
            locked = False
        if locked is not None:
            raise TableUnavailable(LOCKED, hint=ASK_AGAIN) if locked else TableUnavailable(CHANGED, hint=CONNECT_AGAIN)

    def _is_unchanged(self, connection: psycopg.Connection, read: Collection[str]) -> bool:
        try:
            now = self._found(connection)
        except psycopg.Error:
            if connection.closed:
                raise
            return False
        places = ((name, *self._places[name]) for name in read)
        return all(now[where].get(own) == self._tables[name] for name, where, own in places)

    def close(self) -> None:
        self._connection.close()


def connected(url: str) -> tuple[psycopg.Connection, str]:
    """A read-only connection, and the schema that the URL selects."""
    try:
        # Statements have no names, which a pooler would give to another process of the server.
        connection = psycopg.connect(make_conninfo("", **PATIENCE | conninfo_to_dict(url)), prepare_threshold=None)
    except psycopg.Error as error:
        problem = OperationalError(
            f"PostgreSQL cannot be reached: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint="try the same URL with psql",
        )
    else:
        try:
            return connection, _prepared(connection)
        except BaseException:
            connection.close()
            raise
    raise problem


def _connected_again(url: str, patience: float) -> psycopg.Connection:
    """Retries for this many seconds, because a restarted server is usually back soon."""
    until = monotonic() + patience
    while True:
        try:
            return connected(url)[0]
        except OperationalError:
            if monotonic() > until:
                raise
        sleep(PAUSE)


def _prepared(connection: psycopg.Connection) -> str:
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        raise OperationalError(f"PostgreSQL {version} is too old", hint=f"dpsql needs {OLDEST} or newer")
    if version not in CERTIFIED:
        certified = ", ".join(map(str, CERTIFIED))
        warnings.warn(
            f"dpsql is certified on PostgreSQL {certified}, but this is {version}; see docs/engines.md", stacklevel=2
        )
    place = current_schema(connection)
    if place is None:
        raise OperationalError(
            "the search_path of this connection selects no schema",
            hint="name one: postgresql://user@host/db?options=-csearch_path%3Dsales",
        )
    connection.execute(_set_local("search_path", SETTINGS["search_path"]))
    ((encoding, unicode),) = connection.execute(
        "SELECT current_setting('server_encoding'), EXISTS (SELECT 1 FROM pg_collation WHERE collname = 'C.utf8')"
    ).fetchall()
    if encoding != "UTF8" or not unicode:
        raise OperationalError(
            f"the database has the encoding {encoding}" if encoding != "UTF8" else 'there is no collation "C.utf8"',
            hint="dpsql needs UTF8 and C.utf8: create the database with  ENCODING 'UTF8'  on a system that has C.UTF-8",
        )
    connection.rollback()
    connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
    return place


def _settings(connection: psycopg.Connection) -> bytes:
    """SETTINGS for one transaction, and the server's own limits where they are stricter. No SET takes a snapshot."""
    with connection.transaction():
        connection.execute(_set_local("search_path", SETTINGS["search_path"]))
        ((memory, limit, lock_limit),) = connection.execute(
            "SELECT pg_size_bytes(current_setting('work_mem')) / 1024, current_setting('statement_timeout'), "
            "(SELECT CAST(setting AS INTEGER) FROM pg_settings WHERE name = 'lock_timeout')"
        ).fetchall()
    settings = SETTINGS | {"work_mem": f"{max(memory, WORKING_MEMORY)}kB"}
    if limit == "0":
        settings["statement_timeout"] = LONGEST_WAIT
    if 0 < lock_limit < LOCK_SECONDS * 1000:
        settings["lock_timeout"] = f"{lock_limit}ms"
    return b"; ".join(_set_local(name, value) for name, value in settings.items())


def _set_local(name: str, value: str) -> bytes:
    """Names within a value, which a list of schemas has, are quoted one by one.

    >>> _set_local("work_mem", "64MB"), _set_local("search_path", "pg_catalog, pg_temp")
    (b"SET LOCAL work_mem = '64MB'", b"SET LOCAL search_path = 'pg_catalog', 'pg_temp'")
    """
    listed = ", ".join(map(literal, value.split(", "))) if name == "search_path" else literal(value)
    return f"SET LOCAL {name} = {listed}".encode()


def _guarantees(schema: Schema, tables: Mapping[str, PostgreSQLTable]) -> Guarantees:
    unique = {
        (name, column.lower()): table.found.columns[column]
        for name, table in tables.items()
        for column in table.found.unique
    }
    present = {
        (table.name.lower(), column.name.lower())
        for table in schema.tables.values()
        for column in table.columns.values()
        if is_present(column, tables[table.name.lower()].found)
    }
    return Guarantees(unique, frozenset(present))


def _check(table: Table, found: Mapping[str, PostgreSQLTable], place: tuple[str, str]) -> None:
    where, name = place
    if name not in found:
        raise SchemaError(
            f'tables.{table.name}: the schema "{where}" has no table "{table.place[1]}", or two with that name',
            hint=did_you_mean(name, found)
            or "declare a table of another schema as  sales.orders, or name the schema in the URL: "
            "?options=-csearch_path%3Dname",
        )
    own = found[name].found
    check_table(table, own)
    for column in table.columns.values():
        if sum(name.lower() == column.name.lower() for name in own.columns) > 1:
            raise SchemaError(
                f"tables.{table.name}.columns.{column.name}: two columns of the database have this name",
                hint="rename one, or declare a view that gives them different names",
            )


KINDS: dict[int, Fetched] = {
    **dict.fromkeys((20, 21, 23), "integer"),
    **dict.fromkeys((1005, 1007, 1016), "integers"),
    16: "boolean",
    701: "double",
    **dict.fromkeys((1082, 1114), "moment"),
    1700: "decimal",
}
"""By what the catalogue calls int8, int2 and int4; arrays of them; bool; float8; date and timestamp; numeric."""


def _fetched(cursor: psycopg.Cursor[Any]) -> Mapping[str, np.ndarray]:
    kinds: dict[str, Fetched] = {
        column.name: KINDS.get(column.type_code, "other") for column in cursor.description or []
    }
    return columns(cursor.fetchall(), kinds)


# -- describe ----------------------------------------------------------------------------------------------------------
# Names, types and constraints of a PostgreSQL database: what a schema can be begun from. No value is read.

USUAL_DECIMAL = "DECIMAL(18,2)"
"""To begin with, for a NUMERIC that does not say how many digits it has."""


def describe(url: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and its tables and views by theirs: what this role may read, and no partitions."""
    connection, place = connected(url)
    with closing(connection):
        connection.execute(_settings(connection))
        tables = found_tables(connection, place).values()
        name = connection.info.dbname
    return name, {
        table.found.name: Described(
            {
                column: stored.common if stored.keeps_apart else USUAL_DECIMAL
                for column, stored in table.types.items()
                if column in table.readable
            },
            set(table.found.unique),
            dict(table.references),
            is_view=table.found.is_view,
            what=table.found.what,
            nullable=set(table.nullable),
            values={column: list(stored.labels) for column, stored in table.types.items() if stored.labels},
        )
        for table in tables
        if table.readable and not table.is_partition
    }


# -- certification -----------------------------------------------------------------------------------------------------
# Made-up rows in PostgreSQL, in a schema of their own that is dropped again: for `dpsql certify`.

BEFORE_CHRIST = "4713-01-01 BC"
TYPES_OF_DUCKDB = {
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
        for theirs, ours in TYPES_OF_DUCKDB.items():
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

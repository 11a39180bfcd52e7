"""DuckDB runs the engine SQL. Its connection sees the declared tables alone, each by its declared name.

Files and frames are copied when they are opened, and then no longer read: every question finds the same table. A DuckDB
file is opened read-only and locked. A connection that the caller opened gives us one of our own to the same database;
there a declared table is a temporary view of the table in the schema that was in use.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar, cast

import duckdb
import numpy as np

from dpsql.engines.base import Guarantees, declared_type, engine_type, stopped_after
from dpsql.engines.duckdb.catalog import (
    SETTINGS,
    DatabaseSchema,
    current_place,
    definitions,
    fix_meaning,
    found_tables,
    lock,
    open_file,
    places_of,
    prepare_definitions,
)
from dpsql.engines.duckdb.render import render
from dpsql.engines.duckdb.sources import copy_table, files_of, names_files, table_name, written_at
from dpsql.engines.render import quoted
from dpsql.engines.tables import check_table, declared_columns, is_present
from dpsql.errors import InterfaceError, OperationalError, SchemaError, did_you_mean
from dpsql.schema.types import parse_type

if TYPE_CHECKING:
    from datetime import datetime

    from dpsql.engines.tables import FoundTable
    from dpsql.schema.model import Column, Schema, Table
    from dpsql.schema.types import ColumnType

# -- materialized tables -----------------------------------------------------------------------------------------------
# Temporary tables of results that are the same for every question (engine_sql/build.py), where rows are immutable.
#
# They are made when they are first needed; where there are too many, those go that were not needed for the longest
# time.

MOST_TABLES, MOST_CELLS = 64, 1 << 27
"""How many tables there are at most, and how many cells they have together, unless one question needs more: a gigabyte
of numbers. A list may name a column many times."""


class MaterializedTables:
    def __init__(self) -> None:
        self._cells: dict[str, int] = {}
        """How many each table has, those first that were not needed since."""

    def __len__(self) -> int:
        return len(self._cells)

    def keep(self, materialized: Mapping[str, str], connection: duckdb.DuckDBPyConnection) -> None:
        """Creates those of these named tables that do not exist yet."""
        for name, sql in materialized.items():
            cells = self._cells.pop(name, None)
            self._cells[name] = _cells_made(name, sql, connection) if cells is None else cells
        while len(self._cells) > len(materialized) and self._are_too_many():
            oldest = next(iter(self._cells))
            del self._cells[oldest]
            connection.execute(f"DROP TABLE {quoted(oldest)}")

    def _are_too_many(self) -> bool:
        return len(self._cells) > MOST_TABLES or sum(self._cells.values()) > MOST_CELLS


def _cells_made(name: str, sql: str, connection: duckdb.DuckDBPyConnection) -> int:
    # There may be one still, where its removal was interrupted.
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS {sql}")
    table = connection.table(quoted(name))
    return table.shape[0] * table.shape[1]


# -- engine ------------------------------------------------------------------------------------------------------------

What = TypeVar("What")

MOST_PARSED, LONGEST_PARSED = 32, 10_000
"""How many texts are known when they come again, and how long those are at most whose trees are kept."""


@dataclass(frozen=True)
class SharedTables:
    """The places of the declared tables in a database, their definitions, and their columns."""

    places: Mapping[str, tuple[DatabaseSchema, str]]
    created: Mapping[str, tuple[str, int] | None]
    found: Mapping[str, FoundTable]

    def differ(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Whether one is no longer what it was."""
        created = at_places(definitions, connection, self.places)
        if None not in created.values() and created == self.created:
            return False
        return at_places(found_tables, connection, self.places) != self.found


class DuckDBEngine:
    render = staticmethod(render)

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        schema: Schema,
        *,
        guarantees: Guarantees | None = None,
        copied: bool = False,
        shared: SharedTables | None = None,
        waiting: Sequence[tuple[Table, object]] = (),
    ) -> None:
        """`copied`: whether nobody changes the rows any more. Then the schema says which columns are NULL in no row
        and which keys are there once, and dpsql.owner.check looks.

        `shared`: the declared tables of a database that others can change.

        `waiting`: what tables of people are filled with when the first question has been paid for.
        """
        self._connection = connection
        self._declared = tuple(table.name for table in schema.tables.values())
        self.guarantees = guarantees or Guarantees()
        self.copied = copied
        self._shared = shared
        self._waiting = waiting
        self._forget: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._emptied: set[str] = set()
        self._statements: dict[bytes, duckdb.Statement | None] = {}
        self._materialized = MaterializedTables()
        self.timeout: float | None = None

    @classmethod
    def open(cls, database: object, schema: Schema) -> DuckDBEngine:
        """Raises SchemaError unless every declared table and column is there, with a type that fits."""
        if isinstance(database, duckdb.DuckDBPyConnection):
            return _over_tables(*_own_cursor(database), schema, shared=True)
        if isinstance(database, str | os.PathLike) and str(database) != ":memory:" and not names_files(database):
            path = Path(database)
            connection, changed = open_file(path), written_at([path, Path(f"{path}.wal")])
            return _over_tables(connection, current_place(connection), schema, shared=False, changed=changed)
        # What does not fit into memory is put there; nobody else may read it, and it is gone with the engine.
        spill = mkdtemp(prefix="dpsql_")
        connection = duckdb.connect(":memory:", config=SETTINGS | {"temp_directory": str(Path(spill) / "spill")})
        present = _columns(schema, lambda _, column: not column.nullable)
        unique = {
            (table.name.lower(), name.lower()): engine_type(table.columns[name].stored_type)
            for table in schema.tables.values()
            for name in schema.link_targets(table.name)
        }
        sources = _sources(database, schema)
        files = [path for source in sources.values() if names_files(source) for path in files_of(cast("Any", source))]
        guarantees = Guarantees(unique, present, immutable=True, changed=written_at(files))
        engine = cls(connection, schema, guarantees=guarantees, copied=True)
        engine._forget = weakref.finalize(engine, shutil.rmtree, spill, ignore_errors=True)
        _copy_tables(connection, sources, schema)
        connection.execute("SET enable_external_access = false")
        lock(connection)
        return engine

    def over(self, frames: Mapping[str, Any], schema: Schema) -> DuckDBEngine:
        """The same locked database, with frames that only this connection sees.

        Rows of people are read by `run`, which follows a charge; until then their tables are empty.
        """
        connection = self._connection.cursor()
        waiting = [(table, frames[table.name]) for table in schema.tables.values() if not table.is_public]
        empty = {table.name: frame.head(0) for table, frame in waiting}
        _copy_tables(connection, {**frames, **empty}, schema)
        engine = DuckDBEngine(connection, schema, waiting=waiting)
        engine.timeout = self.timeout
        return engine

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""
        try:
            with self._lock:
                self._compare_tables()
            return
        except duckdb.Error:
            problem = OperationalError(
                "the database does not answer", hint="check it with DuckDB directly, then reconnect"
            )
        raise problem

    def _compare_tables(self) -> None:
        if self._shared is not None and self._shared.differ(self._connection):
            raise OperationalError(
                "a declared table was changed since the connection was opened", hint="reconnect to check it again"
            )

    def can_run(self, sql: str) -> bool:
        try:
            empty = self._empty
            with self._lock:
                self._create_empty(sql)
                empty.execute(f"PREPARE asked AS {sql}")
            return True
        except duckdb.Error:
            understood = False
        self.check_unchanged()
        return understood

    @cached_property
    def _empty(self) -> duckdb.DuckDBPyConnection:
        """Declared tables without rows, so that none can have a part in what is found there."""
        empty = _database_without_rows(os.getpid()).cursor()
        empty.execute("PRAGMA disable_optimizer")
        return empty

    def _create_empty(self, sql: str) -> None:
        """Those that the SQL may read: a session may declare a hundred tables, and ask about one."""
        lower = sql.lower()
        for table in self._declared:
            if table in self._emptied or quoted(table).lower() not in lower:
                continue
            declared = self._connection.sql(f"FROM {quoted(table)}")
            typed = zip(declared.columns, declared.types, strict=True)
            columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in typed)
            self._empty.execute(f"CREATE TEMP TABLE {quoted(table)} ({columns})")  # which this cursor alone sees
            self._emptied.add(table)

    def run(self, sql: str, materialized: Mapping[str, str] | None = None) -> Mapping[str, np.ndarray]:
        return self._interruptible(lambda: self._run(sql, materialized or {}, paid=True))

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        return self._interruptible(lambda: self._run(sql, {}, paid=False))

    def _interruptible(self, work: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
        """Ctrl-C stops it, but only in the main thread, which receives the signal.

        DuckDB listens only between pieces of work that the asking thread does itself, and not while others work. So
        another thread asks, and this one waits, free to tell DuckDB.
        """
        if threading.current_thread() is not threading.main_thread():
            return work()
        answer: Future[Mapping[str, np.ndarray]] = Future()

        def ask() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(work())
                except BaseException as problem:  # told to whoever waits
                    answer.set_exception(problem)

        pool = self._asking
        try:
            pool.submit(ask)
            # A Ctrl-C that comes just before a wait is heard when the wait ends.
            while not wait([answer], timeout=0.1).done:
                pass
            return answer.result()
        except KeyboardInterrupt:
            answer.cancel()  # what has not begun yet never will
            ended = pool.submit(int)
            while not ended.done():
                self._connection.interrupt()
                wait([ended], timeout=0.1)
            raise

    @cached_property
    def _asking(self) -> ThreadPoolExecutor:
        """The thread that runs queries. It starts before the first query and ends with the engine."""
        pool = ThreadPoolExecutor(max_workers=1)
        pool.submit(int).result()
        return pool

    def _run(self, sql: str, materialized: Mapping[str, str], *, paid: bool) -> Mapping[str, np.ndarray]:
        # One connection, one query at a time: temporary tables are seen by the connection alone.
        with self._lock, stopped_after(self.timeout if paid else None, self._connection.interrupt):
            if paid:
                self._fill_tables()
            assert self.guarantees.immutable or not materialized
            self._materialized.keep(materialized, self._connection)
            # Within a transaction the tables that are compared are those that are read.
            self._connection.begin()
            try:
                self._compare_tables()
                return _fetched(self._connection.execute(self._parsed(sql)))
            finally:
                self._connection.rollback()

    def _parsed(self, sql: str) -> duckdb.Statement:
        """The parse tree, cached because parsing takes a third of the time of a short query. Planning is not cached.

        A tree is kept when its text occurs a second time; until then only a hash is kept, because a text with a salt
        never occurs again.
        """
        key = sha256(sql.encode()).digest()
        is_again = key in self._statements
        known = self._statements.pop(key, None)
        if known is None:
            (known,) = self._connection.extract_statements(sql)
        self._statements[key] = known if is_again and len(sql) <= LONGEST_PARSED else None
        if len(self._statements) > MOST_PARSED:
            del self._statements[next(iter(self._statements))]
        return known

    def _fill_tables(self) -> None:
        for table, frame in self._waiting:
            copy_table(self._connection, table, frame)
        self._waiting = ()

    def close(self) -> None:
        if "_asking" in vars(self):
            self._asking.shutdown()
        self._connection.close()
        self._forget()


@cache
def _database_without_rows(process: int) -> duckdb.DuckDBPyConnection:
    """One for all engines of a process: to open it takes longer than to compile ten aggregates. A fork shares none."""
    return duckdb.connect(":memory:", config=SETTINGS | {"threads": 1})


def column_types(columns: Mapping[str, object]) -> dict[str, ColumnType]:
    """The declared type for each column, given as one-column frames. Columns without a suitable type are omitted."""
    found = {}
    with duckdb.connect(":memory:", config=SETTINGS) as connection:
        for name, frame in columns.items():
            try:
                connection.register("frame", frame)
                kind = declared_type(str(connection.table("frame").types[0]))
            except (duckdb.Error, TypeError):
                continue
            if kind is not None:
                found[name] = parse_type(kind)
    return found


def _own_cursor(connection: duckdb.DuckDBPyConnection) -> tuple[duckdb.DuckDBPyConnection, DatabaseSchema]:
    """A connection of our own to the caller's database, and the schema that the caller uses."""
    try:
        return connection.cursor(), current_place(connection)
    except duckdb.Error:
        problem = InterfaceError("the duckdb connection is closed, or its transaction failed", hint="open it again")
    raise problem


def _over_tables(
    connection: duckdb.DuckDBPyConnection,
    place: DatabaseSchema,
    schema: Schema,
    *,
    shared: bool,
    changed: datetime | None = None,
) -> DuckDBEngine:
    """Temporary views of the declared tables, in a database that has them already."""
    try:
        fix_meaning(connection)
        places = places_of(schema, place)
        created = _created(connection, places) if shared else {}
        declared = {}
        for name, found in at_places(found_tables, connection, places).items():
            table, (where, _) = schema.table(name), places[name]
            assert table is not None
            if found is None:
                raise _no_such_table(table.name, found_tables(connection, where))
            check_table(table, found)
            columns = declared_columns(table, found, copied=False)
            connection.execute(
                f"CREATE TEMP VIEW {quoted(table.name)} AS SELECT {columns} FROM {where.qualified(found.name)}"
            )
            declared[name] = found
        unique = {
            (name, column.lower()): table.columns[column] for name, table in declared.items() for column in table.unique
        }
        present = _columns(schema, lambda table, column: is_present(column, declared[table.name.lower()]))
        here = place.database.lower(), place.schema.lower()
        guarantees = Guarantees(unique, present, immutable=not shared, changed=changed, place=here)
        watched = SharedTables(places, created, declared) if shared else None
        return DuckDBEngine(connection, schema, guarantees=guarantees, shared=watched)
    except duckdb.Error:
        problem = OperationalError("a declared view of the database cannot be read", hint="try it with DuckDB directly")
    except BaseException:
        connection.close()
        raise
    connection.close()
    raise problem


def _created(
    connection: duckdb.DuckDBPyConnection, places: Mapping[str, tuple[DatabaseSchema, str]]
) -> dict[str, tuple[str, int] | None]:
    """The definitions of the declared tables, read before anything else."""
    for where in {where for where, _ in places.values()}:
        prepare_definitions(connection, where)
    return at_places(definitions, connection, places)


def at_places(
    look: Callable[[duckdb.DuckDBPyConnection, DatabaseSchema], Mapping[str, What]],
    connection: duckdb.DuckDBPyConnection,
    places: Mapping[str, tuple[DatabaseSchema, str]],
) -> dict[str, What | None]:
    """The declared tables as found at their places."""
    seen = {place: look(connection, place) for place in {place for place, _ in places.values()}}
    return {declared: seen[place].get(name) for declared, (place, name) in places.items()}


def _columns(schema: Schema, chosen: Callable[[Table, Column], bool]) -> set[tuple[str, str]]:
    return {
        (table.name.lower(), column.name.lower())
        for table in schema.tables.values()
        for column in table.columns.values()
        if chosen(table, column)
    }


def _no_such_table(name: str, found: Collection[str]) -> SchemaError:
    return SchemaError(
        f'tables.{name}: the database has no table "{name}"',
        hint=did_you_mean(name.rpartition(".")[2], found) or "there are no tables at all",
    )


def _sources(database: object, schema: Schema) -> dict[str, object]:
    """Name -> frame or path. A single source is the only declared table; otherwise a file is named after itself."""
    if isinstance(database, Mapping):
        return {str(name): source for name, source in database.items()}
    if isinstance(database, str | os.PathLike) and str(database) == ":memory:":
        raise InterfaceError(
            'a new ":memory:" database has no tables', hint="pass an open duckdb connection, a file, or frames"
        )
    names = list(schema.tables)
    if len(names) == 1:
        return {names[0]: database}
    if isinstance(database, str | os.PathLike):
        return {table_name(Path(database)): database}
    raise InterfaceError(
        f"the schema declares {len(names)} tables, but only one source was given", hint="pass a dict of name -> source"
    )


def _copy_tables(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, object], schema: Schema) -> None:
    try:
        for name, source in sources.items():
            if (table := schema.table(name)) is not None:
                copy_table(connection, table, source)
            elif names_files(source):
                files_of(cast("Any", source))  # the better complaint, if there are none
        for table in schema.tables.values():
            if table.name.lower() not in map(str.lower, sources):
                raise _no_such_table(table.name, sources)
        fix_meaning(connection)
    except BaseException:
        connection.close()
        raise


def _fetched(found: duckdb.DuckDBPyConnection) -> Mapping[str, np.ndarray]:
    described = [(item[0], str(item[1])) for item in found.description or ()]
    if any(map(_is_long_decimal, (kind for _, kind in described))):
        return _from_rows(described, found.fetchall())
    return {name: np.asanyarray(column) for name, column in found.fetchnumpy().items()}


def _is_long_decimal(kind: str) -> bool:
    """Whether it has more digits than a double is guaranteed to preserve."""
    return kind.startswith("DECIMAL") and int(kind.partition("(")[2].partition(",")[0]) > sys.float_info.dig


def _from_rows(described: list[tuple[str, str]], rows: list[tuple[Any, ...]]) -> dict[str, np.ndarray]:
    """Columns with decimals among them, which as numbers would lose digits: keys travel as text."""
    columns: dict[str, np.ndarray] = {}
    for position, (name, kind) in enumerate(described):
        values = [row[position] for row in rows]
        if kind == "BIGINT":
            missing = [value is None for value in values]
            columns[name] = np.ma.masked_array(np.array([value or 0 for value in values], dtype=np.int64), mask=missing)
        elif kind == "BIGINT[]":
            columns[name] = np.empty(len(values), dtype=object)
            columns[name][:] = [None if value is None else np.array(value, dtype=np.int64) for value in values]
        else:
            columns[name] = np.empty(len(values), dtype=object)
            columns[name][:] = [None if value is None else str(value) for value in values]
    return columns

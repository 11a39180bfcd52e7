"""DuckDB: a file, a connection, a Parquet or CSV file, or frames in memory.

What dpsql opens itself is opened read-only and locked: no other file can be reached, no setting changed. A connection
that the caller opened keeps the caller's settings; only SQL that dpsql wrote is ever sent to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from dpsql.engines.lock import is_set, lock
from dpsql.errors import InterfaceError, OperationalError, SchemaError
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp, parse_type
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from dpsql.schema.model import Schema, Table
    from dpsql.schema.types import ColumnType

INTERRUPTED = "Query interrupted"
LOCKING = threading.Lock()
"""Threads that open one file share its settings: what one has locked another cannot lock again."""
# Given when a database is opened, they hold for every connection to it.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "pandas_analyze_sample": 0,  # a column of objects is text, whatever a sample of it holds
    "error_on_division_by_zero": False,
    "scalar_subquery_error_on_multiple_rows": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
# A text file is read as text and typed by the scan: else one odd cell, guessed wrong from a sample, fails the query.
AS_TEXT = "read_csv({}, all_varchar = true, ignore_errors = true, null_padding = true)"
READERS = {".parquet": "read_parquet({})", ".csv": AS_TEXT, ".tsv": AS_TEXT}
INTEGERS = {sign + size for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")}
# Which of the engine's types can stand for a declared one without losing what it holds.
FITTING: dict[type, set[str]] = {
    Integer: INTEGERS,
    Double: {"FLOAT", "DOUBLE", "DECIMAL", *INTEGERS},
    Decimal: {"DECIMAL", *INTEGERS},
    Text: {"VARCHAR", "ENUM", "UUID"},
    Boolean: {"BOOLEAN"},
    Date: {"DATE"},
    Timestamp: {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE"},
}


# Types whose different values stay different as the declared type: the others are rounded when they are read.
APART: dict[type, set[str]] = {
    Double: {"FLOAT", "DOUBLE"},
    Timestamp: {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "DATE"},
}


class DuckDBEngine:
    def __init__(self, connection: duckdb.DuckDBPyConnection, *, untyped: bool = False) -> None:
        """`untyped`: the tables come from files or frames whose texts may stand for any type."""
        self._connection = connection
        self._untyped = untyped
        self._lock = threading.Lock()
        # Read once, when connecting: whoever replaces a table of an open session connects anew.
        self._unique = self._unique_columns()

    @classmethod
    def open(cls, database: object, schema: Schema) -> DuckDBEngine:
        if isinstance(database, duckdb.DuckDBPyConnection):
            return cls(_own_cursor(database))
        if isinstance(database, str | os.PathLike) and str(database) != ":memory:":
            path = Path(database)
            if path.suffix.lower() not in READERS:
                return cls(open_file(path))
        return cls(_open_tables(_tables(database, schema)), untyped=True)

    def over(self, frames: Mapping[str, object]) -> DuckDBEngine:
        """The same database, locked as it is, with frames that this connection alone sees."""
        connection = self._connection.cursor()
        for name, frame in frames.items():
            _register(connection, name, frame)
        return DuckDBEngine(connection, untyped=True)

    def check(self, schema: Schema) -> None:
        found = self._columns()
        for table in schema.tables.values():
            columns = found.get(table.name.lower())
            if columns is None:
                raise SchemaError(
                    f'tables.{table.name}: the database has no table "{table.name}"',
                    hint=did_you_mean(table.name, found) or "the database has no tables at all",
                )
            _check_table(table, columns, untyped=self._untyped)

    def is_unique(self, table: str, column: str, kind: ColumnType) -> bool:
        stored = self._unique.get((table.lower(), column.lower()), "").partition("(")[0]
        return stored in APART.get(type(kind), FITTING[type(kind)])

    def run(self, sql: str) -> Mapping[str, np.ndarray]:
        try:
            return self._run(sql)
        except RuntimeError as error:
            # How DuckDB tells of Ctrl-C. It is the analyst's own act, and not the failure that other errors are.
            if str(error) != INTERRUPTED:
                raise
        raise KeyboardInterrupt

    def _run(self, sql: str) -> Mapping[str, np.ndarray]:
        # One connection, one query at a time: registered frames are seen by the connection alone.
        with self._lock:
            found = self._connection.execute(sql)
            described = [(item[0], str(item[1])) for item in found.description or ()]
            if any(kind.startswith("DECIMAL") for _, kind in described):
                return _from_rows(described, found.fetchall())
            return {name: np.ma.asanyarray(column) for name, column in found.fetchnumpy().items()}

    def close(self) -> None:
        self._connection.close()

    def _columns(self) -> dict[str, dict[str, str]]:
        """The type of every column, by table; names in lower case, as SQL compares them.

        The connection is our own, so the only temporary tables are the frames that were registered.
        """
        rows = self._rows(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE database_name IN (current_database(), 'temp') AND schema_name = current_schema() AND NOT internal"
        )
        found: dict[str, dict[str, str]] = {}
        for table, column, kind in rows:
            found.setdefault(table.lower(), {})[column.lower()] = kind
        return found

    def _unique_columns(self) -> dict[tuple[str, str], str]:
        """Tables and columns that a constraint keeps unique, with the columns' types."""
        rows = self._rows(
            "SELECT table_name, constraint_column_names[1] FROM duckdb_constraints() "
            "WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND len(constraint_column_names) = 1 "
            "AND database_name = current_database() AND schema_name = current_schema()"
        )
        types = self._columns() if rows else {}
        return {(t.lower(), c.lower()): types.get(t.lower(), {}).get(c.lower(), "") for t, c in rows}

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(sql).fetchall()


def column_types(columns: Mapping[str, object]) -> dict[str, ColumnType]:
    """The type to declare for each column, given as a frame of its own. What no type can stand for is left out."""
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


def _own_cursor(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A connection of our own to the caller's database."""
    problem: InterfaceError | SchemaError
    try:
        cursor = connection.cursor()
        (collation,) = cursor.execute("SELECT current_setting('default_collation')").fetchone() or ("",)
        if collation.lower() in ("", "binary", "c", "posix"):
            return cursor
        problem = SchemaError(
            f'the database compares texts by the collation "{collation}"',
            hint="SET default_collation = '' first: texts that are equal to it may be spelled differently",
        )
    except duckdb.Error:
        problem = InterfaceError("the duckdb connection is closed", hint="open it again")
    raise problem


def _check_table(table: Table, columns: Mapping[str, str], *, untyped: bool) -> None:
    for column in table.columns.values():
        path = f"tables.{table.name}.columns.{column.name}"
        kind = columns.get(column.name.lower())
        if kind is None:
            raise SchemaError(
                f'{path}: the database has no column "{column.name}"', hint=did_you_mean(column.name, columns)
            )
        if not (_fits(column.type, kind) or (untyped and kind == "VARCHAR")):
            # The name of an ENUM lists what the column holds.
            kind = kind if kind.startswith("DECIMAL") else kind.partition("(")[0]
            raise SchemaError(
                f"{path}: declared as {column.type.name}, and the database has {kind}", hint=_type_hint(kind, path)
            )


def _fits(declared: ColumnType, kind: str) -> bool:
    name = kind.partition("(")[0]
    if isinstance(declared, Decimal) and name == "DECIMAL":
        scale = int(kind.partition(",")[2].rstrip(")"))
        return scale <= declared.scale
    return name in FITTING[type(declared)]


def declared_type(kind: str) -> str | None:
    """The type to declare for one of the engine's; None if no declared type can stand for it.

    >>> declared_type("UBIGINT"), declared_type("DECIMAL(18,2)"), declared_type("BLOB")
    ('integer', 'decimal(18,2)', None)
    """
    name = kind.partition("(")[0]
    if name == "DECIMAL":
        return kind.lower()
    return next((declared.__name__.lower() for declared, kinds in FITTING.items() if name in kinds), None)


def _type_hint(kind: str, path: str) -> str:
    fitting = declared_type(kind)
    return f"write  type: {fitting}  in {path}" if fitting else f"leave {path} out: {kind} columns cannot be used"


def open_file(path: Path) -> duckdb.DuckDBPyConnection:
    if not path.exists():
        raise OperationalError(f"there is no database {path}", hint="check the path; dpsql never creates data")
    problem = None
    try:
        connection = duckdb.connect(str(path), read_only=True, config=SETTINGS | {"enable_external_access": False})
        # Another session of this process may have opened and locked it already, with the same settings.
        with LOCKING:
            if not is_set(connection, "lock_configuration"):
                lock(connection)
        return connection
    except duckdb.ConnectionException:
        problem = OperationalError(
            f"{path} is open in this process already, with other settings",
            hint="close that connection, or give it to dpsql.connect instead of the path",
        )
    except duckdb.Error:
        problem = OperationalError(
            f"{path} cannot be opened as a DuckDB database",
            hint="it may be another kind of file, damaged, or locked by a process that writes to it",
        )
    raise problem


def _tables(database: object, schema: Schema) -> dict[str, object]:
    """Name -> frame or path. One frame or file stands for the only declared table, a file else for its own name."""
    if isinstance(database, Mapping):
        return {str(name): source for name, source in database.items()}
    if str(database) == ":memory:":
        raise InterfaceError(
            'a new ":memory:" database has no tables', hint="give an open duckdb connection, a file, or frames"
        )
    names = list(schema.tables)
    if isinstance(database, str | os.PathLike) and len(names) > 1:
        return {Path(database).stem: database}
    if len(names) > 1:
        raise InterfaceError(
            f"the schema declares {len(names)} tables, and one frame was given", hint="give a dict of name -> frame"
        )
    return {names[0]: database}


def _open_tables(tables: Mapping[str, object]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=SETTINGS)
    paths = [str(Path(source).resolve()) for source in tables.values() if isinstance(source, str | os.PathLike)]
    connection.execute("SET allowed_paths = [" + ", ".join(quoted(path, "'") for path in paths) + "]")
    for name, source in tables.items():
        if isinstance(source, str | os.PathLike):
            _view_file(connection, name, Path(source).resolve())
        else:
            _register(connection, name, source)
    connection.execute("SET enable_external_access = false")
    lock(connection)
    return connection


def _view_file(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> None:
    reader = READERS.get(path.suffix.lower())
    if not path.exists():
        raise OperationalError(f"there is no file {path}", hint="check the path")
    if reader is None:
        raise OperationalError(f"{path} is no Parquet or CSV file", hint="give a .parquet or .csv file")
    try:
        connection.execute(
            f"CREATE VIEW {quoted(name, chr(34))} AS SELECT * FROM {reader.format(quoted(str(path), chr(39)))}"
        )
        return
    except duckdb.Error:
        problem = OperationalError(
            f"{path} cannot be read", hint=f"it should be a {path.suffix} file with named columns"
        )
    raise problem


def _register(connection: duckdb.DuckDBPyConnection, name: str, frame: Any) -> None:
    try:
        connection.register(name, frame)
        return
    except (duckdb.Error, TypeError):
        problem = InterfaceError(
            f'"{name}" cannot be read: {type(frame).__name__}', hint="give a pandas, polars or Arrow table, or a path"
        )
    raise problem


def quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


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

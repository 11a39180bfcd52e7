"""What every engine provides: types, guarantees, and running one SELECT."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dpsql.errors import OperationalError
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    import duckdb
    import numpy as np

    from dpsql.engine_sql.tree import Query
    from dpsql.schema.model import Schema
    from dpsql.schema.types import ColumnType

ENGINE_TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE",
    Text: "VARCHAR",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP",
}
KINDS: dict[str, ColumnType] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), Integer()),
    **dict.fromkeys(("FLOAT", "DOUBLE"), Double()),
    "VARCHAR": Text(),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    "TIMESTAMP": Timestamp(),
}
INTEGERS = {sign + size for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")}
# Those that 64 bits hold, and how many digits they have.
DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "UTINYINT": 3, "USMALLINT": 5, "UINTEGER": 10}
SHORTER = {"TINYINT", "SMALLINT", "INTEGER"}
"""Whole numbers that a declared one holds, and that take less room."""
# Which of the engine's types can stand for a declared one without losing what it holds.
FITTING: dict[type, set[str]] = {
    Integer: INTEGERS,
    Double: {"FLOAT", "DOUBLE", "DECIMAL", *INTEGERS},
    Decimal: {"DECIMAL", *INTEGERS},
    Text: {"VARCHAR", "ENUM", "UUID", "JSON", "TIME"},
    Boolean: {"BOOLEAN"},
    Date: {"DATE"},
    Timestamp: {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "DATE"},
}
# Types whose different values stay different as the declared type: the others are rounded when they are read.
APART: dict[type, set[str]] = {
    Double: {"FLOAT", "DOUBLE"},
    Timestamp: {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "DATE"},
}


def engine_type(kind: ColumnType) -> str:
    return f"DECIMAL({kind.precision}, {kind.scale})" if isinstance(kind, Decimal) else ENGINE_TYPES[type(kind)]


def answer_kind(engine_type: str) -> ColumnType | None:
    """The type in which a column of an answer is read, by the post-processing database's name for its own."""
    name = engine_type.partition("(")[0]
    return parse_type(engine_type) if name == "DECIMAL" else KINDS.get(name)


def fits(declared: ColumnType, stored: str) -> bool:
    name = stored.partition("(")[0]
    if isinstance(declared, Decimal) and name == "DECIMAL":
        scale = int(stored.partition(",")[2].rstrip(")"))
        return scale <= declared.scale
    return name in FITTING[type(declared)]


def stays_apart(declared: ColumnType, stored: str) -> bool:
    """Whether different stored values are different as the declared type too."""
    return stored.partition("(")[0] in APART.get(type(declared), FITTING[type(declared)])


def is_total(declared: ColumnType, stored: str, *, bounded: bool) -> bool:
    """Whether every stored value is a value as the declared type too: it fits, and is no NaN, infinity or endless text.

    Bounds bring the last day and moment of all, which are infinite, back.
    """
    name = stored.partition("(")[0]
    match declared:
        case Integer():
            return name in DIGITS
        case Double():
            return name in {"DECIMAL", *INTEGERS}
        case Decimal(precision, scale):
            before = _digits_before_point(stored) if name == "DECIMAL" else DIGITS.get(name, precision + 1)
            return before <= precision - scale
        case Boolean():
            return True
        case Date() | Timestamp():
            return bounded and name == declared.name.upper()
        case _:
            return name == "UUID"


def _digits_before_point(stored: str) -> int:
    """
    >>> _digits_before_point("DECIMAL(18,2)")
    16
    """
    precision, scale = stored.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return int(precision) - int(scale)


def declared_type(stored: str) -> str | None:
    """The declared type for a type of the engine; None if there is none.

    >>> declared_type("UBIGINT"), declared_type("DECIMAL(18,2)"), declared_type("BLOB")
    ('integer', 'decimal(18,2)', None)
    """
    name = stored.partition("(")[0]
    if name == "DECIMAL":
        return stored.lower()
    return next((declared.__name__.lower() for declared, kinds in FITTING.items() if name in kinds), None)


def read_as(column: str, stored: str, declared: ColumnType) -> str:
    """The stored column as the declared type, NULL where a value does not fit: it fails for no value.

    A cast that has nothing to try keeps what the engine knows of the column, such as that it is never NULL.
    """
    if stored == "TIMESTAMP_NS":
        return f"TRY_CAST({_microsecond(column)} AS {engine_type(declared)})"
    if stored == "TIMESTAMP WITH TIME ZONE":
        # The moment in UTC, whatever the zone of a connection; an infinite one has none.
        return f"TRY(make_timestamp(epoch_us({column})))"
    return f"{'' if _always_fits(declared, stored) else 'TRY_'}CAST({column} AS {engine_type(declared)})"


def _always_fits(declared: ColumnType, stored: str) -> bool:
    name = stored.partition("(")[0]
    return name in DIGITS if isinstance(declared, Integer) else isinstance(declared, Double) and fits(declared, stored)


def valid_text(column: str) -> str:
    """A text whose bytes may be no UTF-8, as frames can hold it: then NULL."""
    return f"TRY(decode(encode({column})))"


def _microsecond(column: str) -> str:
    """The microsecond that a moment lies in. A cast would take the nearest, and so 23:59:59.999999999 to the next day.

    Nanoseconds before 1970 are negative, and // cuts towards zero. Infinite moments have none.
    """
    count = f"epoch_ns({column})"
    floor = f"CASE WHEN {count} >= 0 THEN {count} // 1000 ELSE ({count} + 1) // 1000 - 1 END"
    return f"CASE WHEN isfinite({column}) THEN make_timestamp({floor}) ELSE CAST({column} AS TIMESTAMP) END"


# -- engine ------------------------------------------------------------------------------------------------------------
# What dpsql needs of a database: its own guarantees, that its tables stay, and to run one SELECT.

BETWEEN_INTERRUPTS = 0.1


class ConnectionLost(Exception):
    """The connection broke during a SELECT, before its result was read; `run` can reconnect."""


class TimedOut(Exception):
    """A SELECT took longer than `Engine.timeout`, and was ended."""


class TableUnavailable(OperationalError):
    """A declared table is not the one that was opened, or somebody else keeps it locked: no row plays a part in it."""


def run_twice_if_lost(run: Callable[[str], Mapping[str, np.ndarray]], sql: str) -> Mapping[str, np.ndarray]:
    """Retries a call that reads no private rows, because network failures and restarts are temporary."""
    try:
        return run(sql)
    except ConnectionLost:
        return run(sql)


@contextmanager
def stopped_after(seconds: float | None, interrupt: Callable[[], object]) -> Iterator[None]:
    """Interrupts the block when its time is over. Whatever comes of it then, this raises TimedOut."""
    if seconds is None:
        yield
        return
    ended, late = threading.Event(), threading.Event()

    def watch() -> None:
        if not ended.wait(seconds):
            late.set()
            # Again and again: an interrupt that comes between two statements stops neither.
            while not ended.is_set():
                with suppress(Exception):  # a server that is gone is found out by whoever asks it
                    interrupt()
                ended.wait(BETWEEN_INTERRUPTS)

    clock = threading.Thread(target=watch, daemon=True)
    clock.start()
    try:
        yield
    except Exception:
        if not late.is_set():
            raise
    finally:
        ended.set()
        clock.join()  # so that it interrupts nothing that comes after
    if late.is_set():
        raise TimedOut


class Engine(Protocol):
    timeout: float | None
    """Seconds that `run` may take; None: as long as it takes. Public: set once, when the session is opened."""

    @property
    def guarantees(self) -> Guarantees:
        """The guarantees of the declared tables, read when the database was opened."""

    @property
    def render(self) -> Render:
        """The query in the engine's SQL."""

    @property
    def copied(self) -> bool:
        """Whether the rows were copied on opening and so can no longer change."""

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""

    def can_run(self, sql: str) -> bool:
        """Whether the database accepts a SELECT: its syntax, names and types. No row or statistic is read.

        True where it does not answer: that is found out when it is asked. Raises OperationalError like
        `check_unchanged`.
        """

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        """Like `run`, for a SELECT that reads only public tables. It is free, so it must not touch people's rows."""

    def run(self, sql: str, materialized: Mapping[str, str] | None = None) -> Mapping[str, np.ndarray]:
        """The columns of the result, NULL as masked values. What was asked is paid for.

        `materialized`: tables that it reads, by name, and the queries that fill them, the same for every question.

        Raises ConnectionLost, TimedOut, and whatever the database says when it fails.
        """

    def close(self) -> None: ...


class FrameEngine(Engine, Protocol):
    """One that holds frames, as `df.dp` needs it."""

    def over(self, frames: Mapping[str, Any], schema: Schema) -> Engine:
        """The same database with other frames. Rows of people are read by `run`, which follows a charge."""


# -- certification -----------------------------------------------------------------------------------------------------

MadeUpTables: TypeAlias = "Mapping[str, Sequence[tuple[object, ...]]]"


class CertificationTarget(Protocol):
    """Where `dpsql certify` puts made-up rows, to compare an engine's results with DuckDB's."""

    @property
    def keeps_constraints(self) -> bool:
        """Whether tables have the keys that they are created with."""

    def place(self, name: str) -> AbstractContextManager[str]:
        """A new, empty place of this name, such as a schema, and its URL; dropped at the end."""

    def fill(self, database: str, create: str, tables: MadeUpTables, model: duckdb.DuckDBPyConnection) -> None:
        """Copies the tables of the DuckDB database `model` to a URL returned by `place`."""


# -- public ------------------------------------------------------------------------------------------------------------
# What may be asked of databases before the charge: what everybody may know, and nothing that has a row of people.


@dataclass(frozen=True)
class Guarantees:
    """What the database enforces for all present and future rows, whatever the schema says. Names are lower-case."""

    unique: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Table and column -> the type in which the database keeps every value apart."""
    present: Collection[tuple[str, str]] = frozenset()
    """The tables and columns that are NULL in no row."""
    immutable: bool = False
    """Whether nobody can change rows while the database is open: they were copied, or their file is read-only."""
    changed: datetime | None = None
    """When the files with the rows were last written; None for servers and frames, of which that is not known."""
    place: tuple[str, str] = ("memory", "main")
    """The database and the schema in which the declared tables are."""

    def is_unique(self, table: str, column: str, kind: ColumnType) -> bool:
        """Whether the database itself guarantees that no two rows have the same value there, read as `kind`."""
        stored = self.unique.get((table.lower(), column.lower()))
        return stored is not None and stays_apart(kind, stored)

    def never_null(self, table: str, column: str) -> bool:
        """Whether the column, read as declared, has no NULL."""
        return (table.lower(), column.lower()) in self.present


class Render(Protocol):
    """Writes a query in an engine's SQL. It knows names and types but has no connection."""

    def __call__(self, query: Query, blanks: Mapping[str, int] | None = None) -> str:
        """Raises Unsupported for anything that the engine cannot express."""


class EmptyPostProcessor(Protocol):
    """The post-processing database while its tables have no rows."""

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        """The names and types of the post-processing's columns; raises ProgrammingError if it makes no sense."""

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query that reads no table."""


# A table of the post-processing database, as a value.


@dataclass(frozen=True)
class PostProcessingTable:
    """A table that the post-processing reads: columns of these types, made from stored columns by these expressions."""

    name: str
    stored: Mapping[str, str]
    """Column -> type, in the engine's words."""
    columns: Mapping[str, tuple[str, str]]
    """Column -> type, and the expression over stored columns that gives it."""

"""The SQLite file under a ledger: opened once per process, and on disk at the end of every transaction.

What SQLite may say in between (busy, read-only, full, not a database) becomes one LedgerError with a way out.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from dpsql.errors import InterfaceError, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = ":memory:"
APPLICATION_ID = 0x6470_7371  # "dpsq", in the file's header
SCHEMA_VERSION = 1
BUSY_SECONDS = 10.0

SCHEMA = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        time TEXT NOT NULL,
        dataset TEXT NOT NULL,
        analyst TEXT,
        state TEXT NOT NULL CHECK (state IN ('budget', 'charged', 'released', 'refused')),
        charge INTEGER UNIQUE REFERENCES entries (number),
        composition TEXT,
        fingerprint TEXT,
        sql TEXT,
        event TEXT,
        epsilon TEXT NOT NULL,
        delta TEXT NOT NULL,
        tally TEXT NOT NULL,
        analyst_tally TEXT NOT NULL,
        hash TEXT NOT NULL
    )""",
    "CREATE INDEX entries_by_analyst ON entries (analyst, number)",
    "CREATE INDEX budgets_by_analyst ON entries (analyst, number) WHERE state = 'budget'",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
    """CREATE TABLE answers (
        dataset TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        payload TEXT NOT NULL,
        PRIMARY KEY (dataset, fingerprint)
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

# By SQLite's primary result code: what the ledger's file ..., and what to do about it.
WORDS = {
    sqlite3.SQLITE_BUSY: ("is locked by another process", "try again, or end the process that holds it"),
    sqlite3.SQLITE_READONLY: ("cannot be written", "allow writing to the file and to its folder; nothing was charged"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that its folder exists and may be written"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and ask again; nothing was charged"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", "check the disk and ask again"),
    sqlite3.SQLITE_NOTADB: ("is not an SQLite file", "give the ledger a path of its own"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a backup"),
    sqlite3.SQLITE_CONSTRAINT: ("holds this already", "a charge is marked once, as released or as refused"),
}

# A connection that came through a fork may be neither used nor closed, so it is kept from the garbage collector.
_inherited: list[sqlite3.Connection] = []


class LedgerFile:
    """One connection and one lock, shared by the threads of a process and opened anew after a fork."""

    def __init__(self, path: str) -> None:
        self.path = path
        # By process: a lock that another thread held when the process forked would never be released in the child.
        self._locks: dict[int, AbstractContextManager[object]] = {}
        self._open()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees no other writer, and is on disk when the block ends."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file throughout."""
        with self._transaction("BEGIN") as connection:
            yield connection

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        lock = self._locks.setdefault(os.getpid(), threading.RLock())
        with lock, _in_plain_words(self.path):
            if os.getpid() != self._pid:
                self._open_after_fork()
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _open_after_fork(self) -> None:
        if self.path == MEMORY:
            raise LedgerError(
                "a budget in memory cannot be shared with a forked process",
                hint="keep the ledger in a file: ledger=path",
            )
        _inherited.append(self._connection)
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        with _in_plain_words(self.path):
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        # Look before writing: a file that belongs to someone else is left as it is.
        with self.reading():
            self._is_new()
        with _in_plain_words(self.path):
            self._enter_wal()
            self._connection.execute("PRAGMA synchronous = FULL")
        with self.writing() as connection:
            if self._is_new():
                for statement in SCHEMA:
                    connection.execute(statement)

    def _is_new(self) -> bool:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and not application:
            return True
        if application != APPLICATION_ID:
            raise LedgerError(
                f"{self.path} is an SQLite file, but not a ledger", hint="give the ledger a path of its own"
            )
        if version > SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {self.path} was written by a newer dpsql (schema {version}, known is {SCHEMA_VERSION})",
                hint="upgrade dpsql",
            )
        return False

    def _enter_wal(self) -> None:
        """SQLite does not wait by itself when two processes enter WAL mode at once."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


@contextmanager
def _in_plain_words(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise InterfaceError("the ledger is closed", hint="open it again") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        what, way_out = WORDS.get(code, (f"cannot be used: {error}", "check the file, or restore it from a backup"))
        raise LedgerError(f"the ledger {path} {what}", hint=way_out) from error

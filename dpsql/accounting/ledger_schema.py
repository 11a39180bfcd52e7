"""The tables of a ledger's file, and a connection that is sure to find them."""

from __future__ import annotations

import sqlite3
import time

from dpsql.accounting.transactions import transaction
from dpsql.errors import LedgerError

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


def connect(path: str) -> sqlite3.Connection:
    """A connection whose commits are on disk; a new file gets its tables."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Look before writing: a file that belongs to someone else is left as it is.
        with transaction(connection, "BEGIN"):
            _is_new(connection, path)
        _enter_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection, "BEGIN IMMEDIATE"):
            if _is_new(connection, path):
                for statement in SCHEMA:
                    connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables and not application:
        return True
    if application != APPLICATION_ID:
        raise LedgerError(f"{path} is an SQLite file, but not a ledger", hint="give the ledger a path of its own")
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {path} was written by a newer dpsql (schema {version}, known is {SCHEMA_VERSION})",
            hint="upgrade dpsql",
        )
    return False


def _enter_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait by itself when two processes enter WAL mode at once."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)

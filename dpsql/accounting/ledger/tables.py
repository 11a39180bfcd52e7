"""The tables of a ledger's file, and a connection that is sure to find them."""

from __future__ import annotations

import sqlite3
import time

from dpsql.accounting.ledger.transactions import transaction
from dpsql.errors import LedgerError

APPLICATION_ID = 0x6470_7371  # "dpsq", in the file's header
SCHEMA_VERSION = 3
BUSY_SECONDS = 10.0

ENTRIES = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        time TEXT NOT NULL,
        dataset TEXT NOT NULL,
        analyst TEXT,
        state TEXT NOT NULL CHECK (state IN (
            'budget', 'charged', 'released', 'refused', 'failed', 'suspended', 'resumed', 'retried'
        )),
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
    "CREATE INDEX suspensions_by_analyst ON entries (analyst, number) WHERE state IN ('suspended', 'resumed')",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
    "CREATE TABLE IF NOT EXISTS open_charges (number INTEGER PRIMARY KEY, analyst TEXT)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
SCHEMA = (
    *ENTRIES,
    """CREATE TABLE answers (
        dataset TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        payload TEXT NOT NULL,
        PRIMARY KEY (dataset, fingerprint)
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
# Older versions knew fewer states, and SQLite cannot change a CHECK: the entries move, as they are, into a new table.
# The counter of numbers given moves too, so that a tail that is missing stays missing.
FROM_OLDER_VERSION = (
    "ALTER TABLE entries RENAME TO older_entries",
    "DROP INDEX IF EXISTS entries_by_analyst",
    "DROP INDEX IF EXISTS budgets_by_analyst",
    "DROP INDEX IF EXISTS suspensions_by_analyst",
    "DROP TRIGGER IF EXISTS no_update",
    "DROP TRIGGER IF EXISTS no_delete",
    *ENTRIES,
    "INSERT INTO entries SELECT * FROM older_entries ORDER BY number",
    """UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'older_entries')
        WHERE name = 'entries'""",
    "DROP TABLE older_entries",
)
STEPS = {0: SCHEMA, 1: FROM_OLDER_VERSION, 2: FROM_OLDER_VERSION, SCHEMA_VERSION: ()}
"""What makes a file of a version one of today."""


def connect(path: str) -> sqlite3.Connection:
    """A connection whose commits are on disk; a new file gets its tables, and one of an older dpsql those of today."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Look before writing: a file that belongs to someone else is left as it is.
        with transaction(connection, "BEGIN"):
            _version(connection, path)
        _enter_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection, "BEGIN IMMEDIATE"):
            for statement in STEPS[_version(connection, path)]:
                connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection, path: str) -> int:
    """0 for a new file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables and not application:
        return 0
    if application != APPLICATION_ID:
        raise LedgerError(f"{path} is an SQLite file, but not a ledger", hint="give the ledger a path of its own")
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {path} was written by a newer dpsql (schema {version}, known is {SCHEMA_VERSION})",
            hint="upgrade dpsql",
        )
    return int(version)


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

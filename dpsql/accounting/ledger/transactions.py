"""SQLite's transactions, and its complaints in plain words."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

# By SQLite's primary result code: what the ledger's file ..., and what to do about it.
WORDS = {
    sqlite3.SQLITE_BUSY: ("is locked by another process", "try again, or end the process that holds it"),
    sqlite3.SQLITE_READONLY: ("cannot be written", "allow writing to the file and to its folder; nothing was charged"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that its folder exists and may be written"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and ask again; nothing was charged"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", "check the disk and ask again"),
    sqlite3.SQLITE_NOTADB: ("is not an SQLite file", "give the ledger a path of its own"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a backup"),
    sqlite3.SQLITE_CONSTRAINT: ("holds this already", "a charge is marked once: released, refused or failed"),
}


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    """Committed when the block ends, undone when it fails."""
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def in_plain_words(path: str) -> Iterator[None]:
    """Turns what SQLite says into one LedgerError with a way out."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        what, way_out = WORDS.get(code, (f"cannot be used: {error}", "check the file, or restore it from a backup"))
        raise LedgerError(f"the ledger {path} {what}", hint=way_out) from error

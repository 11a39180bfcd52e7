"""The SQLite file under a ledger: one connection for all threads of a process, and none that outlives a fork.

SQLite remembers in its own memory which locks a process holds. A forked child has that memory, but not the locks: it
would write where nobody reads, and its charges would be lost. So every connection is closed before a fork, and opened
again on either side when it is next needed.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.accounting.ledger.fork import around_forks
from dpsql.accounting.ledger.holds import holds_on
from dpsql.accounting.ledger.tables import connect
from dpsql.accounting.ledger.transactions import in_plain_words, transaction
from dpsql.errors import InterfaceError, LedgerError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

MEMORY = ":memory:"


class LedgerFile:
    last_number = "SELECT seq FROM sqlite_sequence WHERE name = 'entries'"

    def __init__(self, path: str) -> None:
        self.path = path
        # Opened again after a fork, perhaps from another folder; and by all its names it is one file.
        self._location = path if path == MEMORY else os.path.realpath(path)
        self.holds = holds_on(None if path == MEMORY else self._location)
        self._lock = threading.RLock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        around_forks(self)
        with self._lock, in_plain_words(path):
            self._connect()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees no other writer, and is on disk when the block ends."""
        with self._lock, in_plain_words(self.path), transaction(self._connected(), "BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file throughout."""
        with self._lock, in_plain_words(self.path), transaction(self._connected(), "BEGIN") as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def before_fork(self) -> None:
        self._lock.acquire()
        if self.path != MEMORY:
            self._disconnect()

    def after_fork(self) -> None:
        self._lock.release()

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise InterfaceError("the ledger is closed", hint="open it again")
        if self._connection is None:
            return self._connect()
        if self._process != os.getpid():
            raise LedgerError(
                f"the ledger {self.path} was opened by the process that this one was forked from",
                hint="keep the ledger in a file, and open it after the fork",
            )
        if self._identity != self._found():
            raise LedgerError(
                f"the ledger {self.path} was deleted or replaced while it was open",
                hint="nothing was charged; put the file back that was there, and connect again",
            )
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._process = os.getpid()
        self._connection = connect(self._location)
        self._identity = self._found()
        return self._connection

    def _found(self) -> tuple[int, int] | None:
        """Which file its name leads to now; None if there is none. What SQLite has open would outlive its name."""
        try:
            found = Path(self._location).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

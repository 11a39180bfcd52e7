"""The tables of a ledger's file, and a connection that is sure to find them."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dpsql.errors import InterfaceError, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

# -- fork --------------------------------------------------------------------------------------------------------------
# What is told around a fork: nothing that a ledger locks may stay locked in the child for ever.


class Forked(Protocol):
    def before_fork(self) -> None: ...

    def after_fork(self) -> None:
        """In the parent and in the child."""


def around_forks(store: Forked) -> None:
    """Tells it, as long as it lives."""
    _stores.add(store)


_stores: weakref.WeakSet[Forked] = weakref.WeakSet()
_forking: list[Forked] = []


def _before_fork() -> None:
    # Always in the same order, lest two threads that fork at once wait for each other.
    for store in sorted(_stores, key=id):
        store.before_fork()
        _forking.append(store)


def _after_fork() -> None:
    stores = _forking.copy()
    # Cleared while the locks are held: the next thread to fork begins to fill it as soon as they are not.
    _forking.clear()
    for store in stores:
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


# -- leases ------------------------------------------------------------------------------------------------------------
# Which charges a living question still works on: for each, a lock on one byte of a file beside the ledger.
#
# The system takes the locks of a process back when it dies, however it dies. So a charge that is open and not held was
# lost on the way, and counts as failed. docs/proofs/ledger.md.

try:
    import fcntl
except ImportError:  # pragma: no cover - where there are no such locks, what another process does cannot be known
    fcntl = None  # type: ignore[assignment]


class Leases:
    """The locks of this process on open charges, and a test for those of others. Made by `leases_on`."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._numbers: set[int] = set()
        self._file: int | None = None

    def take(self, number: int) -> None:
        with _lock:
            self._numbers.add(number)
            if self._path is not None and fcntl is not None:
                # Without a lock the charge is taken for lost while it is not, which is the safe side.
                with suppress(OSError):
                    fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)

    def release(self, number: int) -> None:
        with _lock:
            self._numbers.discard(number)
            if self._file is not None and fcntl is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
            self._close_if_idle()

    def has(self, number: int) -> bool:
        with _lock:
            if number in self._numbers or self._path is None:
                return number in self._numbers
            return self._is_locked_elsewhere(number)

    def forget(self) -> None:
        """Called in a forked child, because the locks belong to the parent."""
        self._numbers.clear()
        self._close_if_idle()

    def __del__(self) -> None:
        self._numbers.clear()
        self._close_if_idle()

    def _is_locked_elsewhere(self, number: int) -> bool:
        if fcntl is None:
            return True
        try:
            fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError:
            return True
        else:
            fcntl.lockf(self._opened(), fcntl.LOCK_UN, 1, number)
            return False
        finally:
            self._close_if_idle()

    def _opened(self) -> int:
        if self._file is None:
            assert self._path is not None
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._file

    def _close_if_idle(self) -> None:
        """Closing any descriptor of a file releases all the process's locks on it, so one is shared while in use."""
        if self._file is not None and not self._numbers:
            os.close(self._file)
            self._file = None


_lock = threading.Lock()
_shared: weakref.WeakValueDictionary[str, Leases] = weakref.WeakValueDictionary()


def leases_on(path: str | None) -> Leases:
    """The leases on this ledger file, shared by everyone who has it open; None for a ledger in memory."""
    if path is None:
        return Leases(None)
    with _lock:
        leases = _shared.get(path)
        if leases is None:
            leases = _shared[path] = Leases(f"{path}-held")
        return leases


def _forget_leases() -> None:
    global _lock
    _lock = threading.Lock()
    for leases in _shared.values():
        leases.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_leases)


# -- transactions ------------------------------------------------------------------------------------------------------
# SQLite's transactions, and its complaints in plain words.

# By SQLite's primary result code: what the ledger's file ..., and what to do about it.
WORDS = {
    sqlite3.SQLITE_BUSY: ("is locked by another process", "try again, or end the process that holds it"),
    sqlite3.SQLITE_READONLY: ("cannot be written", "make the file and its folder writable; nothing was charged"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that its folder exists and is writable"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and ask again; nothing was charged"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", "check the disk and ask again"),
    sqlite3.SQLITE_NOTADB: ("is not an SQLite file", "give the ledger a path of its own"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a backup"),
    sqlite3.SQLITE_CONSTRAINT: ("already holds this", "a charge is marked only once, as released, refused or failed"),
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
    """Turns an error of SQLite into a LedgerError with a hint."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        what, way_out = WORDS.get(code, (f"cannot be used: {error}", "check the file, or restore it from a backup"))
        raise LedgerError(f"the ledger {path} {what}", hint=way_out) from error


# -- tables ------------------------------------------------------------------------------------------------------------

APPLICATION_ID = 0x6470_7371  # "dpsq", in the file's header
SCHEMA_VERSION = 9
BUSY_SECONDS = 10.0

STATES = """CHECK (state IN (
    'budget', 'default limit', 'question limit', 'revoked', 'renewal', 'renewed', 'lifetime', 'data', 'charged',
    'released', 'refused', 'failed', 'suspended', 'resumed', 'retried', 'interrupted', 'timed out', 'schema',
    'schema accepted'
))"""
RULES = """CREATE INDEX IF NOT EXISTS rules ON entries (state, analyst, number)
    WHERE state IN ('budget', 'default limit', 'question limit', 'revoked', 'renewal', 'renewed', 'lifetime')"""
DATA = "CREATE INDEX IF NOT EXISTS data ON entries (number) WHERE state = 'data'"
ENTRIES = (
    f"""CREATE TABLE entries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        time TEXT NOT NULL,
        dataset TEXT NOT NULL,
        analyst TEXT,
        state TEXT NOT NULL {STATES},
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
    RULES,
    DATA,
    "CREATE INDEX suspensions_by_analyst ON entries (analyst, number) WHERE state IN ('suspended', 'resumed')",
    "CREATE INDEX declarations ON entries (number) WHERE state IN ('budget', 'schema', 'schema accepted')",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
    "CREATE TABLE IF NOT EXISTS open_charges (number INTEGER PRIMARY KEY, analyst TEXT)",
    "CREATE TABLE IF NOT EXISTS seals (number INTEGER PRIMARY KEY, hash TEXT NOT NULL, signature TEXT NOT NULL)",
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
    "DROP INDEX IF EXISTS rules",
    "DROP INDEX IF EXISTS data",
    "DROP INDEX IF EXISTS suspensions_by_analyst",
    "DROP INDEX IF EXISTS declarations",
    "DROP TRIGGER IF EXISTS no_update",
    "DROP TRIGGER IF EXISTS no_delete",
    *ENTRIES,
    "INSERT INTO entries SELECT * FROM older_entries ORDER BY number",
    """UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'older_entries')
        WHERE name = 'entries'""",
    "DROP TABLE older_entries",
)
STEPS = {0: SCHEMA, **dict.fromkeys(range(1, SCHEMA_VERSION), FROM_OLDER_VERSION), SCHEMA_VERSION: ()}
"""What makes a file of a version one of today."""


def connect(path: str) -> sqlite3.Connection:
    """A connection with durable commits. A new file gets its tables; an older file is migrated."""
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
            f"the ledger {path} was written by a newer dpsql (schema {version}; this version reads up to "
            f"{SCHEMA_VERSION})",
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


# -- file --------------------------------------------------------------------------------------------------------------
# The SQLite file under a ledger: one connection for all threads of a process, and none that outlives a fork.
#
# SQLite remembers in its own memory which locks a process holds. A forked child has that memory, but not the locks: it
# would write where nobody reads, and its charges would be lost. So every connection is closed before a fork, and opened
# again on either side when it is next needed.

MEMORY = ":memory:"


class LedgerFile:
    last_number = "SELECT seq FROM sqlite_sequence WHERE name = 'entries'"

    def __init__(self, path: str) -> None:
        self.path = path
        # Opened again after a fork, perhaps from another folder; and by all its names it is one file.
        self._location = path if path == MEMORY else os.path.realpath(path)
        self.leases = leases_on(None if path == MEMORY else self._location)
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
                f"the ledger {self.path} was opened before this process was forked",
                hint="keep the ledger in a file, and open it after the fork",
            )
        if self._identity != self._found():
            raise LedgerError(
                f"the ledger {self.path} was deleted or replaced while it was open",
                hint="nothing was charged; put the original file back and reconnect",
            )
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._process = os.getpid()
        self._connection = connect(self._location)
        self._identity = self._found()
        return self._connection

    def _found(self) -> tuple[int, int] | None:
        """The identity of the file at this path, or None. Needed because SQLite would keep using a file that was
        replaced.
        """
        try:
            found = Path(self._location).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

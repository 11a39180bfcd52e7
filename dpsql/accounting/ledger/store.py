"""Where a ledger is kept: in a file, or in a schema of a PostgreSQL server, which several machines can share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.accounting.ledger.sqlite import MEMORY, LedgerFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

SERVERS = ("postgresql://", "postgres://")


class Records(Protocol):
    def fetchone(self) -> tuple[Any, ...] | None: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Transaction(Protocol):
    """Within a transaction. Parameters are `?`; NULL is compared by `IS ?`."""

    def execute(self, query: str, parameters: Sequence[object] = (), /) -> Records: ...


class Leases(Protocol):
    """The charges that a living process still works on."""

    def take(self, number: int) -> None: ...

    def release(self, number: int) -> None: ...

    def has(self, number: int) -> bool: ...


class Store(Protocol):
    path: str
    last_number: str
    """The query for the number of the last entry ever made, whether or not it is still there."""

    @property
    def leases(self) -> Leases: ...

    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction that sees no other writer, and is durable when the block ends."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """A transaction that sees one state throughout."""

    def close(self) -> None: ...


def is_server(path: str) -> bool:
    return path.startswith(SERVERS)


def whole_path(path: str | os.PathLike[str]) -> str:
    """The absolute path, valid from any folder."""
    named = os.fspath(path)
    return named if named == MEMORY or is_server(named) else str(Path(named).absolute())


def is_there(path: str) -> bool:
    """Whether there is a ledger already."""
    if is_server(path):
        from dpsql.accounting.ledger.postgres import is_on_server

        return is_on_server(path)
    return path != MEMORY and Path(path).exists()


def open_store(path: str | os.PathLike[str]) -> Store:
    """Opens or makes it."""
    path = os.fspath(path)
    if not is_server(path):
        return LedgerFile(path)
    # Late: only who keeps the account on a server needs its driver.
    from dpsql.accounting.ledger.postgres import LedgerServer

    return LedgerServer(path)

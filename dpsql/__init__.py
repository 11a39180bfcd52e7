"""dpsql: differentially private SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.connection import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Connection,
    Cursor,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    apilevel,
    connect,
    paramstyle,
    threadsafety,
)
from dpsql.errors import (
    AccountSuspended,
    BudgetExhausted,
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    LedgerError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    QueryTimeout,
    SchemaError,
    SealedExecutionError,
    SqlSyntaxError,
    UnboundedColumn,
    UnknownName,
    Unsupported,
    Warning,  # noqa: A004 - the name is fixed by PEP 249
)
from dpsql.frames.register import register_accessors

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.schema import Schema

register_accessors()

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Schema, when it is first named: what checks declarations takes most of the time that an import would."""
    if name != "Schema":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpsql.schema import Schema

    return Schema


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext dpsql` calls."""
    from dpsql.notebook import load_ipython_extension

    load_ipython_extension(shell)


__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "AccountSuspended",
    "Binary",
    "BudgetExhausted",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "LedgerError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "QueryTimeout",
    "Schema",
    "SchemaError",
    "SealedExecutionError",
    "SqlSyntaxError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "UnboundedColumn",
    "UnknownName",
    "Unsupported",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

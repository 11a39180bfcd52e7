"""dpsql: SQL about people, answered with differential privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.dbapi import (
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
    SchemaError,
    SealedExecutionError,
    SqlSyntaxError,
    UnboundedColumn,
    UnknownName,
    Unsupported,
    Warning,  # noqa: A004 - the name is fixed by PEP 249
)
from dpsql.register_accessors import register_accessors
from dpsql.schema import Schema

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

register_accessors()

__version__ = "0.1.0"


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

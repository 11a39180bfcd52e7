"""dpsql: differentially private SQL."""

from __future__ import annotations

from importlib import import_module
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
from dpsql.frames import register_accessors

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.accounting.budget import Budget
    from dpsql.batch import Plan
    from dpsql.explain import Explanation
    from dpsql.options import QueryOptions
    from dpsql.pipeline.stages import Trace
    from dpsql.promise import Promise
    from dpsql.result import Receipt, Result
    from dpsql.schema import Schema

register_accessors()

__version__ = "0.1.0"


LATE = {
    "Budget": "dpsql.accounting.budget",
    "Explanation": "dpsql.explain",
    "Plan": "dpsql.batch",
    "Promise": "dpsql.promise",
    "QueryOptions": "dpsql.options",
    "Receipt": "dpsql.result",
    "Result": "dpsql.result",
    "Schema": "dpsql.schema",
    "Trace": "dpsql.pipeline.stages",
}
"""Loaded when they are first named: what they need takes most of the time that an import would."""


def __getattr__(name: str) -> object:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATE[name]), name)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext dpsql`."""
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
    "Budget",
    "BudgetExhausted",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "Explanation",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "LedgerError",
    "NotSupportedError",
    "OperationalError",
    "Plan",
    "ProgrammingError",
    "Promise",
    "QueryOptions",
    "QueryTimeout",
    "Receipt",
    "Result",
    "Schema",
    "SchemaError",
    "SealedExecutionError",
    "SqlSyntaxError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Trace",
    "UnboundedColumn",
    "UnknownName",
    "Unsupported",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

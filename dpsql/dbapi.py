"""The DB-API 2.0 (PEP 249) door: connect, Connection, Cursor."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date, datetime
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any

from dpsql import errors
from dpsql.source import split_explain

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.ledger.ledger import OnFailure
    from dpsql.batch import Plan
    from dpsql.explanation import Explanation
    from dpsql.pipeline.trace import Trace
    from dpsql.promise import Promise
    from dpsql.result import Receipt, Result
    from dpsql.schema import Schema
    from dpsql.session import Session

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"


class TypeObject:
    """Equal to the engine's names of the types that it stands for."""

    def __init__(self, name: str, *kinds: str) -> None:
        self.name = name
        self.kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeObject):
            return self.kinds == other.kinds
        return isinstance(other, str) and other.partition("(")[0] in self.kinds

    def __hash__(self) -> int:
        return hash(self.kinds)

    def __repr__(self) -> str:
        return self.name


STRING = TypeObject("STRING", "VARCHAR")
BINARY = TypeObject("BINARY", "BLOB")
NUMBER = TypeObject(
    "NUMBER", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL"
)
DATETIME = TypeObject("DATETIME", "DATE", "TIME", "TIMESTAMP", "INTERVAL")
ROWID = TypeObject("ROWID")

Date = date
Time = time_of_day
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802 - the names are fixed by PEP 249
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> time_of_day:  # noqa: N802
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802
    return Timestamp(*time.localtime(ticks)[:6])


def connect(
    database: object,
    *,
    schema: str | os.PathLike[str] | dict[str, Any] | Schema,
    epsilon: object = None,
    delta: object = 0.0,
    ledger: str | os.PathLike[str] | None = None,
    query_epsilon: object = None,
    composition: str = "mixed",
    engine: None = None,
    analyst: str | None = None,
    analyst_epsilon: object = None,
    on_failure: OnFailure = "suspend",
    dialect: str = "duckdb",
) -> Connection:
    """Opens a private session on a database.

    `database` is a DuckDB file or open connection; a Parquet or CSV file, a folder, a pattern or a list of such; a
    frame; or a dict of name -> frame or files. Files and frames are read now, and never again.
    `epsilon` and `delta` are the whole session's budget; without them the ledger's is used. The ledger is a file beside
    a file database, and in memory otherwise. A question that fails after its charge suspends its analyst until the data
    owner resumes; on_failure="warn", for those who own the data that they ask, only says so.
    `dialect` says whose words queries use: "duckdb", "bigquery", "snowflake" or "postgres".
    """
    if engine is not None:
        raise errors.Unsupported("DuckDB is the only engine so far", hint="leave engine= out")
    # The engine and the parser are loaded with the first connection, so that importing dpsql stays light.
    from dpsql.session import Session

    return Connection(
        Session(
            database,
            schema,
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            query_epsilon=query_epsilon,
            composition=composition,
            analyst=analyst,
            analyst_epsilon=analyst_epsilon,
            on_failure=on_failure,
            dialect=dialect,
        )
    )


class Connection:
    """A private session. Its errors are attributes too, as PEP 249 suggests."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session

    @property
    def session(self) -> Session:
        if self._session is None:
            raise errors.InterfaceError("the connection is closed", hint="connect again")
        return self._session

    def cursor(self) -> Cursor:
        _ = self.session
        return Cursor(self)

    def execute(self, sql: str, parameters: object = None, **options: Any) -> Cursor:
        """Asks the question; see Cursor.execute."""
        return self.cursor().execute(sql, parameters, **options)

    def explain(self, sql: str, parameters: object = None, **options: Any) -> Explanation:
        """What the query would cost, how it would be answered and how exactly. Free."""
        _, query = split_explain(sql) if isinstance(sql, str) else (False, sql)
        return self.session.explain(query, parameters, options)

    def trace(self, sql: str, parameters: object = None, **options: Any) -> Trace:
        """What each stage before the charge makes of the query: print it. Free."""
        return self.session.trace(sql, parameters, options)

    def plan(self, queries: object, weights: object = None, *, epsilon: object = None, delta: object = None) -> Plan:
        """Shares a budget among queries that are decided in advance. Free until `execute()` of what comes back.

        Each query is a text, or a text and its parameters. A query of twice the weight has half the error.
        """
        plan = self.session.plan(queries, weights, epsilon, delta)
        return replace(plan, answers=lambda: [self.cursor()._with(result) for result in plan.answers()])

    @property
    def budget(self) -> Budget:
        """What may be spent, is spent and is left."""
        return self.session.budget

    def resume(self) -> None:
        """Lifts the suspension that a failed question left behind: the data owner's word, once it is known why."""
        self.session.resume()

    def promise(self) -> Promise:
        """What the session guarantees to each person, in plain words with numbers."""
        from dpsql.promise import promise_of

        return promise_of(self.budget, self.session.environment.schema)

    def history(self) -> pd.DataFrame:
        """Every entry of the ledger, oldest first."""
        import pandas as pd

        from dpsql.accounting.ledger.entries import SHOWN

        return pd.DataFrame([entry.shown() for entry in self.session.environment.ledger.history()], columns=SHOWN)

    def commit(self) -> None:
        """Nothing to do: a charge is on disk when it is made, and data is never written."""
        _ = self.session

    def rollback(self) -> None:
        """Nothing to do: what was answered cannot be taken back."""
        _ = self.session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> Connection:
        _ = self.session
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Cursor:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._closed = False
        self._result: Result | None = None
        self._explanation: Explanation | None = None
        self._position = 0

    def execute(self, sql: str, parameters: object = None, **options: Any) -> Cursor:
        """Asks the question and pays for it.

        Options: epsilon, delta (the cost of the whole query), or accuracy (how wide its error bars may be: 50, or "5%"
        of the total in the first answer to it), mechanism (such as "gaussian" or "smooth"), propose (for
        propose-test-release: how far one unit can move the answer), max_groups, max_rows_per_group (how much of one
        unit counts), fresh=True (draw again instead of recalling the same answer).
        `EXPLAIN <query>` shows what the query would do, free.
        """
        session = self._session()
        self._result, self._explanation, self._position = None, None, 0
        explaining, query = split_explain(sql) if isinstance(sql, str) else (False, sql)
        if explaining:
            self._explanation = session.explain(query, parameters, options)
        else:
            self._result = session.execute(query, parameters, options)
        return self

    def _with(self, result: Result) -> Cursor:
        self._result = result
        return self

    def executemany(self, sql: str, parameters: object) -> None:
        raise errors.NotSupportedError("every question is paid for by itself", hint="call execute once for each")

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]] | None:
        if self._explanation is not None:
            return [("explain", "VARCHAR", None, None, None, None, None)]
        if self._result is None:
            return None
        return [(column.name, column.type, None, None, None, None, None) for column in self._result.columns]

    @property
    def rowcount(self) -> int:
        return -1 if self._result is None and self._explanation is None else len(self._rows())

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        rows = self._rows()[self._position :][: self.arraysize if size is None else size]
        self._position += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany(len(self._rows()))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    @property
    def result(self) -> Result:
        self._session()
        if self._result is None:
            raise errors.InterfaceError("there is no answer yet", hint="execute a query first")
        return self._result

    @property
    def receipt(self) -> Receipt:
        """What the answer cost."""
        return self.result.receipt

    def df(self) -> pd.DataFrame:
        return self.result.df()

    def pl(self) -> pl.DataFrame:
        return self.result.pl()

    def arrow(self) -> pa.Table:
        return self.result.arrow()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.result.arrow().__arrow_c_stream__(requested_schema)

    def intervals(self, level: float = 0.95) -> pd.DataFrame:
        """The answer with the ends of an interval beside every noisy column."""
        return self.result.intervals(level)

    def plot(self, library: str | None = None) -> Any:
        """The answer as a picture with its error bars, by altair or matplotlib, whichever is installed."""
        from dpsql.plot import plot

        return plot(self.result, library)

    def _repr_html_(self) -> str | None:
        shown = self._explanation or self._result
        return None if shown is None else shown._repr_html_()

    def setinputsizes(self, sizes: object) -> None:
        """Required by PEP 249; does nothing."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Required by PEP 249; does nothing."""

    def close(self) -> None:
        self._closed = True
        self._result = self._explanation = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _session(self) -> Session:
        if self._closed:
            raise errors.InterfaceError("the cursor is closed", hint="ask the connection for another")
        return self.connection.session

    def _rows(self) -> list[tuple[Any, ...]]:
        if self._explanation is not None:
            return [(line,) for line in str(self._explanation).splitlines()]
        return self.result.rows

"""The DB-API 2.0 (PEP 249) door: connect, Connection, Cursor."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from datetime import date, datetime
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any, Unpack

from dpsql import errors
from dpsql.errors import split_explain
from dpsql.listing import list_asked, list_schema, list_tables

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.exact import Number
    from dpsql.accounting.ledger.ledger import OnFailure
    from dpsql.batch import Plan
    from dpsql.engines.registry import Database
    from dpsql.explain import Explanation
    from dpsql.listing import Listing
    from dpsql.options import Parameters, QueryOptions
    from dpsql.pipeline.stages import Trace
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
    database: Database,
    *,
    schema: str | os.PathLike[str] | dict[str, Any] | Schema,
    budget: Number | None = None,
    delta: Number | None = None,
    ledger: str | os.PathLike[str] | None = None,
    query_epsilon: Number | None = None,
    composition: str | None = None,
    analyst: str | None = None,
    analyst_budget: Number | None = None,
    on_failure: OnFailure = "suspend",
    interrupts_per_day: int = 3,
    timeout: Number | None = None,
    dialect: str = "duckdb",
) -> Connection:
    """Opens a private session on a database.

    Args:
        database: a DuckDB file or an open DuckDB connection; a Parquet or CSV file, a folder, a pattern or a list of
            such; a frame; a dict of name -> frame or files; or "postgresql://user@host/db". Files and frames are read
            now, and never again.
        schema: the declaration: a YAML or JSON file, a dict, or a `Schema`.
        budget, delta: the epsilon that all questions together may cost, and its delta (0 if left out). The first
            session puts them on record in the ledger; later ones leave them out, or name the same.
        ledger: the file that keeps the account; beside a file database if left out, and in memory otherwise.
        query_epsilon: what a query costs that does not say; a tenth of the budget if left out.
        composition: how queries add up: "mixed" if left out, or a single rule such as "basic" or "gdp".
        analyst, analyst_budget: whose account it is, and what this analyst may spend of the budget.
        on_failure: a query that fails after its charge suspends its analyst until the data owner resumes; "warn", for
            those who own the data that they ask, only says so.
        interrupts_per_day: how many questions an analyst may stop (Ctrl-C), or have stopped by `timeout`, in 24 hours;
            one more suspends as a failure does.
        timeout: seconds after which a running question is stopped; no limit if left out. It is public, so choose it
            without looking at the data.
        dialect: whose words queries use: "duckdb", "bigquery", "snowflake" or "postgres".

    Returns:
        A `Connection` as in PEP 249.

    Raises:
        SchemaError: the declaration is wrong, or does not fit the database.
        LedgerError: the account cannot be read or written, or has another budget on record.

    >>> import duckdb
    >>> shop = duckdb.sql("SELECT range AS customer, range % 90 AS amount FROM range(5000)").df()
    >>> amount = {"type": "integer", "bounds": [0, 100]}
    >>> schema = {"tables": {"orders": {"unit": "customer", "columns": {"customer": "integer", "amount": amount}}}}
    >>> conn = connect({"orders": shop}, schema=schema, budget=1)
    >>> [(n, total)] = conn.execute("SELECT COUNT(*), SUM(amount) FROM orders", epsilon=0.5)
    >>> n in range(4800, 5200)
    True
    >>> conn.budget.remaining.epsilon
    0.5
    """
    # The engine and the parser are loaded with the first connection, so that importing dpsql stays light.
    from dpsql.session import Session

    opened = Connection(
        Session(
            database,
            schema,
            budget=budget,
            delta=delta,
            ledger=ledger,
            query_epsilon=query_epsilon,
            composition=composition,
            analyst=analyst,
            analyst_budget=analyst_budget,
            on_failure=on_failure,
            interrupts_per_day=interrupts_per_day,
            timeout=timeout,
            dialect=dialect,
        )
    )
    for danger in opened.budget.dangers if budget is not None else ():
        warnings.warn(danger, errors.Warning, stacklevel=2)
    return opened


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

    def execute(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Cursor:
        """Asks the question in a cursor of its own. Arguments, result and errors are those of `Cursor.execute`."""
        return self.cursor().execute(sql, parameters, **options)

    def explain(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Explanation:
        """What the query would cost, how it would be answered and how exactly. Free: no row of people is read.

        Args:
            sql: the query, with or without EXPLAIN in front.
            parameters, options: as of `Cursor.execute`.

        Raises:
            ProgrammingError, Unsupported: what `execute` would refuse, for the same reason.
        """
        _, query = split_explain(sql) if isinstance(sql, str) else (False, sql)
        return self.session.explain(query, parameters, options)

    def trace(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Trace:
        """What each stage before the charge makes of the query: print it. Free."""
        return self.session.trace(sql, parameters, options)

    def plan(
        self,
        queries: Sequence[str | tuple[str, Parameters]],
        weights: Sequence[Number] | None = None,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
    ) -> Plan:
        """Shares a budget among queries that are decided in advance. Free until `execute()` of what comes back.

        Args:
            queries: each a text, or a text and its parameters.
            weights: a number for each query; a query of twice the weight has half the error. Equal if left out.
            epsilon, delta: the budget of all of them together.

        Returns:
            A `Plan` that shows what each query takes and how exact it will be; its `execute()` pays and answers.
        """
        plan = self.session.plan(queries, weights, epsilon, delta)
        return replace(plan, answers=lambda: [self.cursor()._with(result) for result in plan.answers()])

    @property
    def budget(self) -> Budget:
        """What may be spent, is spent and is left."""
        return self.session.budget

    @property
    def tables(self) -> Listing:
        """The declared tables: whose rows they hold, and how much of one person counts."""
        return list_tables(self.session.environment.schema)

    @property
    def schema(self) -> Listing:
        """Every declared column, with its type and all that is known of it."""
        return list_schema(self.session.environment.schema)

    def resume(self) -> None:
        """Lifts the suspension that a failed question left behind: the data owner's word, once it is known why."""
        self.session.resume()

    def promise(self) -> Promise:
        """What the session guarantees to each person, in plain words with numbers."""
        from dpsql.promise import promise_of

        return promise_of(self.budget, self.session.environment.schema)

    def practice(self, *, people: int = 1000, seed: int = 0) -> Connection:
        """A session over made-up people with the same schema and the same budget, to develop questions on.

        No private value is read and nothing of this session's budget is spent; the answers mean nothing.
        """
        from dpsql.synthetic import practice_database

        schema, budget = self.session.environment.schema, self.budget
        made = practice_database(schema, people, seed)
        return connect(made, schema=schema, budget=budget.epsilon, delta=budget.delta)

    def history(self) -> pd.DataFrame:
        """Every entry of the ledger, oldest first."""
        import pandas as pd

        from dpsql.accounting.ledger.journal import SHOWN

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

    def __repr__(self) -> str:
        if self._session is None:
            return "<dpsql connection, closed>"
        budget, dataset = self.budget, self._session.environment.schema.dataset
        left = f"epsilon {budget.remaining.epsilon:.4g} of {budget.epsilon:.4g} left"
        return f"<dpsql connection to {dataset}: {left}>"

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
        self._listing: Listing | None = None
        self._position = 0

    def execute(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Cursor:
        """Asks the question and pays for it. `EXPLAIN <query>` is free, and so are SHOW TABLES and DESCRIBE.

        Args:
            sql: one SELECT over declared tables.
            parameters: values for the `?` in it, or a dict of values for `$name`.
            options: those of `QueryOptions`: epsilon=0.1, accuracy="5%", max_groups=2, fresh=True and others.

        Returns:
            The cursor itself, with the answer.

        Raises:
            SqlSyntaxError, UnknownName, UnboundedColumn, Unsupported: the query is refused; nothing is charged.
            BudgetExhausted: the budget does not cover it; nothing is charged.
            SealedExecutionError: it failed after its charge, for a reason that only the data owner may know.
            QueryTimeout: it took longer than the connection's timeout; the charge stands.
        """
        session = self._session()
        self._result = self._explanation = self._listing = None
        self._position = 0
        self._listing = list_asked(sql, session.environment.schema)
        if self._listing is not None:
            return self
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
        if self._listing is not None:
            return [(name, "VARCHAR", None, None, None, None, None) for name in self._listing.names]
        if self._result is None:
            return None
        return [(column.name, column.type, None, None, None, None, None) for column in self._result.columns]

    @property
    def rowcount(self) -> int:
        return -1 if self._shown is None else len(self._rows())

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        last = self._position + (self.arraysize if size is None else size)
        rows = self._rows()[self._position : last]
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
    def messages(self) -> list[tuple[type[errors.Warning], errors.Warning]]:
        """What the analyst should know about the question, as PEP 249 suggests: a list of classes and warnings."""
        asked = self._explanation or self._result
        return [(errors.Warning, errors.Warning(note)) for note in (() if asked is None else asked.notes)]

    @property
    def receipt(self) -> Receipt:
        """What the answer cost."""
        return self.result.receipt

    @property
    def notes(self) -> tuple[str, ...]:
        """What bounding left out, how rows were chosen, which columns are mostly noise."""
        return () if self._listing is not None else (self._explanation or self.result).notes

    def df(self) -> pd.DataFrame:
        return self.result.df() if self._listing is None else self._listing.df()

    def pl(self) -> pl.DataFrame:
        return self.result.pl()

    def arrow(self) -> pa.Table:
        return self.result.arrow()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.result.arrow().__arrow_c_stream__(requested_schema)

    def intervals(self, level: float = 0.95) -> pd.DataFrame:
        """The answer with the ends of an interval beside every noisy column.

        Args:
            level: how often the truth lies within, whatever the data: 0.95 is 19 times out of 20.
        """
        return self.result.intervals(level)

    def plot(self, library: str | None = None) -> Any:
        """The answer as a picture with its error bars, by altair or matplotlib, whichever is installed."""
        from dpsql.plot import plot

        return plot(self.result, library)

    @property
    def _shown(self) -> Result | Explanation | Listing | None:
        """What was asked for last: an answer, or what is free."""
        return next((each for each in (self._explanation, self._listing, self._result) if each is not None), None)

    def __repr__(self) -> str:
        return "<dpsql cursor, nothing asked yet>" if self._shown is None else str(self._shown)

    def _repr_html_(self) -> str | None:
        return None if self._shown is None else self._shown._repr_html_()

    def setinputsizes(self, sizes: object) -> None:
        """Required by PEP 249; does nothing."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Required by PEP 249; does nothing."""

    def close(self) -> None:
        self._closed = True
        self._result = self._explanation = self._listing = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _session(self) -> Session:
        if self._closed:
            raise errors.InterfaceError("the cursor is closed", hint="ask the connection for another")
        if self.connection._session is None:
            raise errors.InterfaceError(
                "the connection is closed", hint="read answers before it is closed, with df() or fetchall()"
            )
        return self.connection.session

    def _rows(self) -> list[tuple[Any, ...]]:
        if self._explanation is not None:
            return [(line,) for line in str(self._explanation).splitlines()]
        if self._listing is not None:
            return list(self._listing.rows)
        return self.result.rows

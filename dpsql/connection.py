"""The DB-API 2.0 (PEP 249) front end: connect, Connection, Cursor."""

from __future__ import annotations

import inspect
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
    """A PEP 249 type object: equal to each type name that a cursor's `description` can show for it.

    >>> NUMBER == "DECIMAL(18,2)", NUMBER == "VARCHAR"
    (True, False)
    """

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
    """The local date of a number of seconds since 1970."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> time_of_day:  # noqa: N802
    """The local time of day of a number of seconds since 1970."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802
    """The local date and time of a number of seconds since 1970."""
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
    epsilon: Number | None = None,
) -> Connection:
    """Opens a private session on a database.

    Args:
        database: a DuckDB file or an open DuckDB connection; a Parquet or CSV file, a folder, a glob pattern or a list
            of files; a frame; a dict of name -> frame or files; "postgresql://user@host/db"; "sc://host" or a Spark
            session. Files and frames are read once, when the connection opens.
        schema: the declaration: a YAML or JSON file, a dict, or a `Schema`.
        budget: the epsilon that all queries together may cost. The first session records it in the ledger; later
            sessions omit it or repeat it.
        delta: the delta of the budget; default 0.
        ledger: the file that records every charge. Default: next to the database file, or in memory if there is none.
        query_epsilon: the cost of a query that names none. Default: a tenth of the budget.
        composition: how costs compose: "mixed" (the default), "auto", "gdp", "zcdp" or "basic".
        analyst: the name under which queries are charged.
        analyst_budget: the most that this analyst may spend of the budget.
        on_failure: what happens when a query fails after its charge. "suspend": no more answers for this analyst until
            the data owner calls `resume`. "warn", for people who query their own data: only a message.
        interrupts_per_day: how many queries an analyst may interrupt (Ctrl-C or `timeout`) in 24 hours. One more
            suspends the analyst.
        timeout: seconds after which a query is stopped. It is public, so choose it without looking at the data.
        dialect: the SQL dialect of the queries: "duckdb", "bigquery", "snowflake" or "postgres".
        epsilon: the older name of budget, for one more version.

    Returns:
        A `Connection` as in PEP 249.

    Raises:
        SchemaError: the declaration is wrong, or does not match the database.
        LedgerError: the ledger cannot be read or written, or has another budget on record.
        InterfaceError: the driver of the database is not installed.

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

    if epsilon is not None:
        if budget is not None:
            raise errors.ProgrammingError("budget= and epsilon=, its older name, are both given", hint="keep budget=")
        warnings.warn("connect(epsilon=) is now called connect(budget=)", DeprecationWarning, stacklevel=2)
        budget = epsilon
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


CONNECT_OPTIONS = tuple(name for name in inspect.signature(connect).parameters if name not in ("database", "epsilon"))
"""The options of `connect` by name, for front ends that take them as text."""


class Connection:
    """A private session on one database, opened by `connect`. Close it, or use it in a `with` block.

    As PEP 249 suggests, the error classes are attributes too: `except conn.ProgrammingError`.
    """

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
        """The engine, the schema and the ledger behind this connection; for dpsql's own front ends.

        Raises:
            InterfaceError: the connection is closed.
        """
        if self._session is None:
            raise errors.InterfaceError("the connection is closed", hint="connect again")
        return self._session

    def cursor(self) -> Cursor:
        """A new cursor on this connection.

        Raises:
            InterfaceError: the connection is closed.
        """
        _ = self.session
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Cursor:
        """Runs a query in a new cursor and charges its cost.

        Args:
            sql: one SELECT over declared tables.
            parameters: values for `?` or `$name`.
            options: see `Cursor.execute`.

        Returns:
            A `Cursor` with the answer.

        Raises:
            Error: see `Cursor.execute`.

        >>> cursor = conn.execute("SELECT region, COUNT(*) AS n FROM orders GROUP BY region", epsilon=0.5)
        >>> [region for region, n in cursor]
        ['north', 'south']
        >>> cursor.receipt.epsilon
        0.5
        """
        return self.cursor().execute(sql, parameters, **options)

    def explain(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Explanation:
        """Shows what a query would cost, how it would be answered and how accurate it would be.

        Free: no private row is read.

        Args:
            sql: the query, with or without EXPLAIN in front.
            parameters: values for `?` or `$name`.
            options: see `Cursor.execute`.

        Returns:
            An `Explanation`; print it.

        Raises:
            ProgrammingError: the query is wrong, as `execute` would say.
            Unsupported: the query cannot be answered privately, as `execute` would say.

        >>> explained = conn.explain("SELECT COUNT(*) AS n FROM orders", epsilon=0.5)
        >>> explained.cost.epsilon, explained.mechanism, explained.columns[0].half_width
        (0.5, 'laplace', 6.0)
        """
        _, query = split_explain(sql) if isinstance(sql, str) else (False, sql)
        return self.session.explain(query, parameters, options)

    def trace(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Trace:
        """Shows what each stage before the charge makes of a query. Free: no private row is read.

        Args:
            sql: the query.
            parameters: values for `?` or `$name`.
            options: see `Cursor.execute`.

        Returns:
            A `Trace`; print it. A refusal is its last stage and its `refusal`.

        >>> [stage for stage, _ in conn.trace("SELECT COUNT(*) FROM orders").stages][:3]
        ['parse_sql', 'resolve_names', 'track_units']
        """
        return self.session.trace(sql, parameters, options)

    def plan(
        self,
        queries: Sequence[str | tuple[str, Parameters]],
        weights: Sequence[Number] | None = None,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
    ) -> Plan:
        """Shares one cost among queries that are fixed in advance. Free until the plan is executed.

        Args:
            queries: a list; each item is SQL, or a pair of SQL and its parameters.
            weights: a number per query: twice the weight, half the error. Default: equal weights.
            epsilon: the cost of all queries together.
            delta: the delta of all queries together.

        Returns:
            A `Plan`, which shows each query's share and error. Its `execute()` charges and answers.

        Raises:
            ProgrammingError: the weights do not match the queries, or no query costs anything.
            Unsupported: a query cannot be answered privately.

        >>> count, total = "SELECT COUNT(*) AS n FROM orders", "SELECT SUM(amount) AS total FROM orders"
        >>> plan = conn.plan([count, total], epsilon=0.4)
        >>> [query.errors for query in plan.queries]
        ['n ± 15', 'total ± 1,498']
        >>> [len(cursor.fetchall()) for cursor in plan.execute()]
        [1, 1]
        """
        plan = self.session.plan(queries, weights, epsilon, delta)
        return replace(plan, answers=lambda: [self.cursor()._with(result) for result in plan.answers()])

    @property
    def budget(self) -> Budget:
        """The budget of the session: total, spent and remaining.

        >>> conn.budget.epsilon, conn.budget.spent.epsilon
        (1.0, 0.0)
        """
        return self.session.budget

    @property
    def tables(self) -> Listing:
        """The declared tables, the column that identifies the person in each, and the contribution bounds.

        >>> print(conn.tables)
        table    person     counts               columns
        orders   customer   one row per person   customer, region, amount
        """
        return list_tables(self.session.environment.schema)

    @property
    def schema(self) -> Listing:
        """The declared columns, with their types and what is public about their values."""
        return list_schema(self.session.environment.schema)

    def resume(self) -> None:
        """Lifts the suspension after a failed query. The data owner calls it once the cause is known.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        self.session.resume()

    def accept_schema(self, schema: str | os.PathLike[str] | dict[str, Any] | Schema) -> None:
        """Records another declaration of the dataset, by which epsilon may mean something else. For the data owner.

        Later connections use it; this one goes on with its own.

        Args:
            schema: the declaration, as for `connect`.

        Raises:
            SchemaError: the declaration is wrong.
            LedgerError: it is about another dataset, or the ledger cannot be written.
        """
        self.session.accept_schema(schema)

    def promise(self) -> Promise:
        """States what the session guarantees to each person, in plain words with numbers.

        Returns:
            A `Promise`; print it.

        >>> conn.promise().whole.epsilon
        1.0
        """
        from dpsql.promise import promise_of

        return promise_of(self.budget, self.session.environment.schema)

    def practice(self, *, people: int = 1000, seed: int = 0) -> Connection:
        """Opens a session on synthetic people, with the same schema and budget, to develop queries on.

        Free: no private row is read, and nothing is charged to this session. The answers mean nothing.

        Args:
            people: how many people to make up.
            seed: the same seed gives the same people.

        Returns:
            A new `Connection`.

        >>> practice = conn.practice(people=100)
        >>> len(practice.execute("SELECT region, COUNT(*) FROM orders GROUP BY region").fetchall())
        2
        """
        from dpsql.synthetic import practice_database

        schema, budget = self.session.environment.schema, self.budget
        made = practice_database(schema, people, seed)
        return connect(made, schema=schema, budget=budget.epsilon, delta=budget.delta)

    def history(self) -> pd.DataFrame:
        """Lists the entries of the ledger, oldest first.

        An analyst with a limit sees the own questions and what concerns the whole dataset. Everybody else shares the
        dataset's account, and sees all of it.

        Returns:
            A pandas DataFrame with one row per entry.

        >>> conn.history().columns.tolist()[:2]
        ['number', 'time']
        """
        import pandas as pd

        from dpsql.accounting.ledger.journal import SHOWN

        return pd.DataFrame([entry.shown() for entry in self.session.environment.ledger.own_history()], columns=SHOWN)

    def commit(self) -> None:
        """Does nothing: a charge is on disk as soon as it is made, and data is never written."""
        _ = self.session

    def rollback(self) -> None:
        """Does nothing: an answer that was given cannot be taken back."""
        _ = self.session

    def close(self) -> None:
        """Closes the connection. Its cursors can no longer be read; the ledger stays."""
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
    """Runs queries and holds the last answer, explanation or listing (PEP 249)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._closed = False
        self._result: Result | None = None
        self._explanation: Explanation | None = None
        self._listing: Listing | None = None
        self._position = 0

    def execute(self, sql: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> Cursor:
        """Runs a query and charges its cost. `EXPLAIN <query>`, `SHOW TABLES` and `DESCRIBE` are free.

        Args:
            sql: one SELECT over declared tables.
            parameters: values for the `?` in it, or a dict of values for `$name`.
            options: those of `QueryOptions`: epsilon=0.1, accuracy="5%", max_groups=2, fresh=True and others.

        Returns:
            The cursor itself.

        Raises:
            SqlSyntaxError: the SQL does not parse; nothing is charged.
            UnknownName: a table, column or function is not declared; nothing is charged.
            UnboundedColumn: a sum needs bounds on a column; nothing is charged.
            Unsupported: the query cannot be answered privately; nothing is charged.
            BudgetExhausted: the remaining budget does not cover the cost; nothing is charged.
            AccountSuspended: an earlier query ended without an answer; nothing is charged.
            SealedExecutionError: the query failed after its charge; only the data owner may learn why.
            QueryTimeout: the query took longer than the connection's timeout; the charge stands.

        >>> cursor = conn.cursor()
        >>> [(total,)] = cursor.execute("SELECT SUM(amount) FROM orders WHERE region = ?", ["north"], epsilon=0.5)
        >>> total in range(100_000, 120_000)
        True
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
        """Always refused, because each query is charged by itself.

        Raises:
            NotSupportedError: always.
        """
        raise errors.NotSupportedError("each query is charged separately", hint="call execute once per query")

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]] | None:
        """Name and type of each column of the answer, followed by five None (PEP 249); None before the first query."""
        if self._explanation is not None:
            return [("explain", "VARCHAR", None, None, None, None, None)]
        if self._listing is not None:
            return [(name, "VARCHAR", None, None, None, None, None) for name in self._listing.names]
        if self._result is None:
            return None
        return [(column.name, column.type, None, None, None, None, None) for column in self._result.columns]

    @property
    def rowcount(self) -> int:
        """The number of rows of the answer; -1 before the first query."""
        return -1 if self._shown is None else len(self._rows())

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last one."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows.

        Args:
            size: how many at most. Default: `arraysize`.
        """
        last = self._position + (self.arraysize if size is None else size)
        rows = self._rows()[self._position : last]
        self._position += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All remaining rows."""
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
        """The answer as a value: rows, column descriptions, error bars and receipt.

        Raises:
            InterfaceError: no query was run yet, or the connection is closed.
        """
        self._session()
        if self._result is None:
            raise errors.InterfaceError("no query has been executed yet", hint="execute a query first")
        return self._result

    @property
    def messages(self) -> list[tuple[type[errors.Warning], errors.Warning]]:
        """The notes as pairs of a warning class and a warning, as PEP 249 suggests."""
        asked = self._explanation or self._result
        return [(errors.Warning, errors.Warning(note)) for note in (() if asked is None else asked.notes)]

    @property
    def receipt(self) -> Receipt:
        """The cost of the answer, and the budget left.

        Raises:
            InterfaceError: no query was run yet.
        """
        return self.result.receipt

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats of the answer: contribution bounds, thresholds, columns that are mostly noise."""
        return () if self._listing is not None else (self._explanation or self.result).notes

    def df(self) -> pd.DataFrame:
        """The answer as a pandas DataFrame."""
        return self.result.df() if self._listing is None else self._listing.df()

    def pl(self) -> pl.DataFrame:
        """The answer as a polars DataFrame.

        Raises:
            NotSupportedError: polars or pyarrow is not installed.
        """
        return self.result.pl()

    def arrow(self) -> pa.Table:
        """The answer as an Arrow table.

        Raises:
            NotSupportedError: pyarrow is not installed.
        """
        return self.result.arrow()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.result.arrow().__arrow_c_stream__(requested_schema)

    def intervals(self, level: float = 0.95, *, simultaneous: bool = False) -> pd.DataFrame:
        """The answer as a pandas DataFrame, with columns `x_low` and `x_high` for each noisy column `x`.

        The interval contains the noise-free value; what clamping and sampling did to the data is not part of it.

        Args:
            level: the probability that an interval contains the noise-free value.
            simultaneous: whether all intervals hold at once with this probability, which makes them wider.

        Raises:
            ProgrammingError: the level is not between 0 and 1.

        >>> conn.execute("SELECT COUNT(*) AS n FROM orders", epsilon=0.5).intervals(0.9).columns.tolist()
        ['n', 'n_low', 'n_high']
        """
        return self.result.intervals(level, simultaneous=simultaneous)

    def plot(self, library: str | None = None) -> Any:
        """Draws the answer as a chart with error bars.

        Args:
            library: "altair" or "matplotlib". Default: whichever is installed.

        Returns:
            An altair chart or a matplotlib figure.

        Raises:
            NotSupportedError: neither library is installed.
        """
        from dpsql.plot import plot

        return plot(self.result, library)

    @property
    def _shown(self) -> Result | Explanation | Listing | None:
        """The last answer, explanation or listing."""
        return next((each for each in (self._explanation, self._listing, self._result) if each is not None), None)

    def __repr__(self) -> str:
        return "<dpsql cursor, no query yet>" if self._shown is None else str(self._shown)

    def _repr_html_(self) -> str | None:
        return None if self._shown is None else self._shown._repr_html_()

    def setinputsizes(self, sizes: object) -> None:
        """Required by PEP 249; does nothing."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Required by PEP 249; does nothing."""

    def close(self) -> None:
        """Closes the cursor and forgets its answer."""
        self._closed = True
        self._result = self._explanation = self._listing = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _session(self) -> Session:
        if self._closed:
            raise errors.InterfaceError("the cursor is closed", hint="get another from the connection")
        if self.connection._session is None:
            raise errors.InterfaceError(
                "the connection is closed", hint="read answers with df() or fetchall() before closing it"
            )
        return self.connection.session

    def _rows(self) -> list[tuple[Any, ...]]:
        if self._explanation is not None:
            return [(line,) for line in str(self._explanation).splitlines()]
        if self._listing is not None:
            return list(self._listing.rows)
        return self.result.rows

"""The accessor `df.dp`: protect() declares a frame and opens its budget, all other methods run queries.

A query reads the frame at hand; a note in the frame names the account that is charged. So copies and filters of a frame
share one budget, each with its own rows. Answers are never recalled: a frame can change in place, and only reading it
would show whether it did, so every answer is drawn anew and charged.

docs/threat_model.md says which ways of deriving one frame from another keep the guarantee.
"""

from __future__ import annotations

import atexit
import json
import os
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast

from dpsql.accounting.exact import exact
from dpsql.accounting.ledger.store import whole_path
from dpsql.connection import Connection, Cursor, connect
from dpsql.errors import (
    BudgetExhausted,
    InterfaceError,
    LedgerError,
    ProgrammingError,
    SchemaError,
    UnboundedColumn,
    UnknownName,
    did_you_mean,
    shown_argument,
)
from dpsql.frames.declare import bounds_hint, declare, narrowed
from dpsql.frames.vocabulary import ROWS, TABLE, Vocabulary, bin_edges, column_key, histogram, period_key, select
from dpsql.listing import list_columns
from dpsql.local.column import Randomizer
from dpsql.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import numpy as np

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.exact import Number
    from dpsql.accounting.ledger.ledger import OnFailure
    from dpsql.explain import Explanation
    from dpsql.frames.vocabulary import Key
    from dpsql.listing import Listing
    from dpsql.options import Parameters, QueryOptions
    from dpsql.schema.types import ColumnType
    from dpsql.session import Session

# -- accounts ----------------------------------------------------------------------------------------------------------
# Whose budget a frame spends: a note that travels with the frame, and the accounts that notes refer to.
#
# A note is plain text, so that it survives whatever a frame goes through: copies, filters, pickle, Parquet. It names an
# account of this process. In another process that account is opened again if its ledger is a file; if it was in memory,
# it is gone, and the frame cannot be asked: a new budget would hide what is spent. Accounts live as long as the
# process, because nobody knows how many notes there are.

MEMORY = ":memory:"
NEW_ACCOUNT = (
    'protect frames that leave the process with ledger="people.ledger"; df.attrs.pop("dpsql") removes protection '
    "and forgets what was spent"
)


@dataclass(frozen=True)
class Account:
    session: Session
    """Over a frame without its rows."""
    schema: Schema
    public: Mapping[str, Any]
    """Frames about nobody, by the name of their table."""
    ledger: str

    def is_same_as(self, other: Account) -> bool:
        if self.ledger == MEMORY:
            return self.session.environment.ledger is other.session.environment.ledger
        return self.ledger == other.ledger


_accounts: dict[str, Account] = {}
# While the interpreter ends, the engine can no longer be taken down in order.
atexit.register(_accounts.clear)


def enter(account: Account) -> str:
    """Stores the account; returns the note that refers to it."""
    name = uuid.uuid4().hex
    _accounts[name] = account
    declared = account.schema.model_dump(exclude_defaults=True)
    return json.dumps({"account": name, "ledger": account.ledger, "schema": declared}, default=str)


def find(note: object, columns: Collection[str], empty: Callable[[list[str]], object]) -> Account:
    """The account of a note, opened again for a frame of these columns if need be; `empty` gives it without rows."""
    try:
        read = json.loads(note)  # type: ignore[arg-type]  # whatever it is
        name, ledger, declared = read["account"], read["ledger"], read["schema"]
    except (TypeError, ValueError, KeyError):
        raise InterfaceError("dpsql's note in this frame is damaged", hint=NEW_ACCOUNT) from None
    if name not in _accounts:
        _accounts[name] = _reopened(ledger, Schema.model_validate(declared), columns, empty)
    return _accounts[name]


def _reopened(ledger: str, schema: Schema, columns: Collection[str], empty: Callable[[list[str]], object]) -> Account:
    if ledger == MEMORY:
        raise LedgerError("this frame's budget was kept in the memory of another process and is lost", hint=NEW_ACCOUNT)
    if len(schema.tables) > 1:
        raise LedgerError(
            "this frame's public tables are in the memory of another process",
            hint=f'remove the note with df.attrs.pop("dpsql") and protect the frame again with ledger="{ledger}"',
        )
    present = narrowed(schema, columns)
    rows = empty(list(present.tables[TABLE].columns))
    return Account(connect({TABLE: rows}, schema=present, ledger=ledger).session, schema, {}, ledger)


# -- answer ------------------------------------------------------------------------------------------------------------
# What df.dp answers: a cursor that shows itself, each noisy value with its error.


class FrameAnswer(Cursor):
    """The answer to a method of `df.dp`: a `Cursor` that prints itself. A single number is its `value`."""

    @property
    def value(self) -> Any:
        """The answer as a single number; `intervals()` has its error.

        Raises:
            InterfaceError: the answer is a table.
        """
        rows = self.result.rows
        if len(rows) != 1 or len(rows[0]) != 1:
            raise InterfaceError(
                f"the answer is a table of {len(rows)} rows and {len(self.result.columns)} columns, not one number",
                hint="use df(), intervals() or fetchall()",
            )
        return rows[0][0]

    def __float__(self) -> float:
        return float(self.value)


# -- randomized --------------------------------------------------------------------------------------------------------
# A frame whose column was randomised, and what a schema has to say of it.


class Randomized(NamedTuple):
    """The result of `PrivateFrame.randomize`."""

    frame: Any
    """A new frame with reports in place of the answers."""
    entry: dict[str, Any]
    """The schema entry of the column, for `dpsql.connect`."""


def randomized(
    name: str,
    answers: np.ndarray,
    kind: ColumnType,
    values: Sequence[object] | None,
    epsilon: object,
    mechanism: str,
) -> tuple[np.ndarray, dict[str, Any]]:
    """The reports, and the entry of the schema."""
    if not isinstance(values, list | tuple | range | set | frozenset | None):
        raise ProgrammingError(
            f"values= is a list, not {shown_argument(values)}, which may hold rows",
            hint='write values=["never", "daily"]',
        )
    if values is None:
        raise ProgrammingError(
            f'the possible answers of "{name}" are unknown, and must not be taken from the data',
            hint='list them: values=["never", "daily"]; boolean and categorical columns need no list',
        )
    made = Randomizer(kind, values, epsilon, mechanism)
    return made.reports(answers), made.entry


# -- accessor ----------------------------------------------------------------------------------------------------------

EXAMPLE = 'df.dp.protect(unit="customer_id", bounds={"amount": (0, 500)}, budget=1.0, delta=1e-6)'
UNDECLARED = (
    "the frame has it, but protect() did not declare it; if it is new, call protect() again, which keeps the "
    "account; else give it a name and type that SQL supports"
)


class GroupedFrame(Vocabulary):
    """The groups of a frame by its keys."""

    def __init__(self, frame: PrivateFrame, keys: tuple[Key, ...]) -> None:
        self._frame = frame
        self._keys = keys

    def _check_columns(self, names: Iterable[str]) -> None:
        self._frame._check_columns(names)

    def _ask(self, sql: str, parameters: Parameters, options: QueryOptions) -> FrameAnswer:
        return self._frame._ask(sql, parameters, options)

    def _explain(self, sql: str, parameters: Parameters, options: QueryOptions) -> Explanation:
        return self._frame._explain(sql, parameters, options)


class PrivateFrame(Vocabulary):
    """Private queries about a data frame: first `protect`, then `sql`, `count`, `sum`, `groupby` and so on.

    Every method takes the options of `Cursor.execute`, such as epsilon=0.1, and returns a `FrameAnswer`. In `sql` the
    frame is the table "df".

    >>> import pandas as pd
    >>> orders = pd.DataFrame({"customer": range(5000), "amount": [number % 90 for number in range(5000)]})
    >>> orders.dp.protect(unit="customer", bounds={"amount": (0, 100)}, budget=1)
    >>> float(orders.dp.mean("amount", epsilon=0.5)) > 30
    True
    >>> orders.dp.budget.remaining.epsilon
    0.5
    """

    _groups = GroupedFrame

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def protect(
        self,
        *,
        unit: str,
        bounds: Mapping[str, tuple[object, object] | Literal["auto"]] | None = None,
        values: Mapping[str, Sequence[object]] | None = None,
        public: Mapping[str, Any] | None = None,
        unique: bool = False,
        max_groups: int | Literal["auto"] | None = None,
        max_rows_per_group: int | Literal["auto"] | None = None,
        budget: Number | None = None,
        delta: Number | None = None,
        ledger: str | os.PathLike[str] | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """Declares what is public about the frame, and opens its budget.

        Protecting a frame again declares it anew and keeps its account.

        Args:
            unit: the column that identifies the person.
            bounds: the lowest and the highest value of each column that is summed. Choose bounds and values without
                looking at the data, or write "auto" and each query finds them for a part of its cost.
            values: all possible values of a column; all its groups are shown, even empty ones.
            public: frames that are not about people, by name, for joins in `sql`.
            unique: whether each person has one row. Then there is nothing to bound, and less noise.
            max_groups: in how many groups one person counts. Default: "auto", each query finds the bound.
            max_rows_per_group: how many rows of one person count in each group. Default: "auto".
            budget: the epsilon that all queries together may cost.
            delta: the delta of the budget; default 0.
            ledger: a file that records every charge and outlives the process. Default: in memory.
            on_failure: see `dpsql.connect`.

        Raises:
            SchemaError: a column or a bound makes no sense.
            LedgerError: the account cannot be used, or has another budget.
        """
        for name, given in (("ledger", ledger), ("on_failure", on_failure)):
            if given is not None and not isinstance(given, str | os.PathLike):
                raise ProgrammingError(
                    f"{name}= is a text, not {shown_argument(given)}", hint='write ledger="people.ledger", for example'
                )
        tables = self._public({} if public is None else public)
        schema = declare(
            self._labels(),
            self._types(),
            {name: table._types() for name, table in tables.items()},
            unit=unit,
            bounds=bounds,
            values=values,
            unique=unique,
            max_groups=max_groups,
            max_rows_per_group=max_rows_per_group,
        )
        shown = {name: table._chosen(list(schema.tables[name].columns)) for name, table in tables.items()}
        database = {TABLE: self._empty(list(schema.tables[TABLE].columns)), **shown}
        path = MEMORY if ledger is None else whole_path(ledger)
        if self._note is None:
            session = connect(
                database, schema=schema, budget=budget, delta=delta, ledger=path, on_failure=on_failure or "suspend"
            ).session
        else:
            account = self._account()
            _check_same(account, schema.dataset, budget, delta, None if ledger is None else path, on_failure)
            session, path = account.session.over(database, schema), account.ledger
            session.declare(schema)
        self._note = enter(Account(session, schema, shown, path))

    def protect_like(self, frame: Any) -> None:
        """Declares this frame like another one, on the same account. For a derived frame that lost its note.

        Args:
            frame: the protected frame.

        Raises:
            ProgrammingError: this is a frame of another library.
            LedgerError: this frame is protected already, on another account.
        """
        if not isinstance(frame, self._kinds):
            raise ProgrammingError(
                f"{type(frame).__name__} is not a frame of this library", hint="pass the protected one"
            )
        other = type(self)(frame)
        account = other._account()
        if self._note is not None and not self._account().is_same_as(account):
            raise LedgerError("this frame is already protected, with its own account", hint="query it as it is")
        self._note = other._note

    def randomize(
        self, column: str, *, epsilon: Number, mechanism: str = "kary", values: Sequence[object] | None = None
    ) -> Randomized:
        """Replaces every answer in a column by a randomised report (local differential privacy).

            reports, entry = df.dp.randomize("smoker", epsilon=1.0)

        No budget is needed or spent: a report changes the odds of any answer by at most e^epsilon. Other columns stay
        as they are.

        Args:
            column: the column of answers.
            epsilon: the privacy loss of one report.
            mechanism: "kary", "rappor", "oue" or "subset"; the last three report bits, as integers.
            values: all possible answers; not needed for booleans and categories.

        Returns:
            The frame with reports, and the schema entry of the column.

        Raises:
            UnknownName: there is no such column.
            SchemaError: SQL has no type for the column.
            ProgrammingError: the possible answers are missing.
        """
        if not isinstance(column, str) or column not in self._labels():
            raise UnknownName(
                f"there is no column {shown_argument(column)}", hint=did_you_mean(str(column), self._labels())
            )
        kind = self._types().get(column)
        if kind is None:
            raise SchemaError(f'SQL has no type for "{column}"', hint="convert it to text, numbers or booleans")
        known = values if values is not None else self._possible(column)
        reports, entry = randomized(column, self._answers(column), kind, known, epsilon, mechanism)
        return Randomized(self._replaced(column, reports), entry)

    def sql(self, query: str, parameters: Parameters = None, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """Runs a SQL query on the table "df".

        Args:
            query: one SELECT.
            parameters: values for `?` or `$name`.
            options: see `Cursor.execute`.

        Returns:
            An `FrameAnswer`.

        Raises:
            Error: see `Cursor.execute`.
        """
        return self._ask(query, parameters, options)

    def explain(self, what: object = None, /, parameters: Parameters = None, **named: Any) -> Explanation:
        """Shows what a query would cost and how accurate it would be. Free.

        Args:
            what: SQL, or the arguments of `agg`.
            parameters: values for `?` or `$name`.
            named: the aggregates of `agg`, and the options of `Cursor.execute`.

        Returns:
            An `Explanation`; print it.
        """
        if not isinstance(what, str):
            return super().explain(what, **named)
        return self._explain(what, parameters, cast("QueryOptions", named))

    @property
    def budget(self) -> Budget:
        """The budget of this frame and of all frames that share its account."""
        return self._account().session.budget

    def describe_schema(self) -> Listing:
        """The declared columns: types, bounds, values, and which one identifies the person."""
        return list_columns(self._account().schema, TABLE)

    def __repr__(self) -> str:
        if self._note is None:
            return f"<df.dp, not protected yet: {EXAMPLE}>"
        budget, unit = self.budget, self._account().schema.tables[TABLE].unit_column
        return f'<df.dp: people by "{unit}", epsilon {budget.remaining.epsilon:.4g} of {budget.epsilon:.4g} left>'

    def resume(self) -> None:
        """Lifts the suspension after a failed query, once its cause is known."""
        self._account().session.resume()

    def groupby(self, keys: Any) -> Vocabulary:
        """Groups the rows by columns; `count`, `sum`, `mean` and so on then answer per group.

        Args:
            keys: a column or a list of columns: a name, a column of this very frame, or a `pd.Grouper`.

        Returns:
            The groups, with the same methods as the frame.

        Raises:
            ProgrammingError: a key is not the name of a column.
        """
        several = keys if isinstance(keys, list | tuple) and keys else [keys]
        return self._groups(self, tuple(map(self._key, several)))

    def _key(self, key: object) -> Key:
        """A key of groupby; libraries have more ways to name one."""
        if isinstance(key, str):
            return column_key(key)
        raise ProgrammingError(f"groupby takes column names, not {shown_argument(key)}", hint='write groupby("region")')

    def resample(self, period: str, *, on: str) -> Vocabulary:
        """Groups the rows by a period of a date: `df.dp.resample("MS", on="day").count()`.

        Args:
            period: hour, day, week, month, quarter or year, or what pandas and polars call it. A period is labelled by
                its first day; by its last day where pandas does that: "W", "ME", "QE" and "YE".
            on: the column of dates or timestamps.

        Returns:
            The groups, with the same methods as the frame.

        Raises:
            ProgrammingError: this is not a period.
        """
        return self._groups(self, (period_key(on, period),))

    def crosstab(self, rows: str, columns: str, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of rows for each pair of values, as a long table.

        Args:
            rows: the first column.
            columns: the second column.
            options: see `Cursor.execute`.
        """
        return self.groupby([rows, columns]).count(**options)

    def value_counts(self, column: str, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of rows with each value, most frequent first.

        Args:
            column: the column of values.
            options: see `Cursor.execute`.
        """
        self._check_columns([column])
        return self._ask(select(ROWS, [column_key(column)], largest_first=True), None, options)

    def hist(self, column: str, bins: int | Sequence[Any] = 10, **options: Unpack[QueryOptions]) -> FrameAnswer:
        """The number of rows in each bin. A bin is named by its lower edge; the last one includes its upper edge.

        Args:
            column: the column of values.
            bins: the edges, or the number of equal bins between the declared bounds.
            options: see `Cursor.execute`.

        Raises:
            ProgrammingError: the edges do not rise.
            UnboundedColumn: a number of bins needs declared bounds.
        """
        self._check_columns([column])
        with self._in_its_words():
            edges = bin_edges(self._account().schema.tables[TABLE].columns[column], bins)
        return self._ask(*histogram(column, edges), options)

    def _ask(self, sql: str, parameters: Parameters, options: QueryOptions) -> FrameAnswer:
        answer = FrameAnswer(Connection(self._session()))
        with self._in_its_words():
            answer.execute(sql, parameters, **_drawn_anew(options))
        return answer

    def _explain(self, sql: str, parameters: Parameters, options: QueryOptions) -> Explanation:
        with self._in_its_words():
            return Connection(self._session()).explain(sql, parameters, **_drawn_anew(options))

    def _check_columns(self, names: Iterable[object]) -> None:
        labels = self._labels()
        declared = self._account().schema.tables[TABLE].columns.keys() & set(labels)
        for name in names:
            if not isinstance(name, str):
                raise UnknownName(f"there is no column {shown_argument(name)}", hint='write its name, as in "amount"')
            if name not in declared:
                hint = UNDECLARED if name in labels else did_you_mean(name, declared)
                raise UnknownName(f'there is no column "{name}"', hint=hint)

    @contextmanager
    def _in_its_words(self) -> Iterator[None]:
        """Hints for somebody who sees a frame and no schema file."""
        try:
            yield
        except UnboundedColumn as error:
            error.hint = bounds_hint(error.columns[0]) if error.columns else error.hint
            raise
        except BudgetExhausted as error:
            if not error.fitting:
                error.hint = "the budget from protect() is used up; keep the answers you have"
            elif error.hint is not None:
                error.hint = error.hint.removesuffix("; or ask the data owner for more")
            raise
        except UnknownName as error:
            if error.at is not None and error.at.marked.strip('"') in self._labels():
                error.hint = UNDECLARED
            raise

    def _account(self) -> Account:
        if self._note is None:
            raise InterfaceError(
                "this frame is not protected",
                hint="a frame made from a protected one, by merge or concat, takes over its account: "
                f"df.dp.protect_like(that_one); a new one has its own: {EXAMPLE}",
            )
        return find(self._note, self._labels(), self._empty)

    def _session(self) -> Session:
        """The account's session, over the current rows of the frame."""
        account = self._account()
        account.session.environment.check_process()
        schema = narrowed(account.schema, self._labels())
        rows = self._chosen(list(schema.tables[TABLE].columns))
        try:
            return account.session.over({TABLE: rows, **account.public}, schema)
        except (SchemaError, InterfaceError) as error:
            problem = SchemaError(
                error.problem,
                hint="the frame no longer matches its declaration; call protect() again, which keeps its account",
            )
        raise problem

    def _types(self) -> dict[str, ColumnType]:
        from dpsql.engines.duckdb.engine import (
            column_types,
        )  # here, so that importing the accessor does not load the engine

        return column_types({label: self._empty([label]) for label in self._labels()})

    def _public(self, frames: object) -> dict[str, PrivateFrame]:
        if not isinstance(frames, Mapping):
            raise ProgrammingError("public= is a dict of name -> frame", hint='write public={"regions": regions}')
        for name, frame in frames.items():
            if not isinstance(name, str) or name.lower() == TABLE or not isinstance(frame, self._kinds):
                raise ProgrammingError(
                    f"{shown_argument(name)} cannot be a public table: it is {type(frame).__name__}",
                    hint=f'pass frames of the same library, under names other than "{TABLE}"',
                )
        return {name: type(self)(frame) for name, frame in frames.items()}

    # -- what differs between libraries --

    _kinds: tuple[type, ...]
    _note: str | None
    """Travels with the frame, as far as the library lets it."""

    @abstractmethod
    def _labels(self) -> list[str]:
        """The names of the columns that have one, each of its own."""

    @abstractmethod
    def _possible(self, name: str) -> Sequence[object] | None:
        """All values of the column, where its type lists them."""

    @abstractmethod
    def _answers(self, name: str) -> np.ndarray:
        """The column's values, None for NULL."""

    @abstractmethod
    def _replaced(self, name: str, values: np.ndarray) -> Any:
        """A new frame with other values in a column."""

    @abstractmethod
    def _chosen(self, names: list[str]) -> Any:
        """Only these columns, not copied."""

    @abstractmethod
    def _empty(self, names: list[str]) -> Any:
        """Only these columns, without rows."""


def _drawn_anew(options: QueryOptions) -> QueryOptions:
    if "fresh" in options:
        raise ProgrammingError(
            "every query on a frame is run afresh", hint="omit fresh=, and keep the answers you have"
        )
    return {**options, "fresh": True}


def _check_same(
    account: Account,
    dataset: str,
    total: Number | None,
    delta: Number | None,
    ledger: str | None,
    on_failure: OnFailure | None,
) -> None:
    """Refuses what would make another account of a frame that has one."""
    budget = account.session.budget.filter
    if dataset != account.schema.dataset:
        unit = account.schema.tables[TABLE].unit_column
        raise LedgerError(f'this frame\'s account counts people by "{unit}"', hint=f'keep unit="{unit}"')
    named = (
        budget.epsilon if total is None else exact(total, "budget"),
        budget.delta if delta is None else exact(delta, "delta"),
    )
    if named != (budget.epsilon, budget.delta):
        raise LedgerError(
            f"this frame's account has epsilon {float(budget.epsilon):g} and delta {float(budget.delta):g}",
            hint="omit both, or pass the same values; protecting again does not reset what is spent",
        )
    if ledger not in (None, account.ledger):
        raise LedgerError(f"this frame's account is in {account.ledger}", hint="omit ledger=")
    kept = account.session.environment.ledger.on_failure
    if on_failure not in (None, kept):
        raise LedgerError(f"this frame's account has on_failure={kept!r}", hint="omit on_failure=")

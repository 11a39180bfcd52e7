"""What the stages hold besides their input: before the charge what is public, from the charge on engine and account."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dpsql.accounting.budget import Budget
from dpsql.accounting.ledger.journal import RunningTotals
from dpsql.engine_sql.tree import tables_read
from dpsql.errors import InterfaceError, InternalError, OperationalError
from dpsql.relation.reports import with_adaptive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from dpsql.accounting.ledger.journal import AnswerOnRecord
    from dpsql.accounting.ledger.ledger import Ledger
    from dpsql.engine_sql.tree import Query
    from dpsql.engines.base import EmptyPostProcessor, Engine, Guarantees, PostProcessingTable, Render
    from dpsql.engines.post_processor import PostProcessor
    from dpsql.options import QueryRequest
    from dpsql.relation.reports import AdaptiveTable
    from dpsql.schema.model import Schema

# -- public environment ------------------------------------------------------------------------------------------------
# What a stage before the charge may look at besides its input: what everybody may know.
#
# There is no engine here, no ledger and no row of people, so that none of these stages can read or change any of them.


class PublicRows(Protocol):
    """Access to public rows."""

    @property
    def immutable(self) -> bool:
        """Whether the rows cannot change while the connection is open."""

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        """The number `n` that a query gives which reads nothing but public tables and these lists.

        Raises OperationalError where they cannot be read.
        """

    def columns(self, query: Query) -> Mapping[str, list[Any]]:
        """The columns that a query gives which reads nothing but public tables; the same error."""


class GivenAnswers(Protocol):
    """Stored noisy answers, which are public."""

    def recall(self, fingerprint: str) -> str | None: ...

    def about(self, subject: str) -> list[AnswerOnRecord]:
        """The stored answers about a subject, the first one first."""

    def on_record(self, fingerprint: str, subject: str) -> AnswerOnRecord | None: ...


@dataclass(frozen=True, kw_only=True)
class PublicEnvironment:
    schema: Schema
    guarantees: Guarantees
    render: Render
    can_run: Callable[[str], bool]
    """Whether the engine understands a text: a yes or no that no row has a part in."""
    public_rows: PublicRows
    post_processor: EmptyPostProcessor
    budget: Budget
    """The account as it stood when the question came."""
    answers: GivenAnswers
    plans: PlanCache
    """What was planned in this session before."""


# -- plans -------------------------------------------------------------------------------------------------------------
# The plans of a session's last questions: a question that is asked again, word for word, is not planned again.
#
# Up to plan_query everything follows from the request, the schema and the database's guarantees, which do not change
# within a session. Another literal is another question: it may decide bounds, public groups and notes. A question whose
# plan depends on what may change, public rows that somebody can write or the value of a constant expression, is planned
# each time. Plans do not depend on the account; calibrate_noise sees it as it stands.

MOST_KEPT = 128
"""Questions of a session that need not be planned again."""
LONGEST_KEPT = 10_000
"""Characters of such a question, with its parameters."""
PLAIN = (type(None), bool, int, float, str, date, datetime, Decimal)
"""Values that are the same if they are written the same; 1, 1.0 and True are equal, and not the same."""

Plan = TypeVar("Plan")


@dataclass(frozen=True)
class PlanCache:
    """Shared by all threads of a session; the oldest plan goes first."""

    _plans: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def planned(
        self, request: QueryRequest, public: PublicEnvironment, plan: Callable[[QueryRequest, PublicEnvironment], Plan]
    ) -> Plan:
        asked: list[object] = []
        watched, key = _watched(public, asked), _key(request, public)
        with self._lock:
            known: Plan | None = None if key is None else self._plans.get(key)
        if known is not None:
            return known
        found = plan(request, watched)
        if key is not None and not asked:
            self._keep(key, found)
        return found

    def _keep(self, key: str, plan: object) -> None:
        with self._lock:
            self._plans[key] = plan
            if len(self._plans) > MOST_KEPT:
                del self._plans[next(iter(self._plans))]


def _watched(public: PublicEnvironment, asked: list[object]) -> PublicEnvironment:
    """What a plan is made with: what it asks that may be another tomorrow is noted, and there is no account."""
    return replace(
        public,
        public_rows=WatchedRows(public.public_rows, asked),
        post_processor=WatchedConstants(public.post_processor, asked),
        budget=Budget(public.budget.filter, RunningTotals()),
        answers=NoAnswers(),
    )


def _key(request: QueryRequest, public: PublicEnvironment) -> str | None:
    """All that the plan follows from and that may differ within a session; None where it is not worth keeping."""
    if not all(map(_is_plain, request.parameters)):
        return None
    key = f"{public.budget.filter!r} {request!r}"
    return key if len(key) <= LONGEST_KEPT else None


def _is_plain(value: object) -> bool:
    return type(value) in PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


@dataclass(frozen=True)
class NoAnswers:
    """A plan that depended on earlier answers could not be kept."""

    def recall(self, fingerprint: str) -> str | None:
        raise InternalError("a question was planned by what was answered before")

    def on_record(self, fingerprint: str, subject: str) -> AnswerOnRecord | None:
        raise InternalError("a question was planned by what was answered before")

    def about(self, subject: str) -> list[AnswerOnRecord]:
        raise InternalError("a question was planned by what was answered before")


@dataclass(frozen=True)
class WatchedRows:
    _rows: PublicRows
    _asked: list[object]

    @property
    def immutable(self) -> bool:
        return self._rows.immutable

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        if not self.immutable:
            self._asked.append(query)
        return self._rows.number(query, lists)

    def columns(self, query: Query) -> Mapping[str, list[Any]]:
        if not self.immutable:
            self._asked.append(query)
        return self._rows.columns(query)


@dataclass(frozen=True)
class WatchedConstants:
    _post_processor: EmptyPostProcessor
    _asked: list[object]

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        return self._post_processor.describe(sql, tables)

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        self._asked.append(sql)
        return self._post_processor.constants(sql)


# -- environment -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    schema: Schema
    engine: Engine
    ledger: Ledger
    post_processor: PostProcessor
    process: int = field(default_factory=os.getpid)
    plans: PlanCache = field(default_factory=PlanCache, init=False, repr=False, compare=False)
    """Of this schema and this engine: an environment that is made of another one begins without any."""

    def public(self) -> PublicEnvironment:
        """The public part of the environment, as of now."""
        return PublicEnvironment(
            schema=self.schema,
            guarantees=self.engine.guarantees,
            render=self.engine.render,
            can_run=self.engine.can_run,
            public_rows=EnginePublicRows(self.engine, self.schema),
            post_processor=self.post_processor,
            budget=self.ledger.account,
            answers=self.ledger.answers,
            plans=self.plans,
        )

    def check_process(self) -> None:
        """DuckDB's threads do not survive a fork: in a child it would wait for them for ever."""
        if self.process != os.getpid():
            raise InterfaceError(
                "this connection was opened before this process was forked",
                hint="connect in this process; an account in a file carries over",
            )


# Public rows, counted by the engine before the charge. A query that reads any other table is not run.


@dataclass(frozen=True)
class EnginePublicRows:
    _engine: Engine
    _schema: Schema

    @property
    def immutable(self) -> bool:
        return self._engine.guarantees.immutable

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        return int(self._read(query, lists)["n"][0])

    def columns(self, query: Query) -> Mapping[str, list[Any]]:
        return {name: column.tolist() for name, column in self._read(query, ()).items()}

    def _read(self, query: Query, lists: Sequence[AdaptiveTable]) -> Mapping[str, np.ndarray]:
        public = {table.name for table in self._schema.tables.values() if table.is_public}
        if not tables_read(query) <= public | {table.name for table in lists}:
            raise InternalError("people's rows would have been read before the charge")
        try:
            return self._engine.run_public(self._engine.render(with_adaptive(lists, query)))
        except Exception as problem:
            raise OperationalError(
                "the public rows that the query reads cannot be read", hint="the data owner can check the tables"
            ) from problem

"""What the stages from the charge on hold besides their input: the engine, the account, a post-processing database."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dpsql.engine_sql.tree import tables_read
from dpsql.errors import InterfaceError, InternalError, OperationalError
from dpsql.pipeline.plan_cache import PlanCache
from dpsql.relation.reports import with_adaptive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.ledger.journal import AnswerOnRecord
    from dpsql.accounting.ledger.ledger import Ledger
    from dpsql.engine_sql.tree import Query
    from dpsql.engines.base import EmptyPostProcessor, Engine, Guarantees, Render
    from dpsql.engines.post_processor import PostProcessor
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
        public = {table.name for table in self._schema.tables.values() if table.is_public}
        if not tables_read(query) <= public | {table.name for table in lists}:
            raise InternalError("people's rows would have been read before the charge")
        try:
            return int(self._engine.run_public(self._engine.render(with_adaptive(lists, query)))["n"][0])
        except Exception as problem:
            raise OperationalError(
                "the public rows that the query reads cannot be read", hint="the data owner can check the tables"
            ) from problem

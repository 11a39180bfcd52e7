"""What the stages from the charge on hold besides their input: the engine, the account, a post-processing database."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import tables_read
from dpsql.errors import InterfaceError, InternalError, OperationalError
from dpsql.pipeline.plan_cache import PlanCache
from dpsql.pipeline.public_environment import PublicEnvironment
from dpsql.relation.adaptive_subquery import with_adaptive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.accounting.ledger.ledger import Ledger
    from dpsql.engine_sql.tree import Query
    from dpsql.engines.engine import Engine
    from dpsql.engines.post_processor import PostProcessor
    from dpsql.relation.adaptive_subquery import AdaptiveTable
    from dpsql.schema.model import Schema


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
        """What of this everybody may know, now."""
        return PublicEnvironment(
            schema=self.schema,
            guarantees=self.engine.guarantees,
            render=self.engine.render,
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
                "this connection was opened by the process that this one was forked from",
                hint="connect in this process; an account in a file is found again",
            )


# Public rows, counted by the engine before the charge. A query that reads any other table is not run.


@dataclass(frozen=True)
class EnginePublicRows:
    _engine: Engine
    _schema: Schema

    @property
    def stay(self) -> bool:
        return self._engine.guarantees.rows_stay

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        public = {table.name for table in self._schema.tables.values() if table.is_public}
        if not tables_read(query) <= public | {table.name for table in lists}:
            raise InternalError("rows of people would have been read before the charge")
        try:
            return int(self._engine.run_public(self._engine.render(with_adaptive(lists, query)))["n"][0])
        except Exception as problem:
            raise OperationalError(
                "the public rows that the query reads cannot be read", hint="the data owner can check the tables"
            ) from problem

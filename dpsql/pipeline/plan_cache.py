"""The plans of a session's last questions: a question that is asked again, word for word, is not planned again.

Up to plan_query everything follows from the request, the schema and the database's guarantees, which do not change
within a session. Another literal is another question: it may decide bounds, public groups and notes. A question whose
plan depends on what may change, public rows that somebody can write or the value of a constant expression, is planned
each time. Plans do not depend on the account; calibrate_noise sees it as it stands.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpsql.accounting.budget import Budget
from dpsql.accounting.ledger.journal import RunningTotals
from dpsql.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from dpsql.accounting.ledger.journal import AnswerOnRecord
    from dpsql.engine_sql.tree import Query
    from dpsql.engines.base import EmptyPostProcessor, PostProcessingTable
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import PublicEnvironment, PublicRows
    from dpsql.pipeline.plan_query import Planned
    from dpsql.relation.reports import AdaptiveTable

    Plan: TypeAlias = Callable[[QueryRequest, PublicEnvironment], Planned]

MOST_KEPT = 128
"""Questions of a session that need not be planned again."""
LONGEST_KEPT = 10_000
"""Characters of such a question, with its parameters."""
PLAIN = (type(None), bool, int, float, str, date, datetime, Decimal)
"""Values that are the same if they are written the same; 1, 1.0 and True are equal, and not the same."""


@dataclass(frozen=True)
class PlanCache:
    """Shared by all threads of a session; the oldest plan goes first."""

    _plans: dict[str, Planned] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def planned(self, request: QueryRequest, public: PublicEnvironment, plan: Plan) -> Planned:
        asked: list[object] = []
        watched, key = _watched(public, asked), _key(request, public)
        with self._lock:
            known = None if key is None else self._plans.get(key)
        if known is not None:
            return known
        found = plan(request, watched)
        if key is not None and not asked:
            self._keep(key, found)
        return found

    def _keep(self, key: str, plan: Planned) -> None:
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


@dataclass(frozen=True)
class WatchedConstants:
    _post_processor: EmptyPostProcessor
    _asked: list[object]

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        return self._post_processor.describe(sql, tables)

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        self._asked.append(sql)
        return self._post_processor.constants(sql)

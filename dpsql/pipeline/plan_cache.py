"""What was planned for a question is there when the same session asks it again, or another one of its shape.

Word for word and value for value the same question has the same plan. A literal may decide bounds, public groups and
notes, so another literal is another question; unless it decides nothing, and was not looked at when the first was
planned (plan_for_many.py). Up to plan_query everything follows from the request, the declaration and the database's
guarantees, which stay as they are in a session; unless the question asked for what may be another tomorrow, public rows
that somebody can change or the value of a constant expression: then it is planned anew each time. The account has no
part in a plan, which is made without a look at it: calibrate_noise sees it as it stands.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dpsql.accounting.budget import Budget
from dpsql.accounting.ledger.journal import Tally
from dpsql.errors import InternalError
from dpsql.pipeline.shape import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from dpsql.engine_sql.tree import Query
    from dpsql.engines.base import EmptyPostProcessor, PostProcessingTable
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import PublicEnvironment, PublicRows
    from dpsql.pipeline.plan_for_many import PlanForMany
    from dpsql.pipeline.plan_query import Planned
    from dpsql.pipeline.shape import Shape
    from dpsql.relation.reports import AdaptiveTable

    Plan: TypeAlias = Callable[[QueryRequest, PublicEnvironment], Planned]
    Inert: TypeAlias = frozenset[str]
    ForMany: TypeAlias = Callable[[QueryRequest, PublicEnvironment, Shape, Planned], tuple[Inert, PlanForMany | None]]

Value = TypeVar("Value")

MOST_KEPT = 128
"""Questions of a session that need not be planned again, and shapes of questions."""
LONGEST_KEPT = 10_000
"""Characters of such a question, with its parameters."""
PLAIN = (type(None), bool, int, float, str, date, datetime, Decimal)
"""Values that are the same if they are written the same; 1, 1.0 and True are equal, and not the same."""


@dataclass(frozen=True)
class Kept(Generic[Value]):
    """What came last, up to a number, for all threads of a session."""

    _kept: dict[str, Value] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str) -> Value | None:
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: str, value: Value) -> None:
        with self._lock:
            self._kept[key] = value
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]


@dataclass(frozen=True)
class PlanCache:
    _plans: Kept[Planned] = field(default_factory=Kept)
    """By question."""
    _came: Kept[bool] = field(default_factory=Kept)
    """Shapes that came before."""
    _inert: Kept[Inert] = field(default_factory=Kept)
    """By shape: the names of literals that decide nothing. There may be none."""
    _for_many: Kept[PlanForMany] = field(default_factory=Kept)
    """By shape and all other literals."""

    def planned(self, request: QueryRequest, public: PublicEnvironment, plan: Plan, for_many: ForMany) -> Planned:
        asked: list[object] = []
        watched, key = _watched(public, asked), _key(request, public)
        if key is None:
            return plan(request, watched)
        if (known := self._plans.get(key)) is not None:
            return known
        shape = shape_of(request, repr(public.budget.filter))
        found = None if shape is None else self._filled(request, shape)
        if found is None:
            found = plan(request, watched)
            if asked:
                return found
            if shape is not None and self._is_worth_it(shape):
                self._learn(shape, *for_many(request, watched, shape, found))
        self._plans.keep(key, found)
        return found

    def _filled(self, request: QueryRequest, shape: Shape) -> Planned | None:
        inert = self._inert.get(shape.key)
        many = self._for_many.get(shape.without(inert)) if inert else None
        return None if many is None else many.filled(request, shape)

    def _is_worth_it(self, shape: Shape) -> bool:
        """What comes once need not be planned for many, nor what is, nor what cannot be."""
        inert = self._inert.get(shape.key)
        key = shape.key if inert is None else shape.without(inert)
        if inert == frozenset() or self._for_many.get(key) is not None:
            return False
        came = self._came.get(key) is not None
        self._came.keep(key, True)
        return came

    def _learn(self, shape: Shape, inert: Inert, many: PlanForMany | None) -> None:
        self._inert.keep(shape.key, inert)
        if many is not None:
            self._for_many.keep(shape.without(inert), many)


def _watched(public: PublicEnvironment, asked: list[object]) -> PublicEnvironment:
    """What a plan is made with: what it asks that may be another tomorrow is noted, and there is no account."""
    return replace(
        public,
        public_rows=WatchedRows(public.public_rows, asked),
        post_processor=WatchedConstants(public.post_processor, asked),
        budget=Budget(public.budget.filter, Tally()),
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

    def first(self, subject: str) -> str | None:
        raise InternalError("a question was planned by what was answered before")


@dataclass(frozen=True)
class WatchedRows:
    _rows: PublicRows
    _asked: list[object]

    @property
    def stay(self) -> bool:
        return self._rows.stay

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        if not self.stay:
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

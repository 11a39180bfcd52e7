"""One plan for all questions that differ in nothing but literals which decide nothing.

It is made while these literals are marks, so that no stage can look at them, and filled with those of each question
that comes. Only simple questions have one: a single release, whose bounds are all known and which reads no other
answer. docs/proofs/literals.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dpsql.options import NO_OPTIONS
from dpsql.resolve.inert_literals import inert_tests, read_inert, with_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpsql.aggregates.release import Release
    from dpsql.engine_sql.tree import Filling, Query
    from dpsql.engines.base import EmptyPostProcessor, PostProcessingTable
    from dpsql.expressions.tree import Literal
    from dpsql.options import QueryRequest
    from dpsql.pipeline.environment import PublicEnvironment
    from dpsql.pipeline.parse_sql import Parsed
    from dpsql.pipeline.plan_query import Planned
    from dpsql.pipeline.shape import Shape
    from dpsql.relation.relation import Aggregate
    from dpsql.relation.reports import AdaptiveTable
    from dpsql.resolve.inert_literals import InertTest
    from dpsql.schema.types import ColumnType

WITH_MARKS = ("aggregate", "knowledge", "source")
"""Where a release holds its relation: there one plan has marks, the other literals."""


@dataclass(frozen=True)
class PlanForMany:
    planned: Planned
    """With the literals of one of the questions."""
    tests: tuple[InertTest, ...]
    types: Mapping[str, ColumnType]
    """Of its literals, by name."""

    def filled(self, request: QueryRequest, shape: Shape) -> Planned | None:
        """The plan of this question; None where one of its literals is not like those that it was made for."""
        literals = read_inert(self.tests, shape.values)
        if literals is None or _types(literals) != self.types:
            return None
        (release,) = self.planned.releases
        release = release.with_literals(_fillings(literals))
        return replace(
            self.planned,
            request=replace(self.planned.request, sql=request.sql, parameters=request.parameters),
            releases=(release,),
            asked=((release.shown,), self.planned.asked[1]),
            shape=self.planned,
        )


def plan_for_many(
    parsed: Parsed,
    shape: Shape,
    fresh: Planned,
    public: PublicEnvironment,
    plan: Callable[[Parsed, PublicEnvironment], Planned],
) -> tuple[frozenset[str], PlanForMany | None]:
    """The names of the literals that decide nothing, and the plan, if those of this question are like most.

    There are none if the plan is another for this very question than the one that saw its literals.
    """
    tests = inert_tests(parsed.tree, shape.places, public.schema) if _is_simple(fresh) else ()
    inert = frozenset(name for test in tests for name in test.names)
    literals = read_inert(tests, shape.values)
    if not literals:
        return inert, None
    unasked = replace(
        public,
        public_rows=NoRows(),
        post_processor=NoConstants(public.post_processor),
        literals=_fillings(literals),
    )
    try:
        planned = plan(replace(parsed, tree=with_marks(parsed.tree, shape.places, literals)), unasked)
    except Exception:
        return frozenset(), None  # whatever stumbles over a mark has to see the literal
    if told(planned) != told(fresh):
        return frozenset(), None
    return inert, PlanForMany(planned, tests, _types(literals))


def told(planned: Planned) -> list[Any]:
    """All of a plan that anything later depends on."""
    parts = (planned.request, planned.asked, planned.public, planned.outputs, planned.post_processing, planned.followed)
    releases = [(one.release, one.release.aggregate) for one in planned.releases]
    texts = [(one.canonical, one.lasting, one.ends) for one in planned.releases]
    return [*parts, *texts, *(_but_relations(part) for pair in releases for part in pair)]


def _but_relations(part: Release | Aggregate) -> list[Any]:
    return [getattr(part, one.name) for one in fields(part) if one.name not in WITH_MARKS]


def _is_simple(planned: Planned) -> bool:
    if len(planned.releases) != 1 or planned.request.clauses or planned.request.options != NO_OPTIONS:
        return False
    (release,) = planned.releases
    return not (release.adaptive or release.seeking or release.reports or release.release.aggregate.listed)


def _types(literals: Mapping[str, Literal]) -> dict[str, ColumnType]:
    return {name: literal.type for name, literal in literals.items()}


def _fillings(literals: Mapping[str, Literal]) -> dict[str, Filling]:
    return {name: literal.value for name, literal in literals.items() if literal.value is not None}


class NotForMany(Exception):
    """Something is asked that may depend on a literal."""


@dataclass(frozen=True)
class NoRows:
    stay = False

    def number(self, query: Query, lists: Sequence[AdaptiveTable]) -> int:
        raise NotForMany


@dataclass(frozen=True)
class NoConstants:
    _post_processor: EmptyPostProcessor

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        return self._post_processor.describe(sql, tables)

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        raise NotForMany

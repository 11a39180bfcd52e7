"""How much contribution bounding takes away, as questions of their own: units on a ladder of how far they exceed it.

    rows     the most rows that a unit has in a group, beside the bound on rows
    groups   how many groups a unit has rows in, beside the bound on groups
    lost     how many of a unit's rows do not count

Every unit stands on one step of a ladder, so one unit moves one count by one, whatever it has. docs/proofs/bounding.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Literal
from dpsql.relation.relation import Aggregate, AggregateCall, Diagnosis, PerUnit, Project
from dpsql.schema.types import Boolean, Integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.expressions.tree import Expression

DOUBLINGS = 10
"""Ladders end at 1024 times the bound."""
ROWS, MOST, GROUPS, OVER, KEPT = "_rows", "_most", "_groups", "_over", "_kept"


def diagnosing(aggregate: Aggregate, groups: int, rows: int) -> Iterator[Aggregate]:
    """What to ask beside a release of whose units so many groups count, and so many rows in each."""
    keys = tuple((f"_d{number}", key) for number, key in enumerate(aggregate.keys))
    by_group = PerUnit(aggregate.source, keys, ((ROWS, call_of("COUNT")),), by_unit_alone=not keys)
    kept = do("LEAST", whole(ROWS), number(rows))
    split = Project(by_group, ((ROWS, whole(ROWS)), (OVER, do("-", whole(ROWS), kept)), (KEPT, kept)))
    folded = (
        (MOST, call_of("MAX", whole(ROWS))),
        (OVER, call_of("SUM", whole(OVER))),
        (KEPT, call_of("SUM", whole(KEPT))),
        (GROUPS, call_of("COUNT")),
    )
    by_unit = PerUnit(split, (), folded, by_unit_alone=True)
    yield _ladder(by_unit, whole(MOST), Diagnosis("rows", _doubled(rows)))
    if keys:
        yield _ladder(by_unit, whole(GROUPS), Diagnosis("groups", _doubled(groups)))
    lost = do("+", whole(OVER), _dropped(groups)) if keys else whole(OVER)
    yield _ladder(by_unit, lost, Diagnosis("lost", (0, *_doubled(1))))


def _doubled(first: int) -> tuple[int, ...]:
    return tuple(first << step for step in range(DOUBLINGS + 1))


def _ladder(source: PerUnit, value: Expression, diagnosis: Diagnosis) -> Aggregate:
    """Units by the first step that is not below their value."""
    key = step_of(value, diagnosis.steps, len(diagnosis.steps))
    return Aggregate(source=source, keys=(key,), calls=(call_of("COUNT"),), grouped=True, diagnosis=diagnosis)


def step_of(value: Expression, steps: Sequence[int], beyond: int) -> Expression:
    """The number of the first step that is not below the value."""
    branches: list[Expression] = []
    for place, most in enumerate(steps):
        branches += [Call(FUNCTIONS["<="], (value, number(most)), Boolean()), number(place)]
    return Call(FUNCTIONS["CASE"], (*branches, number(beyond)), Integer())


def _dropped(groups: int) -> Expression:
    """Of the rows that would count, those in groups beyond the bound: on average over which ones these are."""
    beyond = do("-", whole(GROUPS), do("LEAST", whole(GROUPS), number(groups)))
    return do("//", do("*", whole(KEPT), beyond), whole(GROUPS))


def call_of(name: str, *arguments: Expression) -> AggregateCall:
    return AggregateCall(name=name, arguments=arguments)


def whole(name: str) -> Column:
    return Column(name, Integer())


def number(value: int) -> Literal:
    return Literal(value, Integer())


def do(name: str, *arguments: Expression) -> Expression:
    return Call(FUNCTIONS[name], arguments, Integer())

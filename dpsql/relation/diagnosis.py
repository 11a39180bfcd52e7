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
    from collections.abc import Iterator

    from dpsql.expressions.tree import Expression

DOUBLINGS = 10
"""Ladders end at 1024 times the bound."""
ROWS, MOST, GROUPS, OVER, KEPT = "_rows", "_most", "_groups", "_over", "_kept"


def diagnosing(aggregate: Aggregate, groups: int, rows: int) -> Iterator[Aggregate]:
    """What to ask beside a release of whose units so many groups count, and so many rows in each."""
    keys = tuple((f"_d{number}", key) for number, key in enumerate(aggregate.keys))
    by_group = PerUnit(aggregate.source, keys, ((ROWS, _call("COUNT")),), by_unit_alone=not keys)
    kept = _do("LEAST", _whole(ROWS), _is(rows))
    split = Project(by_group, ((ROWS, _whole(ROWS)), (OVER, _do("-", _whole(ROWS), kept)), (KEPT, kept)))
    folded = (
        (MOST, _call("MAX", ROWS)),
        (OVER, _call("SUM", OVER)),
        (KEPT, _call("SUM", KEPT)),
        (GROUPS, _call("COUNT")),
    )
    by_unit = PerUnit(split, (), folded, by_unit_alone=True)
    yield _ladder(by_unit, _whole(MOST), Diagnosis("rows", _doubled(rows)))
    if keys:
        yield _ladder(by_unit, _whole(GROUPS), Diagnosis("groups", _doubled(groups)))
    lost = _do("+", _whole(OVER), _dropped(groups)) if keys else _whole(OVER)
    yield _ladder(by_unit, lost, Diagnosis("lost", (0, *_doubled(1))))


def _doubled(first: int) -> tuple[int, ...]:
    return tuple(first << step for step in range(DOUBLINGS + 1))


def _ladder(source: PerUnit, value: Expression, diagnosis: Diagnosis) -> Aggregate:
    """Units by the first step that is not below their value."""
    branches: list[Expression] = []
    for number, most in enumerate(diagnosis.steps):
        branches += [Call(FUNCTIONS["<="], (value, _is(most)), Boolean()), _is(number)]
    key = Call(FUNCTIONS["CASE"], (*branches, _is(len(diagnosis.steps))), Integer())
    return Aggregate(source=source, keys=(key,), calls=(_call("COUNT"),), grouped=True, diagnosis=diagnosis)


def _dropped(groups: int) -> Expression:
    """Of the rows that would count, those in groups beyond the bound: on average over which ones these are."""
    beyond = _do("-", _whole(GROUPS), _do("LEAST", _whole(GROUPS), _is(groups)))
    return _do("//", _do("*", _whole(KEPT), beyond), _whole(GROUPS))


def _call(name: str, *columns: str) -> AggregateCall:
    return AggregateCall(name=name, arguments=tuple(map(_whole, columns)))


def _whole(name: str) -> Column:
    return Column(name, Integer())


def _is(number: int) -> Literal:
    return Literal(number, Integer())


def _do(name: str, *arguments: Expression) -> Expression:
    return Call(FUNCTIONS[name], arguments, Integer())

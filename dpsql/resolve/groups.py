"""The rows of a SELECT in groups: by which keys, and which aggregates are asked of each group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.ranges import range_of
from dpsql.relation.knowledge import knowledge_of
from dpsql.resolve.calls import aggregate_calls
from dpsql.resolve.grouping import read_grouping
from dpsql.resolve.syntax import is_aggregate, outermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall
    from dpsql.resolve.apply_where import Filtered

CLAUSES = ("expressions", "having", "windows", "qualify", "order", "limit", "offset", "distinct")
"""Those that see groups."""


@dataclass(frozen=True)
class Groups:
    below: Filtered
    items: tuple[exp.Expr, ...]
    """The keys as they are written."""
    keys: tuple[Expression, ...]
    totals: tuple[tuple[int, ...], ...]
    asked: Mapping[int, AggregateCall | list[AggregateCall]]
    """Each aggregate by the id of its node; of a list of quantiles all."""

    def answer_name(self, call: AggregateCall) -> str:
        """The column that holds an aggregate, above the groups."""
        return f"_a{self.calls.index(call)}"

    def bounds(self, call: AggregateCall) -> tuple[exp.Expr, exp.Expr]:
        """In which the aggregate's values are held: those that it was given, or that follow from the schema."""
        ends: tuple[Fraction | int | None, Fraction | int | None] = (None, None)
        if call.group_bounds is not None:
            ends = call.group_bounds
        elif call.arguments and call.name != "COUNT":
            ends = range_of(kept_properties(call.arguments[0], knowledge_of(self.below.rows.relation).kept))
        low, high = ends
        return _number(low), _number(high)

    @cached_property
    def calls(self) -> list[AggregateCall]:
        """What is asked twice is computed once."""
        lists = (calls if isinstance(calls, list) else [calls] for calls in self.asked.values())
        return list(dict.fromkeys(call for calls in lists for call in calls))


def read_groups(below: Filtered, select: exp.Select) -> Groups:
    grouping = read_grouping(select, below.scope)
    below = below.reading(grouping.items)
    keys = tuple(below.scope.lowering.lower(item) for item in grouping.items)
    nodes = list(_aggregates(select))
    below = below.reading(nodes)
    asked = {id(node): aggregate_calls(node, below.scope.lowering) for node in nodes}
    return Groups(below, grouping.items, keys, grouping.totals, asked)


def _aggregates(select: exp.Select) -> Iterator[exp.Expr]:
    for clause in CLAUSES:
        value = select.args.get(clause)
        for part in value if isinstance(value, list) else [value] if value is not None else []:
            yield from outermost(part, is_aggregate)


def _number(value: int | Fraction | None) -> exp.Expr:
    return exp.Null() if value is None else exp.Literal.number(float(value))

"""The rows of a SELECT in groups: by which keys, and which aggregates are asked of each group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dpsql.resolve.calls import aggregate_calls
from dpsql.resolve.grouping import read_grouping
from dpsql.resolve.syntax import is_aggregate, outermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlglot import exp

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

"""GROUP BY: its items, or those of SELECT DISTINCT, as grouping keys.

    GROUP BY a, ROLLUP (b, c)    keys a, b, c    totals (a, b, c), (a, b), (a)

With ROLLUP, CUBE and GROUPING SETS the engine is asked for the finest groups, and each set of keys is a level of totals
that is measured by itself. docs/proofs/totals.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.parser_tree import copied
from dpsql.expressions.properties import range_of
from dpsql.expressions.tree import Column
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, PerUnit
from dpsql.relation.units import follows_from_unit
from dpsql.sql.calls import aggregate_calls, per_unit_type
from dpsql.sql.from_clause import Source
from dpsql.sql.post_processing import PostProcessing
from dpsql.sql.project import output_rows, refuse_order, refuse_preserved_side
from dpsql.sql.rows import PrivateRows, internal_column
from dpsql.sql.scope import Scope
from dpsql.sql.subqueries import read_constants
from dpsql.sql.syntax import extra_clauses, has_aggregate, is_aggregate, outermost, output_name, unaliased

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall
    from dpsql.sql.subqueries import Filtered

Set: TypeAlias = tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Grouping:
    items: tuple[exp.Expr, ...] = ()
    totals: tuple[tuple[int, ...], ...] = ()
    """Which of them each total keeps; none for a plain GROUP BY."""


def read_grouping(select: exp.Select, scope: Scope) -> Grouping:
    group, items = select.args.get("group"), select.expressions
    if group is None:
        plain = select.args.get("distinct") and not any(map(has_aggregate, items))
        return Grouping(tuple(map(unaliased, items)) if plain else ())
    for clause in extra_clauses(group, {"expressions", "all"}):
        keys = ", ".join(item.sql(dialect="duckdb") for item in group.expressions)
        words = f"GROUP BY {clause.upper()} ({keys})" if clause in ("rollup", "cube") else "a plain GROUP BY"
        raise scope.resolver.refuse(f"{clause.upper()} is not supported in this form", group, f"write {words}")
    if group.args.get("all"):
        return Grouping(tuple(unaliased(item) for item in items if not has_aggregate(item)))
    grouped, sets = _grouping_sets(group)
    totals = tuple(tuple(grouped.index(item) for item in chosen) for chosen in sets)
    return Grouping(tuple(_meant(item, select, scope) for item in grouped), totals)


def _meant(item: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
    """GROUP BY 2 is the second item of the SELECT list; a name that is no column is an alias of it."""
    if isinstance(item, exp.Column):
        aliased = None if scope.is_column(item) else scope.alias(item)
        return unaliased(item if aliased is None else aliased)
    if not (isinstance(item, exp.Literal) and item.is_int):
        return unaliased(item)
    items = select.expressions
    if not 1 <= int(item.this) <= len(items):
        raise ProgrammingError(
            f"GROUP BY {item.this}: the SELECT list has {len(items)} items",
            at=scope.resolver.place(item),
            hint=f"write a number from 1 to {len(items)}, or the column itself",
        )
    return unaliased(items[int(item.this) - 1])


def _grouping_sets(group: exp.Group) -> tuple[list[exp.Expr], list[Set]]:
    """All grouping items, and the requested sets of them; no sets for a plain GROUP BY."""
    choices = [_choices(item) for item in group.expressions]
    # A key that a set names twice is one key; a set that is asked twice is shown twice.
    sets = [tuple(dict.fromkeys(item for part in parts for item in part)) for parts in product(*choices)]
    if all(len(choice) == 1 for choice in choices):
        return list(sets[0]), []
    return list(dict.fromkeys(item for chosen in sorted(sets, key=len, reverse=True) for item in chosen)), sets


def _choices(item: exp.Expr) -> list[Set]:
    """The grouping sets of one GROUP BY item."""
    item = item.unnest()
    parts = [part.unnest() for part in item.expressions]
    match item:
        case exp.Rollup():
            return [tuple(parts[:length]) for length in range(len(parts), -1, -1)]
        case exp.Cube():
            return [chosen for length in range(len(parts), -1, -1) for chosen in combinations(parts, length)]
        case exp.GroupingSets():
            return [_members(part) for part in parts]
    if isinstance(item, exp.Tuple) and not parts:
        return [()]  # GROUP BY (): one group of all
    return [(item,)]


def _members(node: exp.Expr) -> Set:
    """(a, b), (a), a and () in GROUPING SETS."""
    if isinstance(node, exp.Tuple):
        return tuple(part.unnest() for part in node.expressions)
    return (node,)


# -- groups ------------------------------------------------------------------------------------------------------------
# The rows of a SELECT in groups: by which keys, and which aggregates are asked of each group.

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
        """The bounds to which the aggregate's values are clamped: those given, or those implied by the schema."""
        ends: tuple[Fraction | int | None, Fraction | int | None] = (None, None)
        if call.group_bounds is not None:
            ends = call.group_bounds
        elif call.arguments and call.name != "COUNT":
            ends = range_of(kept_properties(call.arguments[0], facts_of(self.below.rows.relation).surviving))
        low, high = ends
        return _number(low), _number(high)

    @cached_property
    def calls(self) -> list[AggregateCall]:
        """The distinct aggregate calls."""
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


# -- per unit ----------------------------------------------------------------------------------------------------------
# GROUP BY with the unit: still rows of people, with aggregates of each one's own.


def per_unit(groups: Groups, select: exp.Select) -> PrivateRows:
    _refuse_clauses(groups, select)
    above = PostProcessing(
        groups,
        column=lambda call: internal_column(Column(groups.answer_name(call), per_unit_type(call))),
        subquery=copied,
    )
    items = [(output_name(item).lower(), above.rewritten(unaliased(item))) for item in select.expressions]
    having = [above.rewritten(clause.this) for clause in (select.args.get("having"),) if clause is not None]
    rows = _grouped(groups)
    # Subqueries up here are constants, and names are aliases: all else has become a column.
    scope = Scope(
        resolver=groups.below.scope.resolver,
        named=groups.below.scope.named,
        source=Source(rows, (), {}),
        aliases=dict(items),
    )
    scope = read_constants(scope, [*having, *(node for _, node in items)])
    for node in having:
        rows = replace(rows, relation=Filter(rows.relation, scope.condition(node, "HAVING")))
    columns = {name: scope.lowering.lower(node) for name, node in items}
    if len(columns) < len(items):
        raise ProgrammingError("two columns have the same name", hint="rename one with AS")
    return output_rows(rows, columns)


def _refuse_clauses(groups: Groups, select: exp.Select) -> None:
    refuse_order(
        groups.below,
        select,
        "each group is one person, so choosing some would single out people",
        "count them: SELECT COUNT(*) FROM (SELECT ... GROUP BY the unit) WHERE n > 300; or group by values that "
        "people share",
    )
    refuse_preserved_side(groups.below)
    for clause in ("qualify", "distinct"):
        if select.args.get(clause):
            raise groups.below.scope.resolver.refuse(
                f"{clause.upper()} cannot be used with GROUP BY the unit",
                select.args[clause],
                "put the GROUP BY into a subquery and use it outside",
            )


def _grouped(groups: Groups) -> PrivateRows:
    """The keys and aggregates of each unit, under names of our own."""
    rows = groups.below.rows
    keys = {f"_k{number}": key for number, key in enumerate(groups.keys)}
    relation = PerUnit(
        rows.relation,
        tuple(keys.items()),
        tuple((groups.answer_name(call), call) for call in groups.calls),
        by_unit_alone=all(rows.is_of_unit_alone(key) or follows_from_unit(key, rows.relation) for key in groups.keys),
    )
    told = {name: sense for name, key in keys.items() if (sense := rows.key_of(key)) is not None}
    present = frozenset(frozenset({name}) for name in told if rows.tells_unit(keys[name]))
    return PrivateRows(relation=relation, columns={}, unit_keys=told, present=present, unit_type=rows.unit_type)

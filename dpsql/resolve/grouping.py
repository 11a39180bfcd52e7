"""What a SELECT groups by: the items of GROUP BY, or those of SELECT DISTINCT.

    GROUP BY a, ROLLUP (b, c)    keys a, b, c    totals (a, b, c), (a, b), (a)

With ROLLUP, CUBE and GROUPING SETS the engine is asked for the finest groups, and each set of keys is a level of totals
that is measured by itself. docs/proofs/totals.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.resolve.syntax import extra_clauses, has_aggregate, unaliased

if TYPE_CHECKING:
    from dpsql.resolve.scope import Scope

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
        raise scope.resolver.refuse(f"{clause.upper()} cannot be asked in this form", group, f"write {words}")
    if group.args.get("all"):
        return Grouping(tuple(unaliased(item) for item in items if not has_aggregate(item)))
    grouped, sets = _grouped(group)
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


def _grouped(group: exp.Group) -> tuple[list[exp.Expr], list[Set]]:
    """All items that are grouped by, and the sets of them that are asked for; no sets for a plain GROUP BY."""
    choices = [_choices(item) for item in group.expressions]
    sets = [tuple(item for part in parts for item in part) for parts in product(*choices)]
    if all(len(choice) == 1 for choice in choices):
        return list(sets[0]), []
    return list(dict.fromkeys(item for chosen in sorted(sets, key=len, reverse=True) for item in chosen)), sets


def _choices(item: exp.Expr) -> list[Set]:
    """The sets that one item of GROUP BY stands for."""
    parts = item.expressions
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
        return tuple(node.expressions)
    return (node.this,) if isinstance(node, exp.Paren) else (node,)

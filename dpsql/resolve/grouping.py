"""GROUP BY with ROLLUP, CUBE and GROUPING SETS: the finest keys, and which of them each total keeps.

    GROUP BY a, ROLLUP (b, c)    keys a, b, c    totals (a, b, c), (a, b), (a)

Only the finest groups are released. A total is the sum of its released parts: it agrees with them and costs nothing.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import TypeAlias

from sqlglot import exp

Set: TypeAlias = tuple[exp.Expr, ...]


def read_grouping(group: exp.Group) -> tuple[list[exp.Expr], list[Set]]:
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

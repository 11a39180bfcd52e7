"""Which function over many rows a node of the parser is, by the names in the tables of aggregates and windows.

The parser has a class for the names that it knows, and calls the others anonymous. A name that no table has is no
aggregate, whatever stands around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.table import AGGREGATES
from dpsql.relation.per_unit import ARGUMENTS, WINDOWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.aggregates.function import AggregateFunction


def names_of(aggregates: Mapping[str, AggregateFunction]) -> dict[str, str]:
    """Every name that is followed by plain arguments, and what the function is called here."""
    plain = [function for function in aggregates.values() if not function.by_fraction]
    return {name: name for name in WINDOWS} | {name: row.name for row in plain for name in row.names}


def kinds_of(names: Mapping[str, str]) -> dict[type[exp.Expr], str]:
    """The parser's classes among them; one that stands for two functions would be answered as one of them."""
    kinds: dict[type[exp.Expr], str] = {}
    for name, called in names.items():
        kind = exp.FUNCTION_BY_NAME.get(name)
        if kind is not None and kinds.setdefault(kind, called) != called:
            raise ValueError(f"the parser does not tell {called} from {kinds[kind]}")
    return kinds


NAMES = names_of(AGGREGATES)
KINDS = kinds_of(NAMES)


def function_name(node: exp.Expr) -> str | None:
    """What the function is called here; None if it is none of them."""
    return NAMES.get(node.name.upper()) if isinstance(node, exp.Anonymous) else KINDS.get(type(node))


def argument_counts(name: str) -> tuple[int, ...]:
    """How many arguments the function can have."""
    return AGGREGATES[name].arguments if name in AGGREGATES else ARGUMENTS.get(name, (1,))

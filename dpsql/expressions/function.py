"""The shape of a scalar function: how its result follows from its arguments, and how it is said in SQL.

`properties` gives the result's type, range and possible values, or raises `Misfit` when the arguments do not fit; it is
called with bare types first (to resolve a query) and with full knowledge later. `sql` writes the call so that it never
fails, whatever the row holds: what has no answer is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.properties import Properties


class Misfit(Exception):
    """The arguments do not fit the function; the text says what it takes, and the hint what to write instead."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


@dataclass(frozen=True)
class Written:
    """An argument as it stands in the engine's SQL, with what is known of it."""

    sql: Term
    properties: Properties
    parts: int = 0
    """How many functions and operators it is made of."""


@dataclass(frozen=True)
class Function:
    name: str
    takes: str
    """What it takes, for people: `ROUND(number [, digits])`."""
    properties: Callable[[Sequence[Properties]], Properties] = field(repr=False, compare=False)
    sql: Callable[[Sequence[Written]], Term] = field(repr=False, compare=False)


def need_count(name: str, arguments: Sequence[object], *counts: int) -> None:
    """The parser knows how many arguments most functions take, and leaves some of them optional."""
    if len(arguments) not in counts:
        raise Misfit(f"{name} takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}")

"""What columns are made of: nothing noisy, noise that is replayed, or noise that nothing is known of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

SIGN = "~"
"""In the name of every replica, and in no other."""
MARK = f"{SIGN}#{SIGN}"
"""Where the number of a replica stands in its name."""


def numbered(text: str, number: int) -> str:
    """The name of one replica, or SQL over it.

    >>> numbered('"n~#~" * 2', 7)
    '"n~7" * 2'
    """
    return text.replace(MARK, f"{SIGN}{number}")


class NotFollowed(Exception):
    """A clause whose columns are not known here."""


class Kind(IntEnum):
    PLAIN = 0
    NOISY = 1
    LOST = 2


@dataclass(frozen=True)
class Made:
    """What a column is made of: nothing noisy, noise that is replayed under the name `replica`, or lost noise."""

    kind: Kind = Kind.PLAIN
    replica: str = ""
    by_row: bool = False
    """Whether only what is made of one row can be replayed, since rows share noise."""
    stepped: bool = False
    """Whether it has steps or kinks. Those of many rows may all err to one side: added up, no replica tells."""

    @property
    def lost(self) -> Made:
        return LOST if self.kind else PLAIN


PLAIN = Made()
LOST = Made(Kind.LOST)


@dataclass(frozen=True)
class Rows:
    """What a query gives: its columns in order, by name; whether noise chose or sorted its rows."""

    columns: tuple[tuple[str, Made], ...]
    chosen: bool = False
    sorted: bool = False

    def named(self, name: str) -> Made | None:
        found = [made for own, made in self.columns if own.lower() == name.lower()]
        return found[0] if len(found) == 1 else LOST if found else None

    def renamed(self, alias: exp.Expr | None) -> Rows:
        names = [] if alias is None else [part.name for part in alias.args.get("columns") or []]
        columns = [(new, made) for new, (_, made) in zip(names, self.columns, strict=False)]
        return replace(self, columns=(*columns, *self.columns[len(columns) :]))


@dataclass(frozen=True)
class Scope:
    """The names that an expression may read."""

    sources: Mapping[str, Rows] = field(default_factory=dict)
    aliases: Mapping[str, Made] = field(default_factory=dict)
    outer: Scope | None = None

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.depth

    def made_of(self, column: exp.Column) -> Made:
        name, table = column.name, column.table.lower()
        sources = [rows for own, rows in self.sources.items() if not table or own == table]
        found = {made for rows in sources if (made := rows.named(name)) is not None}
        if found:
            return found.pop() if len(found) == 1 else LOST
        if not table and name.lower() in self.aliases:
            return self.aliases[name.lower()]
        if self.outer is None:
            raise NotFollowed(name)
        return self.outer.made_of(column)

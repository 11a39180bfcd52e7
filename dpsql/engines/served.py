"""What renderers for servers share: tables that are read as they are declared, and values that are computed once."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from typing import TYPE_CHECKING

from dpsql.engines.ranged import RangedRenderer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpsql.engine_sql.tree import Filling, Stored, Table

SHORT = {1: math.inf, 2: 400, math.inf: 80}
"""How many characters a value may have that is written as often as it is read: once, twice, or more often."""


class ServedRenderer(RangedRenderer):
    """`tables`: for each declared table the SELECT that reads its declared columns as they are declared."""

    def __init__(self, blanks: Mapping[str, Filling] | None = None, tables: Mapping[str, str] | None = None) -> None:
        super().__init__(blanks)
        self.tables = tables or {}
        self.numbers = itertools.count()

    @abstractmethod
    def computed_once(self, values: Sequence[str], write: Callable[..., str]) -> str:
        """What `write` makes of names under which the engine finds the values, computed before."""

    def once(self, values: Sequence[str], write: Callable[..., str]) -> str:
        """What `write` makes of values that it reads more than once."""
        reads = max(write(*(f"\0{place}" for place in range(len(values)))).count(f"\0{n}") for n in range(len(values)))
        longest = next(length for most, length in SHORT.items() if reads <= most)
        short = all(len(value) <= longest for value in values)
        return write(*values) if short else self.computed_once(values, write)

    def stored(self, column: Stored) -> str:
        """Read as it is declared already."""
        return f"{self.quoted(column.table)}.{self.quoted(column.name)}"

    def table(self, table: Table) -> str:
        """A declared table, which has an alias, is what its declared columns are read as."""
        if table.alias is None or table.name not in self.tables:
            return super().table(table)
        return f"({self.tables[table.name]}) AS {self.quoted(table.alias)}"

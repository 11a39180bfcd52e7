"""What may be asked of databases before the charge: what everybody may know, and nothing that has a row of people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.engines.duckdb.types import stays_apart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dpsql.engine_sql.tree import Filling, Query
    from dpsql.schema.types import ColumnType


@dataclass(frozen=True)
class Guarantees:
    """What holds for every row that there is or will be, not because the schema says so. Names are in lower case."""

    unique: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Table and column -> the type in which the database keeps every value apart."""
    present: Collection[tuple[str, str]] = frozenset()
    """The tables and columns that are NULL in no row."""
    rows_stay: bool = False
    """Whether nobody can change rows while the database is open: they were copied, or their file is read-only."""
    place: tuple[str, str] = ("memory", "main")
    """The database and the schema in which the declared tables are."""

    def is_unique(self, table: str, column: str, kind: ColumnType) -> bool:
        """Whether the database itself guarantees that no two rows have the same value there, read as `kind`."""
        stored = self.unique.get((table.lower(), column.lower()))
        return stored is not None and stays_apart(kind, stored)

    def never_null(self, table: str, column: str) -> bool:
        """Whether no row is NULL there, read as it is declared."""
        return (table.lower(), column.lower()) in self.present


class Render(Protocol):
    """How an engine says a query. It knows names and types, and no engine."""

    def __call__(self, query: Query, blanks: Mapping[str, Filling] | None = None) -> str:
        """Raises Unsupported for what the engine has no words for."""


class EmptyPostProcessor(Protocol):
    """The post-processing database while its tables have no rows."""

    def describe(self, sql: str, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...]:
        """The names and types of the post-processing's columns; raises ProgrammingError if it makes no sense."""

    def constants(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query that reads no table."""


# A table of the post-processing database, as a value.


@dataclass(frozen=True)
class PostProcessingTable:
    """A table that the post-processing reads: columns of these types, made from stored columns by these expressions."""

    name: str
    stored: Mapping[str, str]
    """Column -> type, in the engine's words."""
    columns: Mapping[str, tuple[str, str]]
    """Column -> type, and the expression over stored columns that gives it."""

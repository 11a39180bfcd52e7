"""What dpsql needs of a database: that its tables stay, its own guarantees, and to run one SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.schema.types import ColumnType


class Guarantees(Protocol):
    """What holds for every row that there is or will be, not because the schema says so."""

    def is_unique(self, table: str, column: str, kind: ColumnType) -> bool:
        """Whether the database itself guarantees that no two rows have the same value there, read as `kind`."""

    def never_null(self, table: str, column: str) -> bool:
        """Whether no row is NULL there, read as it is declared."""


class Engine(Guarantees, Protocol):
    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""

    def run(self, sql: str) -> Mapping[str, np.ndarray]:
        """The columns of the result, NULL as masked values."""

    def close(self) -> None: ...

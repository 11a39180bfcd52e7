"""What dpsql needs of a database: that its tables stay, its own uniqueness guarantees, and to run one SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dpsql.schema.types import ColumnType


class Engine(Protocol):
    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""

    def is_unique(self, table: str, column: str, kind: ColumnType) -> bool:
        """Whether the database itself guarantees that no two rows have the same value there, read as `kind`."""

    def run(self, sql: str) -> Mapping[str, np.ndarray]:
        """The columns of the result, NULL as masked values."""

    def close(self) -> None: ...

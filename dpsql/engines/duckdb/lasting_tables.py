"""Temporary tables of what lasts from question to question (engine_sql/lasting.py), where nobody changes rows.

They are made when they are first needed; where there are too many, those go that were not needed for the longest time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engines.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

MOST_TABLES, MOST_CELLS = 64, 1 << 27
"""How many tables there are at most, and how many cells they have together, unless one question needs more: a gigabyte
of numbers. A list may name a column many times."""


class LastingTables:
    def __init__(self) -> None:
        self._cells: dict[str, int] = {}
        """How many each table has, those first that were not needed since."""

    def __len__(self) -> int:
        return len(self._cells)

    def keep(self, lasting: Mapping[str, str], connection: duckdb.DuckDBPyConnection) -> None:
        """Makes such of these tables, by name, as are not there yet."""
        for name, sql in lasting.items():
            cells = self._cells.pop(name, None)
            self._cells[name] = _cells_made(name, sql, connection) if cells is None else cells
        while len(self._cells) > len(lasting) and self._are_too_many():
            oldest = next(iter(self._cells))
            del self._cells[oldest]
            connection.execute(f"DROP TABLE {quoted(oldest)}")

    def _are_too_many(self) -> bool:
        return len(self._cells) > MOST_TABLES or sum(self._cells.values()) > MOST_CELLS


def _cells_made(name: str, sql: str, connection: duckdb.DuckDBPyConnection) -> int:
    # There may be one still, where its removal was interrupted.
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS {sql}")
    table = connection.table(quoted(name))
    return table.shape[0] * table.shape[1]

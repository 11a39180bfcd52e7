"""A database of dpsql's own is made quiet and locked: from then on no setting can be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    # Asked first: in Jupyter without ipywidgets there is no progress bar, and an error for whoever switches it off.
    if is_set(connection, "enable_progress_bar"):
        connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")


def is_set(connection: duckdb.DuckDBPyConnection, setting: str) -> bool:
    return connection.execute("SELECT current_setting(?)", [setting]).fetchone() == (True,)

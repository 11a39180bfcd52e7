"""Names, types and constraints of a PostgreSQL database: what a schema can be begun from. No value is read."""

from __future__ import annotations

from contextlib import closing

from dpsql.engines.duckdb.describe import Described
from dpsql.engines.postgresql.catalog import found_tables
from dpsql.engines.postgresql.engine import connected

USUAL_DECIMAL = "DECIMAL(18,2)"
"""To begin with, for a NUMERIC that does not say how many digits it has."""


def describe(url: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and its tables and views by theirs."""
    connection, place = connected(url)
    with closing(connection):
        tables = found_tables(connection, place).values()
        name = connection.info.dbname
    return name, {
        table.found.name: Described(
            {column: stored.common if stored.keeps_apart else USUAL_DECIMAL for column, stored in table.types.items()},
            set(table.found.unique),
            dict(table.references),
            is_view=table.found.is_view,
        )
        for table in tables
    }

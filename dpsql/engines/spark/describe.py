"""Names and types of the tables that Spark has: what a schema can be begun from. No value is read."""

from __future__ import annotations

from dpsql.engines.duckdb.describe import Described
from dpsql.engines.spark.catalog import found_table, table_names
from dpsql.engines.spark.connection import own_session


def describe(url: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and its tables and views by theirs."""
    session, place = own_session(url)
    try:
        tables = [found_table(session, place, name) for name in table_names(session, place).values()]
    finally:
        session.stop()
    return place.database, {
        table.found.name: Described(dict(table.found.columns), is_view=table.found.is_view) for table in tables
    }

"""The engine that has the data: PostgreSQL for a URL of it, DuckDB for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import InterfaceError

if TYPE_CHECKING:
    from dpsql.engines.engine import Engine
    from dpsql.schema.model import Schema

SERVERS = ("postgresql://", "postgres://")


def names_server(database: object) -> bool:
    return isinstance(database, str) and database.startswith(SERVERS)


def open_engine(database: object, schema: Schema) -> Engine:
    """Raises SchemaError unless every declared table and column is there, with a type that fits."""
    # Each is loaded by those who need it: the driver of a server is no part of dpsql.
    if isinstance(database, str) and names_server(database):
        try:
            from dpsql.engines.postgresql.engine import PostgreSQLEngine
        except ImportError:
            problem = InterfaceError("the driver of PostgreSQL is not installed", hint="pip install 'dpsql[postgres]'")
        else:
            return PostgreSQLEngine.open(database, schema)
        raise problem
    from dpsql.engines.duckdb_engine import DuckDBEngine

    return DuckDBEngine.open(database, schema)

"""The engine that has the data: PostgreSQL for a URL of it, DuckDB for everything else."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dpsql.errors import InterfaceError

if TYPE_CHECKING:
    from dpsql.engines.duckdb.describe import Described
    from dpsql.engines.engine import Engine
    from dpsql.schema.model import Schema

SERVERS = ("postgresql://", "postgres://")


def names_server(database: object) -> bool:
    return isinstance(database, str) and database.startswith(SERVERS)


def without_password(database: str) -> str:
    """
    >>> without_password("postgresql://me:secret@host/db")
    'postgresql://me@host/db'
    """
    return re.sub("(?<=://)([^:/@?]*):[^@/]*@", r"\1@", database) if names_server(database) else database


def open_engine(database: object, schema: Schema) -> Engine:
    """Raises SchemaError unless every declared table and column is there, with a type that fits."""
    # Each is loaded by those who need it: the driver of a server is no part of dpsql.
    if isinstance(database, str) and names_server(database):
        _check_driver()
        from dpsql.engines.postgresql.engine import PostgreSQLEngine

        return PostgreSQLEngine.open(database, schema)
    from dpsql.engines.duckdb.engine import DuckDBEngine

    return DuckDBEngine.open(database, schema)


def describe_server(database: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and what its tables are."""
    _check_driver()
    from dpsql.engines.postgresql.describe import describe

    return describe(database)


def _check_driver() -> None:
    if find_spec("psycopg") is None:
        raise InterfaceError("the driver of PostgreSQL is not installed", hint="pip install 'psycopg[binary]'")

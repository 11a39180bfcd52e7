"""The registry of engines: PostgreSQL and Spark by URL, Spark also by session, DuckDB for everything else."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dpsql.errors import InterfaceError

if TYPE_CHECKING:
    from dpsql.engines.base import Engine
    from dpsql.engines.duckdb.describe import Described
    from dpsql.schema.model import Schema

POSTGRESQL, SPARK = ("postgresql://", "postgres://"), "sc://"
DRIVERS = {"psycopg": ("PostgreSQL", "postgres"), "pyspark": ("Spark", "spark")}
"""Package -> whose driver it is, and the extra that brings it."""


def names_server(database: object) -> bool:
    return isinstance(database, str) and database.startswith((*POSTGRESQL, SPARK))


def is_spark(database: object) -> bool:
    """A URL of Spark Connect, or a session of pyspark; found out without loading it."""
    if isinstance(database, str):
        return database.startswith(SPARK)
    return type(database).__module__.startswith("pyspark.sql.") and type(database).__name__ == "SparkSession"


def has_own_ledger(database: object) -> bool:
    """Whether there is a place beside the data where its account would be looked for."""
    return not (names_server(database) or is_spark(database))


def without_password(database: str) -> str:
    """
    >>> without_password("postgresql://me:secret@host/db"), without_password("sc://host/;token=secret;user_id=me")
    ('postgresql://me@host/db', 'sc://host/;user_id=me')
    """
    if not names_server(database):
        return database
    return re.sub("(?<=://)([^:/@?]*):[^@/]*@", r"\1@", re.sub(";token=[^;]*", "", database))


def open_engine(database: object, schema: Schema) -> Engine:
    """Raises SchemaError unless every declared table and column is there, with a type that fits."""
    # Each is loaded by those who need it: the driver of a server is no part of dpsql.
    if is_spark(database):
        _check_driver("pyspark")
        from dpsql.engines.spark.engine import SparkEngine

        return SparkEngine.open(database, schema)
    if isinstance(database, str) and names_server(database):
        _check_driver("psycopg")
        from dpsql.engines.postgresql.engine import PostgreSQLEngine

        return PostgreSQLEngine.open(database, schema)
    from dpsql.engines.duckdb.engine import DuckDBEngine

    return DuckDBEngine.open(database, schema)


def describe_server(database: str) -> tuple[str, dict[str, Described]]:
    """The database's own name, and what its tables are."""
    if is_spark(database):
        _check_driver("pyspark")
        from dpsql.engines.spark.engine import describe as describe_spark

        return describe_spark(database)
    _check_driver("psycopg")
    from dpsql.engines.postgresql.engine import describe

    return describe(database)


def _check_driver(package: str) -> None:
    if find_spec(package) is None:
        name, extra = DRIVERS[package]
        raise InterfaceError(
            f"the driver of {name} is not installed", hint=f"pip install '.[{extra}]' in a clone of dpsql"
        )

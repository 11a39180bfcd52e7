"""What a DuckDB database says of its tables: columns, views, constraints. Read with system functions found first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.duckdb.declared_tables import Found
from dpsql.engines.quoting import literal, quoted

if TYPE_CHECKING:
    import duckdb

    from dpsql.schema.model import Schema


@dataclass(frozen=True)
class Place:
    """A schema of a database."""

    database: str
    schema: str

    @property
    def condition(self) -> str:
        """Names of schemas are compared as SQL compares them."""
        return f"database_name = {literal(self.database)} AND lower(schema_name) = {literal(self.schema.lower())}"

    def qualified(self, table: str) -> str:
        return f"{quoted(self.database)}.{quoted(self.schema)}.{quoted(table)}"


def current_place(connection: duckdb.DuckDBPyConnection) -> Place:
    """Where a connection looks for tables. Fetched whole: the caller's own connection must stay usable."""
    here = "SELECT system.main.current_database(), system.main.current_schema()"
    ((database, schema),) = connection.execute(here).fetchall()
    return Place(database, schema)


def places_of(schema: Schema, here: Place) -> dict[str, tuple[Place, str]]:
    """Where each declared table is, and its name there; all in lower case but for the schema in use."""
    places = {table.name.lower(): table.place for table in schema.tables.values()}
    return {
        declared: (here if other is None else Place(here.database, other), name.lower())
        for declared, (other, name) in places.items()
    }


def prepare_definitions(connection: duckdb.DuckDBPyConnection, place: Place) -> None:
    """Asked twice for every question: to plan it takes longer than to answer it."""
    connection.execute(
        f"PREPARE {_definitions(place)} AS "
        f"SELECT table_name, sql, database_oid FROM duckdb_tables() WHERE {place.condition}"
    )


def definitions(connection: duckdb.DuckDBPyConnection, place: Place) -> dict[str, tuple[str, int]]:
    """What each table there was created with, columns and constraints, and in which attached database.

    While that stays the same, so does all that `found_tables` says of a table, which takes ten times as long to ask.
    Of a view it says nothing: its columns depend on tables that may be elsewhere.
    """
    found = connection.execute(f"EXECUTE {_definitions(place)}").fetchall()
    return {name.lower(): (sql, database) for name, sql, database in found}


def _definitions(place: Place) -> str:
    return quoted(f"definitions of {place.database}.{place.schema}")


def found_tables(connection: duckdb.DuckDBPyConnection, place: Place) -> dict[str, Found]:
    """The tables and views there, by their names in lower case, as SQL compares them."""
    views = {
        name
        for (name,) in connection.execute(
            f"SELECT view_name FROM duckdb_views() WHERE {place.condition} AND NOT internal"
        ).fetchall()
    }
    # A table of another engine, attached, is read by that engine's rules, which may fail for a row.
    native = connection.execute(
        f"SELECT 1 FROM duckdb_databases() WHERE database_name = {literal(place.database)} AND type = 'duckdb'"
    ).fetchall()
    columns: dict[str, dict[str, str]] = {}
    computed: dict[str, set[str]] = {}
    required: dict[str, set[str]] = {}
    for table, column, kind, generated, nullable in connection.execute(
        "SELECT table_name, column_name, data_type, is_generated, is_nullable FROM duckdb_columns() "
        f"WHERE {place.condition} AND NOT internal ORDER BY table_oid, column_index"
    ).fetchall():
        columns.setdefault(table, {})[column] = kind
        if generated:
            computed.setdefault(table, set()).add(column)
        if not nullable:
            required.setdefault(table, set()).add(column)
    unique = _unique_columns(connection, place)
    return {
        table.lower(): Found(
            name=table,
            columns=found,
            is_view=table in views or not native,
            computed=frozenset(computed.get(table, ())),
            unique=frozenset(unique.get(table, ())),
            required=frozenset(required.get(table, ())),
        )
        for table, found in columns.items()
    }


def _unique_columns(connection: duckdb.DuckDBPyConnection, place: Place) -> dict[str, set[str]]:
    """For each table the columns that a constraint keeps unique."""
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(
        "SELECT table_name, constraint_column_names[1] FROM duckdb_constraints() "
        "WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND len(constraint_column_names) = 1 "
        f"AND {place.condition}"
    ).fetchall():
        found.setdefault(table, set()).add(column)
    return found

"""The catalogue of a DuckDB database: columns, views, constraints. System functions take precedence when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.render import literal, quoted
from dpsql.engines.tables import FoundTable
from dpsql.errors import SchemaError

if TYPE_CHECKING:
    import duckdb

    from dpsql.schema.model import Schema


@dataclass(frozen=True)
class DatabaseSchema:
    """A schema of a database."""

    database: str
    schema: str

    @property
    def condition(self) -> str:
        """Names of schemas are compared as SQL compares them."""
        return f"database_name = {literal(self.database)} AND lower(schema_name) = {literal(self.schema.lower())}"

    def qualified(self, table: str) -> str:
        return f"{quoted(self.database)}.{quoted(self.schema)}.{quoted(table)}"


def current_place(connection: duckdb.DuckDBPyConnection) -> DatabaseSchema:
    """Where a connection looks for tables. Fetched whole: the caller's own connection must stay usable."""
    here = "SELECT system.main.current_database(), system.main.current_schema()"
    ((database, schema),) = connection.execute(here).fetchall()
    return DatabaseSchema(database, schema)


def places_of(schema: Schema, here: DatabaseSchema) -> dict[str, tuple[DatabaseSchema, str]]:
    """Where each declared table is, and its name there; all in lower case but for the schema in use."""
    places = {table.name.lower(): table.place for table in schema.tables.values()}
    return {
        declared: (here if other is None else DatabaseSchema(here.database, other), name.lower())
        for declared, (other, name) in places.items()
    }


def prepare_definitions(connection: duckdb.DuckDBPyConnection, place: DatabaseSchema) -> None:
    """Prepared because it runs twice per query, and planning takes longer than running."""
    connection.execute(
        f"PREPARE {_definitions(place)} AS "
        f"SELECT table_name, sql, database_oid FROM duckdb_tables() WHERE {place.condition}"
    )


def definitions(connection: duckdb.DuckDBPyConnection, place: DatabaseSchema) -> dict[str, tuple[str, int]]:
    """What each table there was created with, columns and constraints, and in which attached database.

    While that stays the same, so does all that `found_tables` says of a table, which takes ten times as long to ask.
    Of a view it says nothing: its columns depend on tables that may be elsewhere.
    """
    found = connection.execute(f"EXECUTE {_definitions(place)}").fetchall()
    return {name.lower(): (sql, database) for name, sql, database in found}


def _definitions(place: DatabaseSchema) -> str:
    return quoted(f"definitions of {place.database}.{place.schema}")


def found_tables(connection: duckdb.DuckDBPyConnection, place: DatabaseSchema) -> dict[str, FoundTable]:
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
        table.lower(): FoundTable(
            name=table,
            columns=found,
            is_view=table in views or not native,
            computed=frozenset(computed.get(table, ())),
            # What counts as a guarantee: constraints of DuckDB's own tables, which it enforces on every row.
            unique=frozenset(unique.get(table, ()) if native else ()),
            required=frozenset(required.get(table, ()) if native else ()),
        )
        for table, found in columns.items()
    }


def _unique_columns(connection: duckdb.DuckDBPyConnection, place: DatabaseSchema) -> dict[str, set[str]]:
    """For each table the columns that a constraint keeps unique."""
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(
        "SELECT table_name, constraint_column_names[1] FROM duckdb_constraints() "
        "WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND len(constraint_column_names) = 1 "
        f"AND {place.condition}"
    ).fetchall():
        found.setdefault(table, set()).add(column)
    return found


# -- lock --------------------------------------------------------------------------------------------------------------
# Settings that decide what SQL means, fixed on the connection that runs ours; a database of our own is locked too.

# What our SQL was certified with: a value to set, and other spellings of it that the engine may report.
MEANING: dict[str, tuple[str, ...]] = {
    "ieee_floating_point_ops": ("true",),
    "integer_division": ("false",),
    "default_collation": ("", "binary", "c", "posix"),
    "default_null_order": ("nulls_last",),
    "default_order": ("asc", "ascending"),
    "error_on_division_by_zero": ("false",),
    "scalar_subquery_error_on_multiple_rows": ("false",),
    "order_by_non_integer_literal": ("false",),
    "legacy_disable_null_type": ("false",),
    "disable_timestamptz_casts": ("false",),
    "preserve_identifier_case": ("preserve_case",),
    "regex_match_operator_semantics": ("partial",),
    "dialect_compatibility_mode": ("none",),
    "max_execution_time": ("0",),
    "max_expression_depth": ("1000",),
}


def fix_meaning(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on the connection finds system functions before all others, and has the settings of `MEANING`.

    Tables are found by their full names, or among the temporary ones, which are this connection's own. So no macro and
    no setting of whoever shares the database changes what a query means, now or later.
    """
    connection.execute("SET search_path = 'system.main'")
    # To ask for the value of every setting takes longer than all the rest of this.
    if is_set(connection, "lock_configuration"):
        _check_meaning(connection)
        return
    # Also those that are right: whoever shares the database may change them for all who have none of their own.
    for name, (value, *_) in MEANING.items():
        connection.execute(f"SET SESSION {name} = '{value}'")


def _check_meaning(connection: duckdb.DuckDBPyConnection) -> None:
    found = dict(connection.execute("SELECT name, lower(value) FROM duckdb_settings()").fetchall())
    differing = [name for name, accepted in MEANING.items() if found[name] not in accepted]
    if differing:
        wanted = "; ".join(f"SET {name} = '{MEANING[name][0]}'" for name in differing)
        raise SchemaError(
            f"the database is locked with settings that dpsql cannot use: {', '.join(differing)}",
            hint=f"set these before locking it: {wanted}",
        )


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    # Asked first: in Jupyter without ipywidgets there is no progress bar, and an error for whoever switches it off.
    if is_set(connection, "enable_progress_bar"):
        connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")


def is_set(connection: duckdb.DuckDBPyConnection, environment: str) -> bool:
    # Fetched whole: an unfinished result would block the connection.
    return connection.execute("SELECT current_setting(?)", [environment]).fetchall() == [(True,)]

"""Settings that decide what SQL means, fixed on the connection that runs ours; a database of our own is locked too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import SchemaError

if TYPE_CHECKING:
    import duckdb

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
            f"the database is locked, with other settings than ours: {', '.join(differing)}",
            hint=f"before it is locked: {wanted}",
        )


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    # Asked first: in Jupyter without ipywidgets there is no progress bar, and an error for whoever switches it off.
    if is_set(connection, "enable_progress_bar"):
        connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")


def is_set(connection: duckdb.DuckDBPyConnection, environment: str) -> bool:
    # Fetched whole: an unfinished result would block the connection.
    return connection.execute("SELECT current_setting(?)", [environment]).fetchall() == [(True,)]

"""Names, types and constraints of what lies in a file: what a schema can be begun from. No value is looked at.

A CSV file has no types: they are guessed from its first rows, so there they do depend on the data. Whoever owns the
data looks at them, and declares what everybody may know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from dpsql.engines.duckdb_engine import READERS, open_file, quoted
from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from pathlib import Path

# With its types guessed, and read otherwise as a session reads it, so that the names are the same.
TYPED = {suffix: reader.replace("all_varchar = true, ", "") for suffix, reader in READERS.items()}


@dataclass
class Described:
    """One table: the engine's type of each column, columns without duplicates, and columns that refer to others."""

    columns: dict[str, str]
    unique: set[str] = field(default_factory=set)
    references: dict[str, tuple[str, str]] = field(default_factory=dict)


def describe(path: Path) -> dict[str, Described]:
    """The tables of a DuckDB file by name; a Parquet or CSV file is one table, named like the file."""
    reader = TYPED.get(path.suffix.lower())
    if reader is None:
        return _describe_database(path)
    return {path.stem.replace(".", "_"): Described(_file_columns(path, reader))}


def _file_columns(path: Path, reader: str) -> dict[str, str]:
    if not path.exists():
        raise OperationalError(f"there is no file {path}", hint="check the path")
    try:
        with duckdb.connect(":memory:") as connection:
            rows = connection.execute(f"DESCRIBE SELECT * FROM {reader.format(quoted(str(path), chr(39)))}").fetchall()
        return {name: kind for name, kind, *_ in rows}
    except duckdb.Error:
        problem = OperationalError(
            f"{path} cannot be read", hint=f"it should be a {path.suffix} file with named columns"
        )
    raise problem


def _describe_database(path: Path) -> dict[str, Described]:
    with open_file(path) as connection:
        here = "database_name = current_database() AND schema_name = current_schema()"
        columns = connection.execute(
            f"SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE {here} AND NOT internal "
            "ORDER BY table_oid, column_index"
        ).fetchall()
        constraints = connection.execute(
            "SELECT table_name, constraint_column_names[1], referenced_table, referenced_column_names[1] "
            f"FROM duckdb_constraints() WHERE {here} AND len(constraint_column_names) = 1 "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')"
        ).fetchall()
    found: dict[str, Described] = {}
    for table, column, kind in columns:
        found.setdefault(table, Described({})).columns[column] = kind
    for table, column, to_table, to_column in constraints:
        if to_table:
            found[table].references[column] = (to_table, to_column)
        else:
            found[table].unique.add(column)
    return found

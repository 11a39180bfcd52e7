"""Names, types and constraints of a data source, to draft a schema from. No value is shown.

A CSV file states neither its types nor its format, so both are guessed from its rows, here and nowhere else.
The data owner reviews the guesses and declares what is public.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import duckdb

from dpsql.engines.duckdb.catalog import current_place, found_tables
from dpsql.engines.duckdb.engine import open_file
from dpsql.engines.duckdb.sources import (
    PARQUET,
    check_alike,
    exactly,
    files_of,
    in_utf8,
    kind_of,
    marks,
    names_files,
    opened,
    parquet_columns,
    table_name,
)
from dpsql.engines.render import literal
from dpsql.engines.tables import Described
from dpsql.errors import OperationalError
from dpsql.schema.model import Csv

if TYPE_CHECKING:
    from pathlib import Path


def describe(path: Path) -> dict[str, Described]:
    """The tables of a DuckDB file by name; Parquet and CSV files are one table, named like the file or folder."""
    if not names_files(path):
        return _describe_database(path)
    files, name = files_of(path), table_name(path).replace(".", "_")
    if kind_of(files[0]) not in PARQUET:
        found = [_describe_text(file) for file in files]
        check_alike(files, [{column.lower() for column in each.columns} for each in found])
        return {name: found[0]}
    with duckdb.connect(":memory:") as connection:
        return {name: Described(dict(parquet_columns(connection, name, files).columns))}


def _describe_text(path: Path) -> Described:
    if path.stat().st_size == 0:
        raise OperationalError(f"{path} is empty", hint="the first line must name the columns")
    try:
        options = Csv.model_validate({"encoding": _encoding(path)})
        with in_utf8(path, options) as readable, duckdb.connect(":memory:") as connection:
            options = _sniffed(connection, path, readable, options)
            delimiter, quote, escape = marks(path, options)
            rows = connection.execute(
                f"DESCRIBE SELECT * FROM read_csv({exactly(readable)}, delim = {literal(delimiter)}, "
                f"quote = {literal(quote)}, escape = {literal(escape)}, header = {str(options.header is True).lower()})"
            ).fetchall()
        return Described({name: kind for name, kind, *_ in rows}, csv=options)
    except (duckdb.Error, OSError):
        problem = OperationalError(f"{path} cannot be read", hint="it must be a CSV file with named columns")
    raise problem


def _encoding(path: Path) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path) as file:
        try:
            while block := file.read(2**20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "windows-1252"
    return "utf-8"


def _sniffed(connection: duckdb.DuckDBPyConnection, path: Path, readable: Path, options: Csv) -> Csv:
    """The options in which the file differs from the default format."""
    row = connection.execute(
        "SELECT Delimiter, Quote, Escape, HasHeader, list_transform(Columns, lambda c: c.name) "
        f"FROM sniff_csv({exactly(readable)})"
    ).fetchone()
    assert row is not None
    delimiter, quote, escape, has_header, names = row
    found: dict[str, object] = {"encoding": options.encoding} if options.encoding != "utf-8" else {}
    if delimiter != marks(path, Csv())[0]:
        found["delimiter"] = delimiter
    if quote not in ('"', "(empty)", "\0"):
        found["quote"] = quote
    if escape not in (quote, '"', "(empty)", "\0"):
        found["escape"] = escape
    if not has_header:
        found["header"] = names
    return Csv.model_validate(found)


def _describe_database(path: Path) -> dict[str, Described]:
    with open_file(path) as connection:
        place = current_place(connection)
        tables = found_tables(connection, place)
        constraints = connection.execute(
            "SELECT table_name, constraint_column_names[1], referenced_table, referenced_column_names[1] "
            f"FROM duckdb_constraints() WHERE {place.condition} AND len(constraint_column_names) = 1 "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')"
        ).fetchall()
    found = {
        table.name: Described(dict(table.columns), is_view=table.is_view or bool(table.computed))
        for table in tables.values()
    }
    for table, column, to_table, to_column in constraints:
        if to_table:
            found[table].references[column] = (to_table, to_column)
        else:
            found[table].unique.add(column)
    return found

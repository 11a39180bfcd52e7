"""The catalogue of a DuckDB database: columns, views, constraints. System functions take precedence when it is read."""

from __future__ import annotations

import codecs
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from dpsql.engines.duckdb.sources import (
    MAY_READ,
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
    stoppable,
    table_name,
)
from dpsql.engines.render import literal, quoted
from dpsql.engines.tables import DATE_FORMATS, TIMESTAMP_FORMATS, Described, FoundTable, written_as
from dpsql.errors import OperationalError, SchemaError
from dpsql.schema.model import Csv
from dpsql.schema.types import Date, Double, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dpsql.schema.model import Schema
    from dpsql.schema.types import ColumnType


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


# -- files -------------------------------------------------------------------------------------------------------------
# Databases in a file are opened to be read, with the settings above, and locked.

LOCKING = threading.Lock()
"""Threads that open one file share its settings: what one has locked another cannot lock again."""
# Given when a database is opened, they hold for every connection to it.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    **{name: accepted[0] for name, accepted in MEANING.items()},
    "python_enable_replacements": False,
    "pandas_analyze_sample": 0,  # a column of objects is text, whatever a sample of it holds
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}

SHEET = ("a spreadsheet", "save the sheet as a CSV file")
SCHEMA = ("apparently a schema", "the data comes first: connect(DATA, schema=SCHEMA), --db DATA --schema SCHEMA")
TREE = ("a JSON file", "turn it into a table: COPY (FROM 'data.json') TO 'data.parquet' in DuckDB")
FOREIGN = ("a file from another program", "export it from there as CSV or Parquet")
OTHER_FILES = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), SHEET),
    **dict.fromkeys((".yaml", ".yml"), SCHEMA),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), TREE),
    **dict.fromkeys((".sqlite", ".sqlite3", ".sav", ".dta", ".rds", ".rdata", ".feather", ".pkl"), FOREIGN),
}
"""What people have at hand and DuckDB does not open, by the end of its name: what it is, and the way out."""


def open_file(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        exists = path.exists()
    except PermissionError:
        exists = None
    if exists is None or (exists and not os.access(path, os.R_OK)):
        raise OperationalError(f"{path} may not be read", hint=MAY_READ)
    if not exists:
        raise OperationalError(f"there is no database {path}", hint="check the path; dpsql never creates data")
    if path.suffix.lower() in OTHER_FILES:
        kind, hint = OTHER_FILES[path.suffix.lower()]
        raise OperationalError(f"{path} is {kind}, but the data must be a DuckDB, Parquet or CSV file", hint=hint)
    problem = None
    try:
        connection = duckdb.connect(str(path), read_only=True, config=SETTINGS | {"enable_external_access": False})
        # Another session of this process may have opened and locked it already, with the same settings.
        with LOCKING:
            if not is_set(connection, "lock_configuration"):
                lock(connection)
        return connection
    except duckdb.ConnectionException:
        problem = OperationalError(
            f"{path} is already open in this process with different settings",
            hint="close that connection, or pass it to dpsql.connect instead of the path",
        )
    except duckdb.Error:
        problem = OperationalError(
            f"{path} cannot be opened as a DuckDB database",
            hint="it may be damaged, a different kind of file, or locked by a process that writes to it",
        )
    raise problem


# -- describe ----------------------------------------------------------------------------------------------------------
# Names, types and constraints of a data source: what a schema can be begun from. No value is shown.
#
# A CSV file states neither its types nor its format, so both are guessed from its rows, here and nowhere else. The data
# owner reviews the guesses and declares what is public.


FIRST_ROWS, SAMPLED = 100, 20_480
"""Rows that formats are tried on: all formats on the first few, those that fit on as many as the sniffer reads."""
TWO_NUMBERS = "'[0-9][^0-9]+[0-9]'"
NUMBERS = ("BIGINT", "DOUBLE", "HUGEINT")


@stoppable()
def describe(path: Path) -> dict[str, Described]:
    """The tables of a DuckDB file by name; Parquet and CSV files are one table, named like the file or folder."""
    if not names_files(path):
        return _describe_database(path)
    files, name = files_of(path), table_name(path).replace(".", "_")
    if kind_of(files[0]) not in PARQUET:
        found = [_describe_text(file) for file in files]
        check_alike(files, [{column.lower() for column in each.columns} for each in found])
        return {name: _readable_in_all(found)}
    with duckdb.connect(":memory:") as connection:
        return {name: Described(dict(parquet_columns(connection, name, files).columns))}


def _describe_text(path: Path) -> Described:
    if path.stat().st_size == 0:
        raise OperationalError(f"{path} is empty", hint="the first line must name the columns")
    try:
        options = Csv.model_validate({"encoding": _encoding(path)})
        with in_utf8(path, options) as readable, duckdb.connect(":memory:") as connection:
            options = _sniffed(connection, path, readable, options)
            return _with_formats(connection, _sample_of(path, readable, options), options)
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


# How dates and numbers are written: the sniffer proposes, and what is proposed must read every cell of its sample.


@dataclass(frozen=True)
class Sample:
    """The first rows of a text file, as a source of DuckDB's."""

    file: str
    marks: str

    def rows(self, extra: str) -> str:
        return f"read_csv({self.file}, {self.marks}, {extra})"

    def kinds(self, connection: duckdb.DuckDBPyConnection, decimal: str) -> dict[str, str]:
        described = f"DESCRIBE SELECT * FROM {self.rows(f'decimal_separator = {literal(decimal)}')}"
        return {name: kind for name, kind, *_ in connection.execute(described).fetchall()}

    def readable(
        self, connection: duckdb.DuckDBPyConnection, ways: Sequence[tuple[str, ColumnType, Csv]], most_rows: int
    ) -> list[bool]:
        """Whether all cells of a column are values of the type in that format, for each of these ways to read one."""
        values = [(quoted(name), written_as(quoted(name), kind, csv)) for name, kind, csv in ways]
        return self.same_count(connection, values, most_rows)

    def several_numbers(self, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> list[str]:
        """The columns whose first cells all have digits in two places, as moments have in every format."""
        numbers = [(quoted(name), f"nullif(regexp_matches({quoted(name)}, {TWO_NUMBERS}), false)") for name in columns]
        fits = self.same_count(connection, numbers, FIRST_ROWS)
        return [name for name, is_fit in zip(columns, fits, strict=True) if is_fit]

    def same_count(
        self, connection: duckdb.DuckDBPyConnection, pairs: Sequence[tuple[str, str]], most_rows: int
    ) -> list[bool]:
        """Of each pair of expressions, whether the second has a value in every row where the first has one."""
        if not pairs:
            return []
        counts = ", ".join(f"count({written}), count({read})" for written, read in pairs)
        sample = f"SELECT * FROM {self.rows('all_varchar = true')} LIMIT {most_rows}"
        (found,) = connection.execute(f"SELECT {counts} FROM ({sample})").fetchall()
        return [0 < written == read for written, read in zip(found[::2], found[1::2], strict=True)]


def _sample_of(path: Path, readable: Path, options: Csv) -> Sample:
    delimiter, quote, escape = marks(path, options)
    return Sample(
        exactly(readable),
        f"delim = {literal(delimiter)}, quote = {literal(quote)}, escape = {literal(escape)}, "
        f"header = {str(options.header is True).lower()}",
    )


def _with_formats(connection: duckdb.DuckDBPyConnection, sample: Sample, options: Csv) -> Described:
    """The columns, each of a type that its cells can be read as, and the formats by which they are."""
    with_point, with_comma = (sample.kinds(connection, decimal) for decimal in (".", ","))
    numbers = [sum(kind in NUMBERS for kind in kinds.values()) for kinds in (with_point, with_comma)]
    kinds = with_comma if numbers[1] > numbers[0] else with_point
    said: dict[str, object] = {} if kinds is with_point else {"decimal": ","}
    described = Described(dict(kinds), csv=options.model_copy(update=said))
    for key, declared, kind, formats in (
        ("date_format", Date(), "DATE", DATE_FORMATS),
        ("timestamp_format", Timestamp(), "TIMESTAMP", TIMESTAMP_FORMATS),
    ):
        candidates = [name for name, sniffed in kinds.items() if sniffed.startswith((kind, "VARCHAR"))]
        fitting = _fitting(connection, sample, candidates, declared, key, formats)
        chosen = max(fitting, key=lambda pattern: len(fitting[pattern]), default=None)
        read = fitting.get(chosen, [])
        described.columns |= dict.fromkeys(candidates, "VARCHAR") | dict.fromkeys(read, kind)
        described.csv = described.csv.model_copy(update={} if chosen is None else {key: chosen})
        others = [str(pattern) for pattern, names in fitting.items() if pattern != chosen and set(read) & set(names)]
        described.ambiguous |= {key: others} if others else {}
        kinds = described.columns
    unread = [(name, Double(), described.csv) for name, kind in kinds.items() if said and kind == "DOUBLE"]
    for (name, _, _), fits in zip(unread, sample.readable(connection, unread, SAMPLED), strict=True):
        described.columns[name] = "DOUBLE" if fits else "VARCHAR"
    return described


def _fitting(
    connection: duckdb.DuckDBPyConnection,
    sample: Sample,
    columns: Sequence[str],
    declared: ColumnType,
    key: str,
    formats: Sequence[str | None],
) -> dict[str | None, list[str]]:
    """The formats, most usual first, each with the columns that it reads; None is the usual way to write dates."""
    likely = sample.several_numbers(connection, columns)
    ways = [(name, declared, Csv.model_validate({key: pattern})) for name in likely for pattern in formats]
    for most_rows in (FIRST_ROWS, SAMPLED):
        fits = sample.readable(connection, ways, most_rows)
        ways = [way for way, is_fit in zip(ways, fits, strict=True) if is_fit]
    found: dict[str | None, list[str]] = {pattern: [] for pattern in formats}
    for name, _, csv in ways:
        found[getattr(csv, key)].append(name)
    return {pattern: names for pattern, names in found.items() if names}


def _readable_in_all(found: Sequence[Described]) -> Described:
    """The first of several files' descriptions, with moments that another file writes differently as texts."""
    first = found[0]
    for key, kind in (("date_format", "DATE"), ("timestamp_format", "TIMESTAMP")):
        for name in [name for name, own in first.columns.items() if own == kind]:
            same = [getattr(each.csv, key) == getattr(first.csv, key) for each in found]
            kinds = {each.columns.get(name, kind) for each in found}
            if not all(same) or kinds != {kind}:
                first.columns[name] = "VARCHAR"
    return first


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

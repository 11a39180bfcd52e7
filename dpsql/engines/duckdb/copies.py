"""Files and frames are copied into a temporary table when they are opened: one reading, one table for all questions.

Streams can be read once only; files and frames change; of a text that is not UTF-8 an engine complains when it is read,
and not when it is left alone. None of that is left to the questions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import duckdb

from dpsql.engines.duckdb import csv_files
from dpsql.engines.duckdb.declared_tables import Found, check_table, declared_columns
from dpsql.engines.duckdb.files import (
    PARQUET,
    check_alike,
    files_of,
    kind_of,
    names_files,
    parquet_columns,
    parquet_rows,
)
from dpsql.engines.quoting import quoted
from dpsql.errors import InterfaceError, OperationalError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from dpsql.schema.table import Table

FRAME = "dpsql.frame"
"""A declared name has no dots."""


def copy_table(connection: duckdb.DuckDBPyConnection, table: Table, source: object) -> None:
    """Makes the temporary table that a source stands for: its declared columns, as their declared types."""
    if not names_files(source) and not isinstance(source, str):
        _copy_frame(connection, table, source)
        return
    paths = files_of(cast("Any", source))
    if kind_of(paths[0]) in PARQUET:
        found = parquet_columns(connection, table.name, paths)
        if not _copy(connection, table, found, parquet_rows(paths)):
            raise OperationalError(
                f"{source} cannot be read to its end", hint="it is damaged, or has texts that are not UTF-8"
            )
    else:
        _copy_csv(connection, table, paths)


def _copy_csv(connection: duckdb.DuckDBPyConnection, table: Table, paths: list[Path]) -> None:
    names = [csv_files.column_names(path, table.csv) for path in paths]
    check_alike(paths, [{name.lower() for name in found} for found in names])
    found = Found(name=table.name, columns=dict.fromkeys(names[0], "VARCHAR"), is_text=True, names_are_public=False)
    check_table(table, found)
    columns = declared_columns(table, found, copied=True)
    csv_files.load(connection, table.name, list(zip(paths, names, strict=True)), columns, table.csv)


def _copy_frame(connection: duckdb.DuckDBPyConnection, table: Table, frame: Any) -> None:
    problem = InterfaceError(
        f'"{table.name}" cannot be read: {type(frame).__name__}',
        hint="give a pandas, polars or Arrow table, a relation of DuckDB, or a path",
    )
    try:
        connection.register(FRAME, with_plain_text(_rows_of_relation(frame)))
        described = connection.execute(f"DESCRIBE {quoted(FRAME)}").fetchall()
    except (duckdb.Error, TypeError, ValueError, RuntimeError):
        described = None
    if described is None:
        raise problem
    copied = _copy(
        connection,
        table,
        Found(name=table.name, columns={name: kind for name, kind, *_ in described}, is_text=True),
        quoted(FRAME),
    )
    connection.unregister(FRAME)
    if not copied:
        raise problem


def _rows_of_relation(frame: Any) -> Any:
    """A relation belongs to a connection of its own, so its rows are handed on; anything else as it is."""
    if not isinstance(frame, duckdb.DuckDBPyRelation):
        return frame
    try:
        return frame.to_arrow_table()
    except ImportError:
        problem = InterfaceError("a relation of DuckDB is read by Arrow", hint="pip install pyarrow")
    raise problem


def _copy(connection: duckdb.DuckDBPyConnection, table: Table, found: Found, rows: str) -> bool:
    """Whether it was read to its end."""
    check_table(table, found)
    columns = declared_columns(table, found, copied=True)
    try:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(table.name)} AS SELECT {columns} FROM {rows}")
    except duckdb.Error:
        return False
    return True


# Columns of Python objects as text, one cell at a time: no cell decides how another is read, and none can fail.


def with_plain_text(frame: Any) -> Any:
    """A pandas frame whose columns of objects are text; anything else as it is."""
    if type(frame).__module__.partition(".")[0] != "pandas" or not hasattr(frame, "dtypes"):
        return frame
    import pandas as pd

    arrow = any(isinstance(kind, pd.ArrowDtype) for kind in frame.dtypes)
    columns = {
        place: _texts(frame.iloc[:, place], arrow) if _holds_objects(kind) else frame.iloc[:, place]
        for place, kind in enumerate(frame.dtypes)
        if isinstance(frame.columns[place], str)
    }
    plain = pd.DataFrame(columns, copy=False)
    plain.columns = pd.Index([frame.columns[place] for place in columns])
    return plain


def _holds_objects(kind: Any) -> bool:
    """Also the strings of pandas that are kept as Python's, and categories, whose names are objects."""
    import pandas as pd

    if isinstance(kind, pd.CategoricalDtype):
        return _holds_objects(kind.categories.dtype) or isinstance(kind.categories.dtype, pd.StringDtype)
    return (kind.kind == "O" and not isinstance(kind, pd.StringDtype | pd.ArrowDtype)) or (
        isinstance(kind, pd.StringDtype) and kind.storage == "python"
    )


def _texts(column: pd.Series[Any], arrow: bool) -> Any:
    import pandas as pd

    texts = [_text(value) for value in column.astype(object).array]
    if arrow:
        # Beside an Arrow column the engine would look at the cells for a type, and find none where all are NULL.
        return pd.array(texts, dtype="string[pyarrow]")
    return pd.Series(texts, dtype=object, index=column.index)


def _text(value: object) -> str | None:
    """NULL for what is missing, and for what is no text that could be stored: lone surrogates, objects that fail."""
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        text = str(value)
        text.encode()
    except Exception:
        return None
    return text

"""Parquet and text files: which files a source names, and their rows as a SELECT.

A source is one file, a folder, a pattern such as `orders/*.csv`, or a list of files. All its files are of one kind and
have the same columns, in any order. Names of folders are no columns (`year=2024/` adds none).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from dpsql.engines.duckdb.declared_tables import Found
from dpsql.engines.quoting import literal
from dpsql.errors import OperationalError

PARQUET, TEXT = (".parquet",), (".csv", ".tsv", ".csv.gz", ".tsv.gz")
KINDS = (*PARQUET, *TEXT)


def names_files(source: object) -> bool:
    """Whether it stands for Parquet or text files, and not for a DuckDB database."""
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(path, str | os.PathLike) for path in source)
    if not isinstance(source, str | os.PathLike):
        return False
    return kind_of(Path(source)) is not None or glob.has_magic(str(source)) or Path(source).is_dir()


def is_text(source: str | os.PathLike[str]) -> bool:
    return names_files(source) and kind_of(files_of(source)[0]) in TEXT


def kind_of(path: Path) -> str | None:
    """
    >>> kind_of(Path("Orders.CSV.gz")), kind_of(Path("shop.duckdb"))
    ('.csv.gz', None)
    """
    return next((kind for kind in KINDS if path.name.lower().endswith(kind)), None)


def table_name(path: Path) -> str:
    """
    >>> table_name(Path("data/orders.csv.gz")), table_name(Path("data/orders"))
    ('orders', 'orders')
    """
    return path.name[: -len(kind_of(path) or "") or None]


def files_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files in the order of their names; all of one kind."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        found = [path for part in source for path in files_of(part)]
    elif glob.has_magic(str(source)) and not Path(source).exists():
        found = [Path(path) for path in sorted(glob.glob(str(source), recursive=True))]  # noqa: PTH207 - any root
    elif Path(source).is_dir():
        found = _files_in(Path(source))
    else:
        found = [Path(source)]
    if not found:
        raise OperationalError(f"there are no Parquet or CSV files in {source}", hint="check the path")
    for path in found:
        if not path.is_file():
            raise OperationalError(f"there is no file {path}", hint="check the path")
        if kind_of(path) is None:
            raise OperationalError(
                f"{path} is no Parquet or CSV file", hint=f"give files that end in {', '.join(KINDS)}"
            )
    if len({kind_of(path) in PARQUET for path in found}) > 1:
        raise OperationalError(f"{source} has Parquet and CSV files", hint="give files of one kind, such as *.parquet")
    return [path.resolve() for path in found]


def _files_in(folder: Path) -> list[Path]:
    """Names that begin with a dot or an underscore are notes that tools leave beside the data."""
    found = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    if any(path.is_dir() for path in found):
        raise OperationalError(
            f"{folder} has folders in it", hint=f"say which files are meant: {folder}/**/*.parquet, or */*.csv"
        )
    return found


def parquet_columns(connection: duckdb.DuckDBPyConnection, name: str, paths: list[Path]) -> Found:
    columns = [_parquet_columns(connection, path) for path in paths]
    check_alike(paths, [{name.lower(): kind for name, kind in found.items()} for found in columns])
    return Found(name=name, columns=columns[0], is_text=True)


def _parquet_columns(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    try:
        rows = connection.execute(f"DESCRIBE SELECT * FROM {parquet_rows([path])}").fetchall()
        return {name: kind for name, kind, *_ in rows}
    except duckdb.Error:
        problem = OperationalError(f"{path} cannot be read", hint="it should be a .parquet file with named columns")
    raise problem


def exactly(path: Path) -> str:
    """The path as a literal. The engine takes it for a pattern, in which `orders[1].csv` would be orders1.csv."""
    return literal(glob.escape(str(path)))


def parquet_rows(paths: list[Path]) -> str:
    listed = ", ".join(map(exactly, paths))
    return f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"


def check_alike(paths: list[Path], columns: Sequence[object]) -> None:
    for path, found in zip(paths, columns, strict=True):
        if found != columns[0]:
            raise OperationalError(
                f"{path.name} has other columns than {paths[0].name}",
                hint="files of one table have the same columns; connect several tables as a dict of table -> file, or "
                f"make them tables of one DuckDB file: CREATE TABLE {path.stem} AS FROM '{path.name}'",
            )

"""Text files, read once and whole, by the options that the schema fixes: nothing is guessed from the rows.

Each line is a row of its own, so one person's bytes decide about that person's row only. A file with a line that cannot
be read so is refused when it is opened, with counts and without a word of the line itself. Where quoted fields may hold
line breaks (`line_breaks: true`) the quotes tell rows apart, and whoever writes the file must write them well.
"""

from __future__ import annotations

import csv
import glob
import gzip
import math
import os
from collections.abc import Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import duckdb

from dpsql.engines.render import literal, quoted
from dpsql.engines.tables import FoundTable, check_table, declared_columns
from dpsql.errors import InterfaceError, OperationalError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    import pandas as pd

    from dpsql.schema.model import Csv, Table

# -- files -------------------------------------------------------------------------------------------------------------
# Parquet and text files: which files a source names, and their rows as a SELECT.
#
# A source is one file, a folder, a pattern such as `orders/*.csv`, or a list of files. All its files are of one kind
# and have the same columns, in any order. Names of folders are no columns (`year=2024/` adds none).

PARQUET, TEXT = (".parquet",), (".csv", ".tsv", ".csv.gz", ".tsv.gz")
KINDS = (*PARQUET, *TEXT)
MAY_READ = "check the permissions of the file and of its folders"


def names_files(source: object) -> bool:
    """Whether the source names Parquet or text files rather than a DuckDB database."""
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
    try:
        return _files_of(source)
    except PermissionError:
        problem = OperationalError(f"{source} may not be read", hint=MAY_READ)
    raise problem


def _files_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
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
        if not os.access(path, os.R_OK):
            raise OperationalError(f"{path} may not be read", hint=MAY_READ)
        if kind_of(path) is None:
            raise OperationalError(
                f"{path} is not a Parquet or CSV file", hint=f"give files that end in {', '.join(KINDS)}"
            )
    if len({kind_of(path) in PARQUET for path in found}) > 1:
        raise OperationalError(f"{source} has Parquet and CSV files", hint="give files of one kind, such as *.parquet")
    return [path.resolve() for path in found]


def written_at(paths: Iterable[Path]) -> datetime | None:
    """When the last of these files was written; None if there are none."""
    times = [path.stat().st_mtime for path in paths if path.exists()]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def _files_in(folder: Path) -> list[Path]:
    """Skips names that begin with a dot or an underscore, which tools leave next to the data."""
    found = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    if any(path.is_dir() for path in found):
        raise OperationalError(f"{folder} contains folders", hint=f"name the files: {folder}/**/*.parquet, or */*.csv")
    return found


def parquet_columns(connection: duckdb.DuckDBPyConnection, name: str, paths: list[Path]) -> FoundTable:
    columns = [_parquet_columns(connection, path) for path in paths]
    check_alike(paths, [{name.lower(): kind for name, kind in found.items()} for found in columns])
    return FoundTable(name=name, columns=columns[0], is_text=True)


def _parquet_columns(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    try:
        rows = connection.execute(f"DESCRIBE SELECT * FROM {parquet_rows([path])}").fetchall()
        return {name: kind for name, kind, *_ in rows}
    except duckdb.Error:
        problem = OperationalError(f"{path} cannot be read", hint="it must be a .parquet file with named columns")
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
                f"{path.name} has different columns than {paths[0].name}",
                hint="all files of a table need the same columns; pass several tables as a dict of table -> file, or "
                f"make them tables of one DuckDB file: CREATE TABLE {path.stem} AS FROM '{path.name}'",
            )


# -- csv files ---------------------------------------------------------------------------------------------------------

CODECS = {"utf-8": "utf-8-sig", "latin-1": "latin-1", "windows-1252": "cp1252"}
LONGEST_LINE = 2**21
MOST_REPORTED = 100_000
BLANK = (b"\n", b"\r\n")
BROKEN, REJECTS, SCANS = "broken.line", "_dpsql_rejects", "_dpsql_scans"
"""Names of our own, as far as the engine lets us choose with a dot, which no declared name has."""
# Windows-1252 is Latin-1 but for these; the five bytes that it leaves open stay control characters, as in browsers.
WINDOWS = {byte: char for byte in range(0x80, 0xA0) if (char := bytes([byte]).decode("cp1252", "ignore"))}
PROBLEMS = {
    "MISSING COLUMNS": "have fewer fields than columns",
    "TOO MANY COLUMNS": "have more fields than columns",
    "UNQUOTED VALUE": "have a closing quote before the end of the field",
    "INVALID ENCODING": "are not valid {encoding}",
    "LINE SIZE OVER MAXIMUM": f"are longer than {LONGEST_LINE} bytes",
}


def column_names(path: Path, options: Csv) -> list[str]:
    """The names of all columns, in the order of the fields."""
    if options.header is not True:
        return list(options.header)
    if path.stat().st_size == 0:
        raise OperationalError(f"{path} is empty", hint="the first line must name the columns")
    names: list[str] = []
    try:
        with closing(_records(path, options)) as records:
            names = next(records, [])
    except (OSError, csv.Error):
        names = []
    if not names or any(not name or "\ufffd" in name for name in names) or len({n.lower() for n in names}) < len(names):
        raise OperationalError(
            f"the first line of {path} does not name the columns",
            hint="if it is a row, name them in the schema:  csv: {header: [person, age]}; if the fields are split "
            'or decoded wrongly, declare the format:  csv: {delimiter: ";", encoding: latin-1}',
        )
    return names


def load(
    connection: duckdb.DuckDBPyConnection, table: str, files: list[tuple[Path, list[str]]], columns: str, options: Csv
) -> None:
    """Makes the table of all rows of these files, each with the names of its columns.

    Raises OperationalError if a file is not well formed.
    """
    rows = 0
    for number, (path, names) in enumerate(files):
        into = f"CREATE OR REPLACE TEMP TABLE {quoted(table)} AS" if number == 0 else f"INSERT INTO {quoted(table)}"
        # Every field is looked at, whichever columns are declared: what is not read is not checked.
        flags = " OR ".join(f"contains({quoted(name)}, chr({code}))" for name in names for code in (10, 13))
        try:
            with in_utf8(path, options) as readable:
                reading = _reader(path, readable, names, options)
                connection.execute(f"{into} SELECT {columns}, ({flags}) AS {quoted(BROKEN)} FROM {reading}")
            after, broken = _counts(connection, table)
            found = _problems(_rejected(connection), after - rows, broken, _rows_expected(path, options), options)
            rows = after
        except (duckdb.Error, OSError, csv.Error):
            found = ["its line endings are mixed, or its fields cannot be separated"]
        if found:
            raise OperationalError(
                f"{path} is not well formed: {'; '.join(found)}",
                hint="fix the file, or declare its format in the schema:  csv: {delimiter, quote, escape, header, "
                "encoding, line_breaks}",
            )
    connection.execute(f"ALTER TABLE {quoted(table)} DROP COLUMN {quoted(BROKEN)}")


def _counts(connection: duckdb.DuckDBPyConnection, table: str) -> tuple[int, int]:
    """All rows, and those that were more than a line."""
    sql = f"SELECT count(*), count_if({quoted(BROKEN)}) FROM {quoted(table)}"
    ((rows, broken),) = connection.execute(sql).fetchall()
    return rows, broken


def _rejected(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int]]:
    sql = f"SELECT error_type, count(DISTINCT line) FROM {quoted(REJECTS)} GROUP BY 1 ORDER BY 1"
    found = connection.execute(sql).fetchall()
    connection.execute(f"DROP TABLE {quoted(REJECTS)}; DROP TABLE {quoted(SCANS)}")
    return found


def _problems(rejected: list[tuple[str, int]], rows: int, broken: int, expected: int, options: Csv) -> list[str]:
    found = [
        f"{count} of {expected} lines {PROBLEMS.get(kind, 'cannot be read').format(encoding=options.encoding)}"
        for kind, count in rejected
    ]
    if broken and not options.line_breaks:
        found.append(f"{broken} rows have a line break within quotes")
    if not found and rows != expected:
        found.append(f"only {rows} of {expected} lines are rows: a quote is not closed at the end of its field")
    return found


def _rows_expected(path: Path, options: Csv) -> int:
    """The expected number of rows, counted without the engine, which would skip everything after an open quote."""
    if options.line_breaks:
        count = sum(1 for record in _records(path, options) if record)
    else:
        with opened(path) as file:
            count = sum(1 for line in file if line not in BLANK)
    return count - (options.header is True)


def _reader(path: Path, readable: Path, names: list[str], options: Csv) -> str:
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    delimiter, quote, escape = marks(path, options)
    return (
        f"read_csv({exactly(readable)}, auto_detect = false, columns = {{{columns}}}, "
        f"delim = {literal(delimiter)}, quote = {literal(quote)}, escape = {literal(escape)}, "
        f"header = {str(options.header is True).lower()}, "
        f"nullstr = '', encoding = 'utf-8', strict_mode = true, parallel = false, hive_partitioning = false, "
        f"max_line_size = {LONGEST_LINE}, store_rejects = true, rejects_table = {literal(REJECTS)}, "
        f"rejects_scan = {literal(SCANS)}, rejects_limit = {MOST_REPORTED})"
    )


def marks(path: Path, options: Csv) -> tuple[str, str, str]:
    """Delimiter, quote, escape."""
    usual = "\t" if (kind_of(path) or "").startswith(".tsv") else ","
    escape = "" if not options.quote else options.escape or options.quote
    return options.delimiter or usual, options.quote, escape


def _records(path: Path, options: Csv) -> Generator[list[str]]:
    """The records as Python reads them. Undecodable bytes are left for the engine to report."""
    with TextIOWrapper(cast("IO[bytes]", opened(path)), CODECS[options.encoding], errors="replace", newline="") as text:
        yield from _reading(text, *marks(path, options))


def _reading(text: TextIOWrapper, delimiter: str, quote: str, escape: str) -> Iterator[list[str]]:
    if not quote:
        return csv.reader(text, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    own = None if escape == quote else escape
    return csv.reader(text, delimiter=delimiter, quotechar=quote, doublequote=own is None, escapechar=own, strict=True)


def opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb"))


@contextmanager
def in_utf8(path: Path, options: Csv) -> Iterator[Path]:
    """The file itself; if it has another encoding, a temporary copy."""
    if options.encoding == "utf-8":
        yield path
        return
    with TemporaryDirectory(prefix="dpsql_") as folder:
        copy = Path(folder) / "utf8.csv"
        with opened(path) as file, copy.open("wb") as written:
            while block := file.read(2**20):
                written.write(block if block.isascii() else _decoded(block, options).encode())
        yield copy


def _decoded(block: bytes, options: Csv) -> str:
    text = block.decode("latin-1")
    return text.translate(WINDOWS) if options.encoding == "windows-1252" else text


# -- copies ------------------------------------------------------------------------------------------------------------
# Files and frames are copied into a temporary table when they are opened: one reading, one table for all questions.
#
# Streams can be read once only; files and frames change; of a text that is not UTF-8 an engine complains when it is
# read, and not when it is left alone. None of that is left to the questions.

FRAME = "dpsql.frame"
"""A declared name has no dots."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C while DuckDB reads is Ctrl-C, which it tells as an error of its own."""
    try:
        yield
    except RuntimeError as problem:
        if str(problem) != "Query interrupted":
            raise
        stopped = KeyboardInterrupt()
    else:
        return
    raise stopped


@stoppable()
def copy_table(connection: duckdb.DuckDBPyConnection, table: Table, source: object) -> None:
    """Creates the temporary table for a source: its declared columns, in their declared types."""
    if not names_files(source) and not isinstance(source, str):
        _copy_frame(connection, table, source)
        return
    paths = files_of(cast("Any", source))
    if kind_of(paths[0]) in PARQUET:
        found = parquet_columns(connection, table.name, paths)
        if not _copy(connection, table, found, parquet_rows(paths)):
            raise OperationalError(
                f"{source} cannot be read to its end", hint="it is damaged, or contains text that is not UTF-8"
            )
    else:
        _copy_csv(connection, table, paths)


def _copy_csv(connection: duckdb.DuckDBPyConnection, table: Table, paths: list[Path]) -> None:
    names = [column_names(path, table.csv) for path in paths]
    check_alike(paths, [{name.lower() for name in found} for found in names])
    found = FoundTable(
        name=table.name,
        columns=dict.fromkeys(names[0], "VARCHAR"),
        is_text=True,
        csv=table.csv,
        names_are_public=False,
    )
    check_table(table, found)
    columns = declared_columns(table, found, copied=True)
    load(connection, table.name, list(zip(paths, names, strict=True)), columns, table.csv)


def _copy_frame(connection: duckdb.DuckDBPyConnection, table: Table, frame: Any) -> None:
    problem = InterfaceError(
        f'"{table.name}" cannot be read: {type(frame).__name__}',
        hint="pass a pandas, polars or Arrow table, a DuckDB relation, or a path",
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
        FoundTable(name=table.name, columns={name: kind for name, kind, *_ in described}, is_text=True),
        quoted(FRAME),
    )
    connection.unregister(FRAME)
    if not copied:
        raise problem


def _rows_of_relation(frame: Any) -> Any:
    """The rows of a relation, which belongs to another connection; anything else unchanged."""
    if not isinstance(frame, duckdb.DuckDBPyRelation):
        return frame
    try:
        return frame.to_arrow_table()
    except ImportError:
        problem = InterfaceError("DuckDB relations are read through Arrow", hint="pip install pyarrow")
    raise problem


def _copy(connection: duckdb.DuckDBPyConnection, table: Table, found: FoundTable, rows: str) -> bool:
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
    """A pandas frame with its object columns converted to text; anything else unchanged."""
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

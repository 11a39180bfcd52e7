"""Text files, read once and whole, by the options that the schema fixes: nothing is guessed from the rows.

Each line is a row of its own, so one person's bytes decide about that person's row only. A file with a line that cannot
be read so is refused when it is opened, with counts and without a word of the line itself. Where quoted fields may hold
line breaks (`line_breaks: true`) the quotes tell rows apart, and whoever writes the file must write them well.
"""

from __future__ import annotations

import csv
import gzip
from contextlib import closing, contextmanager
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, BinaryIO, cast

import duckdb

from dpsql.engines.duckdb.files import exactly, kind_of
from dpsql.engines.quoting import literal, quoted
from dpsql.errors import OperationalError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from dpsql.schema.table import Csv

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
    "UNQUOTED VALUE": "have a quote that does not end where its field ends",
    "INVALID ENCODING": "are not valid {encoding}",
    "LINE SIZE OVER MAXIMUM": f"are longer than {LONGEST_LINE} bytes",
}


def column_names(path: Path, options: Csv) -> list[str]:
    """The names of all columns, in the order of the fields."""
    if options.header is not True:
        return list(options.header)
    if path.stat().st_size == 0:
        raise OperationalError(f"{path} is empty", hint="its first line should name the columns")
    names: list[str] = []
    try:
        with closing(_records(path, options)) as records:
            names = next(records, [])
    except (OSError, csv.Error):
        names = []
    if not names or any(not name or "\ufffd" in name for name in names) or len({n.lower() for n in names}) < len(names):
        raise OperationalError(
            f"the first line of {path} does not name the columns",
            hint="if it is a row, name them in the schema:  csv: {header: [person, age]}; if its fields are not told "
            'apart or not read as text:  csv: {delimiter: ";", encoding: latin-1}',
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
            found = ["its lines end in different ways, or their fields cannot be told apart"]
        if found:
            raise OperationalError(
                f"{path} is not well formed: {'; '.join(found)}",
                hint="mend the file, or say in the schema how it is written:  csv: {delimiter, quote, escape, header, "
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
        found.append(f"of {expected} lines {rows} are rows: a quote does not end where its field ends")
    return found


def _rows_expected(path: Path, options: Csv) -> int:
    """How many rows there must be, counted apart from the engine: it passes over what follows an open quote."""
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
    """As Python reads them. Bytes that are no text are the engine's to find."""
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
    """The file itself; if it is written otherwise, a copy that is gone again once it is read."""
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

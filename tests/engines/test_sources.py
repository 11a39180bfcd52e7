"""A source is a fixed table: one person's bytes decide about that person's rows only.

What must be checked of a source is checked when it is opened, and told in counts. After that every question finds the
same table, whatever becomes of the file, the frame, or the connection that the caller keeps.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.duckdb.catalog import describe

COLUMNS: dict[str, Any] = {
    "u": "integer",
    "town": {"type": "text", "nullable": True},
    "x": {"type": "double", "bounds": [0, 10]},
}
SCHEMA = {"tables": {"t": {"unit": "u", "columns": COLUMNS}}}
PEOPLE = 400
TOTALS = "SELECT COUNT(*) AS n, COUNT(town) AS towns, SUM(x) AS s FROM t"


def asked(database: object, sql: str = TOTALS, schema: Any = SCHEMA, parameters: Any = None) -> list[tuple[Any, ...]]:
    """The exact answer, as far as noise of a millionth goes."""
    with dpsql.connect(database, schema=schema, budget=1e12, query_epsilon=1e9, ledger=":memory:") as connection:
        return [
            tuple(round(value, 3) if isinstance(value, float) else value for value in row)
            for row in connection.execute(sql, parameters).fetchall()
        ]


def declared(**table: Any) -> dict[str, Any]:
    return {"tables": {"t": {"unit": "u", "columns": COLUMNS, **table}}}


def refused(call: Callable[[], object], kind: type[dpsql.Error] = dpsql.OperationalError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.hint
    return caught.value.problem


def csv_file(folder: Path, *odd: str | bytes, name: str = "t.csv", mark: str = ",", header: bool = True) -> Path:
    """Four hundred people and whatever odd lines, last."""
    lines = [f"{i}{mark}town{i % 7}{mark}{i % 10}" for i in range(PEOPLE)]
    text = "\n".join([mark.join(("u", "town", "x"))] * header + lines) + "\n"
    path = folder / name
    whole = text.encode() + b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in odd)
    path.write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
    return path


WHOLE = [(PEOPLE, PEOPLE, 1800.0)]


# -- text files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, PEOPLE])
def test_a_quoted_field_changes_its_own_row_alone(at: int, tmp_path: Path) -> None:
    path = csv_file(tmp_path)
    lines = path.read_text().splitlines()
    lines.insert(1 + at, '999,"a, ""b""; c\t|",1')
    path.write_text("\n".join(lines) + "\n")
    assert asked(path) == [(PEOPLE + 1, PEOPLE + 1, 1801.0)]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ("999,a,1,9,9", "1 of 401 lines have more fields than columns"),
        ("999,a", "1 of 401 lines have fewer fields than columns"),
        ('999,"a\nb",1', "1 rows have a line break within quotes"),
        (b"999,\xe9,1", "1 of 401 lines are not valid utf-8"),
        ('999,"a"b,1', "1 of 401 lines have a closing quote before the end of the field"),
        ('999,"a,1', "only 400 of 401 lines are rows: a quote is not closed at the end of its field"),
        ("999,a\rb,1", "its line endings are mixed"),
        (f"999,{'a' * 2**22},1", "1 of 401 lines are longer than"),
    ],
    ids=["long", "short", "break", "latin", "stray", "open", "return", "endless"],
)
def test_a_line_that_is_no_row_is_refused_by_opening(odd: str | bytes, said: str, tmp_path: Path) -> None:
    """Counts are told, and nothing of the line; no ledger is begun."""
    path = csv_file(tmp_path, odd)
    told = refused(lambda: dpsql.connect(path, schema=SCHEMA, budget=1))
    assert said in told
    assert "999" not in told
    assert not (tmp_path / "t.csv.ledger").exists()


def test_a_line_that_is_no_row_counts_where_columns_are_not_declared(tmp_path: Path) -> None:
    path = csv_file(tmp_path, b"999,\xff,1")
    refused(lambda: asked(path, "SELECT COUNT(*) FROM t", declared(columns={"u": "integer"})))


def test_quotes_swallow_no_lines_of_others(tmp_path: Path) -> None:
    """Two stray quotes would make one field of all that lies between them."""
    assert "line break within quotes" in refused(lambda: asked(csv_file(tmp_path, '998,"a,1', "7,b,1", '999,c",1')))


@pytest.mark.parametrize(
    ("options", "line", "town"),
    [
        ({"line_breaks": True}, '999,"a\nb",1', "a\nb"),
        ({"encoding": "latin-1"}, b"999,Orl\xe9ans\x85,1", "Orléans\x85"),
        ({"encoding": "windows-1252"}, b"999,\x80 \x9d \xe9,1", "€ \x9d é"),
        ({"quote": "'"}, "999,'a,b''c',1", "a,b'c"),
        ({"quote": "'", "escape": "\\"}, "999,'a\\'b',1", "a'b"),
        ({"quote": ""}, '999,"a,1', '"a'),
        ({"header": ["u", "town", "x"]}, "999,a,1", "a"),
    ],
    ids=str,
)
def test_options_say_how_a_file_is_written(options: Any, line: str | bytes, town: str, tmp_path: Path) -> None:
    path = csv_file(tmp_path, line, header="header" not in options)
    schema = declared(csv=options)
    assert asked(path, schema=schema) == [(PEOPLE + 1, PEOPLE + 1, 1801.0)]
    assert asked(path, "SELECT COUNT(*) FROM t WHERE town = ?", schema, [town]) == [(1,)]


def test_formats_say_how_cells_are_written(tmp_path: Path) -> None:
    """As DuckDB reads them, and NULL for what is written in another way: no digit is moved, no century guessed."""
    moments = [datetime(2024, 1 + i % 12, 1 + i % 28, i % 24, i % 60) for i in range(PEOPLE)]
    lines = [f"{i};{at:%d.%m.%Y};{at:%d.%m.%Y %H:%M};{i},{i % 10}" for i, at in enumerate(moments)]
    (tmp_path / "t.csv").write_text("\n".join(["u;day;ts;x", *lines]) + "\n")
    schema = {
        "csv": {"delimiter": ";", "date_format": "%d.%m.%Y", "timestamp_format": "%d.%m.%Y %H:%M", "decimal": ","},
        "tables": {
            "t": {
                "unit": "u",
                "columns": {
                    "u": "integer",
                    "day": {"type": "date", "nullable": True},
                    "ts": {"type": "timestamp", "nullable": True},
                    "x": {"type": "decimal(9,2)", "bounds": [0, 1000], "nullable": True},
                },
            }
        },
    }
    sql = (
        "SELECT COUNT(day), COUNT(ts), COUNT(x), SUM(x), COUNT(*) FILTER (WHERE MONTH(day) = 3 AND DAY(ts) = 3), "
        "COUNT(*) FILTER (WHERE HOUR(ts) = 7) FROM "
    )
    with duckdb.connect() as plain:
        expected = plain.execute(
            f"{sql} read_csv('{tmp_path / 't.csv'}', delim=';', dateformat='%d.%m.%Y', "
            "timestampformat='%d.%m.%Y %H:%M', decimal_separator=',', types={'x': 'DECIMAL(9,2)'})"
        ).fetchall()
    assert asked(tmp_path / "t.csv", f"{sql} t", schema) == expected
    odd = ["2024-01-31", "31/01/2024", "31.01.24", "31.02.2024", "31.01.2024x", "infinity", "31.01.12024", "0.0.0"]
    numbers = ["1.5", "1.234,5", "1,2,3", "one", "", "1e400", "1,5x", "1 000"]
    lines = [f"{i};{day};{day} 10:00;{x}" for i, (day, x) in enumerate(zip(odd, numbers, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(["u;day;ts;x", *lines]) + "\n")
    assert asked(tmp_path / "t.csv", "SELECT COUNT(*), COUNT(day), COUNT(ts), COUNT(x) FROM t", schema) == [
        (8, 0, 0, 0)
    ]


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.tsv", "\t"), ("t.csv.gz", ","), ("t.TSV.gz", "\t")])
def test_the_name_says_what_stands_between_fields(name: str, mark: str, tmp_path: Path) -> None:
    assert asked(csv_file(tmp_path, name=name, mark=mark)) == WHOLE


def test_options_of_the_whole_and_of_a_table(tmp_path: Path) -> None:
    path = csv_file(tmp_path, mark=";")
    assert asked(path, schema={"csv": {"delimiter": ";"}, **SCHEMA}) == WHOLE
    assert asked(path, schema={"csv": {"delimiter": "|"}, **declared(csv={"delimiter": ";"})}) == WHOLE
    refused(lambda: asked(path), dpsql.SchemaError)


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = csv_file(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert asked(path) == WHOLE


def test_a_row_in_the_place_of_the_header_is_not_shown(tmp_path: Path) -> None:
    """The first line of a file without a header is somebody's."""
    path = csv_file(tmp_path, header=False)
    path.write_text("4711,Secretville,3\n" + path.read_text())
    with pytest.raises(dpsql.SchemaError) as caught:
        asked(path)
    assert "4711" not in str(caught.value)
    assert "Secretville" not in str(caught.value)


def test_a_large_file_with_quotes_late(tmp_path: Path) -> None:
    """Beyond what a reader looks at to guess a dialect, and beyond the first of its buffers."""
    path = tmp_path / "t.csv"
    lines = "".join(f"{i},town number {i},{i % 10}\n" for i in range(200_000))
    path.write_text(f'u,town,x\n{lines}200000,"a,b",1\n')
    assert asked(path) == [(200_001, 200_001, 900_001.0)]


@pytest.mark.parametrize("name", ["t[1].csv", "t?.csv", "t*.csv", "t[1].csv.gz", "t[1].parquet"])
def test_the_file_of_that_very_name_is_read(name: str, tmp_path: Path) -> None:
    """The engine would take the name for a pattern, and read others that match it."""
    csv = csv_file(tmp_path, name=name.replace("parquet", "csv"))
    for other in ("t1", "t2"):
        (tmp_path / f"{other}.csv").write_text("u,town,x\n999,a,1\n")
        duckdb.sql("SELECT 999 AS u, 'a' AS town, 1.0 AS x").write_parquet(str(tmp_path / f"{other}.parquet"))
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pandas(pd.read_csv(csv)), tmp_path / name)
    assert asked(tmp_path / name) == WHOLE
    (described,) = describe(tmp_path / name).values()
    assert described.columns.keys() == {"u", "town", "x"}


# -- several files -----------------------------------------------------------------------------------------------------


def parts(folder: Path) -> list[Path]:
    whole = csv_file(folder).read_text().splitlines()
    (folder / "t.csv").unlink()
    (folder / "a.csv").write_text("\n".join(whole[:101]) + "\n")
    swapped = pd.read_csv(folder / "a.csv", names=["u", "town", "x"])
    rest = [line.split(",") for line in whole[101:]]
    (folder / "b.csv").write_text("x,u,town\n" + "".join(f"{x},{u},{town}\n" for u, town, x in rest))
    assert len(swapped) == 101
    return [folder / "a.csv", folder / "b.csv"]


def test_a_folder_a_pattern_and_a_list_are_one_table(tmp_path: Path) -> None:
    """Columns are told by their names; notes that tools leave are passed over."""
    files = parts(tmp_path)
    (tmp_path / "_SUCCESS").touch()
    sources: list[Any] = [tmp_path, str(tmp_path), f"{tmp_path}/*.csv", files, {"t": tmp_path}, {"t": files}]
    for source in sources:
        assert asked(source) == WHOLE


def test_parquet_files_are_one_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"u": range(PEOPLE), "town": "a", "x": [i % 10 for i in range(PEOPLE)]})
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        half = frame[: PEOPLE // 2] if year == 2023 else frame[PEOPLE // 2 :]
        half.to_parquet(tmp_path / f"year={year}" / "part.parquet")
    assert "contains folders" in refused(lambda: asked(tmp_path))
    assert asked(f"{tmp_path}/**/*.parquet") == WHOLE
    told = refused(
        lambda: asked(f"{tmp_path}/*/*.parquet", schema=declared(columns={**COLUMNS, "year": "integer"})),
        dpsql.SchemaError,
    )
    assert 'no column "year"' in told


@pytest.mark.parametrize("other", ["u,town\n1,a\n", "u,town,x,y\n1,a,2,3\n"])
def test_files_of_one_table_have_the_same_columns(other: str, tmp_path: Path) -> None:
    csv_file(tmp_path)
    (tmp_path / "z.csv").write_text(other)
    assert "z.csv has different columns than t.csv" in refused(lambda: asked(tmp_path))


def test_several_files_need_a_ledger_that_is_named(tmp_path: Path) -> None:
    csv_file(tmp_path)
    refused(lambda: dpsql.connect(f"{tmp_path}/*.csv", schema=SCHEMA, budget=1), dpsql.InterfaceError)


# -- what changes after it was opened ----------------------------------------------------------------------------------


def arrow_people() -> pa.Table:
    return pa.table({"u": list(range(PEOPLE)), "town": ["a"] * PEOPLE, "x": [float(i % 10) for i in range(PEOPLE)]})


def test_a_stream_can_be_asked_twice() -> None:
    streams: list[Any] = [arrow_people().to_reader(), pl.LazyFrame(arrow_people())]
    for stream in streams:
        with dpsql.connect(stream, schema=SCHEMA, budget=1e12, query_epsilon=1e9) as connection:
            for _ in range(2):
                assert connection.execute("SELECT COUNT(*) FROM t", fresh=True).fetchall() == [(PEOPLE,)]


def test_a_file_that_is_replaced_or_gone_changes_no_answer(tmp_path: Path) -> None:
    pq.write_table(arrow_people(), tmp_path / "t.parquet")
    for path in (csv_file(tmp_path), tmp_path / "t.parquet"):
        with dpsql.connect(path, schema=SCHEMA, budget=1e12, query_epsilon=1e9) as connection:
            path.write_bytes(b"u,town,x\n")
            assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(PEOPLE,)]
            path.unlink()
            assert connection.execute("SELECT COUNT(*) FROM t", fresh=True).fetchall() == [(PEOPLE,)]


def test_a_frame_that_changes_in_place_changes_no_answer_of_a_connection() -> None:
    frame = pd.DataFrame({"u": range(PEOPLE), "town": "a", "x": 1.0})
    with dpsql.connect(frame, schema=SCHEMA, budget=1e12, query_epsilon=1e9) as connection:
        frame.loc[:, "x"] = 9.0
        ((total,),) = connection.execute("SELECT SUM(x) FROM t").fetchall()
    assert total == pytest.approx(PEOPLE, abs=0.1)


# -- odd cells ---------------------------------------------------------------------------------------------------------


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("secret")


ODD_TEXTS: list[object] = [
    "\ud800",
    "a\0b",
    b"\xff",
    5,
    2.5,
    None,
    np.nan,
    pd.NA,
    pd.NaT,
    [1],
    datetime(2024, 1, 1),
    Unspeakable(),
    "x" * 100_000,
]


class Box:
    """Something that a category can be, whatever it holds."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __str__(self) -> str:
        return str(self.held)


def frames() -> Iterator[tuple[str, Any]]:
    """Frames with one row for each odd object, after all others."""
    rows = PEOPLE + len(ODD_TEXTS)
    numbers = {"u": range(rows), "x": [1.0] * rows}
    towns = pd.Series(["a"] * PEOPLE + ODD_TEXTS, dtype=object)
    categories = pd.Index(["a", *(Box(odd) for odd in ODD_TEXTS)], dtype=object)
    codes = [0] * PEOPLE + list(range(1, len(ODD_TEXTS) + 1))
    yield "objects", pd.DataFrame({**numbers, "town": towns})
    yield "categories", pd.DataFrame({**numbers, "town": pd.Categorical.from_codes(codes, categories)})
    yield "beside Arrow", pd.DataFrame({**numbers, "town": towns, "y": pd.array([1] * rows, "int64[pyarrow]")})


def test_no_object_in_a_frame_reaches_beyond_its_row() -> None:
    for what, frame in frames():
        counts = "SELECT COUNT(*), SUM(x), COUNT_IF(town = 'a'), COUNT_IF(town = '5') FROM t"
        rows = PEOPLE + len(ODD_TEXTS)
        assert asked(frame, counts) == [(rows, rows, PEOPLE, 1)], what


BAD = pa.array([b"a", b"\xff\xfe", b"\xed\xa0\x80", None], pa.binary())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_that_is_no_text_in_arrow_is_null(kind: Any) -> None:
    wide = BAD.cast(pa.large_binary()) if kind == pa.large_string() else BAD
    for town in (wide.view(kind), wide.view(kind).dictionary_encode()):
        table = pa.table({"u": [1, 2, 3, 4], "town": town, "x": [1.0] * 4})
        for source in (table, table.to_reader()):
            assert asked(source) == [(4, 1, 4.0)]


@pytest.mark.parametrize("sql", [TOTALS, "SELECT COUNT(*) FROM t"])
def test_text_that_is_no_text_in_parquet_is_refused_by_opening(sql: str, tmp_path: Path) -> None:
    """Whichever columns a question reads."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"u": [1, 2, 3, 4], "town": BAD.view(pa.string()), "x": [1.0] * 4}), path)
    told = refused(lambda: asked(path, sql))
    assert "FF" not in told


NANOSECONDS = ["2024-01-01 23:59:59.999999999", "1969-12-31 23:59:59.999999999", "2024-01-01 23:59:59.999999500"]


def test_a_moment_lies_in_the_microsecond_that_it_began(tmp_path: Path) -> None:
    """The nearest one could be on the next day."""
    moments = pd.DataFrame({"u": range(3), "seen": pd.to_datetime(NANOSECONDS)})
    assert moments["seen"].dtype == "datetime64[ns]"
    pq.write_table(pa.Table.from_pandas(moments), tmp_path / "t.parquet")
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t (u BIGINT, seen TIMESTAMP_NS)")
    raw.executemany("INSERT INTO t VALUES (?, CAST(? AS TIMESTAMP_NS))", list(enumerate(NANOSECONDS)))
    raw.execute("INSERT INTO t VALUES (9, 'infinity'), (9, NULL)")
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer", "seen": "timestamp"}}}}
    conditions = (
        "CAST(seen AS DATE) = DATE '2024-01-01'",
        "seen < TIMESTAMP '1970-01-01'",
        "DATE_TRUNC('day', seen) = DATE '1969-12-31'",
    )
    counts = ", ".join(f"COUNT_IF({condition})" for condition in conditions)
    for source in (moments, pl.from_pandas(moments), pa.Table.from_pandas(moments), tmp_path / "t.parquet", raw):
        assert asked(source, f"SELECT {counts} FROM t", schema) == [(2, 1, 1)]


# -- a caller's connection ---------------------------------------------------------------------------------------------


def caller() -> duckdb.DuckDBPyConnection:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t AS SELECT i AS u, 'town' || i % 7 AS town, (i % 10)::DOUBLE AS x FROM range(400) r(i)")
    return raw


SETTINGS = [
    "ieee_floating_point_ops = false",
    "integer_division = true",
    "default_collation = 'NOCASE'",
    "default_null_order = 'nulls_first'",
    "default_order = 'desc'",
    "error_on_division_by_zero = true",
    "regex_match_operator_semantics = 'full'",
    "max_expression_depth = 10",
    "preserve_identifier_case = 'uppercase'",
]


@pytest.mark.parametrize("after", [False, True])
def test_no_setting_of_the_caller_changes_an_answer(after: bool) -> None:
    raw = caller()
    changes = "; ".join(f"SET GLOBAL {setting}" for setting in SETTINGS)
    tests = "COUNT_IF(town = 'TOWN1'), COUNT_IF(LN(x) IS NULL), COUNT_IF(2 // CAST(x AS BIGINT) IS NULL)"
    question = f"SELECT SUM(x / 3), {tests} FROM t"
    expected = asked(raw, question)
    if not after:
        raw.execute(changes)
    with dpsql.connect(raw, schema=SCHEMA, budget=1e12, query_epsilon=1e9) as connection:
        if after:
            raw.execute(changes)
        (row,) = connection.execute(question).fetchall()
    assert row == pytest.approx(expected[0], abs=0.01)
    assert row[0] == pytest.approx(600, abs=0.01)


def test_settings_that_are_locked_otherwise_are_refused() -> None:
    raw = caller()
    raw.execute("SET GLOBAL integer_division = true; SET lock_configuration = true")
    assert "integer_division" in refused(lambda: asked(raw), dpsql.SchemaError)


MACROS = [
    "least(a, b) AS a",
    "greatest(a, b) AS a",
    "hash(a) AS 1",
    "coalesce(a, b) AS 7",
    "nullif(a, b) AS 3",
    '"+"(a, b) AS 7',
    '"*"(a, b) AS 7',
    "sum(a) AS 7",
    "count(a) AS 99",
    "min(a) AS 5",
    "isfinite(a) AS true",
    "row_number() AS 1",
    "list_sort(a) AS a",
    "epoch_ns(a) AS 5",
    "range(a, b) AS TABLE SELECT 5",
    "duckdb_settings() AS TABLE SELECT 5",
    "duckdb_columns() AS TABLE SELECT 5",
    "current_schema() AS 'other'",
]


@pytest.mark.parametrize("after", [False, True])
def test_no_macro_of_the_caller_changes_an_answer(after: bool) -> None:
    """The clamps are functions: a macro in their place would let one person count a million."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t AS SELECT i // 50 AS u, 'a' AS town, 1e6 AS x FROM range(400) r(i)")
    schema = declared(contribution={"max_rows_per_group": 1, "max_groups": 1})
    question = "SELECT town, COUNT(*), SUM(x), SUM(LEAST(x, 4)) FROM t WHERE town IN ('a', 'b') GROUP BY town"
    schema["tables"]["t"]["columns"] = {**COLUMNS, "town": {"type": "text", "values": ["a", "b"]}}
    expected = asked(raw, question, schema)
    assert expected[0][1:] == (8, 80.0, 32.0)

    def made() -> None:
        for macro in MACROS:
            raw.execute(f"CREATE MACRO {macro}")

    if not after:
        made()
    with dpsql.connect(raw, schema=schema, budget=1e12, query_epsilon=1e9) as connection:
        if after:
            made()
        rows = connection.execute(question).fetchall()
    assert [tuple(round(v, 3) if isinstance(v, float) else v for v in row) for row in rows] == expected


def test_the_schema_that_is_in_use_is_read() -> None:
    raw = caller()
    raw.execute("CREATE SCHEMA other; CREATE TABLE other.t AS FROM t LIMIT 10; USE other")
    assert asked(raw, "SELECT COUNT(*) FROM t") == [(10,)]
    raw.execute("USE main; CREATE TEMP TABLE t AS SELECT 1 AS u, 'a' AS town, 1.0 AS x")
    assert asked(raw, "SELECT COUNT(*) FROM t") == [(PEOPLE,)]


VIEWS = {
    "across people": "SELECT u, town, sum(x) OVER () AS x FROM people",
    "a cast that fails": "SELECT u, town, CAST(town AS DOUBLE) AS x FROM people",
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_is_refused_unless_its_owner_vouches_for_it(view: str, tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    people = "CREATE TABLE people AS SELECT 1 AS u, '2' AS town, 3.0::DOUBLE AS x"
    with duckdb.connect(str(path)) as stored:
        stored.execute(f"{people}; CREATE VIEW t AS {view}")
    raw = duckdb.connect()
    raw.execute(f"{people}; CREATE VIEW t AS {view}")
    for database in (path, raw):
        with pytest.raises(dpsql.SchemaError, match="it is a view"):
            asked(database)
        assert asked(database, "SELECT COUNT(*) FROM t", declared(view="trusted")) == [(1,)]


def test_a_computed_column_is_refused_unless_its_owner_vouches_for_it() -> None:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t (u BIGINT, town VARCHAR, x DOUBLE GENERATED ALWAYS AS (CAST(town AS DOUBLE)))")
    assert "computed" in refused(lambda: asked(raw), dpsql.SchemaError)
    assert asked(raw, "SELECT COUNT(*) FROM t", declared(columns={"u": "integer", "town": "text"})) == [(0,)]
    assert asked(raw, "SELECT COUNT(*) FROM t", declared(view="trusted")) == [(0,)]


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE t; CREATE VIEW t AS SELECT 1::BIGINT AS u, 'a' AS town, sum(1)::DOUBLE AS x",
        "ALTER TABLE t ALTER x TYPE VARCHAR",
        "DROP TABLE t",
    ],
)
def test_a_table_that_becomes_another_is_refused_before_the_charge(change: str) -> None:
    raw = caller()
    with dpsql.connect(raw, schema=SCHEMA, budget=1) as connection:
        raw.execute(change)
        refused(lambda: connection.execute(TOTALS))
        assert connection.budget.spent.epsilon == 0


def test_a_table_that_loses_its_constraint_is_refused_before_the_charge() -> None:
    """What a constraint kept is no longer kept: nothing would bound a person's rows."""
    raw = caller()
    raw.execute("ALTER TABLE t ADD PRIMARY KEY (u)")
    with dpsql.connect(raw, schema=SCHEMA, budget=1) as connection:
        raw.execute("CREATE OR REPLACE TABLE t AS FROM t UNION ALL SELECT 7, 'a', 1 FROM range(5000)")
        refused(lambda: connection.execute(TOTALS))
        assert connection.budget.spent.epsilon == 0


def test_rows_that_are_added_are_seen() -> None:
    raw = caller()
    with dpsql.connect(raw, schema=SCHEMA, budget=1e12, query_epsilon=1e9) as connection:
        raw.execute("INSERT INTO t VALUES (999, 'a', 1)")
        assert connection.execute("SELECT COUNT(*) FROM t").fetchall() == [(PEOPLE + 1,)]


# -- every source, with and without one odd row ------------------------------------------------------------------------

BASE = [(i, f"town{i % 3}", float(i % 10)) for i in range(60)]
ODD_ROWS: list[tuple[Any, Any, Any]] = [
    (999, text, 1.0)
    for text in [
        "a,b",
        'a"b',
        '"',
        "a;b",
        "a\tb",
        "'",
        "\\",
        "#",
        "é",
        "\u2028",
        "",
        " ",
        "NULL",
        "\ufeff",
        "a\x1fb",
        "1e9",
    ]
] + [(999, "a", None), (999, None, 1e308), (None, "a", 1.0), (-(2**63), "a", float("inf"))]


def sources(rows: list[tuple[Any, Any, Any]], folder: Path) -> Iterator[tuple[str, Any]]:
    frame = pd.DataFrame(
        {
            "u": pd.array([row[0] for row in rows], "Int64"),
            "town": [row[1] for row in rows],
            "x": [row[2] for row in rows],
        }
    )
    for name, mark in (("t.csv", ","), ("t.csv.gz", ","), ("t.tsv", "\t")):
        frame.to_csv(folder / name, index=False, sep=mark)
        yield name, folder / name
    table = pa.Table.from_pandas(frame)
    pq.write_table(table, folder / "t.parquet")
    yield "parquet", folder / "t.parquet"
    yield "arrow", table
    yield "a stream", table.to_reader()
    yield "pandas", frame
    yield "objects", frame.astype(object).astype({"u": "Int64", "x": "float64"})
    yield "polars", pl.from_arrow(table)
    yield "lazy", pl.LazyFrame(table)
    yield "a dict", {"t": folder / "t.csv"}
    raw = duckdb.connect()
    raw.register("frame", table)
    raw.execute("CREATE TABLE t AS FROM frame")
    yield "a connection", raw
    (folder / "t.duckdb").unlink(missing_ok=True)
    raw.execute(f"ATTACH '{folder}/t.duckdb' AS file; CREATE TABLE file.t AS FROM t; DETACH file")
    yield "a database", folder / "t.duckdb"


def outcome(source: object) -> Any:
    """What becomes of a question about everybody else, told apart from answers by the words of an error."""
    try:
        return asked(
            source,
            "SELECT town, COUNT(*), SUM(x) FROM t WHERE u BETWEEN 0 AND 100 GROUP BY town",
            declared(
                columns={
                    **COLUMNS,
                    "town": {**COLUMNS["town"], "values": ["town0", "town1", "town2"]},
                    "x": {**COLUMNS["x"], "nullable": True},
                }
            ),
        )
    except dpsql.Error as error:
        return re.sub(r"\d+", "n", str(error))


@pytest.mark.parametrize("each_alone", [False, pytest.param(True, marks=pytest.mark.long)])
def test_odd_rows_change_nothing_of_the_others(each_alone: bool, tmp_path: Path) -> None:
    without = {name: outcome(source) for name, source in sources(BASE, tmp_path)}
    first, *others = without.values()
    assert others == [first] * len(others)
    for number, odd in enumerate([[row] for row in ODD_ROWS] if each_alone else [ODD_ROWS]):
        place = 0 if number % 2 else len(BASE) // 2
        for name, source in sources([*BASE[:place], *odd, *BASE[place:]], tmp_path):
            assert outcome(source) == without[name], (name, odd)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of private data are gone with the connection."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    assert asked(csv_file(tmp_path), schema=declared(csv={"encoding": "latin-1"})) == WHOLE
    assert os.listdir(tmp_path / "tmp") == []  # noqa: PTH208


ZONED = {"tables": {"t": {"unit": "u", "columns": {"u": "integer", "seen": {"type": "timestamp", "nullable": True}}}}}
HOURS = "SELECT COUNT_IF(HOUR(seen) = 21) AS utc, COUNT(seen) AS moments, COUNT(*) AS n FROM t"
WILD_MOMENTS = [-(2**63), -(2**62), 0, 2**63 - 1]


def test_moments_with_a_zone_are_read_in_utc(tmp_path: Path) -> None:
    """Whatever the zone of the connection; of an infinite moment, or one beyond the calendar, nothing can fail."""
    frame = pd.DataFrame({"u": range(300), "seen": pd.to_datetime(["2024-03-01 23:30:00+02:00"] * 300)})
    frame.to_parquet(tmp_path / "t.parquet")
    raw = duckdb.connect()
    raw.execute("SET TimeZone = 'Asia/Tokyo'")
    raw.execute("CREATE TABLE t AS FROM frame")
    for source in (frame, tmp_path / "t.parquet", raw, raw.sql("FROM t")):
        assert asked(source, HOURS, ZONED) == [(300, 300, 300)]
    raw.execute("INSERT INTO t VALUES (1000, 'infinity'), (1001, '-infinity'), (1002, NULL), (1003, '290000-01-01')")
    assert asked(raw, HOURS, ZONED) == [(300, 300, 304)]
    wild = pa.table({"u": [1, 2, 3, 4], "seen": pa.array(WILD_MOMENTS, pa.int64()).cast(pa.timestamp("us", tz="UTC"))})
    pq.write_table(wild, tmp_path / "wild.parquet")
    raw.execute(f"CREATE OR REPLACE TABLE t AS FROM '{tmp_path}/wild.parquet'")
    for source in ({"t": tmp_path / "wild.parquet"}, raw):
        assert asked(source, HOURS, ZONED) == [(0, 1, 4)]


def test_a_relation_of_duckdb_is_a_frame() -> None:
    raw = duckdb.connect()
    raw.execute(f"CREATE TABLE people AS SELECT i AS u, 'a' AS town, 1.0 AS x FROM range({PEOPLE}) AS r(i)")
    some = raw.sql("FROM people WHERE u < 100")
    assert asked({"t": some}) == asked(some) == [(100, 100, 100.0)]
    assert "cannot be read" in refused(
        lambda: asked(raw.sql("SELECT 'a' AS u").filter("CAST(u AS INT) > 0")), dpsql.Error
    )


UNIQUE = {"PRIMARY KEY": "id BIGINT PRIMARY KEY", "UNIQUE": "id BIGINT UNIQUE"}
NOT_UNIQUE = {
    "two columns": "id BIGINT, day DATE, PRIMARY KEY (id, day)",
    "a check": "id BIGINT CHECK (id > 0)",
    "no constraint": "id BIGINT NOT NULL",
}


@pytest.mark.parametrize("form", [*UNIQUE, *NOT_UNIQUE, "an index", "a view"])
def test_only_constraints_of_its_tables_count_as_unique(form: str) -> None:
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE stored ({(UNIQUE | NOT_UNIQUE).get(form, 'id BIGINT PRIMARY KEY')})")
        database.execute("CREATE TABLE made (id BIGINT); CREATE UNIQUE INDEX made_once ON made (id)")
        database.execute("CREATE VIEW seen AS FROM stored")
        table = {"an index": "made", "a view": "seen"}.get(form, "stored")
        vouched = {"view": "trusted"} if table == "seen" else {}
        schema = {"dataset": "d", "tables": {table: {"unit": "id", "columns": {"id": "integer"}, **vouched}}}
        with dpsql.connect(database, schema=schema, budget=1) as connection:
            environment = connection.session.environment
            integer = environment.schema.tables[table].columns["id"].type
            assert environment.engine.guarantees.is_unique(table, "id", integer) == (form in UNIQUE)


def test_what_the_engine_does_not_understand_is_refused_before_the_charge() -> None:
    """A mistake of ours in the SQL costs nobody anything."""
    frame = pd.DataFrame({"u": [1, 2], "v": [1.0, 2.0]})
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer"}}}}
    with dpsql.connect({"t": frame}, schema=schema, budget=1.0) as conn:
        engine = conn.session.environment.engine
        rendered = engine.render
        engine.render = lambda query, blanks=None: rendered(query, blanks).replace("(", "no_such(")  # type: ignore[misc]
        with pytest.raises(dpsql.Unsupported, match="does not accept the SQL"):
            conn.execute("SELECT COUNT(*) FROM t")
        assert conn.budget.spent.epsilon == 0

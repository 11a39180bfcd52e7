"""A NULL where the schema declares none: an answer is right all the same, or the owner is told.

In a database NULL is left out of counts, sums and averages, whatever the schema says of it; a constraint saves the
noise that this costs. Files and frames are looked at when they are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import dpsql
from dpsql.cli.app import main
from dpsql.engines.duckdb.catalog import DatabaseSchema, found_tables

SCHEMA: dict[str, Any] = {
    "dataset": "visits",
    "contribution": {"max_groups": 4, "max_rows_per_group": 4},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "town": {"type": "text", "values": ["a", "b"]},
                "minutes": {"type": "integer", "bounds": [0, 100]},
                "weight": {"type": "double", "bounds": [0, 10]},
                "fee": {"type": "decimal(8,2)", "bounds": [0, 50]},
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-01-03"]},
                "ok": "boolean",
                "note": "text",
            },
        },
        "people": {"unit": "person", "unique": True, "columns": {"person": "integer", "age": "integer"}},
    },
}
ROWS = """
    SELECT i // 2 AS person, CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN 'elsewhere' WHEN 2 THEN 'b' ELSE 'a' END AS town,
        CASE WHEN i % 5 > 0 THEN i % 90 END AS minutes,
        CASE i % 6 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE ELSE i % 10 END AS weight,
        CASE WHEN i % 4 > 0 THEN (i % 50)::DECIMAL(8, 2) END AS fee,
        CASE WHEN i % 3 > 0 THEN DATE '2024-01-01' + (i % 3)::INTEGER END AS day,
        CASE WHEN i % 3 > 0 THEN i % 2 = 0 END AS ok,
        CASE WHEN i % 8 > 0 THEN 'n' || i % 2 END AS note
    FROM range(400) AS r(i)
"""


# What dpsql makes of a row before anything else: NaN is NULL, and so is a text that is not declared.
CLEAN = (
    "UPDATE visits SET weight = NULL WHERE isnan(weight); UPDATE visits SET town = NULL WHERE town NOT IN ('a', 'b')"
)


def filled() -> duckdb.DuckDBPyConnection:
    """Every column has NULLs that are not declared."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE visits AS {ROWS}")
    connection.execute(
        "CREATE TABLE people AS SELECT i AS person, CASE WHEN i % 2 = 0 THEN i END AS age FROM range(200) AS r(i)"
    )
    return connection


@pytest.fixture(scope="module")
def plain() -> duckdb.DuckDBPyConnection:
    return filled().execute(CLEAN)


@pytest.fixture(scope="module")
def private() -> Iterator[dpsql.Connection]:
    with dpsql.connect(filled(), schema=SCHEMA, budget=1e12, delta=1e-6, query_epsilon=1e9) as connection:
        yield connection


BOUNDS = ", contribution_bounds_per_row => (0, 300)"
QUESTIONS = [
    *(f"SELECT COUNT(*), COUNT({name}) FROM visits" for name in SCHEMA["tables"]["visits"]["columns"]),
    *(f"SELECT COUNT(*), SUM({name}), AVG({name}) FROM visits" for name in ("minutes", "weight", "fee")),
    "SELECT AVG(minutes + weight), SUM(minutes * 2), STDDEV_POP(minutes) FROM visits",
    "SELECT COUNT(*), AVG(CASE WHEN ok THEN minutes END) FROM visits",
    "SELECT CORR(minutes, fee), COVAR_POP(minutes, fee), COUNT(*) FROM visits",
    "SELECT COUNT_IF(minutes > 5), COUNT_IF(NOT minutes > 5), COUNT(*) FILTER (WHERE ok) FROM visits",
    "SELECT COUNT(DISTINCT town), COUNT(DISTINCT person), COUNT(DISTINCT minutes) FROM visits",
    "SELECT town, COUNT(*), COUNT(minutes), AVG(minutes) FROM visits WHERE town IS NOT NULL GROUP BY 1 ORDER BY 1",
    "SELECT note, COUNT(note), COUNT(*), AVG(weight) FROM visits GROUP BY note ORDER BY note",
    "SELECT COUNT(*) FROM visits WHERE (person, minutes) NOT IN (SELECT person, age FROM people)",
    f"SELECT COUNT(*), COUNT(minutes), COUNT(age), SUM(age + minutes{BOUNDS}) FROM visits"
    " JOIN people ON visits.person = people.person",
    "SELECT COUNT(age), COUNT(*) FROM people LEFT JOIN visits ON visits.person = people.person AND minutes > 50",
    "SELECT COUNT(m), AVG(m) FROM (SELECT person, LEAST(MAX(minutes), 100) AS m FROM visits GROUP BY person)",
    "SELECT COUNT(n), COUNT_IF(n = 2) FROM (SELECT person, COUNT(minutes) AS n FROM visits GROUP BY person)",
    "SELECT COUNT(x), COUNT(*) FROM (SELECT person, minutes AS x FROM visits UNION ALL SELECT person, age FROM people)",
]


def as_float(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("sql", QUESTIONS)
def test_null_is_left_out_whatever_the_schema_says(
    sql: str, private: dpsql.Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    answers = private.execute(sql).fetchall()
    truths = plain.execute(sql.replace(BOUNDS, "")).fetchall()
    assert len(answers) == len(truths)
    for row, truth in zip(answers, truths, strict=True):
        assert [as_float(value) for value in row] == pytest.approx([as_float(value) for value in truth], abs=1e-3)


def test_null_is_a_public_group_only_where_that_is_declared(private: dpsql.Connection) -> None:
    by_town = "SELECT town, COUNT(*) FROM visits GROUP BY town"
    coalesced = "SELECT COALESCE(town, '?') AS t, COUNT(*) FROM visits GROUP BY t"
    assert [town for town, _ in private.execute(by_town).fetchall()] == ["a", "b"]
    declared = deepcopy(SCHEMA)
    declared["tables"]["visits"]["columns"]["town"]["nullable"] = True
    with dpsql.connect(filled(), schema=declared, budget=1e12, query_epsilon=1e9) as connection:
        towns = {sql: dict(connection.execute(sql).fetchall()) for sql in (by_town, coalesced)}
    assert towns[by_town][None] == towns[coalesced]["?"] == 115


# -- what a database guarantees ---------------------------------------------------------------------------------------

GUARANTEED = {
    "SMALLINT NOT NULL": ("integer", True),
    "BIGINT": ("integer", False),
    "HUGEINT NOT NULL": ("integer", False),  # beyond 64 bits it is NULL
    "DOUBLE NOT NULL": ({"type": "double", "bounds": [0, 9]}, False),  # NaN is NULL
    "INTEGER NOT NULL": ({"type": "double", "bounds": [0, 9]}, True),
    "DECIMAL(8, 2) NOT NULL": ("decimal(9,2)", True),
    "DECIMAL(9, 2) NOT NULL": ("decimal(8,2)", False),
    "DATE NOT NULL": ({"type": "date", "bounds": ["2024-01-01", "2025-01-01"]}, True),
    "DATE NOT NULL DEFAULT '2024-01-01'": ("date", False),  # infinity is NULL
    "VARCHAR NOT NULL": ("text", False),  # of any length
    "UUID NOT NULL": ("text", True),
    "VARCHAR NOT NULL DEFAULT 'a'": ({"type": "text", "values": ["a"]}, False),
    "BOOLEAN NOT NULL": ("boolean", True),
}


@pytest.mark.parametrize("stored", GUARANTEED)
def test_a_constraint_saves_what_counting_values_costs(stored: str) -> None:
    declared, guaranteed = GUARANTEED[stored]
    database = duckdb.connect()
    database.execute(f"CREATE TABLE t (u INTEGER, x {stored})")
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer", "x": declared}}}}
    schema |= {"contribution": {"max_rows_per_group": 1}}
    with dpsql.connect(database, schema=schema, budget=1) as connection:
        (release,) = connection.explain("SELECT COUNT(*), COUNT(x) FROM t").releases
    assert len(release.measures) == (1 if guaranteed else 2)


@pytest.mark.parametrize(
    ("stored", "odd", "declared"),
    [
        ("HUGEINT", str(2**80), {"type": "integer", "bounds": [0, 9]}),
        ("DOUBLE", "'nan'", {"type": "double", "bounds": [0, 9]}),
        ("DECIMAL(18, 2)", "999999999999", {"type": "decimal(8,2)", "bounds": [0, 9]}),
        ("VARCHAR", "repeat('x', 70000)", "text"),
        ("DATE", "'infinity'", "date"),
    ],
)
def test_what_is_no_value_as_declared_is_not_counted(stored: str, odd: str, declared: Any) -> None:
    database = duckdb.connect()
    database.execute(f"CREATE TABLE t (u INTEGER, x {stored} NOT NULL)")
    database.execute(f"INSERT INTO t VALUES (1, {odd})")
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer", "x": declared}}}}
    with dpsql.connect(database, schema=schema, budget=1e12, ledger=":memory:") as connection:
        assert connection.execute("SELECT COUNT(*), COUNT(x) FROM t", epsilon=1e9).fetchall() == [(1, 0)]


def test_a_constraint_that_is_dropped_is_no_longer_relied_on() -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE t (u INTEGER, x INTEGER NOT NULL)")
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer", "x": {"type": "integer", "bounds": [0, 9]}}}}}
    with dpsql.connect(database, schema=schema, budget=10) as connection:
        connection.execute("SELECT AVG(x) FROM t")
        database.execute("ALTER TABLE t ALTER x DROP NOT NULL")
        with pytest.raises(dpsql.OperationalError, match="changed since"):
            connection.execute("SELECT COUNT(x) FROM t")


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE t",
        "ALTER TABLE t RENAME TO s",
        "ALTER TABLE t ADD COLUMN y INTEGER",
        "ALTER TABLE t ALTER x TYPE BIGINT",
        "CREATE OR REPLACE TABLE t (u INTEGER, x INTEGER)",
        "DROP TABLE t; CREATE VIEW t AS SELECT 1 AS u, 2 AS x",
    ],
)
def test_a_table_that_changed_is_noticed_before_the_charge(change: str) -> None:
    """However many questions were asked of it before, and whatever else was created meanwhile."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t (u INTEGER, x INTEGER NOT NULL)")
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer", "x": "integer"}}}}
    with dpsql.connect(database, schema=schema, budget=10) as connection:
        for number in range(3):
            database.execute(f"CREATE TABLE other_{number} (t INTEGER)")
            connection.execute("SELECT COUNT(x) FROM t", fresh=True)
        spent = connection.budget.spent
        database.execute(change)
        with pytest.raises(dpsql.OperationalError, match="changed since"):
            connection.execute("SELECT COUNT(x) FROM t", fresh=True)
        assert connection.budget.spent == spent


def test_tables_of_another_engine_are_no_tables_of_ours() -> None:
    """Attached, they are read by that engine's rules, as a view is."""

    class Attached:
        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self.connection = connection

        def execute(self, sql: str) -> Any:
            return self.connection.execute(sql.replace("type = 'duckdb'", "type = 'sqlite'"))

    database = duckdb.connect()
    database.execute("CREATE TABLE t (x INTEGER)")
    place = DatabaseSchema("memory", "main")
    assert not found_tables(database, place)["t"].is_view
    assert found_tables(Attached(database), place)["t"].is_view  # type: ignore[arg-type]


# -- what an owner is told --------------------------------------------------------------------------------------------

COLUMNS = {"u": "integer", "x": {"type": "double", "bounds": [0, 9]}, "z": {"type": "text", "values": ["a", "b"]}}
ONE_TABLE = {"tables": {"t": {"unit": "u", "columns": COLUMNS}}}
FRAME = pd.DataFrame(
    {
        "u": pd.array([1, 2, 3, None], dtype="Int64"),
        "x": [1.5, None, float("nan"), None],
        "z": ["a", "secret", "b", None],
    }
)
TOLD = r"columns\.x: 2 of 3 rows have no double there; .*columns\.z: 1 of 3 rows have no text there that is declared"


def csv_file(folder: Path, frame: pd.DataFrame = FRAME) -> Path:
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def parquet_file(folder: Path) -> Path:
    FRAME.to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


SOURCES: dict[str, Callable[[Path], object]] = {
    "csv": csv_file,
    "parquet": parquet_file,
    "pandas": lambda _: FRAME,
    "arrow": lambda _: pa.Table.from_pandas(FRAME),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_owner_of_a_file_or_frame_is_told_by_counts(source: str, tmp_path: Path) -> None:
    with pytest.raises(dpsql.SchemaError, match=TOLD) as told:
        dpsql.connect(SOURCES[source](tmp_path), schema=ONE_TABLE, budget=1, ledger=":memory:")
    assert "nullable: true" in str(told.value)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_declared_opens(source: str, tmp_path: Path) -> None:
    nullable = {name: {**kind, "nullable": True} for name, kind in COLUMNS.items() if isinstance(kind, dict)}
    schema = {"tables": {"t": {"unit": "u", "columns": {"u": "integer"} | nullable}}}
    with dpsql.connect(SOURCES[source](tmp_path), schema=schema, budget=1e12, ledger=":memory:") as connection:
        asked = connection.execute("SELECT COUNT(*), COUNT(x), COUNT(z), AVG(x) FROM t", epsilon=1e9).fetchall()
    assert asked == [(3, 1, 2, pytest.approx(1.5, abs=1e-3))]


def test_check_says_that_a_column_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A decimal comma."""
    path = csv_file(tmp_path, pd.DataFrame({"u": [1, 2], "x": ["1,5", "2,5"], "z": ["a", "b"]}))
    schema = tmp_path / "t.yaml"
    schema.write_text(
        "tables: {t: {unit: u, columns: {u: integer, x: {type: double, bounds: [0, 9]}, z: text}}}", encoding="utf-8"
    )
    with pytest.raises(SystemExit):
        main(["check", str(schema), str(path)])
    assert "tables.t.columns.x: 2 of 2 rows have no double there" in capsys.readouterr().err


def test_check_counts_in_a_database_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There nothing rests on it, but rows whose key is NULL are in no public group."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS u, NULL::VARCHAR AS z")
    schema = tmp_path / "t.yaml"
    schema.write_text("tables: {t: {unit: u, columns: {u: integer, z: {type: text, values: [a]}}}}", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["check", str(schema), str(tmp_path / "t.duckdb")])
    assert "1 of 1 rows have no text there that is declared" in capsys.readouterr().err
    with dpsql.connect(tmp_path / "t.duckdb", schema=schema, budget=1e12, ledger=":memory:") as opened:
        assert opened.execute("SELECT COUNT(*), COUNT(z) FROM t", epsilon=1e9).fetchall() == [(1, 0)]

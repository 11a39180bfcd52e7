"""A comparison with a constant says the same of what is stored and of what it is clamped to, or is not made there."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

COLUMNS = {
    "n": ("integer", 0, 10),
    "price": ("decimal(5,2)", -1.5, 10),
    "day": ("date", "2024-01-01", "2024-12-31"),
    "seen": ("timestamp", "2024-01-01 00:00:00", "2024-12-31 12:00:00"),
}
ROWS = [
    (1, -5, -7.25, "-infinity", "-infinity"),
    (2, 0, -1.5, "2024-01-01", "2024-01-01 00:00:00"),
    (3, 4, 3.99, "2024-03-01", "2024-03-01 06:00:00"),
    (4, 5, 4, "2024-03-02", "2024-03-01 12:00:00"),
    (5, 10, 10, "2024-12-31", "2024-12-31 12:00:00"),
    (6, 99, 99, "infinity", "infinity"),
    (7, None, None, None, None),
]
MOMENTS = [
    *("DATE '2023-05-05'", "DATE '2024-01-01'", "DATE '2024-03-01'", "DATE '2024-12-31'", "DATE '2025-01-01'"),
    *("TIMESTAMP '2024-03-01 00:00:00'", "TIMESTAMP '2024-03-01 12:00:00'", "TIMESTAMP '2024-12-31 12:00:00'"),
]
CONSTANTS = {
    "n": ["-1", "0", "4", "4.0", "4.5", "10", "11"],
    "price": ["-1.51", "-1.5", "4", "3.99", "3.999", "CAST(3.99 AS DOUBLE)", "10", "10.01"],
    "day": MOMENTS,
    "seen": MOMENTS,
}
OPERATORS = ("<", "<=", ">", ">=", "=", "<>")


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE visits (person INTEGER, n INTEGER, price DECIMAL(5, 2), day DATE, seen TIMESTAMP)"
        )
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", ROWS)
        yield connection


@pytest.fixture(scope="module")
def conn(database: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    columns = {name: {"type": kind, "bounds": [low, high]} for name, (kind, low, high) in COLUMNS.items()}
    schema = {
        "dataset": "clinic",
        "contribution": {"max_groups": 1, "max_rows_per_group": 1},
        "tables": {"visits": {"unit": "person", "columns": {"person": "integer", **columns}}},
    }
    with dpsql.connect(database, schema=schema, budget=1e18, query_epsilon=1e9) as session:
        yield session


def clamped(name: str) -> str:
    """The column as the schema declares it, in plain SQL."""
    kind, low, high = COLUMNS[name]
    ends = [f"CAST('{end}' AS {kind})" for end in (low, high)]
    return f"CASE WHEN {name} IS NOT NULL THEN greatest(least({name}, {ends[1]}), {ends[0]}) END"


@pytest.mark.parametrize("name", COLUMNS)
def test_every_comparison_is_that_of_the_clamped_column(
    name: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    for constant in CONSTANTS[name]:
        for operator in OPERATORS:
            exact = f"SELECT COUNT(*) FROM (SELECT {clamped(name)} AS x FROM visits) WHERE x {operator} {constant}"
            expected = database.execute(exact).fetchall()
            test = f"{name} {operator} {constant}"
            assert conn.execute(f"SELECT COUNT(*) FROM visits WHERE {test}").fetchall() == expected, test


@pytest.mark.parametrize(
    ("condition", "stored"),
    [
        ("day >= DATE '2024-03-01'", "TRY_CAST(_rows.\"day\" AS DATE) >= CAST('2024-03-01' AS DATE)"),
        ("DATE '2024-03-01' <= day", "TRY_CAST(_rows.\"day\" AS DATE) >= CAST('2024-03-01' AS DATE)"),
        # A day is its midnight: those before noon are those up to the day.
        ("day < TIMESTAMP '2024-03-01 12:00:00'", "TRY_CAST(_rows.\"day\" AS DATE) <= CAST('2024-03-01' AS DATE)"),
        ("n BETWEEN 3 AND 4", 'TRY_CAST(_rows."n" AS BIGINT) >= CAST(3 AS BIGINT)'),
        ("price < 4", "TRY_CAST(_rows.\"price\" AS DECIMAL(5, 2)) < CAST('4.00' AS DECIMAL(5, 2))"),
    ],
)
def test_within_the_bounds_the_stored_column_is_compared(condition: str, stored: str, conn: dpsql.Connection) -> None:
    assert f"({stored})" in conn.explain(f"SELECT COUNT(*) FROM visits WHERE {condition}").releases[0].sql


@pytest.mark.parametrize("condition", ["n >= 0", "n <= 10", "n = 10", "n > 11", "price < 3.999", "n < 4 OR n > 6"])
def test_at_the_bounds_and_beyond_the_clamped_column_is_compared(condition: str, conn: dpsql.Connection) -> None:
    assert "BETWEEN" in conn.explain(f"SELECT COUNT(*) FROM visits WHERE {condition}").releases[0].sql


def test_below_joins_too(conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    """Also where the row's other columns are tested, and where another table's row is looked for."""
    sql = """SELECT COUNT(*) FROM visits a
             JOIN (SELECT person, COUNT(*) AS visits FROM visits WHERE day > '2024-03-01' GROUP BY person) b
               ON a.person = b.person AND a.n > 3
             WHERE a.price < 10
               AND EXISTS (SELECT 1 FROM visits c WHERE c.person = a.person AND c.seen > '2024-02-01')"""
    assert conn.execute(sql).fetchall() == [(1,)]
    assert "BETWEEN" not in conn.explain(sql).releases[0].sql

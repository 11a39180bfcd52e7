"""Of a public table only the columns that a query may read are copied, and its answer is that of plain DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.pipeline.plan_query import Planned, PublicTable
from dpsql.pipeline.stages import plan_question

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 3, "max_rows_per_group": 5},
    "tables": {
        "orders": {"unit": "person", "columns": {"person": "integer", "item": "integer"}},
        "items": {
            "public": True,
            "columns": {
                "item": "integer",
                "name": "text",
                "price": "decimal(15,2)",
                "weight": {"type": "decimal(18,9)", "nullable": True},
            },
        },
        "kinds": {"public": True, "columns": {"item": "integer", "name": "text", "kind": "text"}},
    },
}
EVERYTHING = {"item", "name", "price", "weight"}


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE orders AS SELECT 1 AS person, 1 AS item")
        connection.execute(
            "CREATE TABLE items (item INTEGER, name VARCHAR, price DECIMAL(15,2), weight DECIMAL(18,9));"
            "INSERT INTO items VALUES (1, 'a', 9999999999999.99, 123456789.123456789), (2, 'b', -0.01, NULL);"
            "CREATE TABLE kinds AS SELECT * FROM (VALUES (1, 'a', 'x'), (2, 'c', 'y')) AS kinds(item, name, kind)"
        )
        yield connection


def read(session: dpsql.Connection, sql: str, table: str) -> set[str]:
    planned: Planned = plan_question(session.session.request(sql, None), session.session.environment.public())
    (found,) = (part for part in planned.public if isinstance(part, PublicTable) and part.name == table)
    return {column.declared for column in found.scan.columns}


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT price FROM items ORDER BY name", {"price", "name"}),
        ("SELECT COUNT(*) FROM items", {"item"}),
        ("SELECT i.Price AS p FROM items AS i WHERE I.WEIGHT IS NULL", {"price", "weight"}),
        ("SELECT kind, price FROM items JOIN kinds USING (item)", {"item", "price"}),
        ("WITH w AS (SELECT weight AS x FROM items) SELECT SUM(x) FROM w", {"weight"}),
        ("SELECT kind, (SELECT MAX(price) FROM items i WHERE i.item = k.item) AS p FROM kinds k", {"item", "price"}),
        ("SELECT kind FROM kinds WHERE item NOT IN (SELECT item FROM items WHERE price < 0)", {"item", "price"}),
        ("SELECT * FROM items ORDER BY item", EVERYTHING),
        ("SELECT i.* EXCLUDE (price) FROM items i ORDER BY item", EVERYTHING),
        ("SELECT kind FROM items NATURAL JOIN kinds", EVERYTHING),
        ("SELECT q FROM items AS i(k, n, q, w) WHERE k = 1", EVERYTHING),
        ("SELECT MAX(COLUMNS('pri.*')) FROM items", EVERYTHING),
        ("SELECT i FROM items AS i ORDER BY i.item", EVERYTHING),
        ("SELECT items FROM items ORDER BY items.item", EVERYTHING),
        ("SELECT price FROM items UNION ALL SELECT weight FROM items ORDER BY 1", {"price", "weight"}),
    ],
)
def test_what_is_read_and_what_is_answered(sql: str, columns: set[str], database: duckdb.DuckDBPyConnection) -> None:
    expected = database.execute(sql).fetchall()
    with dpsql.connect(database, schema=SCHEMA, budget=1) as session:
        assert read(session, sql, "items") == columns
        assert session.execute(sql).fetchall() == expected


def test_a_table_beside_releases_is_read_in_part(database: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "WITH sold AS (SELECT item, COUNT(*) AS n FROM orders GROUP BY item) "
        "SELECT price, n FROM sold JOIN items ON sold.item = items.item"
    )
    with dpsql.connect(database, schema=SCHEMA, budget=1, delta=1e-6) as session:
        assert read(session, sql, "items") == {"item", "price"}


def test_rows_that_stay_are_copied_once(tmp_path: Path) -> None:
    """Of a file that is open for reading, the union of the columns that were asked for; answers are those of DuckDB."""
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as raw:
        raw.execute("CREATE TABLE orders AS SELECT 1 AS person, 1 AS item")
        raw.execute(
            "CREATE TABLE items AS SELECT i AS item, 'n' || i % 3 AS name, CAST(i AS DECIMAL(15, 2)) AS price, "
            "CAST(1.5 AS DECIMAL(18, 9)) AS weight "
            "FROM range(100) AS numbers(i)"
        )
        raw.execute("CREATE TABLE kinds AS SELECT 1 AS item, 'n1' AS name, 'x' AS kind")
        questions = [
            "SELECT name, COUNT(*) FROM items GROUP BY name ORDER BY name",
            "SELECT name, SUM(weight) FROM items GROUP BY name ORDER BY name",
            "SELECT name, kind FROM items JOIN kinds USING (name) LIMIT 2",
            "SELECT COUNT(*) FROM items WHERE name = (SELECT MIN(name) FROM kinds)",
        ]
        expected = [raw.execute(sql).fetchall() for sql in questions]
    with dpsql.connect(path, schema=SCHEMA, budget=1) as conn:
        read = []
        engine = conn.session.environment.engine
        run = engine.run_public
        engine.run_public = lambda sql: read.append(sql) or run(sql)  # type: ignore[method-assign]
        assert [conn.execute(sql).fetchall() for sql in questions for _ in range(2)] == [
            answer for answer in expected for _ in range(2)
        ]
    assert len(read) == 3


def test_rows_that_may_change_are_read_anew(database: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(database, schema=SCHEMA, budget=1) as conn:
        assert conn.execute("SELECT COUNT(*) FROM items").fetchall() == [(2,)]
        database.execute("INSERT INTO items VALUES (3, 'c', 1, 1)")
        assert conn.execute("SELECT COUNT(*) FROM items").fetchall() == [(3,)]

"""What a person has once needs no group: GROUP BY customer_id, ab_group costs as GROUP BY customer_id does."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 4, "max_rows_per_group": 5},
    "tables": {
        "customers": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "arm": {"type": "text", "values": ["A", "B"]}, "vip": "boolean"},
        },
        "orders": {
            "unit": "customer",
            "columns": {
                "customer": "integer",
                "kind": {"type": "text", "values": ["a", "b"]},
                "x": {"type": "integer", "bounds": [0, 10]},
            },
        },
        "arms": {"public": True, "columns": {"arm": "text", "label": {"type": "text", "values": ["old", "new"]}}},
    },
}
ROWS = """
    CREATE TABLE customers AS SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'A' ELSE 'B' END AS arm, i % 3 = 0 AS vip
    FROM range(600) AS r(i);
    CREATE TABLE orders AS SELECT i % 700 AS customer, CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END AS kind, i % 10 AS x
    FROM range(1300) AS r(i);
    CREATE TABLE arms AS SELECT 'A' AS arm, 'old' AS label
"""
ON = "ON id = customer"
INNER = [
    # the inner GROUP BY, and whether each person has one row by it
    (f"SELECT id, arm, SUM(x) AS s FROM customers JOIN orders {ON} GROUP BY id, arm", True),
    (f"SELECT customer AS id, arm, vip, SUM(x) AS s FROM customers JOIN orders {ON} GROUP BY customer, arm, vip", True),
    (f"SELECT id, LOWER(arm) AS arm, SUM(x) AS s FROM customers LEFT JOIN orders {ON} GROUP BY id, LOWER(arm)", True),
    (f"SELECT customer AS id, arm, SUM(x) AS s FROM orders LEFT JOIN customers {ON} GROUP BY customer, arm", True),
    ("SELECT id, arm, COUNT(*) AS s FROM customers GROUP BY id, arm", True),
    ("SELECT customer AS id, 1 AS one, 'A' AS arm, SUM(x) AS s FROM orders GROUP BY customer, one, arm", True),
    (f"SELECT id, arm, kind, SUM(x) AS s FROM customers JOIN orders {ON} GROUP BY id, arm, kind", False),
    ("SELECT customer AS id, kind AS arm, SUM(x) AS s FROM orders GROUP BY customer, kind", False),
    (f"SELECT customer AS id, arm, SUM(x) AS s FROM orders LEFT JOIN customers {ON} AND x > 5 GROUP BY 1, 2", False),
    ("SELECT id, label AS arm, COUNT(*) AS s FROM customers c LEFT JOIN arms a ON c.arm = a.arm GROUP BY 1, 2", False),
]


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(ROWS)
    return connection


@pytest.mark.parametrize(("inner", "once"), INNER, ids=[sql for sql, _ in INNER])
def test_one_row_per_person(inner: str, once: bool, raw: duckdb.DuckDBPyConnection) -> None:
    session = dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6)
    sql = f"SELECT arm, COUNT(*) AS n FROM ({inner}) AS t GROUP BY arm"
    assert ("one per person, guaranteed" in str(session.trace(sql))) == once


@pytest.mark.parametrize("inner", [sql for sql, _ in INNER])
def test_the_answer_is_that_of_plain_sql(inner: str, raw: duckdb.DuckDBPyConnection) -> None:
    with pytest.warns(Warning, match="protects against little"):
        session = dpsql.connect(raw, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9)
    sql = f"SELECT arm, COUNT(*) AS n, SUM(s) AS total FROM ({inner}) AS t GROUP BY arm ORDER BY arm"
    found = session.execute(sql, max_rows_per_group=50).fetchall()
    expected = raw.execute(sql).fetchall()
    assert [row for row in found if row[1]] == [(arm, n, total or 0) for arm, n, total in expected]


def test_a_person_with_two_rows_in_a_unique_table_still_has_one(raw: duckdb.DuckDBPyConnection) -> None:
    """The declaration chooses how rows are grouped, and no guarantee rests on it."""
    broken = duckdb.connect()
    broken.execute(ROWS)
    broken.execute("INSERT INTO customers SELECT 0, 'B', FALSE FROM range(50)")
    with pytest.warns(Warning, match="protects against little"):
        session = dpsql.connect(broken, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9)
    sql = "SELECT arm, COUNT(*) AS n FROM (SELECT id, arm FROM customers GROUP BY id, arm) AS t GROUP BY arm"
    assert session.execute(sql).fetchall() == [("A", 300), ("B", 300)]

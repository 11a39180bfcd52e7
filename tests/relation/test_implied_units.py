"""Where equal keys say that two rows are one person's, the person is not looked up; where they do not, it is."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql

ORDERS = [(10, 1), (11, 1), (12, 2), (13, 3), (14, None)]
LINES = [(10, 5), (10, 7), (11, 1), (12, 9), (13, None), (14, 9), (99, 9), (None, 9)]


def session(*, key: str = "PRIMARY KEY", id_column: Any = "integer") -> dpsql.Connection:
    database = duckdb.connect()
    database.execute(f"CREATE TABLE orders (id INTEGER {key}, person INTEGER)")
    database.execute("CREATE TABLE lines (order_id INTEGER, n INTEGER)")
    database.executemany("INSERT INTO orders VALUES (?, ?)", ORDERS)
    database.executemany("INSERT INTO lines VALUES (?, ?)", LINES)
    number = {"type": "integer", "bounds": [0, 10]}
    schema = {
        "dataset": "shop",
        "contribution": {"max_groups": 5, "max_rows_per_group": 5},
        "tables": {
            "orders": {"unit": "person", "columns": {"id": id_column, "person": "integer"}},
            "lines": {
                "unit": {"through": "order_id", "to": "orders.id"},
                "columns": {"order_id": "integer", "n": number},
            },
        },
    }
    return dpsql.connect(database, schema=schema, budget=1e18, query_epsilon=1e9)


LINE_OF_ORDER = "SELECT 1 FROM lines l WHERE l.order_id = o.id AND l.n > 4"
IMPLIED = {
    f"SELECT COUNT(*) FROM orders o WHERE EXISTS ({LINE_OF_ORDER})": 2,
    f"SELECT COUNT(*) FROM orders o WHERE NOT EXISTS ({LINE_OF_ORDER})": 2,
    "SELECT COUNT(*) FROM orders o WHERE o.id IN (SELECT order_id FROM lines WHERE n > 4)": 2,
    "SELECT COUNT(*) FROM orders o JOIN lines l ON o.id = l.order_id": 5,
    "SELECT COUNT(*) FROM lines l JOIN orders o ON o.id = l.order_id WHERE l.n < 9": 3,
}


@pytest.mark.parametrize(("sql", "expected"), IMPLIED.items())
def test_the_key_of_an_order_says_whose_its_lines_are(sql: str, expected: int) -> None:
    with session() as conn:
        assert "_owners" not in conn.explain(sql).releases[0].sql
        assert conn.execute(sql).fetchall() == [(expected,)]


def test_a_key_that_two_orders_may_have_leads_nowhere() -> None:
    with pytest.raises(dpsql.SchemaError, match=r'nothing enforces that "orders\.id" is unique'):
        session(key="")


@pytest.mark.parametrize("sql", IMPLIED)
def test_nor_does_a_key_that_is_clamped(sql: str) -> None:
    """11 and 12 are both read as 11: equal then, and two people's."""
    with session(id_column={"type": "integer", "bounds": [0, 11]}) as conn:
        assert "_owners" in conn.explain(sql).releases[0].sql


def test_lines_of_one_order_are_one_persons() -> None:
    """The one whose rows they are is looked up once, for the lines that are counted."""
    sql = """SELECT COUNT(*) FROM lines a
             WHERE EXISTS (SELECT 1 FROM lines b WHERE b.order_id = a.order_id AND b.n = a.n + 2)"""
    with session() as conn:
        assert conn.explain(sql).releases[0].sql.count("AS _owners") == 1
        assert conn.execute(sql).fetchall() == [(1,)]

"""What cannot be private is refused with a problem, a place and a way out; refusals.txt has the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql

_, *BLOCKS = (Path(__file__).parent / "refusals.txt").read_text(encoding="utf-8").strip().split("\n\n")
REFUSALS = [block.split("\n=> ") for block in BLOCKS if not block.startswith("-- ")]
INSTEAD = [
    "SELECT COUNT(*) FROM orders o JOIN customers c ON o.items > c.age AND o.customer_id = c.id",
    "SELECT COUNT(*) FROM orders o LEFT JOIN (SELECT id, age FROM customers) c"
    " ON o.items = c.age AND o.customer_id = c.id",
    "SELECT region, COUNT(*), SUM(amount), AVG(amount) FROM orders GROUP BY region ORDER BY 2 LIMIT 1",
    "SELECT COUNT(*) FROM (SELECT * FROM orders"
    " QUALIFY ROW_NUMBER() OVER (PARTITION BY orders.customer_id ORDER BY amount) <= 3)",
    "SELECT SUM(LEAST(a, 9)) FROM (SELECT AVG(amount) OVER (PARTITION BY region, customer_id) AS a FROM orders)",
    "SELECT region, RANK() OVER (ORDER BY COUNT(*)) AS r FROM orders GROUP BY region",
    "SELECT COUNT(*) FROM orders WHERE day < DATE '2024-01-31'",
    "SELECT COUNT(*) FROM orders o WHERE EXISTS"
    " (SELECT 1 FROM customers c WHERE c.age = o.items AND o.customer_id = c.id)",
    "SELECT COUNT(*) FROM orders o JOIN (SELECT customer_id, AVG(amount) AS a FROM orders GROUP BY customer_id) i"
    " ON i.customer_id = o.customer_id WHERE o.amount > i.a",
    "SELECT COUNT(*) FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE age > 30)",
]
"""What the hints say, done."""


@pytest.fixture(scope="module")
def session(
    small_shop: Callable[[], duckdb.DuckDBPyConnection], small_shop_schema: dict[str, Any]
) -> Iterator[dpsql.Connection]:
    with small_shop() as raw, dpsql.connect(raw, schema=small_shop_schema, budget=1, delta=1e-6) as connection:
        yield connection


@pytest.mark.parametrize(("sql", "message"), REFUSALS, ids=[sql for sql, _ in REFUSALS])
def test_the_whole_message(sql: str, message: str, session: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error) as caught:
        session.explain(sql)
    assert f"{type(caught.value).__name__}: {caught.value}" == message


@pytest.mark.parametrize("sql", INSTEAD)
def test_the_way_out_is_open(sql: str, session: dpsql.Connection) -> None:
    assert session.explain(sql).releases

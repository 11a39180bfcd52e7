"""Tables that are declared with their schema, sales.orders: read by that name, and told from others called orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import dpsql

ORDERS = {
    "unit": "customer_id",
    "columns": {
        "id": "integer",
        "customer_id": "integer",
        "channel": {"type": "text", "values": ["web", "shop"]},
        "items": {"type": "integer", "bounds": [0, 20]},
    },
}
SCHEMA: dict[str, Any] = {
    "dataset": "chain",
    "contribution": {"max_groups": 10, "max_rows_per_group": 20},
    "tables": {
        "orders": ORDERS,
        "sales.orders": ORDERS,
        "hr.people": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "age": {"type": "integer", "bounds": [0, 100]}},
        },
        "sales.lines": {
            "unit": {"through": "order_id", "to": "sales.orders.id"},
            "columns": {"order_id": "integer", "quantity": {"type": "integer", "bounds": [0, 9]}},
        },
        "sales.regions": {"public": True, "columns": {"channel": "text", "n": "integer"}},
    },
}
DATA = """
    CREATE SCHEMA sales; CREATE SCHEMA hr;
    CREATE TABLE sales.orders AS SELECT CAST(i AS BIGINT) AS id, CAST(i % 400 AS BIGINT) AS customer_id,
        CASE i % 2 WHEN 0 THEN 'web' ELSE 'shop' END AS channel, CAST(i % 21 AS BIGINT) AS items
        FROM generate_series(0, 899) AS r(i);
    ALTER TABLE sales.orders ADD PRIMARY KEY (id);
    CREATE TABLE orders AS SELECT id, customer_id, channel, items FROM sales.orders WHERE id < 100;
    CREATE TABLE sales.lines AS SELECT CAST(i % 900 AS BIGINT) AS order_id, CAST(i % 5 AS BIGINT) AS quantity
        FROM generate_series(0, 1499) AS r(i);
    CREATE TABLE hr.people AS SELECT CAST(i AS BIGINT) AS id, CAST(i % 90 AS BIGINT) AS age
        FROM generate_series(0, 399) AS r(i);
    CREATE TABLE sales.regions AS SELECT channel, CAST(n AS BIGINT) AS n
        FROM (VALUES ('web', 1), ('shop', 2), ('mars', 3)) AS v(channel, n);
"""
QUESTIONS = [
    "SELECT COUNT(*) FROM sales.orders",
    "SELECT COUNT(*) FROM orders",
    "SELECT sales.orders.channel, COUNT(*) FROM sales.orders GROUP BY 1",
    "SELECT orders.channel, COUNT(*) FROM sales.orders GROUP BY orders.channel",
    "SELECT channel, SUM(items) FROM Sales.Orders o JOIN hr.people p ON p.id = o.customer_id WHERE age > 20 GROUP BY 1",
    "SELECT COUNT(*) FROM sales.orders AS there, orders AS here WHERE there.customer_id = here.customer_id",
    "SELECT SUM(quantity) FROM sales.lines",
    "SELECT COUNT(*) FROM sales.lines JOIN sales.orders ON sales.orders.id = sales.lines.order_id WHERE items > 3",
    "SELECT r.channel, COUNT(o.id) FROM sales.regions r LEFT JOIN sales.orders o ON o.channel = r.channel GROUP BY 1",
    "SELECT * FROM sales.regions JOIN (SELECT channel, COUNT(*) AS c FROM sales.orders GROUP BY 1) USING (channel)",
    "SELECT COUNT(*) FROM hr.people WHERE id IN (SELECT customer_id FROM sales.orders WHERE items > 10)",
    "WITH orders AS (SELECT * FROM sales.orders WHERE items > 3) SELECT COUNT(*) FROM orders",
    "SELECT COUNT(*) FROM sales.orders WHERE items > (SELECT AVG(items) FROM sales.orders)",
]
REFUSED = {
    'SELECT COUNT(*) FROM "sales.orders"': "without the quotes",
    "SELECT sales.orders.channel, COUNT(*) FROM orders GROUP BY 1": "orders.channel",
    "SELECT orders.channel, COUNT(*) FROM sales.orders o GROUP BY 1": "",
    "SELECT COUNT(*) FROM sales.orders, orders WHERE sales.orders.customer_id = orders.customer_id": "alias",
    "SELECT COUNT(*) FROM people": "hr.people",
    "SELECT COUNT(*) FROM hr.orders": "orders",
    "SELECT COUNT(*) FROM sales.order": "sales.orders",
}


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(DATA)
        yield connection


def exactly(database: object, schema: dict[str, Any] = SCHEMA) -> dpsql.Connection:
    return dpsql.connect(database, schema=schema, budget=1e18, delta=1e-6, query_epsilon=1e12, ledger=":memory:")


@pytest.fixture(scope="module")
def sessions(
    plain: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], dpsql.Connection]]:
    made: dict[str, dpsql.Connection] = {}

    def of(kind: str) -> dpsql.Connection:
        if kind not in made:
            match kind:
                case "database":
                    source: object = plain.cursor()
                case "frames":
                    source = {name: plain.table(name).to_arrow_table() for name in SCHEMA["tables"]}
                case _:
                    source = _filled(request.getfixturevalue("postgresql_url"))
            made[kind] = exactly(source)
        return made[kind]

    yield of
    for connection in made.values():
        connection.close()


def _filled(url: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS sales, hr CASCADE; DROP TABLE IF EXISTS orders; {DATA}".encode())
    return url


@pytest.mark.parametrize("kind", ["database", "frames", "postgresql"])
def test_they_are_read_by_their_names(
    kind: str, sessions: Callable[[str], dpsql.Connection], plain: duckdb.DuckDBPyConnection
) -> None:
    for sql in QUESTIONS:
        assert sorted(sessions(kind).execute(sql).fetchall()) == sorted(plain.execute(sql).fetchall()), sql


def test_names_that_mean_no_declared_table_are_refused(sessions: Callable[[str], dpsql.Connection]) -> None:
    for sql, hint in REFUSED.items():
        with pytest.raises(dpsql.Error) as caught:
            sessions("database").explain(sql)
        assert hint in (caught.value.hint or ""), sql


def test_a_table_that_changed_is_not_asked() -> None:
    with duckdb.connect() as raw:
        raw.execute(DATA)
        with exactly(raw) as session:
            assert session.execute("SELECT COUNT(*) FROM orders").fetchall() == [(100,)]
            raw.execute("ALTER TABLE sales.lines ADD COLUMN more INTEGER")
            with pytest.raises(dpsql.OperationalError, match="changed"):
                session.execute("SELECT COUNT(*) FROM sales.orders")


@pytest.mark.parametrize(
    ("name", "says"),
    [("nowhere.orders", "no table"), ("sales.order", 'did you mean "orders"'), ("a.b.c", "is not a valid name")],
)
def test_a_declaration_that_leads_nowhere(name: str, says: str, plain: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(dpsql.SchemaError) as caught:
        dpsql.connect(plain.cursor(), schema={"dataset": "x", "tables": {name: ORDERS}}, budget=1)
    assert says in str(caught.value)


@pytest.mark.spark
def test_databases_of_a_lake(spark: Any, plain: duckdb.DuckDBPyConnection) -> None:
    for name in ("sales", "hr"):
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
    for name in SCHEMA["tables"]:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.createDataFrame(plain.table(name).df()).write.format("parquet").saveAsTable(name)
    with pytest.raises(dpsql.SchemaError, match=r'nothing enforces that "sales\.orders\.id" is unique'):
        exactly(spark)
    tables = {name: table for name, table in SCHEMA["tables"].items() if name != "sales.lines"}
    with exactly(spark, SCHEMA | {"tables": tables}) as session:
        for sql in QUESTIONS[:6]:
            assert sorted(session.execute(sql).fetchall()) == sorted(plain.execute(sql).fetchall()), sql

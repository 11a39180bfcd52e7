"""What the rows of public tables say of their columns: groups, bounds, and values that a key determines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 9, "max_rows_per_group": 9},
    "tables": {
        "sales": {
            "unit": "u",
            "columns": {"u": "integer", "item": {"type": "integer", "bounds": [0, 9]}, "zip": "text"},
        },
        "items": {
            "public": True,
            "columns": {
                "sk": {"type": "integer", "bounds": [0, 4000]},
                "brand": {"type": "integer", "bounds": [1, 1000]},
                "kind": "text",
                "stock": "integer",
                "price": "double",
                "since": {"type": "date", "bounds": ["2020-01-01", "2024-12-31"]},
            },
        },
    },
}


@pytest.fixture
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE items AS SELECT i AS sk, 10 + 10 * (i // 2) AS brand, 'kind ' || i % 3 AS kind,
                7 * i - 20 AS stock, i / 4.0::DOUBLE AS price,
                DATE '2021-01-01' + 100 * i::INTEGER AS since FROM range(1, 8) AS r(i);
            CREATE TABLE sales AS SELECT i AS u, 1 + i % 7 AS item, 'z' || i % 2 AS zip FROM range(700) AS r(i)""")
        yield connection


@pytest.fixture
def session(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9) as connection:
        yield connection


FROM = "FROM sales s JOIN items i ON s.item = i.sk"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT brand, COUNT(*) {FROM} WHERE brand > 0 GROUP BY brand",
        f"SELECT i.brand, i.sk, COUNT(*) {FROM} WHERE i.kind = 'kind 1' AND i.brand > 0 GROUP BY i.brand, i.sk",
        f"SELECT brand % 20 AS b, YEAR(since) AS y, COUNT(*) {FROM} WHERE i.brand = 30 GROUP BY ALL",
        f"SELECT i.since, COUNT(*) {FROM} GROUP BY i.since",
        "SELECT a.brand, COUNT(*) FROM sales s, items a, items b WHERE a.sk = s.item AND b.sk = s.item"
        " AND b.brand = 20 AND a.brand = 20 GROUP BY a.brand",
        "SELECT brand, COUNT(*) FROM (SELECT i.brand, s.u FROM sales s JOIN items i ON s.item = i.sk"
        " AND i.brand >= 20) GROUP BY brand",
        f"SELECT SUM(stock), AVG(stock), ROUND(SUM(price)), ROUND(SUM(stock * price)) {FROM}",
        f"SELECT AVG(t) FROM (SELECT u, SUM(stock) AS t {FROM} GROUP BY u)",
        f"SELECT i.sk, ANY_VALUE(i.kind) AS k, ANY_VALUE(i.stock) AS t, COUNT(*) {FROM} GROUP BY i.sk",
        f"SELECT i.brand // 20 AS b, i.sk, MAX(i.kind) AS k, COUNT(*) {FROM} WHERE i.sk > 1 GROUP BY b, i.sk",
        f"SELECT i.sk, COUNT(*) {FROM} GROUP BY i.sk HAVING ANY_VALUE(i.kind) = 'kind 1'",
        f"SELECT i.sk, COUNT(*) AS n {FROM} GROUP BY i.sk ORDER BY ANY_VALUE(i.stock) DESC LIMIT 2",
    ],
)
def test_as_plain_duckdb(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection, sql: str) -> None:
    found, wanted = session.execute(sql).fetchall(), raw.execute(sql).fetchall()
    found, wanted = (sorted(rows, key=repr) for rows in (found, wanted))
    assert [row[:-1] for row in found] == [row[:-1] for row in wanted]
    assert [row[-1] for row in found] == pytest.approx([row[-1] for row in wanted], rel=1e-6)


def test_a_public_table_that_changes_is_read_again(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    sql = f"SELECT i.brand, SUM(stock) {FROM} GROUP BY i.brand"
    before = len(session.execute(sql).fetchall())
    raw.execute("UPDATE items SET brand = 77, stock = 1000 WHERE sk = 7")
    after = dict(session.execute(sql).fetchall())
    assert len(after) == before + 1
    assert after[77] == 100 * 1000


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT i.kind, ANY_VALUE(i.stock), COUNT(*) {FROM} GROUP BY i.kind",
        f"SELECT s.zip, ANY_VALUE(i.stock), COUNT(*) {FROM} GROUP BY s.zip",
        "SELECT s.item, ANY_VALUE(i.kind), COUNT(*) FROM sales s LEFT JOIN items i ON s.item = i.sk AND i.brand > 10"
        " GROUP BY s.item",
        "SELECT s.item, ANY_VALUE(s.zip), COUNT(*) FROM sales s GROUP BY s.item",
    ],
)
def test_what_the_key_does_not_determine_is_refused(session: dpsql.Connection, sql: str) -> None:
    with pytest.raises(dpsql.Unsupported, match=r"several values|ANY_VALUE over many"):
        session.execute(sql)


def test_a_looked_up_column_has_no_noise_and_no_cost(session: dpsql.Connection) -> None:
    plain = session.execute(f"SELECT i.sk, COUNT(*) AS n {FROM} GROUP BY i.sk", epsilon=1)
    beside = session.execute(f"SELECT i.sk, ANY_VALUE(i.kind) AS k, COUNT(*) AS n {FROM} GROUP BY i.sk", epsilon=1)
    assert beside.receipt.recalled
    assert beside.intervals()["n"].tolist() == plain.intervals()["n"].tolist()


def test_a_test_beside_a_comma_is_not_made_of_every_pair(raw: duckdb.DuckDBPyConnection) -> None:
    """It took forever on 567 rows."""
    raw.execute("""
        INSERT INTO items SELECT i, i, 'kind', i, i, DATE '2022-01-01' FROM range(8, 3000) AS r(i);
        INSERT INTO sales SELECT i, i % 3000, 'z' FROM range(20000) AS r(i)""")
    sql = (
        "SELECT COUNT(*) FROM sales s, items i, items j WHERE s.item = i.sk AND s.item = j.sk"
        " AND (SUBSTR(s.zip, 1, 1) IN ('a', 'b') OR i.kind IN (SELECT kind FROM items WHERE sk IN (2, 3, 5)))"
    )
    schema = {
        **SCHEMA,
        "tables": {
            **SCHEMA["tables"],
            "sales": {"unit": "u", "columns": {"u": "integer", "item": "integer", "zip": "text"}},
        },
    }
    with dpsql.connect(raw, schema=schema, budget=1e15, delta=1e-6, query_epsilon=1e9) as session:
        start = time.process_time()
        assert session.execute(sql).fetchall() == raw.execute(sql).fetchall()
        assert time.process_time() - start < 5

"""References to other tables of people: joins may use them, and whoever they lead to, the persons are compared."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.schema.model import Schema

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 9, "max_rows_per_group": 9},
    "tables": {
        "orders": {
            "unit": "u",
            "columns": {"u": "integer", "id": "integer", "shop": "integer", "number": "integer", "note": "text"},
        },
        "returns": {
            "unit": "u",
            "references": [
                {"through": "order_id", "to": "orders.id"},
                {"through": ["shop", "number"], "to": ["orders.shop", "orders.number"]},
            ],
            "columns": {"u": "integer", "order_id": "integer", "shop": "integer", "number": "integer"},
        },
        "letters": {
            "unit": "u",
            "references": [{"through": "return_of", "to": "returns.order_id"}],
            "columns": {"u": "integer", "return_of": "integer"},
        },
    },
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    """Person p has the orders p and 100 + p, number p in the shops 0 and 1; person 7 returned an order of person 8."""
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE orders AS SELECT i % 100 AS u, i AS id, i // 100 AS shop, i % 100 AS number, 'x' AS note
                FROM range(200) AS r(i);
            CREATE TABLE returns AS SELECT u, id AS order_id, shop, number FROM orders WHERE id < 60;
            INSERT INTO returns VALUES (7, 8, 0, 8);
            CREATE TABLE letters AS SELECT u, order_id AS return_of FROM returns WHERE order_id < 30 AND u <> 7""")
        yield connection


@pytest.fixture(scope="module")
def session(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9) as connection:
        yield connection


SAME_PERSON = "o.u = r.u"
JOINED = [
    "SELECT COUNT(*) FROM orders o JOIN returns r ON o.id = r.order_id AND {}",
    "SELECT COUNT(*) FROM orders o, returns r WHERE r.order_id = o.id AND {}",
    "SELECT COUNT(*) FROM orders o JOIN returns r ON o.shop = r.shop AND r.number = o.number AND {}",
    "SELECT COUNT(*) FROM orders o JOIN returns r ON r.number = o.number AND {} WHERE o.shop = r.shop",
    "SELECT COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM returns r WHERE r.order_id = o.id AND {})",
    "SELECT COUNT(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM returns r WHERE r.order_id = o.id AND {})",
    "SELECT COUNT(*), COUNT(r.u) FROM orders o LEFT JOIN returns r ON o.id = r.order_id AND {}",
    "SELECT COUNT(*), COUNT(o.u) FROM orders o FULL JOIN returns r ON o.id = r.order_id AND {}",
    "SELECT COUNT(*) FROM orders o JOIN (SELECT r.u, l.return_of FROM returns r JOIN letters l"
    " ON l.return_of = r.order_id AND l.u = r.u) r ON r.return_of = o.id AND {}",
]


@pytest.mark.parametrize("sql", JOINED)
def test_a_reference_stands_for_the_equality_of_persons(
    raw: duckdb.DuckDBPyConnection, session: dpsql.Connection, sql: str
) -> None:
    """Also where a row refers to another person's: it has no partner then."""
    expected = raw.execute(sql.format(SAME_PERSON)).fetchall()
    assert session.execute(sql.replace(" AND {}", "")).fetchall() == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM orders o JOIN returns r ON o.number = r.number",
        "SELECT COUNT(*) FROM orders o JOIN returns r ON o.id = r.number",
        "SELECT COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM returns r WHERE r.shop = o.shop)",
        # The two parts of the key, of two different orders.
        "SELECT COUNT(*) FROM orders o JOIN orders p ON o.u = p.u JOIN returns r ON r.shop = o.shop"
        " AND r.number = p.number",
        "SELECT COUNT(*) FROM orders o JOIN returns r ON o.shop = r.shop AND o.number <= r.number",
        "SELECT COUNT(*) FROM (SELECT number FROM orders EXCEPT SELECT number FROM returns)",
    ],
)
def test_less_than_the_key_does_not(session: dpsql.Connection, sql: str) -> None:
    with pytest.raises(dpsql.Unsupported, match=r"same unit|different people"):
        session.execute(sql)


def test_a_key_of_two_columns_keeps_people_apart(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    sql = (
        "SELECT COUNT(*), AVG(n) FROM (SELECT shop, number, COUNT(*) AS n FROM orders"
        " WHERE shop IS NOT NULL AND number IS NOT NULL GROUP BY shop, number)"
    )
    assert session.execute(sql).fetchall() == raw.execute(sql).fetchall() == [(200, 1.0)]
    with pytest.raises(dpsql.Unsupported, match="NULL for some"):
        session.execute("SELECT COUNT(*) FROM (SELECT shop, number FROM returns GROUP BY shop, number)")


@pytest.fixture(scope="module")
def unmatched(session: dpsql.Connection, raw: duckdb.DuckDBPyConnection) -> Any:
    """Most orders have no return, so that the group of NULL is of many people."""

    def both(sql: str) -> tuple[Any, Any]:
        return session.execute(sql).fetchall(), raw.execute(sql).fetchall()

    return both


GROUPED = (
    "SELECT r.order_id, COUNT(*) AS n, MAX(r.shop) AS s, SUM(o.number) AS t FROM orders o"
    " LEFT JOIN returns r ON r.order_id = o.id AND r.u = o.u GROUP BY r.order_id"
)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM ({}) WHERE order_id IS NOT NULL",
        "SELECT COUNT(*) FROM ({} HAVING r.order_id IS NOT NULL)",
        "SELECT COUNT(*) FROM ({}) WHERE s >= 0 AND n > 0",
        "SELECT COUNT(order_id), COUNT(DISTINCT order_id), COUNT(s) FROM ({})",
        "SELECT COUNT(order_id + s) FROM (SELECT order_id, s FROM ({}))",
        "SELECT COUNT(*) FROM orders o JOIN ({}) g ON g.order_id = o.id WHERE g.n = 1",
        "SELECT COUNT(*), COUNT(g.n) FROM orders o LEFT JOIN ({}) g ON g.order_id = o.id",
        "SELECT COUNT(*) FROM orders WHERE id IN (SELECT order_id FROM ({}) WHERE n > 0)",
        "SELECT COUNT(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM ({}) g WHERE g.order_id = o.id AND g.n > 0)",
        "SELECT COUNT(*) FROM (SELECT DISTINCT order_id FROM returns) WHERE order_id > 8",
    ],
)
def test_a_group_of_null_that_does_not_matter(unmatched: Any, sql: str) -> None:
    found, wanted = unmatched(sql.format(GROUPED))
    assert found == wanted


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM ({})",
        "SELECT COUNT(n), COUNT(t) FROM ({})",
        "SELECT COUNT(*) FROM ({}) WHERE n > 1",
        "SELECT COUNT(*) FROM ({}) WHERE order_id IS NULL OR n > 1",
        "SELECT COUNT(COALESCE(order_id, 0)) FROM ({})",
        "SELECT s, COUNT(order_id) FROM ({}) GROUP BY s",
        "SELECT COUNT(g.s) FROM ({}) g LEFT JOIN orders o ON g.order_id = o.id",
        "SELECT COUNT(*) FROM ({}) g FULL JOIN orders o ON g.order_id = o.id",
        "SELECT COUNT(*) FROM orders WHERE id NOT IN (SELECT order_id FROM ({}))",
        "SELECT COUNT(*) FROM (SELECT order_id FROM ({}) UNION ALL SELECT id FROM orders)",
        "SELECT COUNT(x) FROM (SELECT n AS x, order_id FROM ({}))",
        "SELECT COUNT(order_id) FROM (SELECT order_id, COUNT(*) AS n FROM ({}) GROUP BY order_id)",
        "SELECT COUNT(*) FROM (SELECT DISTINCT order_id FROM returns)",
    ],
)
def test_a_group_of_null_that_may_matter_is_refused(session: dpsql.Connection, sql: str) -> None:
    with pytest.raises(dpsql.Unsupported) as caught:
        session.execute(sql.format(GROUPED))
    assert "is NULL for some" in caught.value.problem or "unit" in caught.value.problem


def test_persons_are_compared_whatever_a_key_refers_to(session: dpsql.Connection) -> None:
    """Without the comparison of units an order of person 8 would count for person 7."""
    (release,) = session.explain("SELECT COUNT(*) FROM orders o JOIN returns r ON o.id = r.order_id").releases
    assert release.sql.count('"u" AS _unit') == 2


def test_who_does_not_see_a_key_has_no_reference_to_it(raw: duckdb.DuckDBPyConnection) -> None:
    schema = copy.deepcopy(SCHEMA)
    schema["tables"]["orders"]["columns"]["id"] = {"type": "integer", "analysts": ["ann"]}
    seen = {name: Schema.model_validate(schema).seen_by(name).tables["returns"].references for name in ("ann", "bob")}
    assert [one.through for one in seen["ann"]] == [("order_id",), ("shop", "number")]
    assert [one.through for one in seen["bob"]] == [("shop", "number")]
    with dpsql.connect(raw, schema=schema, budget=1e15, delta=1e-6, query_epsilon=1e9, analyst="bob") as session:
        assert session.execute(JOINED[2].replace(" AND {}", "")).fetchall() == [(60,)]
        with pytest.raises(dpsql.Unsupported, match="same unit"):
            session.execute("SELECT COUNT(*) FROM orders o JOIN returns r ON o.number = r.order_id")

"""Public groups are those that can be: none outside what WHERE and the declarations leave, and all inside it."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import duckdb
import pytest

import dpsql

FIRST, LAST = datetime(2021, 11, 1), datetime(2023, 6, 30, 18)
SCHEMA: dict[str, Any] = {
    "dataset": "events",
    "tables": {
        "events": {
            "unit": "uid",
            "unique": True,
            "columns": {
                "uid": "integer",
                "ts": {"type": "timestamp", "bounds": ["2021-11-01", "2023-06-30 23:59:59"]},
                "day": {"type": "date", "bounds": ["2021-11-01", "2023-06-30"]},
                "born": {"type": "date", "bounds": ["2021-11-01", "2023-06-30"]},
                "price": {"type": "decimal(6,2)", "bounds": [0, 100]},
                "items": {"type": "integer", "bounds": [0, 20]},
                "note": {"type": "date", "bounds": ["2021-11-01", "2023-06-30"], "nullable": True},
            },
        }
    },
}


@pytest.fixture(scope="module")
def dense() -> duckdb.DuckDBPyConnection:
    """A row in every six hours of the declared range, so that every bucket that can be has somebody in it."""
    raw = duckdb.connect()
    raw.execute(
        f"""CREATE TABLE events AS SELECT i AS uid, TIMESTAMP '{FIRST}' + INTERVAL (i * 6) HOUR AS ts, ts::DATE AS day,
        ts::DATE AS born, ((i % 401) / 4)::DECIMAL(6, 2) AS price, i % 21 AS items,
        CASE WHEN i % 2 = 0 THEN ts::DATE END AS note FROM range({(LAST - FIRST) // timedelta(hours=6) + 1}) AS r(i)"""
    )
    return raw


@pytest.fixture(scope="module")
def session(dense: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    with pytest.warns(Warning, match="protects against little"):
        return dpsql.connect(dense, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e6)


def groups(rows: list[tuple[Any, ...]]) -> set[tuple[str, ...]]:
    return {tuple(map(str, row[:-1])) for row in rows}


# The time filters of three BI tools, with the ends of one range, by day, week, month and quarter.
FILTERS = {
    "half-open": "{ts} >= '{low}' AND {ts} < '{high}'",
    "Superset": "{ts} >= TIMESTAMP '{low} 00:00:00.000000' AND {ts} < TIMESTAMP '{high} 00:00:00.000000'",
    "Superset on PostgreSQL": "{ts} >= TO_TIMESTAMP('{low} 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') "
    "AND {ts} < TO_TIMESTAMP('{high} 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')",
    "Metabase": "{ts} >= DATE '{low}' AND {ts} < DATE '{low}' + INTERVAL {days} DAY",
    "Metabase, truncated": "DATE_TRUNC('day', {ts}) >= DATE '{low}' AND DATE_TRUNC('day', {ts}) < DATE '{high}'",
    "Metabase, cast": "CAST({ts} AS DATE) BETWEEN DATE '{low}' AND DATE '{last}'",
    "Grafana": "{ts} BETWEEN '{low} 00:00:00' AND '{last} 23:59:59.999'",
    "Superset, a date": "{ts} >= DATE '{low}' AND {ts} < DATE '{high}'",
    "Metabase, a month": "DATE_TRUNC('month', CAST({ts} AS timestamp)) = "
    "DATE_TRUNC('month', CAST('{low}' AS timestamp))",
    "Grafana, a macro": "{ts} BETWEEN '{low}T00:00:00Z' AND '{last}T23:59:59Z'",
    "one end": "{ts} < '{high}'",
}
RANGES = [("2022-03-05", 1), ("2022-01-31", 7), ("2022-02-01", 28), ("2022-10-01", 92), ("2021-11-15", 500)]
BUCKETS = [
    "YEAR({ts})",
    "MONTH({ts})",
    "WEEK({ts})",
    "DAYOFYEAR({ts})",
    "YEAR({ts}), MONTH({ts})",
    "YEAR({ts}), QUARTER({ts})",
    "DATE_TRUNC('day', {ts})",
    "DATE_TRUNC('week', {ts})",
    "CAST(DATE_TRUNC('week', {ts} + INTERVAL 1 DAY) AS DATE) - 1",
    "DATE_TRUNC('month', {ts})",
    "CAST(DATE_TRUNC('quarter', {ts}) AS DATE)",
    "STRFTIME({ts}, '%Y-%m')",
    "MONTHNAME({ts})",
    "DAYNAME({ts})",
    "TIME_BUCKET(INTERVAL 7 DAY, {ts})",
    "FLOOR(EXTRACT(epoch FROM {ts}) / 86400) * 86400",
    "DATE_TRUNC('week', CAST({ts} AS TIMESTAMP))",
    "DATE_DIFF('month', DATE '2021-01-01', {ts})",
    "CASE WHEN MONTH({ts}) < 4 THEN 'spring' ELSE 'later' END",
]


@pytest.mark.parametrize("column", ["ts", "day"])
@pytest.mark.parametrize("written", FILTERS.values(), ids=FILTERS)
def test_buckets_of_bi_filters(
    column: str, written: str, session: dpsql.Connection, dense: duckdb.DuckDBPyConnection
) -> None:
    for number, (low, days) in enumerate(RANGES):
        start = date.fromisoformat(low)
        ends = {"low": low, "high": start + timedelta(days), "last": start + timedelta(days - 1), "days": days}
        where = written.format(ts=column, **ends)
        plain_where = where.replace("TO_TIMESTAMP", "STRPTIME").replace(
            "YYYY-MM-DD HH24:MI:SS.US", "%Y-%m-%d %H:%M:%S.%f"
        )
        for bucket in BUCKETS[number % 4 :: 4]:
            sql = f"SELECT {bucket.format(ts=column)}, COUNT(*) AS n FROM events WHERE {where} GROUP BY ALL"
            plain = dense.execute(sql.replace(where, plain_where)).fetchall()
            assert groups(session.execute(sql).fetchall()) == groups(plain), sql


CASES = [
    # A question whose groups are those of plain SQL over data with a row in every bucket that can be.
    "SELECT HOUR(ts) // 6, COUNT(*) FROM events WHERE ts >= '2022-01-01 06:00' AND ts < '2022-01-01 18:00' GROUP BY 1",
    "SELECT day, COUNT(*) FROM events WHERE day > '2022-01-01' AND day <= TIMESTAMP '2022-01-04 10:00' GROUP BY 1",
    "SELECT day, COUNT(*) FROM events WHERE day >= TIMESTAMP '2022-01-01 01:00' AND day < '2022-01-05' GROUP BY 1",
    "SELECT items, COUNT(*) FROM events WHERE items < 4.0 AND items > 1 GROUP BY 1",
    "SELECT FLOOR(price), COUNT(*) FROM events WHERE price < 50 GROUP BY 1",
    "SELECT YEAR(ts), COUNT(*) FROM events WHERE YEAR(ts) IN (2021, 2022) GROUP BY 1",
    "SELECT DATE_TRUNC('month', ts), COUNT(*) FROM events WHERE '2022-06-01' > DATE_TRUNC('quarter', ts) GROUP BY 1",
    "SELECT day, COUNT(*) FROM events WHERE DATE_TRUNC('week', day) = '2022-01-03' GROUP BY 1",
    "SELECT DATE_TRUNC('month', ts), COUNT(*) FROM events WHERE MONTH(ts) IN (1, 2) GROUP BY 1",
    "SELECT DATE_TRUNC('month', ts), COUNT(*) FROM events WHERE DAYNAME(ts) = 'Monday' GROUP BY 1",
    "SELECT DATE_TRUNC('week', day), DAYNAME(day), COUNT(*) FROM events WHERE day < '2021-12-04' GROUP BY 1, 2",
    "SELECT MONTH(ts), COUNT(*) FROM events WHERE ts >= '2022-11-01' AND ts < '2023-03-01' GROUP BY 1",
    "SELECT m, COUNT(*) FROM (SELECT uid, MONTH(ts) AS m FROM events WHERE ts < '2022-02-01') GROUP BY 1",
    "SELECT MONTH(note), COUNT(*) FROM events WHERE day < '2022-02-01' AND note < '2022-02-01' GROUP BY 1",
]


@pytest.mark.parametrize("sql", CASES)
def test_groups_are_those_that_can_be(sql: str, session: dpsql.Connection, dense: duckdb.DuckDBPyConnection) -> None:
    found, expected = session.execute(sql).fetchall(), dense.execute(sql).fetchall()
    assert groups(found) == groups(expected)
    assert sum(row[-1] for row in found) == sum(row[-1] for row in expected)


SHOP: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 10, "max_rows_per_group": 10},
    "tables": {
        "customers": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "signup": {"type": "date", "bounds": ["2022-01-01", "2022-06-30"]}},
        },
        "orders": {
            "unit": "customer",
            "columns": {"customer": "integer", "ts": {"type": "timestamp", "bounds": ["2022-01-01", "2022-12-31"]}},
        },
    },
}
JOINED = "orders JOIN customers ON customer = id"
FIRST_ORDER = (
    "orders JOIN (SELECT customer AS id, MIN(ts) AS signup FROM orders GROUP BY customer) AS f ON customer = id"
)
COHORT = "SELECT DATE_TRUNC('month', signup), DATE_DIFF('month', signup, ts), COUNT(*) FROM {} {} GROUP BY 1, 2"
COHORTS = [
    # question, number of groups, least age
    (COHORT.format(JOINED, "WHERE ts >= signup"), sum(12 - month for month in range(6)), 0),
    (COHORT.format(JOINED, "WHERE signup < ts AND ts < '2022-07-01'"), 21, 0),
    (COHORT.format(JOINED, ""), 6 * 12, -5),
    (COHORT.format(FIRST_ORDER, "WHERE ts >= signup"), sum(12 - month for month in range(12)), 0),
]


@pytest.mark.parametrize(("sql", "number", "youngest"), COHORTS)
def test_cohorts_have_no_null_and_no_age_that_cannot_be(sql: str, number: int, youngest: int) -> None:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE customers (id BIGINT, signup DATE)")
    raw.execute("CREATE TABLE orders (customer BIGINT, ts TIMESTAMP)")
    rows = dpsql.connect(raw, schema=SHOP, budget=10, delta=1e-6).execute(sql).fetchall()
    assert len(rows) == number
    assert min(row[1] for row in rows) == youngest
    assert all(row[0] is not None for row in rows)


def test_rows_outside_the_range_are_in_no_group() -> None:
    """What the WHERE leaves out is counted nowhere: the answers with and without it are equal."""
    answers = []
    for later in ("2022-01-31 23:59:59.999999", "2022-02-01", "2023-05-05"):
        raw = duckdb.connect()
        raw.execute("CREATE TABLE customers (id BIGINT, signup DATE)")
        raw.execute("CREATE TABLE orders AS SELECT i AS customer, TIMESTAMP '2022-01-05' AS ts FROM range(50) AS r(i)")
        raw.execute(f"INSERT INTO orders VALUES (99, TIMESTAMP '{later}')")
        with pytest.warns(Warning, match="protects against little"):
            session = dpsql.connect(raw, schema=SHOP, budget=1e15, delta=1e-6, query_epsilon=1e6)
        sql = "SELECT MONTH(ts), COUNT(*) FROM orders WHERE ts < '2022-02-01' GROUP BY 1"
        answers.append(session.execute(sql).fetchall())
    assert answers == [[(1, 51)], [(1, 50)], [(1, 50)]]

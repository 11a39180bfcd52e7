"""What privacy costs on PostgreSQL and Spark: whole questions against the plain query on the same server.

    python benchmarks/bench_servers.py [postgresql] [spark]

Both servers are our own, on this machine. Contenders take turns, and of each the best time counts. Between the two
stands the floor: what the same server takes to sum up each person's rows, by group where there are groups, and no more.
Only where people with few rows are not summed one by one can a question do with less. Ends with code 1 when a ratio is
above the goal of its server.

On PostgreSQL orders are joined with customers too, by five questions whose conditions leave few rows: there the
planner expects one row and would compare each with each. They are expected to take at most 10 times the plain query or
twice the floor.
"""

from __future__ import annotations

import runpy
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import duckdb

import dpsql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).parents[1] / "tests" / "engines"
ROWS, UNITS, REGIONS, PRODUCTS = 1_000_000, 100_000, 20, 2_000
REPETITIONS = 7
GOALS = {"postgresql": 8.0, "spark": 6.0}
TIMES_PLAIN_OR_FLOOR = 10.0, 2.0
CUSTOMERS = f"""
    SELECT n AS customer_id, 'k' || hash(n, 6) % 5 AS kind, CAST(hash(n, 7) % 80 AS BIGINT) + 16 AS age,
        'town ' || hash(n, 8) % 500 AS town
    FROM range({UNITS}) AS numbers(n)
"""
ORDERS = f"""
    SELECT CAST(hash(n) % {UNITS} AS BIGINT) AS customer_id, 'r' || hash(n, 1) % {REGIONS} AS region,
        'p' || hash(n, 2) % {PRODUCTS} AS product, DATE '2025-01-01' + CAST(hash(n, 3) % 365 AS INTEGER) AS day,
        CAST(hash(n, 4) % 50000 AS DOUBLE) / 100 AS amount, CAST(hash(n, 5) % 100 AS DOUBLE) / 100 AS discount
    FROM range({ROWS}) AS numbers(n)
"""
SCHEMA: dict[str, Any] = {
    "dataset": "bench",
    "contribution": {"max_groups": 3, "max_rows_per_group": 10},
    "tables": {
        "orders": {
            "unit": "customer_id",
            "columns": {
                "customer_id": "integer",
                "region": {"type": "text", "values": [f"r{number}" for number in range(REGIONS)]},
                "product": "text",
                "day": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"]},
                "amount": {"type": "double", "bounds": [0, 500]},
                "discount": {"type": "double", "bounds": [0, 1]},
            },
        },
        "customers": {
            "unit": "customer_id",
            "unique": True,
            "columns": {
                "customer_id": "integer",
                "kind": {"type": "text", "values": [f"k{number}" for number in range(5)]},
                "age": {"type": "integer", "bounds": [0, 120]},
                "town": "text",
            },
        },
    },
}
MONTH, MEDIAN = "EXTRACT(month FROM day)", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY amount)"
QUESTIONS = {
    "count": ("SELECT COUNT(*) FROM orders", None, "", "COUNT(*)"),
    "count by region": ("SELECT region, COUNT(*) FROM orders GROUP BY region", None, "region", "COUNT(*)"),
    "sum of doubles": ("SELECT SUM(amount) FROM orders", None, "", "SUM(amount)"),
    "count, sum, average by region": (
        "SELECT region, COUNT(*), SUM(amount), AVG(amount) FROM orders GROUP BY region",
        None,
        "region",
        "SUM(amount) + COUNT(*)",
    ),
    "sum of an expression by month": (
        f"SELECT {MONTH}, SUM(amount * (1 - discount)) FROM orders GROUP BY {MONTH}",
        None,
        MONTH,
        "SUM(amount * (1 - discount))",
    ),
    "count by product, not public": (
        "SELECT product, COUNT(*) FROM orders GROUP BY product",
        None,
        "product",
        "COUNT(*)",
    ),
    "people": ("SELECT COUNT(DISTINCT customer_id) FROM orders", None, "", "1"),
    "median": ("SELECT MEDIAN(amount) FROM orders", f"SELECT {MEDIAN} FROM orders", "", "SUM(amount)"),
}
"""A question, its plain words if they are others, its key, and what of a person's rows is summed."""
JOIN = "FROM orders JOIN customers USING (customer_id)"
FEW = "product = 'p7' AND region = 'r3' AND amount > 100 AND age > 30 AND kind = 'k1'"
JOINS = {
    "join, five conditions": ("COUNT(*)", "", JOIN, FEW, "COUNT(*)"),
    "join, sum by kind": ("kind, SUM(amount)", "kind", JOIN, "age BETWEEN 20 AND 40", "SUM(amount)"),
    "join, average by region in spring": (
        *("region, AVG(amount)", "region", JOIN),
        *("kind = 'k2' AND day BETWEEN '2025-03-01' AND '2025-05-31'", "SUM(amount) + COUNT(*)"),
    ),
    "join, a town": ("COUNT(*), SUM(amount)", "", JOIN, "town = 'town 17'", "SUM(amount) + COUNT(*)"),
    "people with an order": (
        *("COUNT(*)", "", "FROM customers"),
        "EXISTS (SELECT 1 FROM orders WHERE orders.customer_id = customers.customer_id AND amount > 490)",
        "COUNT(*)",
    ),
}
"""What is selected, its key, the tables, the conditions, and what of a person's rows is summed."""


@contextmanager
def postgresql(parquet: Path) -> Iterator[tuple[object, Callable[[str], object]]]:
    import psycopg

    columns = "customer_id BIGINT, region TEXT, product TEXT, day DATE, amount FLOAT8, discount FLOAT8"
    cluster = runpy.run_path(str(TESTS / "postgresql_cluster.py"))["cluster"]
    with cluster() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE orders ({columns})".encode())
        connection.execute("CREATE TABLE customers (customer_id BIGINT PRIMARY KEY, kind TEXT, age BIGINT, town TEXT)")
        for name, rows in (("orders", f"FROM '{parquet}/*.parquet'"), ("customers", CUSTOMERS)):
            with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                for row in duckdb.sql(rows).fetchall():
                    copy.write_row(row)
        connection.execute("VACUUM ANALYZE")
        yield url, lambda sql: connection.execute(sql.encode()).fetchall()


@contextmanager
def spark(parquet: Path) -> Iterator[tuple[object, Callable[[str], object]]]:
    with runpy.run_path(str(TESTS / "spark_session.py"))["session"]() as (session, _):
        session.sql(f"CREATE TABLE orders USING parquet LOCATION '{parquet}'")
        yield session, lambda sql: session.sql(sql).collect()


def floor(key: str, summed: str, rows: str = "FROM orders") -> str:
    """Each person's rows are summed up, and then all people; bounded by so much that nothing is lost, since else the
    planner of Spark makes one sum of both."""
    keys = f"customer_id, {key}" if key else "customer_id"
    shown = f", {key} AS k" if key else ""
    each = f"SELECT {summed} AS s{shown} {rows} GROUP BY {keys}"
    return f"SELECT SUM(LEAST(s, 1000000000)) FROM ({each}) AS each_person {'GROUP BY k' if key else ''}"


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def is_met(server: str, parquet: Path) -> bool:
    opened = {"postgresql": postgresql, "spark": spark}[server]
    print(
        f"{server}: {ROWS:,} rows of {UNITS:,} people, seconds (best of {REPETITIONS}): plainly, the floor, privately; "
        f"the goal is {GOALS[server]} x"
    )
    met = True
    with opened(parquet) as (source, plainly):
        schema = SCHEMA if server == "postgresql" else SCHEMA | {"tables": {"orders": SCHEMA["tables"]["orders"]}}
        options: dict[str, Any] = {"schema": schema, "budget": 1e9, "delta": 1e-6, "ledger": ":memory:"}
        with dpsql.connect(source, query_epsilon=1, **options) as connection:
            for name, (question, plain, key, summed) in QUESTIONS.items():
                against, _, whole = measured(name, (question, plain, floor(key, summed)), plainly, connection)
                met &= whole <= GOALS[server] * against
            for name, (shown, key, rows, where, summed) in JOINS.items() if server == "postgresql" else ():
                question = f"SELECT {shown} {rows} WHERE {where} {f'GROUP BY {key}' if key else ''}"
                times = measured(
                    name, (question, None, floor(key, summed, f"{rows} WHERE {where}")), plainly, connection
                )
                times_plain, times_floor = TIMES_PLAIN_OR_FLOOR
                met &= times[2] <= max(times_plain * times[0], times_floor * times[1])
    return met


def measured(
    name: str, asked: tuple[str, str | None, str], plainly: Callable[[str], object], connection: dpsql.Connection
) -> tuple[float, float, float]:
    """Seconds of the plain query, the floor and the private query, whose words are `asked`."""
    question, plain, least_sql = asked
    contenders: list[Callable[[], object]] = [
        partial(plainly, plain or question),
        partial(plainly, least_sql),
        partial(connection.execute, question, fresh=True),
    ]
    rounds = [[seconds(work) for work in contenders] for _ in range(REPETITIONS)]
    against, least, whole = (min(times) for times in zip(*rounds, strict=True))
    ratios = f"{least / against:>8.1f} x{whole / against:>8.1f} x"
    print(f"{name:<34}{against:>8.3f}{least:>8.3f}{whole:>8.3f}{ratios}", flush=True)
    return against, least, whole


def main(servers: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        duckdb.sql(f"COPY ({ORDERS}) TO '{folder}/orders.parquet'")
        Path(folder).chmod(0o755)
        met = [is_met(server, Path(folder)) for server in servers]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["postgresql", "spark"]))

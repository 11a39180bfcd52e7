"""What privacy costs on PostgreSQL and Spark: eight whole questions against the plain query on the same server.

    python benchmarks/bench_servers.py [postgresql] [spark]

Both servers are our own, on this machine. Contenders take turns, and of each the best time counts. Ends with code 1
when a ratio is above the goal of its server.
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
REPETITIONS = 3
GOALS = {"postgresql": 8.0, "spark": 6.0}
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
        }
    },
}
MONTH, MEDIAN = "EXTRACT(month FROM day)", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY amount)"
QUESTIONS = {
    "count": ("SELECT COUNT(*) FROM orders",) * 2,
    "count by region": ("SELECT region, COUNT(*) FROM orders GROUP BY region",) * 2,
    "sum of doubles": ("SELECT SUM(amount) FROM orders",) * 2,
    "count, sum, average by region": ("SELECT region, COUNT(*), SUM(amount), AVG(amount) FROM orders GROUP BY region",)
    * 2,
    "sum of an expression by month": (f"SELECT {MONTH}, SUM(amount * (1 - discount)) FROM orders GROUP BY {MONTH}",)
    * 2,
    "count by product, not public": ("SELECT product, COUNT(*) FROM orders GROUP BY product",) * 2,
    "people": ("SELECT COUNT(DISTINCT customer_id) FROM orders",) * 2,
    "median": ("SELECT MEDIAN(amount) FROM orders", f"SELECT {MEDIAN} FROM orders"),
}
"""A question, and what a server is asked plainly."""


@contextmanager
def postgresql(parquet: Path) -> Iterator[tuple[object, Callable[[str], object]]]:
    import psycopg

    columns = "customer_id BIGINT, region TEXT, product TEXT, day DATE, amount FLOAT8, discount FLOAT8"
    cluster = runpy.run_path(str(TESTS / "postgresql_cluster.py"))["cluster"]
    with cluster() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE orders ({columns})".encode())
        with connection.cursor().copy("COPY orders FROM STDIN") as copy:
            for row in duckdb.sql(f"FROM '{parquet}/*.parquet'").fetchall():
                copy.write_row(row)
        connection.execute("ANALYZE orders")
        yield url, lambda sql: connection.execute(sql.encode()).fetchall()


@contextmanager
def spark(parquet: Path) -> Iterator[tuple[object, Callable[[str], object]]]:
    with runpy.run_path(str(TESTS / "spark_session.py"))["session"]() as (session, _):
        session.sql(f"CREATE TABLE orders USING parquet LOCATION '{parquet}'")
        yield session, lambda sql: session.sql(sql).collect()


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def is_met(server: str, parquet: Path) -> bool:
    opened = {"postgresql": postgresql, "spark": spark}[server]
    print(
        f"{server}: {ROWS:,} rows of {UNITS:,} people, seconds (best of {REPETITIONS}); the goal is {GOALS[server]} x"
    )
    worst = 0.0
    with opened(parquet) as (source, plainly):
        options: dict[str, Any] = {"schema": SCHEMA, "epsilon": 1e9, "delta": 1e-6, "ledger": ":memory:"}
        with dpsql.connect(source, query_epsilon=1, **options) as connection:
            for name, (question, plain) in QUESTIONS.items():
                ask = partial(connection.execute, question, fresh=True)
                pairs = [(seconds(partial(plainly, plain)), seconds(ask)) for _ in range(REPETITIONS)]
                against, whole = (min(times) for times in zip(*pairs, strict=True))
                worst = max(worst, whole / against)
                print(f"{name:<34}{against:>8.2f}{whole:>8.2f}{whole / against:>8.1f} x", flush=True)
    return worst <= GOALS[server]


def main(servers: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        duckdb.sql(f"COPY ({ORDERS}) TO '{folder}/orders.parquet'")
        Path(folder).chmod(0o755)
        met = [is_met(server, Path(folder)) for server in servers]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["postgresql", "spark"]))

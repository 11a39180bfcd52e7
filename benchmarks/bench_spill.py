"""DuckDB with 2 GB of memory: releases over 50 million rows of 5 million people finish, by spilling to the disk.

    python benchmarks/bench_spill.py [rows, 50000000 if not given]

For each release the seconds of the processor, what DuckDB wrote to its temporary directory at most, and the most memory
that this process ever had. Ends with code 1 if a release fails.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import duckdb

import dpsql

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, ROWS_PER_PERSON, REGIONS, PRODUCTS, MEMORY = 50_000_000, 10, 20, 2_000, "2GB"
SCHEMA: dict[str, Any] = {
    "dataset": "spill",
    "contribution": {"max_groups": 3, "max_rows_per_group": 10},
    "tables": {
        "orders": {
            "unit": "customer_id",
            "columns": {
                "customer_id": "integer",
                "region": {"type": "text", "values": [f"r{number}" for number in range(REGIONS)]},
                "product": "text",
                "amount": {"type": "double", "bounds": [0, 500]},
            },
        }
    },
}
QUESTIONS = {
    "count": "SELECT COUNT(*) FROM orders",
    "count, sum, average by region": "SELECT region, COUNT(*), SUM(amount), AVG(amount) FROM orders GROUP BY region",
    "count by product, not public": "SELECT product, COUNT(*) FROM orders GROUP BY product",
    "median": "SELECT MEDIAN(amount) FROM orders",
}


def write_orders(database: Path, rows: int) -> None:
    people = rows // ROWS_PER_PERSON
    orders = f"""
        CREATE TABLE orders AS
        SELECT CAST(hash(n) % {people} AS BIGINT) AS customer_id, 'r' || hash(n, 1) % {REGIONS} AS region,
            'p' || hash(n, 2) % {PRODUCTS} AS product, CAST(hash(n, 4) % 50000 AS DOUBLE) / 100 AS amount
        FROM range({rows}) AS numbers(n)
    """
    with duckdb.connect(database, config={"memory_limit": MEMORY, "preserve_insertion_order": False}) as connection:
        connection.execute(orders)


@contextmanager
def watched(folder: Path) -> Iterator[list[int]]:
    """The most bytes that ever were in a folder, as the only number of a list."""
    most, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            sizes = [file.stat().st_size for file in folder.glob("*") if file.exists()]
            most[0] = max(most[0], sum(sizes))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield most
    finally:
        done.set()
        watching.join()


def main(rows: int) -> int:
    with tempfile.TemporaryDirectory(prefix="dpsql_spill_") as own:
        database, spilled = Path(own) / "orders.duckdb", Path(own) / "spilled"
        spilled.mkdir()
        write_orders(database, rows)
        print(f"{rows:,} rows of {rows // ROWS_PER_PERSON:,} people, memory_limit {MEMORY}", flush=True)
        settings = {"memory_limit": MEMORY, "temp_directory": str(spilled)}
        with (
            duckdb.connect(database, config=settings) as source,
            dpsql.connect(source, schema=SCHEMA, budget=1e9, delta=1e-6, query_epsilon=1, ledger=":memory:") as asked,
        ):
            for name, sql in QUESTIONS.items():
                started, before = perf_counter(), process_time()
                with watched(spilled) as most:
                    answer = asked.execute(sql).fetchall()
                seconds = f"{process_time() - before:7.1f} s of the processor, {perf_counter() - started:7.1f} s"
                print(f"{name:<32}{seconds}, {most[0] / 2**20:8,.0f} MB spilled, {len(answer):,} rows", flush=True)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"this process had {memory:,.0f} MB at most")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS))

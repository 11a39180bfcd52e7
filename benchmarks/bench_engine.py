"""What privacy costs: whole questions against the plain query in the same engine, as ratios of CPU time.

    python benchmarks/bench_engine.py [ROWS] [WORD ...]

The floor, where people have several rows, is the aggregation by unit and keys alone: only where people with few rows
are not summed one by one can a question do with less. Contenders take turns on one thread, and of each the median
time counts. Ends with code 1 when a ratio is above its target.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING

import duckdb

import dpsql

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, ROWS_PER_UNIT, REGIONS, PRODUCTS, DAYS = 2_000_000, 10, 50, 10_000, 30
REPETITIONS = 15

UNIFORM = ", ".join(
    f"(hash(hash('{name}', n)) >> 11) / 9007199254740992.0 AS {name}"
    for name in ("unit", "region", "product", "day", "amount")
)
VALUES = f"""
    'r' || CAST(floor({REGIONS} * region) AS INTEGER) AS region,
    'p' || CAST(floor({PRODUCTS} * pow(product, 2)) AS INTEGER) AS product,
    DATE '2025-01-01' + CAST(floor({DAYS} * day) AS INTEGER) AS day,
    round(600 * pow(amount, 2), 2) AS amount
    FROM (SELECT n, {UNIFORM} FROM numbers)"""
COLUMNS = {
    "region": {"type": "text", "values": [f"r{number}" for number in range(REGIONS)]},
    "product": "text",
    "day": {"type": "date", "bounds": ["2025-01-01", "2025-01-30"]},
    "amount": {"type": "double", "bounds": [0, 500]},
}
SCHEMA = {
    "dataset": "bench",
    "contribution": {"max_groups": 3, "max_rows_per_group": 5},
    "tables": {
        "orders": {"unit": "customer_id", "columns": {"customer_id": "integer", **COLUMNS}},
        "people": {"unit": "id", "unique": True, "columns": {"id": "integer", **COLUMNS}},
    },
}
SUMS = "COUNT(*), SUM(amount), AVG(amount)"


def create_tables(database: duckdb.DuckDBPyConnection, rows: int, units: int) -> None:
    database.execute(f"CREATE TEMP VIEW numbers AS SELECT range AS n FROM range({rows})")
    owner = f"CAST(floor({units} * pow(unit, 1.5)) AS INTEGER) AS customer_id"
    database.execute(f"CREATE TABLE orders AS SELECT {owner}, {VALUES}")
    database.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, region VARCHAR, product VARCHAR, day DATE, amount DOUBLE)"
    )
    database.execute(f"INSERT INTO people SELECT n, {VALUES}")


@dataclass(frozen=True)
class Contest:
    name: str
    table: str
    keys: str
    groups: int
    target: float
    answers: str = SUMS

    @property
    def question(self) -> str:
        return f"SELECT {self.keys}, {self.answers} FROM {self.table} GROUP BY {self.keys}"

    @property
    def against(self) -> str:
        """The plain query, or the floor."""
        if self.table == "people" or self.answers != SUMS:
            return self.question
        by_unit = f"SELECT customer_id, {self.keys}, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY ALL"
        return f"SELECT {self.keys}, SUM(n), SUM(s) FROM ({by_unit}) GROUP BY {self.keys}"


CONTESTS = (
    Contest("one row per unit, by region", "people", "region", 1, 1.7),
    Contest("one row per unit, by product", "people", "product", 1, 1.7),
    Contest("all groups kept, by region", "orders", "region", REGIONS, 1.3),
    Contest("3 groups kept, by region", "orders", "region", 3, 2.4),
    Contest("5 groups kept, by product", "orders", "product", 5, 2.4),
    Contest("5 groups kept, product and day", "orders", "product, day", 5, 2.4),
    Contest("medians by region", "people", "region", 1, 2.1, "MEDIAN(amount)"),
)


def seconds(work: Callable[[], object]) -> float:
    started = process_time()
    work()
    return process_time() - started


def is_met(contest: Contest, plain: duckdb.DuckDBPyConnection, conn: dpsql.Connection) -> bool:
    def ask() -> None:
        conn.execute(contest.question, max_groups=contest.groups, fresh=True).fetchall()

    def ask_plainly() -> None:
        plain.execute(contest.against).fetchall()

    rounds = [(seconds(ask_plainly), seconds(ask)) for _ in range(REPETITIONS)]
    against, whole = (statistics.median(times) * 1000 for times in zip(*rounds, strict=True))
    met = whole <= contest.target * against
    print(
        f"{contest.name:<32}{against:>9.0f}{whole:>9.0f}{whole / against:>8.2f} x{contest.target:>8.1f} x"
        f"   {'met' if met else 'MISSED'}"
    )
    return met


def main(rows: int, chosen: list[str]) -> int:
    plain = duckdb.connect()
    plain.execute("SET threads = 1")
    create_tables(plain, rows, rows // ROWS_PER_UNIT)
    print(f"{rows:,} rows, milliseconds of CPU time (median of {REPETITIONS})")
    print(f"{'':<32}{'against':>9}{'dpsql':>9}{'ratio':>10}{'target':>10}")
    with dpsql.connect(plain, schema=SCHEMA, budget=1e6, delta=1e-6, query_epsilon=1) as conn:
        contests = [part for part in CONTESTS if not chosen or any(word in part.name for word in chosen)]
        met = [is_met(contest, plain, conn) for contest in contests]
    return 0 if all(met) else 1


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(int(words[0]), words[1:]) if words and words[0].isdigit() else main(ROWS, words))

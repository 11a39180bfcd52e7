"""What privacy costs the engine: the SQL of a release against the plain query, with and without COUNT(DISTINCT unit).

    python benchmarks/bench_engine.py

A report without a target. Two million rows of 200 000 units, by region (50 groups, 3 per unit) and by product (10 000
groups, 5 per unit). The contenders take turns, so that a busy moment of the machine hits them all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import duckdb

import dpsql

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS, UNITS, REGIONS, PRODUCTS = 2_000_000, 200_000, 50, 10_000
REPETITIONS = 5

UNIFORM = ", ".join(
    f"(hash(hash('{name}', n)) >> 11) / 9007199254740992.0 AS {name}"
    for name in ("unit", "region", "product", "amount")
)
TABLE = f"""
    CREATE TABLE orders AS
    SELECT CAST(floor({UNITS} * pow(unit, 1.5)) AS INTEGER) AS customer_id,
           'r' || CAST(floor({REGIONS} * region) AS INTEGER) AS region,
           'p' || CAST(floor({PRODUCTS} * pow(product, 2)) AS INTEGER) AS product,
           round(600 * pow(amount, 2), 2) AS amount
    FROM (SELECT {UNIFORM} FROM range({ROWS}) AS numbers(n))
"""
ONE_ROW_EACH = f"""
    CREATE TABLE people (id INTEGER PRIMARY KEY, region VARCHAR, amount DOUBLE);
    INSERT INTO people SELECT n, 'r' || n % {REGIONS}, n % 600 FROM range({UNITS}) AS numbers(n)
"""
AMOUNT = {"type": "double", "bounds": [0, 500]}
REGION = {"type": "text", "values": [f"r{number}" for number in range(REGIONS)]}
SCHEMA = {
    "dataset": "bench",
    "contribution": {"max_groups": 3, "max_rows_per_group": 5},
    "tables": {
        "orders": {
            "unit": "customer_id",
            "columns": {"customer_id": "integer", "region": REGION, "product": "text", "amount": AMOUNT},
        },
        "people": {"unit": "id", "unique": True, "columns": {"id": "integer", "region": REGION, "amount": AMOUNT}},
    },
}


@dataclass(frozen=True)
class Contest:
    name: str
    table: str
    key: str
    unit: str
    groups: int

    def question(self, *extra: str) -> str:
        columns = ", ".join((self.key, "COUNT(*)", "SUM(amount)", *extra))
        return f"SELECT {columns} FROM {self.table} GROUP BY {self.key}"


CONTESTS = (
    Contest("region", "orders", "region", "customer_id", 3),
    Contest("product", "orders", "product", "customer_id", 5),
    Contest("one row per unit", "people", "region", "id", 1),
)


def milliseconds(connection: duckdb.DuckDBPyConnection, sql: str) -> float:
    started = perf_counter()
    connection.execute(sql).fetchnumpy()
    return (perf_counter() - started) * 1000


def run(contest: Contest, connection: duckdb.DuckDBPyConnection, conn: dpsql.Connection) -> None:
    (release,) = conn.explain(contest.request(), max_groups=contest.groups).releases
    contenders: Mapping[str, str] = {
        "plain": contest.request(),
        "distinct": contest.request(f"COUNT(DISTINCT {contest.unit})"),
        "release": release.sql,
    }
    rounds = [{name: milliseconds(connection, sql) for name, sql in contenders.items()} for _ in range(REPETITIONS)]
    plain, distinct, release_time = (median(times[name] for times in rounds) for name in contenders)
    print(
        f"{contest.name:<18}{plain:>9.0f}{distinct:>11.0f}{release_time:>10.0f}"
        f"{release_time / distinct:>13.2f} x{release_time / plain:>9.2f} x"
    )


def main() -> int:
    connection = duckdb.connect()
    connection.execute(TABLE)
    connection.execute(ONE_ROW_EACH)
    print(f"{ROWS} rows, {UNITS} units, milliseconds (median of {REPETITIONS})")
    print("by                    plain  +DISTINCT   release  to +DISTINCT   to plain")
    with dpsql.connect(connection, schema=SCHEMA, epsilon=1.0, delta=1e-6) as conn:
        for contest in CONTESTS:
            run(contest, connection, conn)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a private median costs beside DuckDB's own on the same rows, in processor time and in memory.

    python benchmarks/bench_medians.py

Processor time of all threads, the best of several runs in turn: a busy machine does not change it much. Ends with code
1 when a target is missed.
"""

from __future__ import annotations

import resource
import sys
from time import process_time
from typing import TYPE_CHECKING

import duckdb

import dpsql

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 9
ROWS = (1_000_000, 4_000_000)
KEYS = list("abcdefg")
SCHEMA = {
    "dataset": "amounts",
    "tables": {
        "amounts": {
            "unit": "id",
            "unique": True,
            "columns": {
                "id": "integer",
                "amount": {"type": "double", "bounds": [0, 1e6]},
                "kind": {"type": "text", "values": KEYS},
            },
        }
    },
}
MOST_TIMES_PLAIN = 1.5  # the engine's SQL of a median over a million rows
MOST_MORE_MEMORY = 96  # MB beyond the table itself, after a smaller one was asked


def database(rows: int) -> duckdb.DuckDBPyConnection:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE amounts (id BIGINT PRIMARY KEY, amount DOUBLE, kind VARCHAR)")
    normal = "sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())"
    raw.execute(
        f"INSERT INTO amounts SELECT i, 3000 * exp(1.2 * {normal}), {KEYS}[1 + CAST(hash(i) % 7 AS INTEGER)] "
        f"FROM range({rows}) AS numbers(i)"
    )
    return raw


def best(*asked: Callable[[], object]) -> list[float]:
    """Milliseconds of each, run in turn."""
    times: list[list[float]] = [[] for _ in asked]
    for _ in range(RUNS):
        for ask, found in zip(asked, times, strict=True):
            started = process_time()
            ask()
            found.append((process_time() - started) * 1000)
    return [min(found) for found in times]


def memory() -> float:
    """MB, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compared(raw: duckdb.DuckDBPyConnection, sql: str) -> list[float]:
    """Milliseconds of plain DuckDB, of the release's SQL in the engine, and of the whole query."""
    session = dpsql.connect(raw, schema=SCHEMA, budget=1000, delta=1e-6, query_epsilon=1)
    cursor, release = raw.cursor(), session.explain(sql).releases[0].sql
    return best(
        lambda: cursor.execute(sql).fetchall(),
        lambda: cursor.execute(release).fetchall(),
        lambda: session.execute(sql, fresh=True),
    )


def main() -> int:
    met = True
    print("       rows                      plain     engine SQL       execute   more MB")
    for rows in ROWS:
        raw = database(rows)
        for select in ("MEDIAN(amount) FROM amounts", "kind, MEDIAN(amount) FROM amounts GROUP BY kind"):
            sql = f"SELECT {select}"
            before = memory()
            plain, engine, whole = compared(raw, sql)
            more = memory() - before
            shown = f"{engine:>6.0f} ({engine / plain:.2f}x) {whole:>6.0f} ({whole / plain:.2f}x)"
            print(f"{rows:>11,} {'grouped' if 'GROUP' in sql else '':>8} {plain:>12.0f} ms {shown} {more:>8.0f}")
            met &= "GROUP" in sql or engine <= MOST_TIMES_PLAIN * plain
            met &= rows == ROWS[0] or more <= MOST_MORE_MEMORY
    print("targets met" if met else "targets MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

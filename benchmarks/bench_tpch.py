"""TPC-H, its customers as people: what each answered query costs beside plain DuckDB, as ratios of CPU time.

    python benchmarks/bench_tpch.py [postgresql] [SCALE] [QUERY ...]

Both read files of their own with the same rows and keys. Contenders take turns, and the median of their times counts.
The floor (floors/) is the plain query joined to its unit, grouped by unit and keys: what bounding people cannot do
without. A query is expected to take at most 2.5 times its floor or 8 times the plain query, whichever is more. Q2, Q11
and Q16 read public tables alone, which are copied when they are first asked for: that first time is shown, and not
compared; later ones are expected to take 1.5 times the plain query.

On PostgreSQL, a server of our own, the time that passes counts, and a query is expected to take at most 10 times the
plain query or twice its floor. What does not end there within a minute without dpsql is not compared.
Ends with code 1 when a query takes longer.
"""

from __future__ import annotations

import math
import runpy
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import duckdb
import sqlglot

import dpsql

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
FLOORS = Path(__file__).parent / "floors"
REFUSED = ("q03", "q10", "q18")
PUBLIC = ("q02", "q11", "q16")
KEYS = {"customer": "c_custkey", "orders": "o_orderkey", "part": "p_partkey", "supplier": "s_suppkey"}
TIMES_PLAIN = dict.fromkeys(PUBLIC, 1.5)
TIMES_PLAIN_OR_FLOOR = 8.0, 2.5
REPETITIONS = 5


def generate(folder: Path, scale: str) -> None:
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", scale, "--output-dir", folder], check=True, capture_output=True)


def two_files(folder: Path) -> tuple[Path, Path]:
    """With the same tables."""
    ours, plain = folder / "ours.duckdb", folder / "plain.duckdb"
    with duckdb.connect(ours) as connection:
        for path in sorted(folder.glob("*.parquet")):
            connection.execute(f"CREATE TABLE {path.stem} AS FROM '{path}'")
            path.unlink()
        for table, key in KEYS.items():
            connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({key})")
    shutil.copy(ours, plain)
    return ours, plain


def seconds(work: Callable[[], object]) -> float:
    started = process_time()
    work()
    return process_time() - started


def floor_of(name: str, sql: str) -> str:
    """The query itself, where its rows are grouped by unit anyway, or are public."""
    path = FLOORS / f"{name}.sql"
    return path.read_text(encoding="utf-8") if path.exists() else sql


def is_met(name: str, plain: duckdb.DuckDBPyConnection, conn: dpsql.Connection) -> bool:
    sql = (ROOT / "tests" / "tpch" / f"{name}.sql").read_text(encoding="utf-8")
    floor = floor_of(name, sql)
    first = seconds(lambda: conn.execute(sql, fresh=True).fetchall())
    rounds = [
        (
            seconds(lambda: plain.cursor().execute(sql).fetchnumpy()),
            seconds(lambda: plain.cursor().execute(floor).fetchnumpy()),
            seconds(lambda: conn.execute(sql, fresh=True).fetchall()),
        )
        for _ in range(REPETITIONS)
    ]
    against, least, whole = (statistics.median(times) * 1000 for times in zip(*rounds, strict=True))
    times_plain, times_floor = TIMES_PLAIN_OR_FLOOR
    most = TIMES_PLAIN[name] * against if name in TIMES_PLAIN else max(times_plain * against, times_floor * least)
    shown = f"{against:>9.0f}{least:>9.0f}{whole:>9.0f}{first * 1000:>9.0f}{most:>9.0f}"
    ratios = f"{whole / against:>8.2f} x{whole / least:>8.2f} x"
    print(f"{name:<6}{shown}{ratios}   {'met' if whole <= most else 'MISSED'}", flush=True)
    return whole <= most


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

PLAIN_OR_FLOOR_THERE = 10.0, 2.0
REPETITIONS_THERE = 3
LONGEST_PLAIN = 60
"""Seconds."""


def fill(connection: Any, folder: Path) -> None:
    for path in sorted(folder.glob("*.parquet")):
        table, rows = path.stem, folder / "rows.csv"
        described = duckdb.sql(f"DESCRIBE FROM '{path}'").fetchall()
        columns = ", ".join(f"{name} {'TEXT' if kind == 'VARCHAR' else kind}" for name, kind, *_ in described)
        key = f", PRIMARY KEY ({KEYS[table]})" if table in KEYS else ""
        connection.execute(f"CREATE TABLE {table} ({columns}{key})".encode())
        duckdb.sql(f"COPY (FROM '{path}') TO '{rows}' (HEADER false)")
        with (
            rows.open("rb") as file,
            connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)".encode()) as copy,
        ):
            while part := file.read(1 << 20):
                copy.write(part)
    connection.execute("VACUUM ANALYZE")


def spelled_there(sql: str) -> str:
    """In PostgreSQL's words, where a subquery in FROM has a name."""
    tree = sqlglot.parse_one(sql, read="duckdb")
    for query in tree.find_all(sqlglot.exp.Subquery):
        if isinstance(query.parent, sqlglot.exp.From) and not query.alias:
            query.set("alias", sqlglot.exp.TableAlias(this=sqlglot.to_identifier("each_person")))
    return tree.sql("postgres")


def is_met_there(name: str, plainly: Callable[[str], object], conn: dpsql.Connection) -> bool:
    sql = (ROOT / "tests" / "tpch" / f"{name}.sql").read_text(encoding="utf-8")
    alone = ROOT / "tests" / "tpch" / f"{name}.plain.sql"
    plain = alone.read_text(encoding="utf-8") if alone.exists() else sql
    against, least = (passed(lambda part=part: plainly(spelled_there(part))) for part in (plain, floor_of(name, plain)))
    whole = passed(lambda: conn.execute(sql, fresh=True).fetchall())
    times_plain, times_floor = PLAIN_OR_FLOOR_THERE
    met = whole <= max(times_plain * against, times_floor * least)
    print(
        f"{name:<6}{against:>9.3f}{least:>9.3f}{whole:>9.3f}{whole / against:>8.2f} x{whole / least:>8.2f} x   "
        f"{'met' if met else 'MISSED'}",
        flush=True,
    )
    return met


def passed(work: Callable[[], object]) -> float:
    """The best of several times, in seconds; infinite if it takes too long."""
    from psycopg.errors import QueryCanceled

    best = math.inf
    for _ in range(REPETITIONS_THERE):
        started = perf_counter()
        try:
            work()
        except QueryCanceled:
            return math.inf
        best = min(best, perf_counter() - started)
    return best


def on_postgresql(scale: str = "1", *chosen: str) -> int:
    import psycopg

    cluster = runpy.run_path(str(ROOT / "tests" / "engines" / "postgresql_cluster.py"))["cluster"]
    options = {"schema": ROOT / "schemas" / "tpch.yaml", "ledger": ":memory:", "budget": 1e6, "delta": 1e-6}
    with tempfile.TemporaryDirectory() as folder, cluster() as url, psycopg.connect(url, autocommit=True) as plain:
        generate(Path(folder), scale)
        fill(plain, Path(folder))
        plain.execute(f"SET statement_timeout = '{LONGEST_PLAIN}s'".encode())
        print(f"PostgreSQL, scale {scale}, seconds (best of {REPETITIONS_THERE}): plain, floor, dpsql")
        with dpsql.connect(url, query_epsilon=1, **options) as conn:
            met = [
                is_met_there(name, lambda sql: plain.execute(sql.encode()).fetchall(), conn)
                for name in NAMES
                if name not in REFUSED and (not chosen or name in chosen)
            ]
    return 0 if all(met) else 1


NAMES = [f"q{number:02}" for number in range(1, 23)]


def main(scale: str = "1", *chosen: str) -> int:
    if scale == "postgresql":
        return on_postgresql(*chosen)
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), scale)
        ours, copy = two_files(Path(folder))
        print(f"scale {scale}, milliseconds of CPU time (median of {REPETITIONS})")
        print(f"{'':<6}{'plain':>9}{'floor':>9}{'dpsql':>9}{'first':>9}{'at most':>9}{'to plain':>10}{'to floor':>10}")
        schema = ROOT / "schemas" / "tpch.yaml"
        with (
            duckdb.connect(copy, read_only=True) as plain,
            dpsql.connect(ours, schema=schema, ledger=":memory:", budget=1e6, delta=1e-6, query_epsilon=1) as conn,
        ):
            asked = [name for name in NAMES if name not in REFUSED and (not chosen or name in chosen)]
            met = [is_met(name, plain, conn) for name in asked]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

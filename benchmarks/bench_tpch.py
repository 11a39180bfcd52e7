"""TPC-H, its customers as people: what each answered query costs beside plain DuckDB, as ratios of CPU time.

    python benchmarks/bench_tpch.py [SCALE] [QUERY ...]

Both read files of their own with the same rows and keys. Contenders take turns, and the median of their times counts.
The floor (floors/) is the plain query joined to its unit, grouped by unit and keys: what bounding people cannot do
without. A query is expected to take at most 2.5 times its floor or 8 times the plain query, whichever is more. Q2, Q11
and Q16 read public tables alone, which are copied when they are first asked for: that first time is shown, and not
compared; later ones are expected to take 1.5 times the plain query.
Ends with code 1 when a query takes longer.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import duckdb

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


def generate(folder: Path, scale: str) -> tuple[Path, Path]:
    """Two files with the same tables."""
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", scale, "--output-dir", folder], check=True, capture_output=True)
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


def main(scale: str = "1", *chosen: str) -> int:
    names = [f"q{number:02}" for number in range(1, 23)]
    with tempfile.TemporaryDirectory() as folder:
        ours, copy = generate(Path(folder), scale)
        print(f"scale {scale}, milliseconds of CPU time (median of {REPETITIONS})")
        print(f"{'':<6}{'plain':>9}{'floor':>9}{'dpsql':>9}{'first':>9}{'at most':>9}{'to plain':>10}{'to floor':>10}")
        schema = ROOT / "schemas" / "tpch.yaml"
        with (
            duckdb.connect(copy, read_only=True) as plain,
            dpsql.connect(ours, schema=schema, ledger=":memory:", budget=1e6, delta=1e-6, query_epsilon=1) as conn,
        ):
            asked = [name for name in names if name not in REFUSED and (not chosen or name in chosen)]
            met = [is_met(name, plain, conn) for name in asked]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""TPC-H, its customers as people: what each answered query costs beside plain DuckDB, as ratios of CPU time.

    python benchmarks/bench_tpch.py [SCALE] [QUERY ...]

Both read files of their own with the same rows and keys. Contenders take turns, and the median of their times counts.
Q2, Q11 and Q16 read public tables alone, which are copied when they are first asked for: that first time is shown, and
not compared.
Ends with code 1 when a ratio is above its target.
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
REFUSED = ("q03", "q10", "q18")
PUBLIC = ("q02", "q11", "q16")
KEYS = {"customer": "c_custkey", "orders": "o_orderkey", "part": "p_partkey", "supplier": "s_suppkey"}
TARGETS = {"q01": 6.0} | dict.fromkeys(PUBLIC, 1.5)
OTHERS = 8.0
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


def is_met(name: str, plain: duckdb.DuckDBPyConnection, conn: dpsql.Connection) -> bool:
    sql = (ROOT / "tests" / "tpch" / f"{name}.sql").read_text(encoding="utf-8")
    first = seconds(lambda: conn.execute(sql, fresh=True).fetchall())
    rounds = [
        (
            seconds(lambda: plain.cursor().execute(sql).fetchall()),
            seconds(lambda: conn.execute(sql, fresh=True).fetchall()),
        )
        for _ in range(REPETITIONS)
    ]
    against, whole = (statistics.median(times) * 1000 for times in zip(*rounds, strict=True))
    target = TARGETS.get(name, OTHERS)
    met = whole <= target * against
    shown = f"{against:>9.0f}{whole:>9.0f}{first * 1000:>9.0f}{whole / against:>8.2f} x{target:>8.1f} x"
    print(f"{name:<8}{shown}   {'met' if met else 'MISSED'}", flush=True)
    return met


def main(scale: str = "1", *chosen: str) -> int:
    names = [f"q{number:02}" for number in range(1, 23)]
    with tempfile.TemporaryDirectory() as folder:
        ours, copy = generate(Path(folder), scale)
        print(f"scale {scale}, milliseconds of CPU time (median of {REPETITIONS})")
        print(f"{'':<8}{'plain':>9}{'dpsql':>9}{'first':>9}{'ratio':>10}{'target':>10}")
        schema = ROOT / "schemas" / "tpch.yaml"
        with (
            duckdb.connect(copy, read_only=True) as plain,
            dpsql.connect(ours, schema=schema, ledger=":memory:", epsilon=1e6, delta=1e-6, query_epsilon=1) as conn,
        ):
            asked = [name for name in names if name not in REFUSED and (not chosen or name in chosen)]
            met = [is_met(name, plain, conn) for name in asked]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""How much memory a question takes beside its floor: the peak of a process that asks it, above what it had before.

    python benchmarks/bench_memory.py [ROWS]

The questions and the floors are those of bench_engine.py, over a file; each is asked in a process of its own, on one
thread, after a tiny one for which everything is loaded. Ends with code 1 when a question takes more than 1.5 times the
memory of its floor.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import duckdb
from bench_engine import CONTESTS, ROWS, ROWS_PER_UNIT, SCHEMA, Contest, create_tables

import dpsql

MOST = 1.5
TINY = "SELECT COUNT(*) FROM tiny"


def create_file(path: str, rows: int) -> None:
    with duckdb.connect(path) as database:
        create_tables(database, rows, rows // ROWS_PER_UNIT)
        database.execute("CREATE TABLE tiny AS SELECT 1 AS id")


def ask_plainly(database: duckdb.DuckDBPyConnection, contest: Contest) -> int:
    database.execute(TINY).fetchnumpy()
    before = peak()
    database.execute(contest.against).fetchnumpy()
    return peak() - before


def ask(database: duckdb.DuckDBPyConnection, contest: Contest) -> int:
    tiny = {"tiny": {"unit": "id", "unique": True, "columns": {"id": "integer"}}}
    schema = {**SCHEMA, "tables": {**SCHEMA["tables"], **tiny}}  # type: ignore[dict-item]
    with dpsql.connect(database, schema=schema, budget=1000, delta=1e-6, query_epsilon=1) as conn:
        conn.execute(TINY).fetchall()
        before = peak()
        conn.execute(contest.question, max_groups=contest.groups).fetchall()
        return peak() - before


def peak() -> int:
    """KB, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(path: str, who: str, contest: Contest) -> float:
    """MB, in a process of its own."""
    command = [sys.executable, __file__, path, who, str(CONTESTS.index(contest))]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1024


def child(path: str, who: str, number: str = "0") -> None:
    if who == "create":
        create_file(path, int(number))
        return
    with duckdb.connect(path, read_only=True, config={"threads": 1}) as database:
        print((ask if who == "dpsql" else ask_plainly)(database, CONTESTS[int(number)]))


def main(rows: int) -> int:
    met = True
    print(f"{rows:,} rows, MB at most")
    print(f"{'':<32}{'against':>9}{'dpsql':>9}{'ratio':>10}{'target':>10}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "bench.duckdb")
        subprocess.run([sys.executable, __file__, path, "create", str(rows)], check=True)
        for contest in CONTESTS:
            against, whole = (measured(path, who, contest) for who in ("floor", "dpsql"))
            met &= whole <= MOST * against
            print(
                f"{contest.name:<32}{against:>9.0f}{whole:>9.0f}{whole / against:>8.2f} x{MOST:>8.1f} x"
                f"   {'met' if whole <= MOST * against else 'MISSED'}",
                flush=True,
            )
    return 0 if met else 1


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) > 1:
        warnings.simplefilter("ignore")
        child(*words)
    else:
        sys.exit(main(int(words[0]) if words else ROWS))

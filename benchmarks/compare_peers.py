"""The same question to dpsql and to its peers, on the same million rows, one after the other: CPU time of each.

    python benchmarks/compare_peers.py            make bench-peers

COUNT and SUM by region at epsilon 1, each person with at most 2 rows in each of 5 groups. dpsql is asked without a
delta, which known regions do not need: of people with more than 10 rows each counts for a part (light_units.md). With a
delta, where 5 groups of each person are chosen, its time stands below, and so does the floor of that: what DuckDB takes
to aggregate the rows by person and region. Every peer lives in an environment of its own under build/peers; one that
does not install or does not run is said so. All are given the same file, whose rows are in memory, in the form that
each likes best, before its time begins. dpsql counts each person's rows when it is first asked, and not again: the time
of that first question stands below, too. What each of them enforces stands below its times. Ends with code 1 when dpsql
is not as much faster as it should be.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import textwrap
import venv
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from bench_engine import REGIONS, ROWS_PER_UNIT, SCHEMA, create_tables, seconds

import dpsql

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "peers"
ROWS, REPETITIONS = 1_000_000, 3
PATIENCE = 900
"""Seconds for a peer to install, and to answer."""


@dataclass(frozen=True)
class Peer:
    name: str
    script: str
    packages: tuple[str, ...]
    faster: float
    """So many times should dpsql be."""
    enforces: str

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.script.removesuffix(".py")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self) -> str | None:
        """What went wrong, if something did."""
        if (self.folder / "installed").exists():
            return None
        venv.create(self.folder, with_pip=True)
        command = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.packages]
        if (problem := _problem(command)) is None:
            (self.folder / "installed").touch()
        return problem

    def seconds(self, rows: Path) -> float | str:
        command = [self.python, Path(__file__).parent / "peers" / self.script, rows]
        try:
            return float(_output(command).split()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as problem:
            return _last_line(problem)


PEERS = (
    Peer(
        "SmartNoise SQL",
        "smartnoise.py",
        ("smartnoise-sql", "pyarrow"),
        10,
        "SQLite runs its SQL; 10 rows of each person are drawn, whatever their groups; groups are not bounded apart",
    ),
    Peer(
        "Qrlew",
        "qrlew.py",
        ("pyqrlew", "duckdb", "pandas<2.3"),
        10,
        "DuckDB runs its SQL; whoever counts more is scaled down to 10 rows (L2), no group is dropped; "
        "noise is drawn by the engine in floating point",
    ),
    Peer(
        "PipelineDP",
        "pipelinedp.py",
        ("pipeline-dp", "pandas", "pyarrow"),
        10,
        "Python, row by row, from a list of tuples; 5 groups of each person and 2 rows in each, as dpsql",
    ),
    Peer(
        "OpenDP with Polars",
        "opendp_polars.py",
        ("opendp[polars]",),
        3,
        "Polars runs it; 5 groups of each person, the first and not drawn, and 2 rows in each; pure epsilon",
    ),
)


def _output(command: list[object]) -> str:
    arguments = [str(part) for part in command]
    return subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


def _problem(command: list[object]) -> str | None:
    try:
        _output(command)
    except subprocess.SubprocessError as problem:
        return _last_line(problem)
    return None


def _last_line(problem: Exception) -> str:
    lines = str(getattr(problem, "stderr", None) or problem).strip().splitlines()
    return lines[-1][:100] if lines else type(problem).__name__


def own_seconds(conn: dpsql.Connection) -> float:
    def ask() -> None:
        sql = "SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region"
        assert len(conn.execute(sql, fresh=True).fetchall()) == REGIONS

    return seconds(ask)


def floor_seconds(database: duckdb.DuckDBPyConnection) -> float:
    by_person = "SELECT customer_id, region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY ALL"
    ask = partial(database.execute, f"SELECT region, SUM(n), SUM(s) FROM ({by_person}) GROUP BY region")
    return statistics.median(seconds(ask) for _ in range(REPETITIONS))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        create_tables(database, ROWS, ROWS // ROWS_PER_UNIT)
        rows = Path(folder) / "orders.parquet"
        database.execute(f"COPY orders TO '{rows}'")
        with opened(rows, delta=0) as conn:
            first = own_seconds(conn)
            print(f"{ROWS:,} rows of {ROWS // ROWS_PER_UNIT:,} people, CPU time (median of {REPETITIONS})")
            print(f"{'':<20}{'theirs':>10}{'dpsql':>10}{'ratio':>10}{'goal':>8}", flush=True)
            met = [is_met(peer, rows, conn) for peer in PEERS]
        with opened(rows, delta=1e-6) as conn:
            own_seconds(conn)
            own = statistics.median(own_seconds(conn) for _ in range(REPETITIONS))
        print(f"{'dpsql, first asked':<20}{first:>18.2f} s")
        print(f"{'dpsql with a delta':<20}{own:>18.2f} s")
        print(f"{'its floor':<20}{floor_seconds(database):>18.2f} s")
    return 0 if all(met) else 1


def opened(rows: Path, delta: float) -> dpsql.Connection:
    tables: Any = SCHEMA["tables"]
    schema = {
        "dataset": "peers",
        "contribution": {"max_groups": 5, "max_rows_per_group": 2},
        "tables": {"orders": tables["orders"]},
    }
    return dpsql.connect(rows, schema=schema, ledger=":memory:", budget=1e6, delta=delta, query_epsilon=1)


def is_met(peer: Peer, rows: Path, conn: dpsql.Connection) -> bool:
    if (problem := peer.install()) is not None:
        print(f"{peer.name:<20}does not install here: {problem}", flush=True)
        return True
    own, theirs = [], []
    for _ in range(REPETITIONS):
        own.append(own_seconds(conn))
        answer = peer.seconds(rows)
        if isinstance(answer, str):
            print(f"{peer.name:<20}does not run here: {answer}", flush=True)
            return True
        theirs.append(answer)
    ratio = statistics.median(theirs) / statistics.median(own)
    met = ratio >= peer.faster
    times = f"{statistics.median(theirs):>8.2f} s{statistics.median(own):>8.2f} s"
    shown = f"{times}{ratio:>8.1f} x{peer.faster:>6.0f} x"
    print(f"{peer.name:<20}{shown}   {'met' if met else 'MISSED'}")
    print(textwrap.fill(peer.enforces, 100, initial_indent="    ", subsequent_indent="    "), flush=True)
    return met


if __name__ == "__main__":
    sys.exit(main())

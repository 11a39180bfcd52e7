"""The same question to dpsql and to its peers, on the same million rows, one after the other: CPU time of each.

    python benchmarks/compare_peers.py            make bench-peers

COUNT and SUM by region at epsilon 1, each person with at most 2 rows in each of 5 groups. Every peer lives in an
environment of its own under build/peers; one that does not install or does not run is said so. The rows are in memory,
in the form that each likes best, before its time begins. Ends with code 1 when dpsql is not as much faster as it should
be.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import duckdb
from bench_engine import SCHEMA, create_tables

import dpsql

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "peers"
REPETITIONS = 3
PATIENCE = 900
"""Seconds for a peer to install, and to answer."""


@dataclass(frozen=True)
class Peer:
    name: str
    script: str
    packages: tuple[str, ...]
    faster: float
    """So many times should dpsql be."""

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
    Peer("SmartNoise SQL", "smartnoise.py", ("smartnoise-sql", "pyarrow"), 10),
    Peer("Qrlew", "qrlew.py", ("pyqrlew",), 10),
    Peer("PipelineDP", "pipelinedp.py", ("pipeline-dp", "pandas", "pyarrow"), 10),
    Peer("OpenDP with Polars", "opendp_polars.py", ("opendp[polars]",), 3),
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
    started = process_time()
    found = conn.execute("SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region", fresh=True).fetchall()
    assert len(found) == 50
    return process_time() - started


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        create_tables(database, 1_000_000, 100_000)
        rows = Path(folder) / "orders.parquet"
        database.execute(f"COPY orders TO '{rows}'")
        schema = SCHEMA | {"contribution": {"max_groups": 5, "max_rows_per_group": 2}}
        with dpsql.connect(database, schema=schema, epsilon=1e6, delta=1e-6, query_epsilon=1) as conn:
            met = [is_met(peer, rows, conn) for peer in PEERS]
    return 0 if all(met) else 1


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
    shown = f"{statistics.median(theirs):>8.2f} s{statistics.median(own):>8.2f} s{ratio:>8.1f} x{peer.faster:>6.0f} x"
    print(f"{peer.name:<20}{shown}   {'met' if met else 'MISSED'}", flush=True)
    return met


if __name__ == "__main__":
    sys.exit(main())

"""Draws the plots of docs/scale.md: time and memory of a question by the number of rows, and by that of unknown keys.

    python benchmarks/plot_scale.py [most rows, 50000000 if not given]

Each question is asked in a process of its own, so that its memory is its own too. DuckDB gets a quarter of what the
rows take in memory, but never less than 256 MB, and spills what has no room; one thread. Data is in a file that is
deleted afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import duckdb
import matplotlib as mpl
import numpy as np
from bench_spill import watched
from matplotlib import pyplot as plt
from PIL import Image

import dpsql

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_ROWS, ROWS_PER_PERSON, ROWS_PER_KEY, REGIONS = 50_000_000, 10, 10, 50
BYTES_PER_ROW = 8 + 16 + 16 + 8
"""Of customer_id, region, key and amount, as DuckDB holds them in memory."""
LEAST_MEMORY = 256 * 2**20
SCHEMA: dict[str, Any] = {
    "dataset": "scale",
    "contribution": {"max_groups": 5, "max_rows_per_group": 2},
    "tables": {
        "orders": {
            "unit": "customer_id",
            "columns": {
                "customer_id": "integer",
                "region": {"type": "text", "values": [f"r{number}" for number in range(REGIONS)]},
                "key": "text",
                "amount": {"type": "double", "bounds": [0, 500]},
            },
        }
    },
}
QUESTIONS = {
    "50 public groups": "SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region",
    "a tenth as many unknown keys": "SELECT key, COUNT(*), SUM(amount) FROM orders GROUP BY key",
}
COLOURS = dict(zip(QUESTIONS, ("#1f77b4", "#d9641e"), strict=True))


def memory_limit(rows: int) -> int:
    return max(LEAST_MEMORY, rows * BYTES_PER_ROW // 4)


def write_orders(database: Path, rows: int, keys: int) -> None:
    """A few keys have many people, and most have few."""
    orders = f"""
        CREATE TABLE orders AS
        SELECT CAST(hash(n) % {rows // ROWS_PER_PERSON} AS BIGINT) AS customer_id,
            'r' || hash(n, 1) % {REGIONS} AS region,
            'k' || CAST(floor({keys} * pow(hash(n, 2) / 18446744073709551616.0, 2)) AS BIGINT) AS key,
            CAST(hash(n, 4) % 50000 AS DOUBLE) / 100 AS amount
        FROM range({rows}) AS numbers(n)
    """
    with duckdb.connect(database, config={"memory_limit": "2GB", "preserve_insertion_order": False}) as connection:
        connection.execute(orders)


def ask(database: str, sql: str, limit: int) -> dict[str, float]:
    """Seconds of the processor and in all, megabytes of this process at most and of what was spilled."""
    with tempfile.TemporaryDirectory(prefix="dpsql_spilled_") as spilled:
        settings = {"memory_limit": f"{limit}B", "temp_directory": spilled, "threads": 1}
        with (
            duckdb.connect(database, config=settings) as source,
            dpsql.connect(source, schema=SCHEMA, budget=1e6, delta=1e-6, query_epsilon=1, ledger=":memory:") as asked,
        ):
            started, before = perf_counter(), process_time()
            with watched(Path(spilled)) as most:
                groups = len(asked.execute(sql).fetchall())
            seconds, waited = process_time() - before, perf_counter() - started
    return {"cpu": seconds, "wall": waited, "memory": peak_memory(), "spilled": most[0] / 2**20, "groups": groups}


def peak_memory() -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 2**10 for line in status.splitlines() if line.startswith("VmHWM"))


def measured(database: Path, sql: str, rows: int) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--ask", str(database), sql, str(memory_limit(rows))]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def told(what: str, found: dict[str, float]) -> None:
    times = f"{found['cpu']:8.2f} s of the processor, {found['wall']:8.2f} s"
    print(
        f"{what:<52}{times}, {found['memory']:7,.0f} MB, {found['spilled']:7,.0f} MB spilled, {found['groups']:,}",
        flush=True,
    )


def by_rows(folder: Path, most: int) -> dict[str, dict[int, dict[str, float]]]:
    sizes = [rows for rows in (100_000, 1_000_000, 10_000_000, 50_000_000) if rows <= most]
    found: dict[str, dict[int, dict[str, float]]] = {name: {} for name in QUESTIONS}
    for rows in sizes:
        database = folder / "orders.duckdb"
        write_orders(database, rows, rows // ROWS_PER_KEY)
        for name, sql in QUESTIONS.items():
            found[name][rows] = measured(database, sql, rows)
            told(f"{rows:,} rows, {name}", found[name][rows])
        database.unlink()
    return found


def by_keys(folder: Path, rows: int) -> dict[int, dict[str, float]]:
    found = {}
    for keys in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000):
        database = folder / "orders.duckdb"
        write_orders(database, rows, keys)
        found[keys] = measured(database, QUESTIONS["a tenth as many unknown keys"], rows)
        told(f"{rows:,} rows, {keys:,} unknown keys", found[keys])
        database.unlink()
    return found


def drawn(name: str, title: str, lines: dict[str, dict[int, dict[str, float]]], across: str, *, slope: bool) -> None:
    """Time on the left, memory on the right; with a slope to compare with, ten times as much is as far up as across."""
    figure, (times, memory) = plt.subplots(1, 2, figsize=(9.2, 3.6), dpi=140, layout="constrained")
    for line, points in lines.items():
        sizes, colour = list(points), COLOURS.get(line, "#d9641e")
        times.semilogx(sizes, [point["cpu"] for point in points.values()], "o-", color=colour, label=line)
        memory.semilogx(sizes, [point["memory"] for point in points.values()], "o-", color=colour, label=line)
    if slope:
        sizes = list(next(iter(lines.values())))
        last = max(points[sizes[-1]]["cpu"] for points in lines.values())
        times.plot(sizes, [last * size / sizes[-1] for size in sizes], "--", color="#888888", label="slope 1")
        limits = [memory_limit(size) / 2**20 for size in sizes]
        memory.plot(sizes, limits, ":", color="#888888", label="what DuckDB may take")
    times.set(xlabel=across, ylabel="seconds of the processor")
    memory.set(xlabel=across, ylabel="megabytes of the process, at most")
    for axes, least in ((times, 0.05), (memory, 100)):
        if slope:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:,g}")
        axes.set_ylim(bottom=least if slope else 0)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=9, edgecolor="none", framealpha=0.8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.canvas.draw()
    pixels = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    pixels.quantize(128).save(IMAGES / f"scale_{name}.png", optimize=True)
    plt.close(figure)


def main(most: int) -> None:
    mpl.use("agg")
    plt.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 4}
    with tempfile.TemporaryDirectory(prefix="dpsql_scale_") as folder:
        rows = by_rows(Path(folder), most)
        drawn("rows", "COUNT and SUM by group, of ever more rows", rows, "rows", slope=True)
        few = min(most, 5_000_000)
        keys = {"unknown keys": by_keys(Path(folder), few)}
        drawn("keys", f"COUNT and SUM of {few:,} rows by ever more keys", keys, "unknown keys", slope=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        print(json.dumps(ask(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else MOST_ROWS)

"""Spark on two executors: releases over partitioned Parquet finish in a driver of little memory, and what they send.

    python benchmarks/bench_cluster.py [local-cluster] [standalone] [rows, 20000000 if not given]

`local-cluster` has its executors as processes of their own; `standalone` has a master and two workers too. All listen
on this machine alone. For each release: seconds, and of each stage its tasks, what they read and what they write to be
shuffled, from Spark's own log of events. Ends with code 1 if a release fails.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import duckdb

import dpsql

if TYPE_CHECKING:
    from collections.abc import Iterator

free_port = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "engines" / "spark_session.py"))["free_port"]
ROWS, ROWS_PER_PERSON, REGIONS, PRODUCTS, MONTHS = 20_000_000, 10, 20, 2_000, 12
DRIVER, EXECUTOR, RESULT = "768m", "1024m", "16m"
"""Memory of the driver and of each executor, and the most that the driver takes as a result."""
SCHEMA: dict[str, Any] = {
    "dataset": "scale",
    "contribution": {"max_groups": 3, "max_rows_per_group": 10},
    "tables": {
        "orders": {
            "unit": "customer_id",
            "columns": {
                "customer_id": "integer",
                "region": {"type": "text", "values": [f"r{number}" for number in range(REGIONS)]},
                "product": "text",
                "amount": {"type": "double", "bounds": [0, 500]},
                "month": {"type": "integer", "bounds": [1, MONTHS]},
            },
        }
    },
}
QUESTIONS = {
    "count": "SELECT COUNT(*) FROM orders",
    "sum of one month": "SELECT SUM(amount) FROM orders WHERE month = 3",
    "count, sum, average by region": "SELECT region, COUNT(*), SUM(amount), AVG(amount) FROM orders GROUP BY region",
    "count by product, not public": "SELECT product, COUNT(*) FROM orders GROUP BY product",
    "median": "SELECT MEDIAN(amount) FROM orders",
}


def write_orders(folder: Path, rows: int) -> None:
    people = rows // ROWS_PER_PERSON
    orders = f"""
        SELECT CAST(hash(n) % {people} AS BIGINT) AS customer_id, 'r' || hash(n, 1) % {REGIONS} AS region,
            'p' || hash(n, 2) % {PRODUCTS} AS product, CAST(hash(n, 4) % 50000 AS DOUBLE) / 100 AS amount,
            CAST(1 + n * {MONTHS} // {rows} AS BIGINT) AS month FROM range({rows}) AS numbers(n)
    """
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '2GB'; SET threads = 2; SET preserve_insertion_order = false")
        connection.execute(f"COPY ({orders}) TO '{folder}' (FORMAT parquet, PARTITION_BY (month), OVERWRITE_OR_IGNORE)")


@contextmanager
def cluster(kind: str, own: Path) -> Iterator[str]:
    """The master's URL."""
    if kind == "local-cluster":
        yield "local-cluster[2,1,1024]"
        return
    import pyspark

    port, home, packages = free_port(), str(Path(pyspark.__file__).parent), "org.apache.spark.deploy"
    around = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    url, here = f"spark://127.0.0.1:{port}", ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [[f"{packages}.master.Master", "--port", str(port), *here]]
    commands += [
        [f"{packages}.worker.Worker", "-c", "1", "-m", "1200M", "-d", str(own / f"worker{number}"), *here, url]
        for number in range(2)
    ]
    log = (own / "cluster.log").open("w")
    processes = [
        subprocess.Popen([f"{home}/bin/spark-class", *command], stdout=log, stderr=log, cwd=own, env=around)
        for command in commands
    ]
    try:
        while not is_open(port):
            time.sleep(0.2)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def session(master: str, own: Path) -> Iterator[Any]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    (own / "events").mkdir()
    settings = {
        "spark.driver.memory": DRIVER,
        "spark.driver.maxResultSize": RESULT,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": EXECUTOR,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": f"{own}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={own}",
        "spark.local.dir": f"{own}/local",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{own}/events",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    builder = SparkSession.builder.master(master).appName("dpsql scale")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
        for closed in ("_gateway", "_jvm"):
            setattr(type(spark.sparkContext), closed, None)


def peak_memory(spark: Any) -> str:
    """Of the driver's process, since it began."""
    process = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    status = Path(f"/proc/{process}/status").read_text()
    return next(line.split(":")[1].strip() for line in status.splitlines() if line.startswith("VmHWM"))


def stages(events: Path) -> dict[str, list[dict[str, Any]]]:
    """By the description of the job, its stages in order."""
    found: dict[int, dict[str, Any]] = {}
    asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in events.read_text().splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerStageSubmitted":
                number, properties = event["Stage Info"]["Stage ID"], event.get("Properties") or {}
                found[number] = {"tasks": 0, "read": 0, "shuffled in": 0, "shuffled out": 0}
                asked[properties.get("spark.job.description", "")].append(found[number])
            case "SparkListenerTaskEnd" if event["Stage ID"] in found and event.get("Task Metrics"):
                stage, metrics = found[event["Stage ID"]], event["Task Metrics"]
                stage["tasks"] += 1
                stage["read"] += metrics["Input Metrics"]["Bytes Read"]
                received = metrics["Shuffle Read Metrics"]
                stage["shuffled in"] += received["Remote Bytes Read"] + received["Local Bytes Read"]
                stage["shuffled out"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return asked


def run(kind: str, parquet: Path, rows: int) -> None:
    own = Path(tempfile.mkdtemp(prefix="dpsql_cluster_"))
    try:
        print(f"{kind}: {rows:,} rows of {rows // ROWS_PER_PERSON:,} people; driver {DRIVER}, executors 2 x {EXECUTOR}")
        with cluster(kind, own) as master, session(master, own) as spark:
            spark.sql(f"CREATE TABLE orders USING parquet LOCATION '{parquet}'")
            spark.sql("MSCK REPAIR TABLE orders")
            options: dict[str, Any] = {"schema": SCHEMA, "budget": 1e9, "delta": 1e-6, "ledger": ":memory:"}
            with dpsql.connect(spark, query_epsilon=1, **options) as connection:
                times = {}
                for name, sql in QUESTIONS.items():
                    spark.sparkContext.setJobDescription(name)
                    started = perf_counter()
                    answer = connection.execute(sql).fetchall()
                    times[name] = f"{perf_counter() - started:6.1f} s, {len(answer):,} rows"
                memory = peak_memory(spark)
        (events,) = (own / "events").iterdir()
        asked = stages(events)
        for name, told in times.items():
            print(f"\n{name}: {told}")
            for number, stage in enumerate(asked[name]):
                amounts = ", ".join(f"{what} {amount:,}" for what, amount in stage.items() if amount)
                print(f"  stage {number}: {amounts}")
        print(f"\nthe driver's process had {memory} at most\n", flush=True)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def main(words: list[str]) -> int:
    rows = next((int(word) for word in words if word.isdigit()), ROWS)
    kinds = [word for word in words if not word.isdigit()] or ["local-cluster", "standalone"]
    folder = Path(tempfile.mkdtemp(prefix="dpsql_orders_"))
    try:
        write_orders(folder, rows)
        # A driver has one cluster in its life.
        codes = [
            subprocess.run([sys.executable, __file__, "--run", kind, str(folder), str(rows)], check=False).returncode
            for kind in kinds
        ]
        return max(codes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main(sys.argv[1:]))

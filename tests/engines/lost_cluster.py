"""Two executors as processes of their own. One is killed while a question is asked, then the session is stopped.

    python tests/engines/lost_cluster.py FOLDER

prints what became of the charges as JSON, on its last line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import dpsql

ID: dict[str, Any] = {"unit": "id", "columns": {"id": "integer"}}
SLOWLY, QUICKLY = "SELECT COUNT(*) FROM slow", "SELECT COUNT(*) FROM people"


class Lake:
    """Fifty people, each of whom takes so many milliseconds to read, by an expression of Spark."""

    def __init__(self, spark: Any, milliseconds: str) -> None:
        self.spark = spark
        spark.sql("CREATE DATABASE lost")
        spark.sql("CREATE TABLE lost.people USING parquet AS SELECT id FROM range(0, 50, 1, 2)")
        self.slow_down(milliseconds)

    def slow_down(self, milliseconds: str) -> None:
        """By a condition that is true of every row, which Spark does not know."""
        slept = f"reflect('java.lang.Thread', 'sleep', {milliseconds}) = 'null'"
        self.spark.sql(f"CREATE OR REPLACE VIEW lost.slow AS SELECT id FROM lost.people WHERE {slept}")

    def wait_until_asleep(self) -> None:
        """Until tasks have been at work for a while."""
        tracker = self.spark.sparkContext.statusTracker()
        seen = 0
        while seen < 5:
            time.sleep(0.2)
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            seen = seen + 1 if any(stage is not None and stage.numActiveTasks for stage in stages) else 0


def connect(source: object, ledger: str, *, guests: bool = False, **options: Any) -> dpsql.Connection:
    tables = {"people": ID, "slow": ID | {"view": "trusted"}, **({"guests": ID} if guests else {})}
    schema = {"dataset": "clinic", "tables": tables}
    return dpsql.connect(source, schema=schema, budget=10, query_epsilon=1, ledger=ledger, **options)


def session(folder: Path) -> Any:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,512]").appName("dpsql")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def executors() -> list[int]:
    """Those below this process."""
    listed = subprocess.check_output(["ps", "-ewwo", "pid,ppid,args"], text=True).splitlines()[1:]
    processes = [line.split(None, 2) for line in listed]
    below = {os.getpid()}
    for _ in range(5):
        below |= {int(pid) for pid, parent, _ in processes if int(parent) in below}
    return [int(pid) for pid, _, command in processes if int(pid) in below and "ExecutorBackend" in command]


def states(connection: dpsql.Connection) -> list[str]:
    return [entry.state for entry in connection.session.environment.ledger.history()][1:]


def main(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = {}
    spark = session(folder)
    lake = Lake(spark, "300L")
    spark.sql("USE lost")
    pool = ThreadPoolExecutor(1)

    with connect(spark, f"{folder}/first.ledger") as connection:
        asked = pool.submit(lambda: connection.execute(SLOWLY).fetchall())
        lake.wait_until_asleep()
        first, *_ = executors()
        os.kill(first, signal.SIGKILL)
        told["killed"] = 1
        asked.result(600)
        told["an executor was killed"] = states(connection)

    lake.slow_down("60000L")
    with connect(spark, f"{folder}/second.ledger") as connection:
        asked = pool.submit(lambda: connection.execute(SLOWLY).fetchall())
        lake.wait_until_asleep()
        spark.stop()
        try:
            asked.result(600)
        except dpsql.SealedExecutionError as problem:
            told["said"] = str(problem)
        told["the session was stopped"] = states(connection)
        connection.session.resume()
        try:
            connection.execute(QUICKLY)
        except dpsql.OperationalError as problem:
            told["next"] = str(problem)

    spark = session(folder / "again")
    Lake(spark, "0L")
    spark.sql("USE lost")
    with connect(spark, f"{folder}/second.ledger") as connection:
        connection.execute(QUICKLY)
        told["connected again"] = states(connection)
    with suppress(Exception):
        spark.stop()
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

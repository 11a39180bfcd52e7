"""A Spark that goes away while a question is asked: as in test_lost_servers.py.

What is asked waits as long as a property of Spark's own process says. Executors are lost by a cluster that another
process has (lost_cluster.py), since a process has one Spark in its life.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dpsql

pytestmark = pytest.mark.spark
lost_cluster = runpy.run_path(str(Path(__file__).parent / "lost_cluster.py"))
SLOWLY, QUICKLY = lost_cluster["SLOWLY"], lost_cluster["QUICKLY"]


MILLISECONDS = "CAST(reflect('java.lang.System', 'getProperty', 'dpsql.test.sleep') AS BIGINT)"


@pytest.fixture(scope="module")
def lake(spark: Any) -> Iterator[Any]:
    delay(spark, 0)
    yield lost_cluster["Lake"](spark, MILLISECONDS)
    spark.sql("DROP DATABASE lost CASCADE")


def delay(spark: Any, milliseconds: int) -> None:
    """For each row from now on, also of a question that is asked already."""
    spark.sparkContext._jvm.java.lang.System.setProperty("dpsql.test.sleep", str(milliseconds))


def connect(url: str, **options: Any) -> dpsql.Connection:
    connection: dpsql.Connection = lost_cluster["connect"](f"{url}/;database=lost", ":memory:", **options)
    return connection


def states(connection: dpsql.Connection) -> list[str]:
    return [entry.state for entry in connection.session.environment.ledger.history()][1:]


def test_a_session_that_is_lost_is_made_anew_and_the_question_answered(lake: Any, spark_url: str) -> None:
    delay(lake.spark, 5_000)
    with connect(spark_url) as connection, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: connection.execute(SLOWLY).fetchall())
        lake.wait_until_asleep()
        delay(lake.spark, 0)
        connection.session.environment.engine._session.stop()  # type: ignore[attr-defined]
        assert abs(asked.result(120)[0][0] - 50) < 40
        assert states(connection) == ["charged", "retried", "released"]


def test_a_question_that_takes_too_long_is_stopped(lake: Any, spark_url: str) -> None:
    with connect(spark_url, timeout=3) as connection:
        delay(lake.spark, 0)
        assert connection.execute(QUICKLY).fetchall()
        delay(lake.spark, 60_000)
        begun = time.monotonic()
        try:
            with pytest.raises(dpsql.QueryTimeout, match="stopped after 3 seconds"):
                connection.execute(SLOWLY, epsilon=1e-9)
        finally:
            delay(lake.spark, 0)
        assert time.monotonic() - begun < 30
        assert states(connection) == ["charged", "released", "charged", "timed out"]
        assert connection.execute(QUICKLY, fresh=True).fetchall(), "the session is as good as before"


def test_a_session_that_was_lost_in_between_is_not_noticed(lake: Any, spark_url: str) -> None:
    delay(lake.spark, 0)
    with connect(spark_url) as connection:
        connection.execute(QUICKLY)
        connection.session.environment.engine._session.stop()  # type: ignore[attr-defined]
        connection.execute(QUICKLY, fresh=True)
        assert states(connection) == ["charged", "released"] * 2


def test_a_table_that_is_dropped_under_a_question_is_a_failure(lake: Any, spark_url: str) -> None:
    """Its files are gone; what Spark says of it stays where it is."""
    lake.spark.sql("CREATE TABLE lost.guests USING parquet AS SELECT id FROM range(9)")
    with connect(spark_url, guests=True, on_failure="warn") as connection:
        engine = connection.session.environment.engine
        check = engine.check_unchanged
        engine.check_unchanged = lambda: (check(), lake.spark.sql("DROP TABLE lost.guests"))  # type: ignore[method-assign,func-returns-value,assignment]
        with pytest.raises(dpsql.SealedExecutionError, match="could not run the query; the charge stands") as caught:
            connection.execute("SELECT COUNT(*) FROM guests")
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert "guests" not in str(caught.value)
        assert states(connection) == ["charged", "failed"]
        engine.check_unchanged = check  # type: ignore[method-assign]
        with pytest.raises(dpsql.OperationalError, match="a declared table is gone"):
            connection.execute(QUICKLY)


@pytest.mark.long
def test_executors_and_sessions_that_are_lost(tmp_path: Path) -> None:
    """Spark itself runs again what an executor did not finish. A session that was stopped cannot be made anew."""
    script = Path(__file__).parent / "lost_cluster.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"] >= 1
    assert told["an executor was killed"] == ["charged", "released"]
    assert told["the session was stopped"] == ["charged", "suspended"]
    assert told["said"].startswith("the database could not run the query; the charge stands")
    assert told["next"].startswith("Spark does not answer")
    assert told["connected again"] == ["charged", "suspended", "resumed", "charged", "released"]

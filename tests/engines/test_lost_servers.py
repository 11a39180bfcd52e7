"""A server that goes away while a question is asked: the charge stands, the error is sealed, the next question works.

The server is a PostgreSQL of this file's own. What is asked waits as long as a row of a table says, so that it can be
met while it runs.
"""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.accounting.ledger.ledger import Ledger

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed; pip install dpsql[postgres]")
SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "tables": {
        "people": {"unit": "id", "columns": {"id": "integer"}},
        "slow": {"unit": "id", "view": "trusted", "columns": {"id": "integer"}},
    },
}
DATABASE = """
    CREATE TABLE people (id BIGINT);
    INSERT INTO people SELECT generate_series(1, 50);
    CREATE TABLE delay (seconds DOUBLE PRECISION);
    INSERT INTO delay VALUES (0);
    CREATE VIEW slow AS SELECT id FROM people, (SELECT pg_sleep(seconds) FROM delay) AS slept;
    CREATE ROLE reader LOGIN;
    GRANT SELECT ON people, slow TO reader;
"""
SLOWLY, QUICKLY = "SELECT COUNT(*) FROM slow", "SELECT COUNT(*) FROM people"
ASLEEP = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


class Server:
    def __init__(self, url: str, control: Callable[..., None]) -> None:
        self.url, self.control = url, control
        self.ask(DATABASE)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def delay(self, seconds: float) -> None:
        self.ask(f"UPDATE delay SET seconds = {seconds}")

    def connect(self, options: str = "", **others: Any) -> dpsql.Connection:
        url = f"{self.url}&options={options}" if options else self.url
        return dpsql.connect(
            url.replace("owner@", "reader@"), schema=SCHEMA, budget=10, query_epsilon=1, ledger=":memory:", **others
        )

    def asleep(self) -> int:
        """The server's process that runs a question, once there is one."""
        while not (found := self.ask(ASLEEP)):
            time.sleep(0.02)
        return int(found[0][0])

    def end(self, process: int) -> None:
        self.ask(f"SELECT pg_terminate_backend({process}, 10000)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    names = runpy.run_path(str(Path(__file__).parent / "postgresql_cluster.py"))
    if (reason := names["missing"]()) is not None:
        pytest.skip(reason)
    with names["restartable_cluster"]() as (url, control):
        yield Server(url, control)


@pytest.fixture
def server(cluster: Server) -> Server:
    cluster.delay(0)
    return cluster


def meanwhile(connection: dpsql.Connection, sql: str) -> Future[list[tuple[Any, ...]]]:
    """Its rows, asked by another thread."""
    pool = ThreadPoolExecutor(1)
    asked = pool.submit(lambda: connection.execute(sql).fetchall())
    pool.shutdown(wait=False)
    return asked


def states(connection: dpsql.Connection) -> list[str]:
    return [entry.state for entry in connection.session.environment.ledger.history()][1:]


def test_a_connection_that_is_lost_is_made_anew_and_the_question_answered(server: Server) -> None:
    server.delay(600)
    with server.connect() as connection:
        asked = meanwhile(connection, SLOWLY)
        process = server.asleep()
        server.delay(0)
        server.end(process)
        assert abs(asked.result(60)[0][0] - 50) < 40
        assert states(connection) == ["charged", "retried", "released"]


def test_a_second_connection_that_is_lost_may_be_a_row(server: Server) -> None:
    """Of the first the analyst saw a delay. One for each question would tell of a row, so the owner has to look."""

    def asked_while_it_breaks(sql: str) -> list[tuple[Any, ...]]:
        server.delay(600)
        asked = meanwhile(connection, sql)
        process = server.asleep()
        server.delay(0)
        server.end(process)
        return asked.result(60)

    with server.connect() as connection:
        asked_while_it_breaks(SLOWLY)
        with pytest.raises(dpsql.SealedExecutionError, match="could not run the query; the charge stands"):
            asked_while_it_breaks(f"{SLOWLY} WHERE id > 1")
        connection.session.resume()
        asked_while_it_breaks(f"{SLOWLY} WHERE id > 2")
        answered, stopped = ["charged", "retried", "released"], ["charged", "suspended", "resumed"]
        assert states(connection) == answered + stopped + answered


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_restarted_is_waited_for(server: Server, mode: str) -> None:
    """An immediate restart is what a crash looks like."""
    server.delay(600)
    with server.connect() as connection:
        asked = meanwhile(connection, SLOWLY)
        server.asleep()
        server.control("-m", mode, "stop")
        # Before the question gets there: it is asked again as soon as it can be.
        server.control("-o", "-c port=5433", "start")
        server.url, url = f"{server.url}&port=5433", server.url
        server.delay(0)
        server.url = url
        server.control("-m", "fast", "restart")
        assert abs(asked.result(60)[0][0] - 50) < 40
        assert states(connection) == ["charged", "retried", "released"]


def test_what_ends_the_server_twice_may_be_a_row(server: Server) -> None:
    """So it is a failure like any other, in the same words, and suspends; the connection is as good as new."""
    server.delay(600)
    with server.connect() as connection:
        asked = meanwhile(connection, SLOWLY)
        first = server.asleep()
        server.end(first)
        second = server.asleep()
        assert second != first
        server.end(second)
        with pytest.raises(dpsql.SealedExecutionError, match="could not run the query; the charge stands") as caught:
            asked.result(60)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert "terminat" not in str(caught.value)
        assert states(connection) == ["charged", "retried", "suspended"]
        with pytest.raises(dpsql.AccountSuspended):
            connection.execute(QUICKLY)
        connection.session.resume()
        assert connection.execute(QUICKLY).fetchall()


def test_a_time_limit_is_a_failure_like_any_other(server: Server) -> None:
    """A row may have made it slow."""
    server.delay(600)
    with server.connect("-cstatement_timeout%3D500", on_failure="warn") as connection:
        with pytest.raises(dpsql.SealedExecutionError, match="could not run the query; the charge stands") as caught:
            connection.execute(SLOWLY)
        assert "timeout" not in str(caught.value)
        assert states(connection) == ["charged", "failed"]
        assert connection.execute(QUICKLY).fetchall()


def test_a_question_that_takes_too_long_is_stopped(server: Server) -> None:
    """The server's own limit, which is shorter here, is that of other transactions."""
    server.delay(600)
    with server.connect("-cstatement_timeout%3D100", timeout=1, interrupts_per_day=1) as connection:
        begun = time.monotonic()
        with pytest.raises(dpsql.QueryTimeout, match="stopped after 1 seconds; the charge stands") as caught:
            connection.execute(SLOWLY, epsilon=1e-9)
        assert 1 <= time.monotonic() - begun < 10
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert connection.budget.spent.epsilon == pytest.approx(1e-3)
        assert connection.execute(QUICKLY).fetchall()
        with pytest.raises(dpsql.SealedExecutionError, match="the account is suspended"):
            connection.execute(SLOWLY)
        assert states(connection) == ["charged", "timed out", "charged", "released", "charged", "suspended"]
        connection.session.environment.ledger.verify()


INTERRUPTED = """
import signal, sys, dpsql
signal.signal(signal.SIGINT, signal.default_int_handler)
dpsql.connect(sys.argv[1], schema=eval(sys.argv[2]), budget=10, ledger=sys.argv[3]).execute(sys.argv[4], epsilon=1e-9)
"""


@pytest.mark.parametrize(
    ("by", "said"), [(signal.SIGINT, "KeyboardInterrupt\nthe charge stands"), (signal.SIGTERM, "")]
)
def test_a_signal_ends_a_question_and_is_on_record(
    server: Server, tmp_path: Path, by: signal.Signals, said: str
) -> None:
    """Of Ctrl-C and SIGTERM neither leaves the server's query running nor looks like a crash."""
    server.delay(600)
    url, ledger = server.url.replace("owner@", "reader@"), tmp_path / "clinic.ledger"
    command = [sys.executable, "-c", INTERRUPTED, url, repr(SCHEMA), str(ledger), SLOWLY]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        server.asleep()
        child.send_signal(by)
        _, errors = child.communicate(timeout=60)
    assert child.returncode in (128 + by, -by)
    assert errors.rstrip().endswith(said)
    assert not server.ask(ASLEEP)
    with closing(Ledger.at(ledger)) as opened:
        assert [entry.state for entry in opened.history()] == ["budget", "charged", "interrupted"]
        assert opened.budget.spent.epsilon == pytest.approx(1e-3)
        assert opened.budget.suspended == ()


def test_a_connection_that_was_lost_in_between_is_not_noticed(server: Server) -> None:
    with server.connect() as connection:
        connection.execute(QUICKLY)
        server.control("-m", "fast", "restart")
        connection.execute(QUICKLY, fresh=True)
        assert states(connection) == ["charged", "released"] * 2


def test_a_server_that_is_gone_costs_nothing(server: Server) -> None:
    with server.connect() as connection:
        server.control("-m", "fast", "stop")
        try:
            with pytest.raises(dpsql.OperationalError, match="PostgreSQL cannot be reached") as caught:
                connection.execute(QUICKLY)
            assert caught.value.hint
        finally:
            server.control("start")
        assert states(connection) == []
        assert connection.execute(QUICKLY).fetchall()


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("REVOKE SELECT ON people FROM reader", "GRANT SELECT ON people TO reader"),
        ("REVOKE SELECT ON slow FROM reader", "GRANT SELECT ON slow TO reader"),
        ("ALTER TABLE people RENAME TO persons", "ALTER TABLE persons RENAME TO people"),
    ],
)
def test_what_may_not_be_read_any_more_costs_nothing(server: Server, change: str, back: str) -> None:
    with server.connect() as connection:
        server.ask(change)
        try:
            with pytest.raises(dpsql.OperationalError, match="is gone, or can no longer be read") as caught:
                connection.execute(QUICKLY)
            assert "reconnect" in str(caught.value)
        finally:
            server.ask(back)
        assert states(connection) == []
        assert connection.execute(QUICKLY).fetchall()


@contextmanager
def locked(server: Server, table: str) -> Iterator[None]:
    """Somebody alters the table, and takes their time."""
    with psycopg.connect(server.url) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


IMPATIENT = "-clock_timeout%3D200"


def test_a_question_waits_for_no_table_that_it_does_not_read(server: Server) -> None:
    with server.connect(IMPATIENT) as connection, locked(server, "delay"):
        assert connection.execute(QUICKLY).fetchall()


@pytest.mark.parametrize("grant", ["SELECT", "SELECT (id)"])
def test_somebody_elses_lock_is_named_and_costs_nothing(server: Server, grant: str) -> None:
    server.ask(f"REVOKE SELECT ON people FROM reader; GRANT {grant} ON people TO reader")
    try:
        with server.connect(IMPATIENT) as connection:
            for asked in (QUICKLY, QUICKLY.replace("*", "id")):
                with locked(server, "people"), pytest.raises(dpsql.OperationalError, match="locked by another session"):
                    connection.execute(asked)
            assert states(connection) == []
            assert connection.execute(QUICKLY).fetchall()
    finally:
        server.ask("GRANT SELECT ON people TO reader")


def test_a_table_that_is_locked_between_two_rounds_suspends_nobody(server: Server) -> None:
    """A query that finds its own bounds reads twice. Whoever locks the table meanwhile is no row of it."""
    server.delay(1)
    with server.connect(IMPATIENT) as connection, ThreadPoolExecutor(1) as pool:
        asked = meanwhile(connection, SLOWLY)
        server.asleep()
        # It is granted between the rounds, as soon as the first has ended.
        waiting = pool.submit(
            server.ask, "BEGIN; LOCK TABLE delay IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(2); COMMIT"
        )
        with pytest.raises(dpsql.OperationalError, match="locked by another session"):
            asked.result(60)
        waiting.result(60)
        assert states(connection) == ["charged", "failed"]
        assert connection.budget.suspended == ()


BOTH = "SELECT COUNT(*) FROM slow JOIN guests USING (id)"


def test_a_table_cannot_be_dropped_under_a_question(server: Server) -> None:
    """Whoever drops it waits until the question is answered."""
    server.ask("CREATE TABLE guests (id BIGINT); INSERT INTO guests VALUES (1); GRANT SELECT ON guests TO reader")
    server.delay(1)
    schema = SCHEMA | {"tables": SCHEMA["tables"] | {"guests": {"unit": "id", "columns": {"id": "integer"}}}}
    schema |= {"contribution": {"max_rows_per_group": 1}}
    url = server.url.replace("owner@", "reader@")
    with dpsql.connect(url, schema=schema, budget=10, query_epsilon=1, ledger=":memory:") as connection:
        asked = meanwhile(connection, BOTH)
        server.asleep()
        dropping = threading.Thread(target=server.ask, args=["DROP TABLE guests"])
        dropping.start()
        asked.result(60)
        dropping.join(60)
        assert states(connection) == ["charged", "released"]
        with pytest.raises(dpsql.OperationalError, match="is gone"):
            connection.execute(QUICKLY)


def test_a_table_that_is_dropped_between_two_rounds_suspends_nobody(server: Server) -> None:
    """A query that finds its own bounds reads twice. No row is behind the failure of the second time."""
    server.ask("CREATE TABLE guests (id BIGINT); INSERT INTO guests VALUES (1); GRANT SELECT ON guests TO reader")
    server.delay(1)
    schema = SCHEMA | {"tables": SCHEMA["tables"] | {"guests": {"unit": "id", "columns": {"id": "integer"}}}}
    url = server.url.replace("owner@", "reader@")
    with dpsql.connect(url, schema=schema, budget=10, query_epsilon=1, ledger=":memory:") as connection:
        asked = meanwhile(connection, BOTH)
        server.asleep()
        server.ask("DROP TABLE guests")
        with pytest.raises(dpsql.OperationalError, match="is gone"):
            asked.result(60)
        assert states(connection) == ["charged", "failed"]
        assert connection.budget.suspended == ()

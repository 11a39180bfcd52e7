"""A question that fails after its charge suspends its analyst: on record, everywhere, and until the owner resumes."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import yaml

import dpsql
from dpsql.accounting.events import Composed, PureRelease
from dpsql.accounting.ledger import journal, sqlite
from dpsql.accounting.ledger.journal import Journal, Record
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.cli.app import main
from dpsql.engines.duckdb import engine
from dpsql.engines.duckdb.engine import DuckDBEngine

SCHEMA = {"tables": {"people": {"unit": "id", "unique": True, "columns": {"id": "integer"}}}}
COUNT = "SELECT COUNT(*) FROM people"
TENTH = PureRelease(Fraction(1, 10))
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS id FROM range(100) AS r(i)")
    return path


@pytest.fixture
def opened(database: Path) -> Iterator[Callable[..., dpsql.Connection]]:
    connections = []

    def open_connection(**options: Any) -> dpsql.Connection:
        connections.append(dpsql.connect(database, schema=SCHEMA, **{"budget": 10, **options}))
        return connections[-1]

    yield open_connection
    for connection in connections:
        connection.close()


def fail(*_: object) -> Any:
    raise duckdb.OutOfRangeException("Overflow in addition (alice-4711)")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Breaks the engine, and mends it again."""
    run = DuckDBEngine.run

    def switch(to: Any = fail) -> None:
        monkeypatch.setattr(DuckDBEngine, "run", run if to is None else to)

    return switch


def states(connection: dpsql.Connection) -> list[str]:
    return [entry.state for entry in connection.session.environment.ledger.history()]


def test_a_failure_suspends_until_the_owner_resumes(opened: Any, broken: Any) -> None:
    connection = opened()
    known = connection.execute(COUNT).fetchall()
    broken()
    with pytest.raises(dpsql.SealedExecutionError, match=r"the account is suspended\nhint: .*dpsql ledger resume"):
        connection.execute(COUNT, fresh=True)
    broken(None)
    spent = connection.budget.spent
    with pytest.raises(
        dpsql.AccountSuspended, match=r"suspended: .* \(entry 5\)\nhint: .*dpsql ledger resume"
    ) as caught:
        connection.execute(COUNT, fresh=True)
    assert isinstance(caught.value, dpsql.OperationalError)
    assert connection.budget.spent == spent, "nothing was charged"
    assert connection.execute(COUNT).fetchall() == known, "what was answered before stays free"
    assert connection.explain(COUNT, fresh=True).cost.epsilon > 0
    assert "suspended: questions without an analyst's name, by entry 5" in str(connection.budget)
    assert "suspended" in connection.budget._repr_html_()
    with pytest.raises(dpsql.AccountSuspended):
        opened(budget=None).execute(COUNT, fresh=True)
    connection.resume()
    assert connection.execute(COUNT, fresh=True).fetchall()
    assert states(connection) == [
        "budget",
        "charged",
        "released",
        "charged",
        "suspended",
        "resumed",
        "charged",
        "released",
    ]
    assert not connection.budget.suspended
    connection.session.environment.ledger.verify()


def test_one_analyst_is_suspended_and_not_the_others(opened: Any, broken: Any) -> None:
    ada, bob, nobody = opened(analyst="ada"), opened(analyst="bob"), opened()
    broken()
    with pytest.raises(dpsql.SealedExecutionError, match="--analyst ada"):
        ada.execute(COUNT)
    broken(None)
    with pytest.raises(dpsql.AccountSuspended, match='the account of "ada"'):
        ada.execute(COUNT)
    assert bob.execute(COUNT, fresh=True).fetchall()
    assert nobody.execute(COUNT, fresh=True).fetchall()
    nameless = r"queries without an analyst's name are not suspended\nhint: .*--analyst ada"
    with pytest.raises(dpsql.LedgerError, match=nameless):
        nobody.resume()
    ada.resume()
    assert ada.execute(COUNT, fresh=True).fetchall()


def test_a_warning_is_all_where_the_owner_asks(opened: Any, broken: Any) -> None:
    connection = opened(on_failure="warn")
    broken()
    with pytest.raises(dpsql.SealedExecutionError, match="outside the guarantee"):
        connection.execute(COUNT)
    broken(None)
    assert connection.execute(COUNT).fetchall()
    assert states(connection) == ["budget", "charged", "failed", "charged", "released"]
    with pytest.raises(dpsql.ProgrammingError, match="on_failure"):
        opened(on_failure="ignore")


def test_who_only_warns_does_not_lift_what_another_session_suspended(opened: Any, broken: Any) -> None:
    broken()
    with pytest.raises(dpsql.SealedExecutionError):
        opened().execute(COUNT)
    broken(None)
    with pytest.raises(dpsql.AccountSuspended):
        opened(on_failure="warn").execute(COUNT)


def test_in_a_plan_nothing_after_the_first_failure_is_told(opened: Any, broken: Any) -> None:
    """Which of several fail would be a bit each: so what comes after the first is withheld, whatever it is."""
    connection = opened()
    queries = [f"SELECT COUNT(*) FROM people WHERE id < {n}" for n in (10, 20, 30)]
    run, asked = DuckDBEngine.run, []

    def fail_second(engine: DuckDBEngine, sql: str, materialized: Any = None) -> Any:
        asked.append(sql)
        return fail() if len(asked) == 2 else run(engine, sql, materialized)

    plan = connection.plan(queries, epsilon=1)
    broken(fail_second)
    with pytest.raises(dpsql.SealedExecutionError):
        plan.execute()
    assert len(asked) == 3
    assert states(connection) == ["budget", *["charged"] * 3, "released", "suspended", "suspended"]
    broken(None)
    with pytest.raises(dpsql.AccountSuspended):
        connection.plan(queries[2:], epsilon=plan.cost.epsilon).execute()


def test_an_answer_that_is_ready_after_the_suspension_is_withheld(opened: Any, broken: Any) -> None:
    """Another question of the analyst failed meanwhile: this one looks as if it had failed too: no second bit."""
    connection, other = opened(), opened()
    run = DuckDBEngine.run

    def meanwhile(engine: DuckDBEngine, sql: str, materialized: Any = None) -> Any:
        broken()
        with pytest.raises(dpsql.SealedExecutionError):
            other.execute(COUNT, fresh=True)
        return run(engine, sql, materialized)

    broken(meanwhile)
    with pytest.raises(dpsql.SealedExecutionError):
        connection.execute(COUNT)
    broken(None)
    connection.resume()
    before = connection.budget.queries
    connection.execute(COUNT)
    assert connection.budget.queries == before + 1, "the withheld answer was not stored"
    assert states(connection)[:6] == ["budget", "charged", "charged", "suspended", "suspended", "resumed"]


def test_frames_are_suspended_too(broken: Any) -> None:
    frame = pd.DataFrame({"id": range(100), "x": 1})
    frame.dp.protect(unit="id", budget=10)
    broken()
    with pytest.raises(dpsql.SealedExecutionError):
        frame.dp.count(epsilon=1)
    broken(None)
    with pytest.raises(dpsql.AccountSuspended, match=r"df\.dp"):
        frame.dp.count(epsilon=1)
    frame.dp.resume()
    frame.dp.count(epsilon=1)
    with pytest.raises(dpsql.LedgerError, match="on_failure='suspend'"):
        frame.dp.protect(unit="id", on_failure="warn")


def test_the_command_has_a_code_for_it_and_the_owner_a_command(
    database: Path, opened: Any, broken: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    broken()
    with pytest.raises(dpsql.SealedExecutionError):
        opened().execute(COUNT)
    broken(None)
    ledger = f"{database}.ledger"
    schema = database.with_suffix(".yaml")
    schema.write_text(yaml.safe_dump(SCHEMA))
    asking = ("query", COUNT, "--db", str(database), "--schema", str(schema), "--fresh")

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        return f"{ended.value.code} {said.out}{said.err}"

    assert run(*asking).startswith("5 AccountSuspended: ")
    assert "suspended: questions without an analyst's name" in run("budget", "--db", str(database))
    assert "suspended" in run("ledger", "show", ledger)
    assert '"suspended": [{"analyst": null, "entry": 3' in run("budget", "--db", str(database), "--json")
    assert run("ledger", "resume", ledger, "--analyst", "eve").startswith("1 ")
    assert run("ledger", "resume", ledger).startswith("0 resumed")
    assert run("ledger", "verify", ledger).startswith("0 ")
    assert run(*asking).startswith("0 ")


def test_sqlalchemy_passes_it_on(database: Path, opened: Any, broken: Any) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    schema = database.with_suffix(".yaml")
    schema.write_text(yaml.safe_dump(SCHEMA))
    engine = sqlalchemy.create_engine(f"dpsql:///{database}?schema={schema}&budget=10&on_failure=suspend")
    broken()
    with engine.connect() as connection:
        for kind in (dpsql.SealedExecutionError, dpsql.AccountSuspended):
            with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
                connection.execute(sqlalchemy.text(COUNT))
            assert type(caught.value.orig) is kind
    engine.dispose()


# -- processes that die ------------------------------------------------------------------------------------------------

DIE = """
import os, signal, sys, dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
DuckDBEngine.run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
dpsql.connect(sys.argv[1], schema=eval(sys.argv[2]), budget=10).execute("SELECT COUNT(*) FROM people")
"""


LOOK = """
import sys
from dpsql.accounting.ledger.ledger import Ledger
dataset = Ledger.at(sys.argv[1]).dataset
assert not Ledger.open(sys.argv[1], dataset=dataset).budget.suspended
"""


def test_a_process_that_dies_after_its_charge_has_failed(database: Path, opened: Any) -> None:
    """Killed for lack of memory, say: the next session of that analyst finds a charge that nobody holds."""
    ran = subprocess.run([sys.executable, "-c", DIE, str(database), repr(SCHEMA)], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert opened(analyst="ada").execute(COUNT).fetchall(), "another analyst has nothing to do with it"
    connection = opened()
    with pytest.raises(dpsql.AccountSuspended):
        connection.execute(COUNT, fresh=True)
    connection.resume()
    assert connection.execute(COUNT, fresh=True).fetchall()
    connection.session.environment.ledger.verify()


def test_a_charge_that_another_session_works_on_is_not_lost(opened: Any, broken: Any, database: Path) -> None:
    connection, run, seen = opened(), DuckDBEngine.run, []

    def look_meanwhile(engine: DuckDBEngine, sql: str, materialized: Any = None) -> Any:
        broken(None)
        seen.append(opened().execute(COUNT, fresh=True).fetchall())
        seen.append(subprocess.run([sys.executable, "-c", LOOK, f"{database}.ledger"], check=False).returncode)
        return run(engine, sql, materialized)

    broken(look_meanwhile)
    assert connection.execute(COUNT, fresh=True).fetchall()
    assert seen[1] == 0
    assert "suspended" not in states(connection)


# -- questions that are stopped ----------------------------------------------------------------------------------------


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Asks, and presses Ctrl-C while DuckDB is at work."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def ask(connection: dpsql.Connection, **options: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "_fetched", interrupted)
            with pytest.raises(KeyboardInterrupt) as caught:
                connection.execute(COUNT, fresh=True, **options)
        assert caught.value.__context__ is None

    yield ask
    signal.signal(signal.SIGINT, before)


def test_interrupts_are_on_record_and_one_too_many_in_a_day_suspends(opened: Any, stopped: Any) -> None:
    """Else whether a question ends is a bit, again and again, at whatever price: see docs/proofs/ledger.md."""
    connection = opened()
    for _ in range(3):
        stopped(connection)
    assert connection.execute(COUNT, fresh=True).fetchall()
    stopped(connection)
    assert states(connection)[1:] == [*["charged", "interrupted"] * 3, "charged", "released", "charged", "suspended"]
    with pytest.raises(dpsql.AccountSuspended, match="returned no answer"):
        connection.execute(COUNT, fresh=True)
    connection.resume()
    stopped(connection)
    assert connection.execute(COUNT, fresh=True).fetchall(), "the owner has looked: it is the first again"
    connection.session.environment.ledger.verify()


def test_an_interrupt_costs_at_least_a_ten_thousandth_of_the_budget(opened: Any, stopped: Any) -> None:
    connection = opened()
    stopped(connection, epsilon=1e-9)
    assert connection.budget.spent.epsilon == pytest.approx(1e-3)
    assert connection.budget.basic.epsilon == pytest.approx(1e-3)
    assert connection.budget.queries == 1
    stopped(connection, epsilon=1)
    assert connection.budget.spent.epsilon == pytest.approx(1.001), "a question that cost more has paid for it"
    assert connection.history().epsilon.tolist()[1:] == pytest.approx([1e-9, 1e-3, 1, 0], rel=1e-4)
    assert "spent in 2 queries" in str(connection.budget)
    assert connection.budget._repr_html_()
    connection.session.environment.ledger.verify()


@pytest.mark.parametrize("composition", ["basic", "zcdp", "gdp", "auto", "mixed"])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_composition_counts_what_an_interrupt_costs(opened: Any, composition: str, delta: float) -> None:
    ledger = opened(composition=composition, delta=delta).session.environment.ledger
    twin = Ledger.open(":memory:", dataset="shop", epsilon=10, delta=delta, composition=composition)
    cheap = PureRelease(Fraction(1, 10**9))
    ledger.stopped(ledger.charge(cheap, sql="SELECT 1", fingerprint="f", epsilon="1e-9"), "interrupted")
    lacking = PureRelease(Fraction(1, 1000) - Fraction(1, 10**9))
    twin.charge(Composed((cheap, lacking)), sql="SELECT 1", fingerprint="f", epsilon="1e-3")
    assert ledger.budget.spent == twin.budget.spent
    assert ledger.budget.tally.totals.agrees(twin.budget.tally.totals)
    ledger.verify()


def test_an_interrupt_that_the_budget_has_nothing_left_for_suspends(opened: Any, stopped: Any) -> None:
    connection = opened()
    connection.execute(COUNT, epsilon="9.9995")
    stopped(connection, epsilon=1e-9)
    assert states(connection)[-2:] == ["charged", "suspended"]
    assert connection.budget.spent.epsilon <= 10
    connection.session.environment.ledger.verify()


def test_each_analyst_has_interrupts_of_their_own(opened: Any, stopped: Any) -> None:
    ada, bob = (opened(analyst=name, analyst_budget=1, interrupts_per_day=1) for name in ("ada", "bob"))
    for analyst in (ada, bob, ada):
        stopped(analyst, epsilon=1e-9)
    with pytest.raises(dpsql.AccountSuspended, match='the account of "ada"'):
        ada.execute(COUNT)
    assert bob.execute(COUNT, epsilon=0.1).fetchall()
    least = 1e-4
    assert ada.session.environment.ledger.analyst_budget.spent.epsilon == pytest.approx(2 * least)
    ada.session.environment.ledger.verify()


def test_yesterdays_interrupts_do_not_count(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(interrupts_per_day=1).session.environment.ledger

    def stop() -> str:
        return ledger.stopped(ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1"), "interrupted").state

    assert stop() == "interrupted"
    later = datetime.now(UTC) + timedelta(hours=25)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "now", lambda: later)
        assert stop() == "interrupted"
        assert stop() == "suspended"


def test_the_owner_may_reset_interrupts_before_they_suspend(opened: Any, stopped: Any) -> None:
    connection = opened(interrupts_per_day=1)
    stopped(connection)
    connection.resume()
    stopped(connection)
    assert "suspended" not in states(connection)
    with pytest.raises(dpsql.LedgerError, match="is not suspended"):
        opened(analyst="ada").resume()


def test_where_the_owner_only_warns_interrupts_are_on_record_and_paid(opened: Any, stopped: Any) -> None:
    connection = opened(on_failure="warn", interrupts_per_day=0)
    stopped(connection, epsilon=1e-9)
    assert states(connection)[-1] == "interrupted"
    assert connection.budget.spent.epsilon == pytest.approx(1e-3)


@pytest.mark.parametrize("wrong", [-1, 1.5, "many", True])
def test_interrupts_per_day_is_a_count(opened: Any, wrong: object) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="interrupts_per_day"):
        opened(interrupts_per_day=wrong)


def test_an_interrupted_plan_leaves_no_charge_open(opened: Any, stopped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its later questions were not asked. Were their charges still held, the process would take them with it."""
    connection = opened()
    plan = connection.plan([f"SELECT COUNT(*) FROM people WHERE id < {n}" for n in (10, 20, 30)], epsilon=1)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_fetched", interrupted)
        with pytest.raises(KeyboardInterrupt):
            plan.execute()
    assert states(connection) == ["budget", *["charged"] * 3, "interrupted", "failed", "failed"]
    connection.close()
    assert not opened().budget.suspended


def test_failures_and_lost_processes_cost_as_much(opened: Any, broken: Any) -> None:
    connection = opened()
    broken()
    with pytest.raises(dpsql.SealedExecutionError):
        connection.execute(COUNT, epsilon=1e-9)
    assert connection.budget.spent.epsilon == pytest.approx(1e-3)
    connection.resume()
    ledger = connection.session.environment.ledger
    charge = ledger.charge(PureRelease(Fraction(1, 10**9)), sql="SELECT 1", fingerprint="f", epsilon="1e-9")
    ledger.release(charge)
    assert opened().budget.suspended
    assert connection.budget.spent.epsilon == pytest.approx(2e-3)
    connection.resume()
    assert ledger.may_retry(ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1"))
    ledger.verify()


def endless(found: duckdb.DuckDBPyConnection) -> Any:
    return found.execute("SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range = 7")


@pytest.mark.parametrize("in_thread", [False, True], ids=["main thread", "another thread"])
def test_a_question_that_takes_too_long_is_stopped(
    opened: Any, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    connection = opened(timeout=0.3, interrupts_per_day=1)

    def ask() -> str:
        with pytest.raises(dpsql.OperationalError) as caught:
            connection.execute(COUNT, epsilon=1e-9)
        return f"{type(caught.value).__name__}: {caught.value}"

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_fetched", endless)
        for words in ("QueryTimeout: the query was stopped after 0.3 seconds", "SealedExecutionError: "):
            begun = time.monotonic()
            with ThreadPoolExecutor(1) as pool:
                said = pool.submit(ask).result() if in_thread else ask()
            assert time.monotonic() - begun < 5
            assert words in said
    assert states(connection) == ["budget", "charged", "timed out", "charged", "suspended"]
    assert connection.budget.spent.epsilon == pytest.approx(2e-3)
    connection.resume()
    assert connection.execute(COUNT).fetchall(), "the connection is as good as before"
    connection.session.environment.ledger.verify()


def test_a_question_that_is_in_time_is_answered(opened: Any) -> None:
    connection = opened(timeout=30)
    for _ in range(5):
        assert connection.execute(COUNT, epsilon=0.1, fresh=True).fetchall()
    assert "timed out" not in states(connection)
    for wrong in (0, -1, "soon"):
        with pytest.raises(dpsql.ProgrammingError, match="timeout"):
            opened(timeout=wrong)


def test_a_question_that_fails_in_time_has_failed(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = opened(timeout=30)
    monkeypatch.setattr(engine, "_fetched", fail)
    with pytest.raises(dpsql.SealedExecutionError):
        connection.execute(COUNT)


def test_the_command_line_takes_the_time_limit(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = database.with_suffix(".yaml")
    schema.write_text(yaml.safe_dump(SCHEMA))
    monkeypatch.setattr(engine, "_fetched", endless)
    asking = ("query", COUNT, "--db", str(database), "--schema", str(schema), "--budget", "1", "--timeout", "0.2")
    with pytest.raises(SystemExit) as ended:
        main(asking)
    assert ended.value.code == 4
    assert "QueryTimeout: the query was stopped after 0.2 seconds" in capsys.readouterr().err


def interrupted(connection: duckdb.DuckDBPyConnection) -> Any:
    """As if it was a query without end; the signal is real."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    return connection.execute("SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range = 7")


ASK_FOR_LONG = """
import signal, sys, dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have switched it off
connection = dpsql.connect(sys.argv[1], schema=eval(sys.argv[2]), budget=10)
run = DuckDBEngine._run

def tell(engine, sql, **asked):
    print("running", flush=True)
    return run(engine, sql, **asked)

DuckDBEngine._run = tell
pairs = "people AS a JOIN people AS b ON a.id = b.id"
connection.execute(f"SELECT COUNT(*) FROM {pairs} WHERE (a.n * b.n) % 7 = 3", epsilon=1)
"""


@pytest.mark.long
def test_ctrl_c_ends_a_question_that_runs(tmp_path: Path) -> None:
    """Ten people with twenty thousand rows each, and all pairs of a person's rows: that takes minutes."""
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE people AS SELECT i % 10 AS id, i AS n FROM range(200000) AS r(i)")
    schema = {"tables": {"people": {"unit": "id", "columns": {"id": "integer", "n": "integer"}}}}
    child = subprocess.Popen(
        [sys.executable, "-c", ASK_FOR_LONG, str(path), repr(schema)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    time.sleep(3)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    asked = time.monotonic()
    _, errors = child.communicate(timeout=60)
    assert time.monotonic() - asked < 5
    assert errors.rstrip().endswith("KeyboardInterrupt")
    with dpsql.connect(path, schema=schema) as connection:
        assert connection.budget.spent.epsilon == 1
        assert states(connection) == ["budget", "charged", "interrupted"]
        assert connection.execute("SELECT COUNT(*) FROM people").fetchall()


# -- the ledger's file -------------------------------------------------------------------------------------------------


def made_by_version_1(path: Path) -> None:
    """A ledger as dpsql wrote it before there were suspensions."""
    old = [re.sub(r", 'failed', .*?(?=\n *\)\))", "", statement, flags=re.DOTALL) for statement in sqlite.SCHEMA]
    old = [one for one in old if "open_charges" not in one and "suspensions" not in one and "user_version" not in one]
    ledger = Ledger.open(path, dataset="shop", epsilon=1)
    for _ in range(3):
        ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1")
    ledger.close()
    connection = sqlite3.connect(path, isolation_level=None)
    (sequence,) = connection.execute("SELECT seq FROM sqlite_sequence").fetchone()
    rows = connection.execute("SELECT * FROM entries").fetchall()
    for statement in ("DROP TABLE entries", "DROP TABLE answers", "DROP TABLE open_charges", *old):
        connection.execute(statement)
    connection.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(rows[0]))})", rows)
    connection.execute("UPDATE sqlite_sequence SET seq = ?", (sequence,))
    connection.execute("PRAGMA user_version = 1")
    connection.close()


def test_a_ledger_of_version_1_is_taken_over_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    made_by_version_1(path)
    with sqlite3.connect(path) as old, pytest.raises(sqlite3.IntegrityError):
        old.execute(
            "INSERT INTO entries SELECT 9, time, dataset, analyst, 'suspended', 1, composition, fingerprint, sql, "
            "event, epsilon, delta, tally, analyst_tally, hash FROM entries LIMIT 1"
        )
    old.close()
    ledger = Ledger.open(path, dataset="shop")
    assert ledger.verify().charges == 3
    assert ledger.budget.spent.epsilon == pytest.approx(0.3)
    assert not ledger.budget.suspended, "its charges without a mark are not new"
    charge = ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1")
    assert ledger.failed(charge).state == "suspended"
    ledger.close()
    assert [entry.number for entry in Ledger.at(path).history()] == [1, 2, 3, 4, 5, 6]


def test_a_tail_that_was_missing_stays_missing_when_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    made_by_version_1(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER no_delete")
        connection.execute("DELETE FROM entries WHERE number = 4")
    connection.close()
    with pytest.raises(dpsql.LedgerError, match="entries are missing"):
        Ledger.open(path, dataset="shop").verify()


def test_a_ledger_of_version_2_is_taken_over_with_its_open_charges(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    ledger = Ledger.open(path, dataset="shop", epsilon=1)
    ledger.release(ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1"))
    ledger.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        (made,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'entries'").fetchone()
        fewer = re.sub(r", 'retried',.*?(?=\n *\)\))", "", made, flags=re.DOTALL)
        assert fewer != made
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'entries'", (fewer,))
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    ledger = Ledger.open(path, dataset="shop")
    assert [entry.state for entry in ledger.history()] == ["budget", "charged", "suspended"]
    ledger.resume(None)
    assert ledger.may_retry(ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1"))
    assert ledger.verify().charges == 2


# -- questions that are asked once more --------------------------------------------------------------------------------


def test_an_analysts_question_is_asked_once_more_until_the_owner_has_looked(tmp_path: Path) -> None:
    """When servers go away is in tests/engines/test_lost_servers.py; this is the record of it."""
    path = tmp_path / "shop.ledger"
    ada, eve = (Ledger.open(path, dataset="shop", epsilon=1, analyst=name) for name in ("ada", "eve"))
    charges = [ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1") for ledger in (ada, ada, eve)]
    assert ada.may_retry(charges[0])
    assert not ada.may_retry(charges[1]), "whatever it is that she asks"
    assert eve.may_retry(charges[2]), "each has one"
    ada.resume("ada")
    assert ada.may_retry(charges[1])
    for ledger, charge in zip((ada, ada, eve), charges, strict=True):
        assert ledger.released(charge).state == "released"
    assert [entry.state for entry in ada.history()].count("retried") == 3
    assert ada.budget.spent.epsilon == pytest.approx(0.3), "it costs nothing"
    assert ada.verify().charges == 3


def test_a_second_retry_before_the_owner_has_looked_breaks_the_chain(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "shop.ledger", dataset="shop", epsilon=1)
    for _ in range(2):
        with ledger._file.writing() as connection:
            Journal(connection).append(Record(dataset="shop", analyst=None, state="retried"))
    with pytest.raises(dpsql.LedgerError, match="before the owner intervened"):
        ledger.verify()


REFUNDS = {
    "a larger event": (PureRelease(Fraction(1, 5)), Fraction(1, 10)),
    "a larger nominal cost": (TENTH, Fraction(1, 5)),
    "a negative one": (TENTH, Fraction(-1)),
}


@pytest.mark.parametrize(("spared", "epsilon"), REFUNDS.values(), ids=REFUNDS)
def test_a_refund_is_a_part_of_its_charge(spared: Any, epsilon: Fraction, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "shop.ledger", dataset="shop", epsilon=1)
    charge = ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1")
    with pytest.raises(dpsql.LedgerError, match="the refund is more than"):
        ledger.refused(charge, spared, epsilon)
    ledger.refused(charge, TENTH, Fraction(1, 10))
    with pytest.raises(dpsql.LedgerError, match="already"):
        ledger.refused(charge, TENTH, Fraction(1, 10))
    assert ledger.verify().entries == 3
    ledger.close()


def test_a_refund_of_another_ledgers_charge_is_refused(tmp_path: Path) -> None:
    first, second = (Ledger.open(tmp_path / f"{n}.ledger", dataset="shop", epsilon=1) for n in "ab")
    charges = [ledger.charge(TENTH, sql="SELECT 1", fingerprint="f", epsilon="0.1") for ledger in (first, second)]
    with pytest.raises(dpsql.LedgerError, match="is not that charge"):
        first.refused(charges[1], TENTH, Fraction(1, 10))
    with pytest.raises(dpsql.LedgerError, match="is not that charge"):
        first.released(first.history()[0])
    for ledger in (first, second):
        ledger.close()

"""Faults that are really caused: nothing is released uncharged, nothing charged is lost, the next question is clear."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.accounting.ledger import sqlite
from dpsql.accounting.ledger.journal import Journal
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.pipeline import execute, stages

SCHEMA = {
    "tables": {
        "people": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "x": {"type": "integer", "bounds": [0, 9]}},
        }
    }
}
COUNT = "SELECT COUNT(*) FROM people"
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def make_database(path: Path) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS id, i % 10 AS x FROM range(100) AS r(i)")
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return make_database(tmp_path / "people.duckdb")


@pytest.fixture
def opened(database: Path) -> Iterator[Callable[..., dpsql.Connection]]:
    connections = []

    def open_connection(source: object = database, **options: Any) -> dpsql.Connection:
        connections.append(dpsql.connect(source, schema=SCHEMA, **{"budget": 100, **options}))
        return connections[-1]

    yield open_connection
    for connection in connections:
        connection.close()


def ask(connection: dpsql.Connection, **options: Any) -> Any:
    return connection.execute(COUNT, epsilon=0.1, fresh=True, **options).receipt.number


def states(connection: dpsql.Connection) -> list[str]:
    return [entry.state for entry in connection.session.environment.ledger.history()]


# -- the ledger's disk and file ----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 256 kB where one may be mounted."""
    folder = Path(tempfile.mkdtemp())
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("mounting needs root; tests/accounting/test_ledger.py fills a file that may not grow")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def test_a_full_disk_releases_nothing_uncharged(opened: Any, small_disk: Path) -> None:
    connection = opened(ledger=small_disk / "people.ledger")
    answered = []
    (small_disk / "filler").write_bytes(b"x" * 100_000)

    def ask_until_it_is_full() -> None:
        for _ in range(1000):
            answered.append(ask(connection))

    with pytest.raises(dpsql.LedgerError, match="disk"):
        ask_until_it_is_full()
    (small_disk / "filler").unlink()
    ledger = connection.session.environment.ledger
    charged = {entry.number for entry in ledger.history() if entry.state == "charged"}
    assert set(answered) <= charged
    assert len(charged) - len(answered) in (0, 1), "at most the charge whose end could not be recorded"
    if len(charged) > len(answered):
        with pytest.raises(dpsql.AccountSuspended):
            ask(connection)
        connection.resume()
    assert ask(connection)
    ledger.verify()
    connection.close()


def test_a_ledger_locked_by_another_process_charges_nothing(
    opened: Any, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    connection = opened()
    hold = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE'); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, f"{database}.ledger"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(dpsql.LedgerError, match="locked by another process\nhint: try again"):
            ask(connection)
        other.communicate(b"")
    assert connection.budget.queries == 0
    assert ask(connection)


def test_a_ledger_that_is_locked_when_the_answer_is_ready_releases_nothing(
    opened: Any, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge stands. That nothing could be recorded of its end makes it count as failed, once something can."""
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    connection, run = opened(), DuckDBEngine.run
    other = sqlite3.connect(f"{database}.ledger", isolation_level=None)

    def lock_meanwhile(engine: DuckDBEngine, sql: str, materialized: Any = None) -> Any:
        other.execute("BEGIN IMMEDIATE")
        return run(engine, sql, materialized)

    monkeypatch.setattr(DuckDBEngine, "run", lock_meanwhile)
    with pytest.raises(dpsql.LedgerError, match="locked"):
        ask(connection)
    monkeypatch.setattr(DuckDBEngine, "run", run)
    other.execute("ROLLBACK")
    other.close()
    assert connection.budget.queries == 1
    with pytest.raises(dpsql.AccountSuspended):
        ask(connection)
    connection.resume()
    assert ask(connection)


def truncate(path: Path) -> None:
    os.truncate(path, 100)


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"customer,amount\n" * (path.stat().st_size // 16))


DAMAGE = {"truncated": truncate, "overwritten": scribble, "emptied": lambda path: os.truncate(path, 0)}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_ledger_answers_nothing(opened: Any, database: Path, damage: Callable[[Path], None]) -> None:
    opened().close()
    first = opened()
    ask(first)
    first.close()
    damage(Path(f"{database}.ledger"))
    with pytest.raises(dpsql.LedgerError):
        ask(opened(budget=None))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_ledger_damaged_under_a_session_releases_nothing_uncharged(
    opened: Any, database: Path, damage: Callable[[Path], None]
) -> None:
    """SQLite may hold the pages that it needs: then the charge is on record in its log. Else it says what is wrong."""
    connection = opened()
    ask(connection)
    damage(Path(f"{database}.ledger"))
    try:
        number = ask(connection)
    except dpsql.LedgerError:
        return
    assert number in [entry.number for entry in connection.session.environment.ledger.history()]


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced by an older copy"])
def test_a_ledger_that_is_taken_away_under_a_session_is_noticed(opened: Any, database: Path, replaced: bool) -> None:
    """Else it would write where nobody reads, and what it answers would be charged to a file that is gone."""
    first = opened()
    ask(first)
    first.close()
    path = Path(f"{database}.ledger")
    copy = shutil.copy(path, path.with_suffix(".copy"))
    connection = opened()
    ask(connection)
    path.unlink()
    if replaced:
        shutil.move(copy, path)
    with pytest.raises(dpsql.LedgerError, match="was deleted or replaced while it was open"):
        ask(connection)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "setresuid") or os.getuid() != 0, reason="needs root, to be nobody for a while")
def test_a_ledger_that_may_not_be_written_charges_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = make_database(Path(folder) / "people.duckdb")
        dpsql.connect(database, schema=SCHEMA, budget=1).close()
        Path(f"{database}.ledger").chmod(0o444)
        Path(folder).chmod(0o555)
        code = (
            "import os, sys, dpsql, dpsql.session, dpsql.engines.duckdb.engine, dpsql.schema.load\n"
            "os.setresuid(65534, 65534, 65534)\n"
            "try: dpsql.connect(sys.argv[1], schema=eval(sys.argv[2])).execute('SELECT COUNT(*) FROM people')\n"
            "except dpsql.LedgerError as error: print(error)"
        )
        command = [sys.executable, "-c", code, str(database), repr(SCHEMA)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        Path(folder).chmod(0o755)
    assert "cannot be" in ran.stdout, ran.stderr
    assert "hint: " in ran.stdout


# -- interrupts --------------------------------------------------------------------------------------------------------

BEFORE = [stage.__name__ for stage in stages.FREE]
IN_A_ROUND = ["execute_query", "add_noise"]


def interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stage", [*(stage.__name__ for stage in stages.STAGES), *IN_A_ROUND])
def test_an_interrupt_at_any_stage(stage: str, when: str, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = opened()
    home = execute if stage in IN_A_ROUND else stages
    function = getattr(home, stage)

    def interrupted(*arguments: Any) -> Any:
        if when == "after":
            function(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(home, stage, interrupted)
        for part in ("FREE", "PAID"):
            walked = tuple(interrupted if one is function else one for one in getattr(stages, part))
            patched.setattr(stages, part, walked)
        with pytest.raises(KeyboardInterrupt):
            connection.execute(COUNT, epsilon=0.1)
    charged = connection.budget.queries
    assert charged == (stage not in BEFORE and (stage, when) != ("charge_budget", "before"))
    connection.execute(COUNT, epsilon=0.1)
    kept = stage in ("estimate_answers", "post_process") or (stage, when) in (
        ("add_noise", "after"),
        ("run_rounds", "after"),
    )
    assert connection.budget.queries == charged + (not kept), "what was stored is recalled, and else paid for again"
    assert "suspended" not in states(connection)
    connection.session.environment.ledger.verify()


@pytest.mark.parametrize("step", ["append", "rules", "tally", "suspensions"])
def test_an_interrupt_within_a_transaction_undoes_it(step: str, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = opened()
    ask(connection)
    before = states(connection)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            connection.session.environment.ledger.charge_all([a_charge()], a_charge().epsilon)
    assert states(connection) == before
    assert ask(connection)
    connection.session.environment.ledger.verify()


def a_charge() -> Any:
    from fractions import Fraction

    from dpsql.accounting.events import PureRelease
    from dpsql.accounting.ledger.ledger import Charge

    return Charge(PureRelease(Fraction(1, 10)), "SELECT 1", "f", Fraction(1, 10), Fraction(0))


# -- processes and threads ---------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> str:
    """Runs `work` in a forked child, for ten seconds at most, and gives back what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(10)
        try:
            os.write(writer, str(work()).encode())
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@forks
@pytest.mark.parametrize("memory", [False, True], ids=["ledger in a file", "ledger in memory"])
def test_a_forked_child_is_told_to_connect(opened: Any, memory: bool, database: Path) -> None:
    connection = opened(ledger=":memory:" if memory else None)
    plan = connection.plan([COUNT], epsilon=0.1)
    charged = states(connection)
    for work in (lambda: ask(connection), plan.execute):
        said = in_child(work)
        assert said.startswith("InterfaceError: this connection was opened before this process"), said
        assert "hint: connect in this process" in said
    assert states(connection) == charged, "nothing was charged"
    assert ask(connection)


@forks
def test_a_frame_in_a_forked_child_is_told_too() -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": range(100)})
    frame.dp.protect(unit="id", budget=10)
    assert in_child(lambda: frame.dp.count(epsilon=1)).startswith("InterfaceError")


@pytest.mark.long
def test_a_child_that_connects_is_answered(opened: Any, database: Path) -> None:
    """The account is found again, and what the child spends counts."""
    with dpsql.connect(database, schema=SCHEMA, budget=100) as parent:
        ask(parent)
    code = (
        "import sys, dpsql; print(dpsql.connect(sys.argv[1], schema=eval(sys.argv[2])).execute(sys.argv[3]).rowcount)"
    )
    command = [sys.executable, "-c", code, str(database), repr(SCHEMA), COUNT]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1\n"


def test_threads_share_a_connection_and_even_a_cursor(opened: Any) -> None:
    connection = opened()
    cursor, numbers, problems = connection.cursor(), [], []

    def work(shared: bool) -> None:
        try:
            for _ in range(5):
                if shared:
                    cursor.execute(COUNT, epsilon=0.1, fresh=True)
                else:
                    numbers.append(ask(connection))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(set(numbers)) == 10
    assert connection.budget.queries == 20
    connection.session.environment.ledger.verify()


# -- names -------------------------------------------------------------------------------------------------------------


def test_every_name_of_a_database_finds_its_ledger(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dpsql.connect(database, schema=SCHEMA, budget=1) as connection:
        ask(connection)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link.duckdb").symlink_to(database)
    (tmp_path / "also").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.chdir(tmp_path / "folder")
    names = [
        "link.duckdb",
        "../people.duckdb",
        "./../people.duckdb",
        f"{tmp_path}/also/people.duckdb",
        Path("link.duckdb"),
    ]
    for count, name in enumerate([*names, f"{database}/"], start=2):
        with dpsql.connect(name, schema=SCHEMA) as connection:
            ask(connection)
            assert connection.budget.queries == count, name
    assert sorted(path.name for path in tmp_path.rglob("*.ledger")) == ["people.duckdb.ledger"]


def test_a_ledger_made_beside_a_link_is_not_forgotten(database: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(database)
    dpsql.connect(link, schema=SCHEMA, budget=1, ledger=f"{link}.ledger").close()
    with pytest.raises(dpsql.LedgerError, match=r"spending through it is recorded in .*link\.duckdb\.ledger"):
        dpsql.connect(link, schema=SCHEMA, budget=1)


def test_a_ledger_by_two_names_is_one(opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.ledger").symlink_to(tmp_path / "one.ledger")
    first = opened(ledger="one.ledger")
    second = opened(ledger="link.ledger")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for connection in (first, second, first):
        ask(connection)
    assert first.budget.queries == second.budget.queries == 3
    assert not list((tmp_path / "elsewhere").iterdir())


# -- the engine --------------------------------------------------------------------------------------------------------


def replace_by_another(path: Path) -> None:
    other = make_database(path.with_name("other.duckdb"))
    other.replace(path)


FILES = {
    "deleted": lambda path: path.unlink(),
    "replaced": replace_by_another,
    "truncated": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("fault", FILES.values(), ids=FILES)
def test_a_database_file_that_changes_under_a_session(
    opened: Any, database: Path, fault: Callable[[Path], None]
) -> None:
    """The rows that were opened are answered, or the question fails, sealed and on record; never anything between."""
    connection = opened()
    fault(database)
    try:
        ask(connection)
        ended = "released"
    except dpsql.SealedExecutionError:
        ended = "suspended"
    assert states(connection) == ["budget", "charged", ended]
    if ended == "suspended":
        with pytest.raises(dpsql.AccountSuspended):
            ask(connection)
    connection.session.environment.ledger.verify()


@pytest.mark.parametrize("spill", [False, True], ids=["no spilling", "a full disk for spilling"])
def test_an_engine_without_memory_trips_the_wire(tmp_path: Path, spill: bool) -> None:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE people AS SELECT i AS id, i % 10 AS x FROM range(600000) AS r(i)")
        (used,) = database.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone() or (0,)
        folder = tmp_path / "spill"
        database.execute(f"SET temp_directory = '{folder if spill else ''}'")
        database.execute("SET max_temp_directory_size = '1MB'" if spill else "SET threads = 1")
        database.execute(f"SET memory_limit = '{int(used) // 1000 + 2000}KB'")
        connection = dpsql.connect(database, schema=SCHEMA, budget=10, delta=1e-6)
        with pytest.raises(dpsql.SealedExecutionError) as caught:
            connection.execute("SELECT id % 500000 AS k, COUNT(*) FROM people GROUP BY k", epsilon=1)
        assert "emory" not in str(caught.value)
        assert states(connection) == ["budget", "charged", "suspended"]
        with pytest.raises(dpsql.AccountSuspended):
            ask(connection)
        database.execute("SET memory_limit = '4GB'")
        connection.resume()
        assert ask(connection)

"""A ledger in a schema of PostgreSQL: the same account from several machines, with the guarantees of a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, tzinfo
from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.accounting.events import PureRelease
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import Ledger

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed; pip install dpsql[postgres]")
SPENDER = """
import sys
from fractions import Fraction
from dpsql.accounting.events import PureRelease
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.errors import BudgetExhausted

ledger, made = Ledger.open(sys.argv[1], dataset="shop"), 0
try:
    while True:
        charge = ledger.charge(PureRelease(Fraction(1, 100)), sql="q", fingerprint="f", epsilon=0.01)
        ledger.released(charge)
        ledger.release(charge)
        made += 1
except BudgetExhausted:
    print(made)
"""
DIES = """
import os, sys
from fractions import Fraction
from dpsql.accounting.events import PureRelease
from dpsql.accounting.ledger.ledger import Ledger

ledger = Ledger.open(sys.argv[1], dataset="shop")
ledger.charge(PureRelease(Fraction(1, 100)), sql="q", fingerprint="f", epsilon=0.01)
os._exit(9)
"""


@pytest.fixture
def url(postgresql_url: str) -> Iterator[str]:
    name = f"ledger_{os.urandom(4).hex()}"
    yield f"{postgresql_url}&schema={name}"
    with psycopg.connect(postgresql_url) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def charge(ledger: Ledger, epsilon: str = "0.1") -> None:
    entry = ledger.charge(PureRelease(Fraction(epsilon)), sql="q", fingerprint="f", epsilon=epsilon)
    ledger.released(entry)
    ledger.release(entry)


def test_an_account_is_found_again(url: str) -> None:
    first = Ledger.open(url, dataset="shop", epsilon=1)
    charge(first)
    first.close()
    again = Ledger.open(url, dataset="shop")
    assert again.budget.remaining.epsilon == pytest.approx(0.9)
    assert [entry.state for entry in again.history()] == ["budget", "charged", "released"]
    assert again.verify().entries == 3
    assert Ledger.at(url).dataset == "shop"


def test_there_is_none_before_a_budget_is_named(url: str) -> None:
    with pytest.raises(dpsql.LedgerError, match="has no budget"):
        Ledger.open(url, dataset="shop")
    with pytest.raises(dpsql.LedgerError, match="there is no ledger"):
        Ledger.at(url)


def test_a_stranger_is_refused(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=1).close()
    with pytest.raises(dpsql.LedgerError, match="belongs to the dataset"):
        Ledger.open(url, dataset="clinic", epsilon=1)


def test_another_schema_is_left_alone(url: str) -> None:
    base, _, name = url.rpartition("&schema=")
    with psycopg.connect(base) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"CREATE TABLE {name}.people (id integer)")
    with pytest.raises(dpsql.LedgerError, match="is not a ledger"):
        Ledger.open(url, dataset="shop", epsilon=1)


def test_processes_spend_no_more_than_the_budget(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=Fraction("0.3"), composition="basic").close()
    with ThreadPoolExecutor(3) as pool:
        spent = [pool.submit(subprocess.check_output, [sys.executable, "-c", SPENDER, url]) for _ in range(3)]
        made = [int(one.result()) for one in spent]
    assert sum(made) == 30
    assert Ledger.at(url).verify().entries == 61


def test_threads_share_one_connection(url: str) -> None:
    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: charge(ledger, "0.05"), range(8)))
    assert ledger.budget.remaining.epsilon == pytest.approx(0.6)


def test_who_dies_after_a_charge_is_suspended(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=1).close()
    assert subprocess.run([sys.executable, "-c", DIES, url], check=False).returncode == 9
    ledger = Ledger.open(url, dataset="shop")
    with pytest.raises(dpsql.AccountSuspended, match="returned no answer"):
        charge(ledger)
    ledger.resume(None)
    charge(ledger)


def test_a_charge_that_is_worked_on_is_not_lost(url: str) -> None:
    here, there = Ledger.open(url, dataset="shop", epsilon=1), Ledger.open(url, dataset="shop")
    held = here.charge(PureRelease(Fraction("0.1")), sql="q", fingerprint="f", epsilon=0.1)
    charge(there)
    here.released(held)
    here.release(held)
    assert "suspended" not in {entry.state for entry in there.history()}


def test_a_forked_child_works_for_itself(url: str) -> None:
    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    held = ledger.charge(PureRelease(Fraction("0.1")), sql="q", fingerprint="f", epsilon=0.1)
    if (child := os.fork()) == 0:  # pragma: no cover - the child's own
        sys.unraisablehook = lambda _: os._exit(2)  # a connection that is dropped while it is open warns
        try:
            charge(ledger)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    ledger.released(held)
    ledger.release(held)
    assert ledger.budget.remaining.epsilon == pytest.approx(0.8)
    ledger.close()


def test_a_session_that_cannot_be_set_up_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    connect = psycopg.connect
    monkeypatch.setattr(psycopg, "connect", lambda *where, **how: opened.append(connect(*where, **how)) or opened[-1])
    monkeypatch.setattr("dpsql.accounting.ledger.postgres.SETTINGS", {"lock_timeout": "soon"})
    with pytest.raises(dpsql.OperationalError):
        Ledger.open(url, dataset="shop", epsilon=1)
    assert [connection.closed for connection in opened] == [True]


def test_entries_are_never_changed(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=1).close()
    base, _, name = url.rpartition("&schema=")
    for change in ("UPDATE {}.entries SET epsilon = '9'", "DELETE FROM {}.entries", "TRUNCATE {}.entries CASCADE"):
        with psycopg.connect(base) as connection, pytest.raises(psycopg.Error, match="never changed"):
            connection.execute(change.format(name))


VERSION_1 = (
    "ALTER TABLE entries DROP CONSTRAINT entries_state_check",
    "ALTER TABLE entries ADD CONSTRAINT entries_state_check CHECK (state <> 'retried')",
    "UPDATE about SET version = 1",
)
"""It knew no questions that are asked once more."""


def test_a_ledger_of_version_1_is_taken_over(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=1).close()
    tampered(url, *VERSION_1)
    ledger = Ledger.open(url, dataset="shop")
    asked = ledger.charge(PureRelease(Fraction("0.1")), sql="q", fingerprint="f", epsilon="0.1")
    assert ledger.may_retry(asked)
    assert not ledger.may_retry(asked)
    assert ledger.verify().entries == 3


def test_questions_that_are_stopped_are_on_record_paid_and_counted(url: str) -> None:
    here, there = (Ledger.open(url, dataset="shop", epsilon=1, analyst="ada", interrupts_per_day=1) for _ in range(2))
    charges = [
        ledger.charge(PureRelease(Fraction("1e-9")), sql="q", fingerprint="f", epsilon="1e-9")
        for ledger in (here, there)
    ]
    assert here.stopped(charges[0], "interrupted").state == "interrupted"
    assert there.stopped(charges[1], "timed out").state == "suspended"
    assert here.budget.spent.epsilon == pytest.approx(2e-4)
    with pytest.raises(dpsql.AccountSuspended):
        charge(here)
    charge(Ledger.open(url, dataset="shop"))
    here.resume("ada")
    charge(here)
    here.verify()


def test_what_is_declared_is_on_record_noted_refused_and_accepted(url: str) -> None:
    def declared(unit: str, most: int) -> Declaration:
        return Declaration.of({"orders": {"unit": unit, "bounds": most}}, f"{unit} {most}")

    ledger = Ledger.open(url, dataset="shop", epsilon=1, declared=declared("customer", 5))
    Ledger.open(url, dataset="shop", declared=declared("customer", 6)).close()
    with pytest.raises(dpsql.LedgerError, match="becomes order_id, and was customer"):
        Ledger.open(url, dataset="shop", declared=declared("order_id", 6))
    ledger.accept(declared("order_id", 6), "shop")
    Ledger.open(url, dataset="shop", declared=declared("order_id", 6)).close()
    assert [entry.state for entry in ledger.history()] == ["budget", "schema", "schema accepted"]
    assert ledger.history()[1].shown()["sql"] == "schema: orders.bounds: 6, was 5"
    assert ledger.verify().entries == 3


def test_a_ledger_of_version_3_takes_the_next_sessions_word(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=1).close()
    tampered(
        url,
        "ALTER TABLE entries DROP CONSTRAINT entries_state_check",
        "ALTER TABLE entries ADD CONSTRAINT entries_state_check CHECK (state NOT LIKE 'schema%')",
        "DROP INDEX declarations",
        "UPDATE about SET version = 3",
    )
    ledger = Ledger.open(url, dataset="shop", declared=Declaration.of({"orders": {"unit": "customer"}}, "f"))
    assert str(ledger.history()[-1].declared) == "schema: orders by customer"
    assert ledger.verify().entries == 2


def test_a_tail_that_was_cut_off_is_missed(url: str) -> None:
    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    charge(ledger)
    base, _, name = url.rpartition("&schema=")
    with psycopg.connect(base) as connection:
        connection.execute(f"ALTER TABLE {name}.entries DISABLE TRIGGER never_changed")
        connection.execute(f"DELETE FROM {name}.entries WHERE number = 3")
    with pytest.raises(dpsql.LedgerError):
        ledger.verify()


def test_a_connection_that_broke_is_made_anew(url: str) -> None:
    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    base, _, _ = url.rpartition("&schema=")
    with psycopg.connect(base) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(dpsql.LedgerError, match="cannot be used"):
        charge(ledger)
    charge(ledger)
    assert ledger.budget.remaining.epsilon == pytest.approx(0.9)


def test_a_role_needs_no_more_than_the_page_grants(url: str) -> None:
    Ledger.open(url, dataset="shop", epsilon=1).close()
    base, _, name = url.rpartition("&schema=")
    page = (Path(__file__).parents[2] / "docs" / "owners.md").read_text(encoding="utf-8")
    grants = page.partition("```text\nGRANT USAGE ON SCHEMA shop_ledger")[2].partition("```")[0]
    role = f"role_{name}"
    with psycopg.connect(base) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(
            f"GRANT USAGE ON SCHEMA shop_ledger{grants}".replace("shop_ledger", name).replace("dpsql", role)
        )
    as_role = url.replace("://owner@", f"://{role}@")
    ledger = Ledger.open(as_role, dataset="shop")
    charge(ledger)
    assert ledger.keep([])
    assert ledger.verify().entries == 3
    with psycopg.connect(base.replace("://owner@", f"://{role}@")) as connection:
        for change in ("UPDATE {}.entries SET epsilon = '0'", "DELETE FROM {}.entries"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(change.format(name))
    ledger.close()
    tampered(url, *VERSION_1)
    with pytest.raises(dpsql.LedgerError, match="written by an older dpsql, and this role cannot alter its tables"):
        Ledger.open(as_role, dataset="shop")


def test_the_role_that_asks_cannot_change_budgets(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from dpsql.cli.app import main

    owner = Ledger.open(url, dataset="shop", epsilon=1)
    base, _, name = url.rpartition("&schema=")
    role = f"asks_{name}"
    with psycopg.connect(base) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(dpsql.LedgerError, match="cannot be used by this role"):
        Ledger.open(url.replace("://owner@", f"://{role}@"), dataset="shop")
    with suppress(SystemExit):
        main(["ledger", "grant", url, role])
    assert f"role {role}: asks" in capsys.readouterr().out

    asking = Ledger.open(url.replace("://owner@", f"://{role}@"), dataset="shop")
    charge(asking)
    declared = Declaration.of({"orders": {"unit": "customer"}}, "f")
    for act in (
        lambda: asking.grant("2"),
        lambda: asking.limit("2", analyst="ada"),
        lambda: asking.accept(declared, "shop"),
    ):
        with pytest.raises(dpsql.LedgerError, match="only the owner of the ledger"):
            act()
    assert owner.budget.remaining.epsilon == pytest.approx(0.9)
    owner.grant("2")
    charge(asking, "1.5")
    assert asking.verify().entries == 6
    with psycopg.connect(base) as connection:
        connection.execute(f"GRANT UPDATE ON {name}.entries TO {role}")
    with pytest.raises(SystemExit):
        main(["ledger", "verify", url])
    assert f'"{role}" may change the entries' in capsys.readouterr().err


@pytest.mark.parametrize("said", ["me:secret@127.0.0.1:1/db", "127.0.0.1:1/db?user=me&password=secret"])
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_no_password_is_told(said: str, scheme: str) -> None:
    schema = {"dataset": "shop", "tables": {"orders": {"unit": "id", "columns": {"id": "integer"}}}}
    for act in (
        lambda url: Ledger.open(url, dataset="shop", epsilon=1),
        Ledger.at,
        lambda url: dpsql.connect(url, schema=schema, ledger=":memory:", budget=1),
        lambda url: dpsql.connect(url, schema=schema, budget=1),
    ):
        with pytest.raises(dpsql.Error) as refused:
            act(f"{scheme}://{said}")
        assert "secret" not in str(refused.value)


def test_a_session_keeps_its_account_there(
    url: str, shop_database: object, shop_schema: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    from dpsql.cli.app import main

    with dpsql.connect(shop_database, schema=shop_schema, ledger=url, budget=1) as connection:
        first = connection.execute("SELECT COUNT(*) FROM orders", epsilon=0.25).fetchone()
    with dpsql.connect(shop_database, schema=shop_schema, ledger=url) as connection:
        assert connection.execute("SELECT COUNT(*) FROM orders", epsilon=0.25).fetchone() == first
        assert connection.budget.remaining.epsilon == 0.75
    with pytest.raises(SystemExit):
        main(["ledger", "verify", url])
    assert "intact" in capsys.readouterr().out


# -- what is done to it from outside ----------------------------------------------------------------------------------


def tampered(url: str, *statements: str) -> None:
    """By somebody who may do everything, triggers included."""
    base, _, name = url.rpartition("&schema=")
    with psycopg.connect(base) as connection:
        connection.execute(f"SET search_path = {name}; SET session_replication_role = replica")
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "cut",
    [
        ("TRUNCATE entries, open_charges CASCADE",),
        ("DELETE FROM entries WHERE number > 3",),
        ("DELETE FROM last_number",),
        ("UPDATE last_number SET number = 2",),
    ],
)
def test_a_ledger_that_lost_entries_takes_no_more(url: str, cut: tuple[str, ...]) -> None:
    """Else an account that somebody emptied would begin anew, with a whole budget."""
    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    charge(ledger)
    charge(ledger)
    tampered(url, *cut)
    with pytest.raises(dpsql.LedgerError, match="entries are missing"):
        charge(Ledger.open(url, dataset="shop", epsilon=1))
    with pytest.raises(dpsql.LedgerError, match="entries are missing"):
        ledger.verify()


def test_an_entry_is_not_taken_twice(url: str) -> None:
    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    charge(ledger)
    with pytest.raises(psycopg.Error, match="duplicate key"):
        tampered(url, "INSERT INTO entries SELECT * FROM entries WHERE number = 2")
    base, _, name = url.rpartition("&schema=")
    columns = "time, dataset, analyst, state, fingerprint, sql, event, epsilon, delta, tally, analyst_tally, hash"
    replay = f"INSERT INTO entries (number, {columns}) SELECT 4, {columns} FROM entries WHERE number = 2"
    with psycopg.connect(base) as connection:
        connection.execute(f"SET search_path = {name}; {replay}")
    with pytest.raises(dpsql.LedgerError, match="entry 4 has changed"):
        ledger.verify()


def test_settings_of_the_role_do_not_matter(url: str) -> None:
    """Serializable writers would fail instead of waiting, and holds would end while a question takes long."""
    base, _, _ = url.rpartition("&schema=")
    defaults = {
        "default_transaction_isolation": "serializable",
        "idle_session_timeout": "1min",
        "synchronous_commit": "off",
        "search_path": "pg_temp",
    }
    with psycopg.connect(base, autocommit=True) as connection:
        for name, value in defaults.items():
            connection.execute(f"ALTER ROLE owner SET {name} = '{value}'")
    try:
        here, there = Ledger.open(url, dataset="shop", epsilon=1), Ledger.open(url, dataset="shop")
        held = here.charge(PureRelease(Fraction("0.1")), sql="q", fingerprint="f", epsilon=0.1)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda ledger: [charge(ledger, "0.05") for _ in range(4)], [here, there]))
        with here._file.reading() as connection:
            assert connection.execute("SELECT current_setting('idle_session_timeout')").fetchone() == ("0",)
        here.released(held)
        here.release(held)
        assert here.budget.remaining.epsilon == pytest.approx(0.5)
        assert "suspended" not in {entry.state for entry in there.history()}
        here.verify()
    finally:
        with psycopg.connect(base, autocommit=True) as connection:
            connection.execute("ALTER ROLE owner RESET ALL")


def test_clocks_of_machines_may_differ(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are ordered by their numbers alone."""

    class Late(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Late:
            return cls(1999, 1, 1, tzinfo=tz)

    ledger = Ledger.open(url, dataset="shop", epsilon=1)
    charge(ledger)
    monkeypatch.setattr("dpsql.accounting.ledger.journal.datetime", Late)
    charge(Ledger.open(url, dataset="shop"))
    assert ledger.budget.remaining.epsilon == pytest.approx(0.8)
    assert ledger.verify().charges == 2

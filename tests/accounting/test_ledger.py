"""The ledger in one process: what it records, what it refuses, and how it says so."""

import os
import re
import resource
import signal
import sqlite3
import tempfile
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.accounting.events import ApproximateRelease, Composed, Free, Gaussian, Laplace, NonPrivate, PureRelease
from dpsql.accounting.ledger import sqlite
from dpsql.accounting.ledger.journal import StoredAnswer
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.errors import BudgetExhausted, InterfaceError, LedgerError, ProgrammingError

TENTH = PureRelease(Fraction(1, 10))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop.ledger"


@pytest.fixture
def opened(path):
    """Opens ledgers at `path` that are closed after the test."""
    ledgers = []

    def open_ledger(where=path, **options):
        ledgers.append(Ledger.open(where, **{"dataset": "shop", **options}))
        return ledgers[-1]

    yield open_ledger
    for ledger in ledgers:
        ledger.close()


def spend(ledger, event=TENTH, epsilon="0.1", **more):
    return ledger.charge(event, sql="SELECT 1", fingerprint="f", epsilon=epsilon, **more)


def test_an_entry_holds_what_happened(opened):
    ledger = opened(epsilon=1.0, analyst="ada")
    entry = spend(ledger, delta=1e-9)
    first, again = ledger.history()
    assert again == entry
    assert (first.state, first.epsilon, first.delta, first.composition) == ("budget", 1, 0, "mixed")
    assert (entry.number, entry.state, entry.analyst, entry.dataset) == (2, "charged", "ada", "shop")
    assert (entry.sql, entry.fingerprint, entry.event) == ("SELECT 1", "f", TENTH)
    assert (entry.epsilon, entry.delta) == (Fraction(1, 10), Fraction(1, 10**9))
    assert entry.time.endswith("+00:00")


@pytest.mark.parametrize("where", ["file", ":memory:"])
@pytest.mark.parametrize("composition", ["auto", "basic"])
def test_ten_tenths_exhaust_one_and_nothing_more_fits(opened, path, where, composition):
    ledger = opened(path if where == "file" else where, epsilon=1.0, delta=1e-6, composition=composition)
    for _ in range(10):
        spend(ledger)
    before = ledger.history()
    with pytest.raises(BudgetExhausted) as caught:
        spend(ledger, PureRelease(Fraction(1, 10**9)), epsilon=1e-9)
    assert (caught.value.requested, caught.value.remaining) == (1e-9, 0.0)
    assert ledger.history() == before
    assert ledger.budget.spent == (1.0, 0.0)
    assert ledger.verify().charges == 10


def test_reopening_goes_on_where_it_ended(opened):
    first = opened(epsilon=1.0, delta=1e-6, composition="gdp")
    spend(first, Gaussian(Fraction(20)))
    first.close()
    again = opened()
    assert again.budget.filter.name == "gdp"
    assert (again.budget.epsilon, again.budget.delta, again.budget.queries) == (1.0, 1e-6, 1)
    assert spend(again, Gaussian(Fraction(20))).number == 3
    assert again.verify().entries == 3


def test_marks_point_at_their_charge_and_a_refusal_gives_back(opened):
    ledger = opened(epsilon=1.0)
    charges = [spend(ledger), spend(ledger)]
    spent = ledger.budget.spent
    released, refused = ledger.released(charges[0]), ledger.refused(charges[1], TENTH, Fraction(1, 10))
    assert (released.state, released.charge, refused.state, refused.charge) == ("released", 2, "refused", 3)
    assert ledger.budget.spent.epsilon == spent.epsilon - 0.1
    with pytest.raises(LedgerError, match="already"):
        ledger.released(charges[0])
    assert ledger.verify().entries == 5
    assert [entry.number for entry in ledger.history(2)] == [4, 5]


def test_free_and_unpayable_events(opened):
    ledger = opened(epsilon=1.0, delta=1e-6)
    spend(ledger, Free(), epsilon=0)
    with pytest.raises(BudgetExhausted):
        spend(ledger, NonPrivate())
    with pytest.raises(BudgetExhausted):
        spend(ledger, Laplace(Fraction(0)))
    assert ledger.budget.spent == (0.0, 0.0)


def test_the_hint_names_what_ran_out(opened):
    ledger = opened(epsilon=1.0, delta=1e-6)
    selection = Composed((Gaussian(Fraction(50)), ApproximateRelease(Fraction(0), Fraction(1, 10**7))))
    with pytest.raises(BudgetExhausted, match="delta for group selection"):
        spend(ledger, selection)
    spend(ledger, Gaussian(Fraction(5)))
    with pytest.raises(BudgetExhausted, match=r'mechanism="gaussian"'):
        spend(ledger, PureRelease(Fraction(1, 5)), epsilon="0.2")
    with pytest.raises(BudgetExhausted, match="use epsilon=") as caught:
        spend(ledger, Gaussian(Fraction(1)), epsilon=5)
    assert 0.2 < caught.value.remaining < 1


def test_an_analyst_has_a_budget_within_the_datasets(opened):
    ada = opened(epsilon=1.0, analyst="ada", analyst_epsilon="0.2")
    bob = opened(analyst="bob", analyst_epsilon="5")
    eve = opened(analyst="eve")
    spend(ada)
    spend(ada)
    with pytest.raises(BudgetExhausted) as caught:
        spend(ada)
    assert caught.value.remaining == 0.0
    for _ in range(7):
        spend(bob)
    spend(eve)
    with pytest.raises(BudgetExhausted):
        spend(bob)
    assert ada.budget == ada.analyst_budget
    assert (ada.budget.epsilon, ada.budget.spent.epsilon) == (0.2, 0.2)
    assert bob.analyst_budget.spent.epsilon == 0.7
    assert bob.analyst_budget.remaining.epsilon == 0.0, "the dataset has no more"
    assert eve.analyst_budget is None
    assert bob.budget == eve.budget == ada.budget.dataset, "a limit above the budget is none"
    assert bob.budget.remaining.epsilon == 0.0
    assert opened(analyst="ada").analyst_budget.epsilon == 0.2
    assert ada.verify().charges == 10


def test_a_new_ledger_wants_a_budget_and_leaves_no_file_without(opened, path):
    with pytest.raises(LedgerError, match="has no budget yet") as caught:
        opened()
    assert "budget=1.0" in caught.value.hint
    assert not path.exists()
    with pytest.raises(LedgerError, match="has no budget yet"):
        opened(":memory:")


def test_another_dataset_is_refused(opened):
    opened(epsilon=1.0)
    with pytest.raises(LedgerError, match='belongs to the dataset "shop", not to "clinic"') as caught:
        opened(dataset="clinic", epsilon=1.0)
    assert "another path" in caught.value.hint


def test_another_composition_is_refused(opened):
    opened(epsilon=1.0, delta=1e-6, composition="zcdp")
    with pytest.raises(LedgerError, match='uses composition "zcdp", not "gdp"') as caught:
        opened(composition="gdp")
    assert 'composition="zcdp"' in caught.value.hint


def test_the_data_owner_changes_the_budget_on_record(opened):
    ledger = opened(epsilon=1.0)
    spend(ledger)
    ledger.grant(2, 1e-6)
    assert (opened().budget.epsilon, opened().budget.delta) == (2.0, 1e-6)
    ledger.limit("0.1")
    assert (opened().budget.epsilon, opened().budget.delta) == (0.1, 1e-6)
    ledger.limit("0.1")
    assert [entry.state for entry in ledger.history()] == ["budget", "charged", "budget", "budget"]
    assert ledger.verify().entries == 4


DIFFERENT = (
    ({"epsilon": 2}, "epsilon 1 at delta 1e-06 on record in .*, not epsilon 2", "dpsql budget grant 2 --ledger "),
    ({"epsilon": "0.5"}, "not epsilon 0.5", "dpsql budget limit 0.5 --ledger "),
    ({"epsilon": 1, "delta": 1e-5}, "not epsilon 1 and delta 1e-05", "dpsql budget grant 1 --delta 1e-05 --ledger "),
    ({"analyst": "ada", "analyst_epsilon": 1}, "ada has a budget of epsilon 0.3", "grant 1 --analyst ada --ledger "),
)


@pytest.mark.parametrize(("options", "problem", "way_out"), DIFFERENT)
def test_a_session_compares_its_budget_and_changes_none(opened, options, problem, way_out):
    ledger = opened(epsilon=1, delta=1e-6, analyst="ada", analyst_epsilon="0.3")
    with pytest.raises(LedgerError, match=problem) as caught:
        opened(**options)
    assert way_out in caught.value.hint
    assert opened(epsilon=1.0).budget.delta == 1e-6
    assert len(ledger.history()) == 2


def test_a_grant_names_the_new_total(opened, path):
    ledger = opened(epsilon=1, delta=1e-6)
    with pytest.raises(LedgerError, match="is less than the epsilon 1 at delta 1e-06 on record") as caught:
        ledger.grant(0.5)
    assert f"dpsql budget grant 1.5 --ledger {path}; to lower it: dpsql budget limit 0.5 " in caught.value.hint
    with pytest.raises(LedgerError, match="is more than") as caught:
        ledger.limit(3)
    assert f"dpsql budget grant 3 --ledger {path}" in caught.value.hint


def test_an_analyst_is_limited_before_more_is_granted(opened):
    ledger = opened(epsilon=1, delta=1e-6)
    with pytest.raises(LedgerError, match="ada has no limit to raise") as caught:
        ledger.grant(0.3, analyst="ada")
    assert "dpsql budget limit 0.3 --analyst ada --ledger " in caught.value.hint
    ledger.limit(0.3, analyst="ada")
    ledger.grant(0.5, analyst="ada")
    ada = opened(analyst="ada").analyst_budget
    assert (ada.epsilon, ada.delta) == (0.5, 1e-6)


def test_a_limit_of_nobody_is_refused(opened):
    with pytest.raises(ProgrammingError, match="limits one analyst, but no analyst is named"):
        opened(epsilon=1, analyst_epsilon=0.3)


def test_a_budget_smaller_than_what_is_spent_is_refused(opened):
    ledger = opened(epsilon=1.0, analyst="ada")
    spend(ledger)
    spend(ledger)
    with pytest.raises(LedgerError, match=r"epsilon 0\.2 at delta 0 is already spent"):
        ledger.limit("0.19")
    assert len(ledger.history()) == 3


def test_a_budget_changed_by_another_process_counts_at_once(opened):
    ledger = opened(epsilon="0.1")
    spend(ledger)
    opened().grant("0.2")
    spend(ledger)
    with pytest.raises(BudgetExhausted):
        spend(ledger)


def test_numbers_that_are_no_budget_are_refused_before_anything_is_written(opened, path):
    with pytest.raises(ProgrammingError):
        opened(epsilon=-1)
    with pytest.raises(ProgrammingError):
        opened(epsilon=1, delta=2)
    with pytest.raises(ProgrammingError):
        opened(epsilon=1, composition="renyi")
    ledger = opened(epsilon=1)
    assert len(ledger.history()) == 1


def test_a_file_that_is_not_sqlite_is_left_alone(opened, path):
    path.write_bytes(b"customer,amount\n" * 100)
    with pytest.raises(LedgerError, match="is not an SQLite file"):
        opened(epsilon=1.0)
    assert path.read_bytes() == b"customer,amount\n" * 100


def test_an_sqlite_file_that_is_not_a_ledger_is_left_alone(opened, path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (id)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="but not a ledger"):
        opened(epsilon=1.0)
    assert path.read_bytes() == before


def test_a_ledger_from_the_future_is_refused(opened, path):
    opened(epsilon=1.0).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(LedgerError, match="newer dpsql") as caught:
        opened()
    assert caught.value.hint == "upgrade dpsql"


def test_a_missing_folder_is_a_clear_error(opened, tmp_path):
    with pytest.raises(LedgerError, match="cannot be opened") as caught:
        opened(tmp_path / "nowhere" / "shop.ledger", epsilon=1.0)
    assert "folder" in caught.value.hint


def test_a_closed_ledger_says_so(opened):
    ledger = opened(epsilon=1.0)
    ledger.close()
    with pytest.raises(InterfaceError, match="closed"):
        spend(ledger)


def test_a_busy_ledger_waits_and_then_says_so(opened, path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    ledger = opened(epsilon=1.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked by another process"):
        spend(ledger)
    with pytest.raises(LedgerError, match="locked by another process"):
        opened()
    assert ledger.budget.queries == 0  # looking needs no lock
    other.execute("ROLLBACK")
    other.close()
    spend(ledger)


def test_a_full_disk_charges_nothing(opened):
    ledger = opened(epsilon=1000)
    (pages,) = ledger._file._connection.execute("PRAGMA page_count").fetchone()
    ledger._file._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    charged = 0

    def spend_on():
        nonlocal charged
        while True:
            spend(ledger)
            charged += 1

    with pytest.raises(LedgerError, match="the disk is full") as caught:
        spend_on()
    assert "nothing was charged" in caught.value.hint
    assert ledger.budget.queries == charged
    ledger._file._connection.execute("PRAGMA max_page_count = 100000")
    spend(ledger)
    assert ledger.verify().charges == charged + 1


def in_child(work):
    """Runs `work` in a forked child and gives back what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
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


forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@forks
def test_a_file_that_may_not_grow_charges_nothing(opened):
    ledger = opened(epsilon=1000)

    def fill():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        for _ in range(1000):
            spend(ledger)

    said = in_child(fill)
    assert said.startswith("LedgerError")
    assert "disk" in said
    assert 0 < ledger.budget.queries < 1000
    assert ledger.verify().charges == ledger.budget.queries


@forks
@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_read_only_ledger_is_a_clear_error(opened, folder_mode):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.ledger"
        opened(path, epsilon=1.0).close()
        path.chmod(0o444)
        Path(folder).chmod(folder_mode)

        def as_nobody():
            if os.getuid() == 0:
                os.setresuid(65534, 65534, 65534)
            spend(opened(path))

        said = in_child(as_nobody)
        Path(folder).chmod(0o755)
    assert re.match(r"LedgerError: the ledger .* cannot be (opened|written)\nhint: .*folder", said)


@forks
def test_a_forked_child_opens_the_file_anew(opened):
    ledger = opened(epsilon=1.0)
    spend(ledger)
    assert in_child(lambda: ledger.released(spend(ledger)).charge) == "3"
    assert spend(ledger).number == 5
    assert ledger.verify().charges == 3


@forks
def test_what_a_child_charges_is_kept_when_its_parent_closes_first(opened):
    ledger = opened(epsilon=1.0)
    spend(ledger)
    charged, closed = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        spend(ledger)
        os.write(charged[1], b"!")
        os.read(closed[0], 1)
        ledger.released(spend(ledger))
        os._exit(0)
    os.read(charged[0], 1)
    ledger.close()
    os.write(closed[1], b"!")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*charged, *closed):
        os.close(end)
    assert opened().verify().charges == 3


@forks
def test_a_child_forked_while_a_thread_writes_is_not_stuck(opened):
    ledger = opened(epsilon=1.0)
    begun, finish = threading.Event(), threading.Event()

    def write():
        with ledger._file.writing():
            begun.set()
            finish.wait()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    threading.Timer(0.2, finish.set).start()
    assert in_child(lambda: ledger.released(spend(ledger)).charge) == "2"
    writer.join()
    assert spend(ledger).number == 4


@forks
def test_a_forked_child_cannot_spend_from_a_budget_in_memory(opened):
    ledger = opened(":memory:", epsilon=1.0)
    assert "before this process was forked" in in_child(lambda: spend(ledger))


def test_answers_are_kept_by_dataset_and_fingerprint(opened, path):
    ledger = opened(epsilon=1.0)
    assert ledger.answers.recall("f") is None
    assert ledger.keep([StoredAnswer("f", "s", '{"n": 41}', "{}"), StoredAnswer("g", "s", '{"n": 7}', "{}")])
    assert ledger.keep([StoredAnswer("f", "s", '{"n": 42}', "{}")])
    assert opened().answers.recall("f") == '{"n": 42}'
    assert ledger.answers.recall("g") == '{"n": 7}'
    first, second = ledger.answers.about("s")
    assert (first.fingerprint, second.fingerprint) == ("f", "g")
    assert first.drawn_at > second.drawn_at, "drawn anew, it keeps its place and has a new date"
    assert ledger.answers.about("another subject") == []
    assert type(ledger.answers)(ledger.answers.file, "clinic").recall("f") is None
    assert ledger.budget.queries == 0
    ledger.verify()


def test_charges_are_told_as_they_ended(opened):
    """What a refused test gives back is no longer counted; what came later, or first, can be left out."""
    ledger = opened(epsilon=1.0)
    first, second = spend(ledger), spend(ledger)
    ledger.refused(second, TENTH, Fraction(1, 10))
    assert [entry.number for entry in ledger.charges(0, 5)] == [first.number, second.number]
    assert [entry.tally.totals for entry in ledger.charges(0, 5)] == [first.tally.totals] * 2
    assert [entry.number for entry in ledger.charges(1, 5)] == [second.number]
    assert [entry.number for entry in ledger.charges(0, 1)] == [first.number]

"""Whatever is changed in a ledger's file from outside, `verify` finds it."""

import json
import sqlite3
from fractions import Fraction

import pytest

from dpsql.accounting.events import Gaussian, PureRelease
from dpsql.accounting.ledger.journal import COLUMNS, GENESIS, Entry, entry_hash
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.errors import LedgerError


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "shop.ledger"
    ledger = Ledger.open(path, dataset="shop", epsilon=2.0, delta=1e-6, analyst="ada", analyst_epsilon=1.5)
    for _ in range(3):
        charge = ledger.charge(Gaussian(Fraction(20)), sql="SELECT 1", fingerprint="f", epsilon="0.25", delta="1e-6")
        ledger.released(charge)
    ledger.close()
    return path


def verified(path):
    ledger = Ledger.open(path, dataset="shop")
    try:
        return ledger.verify()
    finally:
        ledger.close()


def tamper(path, statement, *parameters):
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER IF EXISTS no_update")
    connection.execute("DROP TRIGGER IF EXISTS no_delete")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute(statement, parameters)
    connection.commit()
    connection.close()


def test_an_untouched_ledger_verifies(path):
    report = verified(path)
    assert (report.entries, report.charges) == (8, 3)
    assert str(report).startswith("8 entries, 3 charges, intact; head ")


@pytest.mark.parametrize("number", [3, 4, 8])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_column_is_found(path, column, number):
    value = 77 if column in ("number", "charge") else "1/7"
    tamper(path, f"UPDATE entries SET {column} = ? WHERE number = ?", value, number)
    with pytest.raises(LedgerError):
        verified(path)


@pytest.mark.parametrize("number", [3, 6, 8])
def test_a_deleted_entry_is_found(path, number):
    tamper(path, "DELETE FROM entries WHERE number = ?", number)
    with pytest.raises(LedgerError, match=r"entry \d"):
        verified(path)


def test_the_same_number_in_other_words_is_found(path):
    tamper(path, "UPDATE entries SET epsilon = '2/8' WHERE number = 3")
    with pytest.raises(LedgerError, match=r"entry 3 .* hash"):
        verified(path)


def reseal(path, number, **changes):
    """What a careful forger does: changes an entry and computes every later hash again."""
    connection = sqlite3.connect(path)
    rows = [list(row) for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM entries ORDER BY number")]
    connection.close()
    for column, value in changes.items():
        rows[number - 1][COLUMNS.index(column)] = value
    head = GENESIS
    for row in rows:
        row[-1] = head = entry_hash(head, row)
        assignments = ", ".join(f"{column} = ?" for column in COLUMNS)
        tamper(path, f"UPDATE entries SET {assignments} WHERE number = ?", *row, row[COLUMNS.index("number")])


@pytest.mark.parametrize(
    ("number", "changes", "reason"),
    [
        (3, {"event": PureRelease(Fraction(1, 10**6)).to_json()}, "running totals"),
        (3, {"event": None}, "running totals"),
        (3, {"event": '{"event":"Novelty"}'}, "cannot be read"),
        (3, {"epsilon": "a lot"}, "cannot be read"),
        (4, {"charge": 2}, "not a charge"),
        (1, {"epsilon": "1/10"}, "more than the budget"),
        (2, {"epsilon": "1/10"}, "more than its analyst may"),
    ],
)
def test_sums_are_recomputed_so_new_seals_do_not_help(path, number, changes, reason):
    reseal(path, number, **changes)
    with pytest.raises(LedgerError, match=reason):
        verified(path)


def test_entries_cannot_be_changed_through_sqlite_by_accident(path):
    connection = sqlite3.connect(path)
    for statement in ("UPDATE entries SET sql = 'x'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


def test_a_row_survives_the_trip(path):
    ledger = Ledger.open(path, dataset="shop")
    for entry in ledger.history():
        assert Entry.from_row(entry.to_row()) == entry
        json.loads(entry.tally.to_json())
    ledger.close()

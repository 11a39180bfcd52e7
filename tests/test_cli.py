"""The dpsql command, as a person would type it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.cli import main

SCHEMA = {"tables": {"people": {"unit": "id", "unique": True, "columns": {"id": "integer"}}}}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The ledger that a session on a file database leaves beside it."""
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE people AS SELECT i AS id FROM range(100) AS r(i)")
    with dpsql.connect(path, schema=SCHEMA, epsilon=1) as connection:
        connection.execute("SELECT COUNT(*) FROM people", epsilon=0.25)
    return path.with_name("people.duckdb.ledger")


def test_verify(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "verify", str(ledger)]) == 0
    assert "1 charges, intact" in capsys.readouterr().out


def test_show(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "show", str(ledger)]) == 0
    shown = capsys.readouterr().out
    assert "SELECT COUNT(*) FROM people" in shown
    assert "0.25 of 1 spent" in shown


def test_a_changed_entry_is_found(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(ledger) as file:
        (table,) = (name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE name = 'entries'"))
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {name}")
        file.execute(f"UPDATE {table} SET epsilon = '1/100' WHERE state = 'charged'")
    file.close()
    assert main(["ledger", "verify", str(ledger)]) == 1
    assert "LedgerError" in capsys.readouterr().err


def test_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "verify", str(tmp_path / "none.ledger")]) == 1
    assert "there is no ledger" in capsys.readouterr().err


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("dpsql")
    shown = subprocess.run([command, "ledger", "--help"], capture_output=True, text=True, check=True).stdout
    assert "verify" in shown

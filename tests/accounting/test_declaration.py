"""The schema on record: who is protected is a part of what epsilon means, and does not change in passing."""

from __future__ import annotations

import copy
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import yaml

import dpsql
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.journal import Journal
from dpsql.accounting.ledger.ledger import DeclarationRecord, Ledger
from dpsql.accounting.ledger.sqlite import SCHEMA_VERSION
from dpsql.cli.app import main
from dpsql.schema import load_schema

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "tables": {
        "orders": {
            "unit": "customer",
            "columns": {
                "customer": "integer",
                "order_id": "integer",
                "region": {"type": "text", "values": ["north", "south"]},
                "amount": {"type": "integer", "bounds": [0, 500]},
                "smokes": "boolean",
            },
        },
        "regions": {"unit": "region", "columns": {"region": "text"}},
    },
}
COUNT = "SELECT COUNT(*) FROM orders"

Changed = Callable[[dict[str, Any]], None]


def set_unit(tables: dict[str, Any]) -> None:
    tables["orders"]["unit"] = "order_id"


def set_path(tables: dict[str, Any]) -> None:
    tables["orders"]["unit"] = {"through": "region", "to": "regions.region"}


def set_unique(tables: dict[str, Any]) -> None:
    tables["orders"]["unique"] = True


def set_public(tables: dict[str, Any]) -> None:
    tables["regions"] = {"public": True, "columns": {"region": "text"}}


def set_collected(tables: dict[str, Any]) -> None:
    reports = {"mechanism": "kary", "epsilon": 1.0, "values": [True, False]}
    tables["orders"]["columns"]["smokes"] = {"type": "boolean", "collected": reports}


REDEFINED: list[tuple[Changed, str]] = [
    (set_unit, 'the unit of table "orders" becomes order_id, and was customer'),
    (set_path, 'the unit of table "orders" becomes region -> regions.region, and was customer'),
    (set_unique, 'table "orders" becomes unique: true, and was not'),
    (set_public, 'table "regions" becomes public, and was about people'),
    (set_collected, 'column "smokes" of table "orders" becomes  collected: kary, and was not'),
]


def set_bounds(tables: dict[str, Any]) -> None:
    tables["orders"]["columns"]["amount"]["bounds"] = [0, 900]


def set_contribution(tables: dict[str, Any]) -> None:
    tables["orders"]["contribution"] = {"max_rows_per_group": 7}


def set_values(tables: dict[str, Any]) -> None:
    tables["orders"]["columns"]["region"]["values"] = ["north", "south", "west"]


def add_column(tables: dict[str, Any]) -> None:
    tables["orders"]["columns"]["weight"] = "double"


def add_table(tables: dict[str, Any]) -> None:
    tables["visits"] = {"unit": "person", "columns": {"person": "integer"}}


NOTED: list[tuple[Changed, str]] = [
    (set_bounds, "schema: orders.amount.bounds: [0, 900], was [0, 500]"),
    (set_contribution, "schema: orders.contribution: {max_rows_per_group: 7}, was none"),
    (set_values, "schema: orders.region.values: 3 values ("),
    (add_column, "schema: orders.weight: {type: double}, was none"),
    (add_table, "schema: new table: visits by person"),
]


def schema_with(*changes: Changed) -> dict[str, Any]:
    schema = copy.deepcopy(SCHEMA)
    for change in changes:
        change(schema["tables"])
    return schema


def declared(*changes: Changed) -> Declaration:
    schema = load_schema(schema_with(*changes))
    return Declaration.of(schema.on_record(), schema.fingerprint)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.execute(
            "CREATE TABLE orders AS SELECT i AS customer, i AS order_id, 'north' AS region, i % 500 AS amount, "
            "i % 2 = 0 AS smokes, i / 3 AS weight FROM range(500) AS r(i)"
        )
        database.execute("CREATE TABLE regions (region VARCHAR PRIMARY KEY)")
        database.execute("CREATE TABLE visits AS SELECT 1 AS person")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[..., dpsql.Connection]]:
    connections: list[dpsql.Connection] = []

    def opened(*changes: Changed, **options: Any) -> dpsql.Connection:
        connections.append(dpsql.connect("shop.duckdb", schema=schema_with(*changes), budget=1, **options))
        return connections[-1]

    yield opened
    for connection in connections:
        connection.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit):
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return said.out + said.err

    return run


Opened = Callable[..., dpsql.Connection]


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "said"), REDEFINED)
def test_who_is_protected_does_not_change_in_passing(opened: Opened, change: Changed, said: str) -> None:
    first = opened()
    first.execute(COUNT, epsilon=0.1)
    entries = len(first.history())
    with pytest.raises(dpsql.LedgerError) as caught:
        opened(change)
    assert said in caught.value.problem
    assert "dpsql ledger accept-schema shop.duckdb.ledger SCHEMA" in str(caught.value.hint)
    assert len(first.history()) == entries
    assert opened().execute(COUNT, epsilon=0.1).receipt.recalled, "the schema on record goes on"


def test_all_that_changes_is_told_at_once(opened: Opened) -> None:
    opened()
    with pytest.raises(dpsql.LedgerError, match=r"was customer; table \"orders\" becomes unique.*; table \"regions\""):
        opened(set_unit, set_unique, set_public, set_bounds)


def test_a_table_that_was_left_out_is_remembered(opened: Opened) -> None:
    def leave_out(tables: dict[str, Any]) -> None:
        del tables["regions"]
        del tables["orders"]["columns"]["smokes"]

    opened()
    opened(leave_out, set_bounds)
    for change in (set_public, set_collected):
        with pytest.raises(dpsql.LedgerError, match="would mean something else"):
            opened(change)


def test_less_is_noted_and_shuts_nobody_out(opened: Opened, run: Callable[..., str]) -> None:
    """Until the owner has found out that people have several rows, or that a table is about people after all."""
    opened(set_unique, set_public)
    last = opened().history().sql.iloc[-1]
    assert "orders.unique: none, was true" in last
    assert "regions.public: none, was true" in last
    opened(set_unique, set_public)
    opened(set_unique, set_public, set_bounds)
    Path("stricter.yaml").write_text(yaml.safe_dump(schema_with()))
    assert "accepted" in run("ledger", "accept-schema", "shop.duckdb.ledger", "stricter.yaml")
    for changes in ((set_unique, set_public), (set_unique, set_public, set_bounds)):
        with pytest.raises(dpsql.LedgerError, match=r"becomes unique.*becomes public"):
            opened(*changes)
    assert "intact" in run("ledger", "verify", "shop.duckdb.ledger")


def test_reports_stay_reports(opened: Opened) -> None:
    opened(set_collected)
    opened()
    opened(set_collected, set_bounds)
    opened(set_bounds).session.environment.ledger.verify()


def test_two_schemas_that_take_turns_are_noted_once(opened: Opened) -> None:
    opened()
    entries = len(opened(set_bounds).history())
    for change in ((), (set_bounds,), ()):
        assert len(opened(*change).history()) == entries


# -- noted -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "said"), NOTED)
def test_other_changes_are_noted_with_their_date(opened: Opened, change: Changed, said: str) -> None:
    opened()
    history = opened(change, analyst="ada").history()
    last = history.iloc[-1]
    assert (last.state, last.analyst, last.epsilon) == ("schema", "ada", 0)
    assert last.sql.startswith(said)
    assert last.time > history.iloc[0].time
    assert len(opened(change).history()) == len(history), "noted once"
    assert len(opened().history()) == len(history), "and so is what was there before"
    assert opened().session.environment.ledger.verify().entries == len(history)


def test_the_first_budget_has_the_first_declaration(opened: Opened) -> None:
    first = opened(set_public).history().iloc[0]
    assert first.sql == "schema: orders by customer; regions is public"
    connection = sqlite3.connect("shop.duckdb.ledger")
    (text,) = connection.execute("SELECT sql FROM entries").fetchone()
    connection.close()
    assert json.loads(text)["tables"]["orders"]["columns"]["region"] == {
        "type": "text",
        "values": "2 values (" + text.split("2 values (")[1][:8] + ")",
    }
    assert "north" not in text


# -- accepted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "said"), REDEFINED)
def test_the_owner_accepts(opened: Opened, run: Callable[..., str], change: Changed, said: str) -> None:
    opened().execute(COUNT, epsilon=0.1)
    Path("new.yaml").write_text(yaml.safe_dump(schema_with(change)))
    assert "accepted and recorded: schema: " in run("ledger", "accept-schema", "shop.duckdb.ledger", "new.yaml")
    assert "already on record" in run("ledger", "accept-schema", "shop.duckdb.ledger", "new.yaml")
    after = opened(change)
    assert after.budget.spent.epsilon == 0.1
    assert after.history().state.iloc[-1] == "schema accepted"
    assert "schema accepted" in run("ledger", "show", "shop.duckdb.ledger")
    assert "intact" in run("ledger", "verify", "shop.duckdb.ledger")
    if change is not set_unit and change is not set_path:
        opened()  # less is no redefinition
    else:
        with pytest.raises(dpsql.LedgerError, match="becomes customer, and was"):
            opened()


def test_by_a_connection(opened: Opened) -> None:
    owner = opened()
    owner.accept_schema(schema_with(set_unit))
    assert opened(set_unit).history().state.iloc[-1] == "schema accepted"
    with pytest.raises(dpsql.LedgerError, match='belongs to the dataset "shop", not to "other"'):
        owner.accept_schema(schema_with() | {"dataset": "other"})


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_the_chain_covers_what_is_declared(opened: Opened) -> None:
    opened(set_public)
    with closing(sqlite3.connect("shop.duckdb.ledger")) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("UPDATE entries SET sql = replace(sql, 'customer', 'order_id')")
        connection.commit()
    with closing(Ledger.at("shop.duckdb.ledger")) as ledger, pytest.raises(dpsql.LedgerError, match="hash"):
        ledger.verify()


def test_a_redefinition_with_new_hashes_is_found(tmp_path: Path) -> None:
    """Somebody appends a `schema` entry by hand, hashes and all, without the owner's acceptance."""
    path = str(tmp_path / "shop.ledger")
    with closing(Ledger.open(path, dataset="shop", epsilon=1, declared=declared())) as ledger:
        with ledger._file.writing() as connection:
            DeclarationRecord(Journal(connection), path, "shop")._append("schema", declared(set_unit))
        with pytest.raises(dpsql.LedgerError, match="declares other people than before"):
            ledger.verify()


def test_memory(folder: Path) -> None:
    with closing(Ledger.open(":memory:", dataset="shop", epsilon=1, declared=declared())) as ledger:
        assert str(ledger.history()[0].declared) == "schema: orders by customer; regions by region"
        assert ledger.accept(declared(set_unit), "shop") is not None
        assert ledger.accept(declared(set_unit), "shop") is None
        assert ledger.verify().entries == 2


def older(path: str) -> None:
    """The ledger as version 4 left it: without a declaration, and with the states of then."""
    with closing(Ledger.open(path, dataset="shop", epsilon=1)) as ledger:
        assert ledger.history()[0].declared is None
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 4")
        connection.execute("DROP INDEX declarations")
        connection.commit()


def test_an_older_ledger_takes_the_next_sessions_word(opened: Opened) -> None:
    older("shop.duckdb.ledger")
    connection = opened()
    assert connection.history().state.tolist() == ["budget", "schema"]
    assert connection.history().sql.iloc[-1] == "schema: orders by customer; regions by region"
    with pytest.raises(dpsql.LedgerError, match="would mean something else"):
        opened(set_unit)
    with closing(sqlite3.connect("shop.duckdb.ledger")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    connection.session.environment.ledger.verify()


KILLED = """
import os, signal, sys
from dpsql.accounting.ledger.journal import Journal
from dpsql.accounting.ledger.ledger import Ledger
from tests.accounting.test_declaration import declared, set_bounds
append = Journal.append
def dying(journal, record):
    entry = append(journal, record)
    os.kill(os.getpid(), signal.SIGKILL)
Journal.append = dying
Ledger.open(sys.argv[1], dataset="shop", epsilon=1, declared=declared(*[set_bounds] * int(sys.argv[2])))
"""


@pytest.mark.parametrize("there", [False, True])
def test_killed_within_the_entry(tmp_path: Path, there: bool) -> None:
    """Before the first budget, or between two declarations: there is all of an entry or nothing of it."""
    path = str(tmp_path / "shop.ledger")
    if there:
        Ledger.open(path, dataset="shop", epsilon=1, declared=declared()).close()
    root = str(Path(__file__).parents[2])
    died = subprocess.run(
        [sys.executable, "-c", KILLED, path, str(int(there))],
        cwd=root,
        env=os.environ | {"PYTHONPATH": root},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    with closing(Ledger.open(path, dataset="shop", epsilon=1, declared=declared(set_bounds))) as ledger:
        assert [entry.state for entry in ledger.history()] == ["budget", "schema"][: 1 + there]
        assert ledger.verify().entries == 1 + there


def test_a_frame_that_is_protected_again(tmp_path: Path) -> None:
    frame = pd.DataFrame({"person": range(100), "amount": [1] * 100})
    path = str(tmp_path / "frame.ledger")
    frame.dp.protect(unit="person", bounds={"amount": (0, 5)}, budget=1, ledger=path)
    frame.dp.protect(unit="person", bounds={"amount": (0, 9)})
    with closing(Ledger.at(path)) as ledger:
        assert [entry.shown()["sql"] for entry in ledger.history()] == [
            "schema: df by person",
            "schema: df.amount.bounds: [0, 9], was [0, 5]",
        ]

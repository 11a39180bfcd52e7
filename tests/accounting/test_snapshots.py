"""Answers know the data that they were drawn from: by the owner's name of it, since the number of rows is private."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.accounting.events import PureRelease
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.errors import BudgetExhausted, SchemaError
from dpsql.schema import load_schema

COUNT = "SELECT COUNT(*) AS n FROM visits"


def schema(snapshot: str | None) -> dict[str, Any]:
    visits = {"unit": "person", "unique": True, "columns": {"person": "integer"}}
    return {"dataset": "shop", "tables": {"visits": visits}} | ({} if snapshot is None else {"snapshot": snapshot})


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as opened:
        opened.execute("CREATE TABLE visits AS SELECT i::INTEGER AS person FROM range(500) AS r(i)")
    return path


@pytest.mark.parametrize("where", ["file", "server"])
def test_the_ledger_notes_each_load_with_its_first_charge(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = str(tmp_path / "l")
    if where == "server":
        name = f"data_{random.SystemRandom().getrandbits(32):x}"
        path = f"{request.getfixturevalue('postgresql_url')}&schema={name}"
    noted = []
    for number, data in enumerate((None, "monday", "monday", "tuesday", "monday")):
        ledger = Ledger.open(path, dataset="shop", epsilon=Fraction(1, 2), data=data)
        for _ in range(1 if number else 0):
            charge = ledger.charge(PureRelease(Fraction(1, 10)), sql="q", fingerprint="f", epsilon="0.1")
            ledger.released(charge)
            ledger.release(charge)
        with pytest.raises(BudgetExhausted):
            ledger.charge(PureRelease(Fraction(1)), sql="q", fingerprint="f", epsilon="1")
        noted = [entry.shown()["sql"] for entry in ledger.history() if entry.state == "data"]
        ledger.verify()
        ledger.close()
    assert noted == ["data: monday", "data: tuesday", "data: monday"], "once for each change, none by what is refused"


def test_a_stored_answer_says_of_which_data_it_is(database: Path) -> None:
    seen = []
    for snapshot in (None, "monday", "tuesday"):
        with dpsql.connect(database, schema=schema(snapshot), budget=3) as conn:
            cursor = conn.execute(COUNT, epsilon=0.5)
            seen.append((cursor.receipt.recalled, cursor.receipt.data, [n for n in cursor.notes if "of the data" in n]))
            if snapshot is not None:
                assert conn.execute(COUNT, epsilon=0.5, fresh=True).receipt.data == (snapshot,)
    assert seen == [
        (False, (), []),
        (True, (), []),  # of a time without names
        (
            True,
            ("monday",),
            ["this answer is of the data 'monday', and now there is 'tuesday': fresh=True asks again at full cost"],
        ),
    ]


def test_answers_of_an_older_ledger_have_no_name(database: Path) -> None:
    with dpsql.connect(database, schema=schema("monday"), budget=1) as conn:
        conn.execute(COUNT, epsilon=0.5)
        answers = conn.session.environment.ledger.answers
        with answers.file.writing() as connection:
            rows = list(connection.execute("SELECT fingerprint, payload FROM answers"))
            for fingerprint, payload in rows:
                if payload.startswith("[["):
                    older = json.dumps([answer[:3] for answer in json.loads(payload)])
                    connection.execute("UPDATE answers SET payload = ? WHERE fingerprint = ?", (older, fingerprint))
        receipt = conn.execute(COUNT, epsilon=0.5).receipt
        assert (receipt.recalled, receipt.data) == (True, ())


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", 7])
def test_a_snapshot_has_a_name_of_one_line(name: object) -> None:
    with pytest.raises(SchemaError, match="snapshot"):
        load_schema({**schema(None), "snapshot": name})


def test_a_ledger_in_another_name_knows_the_data_too(tmp_path: Path) -> None:
    ledger = Ledger.open(str(tmp_path / "l"), dataset="shop", epsilon=1, data="monday")
    assert ledger.for_analyst("ada").answers.data == "monday"
    ledger.close()

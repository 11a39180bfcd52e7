"""Three analysts of one dataset, one with a limit: every number that they read is about their own account."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import sqlalchemy as sa
import yaml
from IPython.core.interactiveshell import InteractiveShell

import dpsql
from dpsql.cli.app import main
from dpsql.cli.shell import Shell

COUNT = "SELECT COUNT(*) AS n FROM visits"
OTHER = "SELECT COUNT(*) AS n FROM visits WHERE town = 'Oslo'"
SCHEMA = {
    "dataset": "visits",
    "tables": {
        "visits": {
            "unit": "person",
            "unique": True,
            "columns": {
                "person": "integer",
                "town": {"type": "text", "values": ["Oslo", "Rome"]},
                "spent": {"type": "integer", "bounds": [0, 100]},
            },
        }
    },
}
LIMIT = 0.3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with duckdb.connect(str(tmp_path / "visits.duckdb")) as database:
        database.execute(
            "CREATE TABLE visits AS SELECT i::INTEGER AS person, ['Oslo', 'Rome'][1 + i % 2] AS town, "
            "(i % 101)::INTEGER AS spent FROM range(2000) AS r(i)"
        )
    (tmp_path / "visits.yaml").write_text(yaml.safe_dump(SCHEMA))
    monkeypatch.chdir(tmp_path)
    for name, value in (("DB", "visits.duckdb"), ("SCHEMA", "visits.yaml")):
        monkeypatch.setenv(f"DPSQL_{name}", value)
    return tmp_path


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[..., dpsql.Connection]]:
    """Sessions on one ledger, with a budget of 2, of which ada may spend 0.3."""
    connections: list[dpsql.Connection] = []

    def opened(**options: Any) -> dpsql.Connection:
        limit = {"analyst_budget": str(LIMIT)} if options.get("analyst") == "ada" else {}
        connections.append(dpsql.connect("visits.duckdb", schema="visits.yaml", budget=2, **(limit | options)))
        return connections[-1]

    yield opened
    for connection in connections:
        connection.close()


@pytest.fixture
def analysts(opened: Callable[..., dpsql.Connection]) -> dict[str, dpsql.Connection]:
    """Bob has spent 0.5 and eve 0.2, who have no limits; ada 0.1."""
    found = {name: opened(analyst=name) for name in ("ada", "bob", "eve")}
    found["bob"].execute(COUNT, epsilon=0.5)
    found["eve"].execute(OTHER, epsilon=0.2)
    found["ada"].execute("SELECT SUM(spent) AS s FROM visits", epsilon=0.1)
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit):
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return said.out + said.err

    return run


def test_the_account_in_python(analysts: dict[str, dpsql.Connection]) -> None:
    ada, bob, eve = analysts.values()
    assert (ada.budget.epsilon, ada.budget.spent.epsilon, ada.budget.queries) == (0.3, 0.1, 1)
    assert ada.budget.remaining.epsilon == pytest.approx(0.2)
    assert repr(ada) == "<dpsql connection to visits: epsilon 0.2 of 0.3 left>"
    assert str(ada.budget).startswith("epsilon: 0.1 of 0.3 spent in 1 query, 0.2 left for the next")
    for other in (bob, eve):
        assert (other.budget.epsilon, other.budget.spent.epsilon, other.budget.queries) == (2, 0.8, 3)
        assert repr(other) == "<dpsql connection to visits: epsilon 1.2 of 2 left>"
    assert ada.budget.queries_like(0.1) == 2
    assert bob.budget.queries_like(0.1) == 12
    assert not ada.budget.queries_like(0.21)


def test_the_card_lists_the_analysts_own_queries(analysts: dict[str, dpsql.Connection]) -> None:
    card = analysts["ada"].budget._repr_html_()
    assert "of 0.3 spent" in card
    assert "SUM(spent)" in card
    assert "Oslo" not in card, "what eve asked is no part of it"
    assert "query charged" in card
    assert "Oslo" in analysts["bob"].budget._repr_html_()


def test_the_history_is_that_of_the_account(analysts: dict[str, dpsql.Connection]) -> None:
    """Whoever has a limit sees no question of others; whoever shares the account sees what was spent from it."""
    ada = analysts["ada"].history()
    assert set(ada.analyst.dropna()) == {"ada"}
    assert ada.state.tolist()[0] == "budget"
    assert not any("Oslo" in str(sql) for sql in ada.sql)
    for name in ("bob", "eve"):
        assert set(analysts[name].history().analyst.dropna()) == {"ada", "bob", "eve"}


def test_explain_and_plan(analysts: dict[str, dpsql.Connection]) -> None:
    ada, bob, _ = analysts.values()
    explained = ada.explain(OTHER, epsilon=0.15, fresh=True)
    assert explained.remaining.epsilon == pytest.approx(0.05)
    assert explained.share == pytest.approx(0.5)
    assert "50.00% of the budget; epsilon 0.05 would be left" in str(explained)
    assert "ε 0.05" in explained._repr_html_()
    assert bob.explain(OTHER, epsilon=0.15, fresh=True).remaining.epsilon == pytest.approx(1.05)
    plan = ada.plan(
        ["SELECT COUNT(*) FROM visits WHERE spent > 3", "SELECT SUM(spent) FROM visits WHERE town = 'Rome'"],
        epsilon=0.15,
    )
    assert plan.remaining.epsilon == pytest.approx(0.05)
    assert "0.05 is left" in str(plan)
    assert ada.explain(COUNT, epsilon=0.5).remaining.epsilon == pytest.approx(0.2), "bob has paid for that"


def test_receipts(analysts: dict[str, dpsql.Connection]) -> None:
    ada, bob, _ = analysts.values()
    cursor = ada.execute(OTHER, epsilon=0.15, fresh=True)
    assert cursor.receipt.remaining.epsilon == pytest.approx(0.05)
    assert "ε 0.05 left" in list(cursor.receipt.lines())
    assert "ε 0.05 left" in str(cursor._repr_html_())
    assert bob.execute(OTHER, epsilon=0.1, fresh=True).receipt.remaining.epsilon == pytest.approx(0.95)


def test_too_much_is_refused_in_the_analysts_own_numbers(analysts: dict[str, dpsql.Connection]) -> None:
    with pytest.raises(dpsql.BudgetExhausted, match=r"only 0\.2 is left") as caught:
        analysts["ada"].execute(OTHER, epsilon=0.25, fresh=True)
    assert caught.value.remaining == pytest.approx(0.2)
    with pytest.raises(dpsql.BudgetExhausted, match=r"only 1\.2 is left"):
        analysts["bob"].execute(OTHER, epsilon=1.5)
    with pytest.raises(dpsql.BudgetExhausted, match=r"only 0\.2 is left"):
        analysts["ada"].execute(OTHER, epsilon=1.5, fresh=True)


def test_what_is_left_is_the_least_of_both(analysts: dict[str, dpsql.Connection]) -> None:
    """Of 1.2 that are left bob takes all but 0.05: that is left for ada too, however much of the limit is not used."""
    ada, bob, _ = analysts.values()
    bob.execute("SELECT SUM(spent) AS s FROM visits", epsilon="1.15", fresh=True)
    assert ada.budget.spent.epsilon == 0.1
    assert ada.budget.remaining.epsilon == pytest.approx(0.05)
    assert ada.budget.queries_like("0.05") == 1
    assert ada.explain(OTHER, epsilon="0.02", fresh=True).remaining.epsilon == pytest.approx(0.03)
    with pytest.raises(dpsql.BudgetExhausted, match=r"only 0\.05 is left"):
        ada.execute(OTHER, epsilon="0.1", fresh=True)
    with pytest.raises(dpsql.BudgetExhausted, match=r"only 0\.05 is left"):
        ada.execute(OTHER, epsilon="0.25", fresh=True)
    assert "the dataset has no more" in str(ada.budget)


def test_the_default_is_a_tenth_of_the_analysts_budget(opened: Callable[..., dpsql.Connection]) -> None:
    ada, bob = opened(analyst="ada"), opened(analyst="bob")
    assert bob.execute(COUNT).receipt.epsilon == 0.2
    for number in range(10):
        receipt = ada.execute(f"SELECT COUNT(*) FROM visits WHERE spent > {number}").receipt
        assert receipt.epsilon == pytest.approx(0.03)
    assert ada.budget.remaining.epsilon == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("composition", ["mixed", "auto", "gdp", "zcdp", "basic"])
def test_a_small_limit_admits_default_questions(opened: Callable[..., dpsql.Connection], composition: str) -> None:
    """Where a tenth is not a tenth of epsilon: a limit of a hundredth of the dataset is not refused from the start."""
    opened(delta=1e-6, composition=composition, analyst="bob")
    ada = opened(analyst="ada", analyst_budget="0.02")
    for number in range(5):
        ada.execute(f"SELECT COUNT(*), SUM(spent) FROM visits WHERE spent > {number}")
    assert ada.budget.queries == 5
    assert ada.budget.spent.epsilon <= 0.02


def test_a_limit_above_the_budget_is_no_limit(opened: Callable[..., dpsql.Connection]) -> None:
    ada = opened(analyst="ada", analyst_budget=5)
    assert ada.budget.epsilon == 2
    assert ada.execute(COUNT).receipt.epsilon == 0.2


def test_the_promise(analysts: dict[str, dpsql.Connection]) -> None:
    ada, bob, _ = analysts.values()
    promise = ada.promise()
    assert (promise.spent.epsilon, promise.whole.epsilon) == (0.1, 0.3)
    said = " ".join(str(promise).split())
    assert "answers that ada paid for" in said
    assert "epsilon 0.8 so far and 2 over the whole budget" in said, "ada may see what others have paid for"
    assert (bob.promise().spent.epsilon, bob.promise().whole.epsilon) == (0.8, 2)
    assert "paid for" not in str(bob.promise())


def test_practice(analysts: dict[str, dpsql.Connection]) -> None:
    with analysts["ada"].practice(people=100) as practice:
        assert practice.budget.epsilon == LIMIT


@pytest.mark.parametrize("composition", ["mixed", "zcdp", "basic"])
def test_groups_that_are_chosen_leave_the_reserve_to_others(
    opened: Callable[..., dpsql.Connection], composition: str
) -> None:
    """At one epsilon a question of a limited analyst takes as much delta as anybody's, and finds the same answer."""
    sql = "SELECT spent, COUNT(*) AS n FROM visits GROUP BY spent"
    bob, ada = opened(analyst="bob", delta=1e-6, composition=composition), opened(analyst="ada")
    assert ada.explain(sql, epsilon=0.2).cost == bob.explain(sql, epsilon=0.2).cost
    rows = bob.execute(sql, epsilon=0.2).fetchall()
    recalled = ada.execute(sql, epsilon=0.2)
    assert (recalled.receipt.recalled, recalled.fetchall()) == (True, rows)


# -- front ends --------------------------------------------------------------------------------------------------------


def test_the_command_line(
    analysts: dict[str, dpsql.Connection], run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("query", OTHER, "--epsilon", 0.05, "--fresh", "--analyst", "ada")
    assert "left: epsilon 0.15 of 0.3" in run(*asked)
    assert json.loads(run(*asked, "--json"))["remaining"]["epsilon"] == pytest.approx(0.1)
    assert "epsilon 0.05 would be left" in run("explain", COUNT, "--epsilon", 0.05, "--fresh", "--analyst", "ada")
    assert "epsilon: 0.2 of 0.3 spent in 3 queries, 0.1 left" in run("budget", "--analyst", "ada")
    assert json.loads(run("budget", "--analyst", "ada", "--json"))["remaining"]["epsilon"] == pytest.approx(0.1)
    assert "epsilon: 0.9 of 2 spent in 5 queries, 1.1 left" in run("budget")
    assert "basic composition" not in run("budget")
    assert "with basic composition 0.9" in run("budget", "--verbose")
    monkeypatch.setenv("DPSQL_ANALYST", "ada")
    assert "epsilon: 0.2 of 0.3 spent" in run("budget")
    monkeypatch.delenv("DPSQL_ANALYST")
    refused = run("query", OTHER, "--epsilon", 0.25, "--fresh", "--analyst", "ada", "--json")
    assert json.loads(refused)["remaining"] == pytest.approx(0.1)
    assert "left: epsilon 1.05 of 2" in run("query", COUNT, "--epsilon", 0.05, "--fresh", "--analyst", "bob")
    assert "cost: epsilon 0.03" in run("query", COUNT, "--fresh", "--analyst", "ada")


def test_the_owner_sees_how_little_is_left(analysts: dict[str, dpsql.Connection], run: Callable[..., str]) -> None:
    analysts["bob"].execute("SELECT SUM(spent) AS s FROM visits", epsilon="1.15", fresh=True)
    assert "0.1 of 0.3 spent in 1 query, 0.05 left" in run("budget", "--analyst", "ada")
    assert "of 5 spent" in run("budget", "grant", 5, "--analyst", "ada"), "as it is on record"


def test_the_shell(analysts: dict[str, dpsql.Connection]) -> None:
    shell = Shell(analysts["ada"])
    assert "left: epsilon 0.2 of 0.3" in shell._toolbar()
    assert "0.1 of 0.3 spent" in shell._command(".budget").text
    shell._command(".epsilon 0.05")
    shell._command(".fresh")
    assert "left: epsilon 0.15 of 0.3" in shell._ask(OTHER).note
    assert "epsilon 0.1 would be left" in shell._command(f".explain {OTHER}").text


def test_magics(analysts: dict[str, dpsql.Connection], capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "dpsql")
    shell.run_line_magic(
        "dpsql", "connect visits.duckdb --schema visits.yaml --analyst ada --analyst-budget 0.3 --as conn"
    )
    assert "connected: epsilon 0.1 of 0.3 spent" in capsys.readouterr().out
    assert shell.run_line_magic("dpsql", "budget").epsilon == LIMIT
    assert shell.run_line_magic("dpsql", "promise").whole.epsilon == LIMIT
    answer = shell.run_cell_magic("dpsql", "--epsilon 0.05 --fresh", OTHER)
    assert "ε 0.15 left" in answer._repr_html_()
    shell.user_ns["conn"].close()


def test_sqlalchemy(analysts: dict[str, dpsql.Connection]) -> None:
    engine = sa.create_engine("dpsql:///visits.duckdb?schema=visits.yaml&analyst=ada&query_epsilon=0.05")
    with engine.connect() as connection:
        connection.execute(sa.text(OTHER)).fetchall()
        budget = connection.connection.driver_connection.budget
        assert (budget.epsilon, budget.spent.epsilon) == (LIMIT, pytest.approx(0.1)), "eve has paid for that"
        sql = sa.text("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.25) COUNT(*) FROM visits WHERE spent > 7")
        with pytest.raises(sa.exc.DBAPIError, match=r"only 0\.2 is left"):
            connection.execute(sql)
    engine.dispose()


def test_frames_show_one_account(folder: Path) -> None:
    frame = pd.DataFrame({"person": range(500), "spent": [1] * 500})
    frame.dp.protect(unit="person", bounds={"spent": (0, 9)}, budget=2)
    frame.dp.count(epsilon=0.5)
    assert frame.dp.budget.remaining.epsilon == 1.5
    assert re.search(r"epsilon 1\.5 of 2 left", repr(frame.dp))

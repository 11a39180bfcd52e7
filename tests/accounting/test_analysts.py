"""Whom the data owner lets ask, and how much: limits, names that are not listed, single questions, revocation."""

from __future__ import annotations

import random
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dpsql
from dpsql.accounting.events import Gaussian, PureRelease
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.errors import AccountSuspended, BudgetExhausted, LedgerError, ProgrammingError

Opened = Callable[..., Ledger]
SCHEMA = {"dataset": "shop", "tables": {"visits": {"unit": "person", "unique": True, "columns": {"person": "integer"}}}}
FRAME = {"visits": pd.DataFrame({"person": range(500)})}
COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture(params=["file", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The rules are the same wherever the ledger is kept."""
    if request.param == "file":
        return str(tmp_path / "shop.ledger")
    url = request.getfixturevalue("postgresql_url")
    return f"{url}&schema=analysts_{random.SystemRandom().getrandbits(32):x}"


@pytest.fixture
def opened(where: str) -> Iterator[Opened]:
    ledgers: list[Ledger] = []

    def opened(**options: Any) -> Ledger:
        ledgers.append(Ledger.open(where, **{"dataset": "shop", "epsilon": 1, "delta": "1e-6"} | options))
        return ledgers[-1]

    yield opened
    for ledger in ledgers:
        ledger.close()


def spend(ledger: Ledger, epsilon: str = "0.1", delta: str = "0") -> None:
    entry = ledger.charge(PureRelease(Fraction(epsilon)), sql="q", fingerprint="f", epsilon=epsilon, delta=delta)
    ledger.released(entry)
    ledger.release(entry)


def test_the_first_listed_analyst_ends_what_others_may_spend(opened: Opened) -> None:
    owner, ada, eve = opened(), opened(analyst="ada"), opened(analyst="eve")
    for ledger in (owner, ada, eve):
        spend(ledger)
    owner.set("0.5", analyst="ada")
    spend(ada)
    for ledger, said in ((eve, '"eve" is not on the data owner\'s list'), (owner, "without an analyst's name are not")):
        with pytest.raises(AccountSuspended, match=said):
            spend(ledger)
    owner.set("0.2", others=True)
    for ledger in (owner, eve):
        spend(ledger)
        with pytest.raises(BudgetExhausted):
            spend(ledger)
    assert (eve.budget.epsilon, eve.budget.spent.epsilon, owner.dataset_budget.epsilon) == (0.2, 0.2, 1)
    assert owner.verify().charges == 6


def test_a_session_adds_nobody_to_the_list(opened: Opened) -> None:
    opened(analyst="ada", analyst_epsilon="0.3")
    spend(opened(analyst="bob"))  # a limit of one session's analyst is no list
    opened().set("0.4", analyst="bob")
    with pytest.raises(LedgerError, match='"mallory" is not on the data owner\'s list'):
        opened(analyst="mallory", analyst_epsilon="0.9")
    opened(analyst="ada", analyst_epsilon="0.3")


def test_a_limit_below_what_is_spent_means_no_more(opened: Opened) -> None:
    ada = opened(analyst="ada", analyst_epsilon="0.5")
    spend(ada, "0.4")
    opened().limit("0.1", analyst="ada")
    for epsilon in ("0.1", "1e-9"):
        with pytest.raises(BudgetExhausted, match="only 0 is left"):
            spend(ada, epsilon)
    assert (ada.budget.spent.epsilon, ada.budget.remaining.epsilon) == (0.4, 0)
    opened().grant("0.5", analyst="ada")
    spend(ada, "0.1")
    assert ada.verify().charges == 2
    with pytest.raises(LedgerError, match="already spent"):
        opened().limit("0.1")


def test_a_revoked_analyst_with_an_open_session_is_refused_at_the_next_charge(opened: Opened) -> None:
    ada, owner = opened(analyst="ada", analyst_epsilon="0.5"), opened()
    working = ada.charge(PureRelease(Fraction(1, 10)), sql="q", fingerprint="f", epsilon="0.1")
    owner.revoke("ada")
    owner.revoke("ada")
    ada.released(working)
    ada.release(working)
    with pytest.raises(AccountSuspended, match=r'revoked the account of "ada" \(entry 4\)') as caught:
        spend(ada)
    assert "dpsql budget set EPSILON --analyst ada" in str(caught.value.hint)
    with pytest.raises(AccountSuspended, match="revoked"):
        opened(analyst="ada")
    assert ada.budget.suspended[0].revoked
    owner.set("0.5", analyst="ada")  # the limit of before, which is news now
    spend(ada)
    assert [entry.state for entry in owner.history(analyst="ada")] == [
        *("budget", "charged", "revoked", "released", "budget", "charged", "released")
    ]
    owner.verify()


def test_one_question_costs_at_most_what_the_owner_says(opened: Opened) -> None:
    ada, bob, owner = opened(analyst="ada"), opened(analyst="bob"), opened()
    owner.limit_questions("0.2", "1e-8")
    owner.limit_questions("0.05", analyst="ada")
    spend(bob, "0.2", "1e-8")
    for ledger, epsilon, delta in ((bob, "0.21", "0"), (bob, "0.1", "2e-8"), (ada, "0.1", "0"), (ada, "0.01", "2e-8")):
        with pytest.raises(BudgetExhausted, match="a single query may cost at most epsilon"):
            spend(ledger, epsilon, delta)
    spend(ada, "0.05")
    assert str(ada.budget.question) == "epsilon 0.05 and delta 1e-08"
    assert owner.verify().charges == 2


def test_everyone_is_listed_with_what_they_may_and_did(opened: Opened) -> None:
    owner = opened()
    for name in ("ada", "bob"):
        owner.set("0.3", analyst=name)
    spend(opened(analyst="ada"))
    owner.revoke("bob")
    seen = {
        one.analyst: (one.budget.epsilon, one.budget.spent.epsilon, one.allowed.revoked) for one in owner.analysts()
    }
    assert seen == {"ada": (0.3, 0.1, None), "bob": (0.3, 0, 7), None: (0, 0, None)}


@pytest.mark.parametrize("name", ["", " ada", "ada\n", "a\x1b[2Jb", 7])
def test_what_is_no_name_is_refused(opened: Opened, name: Any) -> None:
    owner = opened()
    for change in (lambda: owner.set(1, analyst=name), lambda: owner.revoke(name), lambda: opened(analyst=name)):
        with pytest.raises(ProgrammingError, match="is not a name of an analyst"):
            change()
    assert len(owner.history()) == 1


def test_names_that_look_alike_are_two_and_warned_of(opened: Opened) -> None:
    owner = opened()
    owner.set("0.3", analyst="Ada Lovelace")
    with pytest.warns(dpsql.Warning, match='"ada.lovelace" and "Ada Lovelace" are two'):
        owner.set("0.2", analyst="ada.lovelace")
    with pytest.warns(dpsql.Warning, match="are two"):
        mistyped = opened(analyst="ada lovelace")
    with pytest.raises(AccountSuspended, match="not on the data owner's list"):
        spend(mistyped)
    with warnings.catch_warnings(action="error"):
        spend(opened(analyst="Ada Lovelace"))
    with pytest.raises(LedgerError, match='no analyst "Ada Lovelac"') as caught:
        owner.revoke("Ada Lovelac")
    assert 'did you mean "Ada Lovelace"' in str(caught.value.hint)


def test_numbers_that_are_none_change_nothing(opened: Opened) -> None:
    owner = opened()
    for epsilon, delta in (("-1", None), ("lots", None), ("1", "2"), ("nan", None)):
        for change in (owner.set, owner.grant, owner.limit):
            with pytest.raises((ProgrammingError, LedgerError)):
                change(epsilon, delta, "ada")
        with pytest.raises(ProgrammingError):
            owner.limit_questions(epsilon, delta)
    assert len(owner.history()) == 1


# -- sessions and old ledgers ------------------------------------------------------------------------------------------


def test_questions_without_a_cost_take_what_one_question_may(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    with dpsql.connect(FRAME, schema=SCHEMA, ledger=path, budget=1, delta=1e-6) as conn:
        owner = conn.session.environment.ledger
        owner.limit_questions("0.03")
        assert conn.execute(COUNT, mechanism="laplace").receipt.epsilon == 0.03
        assert "at most epsilon 0.03" in str(conn.budget)
        refused = conn.explain(COUNT, epsilon=0.5)
        assert refused.notes[-1].startswith("this would be refused: the data owner lets a single query cost at most")
        with pytest.raises(BudgetExhausted, match=r"a single query may cost at most epsilon 0\.03"):
            conn.execute(COUNT, epsilon=0.5)
        owner.set("0.3", analyst="ada")
        assert conn.execute(COUNT, mechanism="laplace").receipt.recalled, "what was paid for stays free"
        with pytest.raises(AccountSuspended, match="without an analyst's name"):
            conn.execute("SELECT COUNT(*) FROM visits WHERE person < 9")
        assert conn.explain("SELECT COUNT(*) FROM visits WHERE person < 9").cost.epsilon == 0.03


@pytest.mark.parametrize("composition", ["mixed", "auto", "gdp", "zcdp", "basic"])
def test_a_limit_of_nothing_admits_nothing_under_every_rule(tmp_path: Path, composition: str) -> None:
    ada = Ledger.open(tmp_path / "l", dataset="shop", epsilon=1, delta="1e-6", composition=composition, analyst="ada")
    ada.set(0, analyst="ada")
    for event in (PureRelease(Fraction(1, 10**9)), Gaussian(Fraction(10**9))):
        with pytest.raises(BudgetExhausted):
            ada.charge(event, sql="q", fingerprint="f", epsilon="1e-9")
    assert ada.verify().charges == 0
    ada.close()


def test_a_ledger_from_before_the_list_goes_on_as_it_was(tmp_path: Path) -> None:
    """Version 5 knew an analyst's limit, and no list: other names may spend what the dataset has left."""
    path = tmp_path / "shop.ledger"
    ada = Ledger.open(path, dataset="shop", epsilon=1, analyst="ada", analyst_epsilon="0.3")
    spend(ada)
    ada.close()
    with sqlite3.connect(path) as file:
        file.execute("DROP INDEX rules")
        file.execute("CREATE INDEX budgets_by_analyst ON entries (analyst, number) WHERE state = 'budget'")
        file.execute("PRAGMA user_version = 5")
    bob = Ledger.open(path, dataset="shop", analyst="bob")
    spend(bob, "0.4")
    assert (bob.budget.epsilon, bob.budget.spent.epsilon) == (1, 0.5)
    bob.set("0.3", analyst="ada")  # nothing new about her, and a list from now on
    with pytest.raises(AccountSuspended, match="not on the data owner's list"):
        spend(bob)
    assert bob.verify().charges == 2
    bob.close()

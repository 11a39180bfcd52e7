"""A budget that begins anew at times: docs/proofs/ledger.md, "Renewal", and what is told of all terms together."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dpsql
from dpsql.accounting.events import Event, Gaussian, PureRelease
from dpsql.accounting.filters import filter_named
from dpsql.accounting.ledger import journal
from dpsql.accounting.ledger.journal import Entry
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.accounting.ledger.renewal import Every, next_start, period_start, read_schedule
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.cli.app import main
from dpsql.errors import BudgetExhausted, LedgerError, ProgrammingError

Opened = Callable[..., Ledger]
SCHEMA = {"dataset": "shop", "tables": {"visits": {"unit": "person", "unique": True, "columns": {"person": "integer"}}}}
FRAME = {"visits": pd.DataFrame({"person": range(500)})}


class Clock:
    """What `now` says; it begins in the middle of November."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def on(self, day: str) -> None:
        self.moment = datetime.fromisoformat(f"{day}T12:00:00+00:00")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("journal", "renewal", "ledger"):
        monkeypatch.setattr(f"dpsql.accounting.ledger.{module}.now", lambda: clock.moment)
    return clock


@pytest.fixture(params=["file", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "shop.ledger")
    url = request.getfixturevalue("postgresql_url")
    return f"{url}&schema=renewal_{random.SystemRandom().getrandbits(32):x}"


@pytest.fixture
def opened(where: str, clock: Clock) -> Iterator[Opened]:
    ledgers: list[Ledger] = []

    def opened(**options: Any) -> Ledger:
        ledgers.append(Ledger.open(where, **{"dataset": "shop"} | options))
        return ledgers[-1]

    ledgers.append(Ledger.open(where, dataset="shop", epsilon=1, delta="1e-6"))
    yield opened
    for ledger in ledgers:
        ledger.verify()
        ledger.close()


def spend(ledger: Ledger, epsilon: str, event: Event | None = None) -> Entry:
    entry = ledger.charge(event or PureRelease(Fraction(epsilon)), sql="q", fingerprint="f", epsilon=epsilon)
    ledger.released(entry)
    ledger.release(entry)
    return entry


def monthly(epsilon: str = "1", every: str = "month", first: str | None = None, until: str | None = None) -> Any:
    return read_schedule(every, epsilon, "1e-6", first, until)


def test_a_new_month_brings_a_new_budget_and_all_months_add_up(opened: Opened, clock: Clock) -> None:
    ledger = opened()
    ledger.renew(monthly())
    spend(ledger, "1")
    with pytest.raises(BudgetExhausted):
        spend(ledger, "0.1")
    clock.on("2026-12-01")
    assert (ledger.budget.spent.epsilon, ledger.budget.queries) == (0, 0)
    spend(ledger, "0.7")
    with pytest.raises(BudgetExhausted, match=r"only 0\.3 is left"):
        spend(ledger, "0.4")
    clock.on("2027-03-31")  # nobody asked in January and February: those budgets were never given
    spend(ledger, "0.4")
    assert [one.shown()["sql"] for one in ledger.history() if one.state in ("renewal", "renewed")] == [
        "renewal: every month from 2026-12-01",
        "term from 2026-12-01",
        "term from 2027-03-01",
    ]
    told = ledger.budget.over_time
    assert told is not None
    assert (told.terms, told.total, told.begun) == (3, (3, 3e-6), date(2027, 3, 1))
    assert told.schedule == "epsilon 1 at delta 1e-06 every month from 2026-12-01, next on 2027-04-01"
    assert "over all time: epsilon 3 and delta 3e-06 in 3 terms" in str(ledger.budget)
    assert [entry.sql for entry in ledger.history() if entry.state == "renewed"] == ["2026-12-01", "2027-03-01"]
    clock.on("2027-02-01")  # a clock that goes back renews nothing
    assert ledger.budget.spent.epsilon == pytest.approx(0.4)


def test_analysts_begin_anew_with_the_budget(opened: Opened, clock: Clock) -> None:
    ada = opened(analyst="ada")
    ada.set("0.3", analyst="ada")
    ada.renew(monthly("2"))
    spend(ada, "0.3")
    clock.on("2026-12-24")
    assert (ada.budget.spent.epsilon, ada.budget.remaining.epsilon) == (0, 0.3)
    spend(ada, "0.2")
    assert {one.analyst: one.budget.spent.epsilon for one in ada.analysts()} == {"ada": 0.2, None: 0}
    assert ada.dataset_budget.epsilon == 2


def test_a_lifetime_is_one_filter_over_all_terms(opened: Opened, clock: Clock) -> None:
    """Recomputed from the events: what is admitted is what the month's filter and the lifetime's both admit."""
    ledger, luck = opened(), random.Random(1)
    ledger.renew(monthly(), lifetime="2.5")
    ever, term, refused = PrivacyLoss(), PrivacyLoss(), 0
    for month in range(12):
        clock.on(f"2027-{month + 1:02}-09")
        term = PrivacyLoss()
        for _ in range(6):
            epsilon = Fraction(luck.randrange(1, 40), 100)
            event = luck.choice((PureRelease(epsilon), Gaussian(5 / epsilon)))
            now, over_time = term + privacy_loss(event), ever + privacy_loss(event)
            fits = [
                filter_named("mixed", Fraction(1), Fraction(1, 10**6)).admits(now),
                filter_named("mixed", Fraction(5, 2), Fraction(25, 10**7)).admits(over_time),
            ]
            if all(fits):
                spend(ledger, str(epsilon), event)
                term, ever = now, over_time
            else:
                refused += 1
                with pytest.raises(BudgetExhausted):
                    spend(ledger, str(epsilon), event)
    budget = ledger.budget
    assert refused > 20
    assert budget.tally.totals.agrees(term)
    assert budget.tally.lifetime_totals.agrees(ever)
    assert budget.lifetime is not None
    assert 2 < budget.lifetime.spent.epsilon <= budget.lifetime.epsilon == 2.5
    ledger.renew_no_more()
    with pytest.raises(LedgerError, match="already spent over all time"):
        ledger.renew(monthly("0.2"), lifetime="0.5")
    assert ledger.history()[-1].sql == '{"every": null}', "and nothing of it is on record"


def test_a_refund_from_before_a_renewal_gives_nothing_to_the_new_term(opened: Opened, clock: Clock) -> None:
    ledger = opened()
    ledger.renew(monthly(), lifetime=12)
    charge = ledger.charge(PureRelease(Fraction(1, 2)), sql="q", fingerprint="f", epsilon="0.5")
    clock.on("2026-12-01")
    spend(ledger, "0.2")
    ledger.refused(charge, PureRelease(Fraction(1, 2)), Fraction(1, 2))
    ledger.release(charge)
    assert ledger.budget.spent.epsilon == pytest.approx(0.2)
    assert ledger.budget.lifetime is not None
    assert ledger.budget.lifetime.spent.epsilon == pytest.approx(0.2)


def test_the_owner_changes_one_term_and_ends_the_schedule(opened: Opened, clock: Clock) -> None:
    ledger = opened()
    ledger.renew(monthly("0.5"))
    clock.on("2026-12-10")
    ledger.grant(2)
    ledger.limit("0.3")
    clock.on("2027-01-10")
    assert ledger.budget.epsilon == 0.5
    told = ledger.budget.over_time
    assert told is not None
    assert told.total.epsilon == 1 + 2 + 0.5, "the largest budget of each term"
    ledger.renew_no_more()
    clock.on("2028-01-01")
    spend(ledger, "0.5")
    with pytest.raises(BudgetExhausted):
        spend(ledger, "0.1")
    assert str(ledger.budget).count("it is not renewed again") == 1
    with pytest.raises(LedgerError, match="no schedule is on record"):
        ledger.renew_no_more()


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"every": "fortnight"}, "cannot be renewed every 'fortnight'"),
        ({"first": "2026-11-01"}, "begins on 2026-11-01, which is past"),
        ({"until": "2026-11-01"}, "ends on 2026-11-01, which is past"),
        ({"first": "2027-01-02", "until": "2027-01-31"}, "no month begins from 2027-01-02 until 2027-01-31"),
        ({"first": "next month"}, "not a day"),
        ({"epsilon": "0"}, "renews nothing"),
        ({"epsilon": "-1"}, "-1"),
        ({"lifetime": "0.9"}, "a lifetime of 0.9 is less than one renewal of 1"),
        ({"lifetime": "lots"}, "lifetime must be a number"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(opened: Opened, schedule: dict[str, str], said: str) -> None:
    with pytest.raises(ProgrammingError, match=said):
        opened().renew(monthly(**{k: v for k, v in schedule.items() if k != "lifetime"}), schedule.get("lifetime"))
    assert len(opened().history()) == 1


def test_schedules_do_not_overlap(opened: Opened, clock: Clock) -> None:
    ledger = opened()
    ledger.renew(monthly(until="2027-03-01"))
    for other in (monthly(every="week"), monthly(every="year", first="2027-01-01")):
        with pytest.raises(LedgerError, match=r"overlaps one on record: epsilon 1 .* until 2027-03-01"):
            ledger.renew(other)
    ledger.renew(monthly("0.25", every="quarter", first="2027-03-01"))
    for day, epsilon in (("2027-02-14", 1), ("2027-03-14", 1), ("2027-04-01", 0.25)):
        clock.on(day)
        assert ledger.budget.epsilon == epsilon


def test_sessions_that_name_the_budget_of_the_term_agree(opened: Opened, clock: Clock) -> None:
    opened().renew(monthly("0.5"))
    clock.on("2026-12-10")
    assert opened(epsilon="0.5").budget.epsilon == 0.5
    with pytest.raises(LedgerError, match=r"has a budget of epsilon 0\.5"):
        opened(epsilon=1)


@pytest.mark.parametrize("every", ["day", "week", "month", "quarter", "year"])
def test_every_day_is_in_one_period(every: Every) -> None:
    for number in range(date(2023, 12, 25).toordinal(), date(2029, 1, 9).toordinal()):
        day = date.fromordinal(number)
        start, following = period_start(day, every), next_start(day, every)
        assert start <= day < following
        assert period_start(following, every) == following
        assert {period_start(date.fromordinal(n), every) for n in range(start.toordinal(), following.toordinal())} == {
            start
        }


def test_a_renewal_that_no_schedule_calls_for_is_found(clock: Clock, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "l", dataset="shop", epsilon=1)
    with ledger._file.writing() as connection:
        record = journal.Record(
            dataset="shop", analyst=None, state="renewed", epsilon=Fraction(1), composition="mixed", sql="2026-11-01"
        )
        journal.Journal(connection).append(record)
    with pytest.raises(LedgerError, match="no schedule renews the budget then"):
        ledger.verify()
    ledger.close()


def test_what_is_told(clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "shop.ledger")
    with dpsql.connect(FRAME, schema=SCHEMA, ledger=path, budget=1) as conn:
        assert conn.promise().over_time is None
        with pytest.raises(SystemExit):
            main(["budget", "renew", "--every", "month", "--epsilon", "1", "--lifetime", "12", "--ledger", path])
        assert "over all time: epsilon 1 and delta 0 in 1 term; epsilon 1" in capsys.readouterr().out
        clock.on("2027-01-01")
        conn.execute("SELECT COUNT(*) FROM visits", epsilon=0.5)
        said = " ".join(str(conn.promise()).split())
        assert "To a person all terms add up: their budgets until now amount to epsilon 2 and delta 0" in said
        assert "All answers over all time have at most epsilon 12" in said
        assert "next on 2027-02-01" in said
        with pytest.raises(SystemExit):
            main(["budget", "--ledger", path, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert told["over_time"]["total"] == {"epsilon": 2.0, "delta": 0.0}
        assert told["lifetime"]["spent"]["epsilon"] == 0.5
        assert "over all time" in conn.budget._repr_html_()

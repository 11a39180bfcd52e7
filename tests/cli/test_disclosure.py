"""What is disclosed is what the ledger says: a year with four analysts, computed again from the export alone."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpsql.accounting.events import ApproximateRelease, Composed, Event, Gaussian, PureRelease, from_json
from dpsql.accounting.filters import filter_named
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import Ledger
from dpsql.accounting.ledger.renewal import read_schedule
from dpsql.accounting.ledger.seal import verify_file
from dpsql.accounting.privacy_loss import PrivacyLoss, privacy_loss
from dpsql.cli.app import main
from dpsql.cli.disclosure import as_html, as_markdown, disclosed
from dpsql.errors import AccountSuspended, BudgetExhausted, LedgerError, OperationalError
from dpsql.schema import Schema, load_schema

REPORTS = {"mechanism": "kary", "epsilon": 1, "values": [True, False]}
SCHEMA = {
    "dataset": "shop",
    "minimum_people": 20,
    "tables": {
        "visits": {
            "unit": "person",
            "contribution": {"max_groups": 2, "max_rows_per_group": 3},
            "columns": {
                "person": "integer",
                "smokes": {
                    "type": "boolean",
                    "collected": {"mechanism": "kary", "epsilon": 1, "values": [True, False]},
                },
            },
        },
        "towns": {"public": True, "columns": {"town": "text"}},
    },
}
ANALYSTS = ("ada", "bob", "eve", "kim")


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema(SCHEMA)


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory, schema: Schema) -> Iterator[Ledger]:
    moment = [datetime(2026, 1, 10, 9, tzinfo=UTC)]
    with pytest.MonkeyPatch.context() as patched:
        for module in ("journal", "renewal", "ledger"):
            patched.setattr(f"dpsql.accounting.ledger.{module}.now", lambda: moment[0])
        path = tmp_path_factory.mktemp("year") / "shop.ledger"
        ledger = a_year(
            path, schema, lambda day: moment.__setitem__(0, datetime.fromisoformat(f"{day}T09:00:00+00:00"))
        )
        yield ledger
        ledger.close()


def event(luck: random.Random, epsilon: Fraction) -> Event:
    noise = luck.choice((PureRelease(epsilon), Gaussian(5 / epsilon)))
    return luck.choice((noise, Composed((noise, ApproximateRelease(Fraction(0), Fraction(1, 10**9))))))


def a_year(path: Path, schema: Schema, clock: Callable[[str], None]) -> Ledger:
    """Each month questions of four analysts until the budget is spent in March; bob is revoked in June."""
    luck = random.Random(36)
    declared = Declaration.of(schema.on_record(), schema.fingerprint)
    owner = Ledger.open(path, dataset="shop", epsilon=1, delta="1e-6", declared=declared)
    for name in ANALYSTS[:3]:
        owner.set("0.5", analyst=name)
    owner.set("0.1", others=True)
    owner.limit_questions("0.4")
    owner.renew(read_schedule("month", "1", "1e-6", None, None), lifetime=6)
    ledgers = {name: Ledger.open(path, dataset="shop", analyst=name) for name in ANALYSTS}
    refused = 0
    for month in range(1, 13):
        clock(f"2026-{month:02}-15")
        if month == 6:
            owner.revoke("bob")
        if month == 9:
            owner.grant(2)
            owner.limit(1)
        for _ in range(40 if month == 3 else 8):
            ledger, epsilon = ledgers[luck.choice(ANALYSTS)], Fraction(luck.randrange(1, 12), 100)
            try:
                charge = ledger.charge(event(luck, epsilon), sql="q", fingerprint="f", epsilon=epsilon)
            except (BudgetExhausted, AccountSuspended):
                refused += 1
                continue
            (ledger.released if luck.random() < 0.9 else ledger.abandoned)(charge)
            ledger.release(charge)
    assert refused > 30, "March is exhausted, and bob is revoked"
    for ledger in ledgers.values():
        ledger.close()
    return owner


def recomputed(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """By hand, from the exported entries: sums of events by term and by analyst."""
    entries = [dict(zip(lines[0]["columns"], line["entry"], strict=True)) for line in lines[1:-1]]
    terms: list[dict[str, Any]] = [{"budgets": [], "loss": PrivacyLoss(), "by": {}, "queries": 0}]
    ever, limits = PrivacyLoss(), {}
    for entry in entries:
        if entry["state"] == "renewed":
            terms.append({"budgets": [], "loss": PrivacyLoss(), "by": {}, "queries": 0})
        term, who = terms[-1], entry["analyst"]
        if entry["state"] in ("budget", "renewed") and who is None:
            term["budgets"].append((Fraction(entry["epsilon"]), Fraction(entry["delta"])))
        if entry["state"] == "budget" and who is not None:
            limits[who] = Fraction(entry["epsilon"])
        if entry["event"] is not None:
            loss = privacy_loss(from_json(entry["event"]))
            term["loss"], ever = term["loss"] + loss, ever + loss
            before, number = term["by"].get(who, (PrivacyLoss(), 0))
            term["by"][who] = before + loss, number + 1
            term["queries"] += 1
    return {"terms": terms, "ever": ever, "limits": limits, "states": Counter(entry["state"] for entry in entries)}


def test_every_number_of_a_year_is_that_of_the_ledger(year: Ledger, schema: Schema) -> None:
    ledger = year
    document, known = disclosed(ledger, schema), recomputed([json.loads(line) for line in ledger.export()])
    facts, terms, budget = document["dpsql"], known["terms"], ledger.dataset_budget
    assert len(terms) == len(facts["terms"]) == 12
    for told, term in zip(facts["terms"], terms, strict=True):
        epsilon, delta = (max(amounts) for amounts in zip(*term["budgets"], strict=True))
        assert (told["budget"]["epsilon"], told["budget"]["delta"]) == (float(epsilon), float(delta))
        spent = filter_named("mixed", epsilon, delta).spent(term["loss"])
        assert (told["spent"]["epsilon"], told["spent"]["delta"], told["queries"]) == (*spent, term["queries"])
        assert spent.epsilon <= epsilon
    assert facts["promised"] == {"epsilon": 13.0, "delta": pytest.approx(12e-6)}, "eleven of 1, and 2 in September"
    assert budget.over_time is not None
    assert tuple(facts["promised"].values()) == budget.over_time.total
    lifetime = filter_named("mixed", Fraction(6), Fraction(6, 10**6))
    assert lifetime.admits(known["ever"])
    assert tuple(facts["lifetime"]["spent"].values()) == lifetime.spent(known["ever"])
    assert budget.spent == filter_named("mixed", Fraction(1), Fraction(1, 10**6)).spent(terms[-1]["loss"])
    for one in facts["analysts"]:
        limit = known["limits"].get(one["analyst"], Fraction(1, 10))
        loss, number = terms[-1]["by"].get(one["analyst"], (PrivacyLoss(), 0))
        spent = filter_named("mixed", limit, Fraction(1, 10**6)).spent(loss)
        assert (one["limit"]["epsilon"], one["queries"]) == (float(limit), number)
        assert tuple(one["spent"].values()) == spent
        assert one["revoked"] == (one["analyst"] == "bob")
    assert {one["analyst"] for one in facts["analysts"]} == {*ANALYSTS, None}
    assert facts["asked"] == {state: known["states"][state] for state in ("charged", "released", "failed")}
    assert facts["ledger"]["charges"] == known["states"]["charged"]
    assert facts["ledger"]["head"] == ledger.verify().head
    assert facts["one_query"]["epsilon"] == 0.4
    assert document["deployment"]["privacy_loss"]["privacy_parameters"] == {
        "epsilon": 6.0,
        "delta": pytest.approx(6e-6),
    }


def test_the_pages_say_what_the_document_says(year: Ledger, schema: Schema) -> None:
    document = disclosed(year, schema)
    page, html = as_markdown(document), as_html(document)
    rows = re.findall(r"^\| (2026-\d\d-\d\d) \| ([\d.e-]+) \| ([\d.e-]+) \| ([\d.e-]+) \|", page, re.MULTILINE)
    assert [(begun, float(epsilon)) for begun, epsilon, _, _ in rows] == [
        (term["begun"], term["budget"]["epsilon"]) for term in document["dpsql"]["terms"]
    ]
    for said in (
        "One person, for life",
        "Over all time epsilon is at most 6",
        "with epsilon 13 and delta",
        "An answer about fewer than 20 people is hidden",
        "Public tables: towns.",
        "visits.smokes: kary, epsilon 1 a report",
        "3 rows in each of 2 groups",
        document["dpsql"]["ledger"]["head"],
    ):
        assert said in page
        assert said in html


def test_a_restored_backup_is_noticed(year: Ledger, schema: Schema, tmp_path: Path) -> None:
    published = disclosed(year, schema)["dpsql"]["ledger"]["head"]
    older = tmp_path / "older.jsonl"
    older.write_text("\n".join(shortened([json.loads(line) for line in year.export()])))
    verify_file(older, None)
    with pytest.raises(LedgerError, match="does not contain the head"):
        verify_file(older, None, published)


def shortened(lines: list[dict[str, Any]]) -> list[str]:
    """The ledger as it was twenty entries ago, as a backup has it."""
    kept = lines[:-21]
    number, head = (kept[-1]["entry"][lines[0]["columns"].index(name)] for name in ("number", "hash"))
    return [json.dumps(line) for line in (*kept, {"head": head, "last_number": number})]


def test_another_schema_is_not_disclosed(tmp_path: Path, schema: Schema) -> None:
    declared = Declaration.of(schema.on_record(), schema.fingerprint)
    ledger = Ledger.open(tmp_path / "l", dataset="shop", epsilon=1, declared=declared)
    other = load_schema({"tables": {"visits": {"unit": "visit", "columns": {"visit": "integer"}}}})
    with pytest.raises(OperationalError, match="the epsilon on record is about another schema"):
        disclosed(ledger, other)
    ledger.close()


def test_the_command(tmp_path: Path, schema: Schema, capsys: pytest.CaptureFixture[str]) -> None:
    path, written = tmp_path / "shop.ledger", tmp_path / "shop.yaml"
    written.write_text(yaml.safe_dump(SCHEMA))
    Ledger.open(path, dataset="shop", epsilon=1).close()
    begins = {"markdown": "# Differential privacy of shop", "json": "{", "html": "<!doctype html>", "pdf": ""}
    for style, first in begins.items():
        with pytest.raises(SystemExit) as ended:
            main(["disclose", "--ledger", str(path), "--schema", str(written), "--format", style])
        assert ended.value.code == (2 if style == "pdf" else 0)
        assert capsys.readouterr().out.startswith(first)


def test_a_budget_that_is_not_renewed_has_no_terms(
    tmp_path: Path, schema: Schema, capsys: pytest.CaptureFixture[str]
) -> None:
    path, written = tmp_path / "shop.ledger", tmp_path / "shop.yaml"
    written.write_text(yaml.safe_dump(SCHEMA))
    Ledger.open(path, dataset="shop", epsilon=1).close()
    with pytest.raises(SystemExit):
        main(["disclose", "--ledger", str(path), "--schema", str(written)])
    assert "All answers together are (epsilon, delta)-differentially private" in capsys.readouterr().out

"""Releases that read the answers of others: run in order, charged at once, each with the bounds it claims."""

from __future__ import annotations

import dataclasses
import runpy
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml

import dpsql
from dpsql.pipeline import stages

HERE = Path(__file__).parents[1]
check_neighbour = runpy.run_path(str(HERE / "whole" / "test_neighbours.py"))["check_neighbour"]

MEAN = "SELECT AVG(minutes) FROM visits"
ABOVE_MEAN = f"SELECT COUNT(*) FROM visits WHERE minutes > ({MEAN})"


@pytest.fixture
def people(conforming: Callable[[str], duckdb.DuckDBPyConnection]) -> Iterator[dpsql.Connection]:
    schema = yaml.safe_load((HERE / "cases" / "people.yaml").read_text(encoding="utf-8"))["schema"]
    with dpsql.connect(conforming("people"), schema=schema, budget=10, delta=1e-6) as connection:
        yield connection


class Watching:
    """The engine, and what it was asked; from the `failing`-th question on it fails."""

    def __init__(self, engine: Any, failing: int = 99) -> None:
        self.engine, self.failing = engine, failing
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def run(self, sql: str, materialized: Any = None) -> Mapping[str, np.ndarray]:
        self.asked.append(sql)
        if len(self.asked) >= self.failing:
            raise RuntimeError
        found: Mapping[str, np.ndarray] = self.engine.run(sql, materialized)
        return found


def test_the_constant_is_the_noisy_answer(people: dpsql.Connection) -> None:
    session = people.session
    engine = Watching(session.environment.engine)
    session.environment = dataclasses.replace(session.environment, engine=engine)
    ((mean, _),) = people.execute(f"SELECT ({MEAN}), COUNT(*) FROM visits WHERE minutes > ({MEAN})").fetchall()
    _, second = engine.asked
    assert f"({mean!r}e0)" in second


def test_all_of_it_is_charged_at_once_and_recalled(people: dpsql.Connection) -> None:
    first = people.execute(ABOVE_MEAN, epsilon=0.3)
    answer = first.fetchall()
    assert first.receipt.cost.epsilon == pytest.approx(0.3)
    assert len([entry for entry in people.session.environment.ledger.history() if entry.state == "charged"]) == 1
    again = people.execute(ABOVE_MEAN, epsilon=0.3)
    assert again.fetchall() == answer
    assert again.receipt.recalled


def test_the_cost_is_split_and_explained(people: dpsql.Connection) -> None:
    explained = people.explain(ABOVE_MEAN, epsilon=0.3)
    inner, outer = explained.releases
    assert (inner.reads, outer.reads) == ((), (0,))
    assert inner.epsilon + outer.epsilon == pytest.approx(explained.cost.epsilon)
    assert f"release 2  epsilon {outer.epsilon:.6g} of the cost; runs after release 1" in str(explained)


def fingerprints(connection: dpsql.Connection, sql: str) -> list[str]:
    question = connection.session.request(sql, None)
    return [
        part.fingerprint for part in stages.compile_question(question, connection.session.environment.public()).releases
    ]


def test_another_inner_question_makes_another_outer_one(people: dpsql.Connection) -> None:
    other = ABOVE_MEAN.replace("FROM visits)", "FROM visits WHERE cost > 5)")
    assert fingerprints(people, ABOVE_MEAN) == fingerprints(people, ABOVE_MEAN)
    assert not set(fingerprints(people, ABOVE_MEAN)) & set(fingerprints(people, other))


def test_the_same_release_inside_and_outside_is_drawn_once(people: dpsql.Connection) -> None:
    sql = f"SELECT ({MEAN}), COUNT(*) FROM visits WHERE minutes > ({MEAN})"
    assert len(people.explain(sql).releases) == 2


def test_quantiles_inside_and_outside(exact_session: Callable[[str], dpsql.Connection]) -> None:
    inner = "SELECT COUNT(*) FROM visits WHERE minutes >= (SELECT MEDIAN(minutes) FROM visits)"
    outer = f"SELECT MEDIAN(minutes) FROM visits WHERE minutes > ({MEAN})"
    ((count,),) = exact_session("people").execute(inner).fetchall()
    ((median,),) = exact_session("people").execute(outer).fetchall()
    assert 1400 < count < 1600
    assert 120 < median < 240


def test_an_answer_without_a_value_is_null(exact_session: Callable[[str], dpsql.Connection]) -> None:
    sql = "SELECT COUNT(*) FROM visits WHERE minutes > (SELECT AVG(minutes) FROM visits WHERE minutes > 1000)"
    assert exact_session("people").execute(sql).fetchall() == [(0,)]


READING = {
    ABOVE_MEAN: [(None,), (Fraction(-1),), (Fraction(100),), (Fraction(10**300),)],
    "SELECT place, SUM(minutes) FROM visits "
    "WHERE place IN (SELECT place FROM visits GROUP BY place LIMIT 2) GROUP BY place": [("gym",), (None,), ("mars",)],
    "SELECT p.city, COUNT(*), SUM(LEAST(GREATEST(v.minutes - m.mean, 0), 50)) "
    "FROM visits v JOIN persons p ON p.pid = v.person, (SELECT AVG(minutes) AS mean FROM visits) m GROUP BY p.city": [
        (Fraction(5),),
        (None,),
    ],
    "SELECT item, COUNT(*) FROM receipts, (SELECT place, COUNT(*) AS n FROM visits GROUP BY place) "
    "WHERE price < n GROUP BY item": [("gym", 3), ("zoo", -5)],
}


@pytest.mark.parametrize("sql", READING)
def test_nobody_moves_it_further_whatever_was_answered(
    sql: str, people: dpsql.Connection, worlds: Callable[[str], Any]
) -> None:
    """Each value alone, none, and all of them at once; the constants are the same on both sides of a neighbourhood."""
    values = READING[sql]
    public = people.session.environment.public()
    release = stages.compile_question(people.session.request(sql, None), public).releases[-1]
    claimed = people.explain(sql).releases[-1]
    found = worlds("people")
    (answer,) = release.planned.adaptive
    lists = [[value] for value in values] if answer.table.single else [[], *([value] for value in values), values]
    for rows in lists:
        table = dataclasses.replace(answer.table, rows=tuple(rows))
        earlier = (dataclasses.replace(answer, table=table),)
        filled = dataclasses.replace(release, planned=dataclasses.replace(release.planned, adaptive=earlier))
        for world in found.found[1:]:
            whole = found.run(world.whole, filled.sql)
            for neighbour in world.without:
                check_neighbour(claimed, whole, found.run(neighbour, filled.sql))


@pytest.mark.parametrize("failing", [1, 2])
def test_what_waits_for_a_failed_release_is_not_asked(people: dpsql.Connection, failing: int) -> None:
    session = people.session
    engine = Watching(session.environment.engine, failing)
    session.environment = dataclasses.replace(session.environment, engine=engine)
    with pytest.raises(dpsql.SealedExecutionError):
        people.execute(ABOVE_MEAN, epsilon=0.3)
    assert len(engine.asked) == failing
    assert [entry.state for entry in session.environment.ledger.history()] == ["budget", "charged", "suspended"]


def test_constants_are_known_before_the_charge(people: dpsql.Connection) -> None:
    """A list that reads no table is public: its values are groups, and a single value narrows like a literal."""
    sql = "SELECT k.b, COUNT(*) FROM visits JOIN (VALUES ('gym', 1), ('zoo', 2)) AS k(a, b) ON k.a = place GROUP BY k.b"
    (release,) = people.explain(sql).releases
    assert release.public_keys
    (release,) = people.explain("SELECT SUM(minutes) FROM visits WHERE minutes < (SELECT 10)").releases
    assert [measure.linf for measure in release.measures] == [27]


REFUSED = [
    ("SELECT COUNT(*) FROM visits WHERE minutes > (SELECT minutes FROM visits)", "rows of people"),
    ("SELECT COUNT(*) FROM visits WHERE minutes > (SELECT [AVG(minutes)] FROM visits)", "values of type DOUBLE[]"),
    ("SELECT SUM(minutes * (SELECT AVG(minutes) FROM visits)) FROM visits", "needs a bounded value"),
    ("SELECT COUNT(*) FROM visits JOIN (SELECT UNNEST(range(20000)) AS m) ON m = minutes", "more than 10,000 rows"),
    ("SELECT COUNT(*) FROM visits WHERE minutes > (SELECT AVG(minutes), 1 FROM visits)", "above the aggregates"),
]


@pytest.mark.parametrize(("sql", "says"), REFUSED)
def test_refused_before_anything_is_charged(sql: str, says: str, people: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error) as caught:
        people.execute(sql)
    assert says in caught.value.problem
    assert people.budget.spent.epsilon == 0

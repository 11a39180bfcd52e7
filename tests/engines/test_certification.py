"""PostgreSQL and Spark give what DuckDB gives, row for row, for every release that they can be asked for.

The questions are those of `dpsql certify`: both corpora of the tests, of tame rows, which respect the schema, and of
wild ones, which hold whatever a column can hold. A release that an engine has no words for is refused, and few are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.cli.app import main
from dpsql.synthetic import QueryResult, adversarial_tables, fill_case, unit_values, without_person
from dpsql.verification.audit import moved_too_far, wrong_shape
from dpsql.verification.certify import (
    PREFIX,
    Certified,
    Certifier,
    CorpusCase,
    CorpusQuestion,
    case_files,
    fitting,
    passes,
    target,
)

SAMPLED = {"postgresql_url": ("", 40), "spark_url": ("shop", 60)}
"""Of which file (of all), and one question in how many, is asked by every run of the tests: Spark takes its time for
each table. All are asked by `dpsql certify`."""
CASE_FILES = case_files()
CASES = [case for file in CASE_FILES.values() for case in file.cases]
Sampled = tuple[str, Callable[[list[Any]], list[Any]]]


@pytest.fixture(scope="module", params=["postgresql_url", pytest.param("spark_url", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Sampled:
    """The URL of a server, and what is asked of it of all that could be."""
    file, every = SAMPLED[request.param]
    return request.getfixturevalue(request.param), lambda asked: [q for q in asked if q.file.startswith(file)][::every]


def test_a_sample_of_both_corpora(engine: Sampled) -> None:
    url, sampled = engine
    with Certifier(url) as certifier:
        found = certifier.certify(sampled(certifier.questions()), lambda: None)
    assert passes(found), [part for part in found if part.outcome in ("different", "failed")]


@pytest.mark.long
def test_both_corpora(postgresql_url: str) -> None:
    with Certifier(postgresql_url) as certifier:
        found = certifier.certify(certifier.questions(), lambda: None)
    assert passes(found), [part for part in found if part.outcome in ("different", "failed")]
    print(dict(Counter(part.outcome for part in found)))


def test_one_difference_is_enough_to_fail() -> None:
    question = CorpusQuestion("shop", "cases", "SELECT COUNT(*) FROM orders")
    equal = [Certified(question, "equal", "")] * 99
    assert passes(equal)
    assert not passes([*equal, Certified(question, "different", "")])
    assert not passes([*equal, Certified(question, "failed", "")])
    assert not passes([Certified(question, "refused", "")] * 12 + equal)
    assert not passes([])


def test_the_command_says_what_is_equal(postgresql_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certify", "--engine", postgresql_url, "--every", "500"])
    assert not ended.value.code
    assert "0 different, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["clickhouse://host/db", "shop.duckdb", "mysql://host/db"])
def test_other_engines_are_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["certify", "--engine", url])
    assert ended.value.code == 1
    assert "no other engine can be certified" in capsys.readouterr().err


# -- neighbours -------------------------------------------------------------------------------------------------------

Neighbours = Callable[[str], tuple[dpsql.Connection, list[str]]]


@pytest.fixture(scope="module")
def neighbours(engine: Sampled) -> Iterator[Neighbours]:
    """A wild database of three people, and the names of it without_person each of them."""
    made: dict[str, tuple[dpsql.Connection, list[str]]] = {}
    server = target(engine[0])

    def of(name: str) -> tuple[dpsql.Connection, list[str]]:
        if name not in made:
            file = fitting(CASE_FILES[name], server)
            tables = adversarial_tables(file, random.Random(f"neighbours {name}"), 3, 40)
            people = unit_values(file.schema, 3)
            places = [f"{PREFIX}{name}_without_{number}" for number in range(len(people) + 1)]
            databases = [tables, *(without_person(file, tables, person) for person in people)]
            urls = [opened.enter_context(server.place(place)) for place in places]
            for url, rows in zip(urls, databases, strict=True):
                with duckdb.connect() as model:
                    fill_case(model, file, rows)
                    server.fill(url, file.create, rows, model)
            connection = dpsql.connect(
                urls[0], schema=file.schema, budget=1e18, delta=1e-6, query_epsilon=1, ledger=":memory:"
            )
            made[name] = (opened.enter_context(connection), places)
        return made[name]

    with ExitStack() as opened:
        yield of


def check_neighbours(case: CorpusCase, connection: dpsql.Connection, places: list[str]) -> None:
    try:
        releases = connection.explain(case.sql, case.parameters, **case.options).releases
    except (dpsql.Unsupported, dpsql.UnknownName):
        return  # it has no words for it, or cannot have the table
    engine = connection.session.environment.engine
    for release in releases:
        answers = [answer(engine.run(release.sql.replace(places[0], place))) for place in places]
        assert list(wrong_shape(release, answers)) == [], case.sql
        for neighbour in answers[1:]:
            assert list(moved_too_far(release, answers[0], neighbour)) == [], case.sql


def answer(columns: Any) -> QueryResult:
    kinds = [(name, "BIGINT" if values.dtype.kind == "i" else str(values.dtype)) for name, values in columns.items()]
    return kinds, list(zip(*(values.tolist() for values in columns.values()), strict=True))


def test_nobody_moves_a_sample_further(neighbours: Neighbours, engine: Sampled) -> None:
    for case in engine[1](CASES):
        check_neighbours(case, *neighbours(case.file))


@pytest.mark.long
def test_nobody_moves_any_answer_further(neighbours: Neighbours) -> None:
    for case in CASES:
        check_neighbours(case, *neighbours(case.file))

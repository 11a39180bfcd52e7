"""What is charged can run: the questions of the case files are asked of empty tables, through to their answers.

There is nobody in the private tables, so no row can be the reason of a failure. What fails here after its charge fails
for everybody, always. Public tables have their rows.
"""

from __future__ import annotations

import random
import runpy
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

import dpsql
from dpsql.synthetic import adversarial_tables, fill_case
from dpsql.verification.certify import PREFIX, case_files, fitting, target

HERE = Path(__file__).parents[1]
CASE_FILES = case_files()


class Question(NamedTuple):
    file: str
    sql: str
    parameters: Any = None
    options: dict[str, Any] = {}
    dialect: str = "duckdb"


FOUND = [
    Question(
        "people", "SELECT COUNT(*) FROM (SELECT person, true AS t, MAX(minutes) AS m FROM visits GROUP BY person, t)"
    ),
    Question("people", "SELECT MODE(place) FROM visits WHERE place = 'nowhere'"),
    Question("clinic", "SELECT nights, COUNT(DISTINCT diagnosis) FROM visits GROUP BY nights"),
    Question("people", "SELECT LEAST(minutes, -1e308) AS k, COUNT(*) FROM visits GROUP BY k"),
    Question(
        "clinic",
        "SELECT diagnosis, MEDIAN(score), COUNT(*) FROM visits GROUP BY diagnosis",
        None,
        {"bounds": "auto", "epsilon": 1e4},
    ),
]
"""Each of them was charged and failed, on one of the engines."""


@cache
def questions() -> list[Question]:
    cases = [case for file in CASE_FILES.values() for case in file.cases]
    found = [Question(case.file, case.sql, case.parameters, case.options) for case in cases]
    corpus = runpy.run_path(str(HERE / "whole" / "test_corpus.py"))["QUERIES"]
    asked = [Question(query.file, query.sql, query.parameters, query.options or {}, query.dialect) for query in corpus]
    return [*FOUND, *found, *asked]


EVERY = {"duckdb": 24, "postgresql": 32, "spark": 100}
"""One question in so many is asked by every run of the tests; all are by `make test-long`."""
Connect = Callable[[str, str], dpsql.Connection]


@pytest.fixture(scope="module", params=["duckdb", "postgresql", pytest.param("spark", marks=pytest.mark.spark)])
def empty(request: pytest.FixtureRequest) -> Iterator[tuple[str, Connect]]:
    """An engine, and sessions on the empty databases of the case files."""
    engine: str = request.param
    server = None if engine == "duckdb" else target(request.getfixturevalue(f"{engine}_url"))
    files = {name: file if server is None else fitting(file, server) for name, file in CASE_FILES.items()}
    databases: dict[str, Any] = {}
    sessions: dict[tuple[str, str], dpsql.Connection] = {}

    def database(name: str) -> Any:
        if name not in databases:
            file, model = files[name], opened.enter_context(duckdb.connect())
            tables = adversarial_tables(file, random.Random(f"empty {name}"), 0, 0)
            fill_case(model, file, tables)
            if server is None:
                databases[name] = model
            else:
                databases[name] = opened.enter_context(server.place(f"{PREFIX}{name}_empty"))
                server.fill(databases[name], file.create, tables, model)
        return databases[name]

    def connect(name: str, dialect: str) -> dpsql.Connection:
        key = name, dialect
        if key not in sessions:
            session = dpsql.connect(
                database(name),
                schema=files[name].schema,
                budget=1e9,
                delta=1e-6,
                query_epsilon=1,
                ledger=":memory:",
                dialect=dialect,
                on_failure="warn",
            )
            sessions[key] = opened.enter_context(session)
        return sessions[key]

    with ExitStack() as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that on_failure="warn" gives up the tripwire: nobody is in these tables
        yield engine, connect


def failure_after_charge(question: Question, connect: Connect) -> str | None:
    """How it failed, unless it was answered or refused before it was charged."""
    connection = connect(question.file, question.dialect)
    ledger = connection.session.environment.ledger
    before = len(ledger.history())
    try:
        connection.execute(question.sql, question.parameters, **question.options)
    except Exception as problem:  # whatever it is, it is told
        is_refused = isinstance(problem, dpsql.Error) and len(ledger.history()) == before
        return None if is_refused else f"{question.file}: {question.sql}: {type(problem).__name__}: {problem}"
    return None


def failures(asked: list[Question], connect: Connect) -> list[str]:
    return [found for question in asked if (found := failure_after_charge(question, connect)) is not None]


def test_what_once_failed_runs(empty: tuple[str, Connect]) -> None:
    assert failures(FOUND, empty[1]) == []


def test_a_sample_of_all_questions_can_run(empty: tuple[str, Connect]) -> None:
    engine, connect = empty
    assert failures(questions()[:: EVERY[engine]], connect) == []


@pytest.mark.long
def test_all_questions_can_run(empty: tuple[str, Connect]) -> None:
    assert failures(questions(), empty[1]) == []


def test_what_the_engine_cannot_read_is_refused_before_the_charge(
    empty: tuple[str, Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of ours in the SQL costs nobody anything: the engine reads it first, and says yes or no."""
    connection = empty[1]("people", "duckdb")
    engine, ledger = connection.session.environment.engine, connection.session.environment.ledger
    question = "SELECT COUNT(*) FROM visits WHERE minutes < 77"
    assert engine.can_run(connection.explain(question).releases[0].sql)
    for wrong in ("SELECT no_such(1) AS x", "SELECT x FROM no_such", "SELECT 1 +", "SELECT no_such AS x"):
        assert not engine.can_run(wrong)
    rendered, before = engine.render, len(ledger.history())
    misspelled = "SELECT COUNT(*) FROM visits WHERE minutes < 78"
    with monkeypatch.context() as patch:
        patch.setattr(engine, "render", lambda *query, **blanks: rendered(*query, **blanks).replace("(", "no_such("))
        with pytest.raises(dpsql.Unsupported, match="does not accept the SQL"):
            connection.execute(misspelled)
    assert len(ledger.history()) == before
    assert connection.execute(misspelled).fetchall()


def test_each_session_has_its_own_empty_tables() -> None:
    """They share a database: tables of the same name differ in their columns, and nobody's rows are there."""
    sessions = []
    for column in ("age", "height"):
        database = duckdb.connect()
        database.execute(f"CREATE TABLE t AS SELECT i AS uid, i AS {column} FROM range(100) AS r(i)")
        columns = {"uid": "integer", column: {"type": "integer", "bounds": [0, 100]}}
        schema = {"dataset": column, "tables": {"t": {"unit": "uid", "columns": columns}}}
        sessions.append((column, dpsql.connect(database, schema=schema, budget=1)))
    for column, session in sessions:
        with session:
            session.explain(f"SELECT AVG({column}) FROM t")
            engine = session.session.environment.engine
            assert engine.can_run(f"SELECT {column} FROM t")
            assert not any(engine.can_run(f"SELECT {other} FROM t") for other, _ in sessions if other != column)


def test_numbers_beyond_whole_ones_and_noise_beyond_doubles() -> None:
    """A key beyond every whole number of the engine; noise of so much epsilon that its square is no double."""
    whole = {"type": "integer", "bounds": [0, 2**63 - 1]}
    columns = {"uid": "integer", "u": whole, "word": "text", "x": {"type": "double", "bounds": [0, 100]}}
    schema = {"dataset": "d", "tables": {"t": {"unit": "uid", "columns": columns}}}
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t AS SELECT i % 100 AS uid, i AS u, 'a' AS word, 5e0 AS x FROM range(1000) r(i)")
        with dpsql.connect(database, schema=schema, budget=1e9, delta=1e-6) as connection:
            ((key, _),) = connection.execute("SELECT LEAST(u, -1e308) AS k, COUNT(*) FROM t GROUP BY k").fetchall()
            assert key == -1e308
            for groups in (None, "auto"):
                asked = "SELECT word, MEDIAN(x), COUNT(*) FROM t GROUP BY word"
                ((word, *_),) = connection.execute(
                    asked, bounds="auto", epsilon=1e4, max_groups=groups, max_rows_per_group=groups
                ).fetchall()
                assert word == "a"


@pytest.mark.parametrize("name", ["orders", "ORDERS", "or'ders", "Größe", "select"])
def test_a_table_is_read_whatever_it_is_called(name: str) -> None:
    """DuckDB is asked about those empty tables alone that the SQL names, in its own case."""
    written = f'"{name}"'
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE {written.lower()} AS SELECT i AS id FROM range(1000) AS r(i)")
        tables = {table: {"unit": "id", "unique": True, "columns": {"id": "integer"}} for table in (name, "other")}
        database.execute("CREATE TABLE other (id BIGINT PRIMARY KEY)")
        with dpsql.connect(database, schema={"tables": tables}, budget=1e6, ledger=":memory:") as connection:
            sql = f"SELECT COUNT(*) FROM {written.upper() if name.isascii() else written}"
            assert connection.execute(sql, epsilon=1e5).fetchall() == [(1000,)]

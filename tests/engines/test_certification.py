"""PostgreSQL gives what DuckDB gives, row for row, for every release that it can be asked for: it is certified by that.

Both corpora of the tests are asked, of tame rows, which respect the schema, and of wild ones, which hold whatever a
column can hold. What is compared are the exact numbers, before any noise. Nobody is bounded, since each engine draws
for itself which rows of a person count. A release that PostgreSQL has no words for is refused, and few are.
"""

from __future__ import annotations

import random
import re
import runpy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml

import dpsql
from dpsql.aggregates.statistic import Quantile
from dpsql.audit.neighbours import moved_too_far, wrong_shape
from dpsql.audit.synthesize import Answer
from dpsql.engine_sql.build import SALT
from dpsql.engines.engine import Engine
from dpsql.pipeline import stages as pipeline
from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
from dpsql.schema.model import Schema

HERE = Path(__file__).parents[1]
SHARE = 0.9
"""Of the releases that DuckDB answers, so many can be asked of PostgreSQL."""
UNBOUNDED = {"max_groups": 5_000, "max_rows_per_group": 5_000}
SAMPLED = 25
"""One question in so many is asked by every run of the tests, all of them by `make test-long`."""
TYPES = {
    r"\bDOUBLE\b": "DOUBLE PRECISION",
    r"\bFLOAT\b": "REAL",
    r"\bTINYINT\b": "SMALLINT",
    r"\bHUGEINT\b": "NUMERIC(38, 0)",
}
BEFORE_CHRIST = "4713-01-01 BC"

conftest = runpy.run_path(str(HERE / "conftest.py"))
Tables = dict[str, list[tuple[Any, ...]]]
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Question:
    file: str
    topic: str
    sql: str
    parameters: tuple[object, ...] = ()


def questions() -> Iterator[Question]:
    for name, file in conftest["CASE_FILES"].items():
        for case in file.cases:
            yield Question(name, "cases", case.sql, tuple(case.parameters))
    for path in sorted((HERE / "corpus").glob("*.yaml")):
        for topic, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            for entry in entries:
                yield Question(path.stem, topic, entry if isinstance(entry, str) else entry["sql"])


QUESTIONS = list(questions())


# -- the same rows in both --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """The same rows in both engines."""

    duckdb: dpsql.Connection
    postgresql: dpsql.Connection

    @property
    def engines(self) -> tuple[Engine, Engine]:
        return self.duckdb.session.environment.engine, self.postgresql.session.environment.engine


def fill_postgresql(url: str, place: str, create: str, tables: Tables) -> None:
    import psycopg

    for theirs, ours in TYPES.items():
        create = re.sub(theirs, ours, create)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {place} CASCADE; CREATE SCHEMA {place}; SET search_path = {place}")
        connection.execute(create.encode())
        for name, rows in tables.items():
            with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row([in_its_calendar(value) for value in row])


def in_its_calendar(value: object) -> str | None:
    """PostgreSQL's dates begin later than DuckDB's; in either such a one is long before all that is declared."""
    return None if value is None else BEFORE_CHRIST if "(BC)" in str(value) else str(value)


@pytest.fixture(scope="module")
def opened() -> Iterator[ExitStack]:
    """Closes what was opened."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def worlds(postgresql_url: str, opened: ExitStack) -> Callable[[str], list[World]]:
    """Of a case file the tame database, and wild ones of nobody, one person and several."""
    made: dict[str, list[World]] = {}

    def of(name: str) -> list[World]:
        if name not in made:
            file, wild = conftest["CASE_FILES"][name], random.Random(f"wild {name}")
            rows = [conftest["tame_tables"](file, random.Random(f"tame {name}"), 200)]
            rows += [conftest["wild_tables"](file, wild, people, most) for people, most in ((0, 0), (1, 9), (5, 90))]
            made[name] = [world(file.schema, file, f"{name}_{number}", tables) for number, tables in enumerate(rows)]
        return made[name]

    def world(schema: Schema, file: Any, place: str, tables: Tables) -> World:
        in_duckdb = opened.enter_context(duckdb.connect())
        in_duckdb.execute("SET threads = 1")
        conftest["fill"](in_duckdb, file, tables)
        fill_postgresql(postgresql_url, place, file.create, tables)
        options: dict[str, Any] = {"schema": schema, "epsilon": 1e18, "delta": 1e-6, "ledger": ":memory:"}
        url = f"{postgresql_url}&options=-csearch_path%3D{place}"
        return World(*(opened.enter_context(dpsql.connect(source, **options)) for source in (in_duckdb, url)))

    return of


# -- the same answers -------------------------------------------------------------------------------------------------


def compiled(connection: dpsql.Connection, question: Question) -> Calibrated | None:
    """None where it is refused."""
    session = connection.session
    try:
        asked = session.request(question.sql, question.parameters, **UNBOUNDED)
        return pipeline.compile_question(asked, session.environment.public())
    except dpsql.Error:
        return None


def outcome(question: Question, worlds: list[World]) -> str:
    wanted = compiled(worlds[0].duckdb, question)
    if wanted is None:
        return "refused by both"
    found = compiled(worlds[0].postgresql, question)
    if found is None:
        return "refused"
    for number, world in enumerate(worlds):
        for ours, theirs in zip(wanted.releases, found.releases, strict=True):
            in_duckdb, in_postgresql = world.engines
            expected, given = exact(in_duckdb, ours), exact(in_postgresql, theirs)
            assert_same(expected, given, ours, f"{question.sql} of database {number}")
    return "equal"


def exact(engine: Engine, release: CalibratedRelease) -> dict[str, list[Any]]:
    blanks = {SALT: 7, **{drawn.column: draw.reach for drawn, draw in release.statistics}}
    columns = engine.run(engine.render(release.planned.with_adaptive, blanks))
    return {name: plain(values) for name, values in columns.items()}


def plain(values: np.ndarray) -> list[Any]:
    """As Python has them."""
    found = [None if gap else value for value, gap in zip(values, np.ma.getmaskarray(values), strict=True)]
    return [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in found]


def assert_same(
    expected: dict[str, list[Any]], given: dict[str, list[Any]], release: CalibratedRelease, where: str
) -> None:
    assert list(given) == list(expected), where
    for drawn, draw in release.statistics:
        if isinstance(drawn.statistic, Quantile):
            profiles = [[columns.pop(name) for name in drawn.profile] for columns in (expected, given)]
            needed = [(drawn.statistic.fraction, draw.reach)] * len(profiles[0][0])
            for asked, *groups in zip(needed, *(zip(*profile, strict=True) for profile in profiles), strict=True):
                wanted, found = (around_rank(*asked, *group) for group in groups)
                assert found == wanted, where
    for name, values in expected.items():
        assert [repr(value) for value in given[name]] == [repr(value) for value in values], (where, name)


def around_rank(
    fraction: Fraction, reach: int, points: list[int], counts: list[int], below: int, rows: int
) -> tuple[int, list[int]]:
    """The number of values, and the value at each rank that is needed; an engine may tell more."""
    if not rows:
        return 0, []
    repeated = [point for point, count in zip(points, counts, strict=True) for _ in range(count)]
    told = dict(enumerate(repeated, below + 1))
    first, last = max(1, floor(fraction * rows) - reach), min(rows, ceil(fraction * rows) + reach)
    assert set(range(first, last + 1)) <= told.keys()
    return rows, [told[rank] for rank in range(first, last + 1)]


def assert_certified(asked: list[Question], worlds: Callable[[str], list[World]]) -> Counter[str]:
    outcomes = Counter(outcome(question, worlds(question.file)) for question in asked)
    assert outcomes["equal"] >= SHARE * (outcomes["equal"] + outcomes["refused"]), outcomes
    return outcomes


def test_a_sample_of_both_corpora(worlds: Callable[[str], list[World]]) -> None:
    assert_certified(QUESTIONS[::SAMPLED], worlds)


@pytest.mark.long
def test_both_corpora(worlds: Callable[[str], list[World]]) -> None:
    outcomes = assert_certified(QUESTIONS, worlds)
    print(dict(outcomes))


# -- neighbours -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def neighbours(postgresql_url: str, opened: ExitStack) -> Callable[[str], tuple[dpsql.Connection, list[str]]]:
    """A wild database of three people, and the names of it without each of them."""
    made: dict[str, tuple[dpsql.Connection, list[str]]] = {}

    def of(name: str) -> tuple[dpsql.Connection, list[str]]:
        if name not in made:
            file = conftest["CASE_FILES"][name]
            tables = conftest["wild_tables"](file, random.Random(f"neighbours {name}"), 3, 40)
            people = conftest["unit_values"](file.schema, 3)
            databases = [tables, *(conftest["without"](file, tables, person) for person in people)]
            places = [f"{name}_without_{number}" for number in range(len(databases))]
            for place, rows in zip(places, databases, strict=True):
                fill_postgresql(postgresql_url, place, file.create, rows)
            url = f"{postgresql_url}&options=-csearch_path%3D{places[0]}"
            connection = dpsql.connect(
                url, schema=file.schema, epsilon=1e18, delta=1e-6, query_epsilon=1, ledger=":memory:"
            )
            made[name] = (opened.enter_context(connection), places)
        return made[name]

    return of


def check_neighbours(case: Any, connection: dpsql.Connection, places: list[str], url: str) -> None:
    import psycopg

    try:
        releases = connection.explain(case.sql, case.parameters, **case.options).releases
    except dpsql.Unsupported:
        return  # it has no words for it
    with psycopg.connect(url, autocommit=True, options="-c search_path=pg_catalog -c TimeZone=UTC") as plain:
        for release in releases:
            answers = [_answer(plain, release.sql.replace(f'"{places[0]}".', f'"{place}".')) for place in places]
            assert list(wrong_shape(release, answers)) == [], case.sql
            for neighbour in answers[1:]:
                assert list(moved_too_far(release, answers[0], neighbour)) == [], case.sql


def _answer(connection: Any, sql: str) -> Answer:
    found = connection.execute(sql.encode())
    return [(part.name, part.type_display.replace("int8", "BIGINT")) for part in found.description], found.fetchall()


CASES = [case for file in conftest["CASE_FILES"].values() for case in file.cases]
Neighbours = Callable[[str], tuple[dpsql.Connection, list[str]]]


def test_nobody_moves_a_sample_further(neighbours: Neighbours, postgresql_url: str) -> None:
    for case in CASES[::SAMPLED]:
        check_neighbours(case, *neighbours(case.file), postgresql_url)


@pytest.mark.long
def test_nobody_moves_any_answer_further(neighbours: Neighbours, postgresql_url: str) -> None:
    for case in CASES:
        check_neighbours(case, *neighbours(case.file), postgresql_url)

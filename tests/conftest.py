"""What the query tests share: the cases under tests/cases, and databases to ask them of.

A *tame* database respects everything that the schema declares; a *wild* one holds whatever a column can hold. Both are
made from the declared schema alone, so a new case file needs no code.
"""

from __future__ import annotations

import copy
import gc
import os
import random
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pytest
import yaml
from hypothesis import settings
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import dpsql
from dpsql.options import QueryRequest
from dpsql.pipeline.parse_sql import parse_sql
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.relation.relation import Relation
from dpsql.synthetic import (
    CaseTables,
    Rows,
    adversarial_tables,
    conforming_tables,
    fill_case,
    unit_values,
    without_person,
)
from dpsql.verification.certify import CaseFile, case_files

CASES = Path(__file__).parent / "cases"

# Many tests start processes of their own: what one of them has compiled the next one finds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Machines are shared: no example fails for being slow.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

CASE_FILES = case_files()


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays: half a million objects that no garbage collection has to look at again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a test leaves little behind: to look thirty times as often took 4 % of the time
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `sql_case` runs once for every case of every file."""
    if "sql_case" in metafunc.fixturenames:
        cases = [case for file in CASE_FILES.values() for case in file.cases]
        metafunc.parametrize("sql_case", cases, ids=[f"{case.file}: {case.name}" for case in cases])


@dataclass(frozen=True)
class Neighbours:
    """A database and, as schemas of the same connection, each of its neighbours."""

    whole: str
    without: tuple[str, ...]


class Worlds:
    """All wild databases of one case file with their neighbours, in one DuckDB."""

    def __init__(self, file: CaseFile) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 1")
        self.found: list[Neighbours] = []
        self.parsed: tuple[str, duckdb.Statement | None] = "", None
        rng = random.Random(f"wild {file.name}")
        for units, rows in ((0, 0), (1, 9), (3, 40)):
            tables = adversarial_tables(file, rng, units, rows)
            people = unit_values(file.schema, units)
            self.found.append(self.add(file, tables, people))

    def add(self, file: CaseFile, tables: CaseTables, people: list[object]) -> Neighbours:
        number = len(self.found)
        names = [self.make(file, f"w{number}", tables)]
        names += [
            self.make(file, f"w{number}_{i}", without_person(file, tables, person)) for i, person in enumerate(people)
        ]
        return Neighbours(names[0], tuple(names[1:]))

    def make(self, file: CaseFile, name: str, tables: CaseTables) -> str:
        self.connection.execute(f"CREATE SCHEMA {name}")
        self.connection.execute(f"SET schema = '{name}'")
        fill_case(self.connection, file, tables)
        return name

    def run(self, world: str, sql: str) -> tuple[list[tuple[str, str]], Rows]:
        """Columns with their types, and rows. The same text is asked of many worlds: it is read once."""
        self.connection.execute(f"SET schema = '{world}'")
        if self.parsed[0] != sql:
            self.parsed = sql, *self.connection.extract_statements(sql)
        found = self.connection.execute(self.parsed[1])
        return [(item[0], str(item[1])) for item in found.description or ()], found.fetchall()


# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def worlds() -> Callable[[str], Worlds]:
    """The wild databases of a case file, by its name."""
    made: dict[str, Worlds] = {}

    def of(name: str) -> Worlds:
        if name not in made:
            made[name] = Worlds(CASE_FILES[name])
        return made[name]

    return of


@pytest.fixture(scope="session")
def steps() -> Callable[[Callable[[], object]], int]:
    """How many functions a piece of work calls: how long it takes, whatever else the machine does meanwhile."""

    def count(work: Callable[[], object]) -> int:
        called = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal called
            called += event in ("call", "c_call")
            assert called < 20_000_000, "it does not end"

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(before)
        return called

    return count


@pytest.fixture(scope="session")
def conforming() -> Callable[[str], duckdb.DuckDBPyConnection]:
    """A tame database of a case file, with 1500 people."""
    made: dict[str, duckdb.DuckDBPyConnection] = {}

    def of(name: str) -> duckdb.DuckDBPyConnection:
        if name not in made:
            made[name] = duckdb.connect()
            made[name].execute("SET threads = 1")
            made[name].execute("SET TimeZone = 'UTC'")
            fill_case(
                made[name], CASE_FILES[name], conforming_tables(CASE_FILES[name], random.Random(f"tame {name}"), 1500)
            )
        return made[name]

    return of


@pytest.fixture(scope="module")
def connected(conforming: Callable[[str], duckdb.DuckDBPyConnection]) -> Iterator[Callable[[str], dpsql.Connection]]:
    """A session on the tame database of a case file."""
    made: dict[str, dpsql.Connection] = {}

    def of(name: str) -> dpsql.Connection:
        if name not in made:
            schema = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))["schema"]
            made[name] = dpsql.connect(conforming(name), schema=schema, budget=1, delta=1e-6)
        return made[name]

    yield of
    for connection in made.values():
        connection.close()


@pytest.fixture(scope="session")
def relation_of() -> Callable[[dpsql.Connection, str], Relation]:
    """The rows of people below the one aggregate of a question."""

    def of(connection: dpsql.Connection, sql: str) -> Relation:
        public = connection.session.environment.public()
        (release,) = resolve_names(parse_sql(QueryRequest(sql=sql), public), public).releases
        return release.source

    return of


@pytest.fixture(scope="session")
def exact_session(conforming: Callable[[str], duckdb.DuckDBPyConnection]) -> Callable[[str], dpsql.Connection]:
    """A session on the tame database with so much epsilon that there is no noise."""
    made: dict[str, dpsql.Connection] = {}

    def of(name: str) -> dpsql.Connection:
        if name not in made:
            made[name] = dpsql.connect(
                conforming(name), schema=CASE_FILES[name].schema, budget=1e15, delta=1e-6, query_epsilon=1e9
            )
        return made[name]

    return of


SHOP = {
    "dataset": "shop",
    "contribution": {"max_groups": 3, "max_rows_per_group": 2},
    "tables": {
        "customers": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "age": {"type": "integer", "bounds": [0, 120]}},
        },
        "orders": {
            "unit": "customer_id",
            "columns": {
                "customer_id": "integer",
                "region": {"type": "text", "values": ["north", "south", "east", "west"]},
                "amount": {"type": "double", "bounds": [0, 500]},
                "items": {"type": "integer", "bounds": [0, 20]},
                "weight": "double",
                "note": "text",
                "day": "date",
            },
        },
    },
}


def make_shop() -> duckdb.DuckDBPyConnection:
    """400 customers with two orders each."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("""
        CREATE TABLE customers AS SELECT i AS id, i % 90 AS age FROM range(400) AS r(i);
        CREATE TABLE orders AS SELECT
            i % 400 AS customer_id, ['north', 'south', 'east', 'west'][1 + i % 4] AS region,
            (i % 2000) / 4.0::DOUBLE AS amount, i % 21 AS items, i / 7.0::DOUBLE AS weight,
            ['gift', 'fragile'][1 + i % 2] AS note, DATE '2024-01-01' + (i % 60)::INTEGER AS day
        FROM range(800) AS r(i)""")
    return connection


@pytest.fixture(scope="session")
def small_shop() -> Callable[[], duckdb.DuckDBPyConnection]:
    """Makes a new shop, for fixtures that live longer than one test."""
    return make_shop


@pytest.fixture(scope="session")
def small_shop_schema() -> dict[str, Any]:
    return SHOP


@pytest.fixture
def shop_schema() -> dict[str, Any]:
    """A schema of two tables that a test may change."""
    return copy.deepcopy(SHOP)


@pytest.fixture(scope="session")
def the_shop() -> Iterator[duckdb.DuckDBPyConnection]:
    with make_shop() as connection:
        yield connection


@pytest.fixture
def shop_database(the_shop: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to the shop; tests that read only can share it."""
    with the_shop.cursor() as cursor:
        yield cursor


@pytest.fixture
def shop(shop_database: duckdb.DuckDBPyConnection, shop_schema: dict[str, Any]) -> Iterator[dpsql.Connection]:
    """A session with epsilon 10 and a delta on that shop."""
    with dpsql.connect(shop_database, schema=shop_schema, budget=10, delta=1e-6) as connection:
        yield connection


@pytest.fixture(scope="module")
def ipython() -> Iterator[InteractiveShell]:
    """The shell of a notebook. It keeps no history, which a thread would write that nobody ends."""
    # It looks for garbage whenever it is reset: not among all that the tests before it have kept.
    gc.collect()
    gc.freeze()
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.colors = "nocolor"
    yield shell
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """An empty database of a PostgreSQL of our own."""
    names = runpy.run_path(str(Path(__file__).parent / "engines" / "postgresql_cluster.py"))
    if (reason := names["missing"]()) is not None:
        pytest.skip(reason)
    with names["cluster"]() as url:
        yield url


@pytest.fixture(scope="session")
def spark_and_url() -> Iterator[tuple[Any, str]]:
    """A session of a Spark of our own, and the URL of its server."""
    names = runpy.run_path(str(Path(__file__).parent / "engines" / "spark_session.py"))
    if (reason := names["missing"]()) is not None:
        pytest.skip(reason)
    with names["session"]() as found:
        yield found


@pytest.fixture(scope="session")
def spark(spark_and_url: tuple[Any, str]) -> Any:
    return spark_and_url[0]


@pytest.fixture(scope="session")
def spark_url(spark_and_url: tuple[Any, str]) -> str:
    return spark_and_url[1]

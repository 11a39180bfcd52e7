"""What the query tests share: the cases under tests/cases, and databases to ask them of.

A *tame* database respects everything that the schema declares; a *wild* one holds whatever a column can hold. Both are
made from the declared schema alone, so a new case file needs no code.
"""

from __future__ import annotations

import copy
import random
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pandas as pd
import pytest
import yaml

import dpsql
from dpsql.pipeline.parse_sql import parse_sql
from dpsql.pipeline.query_request import QueryRequest
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.relation.relation import Relation
from dpsql.schema.model import Column, Schema, Table

CASES = Path(__file__).parent / "cases"
Rows = list[tuple[Any, ...]]
Tables = dict[str, Rows]


@dataclass(frozen=True)
class Release:
    """What is claimed of one release: see tests/cases/shop.yaml."""

    keys: str
    l0: int
    linf: list[float] | None = None


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    sql: str
    releases: tuple[Release, ...]
    parameters: list[object] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    plain: str | None = None

    @property
    def plain_sql(self) -> str:
        return self.plain or self.sql

    @property
    def plain_parameters(self) -> list[object]:
        return [] if self.plain else self.parameters


@dataclass(frozen=True)
class CaseFile:
    name: str
    schema: Schema
    create: str
    cases: tuple[Case, ...]


def read_cases(path: Path) -> CaseFile:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    cases = []
    for case in content["cases"]:
        claims = case.pop("releases", None) or [{key: case.pop(key) for key in ("keys", "l0", "linf") if key in case}]
        cases.append(Case(path.stem, releases=tuple(Release(**claim) for claim in claims), **case))
    return CaseFile(path.stem, Schema.model_validate(content["schema"]), content["create"], tuple(cases))


CASE_FILES = {path.stem: read_cases(path) for path in sorted(CASES.glob("*.yaml"))}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `sql_case` runs once for every case of every file."""
    if "sql_case" in metafunc.fixturenames:
        cases = [case for file in CASE_FILES.values() for case in file.cases]
        metafunc.parametrize("sql_case", cases, ids=[f"{case.file}: {case.name}" for case in cases])


# -- values of a column ----------------------------------------------------------------------------------------------

HUGE = (2**63 - 1, -(2**63))


def tame_value(column: Column, rng: random.Random) -> object:
    """A value as declared. Doubles are multiples of 1/4, so that their sums are exact in any order."""
    if column.nullable and rng.random() < 0.1:
        return None
    if column.values is not None:
        return rng.choice(column.values)
    low, high = column.bounds or (None, None)
    match column.type.name.partition("(")[0]:
        case "integer":
            return rng.randint(low or 0, 100 if high is None else high)
        case "double":
            return rng.randint(int(4 * (low or 0)), int(4 * (5 if high is None else high))) / 4
        case "decimal":
            return Decimal(rng.randint(int(4 * (low or 0)), int(4 * (100 if high is None else high)))) / 4
        case "text":
            return rng.choice(["gift", "fragile", "express", "Gift", "42"])
        case "boolean":
            return rng.random() < 0.5
        case "date":
            return low + timedelta(days=rng.randint(0, (high - low).days))
        case _:
            return low + timedelta(seconds=rng.randint(0, int((high - low).total_seconds())))


def wild_value(column: Column, kind: str, rng: random.Random) -> object:
    """Anything that the database's own type can hold: far out of range, NaN, infinite, undeclared, NULL."""
    if rng.random() < 0.55:
        return tame_value(column, rng)
    if rng.random() < 0.2:
        return None
    match kind.partition("(")[0]:
        case "TINYINT":
            return rng.choice([-128, 127, 3, 0])
        case "SMALLINT":
            return rng.choice([-32768, 32767, -1])
        case "INTEGER":
            return rng.choice([-(2**31), 2**31 - 1, -1, 121])
        case "BIGINT":
            return rng.choice([*HUGE, -1, 21])
        case "HUGEINT":
            return rng.choice([2**126, -(2**126), *HUGE, 11])
        case "FLOAT":
            return rng.choice([float("nan"), float("inf"), float("-inf"), -0.0, 3e38, -3e38, 1e-45, 45.00001])
        case "DOUBLE":
            return rng.choice(
                [float("nan"), float("inf"), float("-inf"), -0.0, 1e300, -1e300, 5e-324, 500.0000001, 0.1]
            )
        case "DECIMAL":
            return rng.choice([Decimal("-99999999.99"), Decimal("99999999.99"), Decimal("0.01")])
        case "VARCHAR":
            return rng.choice(["", "gift", "WEB", "42", "1e999", "infinity", "5874897-12-31", "x" * 3000, "é\x01'\""])
        case "BOOLEAN":
            return rng.random() < 0.5
        case "DATE":
            return rng.choice(["infinity", "-infinity", "5874897-12-31", "5877642-06-25 (BC)", "2024-02-29"])
        case _:
            return rng.choice(["infinity", "-infinity", "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00"])


# -- whole databases --------------------------------------------------------------------------------------------------


def unit_values(schema: Schema, count: int) -> list[object]:
    """Names of people, of the type that the units of this schema have."""
    (kind,) = {table.columns[table.unit_column].type.name for table in schema.tables.values() if table.unit_column}
    return [f"p{number}" for number in range(count)] if kind == "text" else list(range(1, count + 1))


def tame_tables(file: CaseFile, rng: random.Random, units: int) -> Tables:
    """Everybody has one row in a table of people and at most two in any other."""
    people = unit_values(file.schema, units)

    def rows(table: Table) -> Iterator[dict[str, object]]:
        for number, person in enumerate(people if table.unique else [p for p in people for _ in range(2)]):
            row = {name: tame_value(column, rng) for name, column in table.columns.items()}
            yield (
                row
                | ({table.unit_column: person} if table.unit_column else {"order_id": number})
                | own_key(table, number)
            )

    return {
        name: public_rows(table, rng) if table.is_public else [tuple(row.values()) for row in rows(table)]
        for name, table in file.schema.tables.items()
    }


def public_rows(table: Table, rng: random.Random) -> Rows:
    """One row for each value of the first column, which is a key."""
    first, *others = table.columns.values()
    assert first.values is not None
    return [(value, *(tame_value(column, rng) for column in others)) for value in first.values]


def own_key(table: Table, number: int) -> dict[str, object]:
    return {"id": number} if "id" in table.columns and table.unit_column != "id" else {}


def wild_tables(file: CaseFile, rng: random.Random, units: int, rows: int) -> Tables:
    """Few people: some with many rows, some in one group only, some rows of nobody, some lines of no order."""
    people = unit_values(file.schema, units)
    kinds = column_kinds(file)
    heavy = people[0] if people else None
    made: Tables = {}
    for name, table in file.schema.tables.items():
        if table.is_public:
            made[name] = public_rows(table, rng)
            continue
        only = {column: wild_value(table.columns[column], kinds[name, column], rng) for column in table.columns}
        made[name] = []
        for number, person in enumerate(chosen_people(table, people, heavy, rows, rng)):
            row = {c: wild_value(column, kinds[name, c], rng) for c, column in table.columns.items()}
            if people and person == people[-1]:
                row = dict(only)  # this one has the same row again and again
            key = {table.unit_column: person} if table.unit_column else {"order_id": rng.randint(0, rows + 2)}
            made[name].append(tuple((row | key | own_key(table, number)).values()))
    return made


def chosen_people(table: Table, people: list[object], heavy: object, rows: int, rng: random.Random) -> Iterator[object]:
    if table.unique:
        yield from people
        if table.name == "members" and people:
            yield from [people[0], people[0], None]  # no constraint of the database forbids it
        return
    for _ in range(rows):
        yield heavy if rng.random() < 0.4 else rng.choice([*people, None])


def column_kinds(file: CaseFile) -> dict[tuple[str, str], str]:
    """The database's type of every column."""
    with duckdb.connect() as connection:
        connection.execute(file.create)
        found = connection.execute("SELECT table_name, column_name, data_type FROM duckdb_columns()").fetchall()
    return {(table, column): kind for table, column, kind in found}


def without(file: CaseFile, tables: Tables, person: object) -> Tables:
    """The neighbour: every row of one person gone, in every table, lines of the person's orders included."""
    schema = file.schema

    def position(table: str, column: str) -> int:
        return list(schema.tables[table].columns).index(column)

    def belongs(table: str, row: tuple[Any, ...]) -> bool:
        declared = schema.tables[table]
        if declared.is_public:
            return False
        if declared.unit_column:
            return bool(row[position(table, declared.unit_column)] == person)
        (hop,) = schema.unit_path(table)
        reached = [
            order
            for order in tables[hop.to_table]
            if order[position(hop.to_table, hop.to_column)] == row[position(table, hop.column)]
        ]
        return any(belongs(hop.to_table, order) for order in reached)

    return {name: [row for row in rows if not belongs(name, row)] for name, rows in tables.items()}


def fill(connection: duckdb.DuckDBPyConnection, file: CaseFile, tables: Tables) -> None:
    """By way of frames of texts, which DuckDB reads far faster than a long INSERT."""
    connection.execute(file.create)
    for name, rows in tables.items():
        texts = [[None if value is None else str(value) for value in row] for row in rows]
        frame = pd.DataFrame(texts, columns=list(file.schema.tables[name].columns), dtype=object)
        connection.register("_texts", frame)
        connection.execute(f"INSERT INTO {name} SELECT * FROM _texts")
        connection.unregister("_texts")


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
        rng = random.Random(f"wild {file.name}")
        for units, rows in ((0, 0), (1, 9), (3, 40)):
            tables = wild_tables(file, rng, units, rows)
            people = unit_values(file.schema, units)
            self.found.append(self.add(file, tables, people))

    def add(self, file: CaseFile, tables: Tables, people: list[object]) -> Neighbours:
        number = len(self.found)
        names = [self.make(file, f"w{number}", tables)]
        names += [self.make(file, f"w{number}_{i}", without(file, tables, person)) for i, person in enumerate(people)]
        return Neighbours(names[0], tuple(names[1:]))

    def make(self, file: CaseFile, name: str, tables: Tables) -> str:
        self.connection.execute(f"CREATE SCHEMA {name}")
        self.connection.execute(f"SET schema = '{name}'")
        fill(self.connection, file, tables)
        return name

    def run(self, world: str, sql: str) -> tuple[list[tuple[str, str]], Rows]:
        """Columns with their types, and rows."""
        self.connection.execute(f"SET schema = '{world}'")
        found = self.connection.execute(sql)
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

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(before)
        return called

    return count


@pytest.fixture(scope="session")
def tame() -> Callable[[str], duckdb.DuckDBPyConnection]:
    """A tame database of a case file, with 1500 people."""
    made: dict[str, duckdb.DuckDBPyConnection] = {}

    def of(name: str) -> duckdb.DuckDBPyConnection:
        if name not in made:
            made[name] = duckdb.connect()
            made[name].execute("SET threads = 1")
            fill(made[name], CASE_FILES[name], tame_tables(CASE_FILES[name], random.Random(f"tame {name}"), 1500))
        return made[name]

    return of


@pytest.fixture(scope="module")
def connected(tame: Callable[[str], duckdb.DuckDBPyConnection]) -> Iterator[Callable[[str], dpsql.Connection]]:
    """A session on the tame database of a case file."""
    made: dict[str, dpsql.Connection] = {}

    def of(name: str) -> dpsql.Connection:
        if name not in made:
            schema = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))["schema"]
            made[name] = dpsql.connect(tame(name), schema=schema, epsilon=1, delta=1e-6)
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
def exact_session(tame: Callable[[str], duckdb.DuckDBPyConnection]) -> Callable[[str], dpsql.Connection]:
    """A session on the tame database with so much epsilon that there is no noise."""
    made: dict[str, dpsql.Connection] = {}

    def of(name: str) -> dpsql.Connection:
        if name not in made:
            made[name] = dpsql.connect(
                tame(name), schema=CASE_FILES[name].schema, epsilon=1e15, delta=1e-6, query_epsilon=1e9
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
    with dpsql.connect(shop_database, schema=shop_schema, epsilon=10, delta=1e-6) as connection:
        yield connection


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

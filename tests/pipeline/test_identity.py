"""A stored answer is found by what was asked, whatever it is written like, and by nothing else."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import random
import re
import runpy
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest
import sqlglot
from sqlglot import exp

import dpsql
from dpsql.accounting.ledger.sqlite import SCHEMA_VERSION
from dpsql.aggregates.release import Release
from dpsql.aggregates.release_sql import release_sql
from dpsql.engine_sql.build import SALT, fields, select
from dpsql.engines.duckdb.render import render as duckdb_render
from dpsql.engines.postgresql.render import render as postgresql_render
from dpsql.engines.render import filled
from dpsql.engines.spark.render import render as spark_render
from dpsql.errors import InternalError
from dpsql.expressions.tree import Call, Column
from dpsql.pipeline import plan_query
from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
from dpsql.pipeline.identity import LEFT_OUT, SAME, described, relation_described, release_described, told_fields
from dpsql.pipeline.plan_query import PlannedRelease
from dpsql.pipeline.stages import compile_question
from dpsql.relation.domain import Domain, ListedKeys
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Aggregate, Relation
from dpsql.schema.model import Declared
from dpsql.verification.certify import case_files, questions

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 3, "max_rows_per_group": 4},
    "tables": {
        "customers": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "age": {"type": "integer", "bounds": [0, 99]}, "mail": "text"},
        },
        "orders": {
            "unit": "customer",
            "columns": {
                "customer": "integer",
                "seller": "integer",
                "region": {"type": "text", "values": ["north", "south"]},
                "product": "text",
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
                "amount": {"type": "double", "bounds": [0, 500]},
                "items": {"type": "integer", "bounds": [0, 20]},
            },
        },
    },
}
TABLES = [
    "CREATE TABLE customers (id INTEGER PRIMARY KEY, age INTEGER, mail VARCHAR)",
    "CREATE TABLE orders (customer INTEGER, seller INTEGER, region VARCHAR, product VARCHAR, day DATE,"
    " amount DOUBLE PRECISION, items INTEGER)",
    "INSERT INTO customers SELECT i, i % 90, 'm' FROM {range}(0, 199) AS r(i)",
    "INSERT INTO orders SELECT i % 200, i % 3, CASE WHEN i % 3 = 0 THEN 'north' ELSE 'south' END, 'pen',"
    " DATE '2024-03-01' + CAST(i % 90 AS INTEGER), i % 100, i % 7 FROM {range}(0, 1999) AS r(i)",
]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for statement in TABLES:
            connection.execute(statement.replace("{range}", "generate_series"))
        yield connection


def connect(source: Any, ledger: object = ":memory:", **changed: Any) -> dpsql.Connection:
    return dpsql.connect(source, schema=SCHEMA | changed, ledger=str(ledger), budget=1000, delta=1e-6, query_epsilon=1)


@pytest.fixture
def conn(database: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with connect(database.cursor()) as connection:
        yield connection


def compiled(connection: dpsql.Connection, sql: str, **options: Any) -> Calibrated:
    return compile_question(connection.session.request(sql, None, **options), connection.session.environment.public())


def fingerprints(connection: dpsql.Connection, sql: str, **options: Any) -> list[str]:
    return [release.fingerprint for release in compiled(connection, sql, **options).releases]


# -- the same question -------------------------------------------------------------------------------------------------

WHERE = "amount > 5 AND day >= '2024-03-05'"
JOINED = "SELECT o.region, COUNT(*) FROM {} GROUP BY o.region"
SAME_QUESTIONS = {
    "the order of conditions, aliases, spelling of literals": [
        f"SELECT region, SUM(amount) FROM orders WHERE {WHERE} GROUP BY region",
        "SELECT o.region AS r, SUM(o.amount) AS total FROM orders AS o"
        " WHERE (o.day >= DATE '2024-03-05') AND 5.0 < o.amount GROUP BY 1",
        "select REGION, sum(amount) from ORDERS where day >= '2024-03-05' and amount > 2 + 3 group by region",
    ],
    "subqueries that rename and choose": [
        f"SELECT region, COUNT(*) FROM orders WHERE {WHERE} GROUP BY region",
        f"WITH few AS (SELECT region AS r FROM orders WHERE {WHERE}) SELECT r, COUNT(*) FROM few GROUP BY r",
        "SELECT region, COUNT(*) FROM (SELECT * FROM orders WHERE day >= '2024-03-05') WHERE amount > 5 GROUP BY 1",
    ],
    "the order of inner joins, ON and WHERE": [
        JOINED.format("orders o JOIN customers c ON o.customer = c.id WHERE c.age > 30 AND o.items < 5"),
        JOINED.format("customers c JOIN orders o ON c.id = o.customer AND o.items < 5 WHERE c.age > 30"),
        JOINED.format("customers c, orders o WHERE c.id = o.customer AND o.items < 5 AND c.age > 30"),
        JOINED.format(
            "orders o JOIN (SELECT id AS key FROM customers WHERE age > 30) d ON key = customer WHERE items < 5"
        ),
    ],
    "lists, OR, tests": [
        "SELECT COUNT(*) FROM orders WHERE product IN ('pen', 'ink') AND customer IN (SELECT id FROM customers)",
        "SELECT COUNT(*) FROM orders WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = customer)"
        " AND product IN ('ink', 'pen', 'ink')",
    ],
    "within each person": [
        "SELECT n, COUNT(*) FROM"
        " (SELECT customer, LEAST(COUNT(*), 9) AS n, SUM(items) AS s FROM orders GROUP BY customer) GROUP BY n",
        "SELECT many AS m, COUNT(*) FROM (SELECT LEAST(COUNT(*), 9) AS many, customer AS who FROM orders GROUP BY who)"
        " GROUP BY m",
    ],
    "what is computed from the same release": [
        "SELECT region, COUNT(*) FROM orders GROUP BY region",
        "SELECT region, 2 * COUNT(*) + 1 AS twice FROM orders GROUP BY region HAVING COUNT(*) > 3 ORDER BY 2 LIMIT 5",
    ],
}


@pytest.mark.parametrize("questions", SAME_QUESTIONS.values(), ids=SAME_QUESTIONS)
def test_another_spelling_is_free(questions: list[str], conn: dpsql.Connection) -> None:
    first = conn.execute(questions[0])
    assert first.receipt.cost.epsilon > 0
    for sql in questions[1:]:
        again = conn.execute(sql)
        assert again.receipt.recalled, sql
        if "twice" not in sql:
            assert again.fetchall() == conn.execute(questions[0]).fetchall()


def test_another_strategy_is_free(conn: dpsql.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release is written in another way: a plan that a later version may find."""
    sql = "SELECT region, COUNT(*), SUM(amount), COUNT(DISTINCT items) FROM orders GROUP BY region"
    before, answer = compiled(conn, sql).releases[0].sql, conn.execute(sql).fetchall()

    def written_otherwise(release: Any) -> Any:
        names = [*release.key_names, *(part.column for part in release.measures)]
        return select(fields(names), release_sql(release))

    monkeypatch.setattr(plan_query, "release_sql", written_otherwise)
    again = f"{sql} -- word for word it would be planned no more"
    assert compiled(conn, again).releases[0].sql != before
    cursor = conn.execute(again)
    assert cursor.receipt.recalled
    assert cursor.fetchall() == answer


def test_another_engine_is_free(database: duckdb.DuckDBPyConnection, postgresql_url: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(postgresql_url, autocommit=True) as server:
        server.execute("DROP SCHEMA IF EXISTS same CASCADE; CREATE SCHEMA same; SET search_path = same")
        for statement in TABLES:
            server.execute(statement.replace("{range}", "generate_series"))
    ledger, asked = tmp_path / "shop.ledger", [questions[0] for questions in SAME_QUESTIONS.values()]
    with connect(database.cursor(), ledger) as here:
        answers = [here.execute(sql).fetchall() for sql in asked]
        spent, written = here.budget.spent, compiled(here, asked[0]).releases[0].sql
    with connect(f"{postgresql_url}&options=-csearch_path%3Dsame", ledger) as there:
        assert compiled(there, asked[0]).releases[0].sql != written
        for sql, answer in zip(asked, answers, strict=True):
            cursor = there.execute(sql)
            assert cursor.receipt.recalled, sql
            assert cursor.fetchall() == answer
        assert there.budget.spent == spent


# -- another question --------------------------------------------------------------------------------------------------

QUESTION = "SELECT region, SUM(amount) FROM orders WHERE items > 3 GROUP BY region"
OTHER_QUESTIONS = [
    QUESTION.replace("> 3", "> 4"),
    QUESTION.replace("> 3", ">= 3"),
    QUESTION.replace("items > 3", "NOT items > 3"),
    QUESTION.replace("items", "seller"),
    QUESTION.replace("WHERE items > 3 ", ""),
    QUESTION.replace(" GROUP", " AND amount > 1 GROUP"),
    QUESTION.replace("region", "day"),
    QUESTION.replace("region, ", "").replace(" GROUP BY region", ""),
    QUESTION.replace("GROUP BY region", "GROUP BY ROLLUP (region)"),
    QUESTION.replace("SUM(amount)", "SUM(items)"),
    QUESTION.replace("SUM(amount)", "SUM(DISTINCT amount)"),
    QUESTION.replace("SUM(amount)", "SUM(amount, contribution_bounds_per_row => (0, 400))"),
    QUESTION.replace("SUM(amount)", "SUM(amount, contribution_bounds_per_group => (0, 400))"),
    QUESTION.replace("SUM(amount)", "COUNT(*)"),
    QUESTION.replace("SUM(amount)", "MEDIAN(amount)"),
    QUESTION.replace("FROM orders", "FROM (SELECT DISTINCT * FROM orders)"),
    QUESTION.replace("FROM orders", "FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders)"),
    QUESTION.replace("FROM orders", "FROM orders JOIN customers ON customer = id"),
    QUESTION.replace("FROM orders", "FROM orders LEFT JOIN customers ON customer = id"),
    QUESTION.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (min_privacy_units_per_group = 5)"),
]
OPTIONS: list[dict[str, Any]] = [
    {"max_groups": 1},
    {"max_rows_per_group": 3},
    {"epsilon": 0.5},
    {"mechanism": "laplace"},
    {"mechanism": "gaussian"},
]


def changed(*path: str, value: Any) -> dict[str, Any]:
    schema = copy.deepcopy(SCHEMA)
    place = schema
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return schema


ORDERS = ("tables", "orders")
OTHER_SCHEMAS = {
    "unit": changed(*ORDERS, "unit", value="seller"),
    "declared values": changed(*ORDERS, "columns", "region", "values", value=["north", "south", "east"]),
    "private keys": changed(*ORDERS, "columns", "region", value="text"),
    "clamp": changed(*ORDERS, "columns", "amount", "bounds", value=[0, 400]),
    "bounds of what is compared": changed(*ORDERS, "columns", "items", "bounds", value=[0, 30]),
    "nullable": changed(*ORDERS, "columns", "amount", "nullable", value=True),
    "contribution": changed("contribution", "max_groups", value=1),
    "unique": changed(*ORDERS, "unique", value=True),
    "dataset": changed("dataset", value="another"),
}


def test_another_question_is_charged(conn: dpsql.Connection) -> None:
    """In noise that differs by nothing else, but where the noise is what differs."""
    asked = {sql: fingerprints(conn, sql) for sql in [QUESTION, *OTHER_QUESTIONS]}
    found = [part for parts in asked.values() for part in parts]
    found += [part for options in OPTIONS for part in fingerprints(conn, QUESTION, **options)]
    assert len(set(found)) == len(found) - 1  # one kind of noise is that of the question without options
    subjects = [compiled(conn, sql).releases[0].subject for sql in asked]
    assert len(set(subjects)) == len(subjects)


@pytest.mark.parametrize("schema", OTHER_SCHEMAS.values(), ids=OTHER_SCHEMAS)
def test_another_declaration_is_another_question(
    schema: dict[str, Any], conn: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    if schema["tables"]["orders"].get("unique"):
        schema = copy.deepcopy(schema)
    with connect(database.cursor(), **schema) as other:
        assert not {*fingerprints(conn, QUESTION)} & {*fingerprints(other, QUESTION)}
        subjects = [compiled(session, QUESTION).releases[0].subject for session in (conn, other)]
        assert subjects[0] != subjects[1]


FEW = {"type": "integer", "bounds": [0, 5]}


def test_columns_that_nothing_reads_do_not_matter(conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    with connect(database.cursor(), **changed(*ORDERS, "columns", "seller", value=FEW)) as other:
        assert fingerprints(conn, QUESTION) == fingerprints(other, QUESTION)


def test_ties_are_broken_by_the_names_of_columns(conn: dpsql.Connection) -> None:
    """Which of two rows of the same day comes first follows from the order of the names: here it is another one."""
    sql = """SELECT COUNT(*) FROM (
        SELECT {0}, {1}, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY day) AS n
        FROM (SELECT customer, day, amount AS {0}, items AS {1} FROM orders)) WHERE n = 1 AND {0} > 50 AND {1} > 3"""
    one, other = (compiled(conn, sql.format(*names)).releases[0] for names in ("ab", "ba"))
    assert one.subject != other.subject


# -- every field -------------------------------------------------------------------------------------------------------


EVERY = 5
"""Of the questions of all tests, one in so many is planned."""


def reached(value: object, found: dict[type, Any]) -> None:
    """One value of each kind that a plan is made of, itself and below the fields that an identity tells of."""
    if isinstance(value, tuple | list | frozenset):
        for part in value:
            reached(part, found)
    elif isinstance(value, dict):
        reached([*value, *value.values()], found)
    elif isinstance(value, Declared) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        found.setdefault(type(value), value)
        for name, _ in told_fields(type(value)):
            reached(getattr(value, name), found)


@pytest.fixture(scope="module")
def releases() -> list[CalibratedRelease]:
    found: list[CalibratedRelease] = []
    files = case_files()
    for name, file in files.items():
        with duckdb.connect() as raw:
            raw.execute(file.create)
            with dpsql.connect(raw, schema=file.schema, budget=1000.0, delta=1e-6) as session:
                for question in [one for one in questions(files) if one.file == name][::EVERY]:
                    with suppress(dpsql.Error):
                        request = session.session.request(question.sql, question.parameters, **question.options)
                        found += compile_question(request, session.session.environment.public()).releases
    return found


@pytest.fixture(scope="module")
def kinds(releases: list[CalibratedRelease]) -> dict[type, Any]:
    found: dict[type, Any] = {}
    reached([part.planned for part in releases], found)
    reached(releases, found)
    return found


def said(value: Any, kinds: dict[type, Any]) -> str:
    planned = kinds[PlannedRelease]
    match value:
        case PlannedRelease():
            return release_described(value)[0]
        case Release():
            return release_described(dataclasses.replace(planned, release=value))[0]
        case Aggregate():
            release = dataclasses.replace(planned.release, aggregate=value)
            return release_described(dataclasses.replace(planned, release=release))[0]
    if isinstance(value, Relation):
        return relation_described(value, facts_of(value).any_row.keys())[0]
    return described(value, SAME)


def with_new_field(value: Any, held: int) -> Any:
    """The same, of a class that has one field more."""
    kind = type(value)
    if isinstance(value, Declared):
        new: Any = type(kind.__name__, (kind,), {"__annotations__": {"planted": int}, "planted": 0})
        return new.model_construct(**{name: getattr(value, name) for name in kind.model_fields}, planted=held)
    planted = ("planted", int, dataclasses.field(default=0, kw_only=True))
    new = dataclasses.make_dataclass(kind.__name__, [planted], bases=(kind,), frozen=True)
    return with_fields(object.__new__(new), value, planted=held)


def with_fields(made: Any, value: Any, /, **other: object) -> Any:
    held = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    for name, field in {**held, **other}.items():
        object.__setattr__(made, name, field)
    return made


def test_a_new_field_is_told_where_it_is_used(kinds: dict[type, Any]) -> None:
    """Of every kind of value that a plan has; unused it changes no identity, so that an older answer is still found."""
    assert len(kinds) > 55
    for value in kinds.values():
        assert said(with_new_field(value, 0), kinds) == said(value, kinds), type(value)
        assert said(with_new_field(value, 1), kinds) != said(value, kinds), type(value)


def test_every_field_is_told(kinds: dict[type, Any]) -> None:
    """What is described field by field, and has no form of its own."""
    of_their_own = (PlannedRelease, Release, Aggregate, Domain, ListedKeys, Column, Call, Declared)
    for kind, value in kinds.items():
        if isinstance(value, (*of_their_own, *get_args(Relation))):
            continue
        for name, _ in told_fields(kind):
            assert described(with_fields(object.__new__(kind), value, **{name: "planted"}), SAME) != described(
                value, SAME
            )


def test_no_two_kinds_have_one_name(kinds: dict[type, Any]) -> None:
    names = [kind.__name__ for kind in kinds]
    assert len(set(names)) == len(names)


def test_values_that_are_equal_and_not_the_same() -> None:
    values = [
        1,
        True,
        1.0,
        Fraction(1),
        Decimal(1),
        "1",
        None,
        "None",
        (1,),
        ("1",),
        [],
        [[]],
        date(2024, 1, 1),
        "[]",
        int,
    ]
    values += [
        datetime(2024, 1, 1),
        "2024-01-01",
        frozenset({1}),
        frozenset({"1"}),
        {1: 2},
        {2: 1},
        "a', 'b",
        ("a", "b"),
    ]
    assert len({described(value, SAME) for value in values}) == len(values)


def test_what_nobody_understands_is_refused() -> None:
    with pytest.raises(InternalError):
        described(object(), SAME)


def named_fields() -> set[str]:
    every = [
        part for name, module in list(sys.modules.items()) if name.startswith("dpsql") for part in vars(module).values()
    ]
    kinds = {kind for kind in every if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    return {f"{kind.__name__}.{part.name}" for kind in kinds for part in dataclasses.fields(kind)}


def test_what_is_left_out_exists_and_has_a_reason() -> None:
    assert set(LEFT_OUT) <= named_fields()
    assert all(len(reason) > 10 for reason in LEFT_OUT.values())


# -- SQL ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("render", [duckdb_render, postgresql_render, spark_render])
def test_a_salt_that_is_filled_in_later_stands_where_it_would_have_stood(
    render: Any, releases: list[CalibratedRelease]
) -> None:
    salt, same = 2**63 - 25, 0
    for release in releases:
        query, zeros = release.planned.with_adaptive, release.planned.zeros
        with suppress(dpsql.Error):
            assert filled(render(query, zeros), SALT, salt) == render(query, {**zeros, SALT: salt})
            same += str(salt) in render(query, {**zeros, SALT: salt})
    assert same > 20


def test_a_release_is_rendered_once(conn: dpsql.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = conn.session.environment.engine, []
    render = engine.render
    monkeypatch.setattr(type(engine), "render", lambda self, *query: asked.append(query) or render(*query))
    conn.execute("SELECT product, COUNT(*), SUM(amount) FROM orders GROUP BY product", diagnose=False)
    assert len(asked) == 1


# -- older ledgers -----------------------------------------------------------------------------------------------------


def test_answers_of_an_older_dpsql_are_kept_and_not_found(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """They were found by a digest of engine SQL, which nobody writes any more. The account goes on as it was."""
    path = tmp_path / "shop.ledger"
    with connect(database.cursor(), path) as session:
        session.execute(QUESTION, diagnose=False)
        spent = session.budget.spent.epsilon
        of_today = {*fingerprints(session, QUESTION), *(part.subject for part in compiled(session, QUESTION).releases)}
    with sqlite3.connect(path) as raw:
        known = {row[0] for row in raw.execute("SELECT fingerprint FROM answers")}
        assert known == of_today
        for old in known:
            digest = hashlib.sha256(f"SELECT {old}".encode()).hexdigest()
            raw.execute("UPDATE answers SET fingerprint = ? WHERE fingerprint = ?", (digest, old))
            raw.execute("UPDATE answers SET payload = ? WHERE payload = ?", (digest, old))
        raw.execute("PRAGMA user_version = 3")
        older = raw.execute("SELECT * FROM answers").fetchall()
    with connect(database.cursor(), path) as session:
        assert session.budget.spent.epsilon == spent
        assert not session.execute(QUESTION).receipt.recalled
        assert session.budget.spent.epsilon > spent
        assert session.execute(QUESTION).receipt.recalled
        session.session.environment.ledger.verify()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert {*older} < {*raw.execute("SELECT * FROM answers").fetchall()}


# -- generated questions -----------------------------------------------------------------------------------------------
# Equal identities have equal exact answers, whatever the rows: each question is asked in other words, which should mean
# the same, and with changes that should not.

WORLDS, ASKED = 2, 20
MORE = [pytest.param(number, marks=pytest.mark.long) for number in range(WORLDS, 20 * WORLDS)]
GENERATED = runpy.run_path(str(Path(__file__).parents[1] / "whole" / "test_generated.py"))
World, Maker = GENERATED["World"], GENERATED["Maker"]


def in_other_words(sql: str, rng: random.Random) -> str:
    """Conditions in another order, joins from the other side, other names."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    for node in list(tree.find_all(exp.And, exp.Or, exp.EQ, exp.NEQ)):
        if rng.random() < 0.5:
            left, right = node.this.copy(), node.expression.copy()
            node.set("this", right)
            node.set("expression", left)
    for node in list(tree.find_all(exp.In)):
        rng.shuffle(node.expressions)
    for node in list(tree.find_all(exp.Select)):
        joins = node.args.get("joins") or []
        if len(joins) == 1 and joins[0].args.get("on") and not joins[0].side and rng.random() < 0.5:
            first, second = node.args["from_"].this.copy(), joins[0].this.copy()
            node.args["from_"].set("this", second)
            joins[0].set("this", first)
    other = "r" if rng.random() < 0.5 else "zz"
    return re.sub(r"\bq(\d+)\b", rf"{other}\1", tree.sql(dialect="duckdb"))


def with_other_names(sql: str, rng: random.Random) -> str:
    """Columns whose names come in another order."""
    return re.sub(r"\bx(\d+)\b", lambda found: f"x{90 - int(found[1])}", sql)


OTHER_CLASS = {exp.LT: exp.LTE, exp.LTE: exp.LT, exp.GT: exp.LT, exp.EQ: exp.NEQ, exp.And: exp.Or, exp.Max: exp.Min}
OTHER_CLASS |= {exp.Add: exp.Sub, exp.Sum: exp.Avg, exp.Or: exp.And}


def changed_somewhere(sql: str, rng: random.Random) -> str:
    """One literal, comparison, column, kind of join or clause is another one."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    kinds = (*OTHER_CLASS, exp.Literal, exp.Column, exp.Join, exp.Distinct, exp.Where, exp.Union, exp.Ordered, exp.Not)
    node = rng.choice([one for one in tree.find_all(*kinds) if one.parent is not None] or [tree])
    columns = [one for one in tree.find_all(exp.Column) if one.table == node.text("table")]
    match node:
        case exp.Literal():
            node.replace(exp.Literal.string("b") if node.is_string else exp.Literal.number(int(rng.random() * 9)))
        case exp.Column():
            node.replace(rng.choice(columns).copy())
        case exp.Join():
            node.set("side", "" if node.side else "LEFT")
        case exp.Distinct() | exp.Where():
            node.pop()
        case exp.Union():
            node.set("distinct", not node.args.get("distinct"))
        case exp.Ordered():
            node.set("desc", not node.args.get("desc"))
        case exp.Not():
            node.replace(node.this.copy())
        case _ if type(node) in OTHER_CLASS:
            node.replace(
                OTHER_CLASS[type(node)](
                    **{name: node.args[name] for name in ("this", "expression") if name in node.args}
                )
            )
    return tree.sql(dialect="duckdb")


@pytest.mark.parametrize("number", [*range(WORLDS), *MORE])
def test_equal_identities_have_equal_answers(number: int) -> None:
    world, rng = World(number), random.Random(f"identity {number}")
    ways: list[Callable[[str, random.Random], str]] = [in_other_words, in_other_words, with_other_names]
    ways += [changed_somewhere] * 6
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _ in range(ASKED):
        sql = Maker(iter(rng.randbytes(200)), world).query()
        for text in [sql, *(way(sql, rng) for way in ways)]:
            note_subjects(world, text, found)
    for asked in found.values():
        (first, *others) = [answers(world, sql) for sql in asked]
        for other in others:
            assert other == first, dict(asked)
    pairs = sum(len(set[str]().union(*asked.values())) - 1 for asked in found.values())
    written = sum(len(asked) - 1 for asked in found.values())
    print(f"{len(found)} releases, {pairs} found again, {written} of them in other engine SQL")
    assert pairs >= ASKED
    assert written


@pytest.mark.parametrize("field", ["Literal.value", "Function.name"])
def test_a_field_that_should_not_be_left_out_is_found(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEFT_OUT, field, "planted")
    told_fields.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_equal_identities_have_equal_answers(0)
    finally:
        told_fields.cache_clear()


def note_subjects(world: Any, sql: str, found: dict[str, dict[str, set[str]]]) -> None:
    """Under what each release is about, its engine SQL and the questions that have it."""
    with suppress(dpsql.Error):
        for part in compiled(world.session, sql, mechanism="laplace").releases:
            found[part.subject][part.sql].add(sql)


def answers(world: Any, sql: str) -> list[list[str]]:
    """Of the whole database, and of each in which somebody is missing."""
    found = []
    for place in ("main", *world.neighbours):
        world.connection.execute(f"SET schema = '{place}'")
        found.append(sorted(map(repr, world.connection.execute(sql).fetchall())))
    return found

"""A question that is asked again is planned once, and never as another question or for another account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from sqlglot import TokenType

import dpsql
from dpsql.pipeline.environment import LONGEST_KEPT, MOST_KEPT, PlanCache
from dpsql.pipeline.plan_query import Planned
from dpsql.pipeline.stages import compile_question, plan_question
from dpsql.sql.syntax import DUCKDB
from dpsql.verification.certify import case_files, questions

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "orders": {
            "unit": "customer",
            "columns": {
                "customer": "integer",
                "region": {"type": "text", "values": ["north", "south"]},
                "amount": {"type": "double", "bounds": [0, 500]},
                "price": {"type": "decimal(10, 2)", "bounds": [0, 500]},
            },
        },
        "towns": {"public": True, "columns": {"town": "text", "region": "text"}},
    },
}


@pytest.fixture
def raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE orders (customer BIGINT, region VARCHAR, amount DOUBLE, price DECIMAL(10, 2))")
    connection.execute("INSERT INTO orders SELECT i, 'north', i, i FROM range(100) AS r(i)")
    connection.execute("CREATE TABLE towns (town VARCHAR, region VARCHAR)")
    connection.execute("INSERT INTO towns VALUES ('Ayr', 'north'), ('Bath', 'south')")
    return connection


def connected(raw: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    return dpsql.connect(raw, schema=SCHEMA, budget=100.0, delta=1e-6)


@pytest.fixture
def conn(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with connected(raw) as connection:
        yield connection


def planned(conn: dpsql.Connection, sql: str, parameters: object = None, **options: Any) -> Planned:
    return plan_question(conn.session.request(sql, parameters, **options), conn.session.environment.public())


def test_the_same_question_is_planned_once(conn: dpsql.Connection) -> None:
    sql = "SELECT region, SUM(amount) FROM orders WHERE amount < ? GROUP BY region"
    assert planned(conn, sql, [10]) is planned(conn, sql, [10])


ASKED: list[tuple[str, list[object], dict[str, Any]]] = [
    *(("SELECT SUM(LEAST(amount, ?)) FROM orders WHERE price < ?", [value, value], {}) for value in (1, 1.0, True)),
    *(("SELECT SUM(amount) FROM orders WHERE amount > ?", [value], {}) for value in (0.0, -0.0, 0, 7, "7")),
    *(
        ("SELECT SUM(price * ?) FROM orders", [value], {})
        for value in (2, 2.0, Decimal("2.0"), Decimal("2.00"), Decimal(2))
    ),
    ("SELECT SUM(amount) FROM orders WHERE amount < 7", [], {}),
    ("SELECT SUM(amount) FROM orders WHERE amount < 8", [], {}),
    ("SELECT SUM(amount) FROM orders WHERE amount < 8", [], {"max_groups": 3}),
    ("SELECT SUM(amount) FROM orders WHERE amount < 8", [], {"max_rows_per_group": 3}),
    ("SELECT SUM(amount) FROM orders WHERE amount < 8", [], {"propose": 3}),
    ("SELECT COUNT(*) FROM orders WHERE region = 'nort'", [], {}),
    ("SELECT COUNT(*) FROM orders WHERE region = 'sout'", [], {}),
    ("SELECT region AS a, COUNT(*) FROM orders WHERE region IN ('north') GROUP BY 1", [], {}),
    ("SELECT region AS b, COUNT(*) FROM orders WHERE region IN ('south') GROUP BY 1", [], {}),
]


def test_no_question_has_the_plan_of_another(raw: duckdb.DuckDBPyConnection, conn: dpsql.Connection) -> None:
    """Asked twice in a session that was asked all others too, each is planned as in a session of its own."""

    def outcome(session: dpsql.Connection, sql: str, parameters: object, options: dict[str, Any]) -> object:
        try:
            found = planned(session, sql, parameters, **options)
        except dpsql.Error as refusal:
            return str(refusal)
        bounds = [[(part.linf, part.l0) for part in one.release.measures] for one in found.releases]
        return str(found), bounds, found.request.notes, [one.release.domain for one in found.releases]

    together = [outcome(conn, *asked) for _ in range(2) for asked in ASKED]
    alone = []
    for asked in ASKED:
        with connected(raw) as session:
            alone.append(outcome(session, *asked))
    assert together == alone + alone


FILES = case_files()
EVERY = 6
"""Of the questions of the tests, one in so many; tests/whole asks all of them, each once."""


def with_other_literals(sql: str) -> str:
    """Every number is one more, every text one letter shorter, every year another."""
    for token in reversed(DUCKDB.tokenize(sql)):
        written = sql[token.start : token.end + 1]
        if token.token_type is TokenType.NUMBER and written.isdecimal():
            sql = f"{sql[: token.start]}{int(written) + 1}{sql[token.end + 1 :]}"
        elif token.token_type is TokenType.STRING and len(token.text) > 1:
            other = "2023" + token.text[4:] if token.text[:3] == "202" else token.text[:-1]
            sql = f"{sql[: token.start]}'{other.replace(chr(39), chr(39) * 2)}'{sql[token.end + 1 :]}"
    return sql


@pytest.mark.parametrize("file", FILES)
def test_whatever_was_asked_before_a_question_is_compiled_as_if_nothing_had_been(file: str) -> None:
    """The same SQL, sensitivities, noise, cost and refusals, also where another one differs by literals alone."""
    with duckdb.connect() as raw:
        raw.execute(FILES[file].create)
        with dpsql.connect(raw, schema=FILES[file].schema, budget=1000.0, delta=1e-6) as session:

            def outcome(sql: str, parameters: object, *, kept: bool) -> object:
                public = session.session.environment.public()
                try:
                    request = session.session.request(sql, parameters)
                    found = compile_question(request, public if kept else replace(public, plans=PlanCache()))
                except dpsql.Error as refusal:
                    return type(refusal), str(refusal)
                return (
                    str(found),
                    found.post_processing,
                    found.cost,
                    [vars(part) for part in found.outputs],
                    [
                        (part.sql, part.fingerprint, part.subject, part.measures, part.statistics, part.thresholds)
                        for part in found.releases
                    ],
                )

            for question in [one for one in questions(FILES) if one.file == file][::EVERY]:
                asked = [question.sql, with_other_literals(question.sql)]
                warm = [outcome(sql, question.parameters, kept=True) for _ in range(2) for sql in asked]
                cold = [outcome(sql, question.parameters, kept=False) for sql in asked]
                assert warm == cold + cold, question.sql


BY_TOWN = "SELECT t.town, COUNT(*) FROM towns t LEFT JOIN orders o ON o.region = t.region GROUP BY t.town"


def test_public_rows_are_counted_each_time(raw: duckdb.DuckDBPyConnection, conn: dpsql.Connection) -> None:
    assert planned(conn, BY_TOWN)
    raw.execute("INSERT INTO towns VALUES ('Ayr', 'north')")
    with pytest.raises(dpsql.Unsupported, match="keeps public rows"):
        planned(conn, BY_TOWN)


def test_public_rows_that_stay_are_counted_once(raw: duckdb.DuckDBPyConnection) -> None:
    frames = {name: raw.table(name) for name in ("orders", "towns")}
    with dpsql.connect(frames, schema=SCHEMA, budget=100.0, delta=1e-6) as conn:
        assert planned(conn, BY_TOWN) is planned(conn, BY_TOWN)


def test_the_value_of_a_constant_is_asked_each_time(conn: dpsql.Connection) -> None:
    """It may be the time, or chance."""
    sql = "SELECT COUNT(*) FROM orders WHERE amount IN (SELECT x FROM (VALUES (1.0), (2.0)) AS v(x))"
    first, second = planned(conn, sql), planned(conn, sql)
    assert first == second
    assert first is not second


def test_the_account_is_seen_as_it_stands(conn: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) FROM orders"
    before = conn.explain(sql, epsilon=1).remaining.epsilon
    conn.execute("SELECT COUNT(*) FROM orders WHERE amount > 3", epsilon=50)
    assert conn.explain(sql, epsilon=1).remaining.epsilon < before - 40
    with pytest.raises(dpsql.BudgetExhausted):
        conn.execute(sql, epsilon=99)


@pytest.mark.parametrize("composition", ["mixed", "auto", "gdp", "zcdp", "basic"])
@pytest.mark.parametrize("options", [{}, {"epsilon": 0.5}, {"accuracy": 40}], ids=str)
def test_noise_is_chosen_for_the_account_as_it_stands(
    raw: duckdb.DuckDBPyConnection, composition: str, options: dict[str, Any]
) -> None:
    """What is kept of a plan follows from its price. Which noise still fits, and what it takes, is seen each time."""
    sql = "SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region"
    if "accuracy" in options:
        sql = "SELECT price, COUNT(*) AS n FROM orders GROUP BY price"
    seen = set()
    with dpsql.connect(raw, schema=SCHEMA, budget=3, delta=1e-6, composition=composition) as session:
        for mechanism in ("laplace", "gaussian", "laplace", "laplace", "gaussian"):

            def outcome(plans: PlanCache) -> object:
                public = replace(session.session.environment.public(), plans=plans)
                found = compile_question(session.session.request(sql, None, **options), public)
                return str(found), found.reserved, found.event, [vars(part) for part in found.releases]

            kept, cold = (outcome(plans) for plans in (session.session.environment.plans, PlanCache()))
            assert repr(kept) == repr(cold)
            seen.add(str(kept))
            with suppress(dpsql.BudgetExhausted):
                session.execute("SELECT COUNT(*) FROM orders", epsilon=0.9, mechanism=mechanism, fresh=True)
    assert len(seen) > 1 or composition != "mixed" or not options


def test_few_and_short_questions_are_kept(conn: dpsql.Connection) -> None:
    first = planned(conn, "SELECT COUNT(*) FROM orders")
    for number in range(MOST_KEPT - 1):
        planned(conn, f"SELECT {number} AS n FROM towns")
    assert planned(conn, "SELECT COUNT(*) FROM orders") is first
    planned(conn, "SELECT -1 AS n FROM towns")
    assert planned(conn, "SELECT COUNT(*) FROM orders") is not first
    long = "SELECT COUNT(*) FROM orders" + " " * LONGEST_KEPT
    assert planned(conn, long) is not planned(conn, long)


def test_an_environment_made_of_another_begins_anew(conn: dpsql.Connection) -> None:
    environment = conn.session.environment
    planned(conn, "SELECT COUNT(*) FROM orders")
    assert replace(environment, schema=environment.schema).plans is not environment.plans


def test_a_text_that_is_read_once_is_planned_for_the_rows_that_there_are(
    raw: duckdb.DuckDBPyConnection, conn: dpsql.Connection
) -> None:
    """A plan may leave out a clamp that no row needed yet."""
    engine = conn.session.environment.engine
    raw.execute("DELETE FROM orders")
    for amount, ends in {1: (1, 1), 100: (1, 50), -100: (0, 50), -(10**6): (0, 50)}.items():
        raw.execute("INSERT INTO orders VALUES (1, 'north', ?, 1)", [amount])
        found = engine.run('SELECT min(greatest("amount", 0)) AS low, max(least("amount", 50)) AS high FROM "orders"')
        assert (found["low"][0], found["high"][0]) == ends
    assert sum(tree is not None for tree in engine._statements.values()) == 1  # type: ignore[attr-defined]


def test_no_salt_is_kept(conn: dpsql.Connection) -> None:
    for _ in range(3):
        conn.execute("SELECT MEDIAN(amount) FROM orders", epsilon=1, fresh=True)
    trees = conn.session.environment.engine._statements.values()  # type: ignore[attr-defined]
    assert list(trees) == [None, None, None]

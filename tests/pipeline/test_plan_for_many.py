"""Literals that decide nothing: whether a question has its plan from one for many, or is planned for itself, is nothing
that anybody can tell. docs/proofs/literals.md."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from sqlglot import Token, TokenType

import dpsql
from dpsql.engine_sql.tree import Constant
from dpsql.engines.base import Render
from dpsql.engines.duckdb.render import DuckDB
from dpsql.engines.postgresql.render import render as postgresql
from dpsql.engines.spark.render import render as spark
from dpsql.explain import explain_calibrated
from dpsql.options import QueryRequest
from dpsql.pipeline.calibrate_noise import Calibrated
from dpsql.pipeline.environment import PublicEnvironment
from dpsql.pipeline.parse_sql import Parsed, parse_sql
from dpsql.pipeline.plan_cache import PlanCache
from dpsql.pipeline.plan_query import Planned
from dpsql.pipeline.shape import shape_of
from dpsql.pipeline.stages import _planned, compile_question, plan_question
from dpsql.resolve.inert_literals import inert_tests, read_inert, with_marks
from dpsql.sql.syntax import DUCKDB
from dpsql.verification.certify import CaseFile, case_files, questions

SCHEMA: dict[str, Any] = {
    "dataset": "shop",
    "contribution": {"max_groups": 3, "max_rows_per_group": 4},
    "tables": {
        "customers": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "born": {"type": "date", "bounds": ["1920-01-01", "2010-12-31"]}},
        },
        "orders": {
            "unit": "customer",
            "columns": {
                "customer": "integer",
                "region": {"type": "text", "values": ["north", "south", "east"], "nullable": True},
                "product": "text",
                "day": {"type": "date", "bounds": ["2024-01-01", "2026-12-31"]},
                "moment": {"type": "timestamp", "bounds": ["2024-01-01", "2026-12-31 23:59:59"], "nullable": True},
                "seen": "timestamp",
                "paid": "boolean",
                "size": {"type": "integer", "values": [1, 2, 5]},
                "quantity": {"type": "integer", "bounds": [-10, 50]},
                "number": {"type": "integer", "nullable": True},
                "amount": {"type": "double", "bounds": [0, 500]},
                "weight": "double",
                "price": {"type": "decimal(10, 2)", "bounds": [0, 500]},
                "tax": "decimal(6, 3)",
            },
        },
    },
}
CREATE = """
    CREATE TABLE customers (id BIGINT PRIMARY KEY, born DATE);
    CREATE TABLE orders (
        customer BIGINT, region VARCHAR, product VARCHAR, day DATE, moment TIMESTAMP, seen TIMESTAMP, paid BOOLEAN,
        size BIGINT, quantity BIGINT, number BIGINT, amount DOUBLE, weight DOUBLE, price DECIMAL(10, 2),
        tax DECIMAL(6, 3))"""


@pytest.fixture
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(CREATE)
        yield connection


@pytest.fixture
def conn(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=100.0, delta=1e-6) as session:
        yield session


def planned(conn: dpsql.Connection, sql: str, parameters: object = None, **options: Any) -> Planned:
    return plan_question(conn.session.request(sql, parameters, **options), conn.session.environment.public())


def outcome(conn: dpsql.Connection, sql: str, parameters: object = None, *, kept: bool) -> object:
    """All that anybody can see of a question before it is charged, and all that is drawn after it."""
    public = conn.session.environment.public()
    try:
        request = conn.session.request(sql, parameters)
        found = compile_question(request, public if kept else replace(public, plans=PlanCache()))
    except dpsql.Error as refusal:
        return type(refusal), str(refusal)
    return (
        found.request,
        str(found),
        str(explain_calibrated(found, 0.5, found.cost)),
        found.post_processing,
        found.followed,
        found.public,
        found.cost,
        found.reserved,
        [vars(part) for part in found.outputs],
        [seen_of(found, number) for number in range(len(found.releases))],
    )


def seen_of(found: Calibrated, number: int) -> object:
    part = found.releases[number]
    return (
        *(part.sql, part.salted(12345), part.planned.lasting, part.planned.canonical, part.fingerprint, part.subject),
        *(part.measures, part.statistics, part.thresholds, part.tests, part.event, part.epsilon, part.delta),
        *(part.planned.post_processing_table, part.planned.release.domain, part.planned.release.knowledge.properties),
    )


def is_filled(conn: dpsql.Connection, sql: str, parameters: object = None, **options: Any) -> bool:
    return planned(conn, sql, parameters, **options).shape is not None


DAYS = "SELECT region, COUNT(*) AS n FROM orders WHERE day BETWEEN '{}' AND '{}' GROUP BY region"
SIMPLE: dict[str, list[object]] = {
    DAYS.format("2025-{0:02}-01", "2025-12-31"): list(range(1, 6)),
    "SELECT COUNT(*) FROM orders WHERE region = '{}'": ["north", "south", "east"],
    "SELECT COUNT(*) FROM orders WHERE product IN ('{0}', 'pen') AND {0!r} > product": ["ink", "pencil", "paper"],
    "SELECT SUM(amount) FROM orders WHERE quantity >= {} AND NOT paid": list(range(1, 6)),
    "SELECT SUM(quantity) FROM orders WHERE amount < {}.5": list(range(1, 6)),
    "SELECT COUNT(*) FROM orders WHERE price <> {}": list(range(1, 6)),
    "SELECT region, AVG(amount) FROM orders WHERE moment >= TIMESTAMP '2025-01-0{} 10:00:00' GROUP BY 1": [1, 2, 3],
    "SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer = c.id WHERE c.born > '198{}-01-01'": [1, 2, 3],
}


@pytest.mark.parametrize("sql", SIMPLE)
def test_from_the_third_literal_on_the_plan_is_there(conn: dpsql.Connection, sql: str) -> None:
    assert [is_filled(conn, sql.format(value)) for value in SIMPLE[sql]][:3] == [False, False, True]


@pytest.mark.parametrize(
    ("marks", "values"),
    [
        ("? AND ?", [[f"2025-01-0{day}", f"2025-02-0{day}"] for day in (1, 2, 3)]),
        ("$2 AND $1", [[f"2025-02-0{day}", date(2025, 1, day)] for day in (1, 2, 3)]),
        ("$low AND $high", [{"low": date(2025, 1, day), "high": date(2025, 2, day)} for day in (1, 2, 3)]),
        ("CAST(? AS DATE) AND ? AND paid AND size = 5", [[f"2025-01-0{day}", "2025-05-05"] for day in (1, 2, 3)]),
    ],
)
def test_so_it_is_for_parameters(conn: dpsql.Connection, marks: str, values: list[object]) -> None:
    sql = f"SELECT region, SUM(amount) FROM orders WHERE day BETWEEN {marks} GROUP BY region"
    assert [is_filled(conn, sql, value) for value in values] == [False, False, True]


DECIDING = [
    "SELECT SUM(amount) FROM orders WHERE amount < {}",
    "SELECT quantity, COUNT(*) FROM orders WHERE quantity < {} GROUP BY quantity",
    "SELECT COUNT(*) AS quantity FROM orders WHERE quantity < {}",
    "SELECT COUNT(*) FROM orders WHERE quantity < {} AND number > quantity",
    "SELECT COUNT(*) FROM orders WHERE quantity + 1 < {}",
    "SELECT COUNT(*) FROM orders WHERE quantity < {} OR paid",
    "SELECT COUNT_IF(quantity < {}) FROM orders",
    "SELECT COUNT(*) FILTER (WHERE quantity < {}) FROM orders",
    "SELECT SUM(CASE WHEN quantity < {} THEN amount END) FROM orders",
    "SELECT COUNT(*) FROM orders HAVING COUNT(*) > {}",
    "SELECT region, COUNT(*) FROM orders GROUP BY region LIMIT {}",
    "SELECT COUNT(*) FROM orders WHERE customer < {}",
    "SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer = c.id AND quantity < {}",
    "SELECT COUNT(*) FROM orders NATURAL JOIN customers WHERE quantity < {}",
    "SELECT COUNT(DISTINCT product) FROM (SELECT * FROM orders) WHERE quantity < {}",
    "SELECT SUM(LEAST(amount, {})) FROM orders",
    "SELECT AVG(n) FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer) WHERE n < {}",
    "SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders WHERE quantity < {})",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.1) COUNT(*) FROM orders WHERE quantity < {}",
]


@pytest.mark.parametrize("sql", DECIDING)
def test_a_literal_that_decides_is_another_question(conn: dpsql.Connection, sql: str) -> None:
    def compiled(value: int) -> object:
        return outcome(conn, sql.format(value), kept=True)

    refused = isinstance(compiled(10), tuple) and isinstance(compiled(10)[0], type)  # type: ignore[index]
    assert refused or not any(is_filled(conn, sql.format(value)) for value in range(11, 17))


def test_literals_that_decide_are_a_part_of_the_shape(conn: dpsql.Connection) -> None:
    sql = "SELECT SUM(amount) FROM orders WHERE amount < {} AND quantity > {}"
    filled = {(most, least): is_filled(conn, sql.format(most, least)) for most in (7, 8) for least in range(4)}
    assert [least for (most, least), is_so in filled.items() if is_so and most == 7] == [2, 3]
    assert [least for (most, least), is_so in filled.items() if is_so and most == 8] == [2, 3]
    bounds = [planned(conn, sql.format(most, 3)).releases[0].release.measures[0].linf for most in (7, 8)]
    assert bounds[0] < bounds[1]


MISFITS = ["2024-01-01", "2026-12-31", "2027-01-01", "2025-02-30", "2025-01-01 12:00:00", "", "pen", "2025-01-22"]


def test_a_literal_that_does_not_fit_is_planned_for_itself(conn: dpsql.Connection) -> None:
    for day in (1, 2, 3):
        assert is_filled(conn, DAYS.format(f"2025-01-0{day}", "2025-02-02")) == (day == 3)
    for text in MISFITS:
        sql = DAYS.format(text, "2025-02-02")
        assert outcome(conn, sql, kept=True) == outcome(conn, sql, kept=False)
        if isinstance(outcome(conn, sql, kept=True)[0], QueryRequest):  # type: ignore[index]
            # A timestamp beside dates is its day.
            assert is_filled(conn, sql) == (text.startswith("2025"))
    assert is_filled(conn, DAYS.format("2025-02-02", "2025-01-01")), "no day is between these; it is asked all the same"


NOT_THE_SHAPE: list[tuple[str, list[object] | None]] = [
    ("SELECT COUNT(*) FROM orders WHERE product = '\0'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = '\0'", ["pen"]),
    ("SELECT COUNT(*) FROM orders WHERE product = ''", ["pen"]),
    ("SELECT COUNT(*) FROM orders WHERE product = ?", ["pen"]),
    ("SELECT COUNT(*) FROM orders WHERE product = 'it''s'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 'it'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 'it's'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 'it", None),
    ("SELECT COUNT(*) FROM orders WHERE product = '--'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = '\\'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = e'pen'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = x'70'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = $$pen$$", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 'pen' -- it's", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 'pen' /* 'ink' */", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 'pen' 'cil'", None),
    ('SELECT COUNT(*) FROM orders WHERE product = "pen"', None),
    ("SELECT COUNT(*) FROM orders WHERE product = '\ud800'", None),
    ("SELECT COUNT(*) FROM orders WHERE product = 5", None),
    ("SELECT COUNT(*) FROM orders WHERE product = NULL", None),
]


def test_texts_are_told_apart_as_the_parser_does(conn: dpsql.Connection) -> None:
    """Whatever was asked before, and in whatever order."""
    for asked in (NOT_THE_SHAPE, NOT_THE_SHAPE[::-1], NOT_THE_SHAPE):
        for name in ("ink", "paper", "glue"):
            planned(conn, f"SELECT COUNT(*) FROM orders WHERE product = '{name}'")
        for sql, parameters in asked:
            assert outcome(conn, sql, parameters, kept=True) == outcome(conn, sql, parameters, kept=False), sql


def test_a_comparison_that_is_made_twice_is_planned_for_itself(conn: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) FROM orders WHERE quantity > {} AND quantity > {}"
    assert [is_filled(conn, sql.format(one, other)) for one, other in [(1, 2), (1, 3), (1, 4), (2, 2)]] == [
        *(False, False, True, False)
    ]


def test_what_is_filled_is_answered_charged_and_recalled_as_what_it_is(
    raw: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    days = "DATE '2025-01-01' + CAST(i // 100 AS INTEGER)"
    raw.execute(f"INSERT INTO orders (customer, region, day) SELECT i, 'north', {days} FROM range(6000) AS r(i)")
    account: dict[str, Any] = {"schema": SCHEMA, "budget": 1000.0, "ledger": tmp_path / "shop.ledger"}
    asked = [DAYS.format(f"2025-01-{day:02}", "2025-01-31") for day in (1, 5, 10, 20)]
    with dpsql.connect(raw, **account) as conn:
        answers = [conn.execute(sql, epsilon=50).fetchall() for sql in asked]
        assert [is_filled(conn, sql, epsilon=50) for sql in asked] == [False, False, True, True]
        assert [round(dict(rows)["north"], -2) for rows in answers] == [3100, 2700, 2200, 1200]
        assert list(conn.history()["sql"].dropna().unique()) == asked
    with dpsql.connect(raw, **account) as conn:
        # Planned anew, it is the same release: asked again is free.
        again = [conn.execute(sql, epsilon=50) for sql in reversed(asked)]
        assert [cursor.receipt.cost.epsilon for cursor in again] == [0.0] * 4
        assert [cursor.fetchall() for cursor in again] == answers[::-1]


def test_a_price_is_found_for_each_account_as_it_stands(conn: dpsql.Connection) -> None:
    """Also where the shape had one before."""
    for day in range(1, 9):
        sql = DAYS.format(f"2025-01-0{day}", "2025-02-02")
        assert outcome(conn, sql, kept=True) == outcome(conn, sql, kept=False)
        assert is_filled(conn, sql) == (day > 2)
        for options in ({"epsilon": 0.1}, {"accuracy": 40}, {"mechanism": "laplace"}, {"weights": {"n": 2}}):
            public = conn.session.environment.public()
            request = conn.session.request(sql, None, **options)
            kept, cold = (compile_question(request, replace(public, plans=one)) for one in (public.plans, PlanCache()))
            assert (kept.request, str(kept)) == (cold.request, str(cold))
        conn.execute(sql, epsilon=8)


def test_threads_share_plans(conn: dpsql.Connection) -> None:
    asked = [DAYS.format(f"2025-{month:02}-{day:02}", "2025-12-31") for month in range(1, 11) for day in range(1, 9)]
    alone = [outcome(conn, sql, kept=False) for sql in asked]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda sql: outcome(conn, sql, kept=True), asked))
    assert together == alone
    assert sum(is_filled(conn, sql) for sql in asked) > 70


# -- generated questions ----------------------------------------------------------------------------------------------

SELECTED = [
    "SELECT COUNT(*) FROM orders WHERE {}",
    "SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders WHERE {} GROUP BY region ORDER BY n LIMIT 2",
    "SELECT product, COUNT(DISTINCT customer), AVG(quantity) FROM orders o WHERE {} GROUP BY ALL HAVING COUNT(*) > 9",
    "SELECT MEDIAN(amount), MODE(size) FROM orders WHERE {} AND price < 400",
    "SELECT day, SUM(LEAST(price, 10)) FROM orders WHERE {} GROUP BY ROLLUP (day)",
    "SELECT AVG(n) FROM (SELECT customer, COUNT(*) AS n FROM orders WHERE {} GROUP BY customer)",
    "WITH o AS (SELECT customer, amount FROM orders WHERE {}) SELECT SUM(o.amount) FROM o "
    "JOIN customers c ON c.id = o.customer WHERE c.born < '1980-05-05'",
    "SELECT COUNT(*) FROM customers WHERE id IN (SELECT customer FROM orders WHERE {})",
    "SELECT SUM(CASE WHEN region = 'north' THEN amount END) FROM orders WHERE {} OR product = 'x'",
    "SELECT COUNT(*) FILTER (WHERE {}) FROM orders",
    "SELECT * FROM (SELECT region, COUNT(*) AS n FROM orders WHERE {} GROUP BY region) WHERE n > 7",
]
COLUMNS: dict[str, list[object]] = {
    "region": ["north", "south", "east", "west", "", "it's", None],
    "product": ["pen", "ink", "pen ", "", "x" * 300, "NULL", "it's", "\\", "é", None],
    "day": [
        *(
            "2025-03-01",
            "2025-03-02",
            "2024-01-02",
            "2024-01-01",
            "2026-12-31",
            "2027-01-01",
            "2025-02-30",
            "2025",
            "pen",
        ),
        *("2025-03-01 12:00:00", date(2025, 5, 5), date(2024, 1, 1), datetime(2025, 5, 5, 12), None),
    ],
    "moment": [
        *("2025-03-01", "2025-03-01 12:30:00", "2024-01-01", "2026-12-31 23:59:59", "2025-03-01T12:30"),
        *(datetime(2025, 5, 5, 12, 30), date(2025, 5, 5)),
    ],
    "seen": ["2025-03-01", "1025-03-01 12:30:00", datetime(2025, 5, 5, 12, 30, 0, 5)],
    "paid": [True, False, "true", 1, None],
    "size": [1, 2, 5, 3, "2", 1.0],
    "quantity": [3, 4, -10, 50, 49, -9, 51, 2.5, 3.5, 7.0, "7", 10**30, 2**63 - 1, True, None],
    "number": [3, 2**31, 2**63 - 1, 2**63, 0, -5, "12"],
    "amount": [3, 2.5, 0, 500, 0.1, 499.99, 1e3, Decimal("7.25"), 2**60, "3"],
    "weight": [3, 2.5, -1, 0.0, -0.0, 1e300, Decimal("0.1")],
    "price": [3, 2.5, 2.25, 7.125, 0, 500, Decimal("3.50"), Decimal("3.5"), 10**12],
    "tax": [3, 2.5, 7.125, 0.0001, 10**6],
}
TESTS = [
    "{c} = {v}",
    "{c} < {v}",
    "{c} >= {v}",
    "{v} > {c}",
    "{c} <> {v}",
    "{c} BETWEEN {v} AND {w}",
    "{c} IN ({v}, {w})",
]
MORE_TESTS = [
    "{c} >= {v} AND {c} >= {w}",
    "NOT {c} = {v}",
    "({c} = {v} AND paid)",
    "{c} BETWEEN SYMMETRIC {v} AND {w}",
    "{c} NOT IN ({v}, {w})",
    "{c} IS NOT DISTINCT FROM {v}",
    "COALESCE({c}, {v}) = {w}",
    "CAST({c} AS VARCHAR) = {v}",
    "{c} >= CAST({v} AS DATE)",
    "{c} = CAST({v} AS INTEGER)",
    "{c} <= TRY_CAST({v} AS DOUBLE)",
    "{c} > -({v})",
    "{c} = ({v}) AND {c} <> {w}",
    "{c} < {v} + {w}",
]


def written(value: object) -> str:
    match value:
        case None | bool():
            return str(value).upper().replace("NONE", "NULL")
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value}'"
        case date():
            return f"DATE '{value}'"
    return str(value)


def asked(random: Random, selected: str, test: str, column: str) -> list[tuple[str, list[object] | None]]:
    """The question with several literals, and the same with parameters; ordinary ones come first, or whichever."""
    found: list[tuple[str, list[object] | None]] = []
    holes = test.count("{v}") + test.count("{w}")
    marked = selected.format(test.format(c=column, v="?", w="?"))
    values = COLUMNS[column]
    ordinary = [values[:2], values[1::-1]] * random.randint(0, 1)
    for v, w in [*ordinary, *(random.choices(values, k=2) for _ in range(5))]:
        found.append((selected.format(test.format(c=column, v=written(v), w=written(w))), None))
        found.append((marked, [v, w][:holes]))
    return found


SAMPLED = 40
"""Of all questions that are made of these; `long` asks every one."""
ORDINARY = list(product(SELECTED[:8], TESTS, COLUMNS))
EVERYTHING = list(product(SELECTED, [*TESTS, *MORE_TESTS], COLUMNS))


def sample(random: Random, number: int) -> list[tuple[str, str, str]]:
    return random.sample(ORDINARY, number // 2) + random.sample(EVERYTHING, number // 2)


def compare(conn: dpsql.Connection, random: Random, made: list[tuple[str, str, str]]) -> int:
    """How many of the questions had a plan for many; each is seen as it is in a session of its own."""
    filled = 0
    for selected, test, column in made:
        for sql, parameters in asked(random, selected, test, column):
            warm, cold = (outcome(conn, sql, parameters, kept=kept) for kept in (True, False))
            assert warm == cold, (sql, parameters)
            filled += isinstance(warm[0], QueryRequest) and is_filled(conn, sql, parameters)
    return filled


def test_nobody_can_tell_which_plan_a_question_has(conn: dpsql.Connection) -> None:
    """Of questions that differ in literals: ordinary ones, odd ones, and ones on the edge of what is declared."""
    random = Random(7)
    assert compare(conn, random, sample(random, SAMPLED)) > SAMPLED // 2


@pytest.mark.long
def test_nobody_can_tell_which_plan_any_question_has(conn: dpsql.Connection) -> None:
    assert compare(conn, Random(8), EVERYTHING) > 1000


@pytest.mark.parametrize("render", [postgresql, spark])
def test_nor_on_another_engine(conn: dpsql.Connection, render: Render) -> None:
    engine = conn.session.environment.engine
    engine.render, engine.can_run = render, lambda sql: True  # type: ignore[misc,method-assign]
    random = Random(9)
    assert compare(conn, random, sample(random, SAMPLED // 4)) > 0


def test_nor_where_rows_stay(raw: duckdb.DuckDBPyConnection) -> None:
    """There a part of the SQL lasts from question to question."""
    frames = {name: raw.table(name) for name in ("customers", "orders")}
    with dpsql.connect(frames, schema=SCHEMA, budget=100.0, delta=1e-6) as conn:
        random = Random(10)
        assert compare(conn, random, sample(random, SAMPLED // 4)) > 0


ALIAS = "SELECT COUNT(*) AS '{0}' FROM orders WHERE quantity > {1} AND size > {2}"
LISTS = (
    "SELECT SUM(LEAST(amount, $2)) FROM orders WHERE quantity IN ($1) AND number IN ($3) AND size IN ($4)"
    " AND number + 0 < 900"
)
OTHERS_OPEN: dict[str, tuple[tuple[str, object], ...]] = {
    "a text that is a name, and so says which columns are read elsewhere": tuple(
        (ALIAS.format(*values), None)
        for values in (("size", 0, 2), ("size", 1, 2), ("quantity", 0, 1), ("quantity", 1, 1), ("size", 2, 0))
    ),
    "a list in the place of a value": tuple(
        (LISTS, values)
        for values in (
            *([1, 3, 2, (1, 2)], [0, 3, 2, (1, 2)]),
            *([(1, 2), 9, 2, 1], [(1, 5), 9, 2, 1], [(1, 3), 9, 2, 1]),
            [3, 2, (1, 2), 2],
        )
    ),
}


@pytest.mark.parametrize("asked_in_turn", OTHERS_OPEN.values(), ids=OTHERS_OPEN)
def test_questions_of_one_shape_may_leave_other_literals_open(
    conn: dpsql.Connection, asked_in_turn: tuple[tuple[str, object], ...]
) -> None:
    for sql, parameters in asked_in_turn:
        warm, cold = (outcome(conn, sql, parameters, kept=kept) for kept in (True, False))
        assert warm == cold, (sql, parameters)


def test_too_few_parameters_are_no_other_literals(conn: dpsql.Connection) -> None:
    question = "SELECT COUNT(*) FROM orders WHERE quantity BETWEEN ? AND ?"
    for values in ([1, 5], [2, 6], [3, 7]):
        conn.explain(question, values)
    with pytest.raises(dpsql.ProgrammingError, match="the query has 2 parameters, and 1 value was given"):
        conn.explain(question, [1])


# -- the questions of the tests ---------------------------------------------------------------------------------------

FILES = case_files()
EVERY = 16


def one_changed(random: Random, file: CaseFile, sql: str) -> Iterator[str]:
    """The question with each of its literals changed a few times, and all others as they are."""
    columns = [column for table in file.schema.tables.values() for column in table.columns.values()]
    lists = [[value for value in column.values or () if isinstance(value, str)] for column in columns]
    for token in DUCKDB.tokenize(sql):
        for _ in range(4 if token.token_type in (TokenType.NUMBER, TokenType.STRING) else 0):
            yield f"{sql[: token.start]}{changed(random, token, lists)}{sql[token.end + 1 :]}"


def changed(random: Random, token: Token, lists: list[list[str]]) -> str:
    if token.token_type is TokenType.NUMBER:
        return f"{max(0, float(token.text) + random.choice([1, 2, -1, 5, 100])):g}"
    values = next((values for values in lists if token.text in values), [token.text + "x"])
    try:
        return f"'{date.fromisoformat(token.text) + timedelta(random.randint(-400, 400))}'"
    except ValueError:
        return written(random.choice(values))


def compare_corpus(file: str, every: int) -> int:
    random, filled = Random(11), 0
    with duckdb.connect() as raw:
        raw.execute(FILES[file].create)
        with dpsql.connect(raw, schema=FILES[file].schema, budget=100.0, delta=1e-6) as conn:
            found = sorted((one for one in questions(FILES) if one.file == file), key=lambda one: one.sql)
            for question in found[::every]:
                for sql in [question.sql, *one_changed(random, FILES[file], question.sql)]:
                    warm, cold = (outcome(conn, sql, question.parameters, kept=kept) for kept in (True, False))
                    assert warm == cold, (sql, question.parameters)
                    filled += isinstance(warm[0], QueryRequest) and is_filled(conn, sql, question.parameters)
    return filled


@pytest.mark.parametrize("file", FILES)
def test_nor_of_the_questions_of_the_tests(file: str) -> None:
    assert compare_corpus(file, EVERY) >= {"shop": 5}.get(file, 0)


@pytest.mark.long
@pytest.mark.parametrize("file", FILES)
def test_nor_of_any_question_of_the_tests(file: str) -> None:
    compare_corpus(file, 1)


# -- no stage sees a literal that is left open ------------------------------------------------------------------------


class Sealed:
    """Nothing can be asked of it: not what it is, nor whether it is another."""

    __hash__ = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"a stage looked at a literal: {name}")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a stage compared a literal")

    def __bool__(self) -> bool:
        raise AssertionError("a stage tested a literal")

    __lt__ = __le__ = __gt__ = __ge__ = __str__ = __repr__ = __iter__ = __len__ = __bool__


class OverSealed(DuckDB):
    """Says where a literal goes, and does not look at it."""

    def constant(self, constant: Constant) -> str:
        if type(constant.value) is not Sealed:
            return super().constant(constant)
        return "sealed"


def test_no_stage_looks_at_a_literal_that_is_left_open(conn: dpsql.Connection) -> None:
    """Planned with literals that nobody can look at, and then filled: the SQL of the question that was planned with
    its literals in sight."""
    random, number = Random(12), 0
    public = conn.session.environment.public()
    for selected, test, column in random.sample(ORDINARY, SAMPLED):
        for sql, parameters in asked(random, selected, test, column):
            request = conn.session.request(sql, parameters)
            shape = shape_of(request, "")
            parsed = parsed_or_none(request, public)
            tests = inert_tests(parsed.tree, shape.places, public.schema) if parsed and shape else ()
            literals = read_inert(tests, shape.values) if shape else None
            if parsed is None or shape is None or not literals:
                continue
            sealed = replace(
                public,
                literals={name: Sealed() for name in literals},  # type: ignore[misc]
                render=lambda query, blanks=None: OverSealed(blanks).query(query),
            )
            try:
                blind = _planned(replace(parsed, tree=with_marks(parsed.tree, shape.places, literals)), sealed)
            except dpsql.InternalError:
                continue  # it would have to look, and says so
            values = {name: literal.value for name, literal in literals.items()}
            filled = [replace(one, render=public.render, literals=values) for one in blind.releases]
            assert [one.shown for one in filled] == list(_planned(request, public).asked[0]), sql
            number += 1
    assert number > SAMPLED


def parsed_or_none(request: QueryRequest, public: PublicEnvironment) -> Parsed | None:
    try:
        _planned(request, public)
        return parse_sql(request, public)
    except dpsql.Error:
        return None

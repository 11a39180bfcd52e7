"""A question is compiled in proportion to its length, or refused, and what is compiled the engine can read in time.

What would double with every level would not end.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp

import dpsql
from dpsql import limits
from dpsql.engines.base import engine_type
from dpsql.engines.duckdb.render import render_term
from dpsql.errors import Error
from dpsql.expressions.emit import emit
from dpsql.expressions.properties import property_of
from dpsql.expressions.tree import Misfit
from dpsql.pipeline import stages

TABLE = runpy.run_path(str(Path(__file__).parent / "expressions" / "test_table.py"))

DEEP, HALF = 24, 12
LONGEST_SQL, MOST_STEPS = 200_000, 200_000
"""What doubled with every level would take minutes; a second is what is aimed at."""

SCHEMA: dict[str, Any] = {
    "dataset": "deep",
    "contribution": {"max_groups": 4, "max_rows_per_group": 5},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": {"type": "integer", "bounds": [0, 100]},
                "x": {"type": "double", "bounds": [-100, 100], "nullable": True},
                "s": "text",
                "b": "boolean",
                "d": {"type": "date", "bounds": ["2020-01-01", "2024-12-31"]},
                "m": "timestamp",
            },
        },
        "p": {"public": True, "columns": {"k": "integer"}},
    },
}


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    engine = duckdb.connect()
    engine.execute("CREATE TABLE t (u BIGINT, k BIGINT, x DOUBLE, s VARCHAR, b BOOLEAN, d DATE, m TIMESTAMP)")
    engine.execute("CREATE TABLE p (k BIGINT)")
    return engine


@pytest.fixture(scope="module")
def conn(engine: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(engine, schema=SCHEMA, budget=100.0, delta=1e-6) as conn:
        yield conn


def compiled(conn: dpsql.Connection, sql: str, *parameters: object) -> list[str]:
    question = conn.session.request(sql, parameters or None)
    return [
        str(release.salted(0))
        for release in stages.compile_question(question, conn.session.environment.public()).releases
    ]


def small(conn: dpsql.Connection, engine: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Whether it compiles to little SQL that the engine reads; else it is refused."""
    try:
        written = compiled(conn, sql)
    except Error:
        return False
    assert sum(map(len, written)) < LONGEST_SQL
    for release in written:
        engine.execute(release).fetchall()
    return True


# -- functions within functions ----------------------------------------------------------------------------------------


NESTED = {
    "SQRT": "SQRT({})",
    "LN": "LN({})",
    "LOG10": "LOG10({})",
    "ASIN": "ASIN({})",
    "ACOS": "ACOS({})",
    "SIN": "SIN({})",
    "TAN": "TAN({})",
    "ATAN2": "ATAN2({}, x)",
    "EXP": "EXP({})",
    "POWER": "POWER({}, 2)",
    "NULLIF": "NULLIF({}, x)",
    "WIDTH_BUCKET": "WIDTH_BUCKET({}, 0, 10, 5)",
    "ROUND": "ROUND({}, -1)",
    "ABS": "ABS({})",
    "divided": "(k / {})",
    "LEAST": "LEAST({}, 50)",
    "COALESCE": "COALESCE({}, x)",
    "CASE": "CASE WHEN {} > 3 THEN 5 ELSE k END",
    "CASE of": "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE k END",
    "BETWEEN": "CASE WHEN {} BETWEEN 1 AND 3 THEN k ELSE 4 END",
    "doubled": "({0} + {0})",
}
PLACES = (
    "SELECT SUM(LEAST(GREATEST({}, 0), 9)) FROM t",
    "SELECT COUNT(*) FROM t WHERE {} > 1",
    "SELECT k, COUNT({}) FROM t GROUP BY k",
)
REFUSED = {"CASE of", "doubled", "BETWEEN"}
"""What the analyst himself writes twice is no operand of ours."""


def nest(form: str, depth: int = DEEP) -> str:
    value = "x"
    for _ in range(depth):
        value = form.format(value) if len(value) < 20_000 else value
    return value


TWO_LEVELS = (
    "(k // CAST({} AS BIGINT))",
    "ROUND(CAST({} AS BIGINT), -1)",
    "YEAR(MAKE_DATE(CAST({} AS BIGINT), 1, 1))",
    "DATE_DIFF('day', d, d + CAST({} AS BIGINT))",
    "LENGTH(CAST({} AS VARCHAR))",
    "LEAST(GREATEST({}, 0), 50)",
)


@pytest.mark.parametrize("form", TWO_LEVELS)
def test_pairs_of_functions_nested_deeply_stay_small(
    conn: dpsql.Connection, engine: duckdb.DuckDBPyConnection, form: str
) -> None:
    assert small(conn, engine, PLACES[1].format(nest(form, HALF)))


@pytest.mark.parametrize("name", NESTED)
def test_functions_nested_deeply_stay_small(
    conn: dpsql.Connection, engine: duckdb.DuckDBPyConnection, name: str
) -> None:
    place = PLACES[list(NESTED).index(name) % len(PLACES)]
    assert small(conn, engine, place.format(nest(NESTED[name]))) or name in REFUSED


def test_functions_nested_in_turns_stay_small(conn: dpsql.Connection, engine: duckdb.DuckDBPyConnection) -> None:
    forms = [form for name, form in NESTED.items() if name not in REFUSED]
    for start in range(0, len(forms), 5):
        value = "x"
        for level in range(DEEP):
            value = forms[(start + level) % len(forms)].format(value)
        assert small(conn, engine, PLACES[start % len(PLACES)].format(value))


REPRESENTATIVES = {case.function: case.sql for case in reversed(TABLE["CASES"])}
"""The first example of each function."""


def nested_in_itself(sql: str) -> str:
    """In the place of the first column of the same type; where there is none, cast to the type of the first column."""
    kind = TABLE["lowered"](sql).type
    names = [column.name for column in sqlglot.parse_one(sql, read="duckdb").find_all(exp.Column)]
    same = [name for name in names if TABLE["KINDS"][name] == kind]
    place = (same or names)[0]
    cast = "{}" if same else f"CAST({{}} AS {engine_type(TABLE['KINDS'][place])})"
    form, value = re.sub(rf"\b{place}\b", "{}", sql, count=1), place
    for _ in range(DEEP if same else HALF):
        value = form.format(cast.format(f"({value})" if form[0] == "-" else value))  # -- is a comment
    return value


@pytest.mark.parametrize("function", [name for name in REPRESENTATIVES if name != "PI"])
def test_every_function_nested_in_itself_stays_small(
    function: str, steps: Callable[[Callable[[], object]], int]
) -> None:
    known = {name: property_of(kind, nullable=True) for name, kind in TABLE["KINDS"].items()}

    def emitted() -> None:
        with suppress(Error, Misfit):  # refused is right too
            value = emit(TABLE["lowered"](nested_in_itself(REPRESENTATIVES[function])), known)
            lengths.append(len(render_term(value)))

    lengths: list[int] = []
    taken = steps(emitted)
    assert taken < MOST_STEPS
    assert all(length < LONGEST_SQL for length in lengths)


def test_a_named_operand_means_the_same() -> None:
    """Here operands have names, in plain SQL they are pasted."""
    engine = duckdb.connect()
    engine.execute("CREATE TABLE t AS SELECT i AS u, i - 50 AS k, CAST(i - 50 AS DOUBLE) AS x FROM range(100) r(i)")
    columns = {"u": "integer", "k": "integer", "x": {"type": "double", "bounds": [-100, 100]}}
    schema = {"dataset": "same", "tables": {"t": {"unit": "u", "unique": True, "columns": columns}}}
    value = "x"
    for level in range(10):
        value = f"NULLIF(SQRT(ABS({value}) * 4) - {level % 3}, 0.5)"
    assert "lambda" in compiled(dpsql.connect(engine, schema=schema, budget=1.0), f"SELECT COUNT({value}) FROM t")[0]
    with dpsql.connect(engine, schema=schema, budget=1e9, delta=1e-6) as conn:
        counted = conn.execute(f"SELECT COUNT({value}), COUNT_IF({value} > 1) FROM t", epsilon=1e7).fetchall()
    plain = engine.execute(
        f"SELECT COUNT(v), COUNT(*) FILTER (v > 1) FROM (SELECT {value} AS v FROM t) WHERE isfinite(v) OR v IS NULL"
    ).fetchall()
    assert counted == plain


# -- relations ---------------------------------------------------------------------------------------------------------


def chain(word: str) -> str:
    return f"SELECT COUNT(*) FROM ({f' {word} '.join(['SELECT u, k FROM t'] * DEEP)})"


def with_queries(step: str, top: str = "SELECT COUNT(*) FROM c{last}", first: str = "SELECT u, k, b FROM t") -> str:
    steps = ", ".join(f"c{number} AS ({step.format(c=f'c{number - 1}', i=number)})" for number in range(1, DEEP))
    return f"WITH c0 AS ({first}), {steps} {top.format(last=DEEP - 1)}"


def within(form: str, depth: int = DEEP, inner: str = "true") -> str:
    for level in range(depth):
        inner = form.format(inner, i=level)
    return inner


def branches(first: int) -> str:
    return f"COUNT(CASE {' '.join(f'WHEN k = {number} THEN 1' for number in range(first, 600, 2))} END)"


TALL = {
    "cases that exclude each other": f"SELECT {branches(0)}, {branches(1)} FROM t",
    "EXCEPT": chain("EXCEPT"),
    "INTERSECT": chain("INTERSECT"),
    "UNION": chain("UNION"),
    "UNION ALL": chain("UNION ALL"),
    "JOIN": "SELECT COUNT(*) FROM t "
    + " ".join(f"JOIN (SELECT u, MAX(k) AS k FROM t GROUP BY u) t{i} ON t{i}.u = t.u" for i in range(DEEP)),
    "WITH once": with_queries("SELECT u, NULLIF(k, {i}) AS k, b FROM {c} WHERE k > 1"),
    "subqueries": "SELECT COUNT(*) FROM " + within("(SELECT u, k + 1 AS k FROM {0})", inner="t") + " WHERE k > 3",
    "IN": "SELECT COUNT(*) FROM t WHERE " + within("u IN (SELECT u FROM t WHERE {0})"),
    "values": within("SELECT AVG(x) FROM t WHERE x > ({0})", inner="SELECT AVG(x) FROM t"),
    "per unit": "SELECT COUNT(*) FROM " + within("(SELECT u, MAX(k) AS k FROM {0} GROUP BY u)", inner="t"),
    "sums per unit": "SELECT SUM(n) FROM "
    + within("(SELECT u, SUM(n) AS n FROM {0} GROUP BY u)", inner="(SELECT u, COUNT(*) AS n FROM t GROUP BY u)"),
}
DOUBLING = {
    "WITH twice": with_queries("SELECT u, k FROM {c} UNION ALL SELECT u, k FROM {c}"),
    "WITH joined": with_queries("SELECT a.u, b.k FROM {c} a JOIN {c} b ON a.u = b.u"),
    "WITH tested": with_queries("SELECT u, k FROM {c} WHERE u IN (SELECT u FROM {c})"),
    "a column twice": with_queries("SELECT u, (b AND b = true) AS b FROM {c}", "SELECT COUNT(*) FROM c{last} WHERE b"),
    "an alias twice": "SELECT COUNT(*) FROM (SELECT u, k AS a0"
    + "".join(f", a{i} + a{i} AS a{i + 1}" for i in range(DEEP))
    + f" FROM t) WHERE a{DEEP} > 3",
    "public rows": with_queries(
        "SELECT a.k FROM {c} a JOIN {c} b ON a.k = b.k",
        "SELECT COUNT(*) FROM t JOIN c{last} c ON t.k = c.k",
        "SELECT k FROM p",
    ),
}


@pytest.mark.parametrize("name", TALL)
def test_tall_queries_stay_small(
    conn: dpsql.Connection,
    engine: duckdb.DuckDBPyConnection,
    steps: Callable[[Callable[[], object]], int],
    name: str,
) -> None:
    assert steps(lambda: compiled(conn, TALL[name])) < 10 * MOST_STEPS
    assert small(conn, engine, TALL[name])


@pytest.mark.parametrize("name", DOUBLING)
def test_what_doubles_with_every_step_is_refused(conn: dpsql.Connection, name: str) -> None:
    with pytest.raises(Error, match="more than") as caught:
        compiled(conn, DOUBLING[name])
    assert caught.value.hint


# -- limits ------------------------------------------------------------------------------------------------------------


def repeated(form: str, count: int, word: str) -> str:
    return f" {word} ".join(form.format(number) for number in range(count))


TOO_MUCH: dict[str, tuple[str, tuple[object, ...]]] = {
    "characters": (f"SELECT COUNT(*) FROM t WHERE s = '{'a' * limits.LONGEST_QUERY}'", ()),
    "a parameter": ("SELECT COUNT(*) FROM t WHERE s = ?", ("a" * (limits.LONGEST_PARAMETER + 1),)),
    "parameters": (f"SELECT COUNT(*) FROM t WHERE s IN ({','.join('?' * 20)})", ("a" * 9_000,) * 20),
    "a list": (f"SELECT COUNT(*) FROM t WHERE k IN ({','.join('1' * (limits.LONGEST_LIST + 1))})", ()),
    "a list of rows": (
        f"SELECT COUNT(*) FROM t WHERE k IN (VALUES {','.join(['(1)'] * (limits.LONGEST_LIST + 1))})",
        (),
    ),
    "OR": (f"SELECT COUNT(*) FROM t WHERE {repeated('k = {}', 2_000, 'OR')}", ()),
    "AND": (f"SELECT COUNT(*) FROM t WHERE {repeated('k <> {}', 2_000, 'AND')}", ()),
    "exceptions": (f"SELECT COUNT(*) FROM t WHERE {repeated('k <> {}', limits.MOST_TERMS + 1, 'AND')}", ()),
    "subqueries": (within("SELECT AVG(x) FROM t WHERE x > ({0}) AND x < ({0})", 7, "SELECT AVG(x) FROM t"), ()),
    "plus": (f"SELECT SUM({repeated('k', 5_000, '+')}) FROM t", ()),
    "minus signs": (f"SELECT SUM({'- ' * 5_000}k) FROM t", ()),
    "NOT": (f"SELECT COUNT(*) FROM t WHERE {'NOT ' * 5_000}b", ()),
    "tables": (f"SELECT COUNT(*) FROM ({repeated('SELECT u FROM t', limits.MOST_TABLES + 1, 'UNION ALL')})", ()),
    "releases": (f"SELECT {repeated('(SELECT COUNT(*) FROM t WHERE k = {})', limits.MOST_RELEASES + 1, ',')}", ()),
    "a compared text": ("SELECT COUNT(*) FROM t WHERE LEVENSHTEIN(s, ?) < 3", ("a" * (limits.LONGEST_COMPARED + 1),)),
    "brackets of types": (f"SELECT COUNT(*) FROM t WHERE k = {'int[' * 30}1{']' * 30}", ()),
    "brackets of arrays": (f"SELECT COUNT(*) FROM t WHERE k = {'array[' * 30}1{']' * 30}", ()),
    "a pattern": ("SELECT COUNT(*) FROM t WHERE s LIKE ?", ("a" * (limits.LONGEST_PATTERN + 1),)),
    "a part": ("SELECT COUNT(*) FROM t WHERE CONTAINS(s, ?)", ("a" * (limits.LONGEST_PATTERN + 1),)),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused_before_the_charge(conn: dpsql.Connection, name: str) -> None:
    sql, parameters = TOO_MUCH[name]
    before = conn.budget.spent
    with pytest.raises(Error) as caught:
        conn.execute(sql, parameters or None, epsilon=1.0)
    assert caught.value.hint
    assert conn.budget.spent == before


def test_long_lists_and_chains_that_people_write_are_answered(
    conn: dpsql.Connection, engine: duckdb.DuckDBPyConnection
) -> None:
    assert small(conn, engine, f"SELECT COUNT(*) FROM t WHERE k IN ({','.join(map(str, range(2_000)))})")
    assert small(conn, engine, f"SELECT COUNT(*) FROM t WHERE {repeated('k <> {}', limits.MOST_TERMS, 'AND')}")
    assert small(conn, engine, f"SELECT COUNT(*) FROM t WHERE k NOT IN ({','.join(map(str, range(2_000)))})")
    assert small(conn, engine, f"SELECT SUM({repeated('k', 100, '+')}) FROM t")
    assert small(conn, engine, f"SELECT SUM(CASE {repeated('WHEN k = {0} THEN {0}', 300, ' ')} END) FROM t")


def test_an_explanation_names_long_expressions_in_time(
    conn: dpsql.Connection, steps: Callable[[Callable[[], object]], int]
) -> None:
    """A survey's score of thirty answers, and a sum of a hundred products."""
    score = repeated("CASE WHEN x > {0} THEN {0} ELSE k END", 30, "+")
    for value in (score, repeated("k * {}", 100, "+"), nest("ABS({})", 30)):
        sql = f"SELECT SUM({value}, contribution_bounds_per_row => (0, 9)) FROM t"
        assert steps(lambda sql=sql: conn.explain(sql, epsilon=0.1)) < 5 * MOST_STEPS


def test_every_limit_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "sql.md").read_text(encoding="utf-8")
    section = page.partition("## Limits")[2].partition("\n## ")[0]
    numbers = {int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]*\b", section)}
    assert {value for name, value in vars(limits).items() if name.isupper()} <= numbers

"""Texts put together from constants are what DuckDB makes of them, and are folded only where that is certain."""

from __future__ import annotations

import random

import duckdb
import pytest

import dpsql
from dpsql.expressions.constants import TEXTS

SCHEMA = {
    "dataset": "texts",
    "tables": {"t": {"unit": "person", "unique": True, "columns": {"person": "integer", "s": "text"}}},
}
LETTERS = " aAbB%_-x'9zZ.*()"
CALLS = {
    "LOWER": "lower({a})",
    "UPPER": "upper({a})",
    "REVERSE": "reverse({a})",
    "TRIM": "trim({a}, {b})",
    "LTRIM": "ltrim({a}, {b})",
    "RTRIM": "rtrim({a}, {b})",
    "REPLACE": "replace({a}, {b}, {c})",
    "LEFT": "left({a}, {i})",
    "RIGHT": "right({a}, {i})",
    "SUBSTRING": "substring({a}, {n}, {m})",
    "||": "{a} || {b}",
    "CONCAT": "concat({a}, {b}, {i})",
    "CONCAT_WS": "concat_ws({a}, {b}, {c}, {i})",
    "CAST AS text": "cast({i} AS VARCHAR)",
}


def constants(source: random.Random) -> dict[str, str | int]:
    texts = {name: "".join(source.choices(LETTERS, k=source.randrange(6))) for name in "abc"}
    return texts | {"i": source.randrange(-7, 8), "n": source.randrange(1, 5), "m": source.randrange(5)}


def arguments(call: str, given: dict[str, str | int]) -> list[str | int]:
    return [given[name] for name in "abcinm" if "{" + name + "}" in call]


def quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def test_each_function_has_a_call() -> None:
    assert TEXTS.keys() == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_the_same_text_as_duckdbs(name: str) -> None:
    source = random.Random(name)
    for _ in range(100):
        given = constants(source)
        written = CALLS[name].format(**{key: quoted(value) for key, value in given.items()})
        plain = duckdb.execute(f"SELECT {written}").fetchone()
        assert plain == (TEXTS[name](*arguments(CALLS[name], given)),), written


@pytest.fixture(scope="module")
def conn() -> dpsql.Connection:
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE t AS SELECT i AS person, chr((97 + i % 3)::INTEGER) || 'bc' AS s FROM range(90) AS r(i)"
    )
    with pytest.warns(dpsql.errors.Warning):
        return dpsql.connect(database, schema=SCHEMA, budget=1e12, query_epsilon=1e6)


@pytest.mark.parametrize(
    "pattern",
    [
        "LOWER('A%')",
        "'a' || '%'",
        "CONCAT('a', NULL, '%')",
        "REPLACE('a*', '*', '%')",
        "COALESCE(NULL, 'a%')",
        "TRIM(' a% ')",
    ],
)
def test_a_pattern_may_be_put_together(conn: dpsql.Connection, pattern: str) -> None:
    assert conn.execute(f"SELECT COUNT(*) FROM t WHERE s LIKE {pattern}").fetchone() == (30,)


@pytest.mark.parametrize("pattern", ["LOWER('Ä%')", "UPPER('straße%')", "s || '%'", "'a' || NULL"])
def test_what_databases_may_see_differently_is_no_constant(conn: dpsql.Connection, pattern: str) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="LIKE takes a text and a constant pattern"):
        conn.execute(f"SELECT COUNT(*) FROM t WHERE s LIKE {pattern}")


def test_a_constant_does_not_grow_without_limit(conn: dpsql.Connection) -> None:
    grown = "'aaaaaaaaaa'"
    for _ in range(12):
        grown = f"REPLACE({grown}, 'a', 'aaaaaaaaaa')"
    with pytest.raises(dpsql.Error):
        conn.execute(f"SELECT COUNT(*) FROM t WHERE s LIKE {grown}")

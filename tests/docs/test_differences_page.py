"""docs/differences.md is true: each example answers here and in DuckDB as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
import yaml

import dpsql

PAGE = (Path(__file__).parents[2] / "docs/differences.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(_, SCHEMA), (_, DATA), *EXAMPLES = BLOCKS
SHOWN = re.compile(r"dpsql   (?P<here>.*)\nDuckDB  (?P<there>.*)\n")
PAIRS = [
    pytest.param(sql.strip(), shown, id=sql.splitlines()[0][:60])
    for (_, sql), (_, shown) in zip(EXAMPLES[::2], EXAMPLES[1::2], strict=True)
]


@pytest.fixture(scope="module")
def plain() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(DATA)
    return connection


@pytest.fixture(scope="module")
def private(plain: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    schema = yaml.safe_load(SCHEMA)
    return dpsql.connect(plain, schema=schema, budget=1e15, delta=1e-6, query_epsilon=1e9)


@pytest.mark.parametrize(("sql", "shown"), PAIRS)
def test_the_page_shows_both_answers(
    sql: str, shown: str, plain: duckdb.DuckDBPyConnection, private: dpsql.Connection
) -> None:
    said = SHOWN.fullmatch(shown)
    assert said is not None
    assert ", ".join(map(repr, sorted(private.execute(sql).fetchall()))) == said["here"]
    assert plain_answer(plain, sql) == said["there"] != said["here"]


def plain_answer(plain: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        return ", ".join(map(repr, sorted(plain.execute(sql).fetchall())))
    except duckdb.ConversionException:
        return "an error"


def test_the_blocks_are_what_they_seem() -> None:
    assert [kind for kind, _ in BLOCKS] == ["yaml", "sql", *["sql", "text"] * len(PAIRS)]

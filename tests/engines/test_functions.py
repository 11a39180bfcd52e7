"""Every function of the closed table, on PostgreSQL: DuckDB's values, for rows that hold the worst, and no failure."""

from __future__ import annotations

import itertools
import math
import random
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsql.engines.duckdb.render import render_term
from dpsql.engines.postgresql.render import PostgreSQL
from dpsql.engines.postgresql.scalars import type_name
from dpsql.errors import Unsupported
from dpsql.expressions.emit import written
from dpsql.expressions.tree import Call, Column, Expression
from dpsql.schema.types import Text

table = runpy.run_path(str(Path(__file__).parents[1] / "expressions" / "test_table.py"))
TABLES, KINDS = table["TABLES"], table["KINDS"]
EXPRESSIONS: list[Expression] = [table["lowered"](case.sql) for case in table["CASES"]]
TOGETHER = 20
"""Expressions that one query computes."""


@pytest.fixture(scope="module")
def ask(postgresql_url: str) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """A connection as the engine has it, to the rows that DuckDB's functions are tried on."""
    import psycopg

    from dpsql.engines.postgresql.engine import SETTINGS

    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS functions CASCADE; CREATE SCHEMA functions")
        for name, _ in TABLES:
            columns = [
                f"{column} {type_name(kind)}" + ' COLLATE "C"' * isinstance(kind, Text)
                for column, kind in KINDS.items()
            ]
            connection.execute(f"CREATE TABLE functions.{name} (place INTEGER, {', '.join(columns)})".encode())
            with connection.cursor().copy(f"COPY functions.{name} FROM STDIN".encode()) as copy:
                for place, row in enumerate(table["database"]().execute(f"SELECT * FROM {name}").fetchall()):
                    copy.write_row([place, *(None if value is None else str(value) for value in row)])
        for setting, value in SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", [setting, value])
        yield lambda sql: connection.execute(sql.encode()).fetchall()


def assert_alike(expressions: list[Expression], ask: Callable[[str], list[tuple[Any, ...]]]) -> int:
    """How many have words on PostgreSQL; each of these has DuckDB's value for every row, and fails for none."""
    said = 0
    parts = [expressions[first : first + TOGETHER] for first in range(0, len(expressions), TOGETHER)]
    for (name, known), part in itertools.product(TABLES, parts):
        ours = [(expression, written(expression, known).sql) for expression in part]
        spelled = [(expression, sql, words) for expression, sql in ours if (words := in_words(sql)) is not None]
        if not spelled:
            continue
        theirs = ask(f"SELECT {', '.join(words for *_, words in spelled)} FROM functions.{name} ORDER BY place")
        wanted = table["database"]().execute(
            f"SELECT {', '.join(render_term(sql) for _, sql, _ in spelled)} FROM {name}"
        )
        for found, expected in zip(theirs, wanted.fetchall(), strict=True):
            for value, other, (expression, *_) in zip(found, expected, spelled, strict=True):
                assert same(value, other), f"{expression}: {value!r} instead of {other!r}"
        said += len(spelled)
    return said


def in_words(sql: Any) -> str | None:
    try:
        return PostgreSQL().term(sql)
    except Unsupported:
        return None


def same(value: Any, other: Any) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return str(value) == str(other) or math.isclose(value, other, rel_tol=1e-12)
    return bool(value == other)


def test_every_function_has_the_same_values_and_fails_for_no_row(ask: Callable[[str], Any]) -> None:
    assert assert_alike(EXPRESSIONS, ask) > 2 * len(EXPRESSIONS)


def test_functions_of_functions_too(ask: Callable[[str], Any]) -> None:
    draw = random.Random(8)
    assert assert_alike([nested(draw.choice(EXPRESSIONS), 2, draw) for _ in range(60)], ask)


def nested(expression: Expression, depth: int, draw: random.Random) -> Expression:
    if isinstance(expression, Column) and depth and draw.random() < 0.7:
        alike = [other for other in EXPRESSIONS if other.type == expression.type]
        return nested(draw.choice(alike or [expression]), depth - 1, draw)
    if not isinstance(expression, Call):
        return expression
    return Call(expression.function, tuple(nested(part, depth, draw) for part in expression.arguments), expression.type)

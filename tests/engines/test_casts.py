"""Casts between all pairs of types, signs and patterns on every engine: DuckDB's values, no failure, no long wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import duckdb
import pytest

from dpsql.engine_sql.tree import Constant, Field, Func, Term, TryCast
from dpsql.engines.duckdb.render import render_term
from dpsql.engines.duckdb.render import type_name as duckdb_type
from dpsql.engines.postgresql.render import PostgreSQL
from dpsql.engines.postgresql.scalars import type_name as postgresql_type
from dpsql.engines.spark.render import Spark
from dpsql.engines.spark.scalars import type_name as spark_type
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, ColumnType, Date, Decimal, Double, Integer, Text, Timestamp

VALUES: dict[ColumnType, list[str | None]] = {
    Boolean(): ["true", "false", None],
    Integer(): ["-9223372036854775808", "9223372036854775807", "0", "-1", "99", None],
    Double(): ["-1.7e308", "1.7e308", "5e-324", "-0.5", "9223372036854775808", "0.995", None],
    Decimal(2, 2): ["0.99", "-0.99", "0", None],
    Decimal(18, 3): ["999999999999999.999", "-999999999999999.999", "0.005", None],
    Decimal(38, 0): ["9" * 38, "-" + "9" * 38, "5", None],
    Decimal(38, 4): ["9" * 34 + ".9999", "-" + "9" * 34 + ".9999", "0.5", None],
    Decimal(38, 38): ["0." + "9" * 38, "-0." + "9" * 38, None],
    Date(): ["0001-01-01", "9999-12-31", "2024-02-29", None],
    Timestamp(): ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", None],
    Text(): ["", "a" * 60_000, "12", None],
}
ROWS = max(map(len, VALUES.values()))
NAMES = {kind: f"c{place}" for place, kind in enumerate(VALUES)}
LONG = "a" * 60_000


def terms() -> Iterator[Term]:
    for kind, name in NAMES.items():
        column = Field(name, kind=kind)
        yield from (TryCast(column, other) for other in VALUES if other != kind)
        if isinstance(kind, Double | Decimal):
            yield from (Func(operation, (column,), kind) for operation in ("negate", "abs"))
            yield Func("sign", (column,), Double() if kind == Double() else Integer())


def rows() -> list[list[str | None]]:
    return [[values[min(row, len(values) - 1)] for values in VALUES.values()] for row in range(ROWS)]


@pytest.fixture(scope="module")
def model() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} {duckdb_type(kind)}" for kind, name in NAMES.items())
        connection.execute(f"CREATE TABLE t (place INTEGER, {columns})")
        for place, row in enumerate(rows()):
            connection.execute(f"INSERT INTO t VALUES ({place}, {', '.join('?' * len(row))})", row)
        yield connection


def check(ask: Callable[[str], list[tuple[Any, ...]]], write: Callable[[Term], str], model: Any) -> int:
    """How many the engine has words for; each of these is DuckDB's for every row."""
    said = []
    for term in terms():
        try:
            said.append((term, write(term), render_term(term)))
        except Unsupported:
            continue
    found = ask(f"SELECT {', '.join(words for _, words, _ in said)} FROM t ORDER BY place")
    wanted = model.execute(f"SELECT {', '.join(sql for *_, sql in said)} FROM t ORDER BY place").fetchall()
    for mine, its in zip(found, wanted, strict=True):
        for value, other, (term, *_) in zip(mine, its, said, strict=True):
            assert same(value, other) or no_such_value(term, value), (term, value, other)
    return len(said)


def same(value: Any, other: Any) -> bool:
    if value is None or other is None:
        return value is other
    return str(value) == str(other) or value == other or float(value) == float(other)


def no_such_value(term: Term, value: Any) -> bool:
    """DuckDB has 0.01 for TRUE and 0.00 for FALSE as DECIMAL(2, 2), where there is no 1: others say NULL."""
    return isinstance(term, TryCast) and term.value.kind == Boolean() and value is None


@pytest.mark.parametrize("optimizer", ["enable_optimizer", "disable_optimizer"])
def test_no_cast_raises_on_duckdb(model: duckdb.DuckDBPyConnection, optimizer: str) -> None:
    model.execute(f"PRAGMA {optimizer}")
    assert check(lambda sql: model.execute(sql).fetchall(), render_term, model) > 100


def test_casts_on_postgresql(postgresql_url: str, model: duckdb.DuckDBPyConnection) -> None:
    import psycopg

    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        columns = ", ".join(f"{name} {postgresql_type(kind)}" for kind, name in NAMES.items())
        connection.execute(f"CREATE TEMP TABLE t (place INTEGER, {columns})".encode())
        for place, row in enumerate(rows()):
            connection.execute(f"INSERT INTO t VALUES ({place}, {', '.join(['%s'] * len(row))})".encode(), row)
        assert check(lambda sql: connection.execute(sql.encode()).fetchall(), PostgreSQL().term, model) > 60


@pytest.mark.spark
def test_casts_on_spark(spark: Any, model: duckdb.DuckDBPyConnection) -> None:
    kinds = [f"{name} {spark_type(kind)}" for kind, name in NAMES.items()]
    made = [
        f"({place}, {', '.join('NULL' if v is None else repr(v) for v in row)})" for place, row in enumerate(rows())
    ]
    names = ", ".join(["place", *NAMES.values()])
    casts = ", ".join(f"CAST({kind.split()[0]} AS {kind.partition(' ')[2]}) AS {kind.split()[0]}" for kind in kinds)
    spark.sql(f"SELECT place, {casts} FROM VALUES {', '.join(made)} AS v({names})").createOrReplaceTempView("t")
    assert check(lambda sql: [tuple(row) for row in spark.sql(sql).collect()], Spark().term, model) > 60


PATTERNS = ["%a%a%a%a%a%a%a%b", "a%aa%aa%aa%aa%aa%aa%bb", "%a_a%a_a%a_a%a_a%a_b%", "_%a_%a_%a_%a_%ab", "%a" * 99 + "b"]


def check_patterns(ask: Callable[[str], Any], write: Callable[[Term], str]) -> None:
    """Each is asked twice: a server takes longer for a query that it has not compiled yet."""
    for pattern in PATTERNS:
        for operation in ("like", "ilike"):
            term = Func(operation, (Field("s", kind=Text()), Constant(pattern, Text())), Boolean())
            sql = f"SELECT {write(term)} FROM long"
            assert ask(sql) is False
            began = perf_counter()
            ask(sql)
            assert perf_counter() - began < 5, pattern


def test_patterns_take_linear_time_on_duckdb() -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE long AS SELECT repeat('a', {len(LONG)}) AS s")
        check_patterns(lambda sql: connection.execute(sql).fetchall()[0][0], render_term)


def test_patterns_take_linear_time_on_postgresql(postgresql_url: str) -> None:
    import psycopg

    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f"CREATE TEMP TABLE long AS SELECT repeat('a', {len(LONG)}) AS s".encode())
        check_patterns(lambda sql: connection.execute(sql.encode()).fetchall()[0][0], PostgreSQL().term)


@pytest.mark.spark
def test_patterns_take_linear_time_on_spark(spark: Any) -> None:
    """LIKE of Spark tries all places of all pieces: of eight, on a long text, it would not end."""
    spark.sql(f"SELECT repeat('a', {len(LONG)}) AS s").createOrReplaceTempView("long")
    check_patterns(lambda sql: spark.sql(sql).collect()[0][0], Spark().term)


@pytest.mark.spark
def test_patterns_mean_the_same_on_spark(spark: Any) -> None:
    texts = ["", "a", "ab", "ba", "aXbXa", "a\nb%a", "a_b%", "%", "abab", "aabb", "ba.b*a", "äbäb", "a" * 9]
    patterns = ["%a%b%", "a%b%a", "%a_%b", "%%", "a%a%a", "%.%*%", "%ä%b", "%a%\n%", "_%_%b", "%!%%!_%a"]
    listed = ", ".join(f"({place}, {Spark().constant(Constant(text, Text()))})" for place, text in enumerate(texts))
    spark.sql(f"SELECT * FROM VALUES {listed} AS v(place, s)").createOrReplaceTempView("texts")
    for pattern in patterns:
        term = Func("like", (Field("s", kind=Text()), Constant(pattern, Text()), Constant("!", Text())), Boolean())
        found = spark.sql(f"SELECT {Spark().term(term)} FROM texts ORDER BY place").collect()
        with duckdb.connect() as model:
            expected = [model.execute("SELECT ? LIKE ? ESCAPE '!'", [text, pattern]).fetchone()[0] for text in texts]  # type: ignore[index]
        assert [row[0] for row in found] == expected, pattern

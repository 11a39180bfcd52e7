"""Every scalar function: it never fails, what is claimed of its value is true, and the value is DuckDB's.

Expressions are lowered as in a query and evaluated over the scan of a declared table, on tame data (within the declared
bounds) and on wild data (whatever the columns can hold). A value that is NaN or infinite is no value, as in a sum.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.render import render, render_term
from dpsql.expressions.emit import emit
from dpsql.expressions.properties import Properties
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import columns_of, properties_of
from dpsql.options import QueryRequest
from dpsql.pipeline.parse_sql import parse_sql
from dpsql.pipeline.resolve_names import resolve_names
from dpsql.pipeline.track_units import track_units
from dpsql.relation.sql import relation_sql

SCHEMA = {
    "dataset": "expressions",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "i": {"type": "integer", "bounds": [-7, 12], "nullable": True},
                "j": {"type": "integer", "bounds": [1, 9]},
                "k": {"type": "integer", "values": [-2, 0, 3]},
                "n": {"type": "integer", "nullable": True},
                "x": {"type": "double", "bounds": [-3.5, 8], "nullable": True},
                "p": {"type": "double", "bounds": [0.25, 4]},
                "y": {"type": "double", "nullable": True},
                "m": {"type": "decimal(10,2)", "bounds": [-2.5, 7.25]},
                "s": {"type": "text", "nullable": True},
                "v": {"type": "text", "values": ["a", "Bc", ""]},
                "b": {"type": "boolean", "nullable": True},
                "c": "boolean",
                "d": {"type": "date", "bounds": ["2023-12-30", "2024-03-02"]},
                "e": {"type": "date", "nullable": True},
                "w": {"type": "timestamp", "bounds": ["2023-12-31 22:30:00", "2024-01-02 01:15:00"], "nullable": True},
                "z": {"type": "timestamp", "nullable": True},
            },
        }
    },
}
CREATE = """
    CREATE TABLE t (u BIGINT, i BIGINT, j BIGINT, k BIGINT, n BIGINT, x DOUBLE, p DOUBLE, y DOUBLE, m DECIMAL(10,2),
                    s VARCHAR, v VARCHAR, b BOOLEAN, c BOOLEAN, d DATE, e DATE, w TIMESTAMP, z TIMESTAMP)"""

# Expressions for every function on the list, under its name there.
EXPRESSIONS: dict[str, list[str]] = {
    "+": [
        "i + j",
        "i + x",
        "n + n",
        "m + 1",
        "y + 1",
        "n + 9223372036854775807",
        "2000000000 + 2000000000",
    ],
    "-": ["i - j", "j - i", "n - 1", "x - m", "k - k", "-9223372036854775807 - j"],
    "*": ["i * k", "i * i", "n * n", "x * p", "m * -2", "i * 0.5", "(n * n) * n", "CAST(c AS BIGINT) * 2000000000 * j"],
    "/": ["i / j", "j / k", "x / p", "y / x", "1 / i", "n / n", "m / j", "i / 0", "p / (j - 20)"],
    "//": ["i // j", "i // k", "n // i", "n // -1", "j // 4", "i // 0"],
    "%": ["i % j", "n % 5", "i % k", "n % n", "j % -3", "i % 0"],
    "negate": ["-i", "-n", "-x", "-m", "-(-j)"],
    "=": ["i = 3", "s = 'a'", "d = '2024-01-01'", "w = d", "b = TRUE", "x = m", "i = NULL"],
    "<>": ["i <> 3", "v <> 'a'", "y <> y", "NOT i != j"],
    "<": ["i < j", "y < 1", "e < d", "s < 'm'", "b < c"],
    "<=": ["i <= 2.5", "z <= '2024-01-01 00:00:00'", "d <= w"],
    ">": ["i > n", "x > i", "e > DATE '2024-01-01'"],
    ">=": ["m >= 1", "j >= 1", "v >= 'B'"],
    "IS NOT DISTINCT FROM": ["i IS NOT DISTINCT FROM j", "b IS TRUE", "s IS NOT DISTINCT FROM NULL"],
    "IS DISTINCT FROM": ["x IS DISTINCT FROM p", "b IS DISTINCT FROM FALSE"],
    "IN": ["i IN (1, 2, NULL)", "v IN ('a', 'zz')", "d IN ('2024-01-01')", "x NOT IN (1, 2.5)", "n IN (j, i)"],
    "LIKE": ["s LIKE 'a%'", "v LIKE '_c'", "s LIKE ''", r"s LIKE '%\'"],
    "ILIKE": ["s ILIKE 'A%'", "v ILIKE 'bC'"],
    "IS NULL": ["i IS NULL", "j IS NULL", "(x / j) IS NULL", "s IS NOT NULL"],
    "AND": ["b AND c", "i > 3 AND s = 'a'", "b AND NULL"],
    "OR": ["b OR c", "c OR NOT c", "b OR NULL"],
    "NOT": ["NOT b", "NOT (i > 3 OR c)"],
    "CASE": [
        "CASE WHEN i > 3 THEN j ELSE k END",
        "CASE WHEN b THEN x END",
        "CASE k WHEN 0 THEN 'zero' WHEN 3 THEN v ELSE s END",
        "CASE WHEN c THEN d ELSE w END",
        "CASE WHEN c THEN 2000000000 ELSE i END * 2",
        "CASE WHEN c THEN 2147483647 ELSE 1 END + 1",
        "IF(c, m, j)",
    ],
    "COALESCE": ["COALESCE(i, j)", "COALESCE(x, i, 0)", "COALESCE(s, v)", "COALESCE(NULL, b, c)", "COALESCE(e, d)"],
    "NULLIF": ["NULLIF(i, 3)", "NULLIF(v, 'a')", "NULLIF(j, x)", "NULLIF(d, w)"],
    "LEAST": ["LEAST(i, 5)", "LEAST(y, 2)", "LEAST(x, p, m)", "LEAST(d, e)", "LEAST(s, 'm')", "LEAST(n, j)"],
    "GREATEST": ["GREATEST(i, 5)", "GREATEST(y, -2)", "GREATEST(n, i, j)", "GREATEST(w, d)"],
    "ABS": ["ABS(i)", "ABS(n)", "ABS(x)", "ABS(m)", "ABS(k)"],
    "SIGN": ["SIGN(i)", "SIGN(x)", "SIGN(j)", "SIGN(n)", "SIGN(y)", "SIGN(m)", "SIGN(i) * 2000000000 * 2"],
    "FLOOR": ["FLOOR(x)", "FLOOR(m)", "FLOOR(i)", "FLOOR(y)", "FLOOR(x / 3) * 3"],
    "CEIL": ["CEIL(x)", "CEILING(m)", "CEIL(x / 10)", "CEIL(y)"],
    "TRUNC": ["TRUNC(x)", "TRUNC(m)", "TRUNC(y)"],
    "ROUND": ["ROUND(x)", "ROUND(x, 1)", "ROUND(m)", "ROUND(m, 1)", "ROUND(i)", "ROUND(y, 15)", "ROUND(n)"],
    "SQRT": ["SQRT(p)", "SQRT(i)", "SQRT(ABS(x))", "SQRT(y)", "SQRT(n)"],
    "LN": ["LN(p)", "LN(i)", "LN(x)", "LN(y)", "LN(j)"],
    "LOG10": ["LOG10(p)", "LOG(j)", "LOG10(y)", "LOG(10, p)"],
    "LOG2": ["LOG2(p)", "LOG2(i)", "LOG(2, j)"],
    "EXP": ["EXP(x)", "EXP(i)", "EXP(y)", "EXP(n)", "EXP(-p)"],
    "POWER": [
        "POWER(i, 2)",
        "POWER(x, 3)",
        "POWER(p, 0.5)",
        "POW(j, 0)",
        "x ** 2",
        "POWER(y, 2)",
        "POWER(i, -1)",
        "POWER(i, j)",
        "POWER(x, 0.5)",
        "POWER(y, y)",
    ],
    "LOWER": ["LOWER(s)", "LOWER(v)"],
    "UPPER": ["UPPER(s)", "UPPER(v)"],
    "TRIM": ["TRIM(s)", "TRIM(v)"],
    "LTRIM": ["LTRIM(s)"],
    "RTRIM": ["RTRIM(s)"],
    "REPLACE": ["REPLACE(s, 'a', 'bb')", "REPLACE(v, '', 'x')"],
    "LENGTH": ["LENGTH(s)", "LENGTH(v)", "LEN(s)"],
    "SUBSTRING": [
        "SUBSTRING(s, 1, 2)",
        "SUBSTR(s, 2)",
        "SUBSTRING(v, 1, 0)",
        "SUBSTRING(s, 10000, 10000)",
        "SUBSTRING(s FROM 2 FOR 1)",
    ],
    "STRPOS": ["STRPOS(s, 'a')", "STRPOS(v, 'c')", "POSITION('a' IN s)", "INSTR(s, 'b')"],
    "STARTS_WITH": ["STARTS_WITH(s, 'a')", "STARTS_WITH(v, '')"],
    "CONTAINS": ["CONTAINS(s, 'a')", "CONTAINS(v, 'B')"],
    "||": ["s || v", "v || '-' || i", "s || NULL", "d || 'x'"],
    "CONCAT": ["CONCAT(s, v)", "CONCAT(i, '-', m)", "CONCAT(s, NULL, b)"],
    "YEAR": ["YEAR(d)", "YEAR(e)", "EXTRACT(year FROM w)", "YEAR(z)"],
    "MONTH": ["MONTH(d)", "MONTH(e)", "DATE_PART('month', w)"],
    "QUARTER": ["QUARTER(d)", "QUARTER(z)"],
    "DAY": ["DAY(d)", "DAYOFMONTH(e)"],
    "DAYOFYEAR": ["DAYOFYEAR(d)", "DAYOFYEAR(e)", "EXTRACT(doy FROM w)"],
    "DAYOFWEEK": ["DAYOFWEEK(d)", "EXTRACT(dow FROM z)"],
    "ISODOW": ["ISODOW(d)", "ISODOW(w)"],
    "WEEK": ["WEEK(d)", "WEEKOFYEAR(e)", "EXTRACT(week FROM w)"],
    "HOUR": ["HOUR(w)", "HOUR(z)", "EXTRACT(hour FROM d)"],
    "MINUTE": ["MINUTE(w)", "MINUTE(z)"],
    "DATE_TRUNC": [
        f"DATE_TRUNC('{unit}', {column})"
        for unit in ("year", "quarter", "month", "week", "day", "hour")
        for column in "dewz"
    ],
}
# CAST is a function of its own for every type.
CASTS = [
    *(f"CAST({column} AS BIGINT)" for column in "ijnxpymsbc"),
    *(f"CAST({column} AS DOUBLE)" for column in "inymsb"),
    *(f"CAST({column} AS DECIMAL(4, 1))" for column in "inxyms"),
    *(f"CAST({column} AS DECIMAL(38, 20))" for column in "nys"),
    *(f"CAST({column} AS VARCHAR)" for column in "ijnxymsvbcdewz"),
    *(f"CAST({column} AS BOOLEAN)" for column in "ibs"),
    *(f"CAST({column} AS DATE)" for column in "sdewz"),
    *(f"CAST({column} AS TIMESTAMP)" for column in "sdewz"),
    "CAST('2024-01-31' AS DATE)",
    "TRY_CAST(s AS BIGINT) + i",
    "x::BIGINT",
    "DATE_TRUNC('month', CAST(s AS DATE))",
    "DATE_TRUNC('month', CAST(s AS TIMESTAMP))",
    "YEAR(CAST(s AS DATE))",
    "GREATEST(CAST(s AS DATE), z)",
]
ALL = [(name, sql) for name, calls in EXPRESSIONS.items() for sql in calls] + [("CAST", sql) for sql in CASTS]


def test_every_function_has_expressions() -> None:
    """The functions that queries are mostly made of; test_table.py has them all."""
    assert set(EXPRESSIONS) <= set(FUNCTIONS)


# -- data --------------------------------------------------------------------------------------------------------------

TAME: dict[str, list[Any]] = {
    "i": [None, -7, -3, 0, 1, 3, 12],
    "j": [1, 2, 4, 9],
    "k": [-2, 0, 3],
    "n": [None, 0, -5, 17, 10**6],
    "x": [None, -3.5, -2.5, -0.5, 0.0, 0.5, 1.25, 2.5, 8.0],
    "p": [0.25, 0.5, 1.0, 2.5, 4.0],
    "y": [None, -10.75, 0.0, 3.5, 1000.5],
    "m": ["-2.5", "-0.05", "0", "0.5", "1.25", "2.5", "7.25"],
    "s": [None, "", "a", "abc", " Ab ", "12", "-3.5", "2024-02-29", "2024-02-29 12:30:00", "true", "é%_"],
    "v": ["a", "Bc", ""],
    "b": [None, True, False],
    "c": [True, False],
    "d": ["2023-12-30", "2023-12-31", "2024-01-01", "2024-02-29", "2024-03-02"],
    "e": [None, "1999-12-31", "2024-01-01", "2030-06-15"],
    "w": [None, "2023-12-31 22:30:00", "2024-01-01 00:00:00", "2024-01-02 01:15:00"],
    "z": [None, "1999-12-31 23:59:59", "2024-06-01 12:00:00"],
}
INT64 = [-(2**63), 2**63 - 1]
FLOATS = ["nan", "inf", "-inf", "-0.0", "1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "1e19", "0.1"]
ODD_TEXTS = [
    *(None, "", "x" * 20000, "é" * 50, "\x00", "%_\\", "nan", "1e308", "1e999", "9223372036854775808"),
    *("infinity", "-infinity", "0001-01-01", "5874897-12-31", "5877642-06-25 (BC)", "294247-01-10 04:00:54"),
]
ADVERSARIAL: dict[str, list[Any]] = {
    **{name: [None, *INT64, -1, 0, 1] for name in "ijkn"},
    **{name: [None, *FLOATS] for name in "xpy"},
    "m": [None, "-99999999.99", "99999999.99", "0.01"],
    **dict.fromkeys("sv", ODD_TEXTS),
    **{name: [None, True, False] for name in "bc"},
    **{name: [None, "infinity", "-infinity", "5874897-12-31", "5877642-06-25 (BC)", "0001-01-01"] for name in "de"},
    **{name: [None, "infinity", "-infinity", "294247-01-10 04:00:54", "290309-12-22 (BC) 00:00:00"] for name in "wz"},
}


def filled(values: dict[str, list[Any]], rows: int) -> duckdb.DuckDBPyConnection:
    rng = random.Random(1)
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute(CREATE)
    # every value of every column at least once, and then at random
    table = [
        [number, *(column[number] if number < len(column) else rng.choice(column) for column in values.values())]
        for number in range(rows)
    ]
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 17)})", table)
    return connection


@dataclass(frozen=True)
class Bench:
    conforming: duckdb.DuckDBPyConnection
    adversarial: duckdb.DuckDBPyConnection
    session: dpsql.Connection

    def lowered(self, sql: str) -> tuple[Properties, str]:
        """What is claimed of the expression, and the engine's SQL for it over the scan."""
        public = self.session.session.environment.public()
        question = QueryRequest(sql=f"SELECT COUNT({sql}) FROM t")
        (release,) = track_units(resolve_names(parse_sql(question, public), public), public).releases
        (call,) = release.aggregate.calls
        used = {column.name for column in columns_of(call.arguments[0])}
        below = render(relation_sql(release.aggregate.source, used))
        value = render_term(emit(call.arguments[0], release.facts.any_row))
        return properties_of(call.arguments[0], release.facts.any_row), f"SELECT {value} FROM ({below}) ORDER BY _unit"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    conforming, adversarial = filled(TAME, 60), filled(ADVERSARIAL, 60)
    with dpsql.connect(conforming, schema=SCHEMA, budget=1, delta=1e-6) as session:
        yield Bench(conforming, adversarial, session)


# -- the three promises ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sql"), ALL, ids=[sql for _, sql in ALL])
def test_expression(name: str, sql: str, bench: Bench) -> None:
    facts, query = bench.lowered(sql)
    for connection in (bench.adversarial, bench.conforming):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE found AS {query}")  # never fails
        values = fetched(connection, "FROM found")
        for value in values:
            assert within(facts, value), f"{value!r} is not within {facts}"
    assert facts.nullable or None not in values, "NULL where none is claimed"
    for value, plain in zip(values, fetched(bench.conforming, f"SELECT TRY({sql}) FROM t ORDER BY u"), strict=True):
        assert plain is None or same(value, plain), f"{value!r} instead of {plain!r}"


def fetched(connection: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    """The first column; dates that Python cannot show come as text."""
    ((kind,),) = connection.execute(f"SELECT DISTINCT typeof(COLUMNS(*)) FROM ({query}) LIMIT 1").fetchall()
    if kind in ("DATE", "TIMESTAMP"):
        found = connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})").fetchall()
        return [as_date(value, kind) for (value,) in found]
    return [no_value(value) for (value,) in connection.execute(query).fetchall()]


def no_value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_date(text: str | None, kind: str) -> Any:
    try:
        return text and (date.fromisoformat(text) if kind == "DATE" else datetime.fromisoformat(text))
    except ValueError:
        return text


def within(facts: Properties, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, str) and isinstance(facts.low, date):
        return False
    exact = Fraction(value) if isinstance(value, float | Decimal) else value
    if facts.values is not None:
        return any(close(exact, possible) for possible in facts.values)
    low = facts.low is None or exact >= facts.low or close(exact, facts.low)
    high = facts.high is None or exact <= facts.high or close(exact, facts.high)
    return low and high and (not facts.whole or exact == int(exact))


def close(value: Any, other: Any) -> bool:
    """The claims are exact, the engine's doubles are not."""
    if isinstance(value, int | Fraction) and isinstance(other, int | Fraction):
        return math.isclose(value, other, rel_tol=1e-12, abs_tol=1e-12)
    return bool(value == other)


def same(value: Any, plain: Any) -> bool:
    if isinstance(plain, float | Decimal) or isinstance(value, float | Decimal):
        return value is not None and math.isclose(value, plain, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(value, datetime) != isinstance(plain, datetime):
        return str(value).removesuffix(" 00:00:00") == str(plain).removesuffix(" 00:00:00")
    return bool(value == plain)


# -- compositions ------------------------------------------------------------------------------------------------------


def composed(rng: random.Random, kind: str, depth: int) -> str:
    """A random expression of a kind: number, condition, text or time."""
    if depth == 0:
        return rng.choice(
            {
                "number": list("ijknxpym"),
                "condition": ["b", "c"],
                "text": ["s", "v"],
                "time": ["d", "e", "w", "z"],
            }[kind]
        )

    def part(of: str) -> str:
        return composed(rng, of, depth - 1)

    number, condition, text, time = part("number"), part("condition"), part("text"), part("time")
    other = part("number")
    choices = {
        "number": [
            f"({number} + {other})",
            f"({number} - {other})",
            f"({number} * {other})",
            f"({number} / {other})",
            f"(-{number})",
            f"ABS({number})",
            f"SIGN({number})",
            f"FLOOR({number})",
            f"CEIL({number})",
            f"ROUND({number}, 1)",
            f"LEAST({number}, {other})",
            f"GREATEST({number}, {other})",
            f"CASE WHEN {condition} THEN {number} ELSE {other} END",
            f"COALESCE({number}, {other})",
            f"NULLIF({number}, {other})",
            f"SQRT({number})",
            f"LN({number})",
            f"LENGTH({text})",
            f"POWER({number}, 2)",
            f"CAST({number} AS BIGINT)",
            f"CAST({number} AS DECIMAL(9, 2))",
            f"MONTH({time})",
            f"YEAR({time})",
            f"(CAST({number} AS BIGINT) // CAST({other} AS BIGINT))",
            f"(CAST({number} AS BIGINT) % 7)",
            f"CAST({condition} AS BIGINT)",
            f"CASE WHEN {condition} THEN 2000000000 ELSE 7 END",
        ],
        "condition": [
            f"({number} < {other})",
            f"({number} = {other})",
            f"({condition} AND {part('condition')})",
            f"(NOT {condition})",
            f"({number} IS NULL)",
            f"({number} IN (1, {other}))",
            f"({text} = {part('text')})",
            f"({time} < {part('time')})",
            f"({condition} IS NOT DISTINCT FROM {part('condition')})",
        ],
        "text": [
            f"LOWER({text})",
            f"({text} || {part('text')})",
            f"SUBSTRING({text}, 1, 2)",
            f"CASE WHEN {condition} THEN {text} END",
            f"CAST({number} AS VARCHAR)",
        ],
        "time": [
            f"DATE_TRUNC('month', {time})",
            f"DATE_TRUNC('week', {time})",
            f"CAST({time} AS DATE)",
            f"COALESCE({time}, {part('time')})",
            f"CASE WHEN {condition} THEN {time} END",
        ],
    }
    return rng.choice(choices[kind])


@pytest.mark.parametrize("seed", range(80))
def test_compositions(seed: int, bench: Bench) -> None:
    """The same promises for expressions of expressions."""
    rng = random.Random(seed)
    sql = composed(rng, rng.choice(["number", "number", "condition", "text", "time"]), 3)
    facts, query = bench.lowered(sql)
    for connection in (bench.adversarial, bench.conforming):
        values = fetched(connection, query)
        for value in values:
            assert within(facts, value), f"{sql}: {value!r} is not within {facts}"
    assert facts.nullable or None not in values, f"{sql}: NULL where none is claimed"

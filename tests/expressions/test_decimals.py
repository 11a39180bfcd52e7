"""Decimals are DuckDB's: 0.06 is a decimal and no double, arithmetic on decimals is exact, and types are the same.

Expressions are lowered as in a query, evaluated by the engine row by row, and compared with plain DuckDB in value, type
and NULL-ness; then whole questions at an epsilon so large that the noise is zero.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import pytest
import sqlglot

import dpsql
from dpsql.engines.duckdb.render import render_term
from dpsql.expressions.emit import written
from dpsql.expressions.lower import Lowering
from dpsql.expressions.properties import Properties, property_of
from dpsql.expressions.tree import Column, Written
from dpsql.schema.types import parse_type

TYPES = {
    "k": ("integer", "BIGINT"),
    "x": ("double", "DOUBLE"),
    "a": ("decimal(3,1)", "DECIMAL(3,1)"),
    "m": ("decimal(10,2)", "DECIMAL(10,2)"),
    "q": ("decimal(18,3)", "DECIMAL(18,3)"),
    "w": ("decimal(38,10)", "DECIMAL(38,10)"),
}
VALUES: dict[str, list[object]] = {
    "k": [0, 1, -7, 2**40, 2**63 - 1, None],
    "x": [0.0, 0.1, -2.5, 1e20, 3.0, None],
    "a": [Decimal("0.1"), Decimal("-9.5"), Decimal("99.9"), Decimal("2.5"), Decimal(0), None],
    "m": [Decimal("0.07"), Decimal("-1.25"), Decimal("99999999.99"), Decimal("2.50"), Decimal(3), None],
    "q": [Decimal("0.005"), Decimal("-0.1"), Decimal("999999999999999.999"), Decimal("2.5"), Decimal(1), None],
    "w": [Decimal("0.1"), Decimal("-0.0000000005"), Decimal("12345678901234.5"), Decimal("2.5"), Decimal(7), None],
}
KNOWN: dict[str, Properties] = {name: property_of(parse_type(kind), nullable=True) for name, (kind, _) in TYPES.items()}


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (_, kind) in TYPES.items())})")
    rng = random.Random(1)
    rows = [[values[number] for values in VALUES.values()] for number in range(6)]
    rows += [[rng.choice(values) for values in VALUES.values()] for _ in range(18)]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows)
    return connection


def lowered(text: str) -> Written:
    node = sqlglot.parse_one(f"SELECT {text}", dialect="duckdb").selects[0]
    lowering = Lowering(text, lambda column: Column(column.name, KNOWN[column.name].type))
    return written(lowering.lower(node.unalias()), KNOWN)


def check(raw: duckdb.DuckDBPyConnection, text: str, columns: str = "{}") -> None:
    """Where DuckDB has a value for every row, ours are the same, with as many digits after the point."""
    ours = render_term(lowered(text).sql)
    found = raw.execute(f"SELECT {columns.format(ours)} FROM t").fetchall()
    try:
        plain = raw.execute(f"SELECT {columns.format(text)} FROM t").fetchall()
    except duckdb.Error:
        return  # some row overflows there; here it is NULL
    assert repr(found) == repr(plain), (text, ours)


SAME = [
    *("0.06", "00.50", "5.", "-0.5", "1e3", "1.5e0", "12345678901234567890.5"),
    *("0.06 - 0.01", "0.1 * 0.7", "0.1 + 0.2 = 0.3", "1.5 % 0.4", "-1.5 % 0.4", "0.1 / 3"),
    *("a + m", "a - q", "a * m", "m * q", "q * q", "q * m * m", "w + a", "w * a", "w * w", "w - w", "a / m", "m % a"),
    *("a + k", "k - m", "a * k", "k * w", "k % a", "m % 2", "m % 0", "a + 5", "5 - m", "q * 5", "q * 3000000000"),
    *("a + x", "m * x", "x - 0.1", "x * 0.1", "x = 0.1", "x < 0.1", "k + 0.5", "k * 0.5", "k = 0.5", "k < 1.5"),
    *("-a", "-w", "ABS(m)", "FLOOR(m)", "CEIL(a)", "FLOOR(w)", "ROUND(m)", "ROUND(m, 1)", "ROUND(m, 3)"),
    *("ROUND(w, 5)", "TRUNC(m)", "TRUNC(m, 1)", "TRUNC(q, -1)", "SQRT(ABS(m))", "POWER(a, 2)", "EXP(a)"),
    *("m = 0.07", "m BETWEEN 0.06 AND 0.06 + 0.01", "m IN (0.07, 3)", "a = m", "a < q", "w > 2", "w = a", "m <> 2.5"),
    *("k = 9223372036854775808", "k < 9223372036854775807.5", "a IS DISTINCT FROM 0.10", "k IN (0.5, 1)"),
    *("CASE WHEN k > 0 THEN a ELSE m END", "CASE WHEN k > 0 THEN a ELSE 1 END", "CASE WHEN k > 0 THEN 0.5 END"),
    *("COALESCE(a, q)", "COALESCE(m, 0)", "COALESCE(m, k)", "COALESCE(a, x)", "COALESCE(w, k)", "COALESCE(k, 0.5)"),
    *("LEAST(a, m)", "GREATEST(q, 1)", "GREATEST(m, 0.123)", "NULLIF(a, 2.5)", "NULLIF(m, a)", "NULLIF(k, 1.0)"),
    *("CAST(m AS BIGINT)", "CAST(a AS DOUBLE)", "CAST(m AS VARCHAR)", "CAST(x AS DECIMAL(8, 3))", "0.10 || 'x'"),
    *("CAST(q AS DECIMAL(18, 1))", "CAST(k AS DECIMAL(20, 1))", "CAST(0.5 AS BIGINT)", "CAST('1.25' AS DECIMAL(4, 1))"),
    *("m * (1 - a)", "m * (1 - a) * (1 + a)", "q / 7 * 7", "(m + 0.5) * 2 - a"),
]


@pytest.mark.parametrize("text", SAME)
def test_the_value_and_the_type_are_those_of_duckdb(text: str, raw: duckdb.DuckDBPyConnection) -> None:
    check(raw, text, "typeof({0}), {0}")


def expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        constants = ["0.5", "0.07", "1.0", "2", "10", "0.001", "123.456", "-0.25", "1e0"]
        return rng.choice([*TYPES, *"aamm", *constants])
    patterns = [
        *("({} + {})", "({} - {})", "({} * {})", "({} % 0.3)", "(- {})", "ABS({})", "ROUND({}, 1)", "FLOOR({})"),
        *("({} + {})", "({} * {})", "CASE WHEN {} > {} THEN {} ELSE {} END", "COALESCE({}, {})", "({} / 4)"),
        *("LEAST({}, {})", "GREATEST({}, {})", "NULLIF({}, {})", "TRUNC({}, 2)", "CAST({} AS DECIMAL(15, 2))"),
    ]
    pattern = rng.choice(patterns)
    return pattern.format(*(expression(rng, depth - 1) for _ in range(pattern.count("{}"))))


def generated(seeds: range) -> Iterator[str]:
    for seed in seeds:
        rng = random.Random(seed)
        text = expression(rng, 3)
        if rng.random() < 0.4:
            text = f"{text} {rng.choice(['=', '<', '>=', '<>', 'IS DISTINCT FROM'])} {expression(rng, 2)}"
        yield text


def check_generated(raw: duckdb.DuckDBPyConnection, seeds: range) -> int:
    checked = 0
    for text in generated(seeds):
        try:
            lowered(text)
        except dpsql.Error:
            continue  # refused before any row is read
        check(raw, text)
        checked += 1
    return checked


def test_generated_decimal_arithmetic_is_that_of_duckdb(raw: duckdb.DuckDBPyConnection) -> None:
    assert check_generated(raw, range(300)) > 200


@pytest.mark.long
def test_much_generated_decimal_arithmetic_is_that_of_duckdb(raw: duckdb.DuckDBPyConnection) -> None:
    assert check_generated(raw, range(1000, 11_000)) > 7000


# -- whole questions --------------------------------------------------------------------------------------------------

SCHEMA = {
    "dataset": "lines",
    "contribution": {"max_groups": 20, "max_rows_per_group": 20},
    "tables": {
        "lines": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "price": {"type": "decimal(15,2)", "bounds": [0, 999.99]},
                "d": {"type": "decimal(15,2)", "bounds": [0, 0.1]},
                "n": {"type": "integer", "bounds": [0, 50]},
                "x": {"type": "double", "bounds": [0, 1]},
            },
        }
    },
}
QUESTIONS = [
    "SELECT COUNT(*) FROM lines WHERE d BETWEEN 0.06 - 0.01 AND 0.06 + 0.01",
    "SELECT SUM(price * d) AS revenue FROM lines WHERE d BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND n < 24",
    "SELECT COUNT(*) FROM lines WHERE d = 0.1 * 0.7",
    "SELECT SUM(price * (1 - d)), SUM(price * (1 - d) * (1 + d)), AVG(price), AVG(d), COUNT(*) FROM lines",
    "SELECT d, SUM(price), COUNT(*) FROM lines GROUP BY d ORDER BY d",
    "SELECT ROUND(d * 10, 1) AS k, COUNT(*) FROM lines GROUP BY k ORDER BY k",
    "SELECT FLOOR(price / 100) AS bin, COUNT(*) FROM lines GROUP BY bin ORDER BY bin",
    "SELECT CASE WHEN d > 0.05 THEN 0.5 ELSE 1 END AS k, SUM(n * 0.5) FROM lines GROUP BY k ORDER BY k",
    "SELECT COUNT(*) FROM lines WHERE x < 0.3 OR x = 0.7",
    "SELECT SUM(price) * 0.5, SUM(price) / 3, SUM(n) + 0.25 FROM lines",
    "SELECT COUNT(*) FROM lines WHERE d > (SELECT AVG(d) FROM lines)",
    "SELECT COUNT(*) FROM lines JOIN (VALUES (0.01), (0.07)) AS v(r) ON d = r",
    "SELECT COUNT(*) FROM (SELECT LAG(x, 1, 0.5) OVER (PARTITION BY u ORDER BY x) AS z FROM lines) WHERE z = 0.5",
]


@pytest.fixture(scope="module")
def lines() -> tuple[dpsql.Connection, duckdb.DuckDBPyConnection]:
    plain = duckdb.connect()
    plain.execute("CREATE TABLE lines (u BIGINT, price DECIMAL(15,2), d DECIMAL(15,2), n BIGINT, x DOUBLE)")
    plain.execute(
        "INSERT INTO lines SELECT i % 1000, (i * 7919 % 100000) / 100, (i % 11) / 100, i % 51, (i % 10) / 10"
        " FROM range(20000) AS r(i)"
    )
    return dpsql.connect(plain, schema=SCHEMA, budget=1e18, delta=1e-6, query_epsilon=1e14), plain


@pytest.mark.parametrize("sql", QUESTIONS)
def test_the_answer_is_that_of_duckdb(sql: str, lines: tuple[dpsql.Connection, duckdb.DuckDBPyConnection]) -> None:
    connection, plain = lines
    found, expected = connection.execute(sql), plain.execute(sql)
    rows = expected.fetchall()
    for row, plain_row in zip(found.fetchall(), rows, strict=True):
        for value, plain_value in zip(row, plain_row, strict=True):
            assert type(value) is type(plain_value)
            assert value == (pytest.approx(plain_value) if isinstance(value, float) else plain_value)


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT COUNT(*) FROM lines WHERE d = ?", [Decimal("0.07")]),
        ("SELECT COUNT(*) FROM lines WHERE d = ? + ?", [Decimal("0.03"), Decimal("0.04")]),
        ("SELECT COUNT(*) FROM lines WHERE x = ?", [0.7]),
        ("SELECT COUNT(*) FROM lines WHERE d * ? > ?", [10, Decimal("0.55")]),
    ],
)
def test_a_parameter_is_a_number_of_its_own_type(
    sql: str, parameters: list[object], lines: tuple[dpsql.Connection, duckdb.DuckDBPyConnection]
) -> None:
    connection, plain = lines
    assert connection.execute(sql, parameters).fetchall() == plain.execute(sql, parameters).fetchall()


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        ("99999999999999999999999999999999999999 + 0.5", "does not fit into decimal"),
        ("0.0000000000000000000001 * 0.0000000000000000001", "41 digits after the point"),
    ],
)
def test_a_constant_that_duckdb_cannot_hold_is_refused(
    constant: str, said: str, lines: tuple[dpsql.Connection, duckdb.DuckDBPyConnection]
) -> None:
    connection, plain = lines
    with pytest.raises(duckdb.Error):
        plain.execute(f"SELECT {constant}").fetchall()
    with pytest.raises(dpsql.ProgrammingError, match=said):
        connection.explain(f"SELECT COUNT(*) FROM lines WHERE d < {constant}")

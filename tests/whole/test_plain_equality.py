"""Without noise the answer is plain DuckDB's: the same rows in the same order, the same Python types.

The data respects the declared bounds, every public group has somebody in it, every other group has hundreds, and
epsilon is so large that the noise is always zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import dpsql

Session = Callable[[str], dpsql.Connection]
Database = Callable[[str], duckdb.DuckDBPyConnection]


def test_the_answer_is_that_of_duckdb(sql_case: Any, exact_session: Session, conforming: Database) -> None:
    cursor = exact_session(sql_case.file).execute(sql_case.sql, sql_case.parameters, **sql_case.options)
    answers = cursor.fetchall()
    plain = conforming(sql_case.file).execute(sql_case.plain_sql, sql_case.plain_parameters)
    names, expected = [item[0] for item in plain.description or ()], plain.fetchall()
    if sql_case.plain is None and not any("(" in name for name in names if name != "count_star()"):
        assert [item[0] for item in cursor.description or ()] == names
    if "ORDER BY" not in sql_case.sql:
        answers, expected = sorted(answers, key=repr), sorted(expected, key=repr)
    assert len(answers) == len(expected)
    for row, plain_row in zip(answers, expected, strict=True):
        for value, plain_value in zip(row, plain_row, strict=True):
            assert type(value) is type(plain_value), (row, plain_row)
            assert same(value, plain_value), (row, plain_row)


def same(value: object, plain: object) -> bool:
    if isinstance(value, float) and isinstance(plain, float):
        return math.isclose(value, plain, rel_tol=1e-8, abs_tol=1e-5)
    return value == plain


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("COUNT(*)", "BIGINT"),
        ("COUNT(amount)", "BIGINT"),
        ("COUNT(DISTINCT customer_id)", "BIGINT"),
        ("SUM(amount)", "DOUBLE"),
        ("SUM(fee)", "DECIMAL(38,2)"),
        ("SUM(items)", "HUGEINT"),
        ("SUM(items + 1)", "HUGEINT"),
        ("SUM(CASE WHEN items > 3 THEN 1 ELSE 0 END)", "HUGEINT"),
        ("MIN(items)", "BIGINT"),
        ("MAX(amount)", "DOUBLE"),
        ("MEDIAN(items)", "DOUBLE"),
        ("MEDIAN(day)", "TIMESTAMP"),
        ("QUANTILE_DISC(day, 0.5)", "DATE"),
        ("MAX(day)", "DATE"),
        ("STDDEV(items)", "DOUBLE"),
        ("AVG(items)", "DOUBLE"),
        ("AVG(fee)", "DOUBLE"),
    ],
)
def test_description_has_the_types_of_duckdb(
    expression: str, kind: str, exact_session: Session, conforming: Database
) -> None:
    sql = f"SELECT {expression} FROM orders"
    assert str(conforming("shop").execute(sql).description[0][1]) == kind
    assert exact_session("shop").execute(sql).description[0][1] == kind


@pytest.mark.parametrize(
    "expression",
    ["SUM(items * 1.5)", "SUM(fee * 2)", "SUM(fee + items)", "SUM(ABS(fee))", "SUM(ROUND(fee, 1))", "AVG(fee * 0.5)"],
)
def test_decimal_arithmetic_has_the_value_of_duckdb(
    expression: str, exact_session: Session, conforming: Database
) -> None:
    sql = f"SELECT {expression} FROM orders"
    cursor, plain = exact_session("shop").execute(sql), conforming("shop").execute(sql)
    assert cursor.description[0][1] == str(plain.description[0][1])
    ((value,),), ((expected,),) = cursor.fetchall(), plain.fetchall()
    assert type(value) is type(expected)
    assert same(value, expected)


NULLS_AND_NOTHING = [
    # (question, answer): an ungrouped question always has one row; what was not measured is 0, and an average is NULL.
    ("SELECT COUNT(*), SUM(items) FROM orders WHERE items > 100", (0, 0)),
    ("SELECT AVG(items) FROM orders WHERE items > 100", (None,)),
    ("SELECT COUNT(*) FROM orders WHERE channel = 'nowhere'", (0,)),
]


@pytest.mark.parametrize(("sql", "row"), NULLS_AND_NOTHING)
def test_nothing_to_count(sql: str, row: tuple[object, ...], exact_session: Session) -> None:
    assert exact_session("shop").execute(sql).fetchall() == [row]


def test_every_public_group_is_returned_even_when_empty(exact_session: Session) -> None:
    sql = "SELECT channel, COUNT(*) AS n, SUM(items) AS s, AVG(items) AS a FROM orders WHERE items > 100 GROUP BY ALL"
    rows = exact_session("shop").execute(sql).fetchall()
    assert sorted(rows) == [(channel, 0, 0, None) for channel in ("phone", "shop", "web")]


HEAVY = """
    CREATE TABLE orders (customer_id BIGINT, region VARCHAR, amount DOUBLE, items BIGINT, weight DOUBLE, note VARCHAR,
                         day DATE);
    CREATE TABLE customers (id BIGINT, age BIGINT);
    INSERT INTO orders SELECT 1, 'north', 100, 4, 0, '', NULL FROM range(10);
    INSERT INTO orders SELECT i, 'north', 300, 8, 0, '', NULL FROM range(2, 5) AS r(i);
    INSERT INTO orders VALUES (NULL, 'north', 500, 20, 0, '', NULL), (9, 'mars', 500, 20, 0, '', NULL);
    INSERT INTO orders VALUES (8, 'south', 9999, -5, 0, '', NULL), (8, 'south', 'nan', 20, 0, '', NULL);
"""


def test_what_the_bounds_do(shop_schema: dict[str, Any]) -> None:
    """Two rows of the heavy customer count, scaled; nobody's row does not; out of range is clamped; NaN is no value."""
    raw = duckdb.connect()
    raw.execute(HEAVY)
    shop_schema["tables"]["orders"]["columns"]["amount"]["nullable"] = True
    with dpsql.connect(raw, schema=shop_schema, budget=1e15, delta=1e-6, query_epsilon=1e9) as connection:
        cursor = connection.execute(
            "SELECT region, COUNT(*), SUM(items), SUM(amount), AVG(amount) FROM orders GROUP BY 1"
        )
        found = {row[0]: row[1:] for row in cursor}
    assert found["north"] == (
        2 + 3,
        2 * 4 + 3 * 8,
        pytest.approx(2 * 100 + 3 * 300, abs=1e-2),
        pytest.approx(1100 / 5, abs=1e-2),
    )
    assert found["south"] == (2, 0 + 20, pytest.approx(500, abs=1e-2), pytest.approx(500, abs=1e-2))
    assert found["east"] == (0, 0, pytest.approx(0, abs=1e-2), None)

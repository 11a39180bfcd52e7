"""What passes explain() can be drawn and read: no combination of options is charged for an answer that never comes.

Every aggregate, by every mechanism, with the smallest and the largest of everything that can be named. A combination
that cannot be drawn is refused before the charge; a refused answer reads NULL wherever it is read.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import pytest

import dpsql

WIDEST = 2**31 - 1
SCHEMA: dict[str, Any] = {
    "dataset": "extremes",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "uid",
            "columns": {
                "uid": "integer",
                "public": {"type": "text", "values": ["a", "b"]},
                "secret": "text",
                "x": {"type": "double", "bounds": [0, 1000]},
                "k": {"type": "integer", "bounds": [0, 6]},
                "money": {"type": "decimal(10, 2)", "bounds": [0, 100]},
                "day": {"type": "date", "bounds": ["2023-01-01", "2025-01-01"]},
                "moment": {"type": "timestamp", "bounds": ["1900-01-01", "2100-01-01"]},
                "tiny": {"type": "double", "bounds": [0, 1e-9]},
                "huge": {"type": "double", "bounds": [-1e15, 1e15]},
                "flat": {"type": "double", "bounds": [3, 3]},
            },
        }
    },
}
ROWS = """
    CREATE TABLE t AS SELECT i % 50 AS uid, ['a', 'b'][1 + i % 2] AS public, ['u', 'v'][1 + i % 2] AS secret,
    i::DOUBLE AS x, i % 7 AS k, (i % 90)::DECIMAL(10, 2) AS money, DATE '2024-01-01' + (i % 9)::INTEGER AS day,
    TIMESTAMP '2024-01-01' AS moment, 1e-9 AS tiny, 1e14 AS huge, 3::DOUBLE AS flat FROM range(200) AS r(i)
"""
AGGREGATES = [
    *("COUNT(*)", "COUNT(DISTINCT k)", "SUM(x)", "SUM(huge)", "SUM(flat)", "SUM(money)", "AVG(x)", "AVG(tiny)"),
    *("AVG(flat)", "STDDEV_SAMP(x)", "CORR(x, k)", "REGR_SLOPE(x, k)", "MEDIAN(x)", "MEDIAN(tiny)", "MEDIAN(flat)"),
    *("QUANTILE_CONT(x, 0.999999)", "MIN(huge)", "MAX(moment)", "MODE(k)", "MODE(day)"),
]
MECHANISMS = [
    {},
    *({"mechanism": name} for name in ("laplace", "gaussian", "exponential", "smooth", "stable")),
    *({"propose": proposal} for proposal in ("1e-12", "1", "1e12")),
]
BOUNDS = [
    {},
    {"max_groups": WIDEST},
    {"max_rows_per_group": WIDEST},
    {"max_groups": 10**6, "max_rows_per_group": 10**6},
    {"max_groups": WIDEST, "max_rows_per_group": WIDEST},
]
EPSILONS = ("1e-100", "1e-9", "1e-3", "1", "1e9")
DELTAS = ("0", "1e-100", "1e-6", "0.5")
EVERY = list(product(AGGREGATES, EPSILONS, BOUNDS, MECHANISMS, DELTAS, (None, "public", "secret")))
ASKED = int(os.environ.get("DPSQL_EXAMPLES", "60"))


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(ROWS)
        yield connection


def test_what_is_explained_can_be_asked(raw: duckdb.DuckDBPyConnection) -> None:
    answered = 0
    for aggregate, epsilon, bounds, mechanism, delta, key in random.Random(ASKED).sample(EVERY, ASKED):
        sql = f"SELECT {aggregate} FROM t" if key is None else f"SELECT {key}, {aggregate} FROM t GROUP BY {key}"
        with dpsql.connect(raw, schema=SCHEMA, budget=1e18, delta=delta) as connection:
            try:
                connection.explain(sql, epsilon=epsilon, **bounds, **mechanism)
                cursor = connection.execute(sql, epsilon=epsilon, **bounds, **mechanism)
            except (dpsql.ProgrammingError, dpsql.Unsupported, dpsql.BudgetExhausted):
                assert connection.budget.queries == 0
                continue
            read(cursor)
            answered += 1
    assert answered > ASKED / 10


def read(cursor: dpsql.Cursor) -> None:
    """In every form that an answer has."""
    cursor.fetchall()
    cursor.result.intervals()
    cursor.result.df()
    str(cursor.result)
    cursor.result._repr_html_()


def test_an_average_whose_noise_fits_nowhere_is_refused_before_the_charge(raw: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6) as connection:
        sql = "SELECT secret, AVG(x) FROM t GROUP BY secret"
        with pytest.raises(dpsql.ProgrammingError, match="pure noise") as refused:
            connection.execute(sql, epsilon=0.001, propose=10, max_groups=10**6)
        assert refused.value.hint
        assert connection.budget.queries == 0


ENDS = [
    "SELECT SUM(x), DP_INTERVAL_LOW(SUM(x)), DP_INTERVAL_HIGH(SUM(x)) FROM t",
    "SELECT DP_INTERVAL_LOW(SUM(x) * 2 + 1), DP_INTERVAL_HIGH(SUM(x) / 7) FROM t",
    "SELECT public, DP_INTERVAL_LOW(SUM(x)) FROM t GROUP BY public ORDER BY DP_INTERVAL_HIGH(SUM(x))",
    "SELECT public, DP_INTERVAL_HIGH(SUM(x) / COUNT(*)) FROM t GROUP BY public",
    "SELECT public, DP_INTERVAL_HIGH(COUNT(*) / SUM(x)) FROM t GROUP BY public",
    "SELECT secret, DP_INTERVAL_HIGH(SUM(x)) FROM t GROUP BY secret",
    "SELECT low FROM (SELECT DP_INTERVAL_LOW(SUM(x)) AS low FROM t)",
]


@pytest.mark.parametrize("sql", ENDS)
def test_the_ends_of_a_refused_answer_are_null(sql: str, raw: duckdb.DuckDBPyConnection) -> None:
    """Everybody adds more than is proposed: the test refuses, and what was paid for can be read."""
    with dpsql.connect(raw, schema=SCHEMA, budget=1e9, delta=1e-6) as connection:
        cursor = connection.execute(sql, epsilon=1e6, propose="0.01", max_rows_per_group=4)
        assert cursor.result.receipt.refused
        keys = "GROUP BY" in sql
        rows = cursor.fetchall()
        assert rows
        assert all(value is None for row in rows for value in row[keys:])
        read(connection.execute(sql, epsilon=1e6, propose="0.01", max_rows_per_group=4))


def test_the_ends_of_a_refused_average_are_null(raw: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6) as connection:
        sql = "SELECT public, AVG(x), DP_INTERVAL_LOW(AVG(x)), DP_INTERVAL_HIGH(AVG(x)) FROM t GROUP BY public"
        rows = connection.execute(sql, epsilon=0.01, propose=1).fetchall()
        assert [row[1:] for row in rows] == [(None, None, None)] * 2

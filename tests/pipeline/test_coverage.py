"""Intervals at 95 % hold the answer without noise in 95 % of 2 000 groups, or in more where they say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql

GROUPS = 2000
MANY_STEPS = 30
LINEAR = ("COUNT(*)", "COUNT(DISTINCT u)", "COUNT(x)", "SUM(x)", "3 * COUNT(*) - SUM(x) / 100")
RATIOS = ("AVG(x)", "SUM(x) / COUNT(*)")


def opened(rows: int) -> Iterator[dpsql.Connection]:
    """2 000 groups of so many rows each; a person has two rows in one group."""
    schema: dict[str, Any] = {
        "dataset": "equal",
        "contribution": {"max_groups": 1, "max_rows_per_group": 2},
        "tables": {
            "t": {
                "unit": "u",
                "columns": {
                    "u": "integer",
                    "k": {"type": "integer", "bounds": [0, GROUPS - 1]},
                    "x": {"type": "double", "bounds": [0, 100]},
                    "z": {"type": "double", "bounds": [0, 100]},
                },
            }
        },
    }
    with duckdb.connect() as raw:
        raw.execute(f"""
            CREATE TABLE t AS SELECT k * 1000 + i // 2 AS u, k, (i * 7 % 101)::DOUBLE AS x,
                   ((i * 7 % 101) * 0.5 + i * 13 % 37)::DOUBLE AS z
            FROM range({GROUPS}) AS a(k), range({rows}) AS b(i)""")
        with dpsql.connect(raw, schema=schema, epsilon=1e6, delta=1e-6) as connection:
            yield connection


@pytest.fixture(scope="module", params=[5, 500])
def equal(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    yield from opened(request.param)


def held(connection: dpsql.Connection, sql: str, **options: Any) -> float:
    """In how many of the groups the interval holds the truth, of those that have an answer."""
    truth = connection.execute(sql, epsilon=1e5, mechanism="laplace").df().x.astype(float)
    frame = connection.execute(sql, fresh=True, **options).intervals()
    answered = frame.x.notna()
    low, high = frame.x_low[answered].astype(float), frame.x_high[answered].astype(float)
    return float(np.mean((low <= truth[answered] + 1e-6) & (truth[answered] - 1e-6 <= high)))


@pytest.mark.long
@pytest.mark.parametrize("expression", [*LINEAR, *RATIOS])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.1, 1])
def test_coverage(equal: dpsql.Connection, expression: str, mechanism: str, epsilon: float) -> None:
    """Within three standard deviations of 2 000 coins.

    A ratio over a divisor that may be 0 has a wider interval; noise of few steps cannot have one of exactly 95 %.
    """
    sql, options = (
        f"SELECT k, {expression} AS x FROM t GROUP BY k ORDER BY k",
        {"epsilon": epsilon, "mechanism": mechanism},
    )
    share = held(equal, sql, **options)
    assert share >= 0.935
    if expression in LINEAR and (equal.explain(sql, **options).columns[1].half_width or 0) > MANY_STEPS:
        assert share <= 0.968


@pytest.mark.long
@pytest.mark.parametrize("expression", ["VAR_POP(x)", "STDDEV(x)", "COVAR_POP(x, z)", "CORR(x, z)", "REGR_SLOPE(x, z)"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.1, 1, 5])
def test_coverage_of_moments(equal: dpsql.Connection, expression: str, mechanism: str, epsilon: float) -> None:
    """Error bars by the delta method hold 95 %, or there are none: whether one is shown hardly depends on the noise."""
    sql = f"SELECT k, {expression} AS x FROM t GROUP BY k ORDER BY k"
    truth = equal.execute(sql, epsilon=1e5, mechanism="laplace").df().x.astype(float)
    frame = equal.execute(sql, epsilon=epsilon, mechanism=mechanism, fresh=True).intervals()
    shown = frame.x_low.notna()
    inside = (frame.x_low.astype(float) <= truth + 1e-6) & (truth - 1e-6 <= frame.x_high.astype(float))
    if np.mean(shown) > 0.1:
        assert 0.935 <= np.mean(inside[shown]) <= 0.97


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_coverage_where_keys_are_not_public(mechanism: str) -> None:
    """Groups far above the threshold are all shown, and their counts lean on the count that shows them."""
    for connection in opened(500):
        for expression in LINEAR[:4]:
            sql = f"SELECT 'k' || k AS k, {expression} AS x FROM t GROUP BY ALL ORDER BY k"
            share, (_, column) = (
                held(connection, sql, epsilon=1, mechanism=mechanism),
                connection.explain(sql, epsilon=1, mechanism=mechanism).columns,
            )
            assert share >= 0.935
            assert share <= 0.968 or (column.half_width or 0) <= MANY_STEPS


EXCLUSIVE = ("COUNT_IF(x < 50)", "SUM(CASE WHEN x < 50 THEN x ELSE 0 END)", "SUM(x) FILTER (WHERE x < 50)")


@pytest.mark.long
@pytest.mark.parametrize("expression", EXCLUSIVE)
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.1, 1])
def test_coverage_of_columns_that_exclude_each_other(
    equal: dpsql.Connection, expression: str, mechanism: str, epsilon: float
) -> None:
    others = "COUNT_IF(x >= 50 AND x < 80) AS y, AVG(x) FILTER (WHERE x >= 80) AS z"
    sql = f"SELECT k, {expression} AS x, {others} FROM t GROUP BY k ORDER BY k"
    assert any(measure.place for measure in equal.explain(sql).releases[0].measures)
    share = held(equal, sql, epsilon=epsilon, mechanism=mechanism)
    print(share)
    assert 0.935 <= share <= 0.968

"""Slopes and correlations where x hardly varies: what noise alone could have made is not divided by."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql

GROUPS = 60
EACH = 50
NUMBER = {"type": "double", "bounds": [0, 10]}
COLUMNS = {
    "person": "integer",
    "part": {"type": "integer", "values": list(range(GROUPS))},
    "same": NUMBER,
    "x": NUMBER,
    "y": NUMBER,
}
SCHEMA: dict[str, Any] = {"tables": {"people": {"unit": "person", "unique": True, "columns": COLUMNS}}}
WITHOUT_VALUE = ["REGR_SLOPE(y, same)", "REGR_INTERCEPT(y, same)", "CORR(y, same)", "CORR(same, y)", "REGR_R2(y, same)"]


@pytest.fixture(scope="module")
def people() -> dpsql.Connection:
    raw = duckdb.connect()
    raw.execute(
        f"CREATE TABLE people AS SELECT i AS person, i // {EACH} AS part, 0.1::DOUBLE AS same,"
        f" (i % {EACH}) / 5.0 AS x, (i % {EACH}) / 10.0 + 1 AS y FROM range({GROUPS * EACH}) AS r(i)"
    )
    return dpsql.connect(raw, schema=SCHEMA, epsilon=1e18, delta=1e-6)


def drawn(connection: dpsql.Connection, asked: str, epsilon: float) -> list[Any]:
    """Once for each group, which all have the same values."""
    rows = connection.execute(f"SELECT part, {asked} FROM people GROUP BY part", epsilon=epsilon).fetchall()
    assert len(rows) == GROUPS
    return [value for _, value in rows]


@pytest.mark.parametrize("epsilon", [1, 1e4, 1e9, 1e13])
@pytest.mark.parametrize("asked", WITHOUT_VALUE)
def test_what_does_not_vary_has_no_slope(people: dpsql.Connection, asked: str, epsilon: float) -> None:
    found = drawn(people, asked, epsilon)
    assert found.count(None) >= 0.85 * GROUPS, found


def test_nor_has_it_in_a_total(people: dpsql.Connection) -> None:
    sql = "SELECT part, REGR_SLOPE(y, same) FROM people GROUP BY ROLLUP (part)"
    answers = [people.execute(sql, epsilon=1, fresh=True).fetchall()[-1][1] for _ in range(8)]
    assert answers.count(None) >= 6, answers


def test_what_varies_has_a_slope(people: dpsql.Connection) -> None:
    found = drawn(people, "REGR_SLOPE(y, x)", 50)
    assert None not in found
    assert sum(found) / GROUPS == pytest.approx(0.5, abs=0.1)


def test_a_constant_is_explained_and_what_only_seems_one_is_not(people: dpsql.Connection) -> None:
    sql = "SELECT REGR_R2(1, x), REGR_R2(1, x) FILTER (WHERE x > 2), REGR_R2(same, x), REGR_R2(1, same) FROM people"
    assert people.execute(sql, epsilon=1e13).fetchall() == [(1.0, 1.0, None, None)]


def test_a_slope_can_be_asked_first(people: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) FROM people WHERE x > (SELECT 10 * REGR_SLOPE(y, x) + 0.1 FROM people)"
    assert people.execute(sql, epsilon=1e13).fetchall() == [(GROUPS * 24,)]


def test_a_variance_is_right_on_average_and_says_how_exact_it_is() -> None:
    """The noise of the mean would make it too small; of few rows nothing is said."""
    with duckdb.connect() as raw:
        raw.execute("""
            CREATE TABLE t AS SELECT i AS u, i % 200 AS k, (i * 7 % 101)::DOUBLE AS x
            FROM range(60_000) AS r(i)""")
        columns = {"u": "integer", "k": {"type": "integer", "bounds": [0, 199]}}
        columns |= {"x": {"type": "double", "bounds": [0, 100]}}  # type: ignore[dict-item]
        schema = {"tables": {"t": {"unit": "u", "columns": columns}}}
        with dpsql.connect(raw, schema=schema, epsilon=1e6, delta=1e-6, ledger=":memory:") as connection:
            sql = "SELECT k, VAR_POP(x) AS v FROM t GROUP BY k ORDER BY k"
            truth = np.array([row[1] for row in raw.execute(sql).fetchall()])
            frames = [connection.execute(sql, epsilon=0.4, fresh=True).intervals() for _ in range(3)]
            off = np.concatenate([frame.v.astype(float) - truth for frame in frames])
            assert abs(off.mean()) < 4 * off.std() / len(off) ** 0.5
            exact = connection.execute(sql, epsilon=2, fresh=True).intervals()
            inside = (exact.v_low.astype(float) <= truth) & (truth <= exact.v_high.astype(float))
            assert inside.mean() > 0.9
            rough = connection.execute(sql, epsilon=0.01, fresh=True).intervals()
            assert rough.v_low.isna().all()

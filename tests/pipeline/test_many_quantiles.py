"""Nine or more quantiles of one column are drawn together, from one profile, at the cost of their levels."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql

ROWS = 3000


@pytest.fixture(scope="module")
def connection() -> dpsql.Connection:
    raw = duckdb.connect()
    raw.execute(f"""CREATE TABLE t AS SELECT i AS u, 'g' || i % 2 AS g, 'k' || i % 2 AS k, (i * 37 % 1000)::DOUBLE AS x,
                    (i * 31 % 1000)::DOUBLE AS y FROM range({ROWS}) AS r(i)""")
    columns: dict[str, Any] = {
        "u": "integer",
        "g": {"type": "text", "values": ["g0", "g1", "nobody"]},
        "k": "text",
        "x": {"type": "double", "bounds": [0, 1000]},
        "y": {"type": "double", "bounds": [0, 1000]},
    }
    schema = {"dataset": "many", "tables": {"t": {"unit": "u", "unique": True, "columns": columns}}}
    return dpsql.connect(raw, schema=schema, budget=1e6, delta=1e-6)


def of(column: str, number: int, more: str = "") -> str:
    return ", ".join(f"QUANTILE_CONT({column}, {i / (number + 1):.4f}){more}" for i in range(1, number + 1))


def test_they_are_near_the_truth_and_in_order(connection: dpsql.Connection) -> None:
    cursor = connection.execute(f"SELECT {of('x', 19)}, MIN(x), MAX(x) FROM t", epsilon=5)
    *answers, least, most = cursor.fetchall()[0]
    assert least <= answers[0]
    assert answers[-1] <= most
    assert (np.diff(answers) >= 0).all()
    assert np.abs(np.array(answers) - np.arange(1, 20) * 50).max() < 60
    assert cursor.receipt.epsilon == 5


@pytest.mark.parametrize(("number", "each"), [(8, 8), (9, 4), (15, 4), (19, 5)])
def test_what_a_level_costs(connection: dpsql.Connection, number: int, each: int) -> None:
    """A count beside them has a part that is as large as that of one draw."""
    sql = f"SELECT COUNT(*) AS n, {of('x', number)} FROM t"
    explained = connection.explain(sql, epsilon=1, mechanism="laplace")
    alone = connection.explain("SELECT COUNT(*) AS n FROM t", epsilon=1 / (1 + each), mechanism="laplace")
    assert explained.columns[0].half_width == alone.columns[0].half_width
    assert explained.cost.epsilon == 1
    profiles = explained.releases[0].sql.count("_guess AS MATERIALIZED")
    assert (profiles == 1) is (number >= 9)


def test_groups_filters_and_columns(connection: dpsql.Connection) -> None:
    where = " FILTER (WHERE y < 500)"
    sql = f"SELECT g, {of('x', 9)}, {of('x', 9, where)}, MEDIAN(y) FROM t GROUP BY g"
    releases = connection.explain(sql, epsilon=8).releases
    assert releases[0].sql.count("_guess AS MATERIALIZED") == 3
    rows = connection.execute(sql, epsilon=8).fetchall()
    assert [row[0] for row in rows] == ["g0", "g1", "nobody"]
    for row in rows[:2]:
        assert np.abs(np.array(row[1:10]) - np.arange(1, 10) * 100).max() < 150
        assert (np.diff(row[10:19]) >= 0).all()


def test_unknown_keys(connection: dpsql.Connection) -> None:
    rows = connection.execute(f"SELECT k, {of('x', 9)} FROM t GROUP BY k", epsilon=8).fetchall()
    assert sorted(row[0] for row in rows) == ["k0", "k1"]
    assert connection.execute(f"SELECT k, {of('x', 9)} FROM t WHERE u < 2 GROUP BY k", epsilon=1).fetchall() == []


def test_the_same_again_is_free(connection: dpsql.Connection) -> None:
    sql = f"SELECT {of('y', 10)} FROM t"
    first = connection.execute(sql, epsilon=1).fetchall()
    again = connection.execute(sql, epsilon=1)
    assert again.fetchall() == first
    assert again.receipt.epsilon == 0


def test_mechanisms_with_noise_draw_each_for_itself(connection: dpsql.Connection) -> None:
    explained = connection.explain(f"SELECT {of('x', 9)} FROM t", epsilon=9, mechanism="smooth")
    assert explained.releases[0].sql.count("_guess AS MATERIALIZED") == 9


def test_on_a_curve_a_level_costs_as_a_choice_does() -> None:
    """With a delta, five choices of epsilon 0.2 cost less than epsilon 1."""
    from fractions import Fraction

    from dpsql.accounting.events import Exponential, Repeated
    from dpsql.accounting.privacy_loss import privacy_loss

    together = privacy_loss(Repeated((Exponential(Fraction(1, 5)),), Fraction(5)))
    assert together.mu_squared < privacy_loss(Exponential(Fraction(1))).mu_squared

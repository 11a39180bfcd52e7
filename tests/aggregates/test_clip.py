"""A clip as the proposal: shown where nobody exceeds it, refused where everybody does, and then not paid for."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql

WARDS = 50
BY_WARD = "SELECT ward, SUM(cost) FROM visits GROUP BY ward"
LAPLACE: dict[str, Any] = {"most_wards": 1}
GAUSSIAN: dict[str, Any] = {"most_wards": WARDS, "delta": 1e-6}


def clinic(people: int, cost: int, most_wards: int, **options: Any) -> dpsql.Connection:
    """Everybody has one visit, at the same cost."""
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (person BIGINT, ward BIGINT, cost BIGINT)")
    database.execute(f"INSERT INTO visits SELECT i, i % {WARDS}, {cost} FROM range({people}) AS t(i)")
    columns = {
        "person": "integer",
        "ward": {"type": "integer", "values": list(range(WARDS))},
        "cost": {"type": "integer", "bounds": [0, 1000]},
    }
    schema = {
        "dataset": "clinic",
        "contribution": {"max_groups": most_wards, "max_rows_per_group": 1},
        "tables": {"visits": {"unit": "person", "columns": columns}},
    }
    return dpsql.connect(database, schema=schema, budget=4, **options)


@pytest.mark.parametrize("session", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_where_nobody_exceeds_it_the_test_fails_one_time_in_a_hundred(session: dict[str, Any]) -> None:
    refused, times = 0, 6
    with clinic(400, 40, **session) as connection:
        for _ in range(times):
            answer = connection.execute(BY_WARD, epsilon=0.1, propose=50, fresh=True)
            refused += sum(total is None for _, total in answer.fetchall())
    assert refused <= times * WARDS / 100 + 6 * (times * WARDS / 100) ** 0.5


@pytest.mark.parametrize("session", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_where_everybody_exceeds_it_the_sum_is_not_paid_for(session: dict[str, Any]) -> None:
    """What is left is the noisy number of people alone: less than what was charged, more than nothing."""
    with clinic(20_000, 900, **session) as connection:
        answer = connection.execute(BY_WARD, epsilon=2, propose=50)
        assert {total for _, total in answer.fetchall()} == {None}
        assert answer.receipt.mechanism == ("ptr and gaussian" if session is GAUSSIAN else "ptr and laplace")
        left = connection.budget.spent.epsilon
    assert left == 1 if session is LAPLACE else 1 < left < 2


def test_a_sum_that_another_release_waits_for_is_given_back_too() -> None:
    """Two sums and two numbers of people are charged; the first sum is not released, and the second is over nobody."""
    with clinic(20_000, 900, **LAPLACE) as connection:
        sql = "SELECT SUM(cost) FROM visits WHERE cost > (SELECT SUM(cost) FROM visits)"
        assert connection.execute(sql, epsilon=2, propose=50).receipt.cost.epsilon == 1.5
        assert connection.budget.spent.epsilon == 1.5


def test_what_is_shown_anywhere_is_paid_for() -> None:
    """One ward is enough."""
    with clinic(20_000, 900, **LAPLACE) as connection:
        sql = "SELECT ward, SUM(CASE WHEN ward = 7 THEN 40 ELSE cost END) FROM visits GROUP BY ward"
        answer = connection.execute(sql, epsilon=2, propose=50)
        assert [ward for ward, total in answer.fetchall() if total is not None] == [7]
        assert connection.budget.spent.epsilon == 2


def test_the_shown_sum_is_clipped() -> None:
    """Few enough people exceed it that the test hardly sees them; each adds the proposal and no more."""
    sql, shown = "SELECT SUM(cost) FROM visits", []
    with clinic(10, 900, **LAPLACE) as connection:
        for _ in range(8):
            [(total,)] = connection.execute(sql, epsilon=0.5, propose=50, fresh=True).fetchall()
            shown += [total] if total is not None else []
    assert shown
    assert all(abs(total - 10 * 50) < 4000 for total in shown)

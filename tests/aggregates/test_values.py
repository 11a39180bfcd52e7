"""Which values of a unit a median looks at: the first `rows` of each of its first groups, once for all profiles."""

from __future__ import annotations

from itertools import product
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.aggregates import release_sql
from dpsql.engine_sql.tree import CTE, Query

SCHEMA: dict[str, Any] = {
    "dataset": "visits",
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "text", "values": ["a", "b", "c", "d", "e"]},
                "place": "text",
                "paid": {"type": "double", "bounds": [0, 50]},
            },
        }
    },
}
QUESTIONS = (
    "SELECT QUANTILE_DISC(paid, 0.1), MEDIAN(paid) FROM visits",
    "SELECT ward, MEDIAN(paid), MAX(paid), QUANTILE_DISC(paid, 0.9) FROM visits GROUP BY ward",
    "SELECT place, QUANTILE_DISC(paid, 0.25), QUANTILE_DISC(paid, 0.75), COUNT(*) FROM visits GROUP BY place",
    "SELECT ward, MEDIAN(paid), QUANTILE_DISC(paid, 0.3), COUNT(DISTINCT place), SUM(paid) FROM visits GROUP BY ward",
)
BOUNDS = ((1, 1), (2, 3), (16, 2))


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    """People in several wards, which they may pay nothing in, or in one that is not listed."""
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE visits AS SELECT u AS person, 'abcdef'[1 + (7 * u + 3 * n) % 6] AS ward,"
        " 'p' || (u + n * n) % 30 AS place,"
        " CASE WHEN (u * n) % 5 > 0 THEN (13 * u + 29 * n) % 61 - 3.5 END AS paid"
        " FROM range(40) AS us(u), range(1, 25) AS ns(n) WHERE n < 3 + u % 22"
    )
    return database


def exact(raw: duckdb.DuckDBPyConnection, *questions: str) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """The SQL of the questions at each of the bounds, and what it gives before noise."""
    with dpsql.connect(raw, schema=SCHEMA, budget=3, delta=1e-6, ledger=":memory:") as connection:
        explained = [
            connection.explain(question, epsilon=1, max_groups=groups, max_rows_per_group=rows)
            for question, (groups, rows) in product(questions, BOUNDS)
        ]
    return [(found.releases[0].sql, raw.execute(found.releases[0].sql).fetchall()) for found in explained]


def test_profiles_of_the_same_values_share_them(
    raw: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = exact(raw, *QUESTIONS)
    monkeypatch.setattr(release_sql, "with_values_once", each_by_itself)
    for (sql, together), (single, apart) in zip(shared, exact(raw, *QUESTIONS), strict=True):
        assert together == apart
        assert sql.count("_value_rank BETWEEN") < single.count("_value_rank BETWEEN")


def each_by_itself(branches: list[Query]) -> tuple[tuple[CTE, ...], list[Query]]:
    return (), branches


def test_values_are_those_of_the_groups_that_are_counted(raw: duckdb.DuckDBPyConnection) -> None:
    """A median beside a sum: in each ward it has as many values as are counted, since both rank groups alike."""
    for _, found in exact(raw, "SELECT ward, COUNT(paid) AS n, MEDIAN(paid) FROM visits GROUP BY ward"):
        assert sum(counted for _, counted, *_ in found) > 0
        assert all(counted == rows for _, counted, *_, rows in found)


def test_every_unit_counts_once_in_an_extreme(raw: duckdb.DuckDBPyConnection) -> None:
    """However many rows it has: no bound on rows leaves anything out."""
    profiles = [profile for _, (profile,) in exact(raw, "SELECT MAX(paid) FROM visits")]
    (people,) = raw.execute("SELECT COUNT(DISTINCT person) FROM visits WHERE paid IS NOT NULL").fetchall()[0]
    assert {counted for *_, counted in profiles} == {people}
    assert len({max(points) for points, *_ in profiles}) == 1
    with dpsql.connect(raw, schema=SCHEMA, budget=3, ledger=":memory:") as connection:
        few, many = (connection.explain("SELECT MAX(paid) FROM visits", max_rows_per_group=rows) for rows in (1, 100))
        assert few.releases[0].statistics == many.releases[0].statistics
        assert "rows per person" not in str(connection.execute("SELECT MAX(paid) FROM visits", epsilon=1))

"""What each measure has of a query's budget: the figures of the reference query, unknown keys, and weights=."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpsql
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.options import QueryRequest
from dpsql.pipeline.add_noise import noised
from dpsql.pipeline.calibrate_noise import Calibrated
from dpsql.pipeline.stages import compile_question

REGIONS = [f"region {number}" for number in range(10)]
PUBLIC: dict[str, Any] = {
    "dataset": "peers",
    "contribution": {"max_groups": 5, "max_rows_per_group": 2},
    "tables": {
        "orders": {
            "unit": "customer",
            "columns": {
                "customer": "integer",
                "region": {"type": "text", "values": REGIONS},
                "amount": {"type": "double", "bounds": [0, 500]},
            },
        }
    },
}
UNKNOWN = copy.deepcopy(PUBLIC)
UNKNOWN["tables"]["orders"]["columns"]["region"] = "text"
SQL = "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region"
COUNT_ALONE, SUM_ALONE = 18.97, 9_483
"""What either column would have with the whole budget, at epsilon 1 of a session of (1, 1e-6)."""
RUNS = 3000


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("""
            CREATE TABLE orders AS SELECT i // 10 AS customer, (i % 2000) / 4.0::DOUBLE AS amount,
                                          'region ' || (i % 10 // 2 + 5 * (i // 10 % 2)) AS region
            FROM range(20000) AS r(i)""")
        yield connection


def calibrated(raw: Any, schema: Any, sql: str = SQL, **options: Any) -> Calibrated:
    with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
        request = QueryRequest(sql=sql, epsilon=Fraction(1), **options)
        return compile_question(request, connection.session.environment.public())


def stds(found: Calibrated) -> dict[str, float]:
    """Of each column, seen: from many draws of the noise of the measures that it is made of."""
    measures = {measure.bounded.column: measure for measure in found.releases[0].measures}
    drawn = noised(dict.fromkeys(measures, np.zeros(RUNS, dtype=np.int64)), measures)
    return {
        output.name: float(np.std(sum(float(weight) * drawn[name] for name, weight in output.estimate.weights)))
        for output in found.outputs
        if output.estimate is not None
    }


def test_the_reference_query(raw: Any) -> None:
    """Two thirds for the count have the least product of errors: docs/proofs/weights.md."""
    found = calibrated(raw, PUBLIC, mechanism="gaussian")
    assert [float(part) for part in found.noise_plan.parts[0]] == pytest.approx([2 / 3, 1 / 3], abs=1e-3)
    assert stds(found) == pytest.approx({"n": 1.225 * COUNT_ALONE, "total": 1.061 * SUM_ALONE}, rel=0.05)


def test_equal_weights_are_equal_ratios(raw: Any) -> None:
    found = calibrated(raw, PUBLIC, weights=(("n", Fraction(1)), ("total", Fraction(1))))
    assert stds(found) == pytest.approx({"n": 1.155 * COUNT_ALONE, "total": 1.155 * SUM_ALONE}, rel=0.05)


def test_unknown_keys_cost_next_to_nothing(raw: Any) -> None:
    """The count of units that selects groups bears its part of the count of rows: groups of 76 people are shown."""
    found = calibrated(raw, UNKNOWN)
    assert found.releases[0].threshold is not None
    assert found.releases[0].threshold <= 76
    drawn = stds(found)
    assert drawn["n"] <= 23.0 * 1.04
    assert drawn["total"] <= 10_300 * 1.04


def test_one_row_per_group_is_a_unit_that_is_counted_once(raw: Any) -> None:
    found = calibrated(raw, UNKNOWN, "SELECT region, COUNT(*) AS n FROM orders GROUP BY region", max_rows_per_group=1)
    (measure,) = found.releases[0].measures
    assert found.releases[0].planned.release.partition_selection == measure.bounded.column


@pytest.mark.parametrize("schema", [PUBLIC, UNKNOWN], ids=["public", "unknown"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_the_whole_costs_what_it_says(raw: Any, schema: Any, mechanism: str) -> None:
    columns = "COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a, COUNT(amount) AS m, STDDEV(amount) AS d"
    for weights in (None, (("n", Fraction(5)),)):
        found = calibrated(
            raw, schema, f"SELECT region, {columns} FROM orders GROUP BY region", mechanism=mechanism, weights=weights
        )
        assert sum(part for release in found.noise_plan.parts for part in release) == 1
        loss = privacy_loss(found.event)
        with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
            assert connection.budget.filter.spent(loss).epsilon <= 1
        if mechanism == "laplace":
            assert loss.epsilon == 1


def test_weights_by_name(raw: Any) -> None:
    """Twice the weight is half of the ratio to the error alone; a column that is not named has a weight of 1."""
    with dpsql.connect(raw, schema=PUBLIC, budget=1, delta=1e-6) as connection:
        sql = "SELECT COUNT_IF(amount > 3) AS a, COUNT_IF(amount > 5) AS b FROM orders"
        for weights in ({"a": 2}, {"a": 4, "b": 2}):
            a, b = (column.half_width for column in connection.explain(sql, epsilon=0.5, weights=weights).columns)
            assert a is not None
            assert b == pytest.approx(2 * a, rel=0.02)
        assert connection.execute(sql, epsilon=0.5, weights={"a": 2}).result.columns[0].half_width == a


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"m": 2}, "is not a column with a known error"),
        ({"region": 2}, "is not a column with a known error"),
        ({"n": 0}, "a weight must be above 0"),
        ({"n": "much"}, "a weight"),
        ([1, 2], "takes a weight for each column name"),
        ({1: 2}, "takes a weight for each column name"),
    ],
)
def test_weights_that_say_nothing_are_refused(raw: Any, weights: Any, said: str) -> None:
    with dpsql.connect(raw, schema=PUBLIC, budget=1, delta=1e-6) as connection:
        with pytest.raises(dpsql.ProgrammingError, match=said):
            connection.explain(SQL, weights=weights)
        assert connection.budget.spent.epsilon == 0


# -- the answers without noise are the same ones -----------------------------------------------------------------------

SHAPES = [
    "SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region",
    "SELECT region, COUNT(amount) AS n, SUM(amount) AS s FROM orders GROUP BY region",
    "SELECT region, COUNT(*) AS n, COUNT(DISTINCT customer) AS u, AVG(amount) AS a FROM orders GROUP BY region",
    "SELECT region, SUM(amount) AS s FROM orders GROUP BY region",
    "SELECT region, SUM(amount - 300) AS s, COUNT(*) AS n, COUNT_IF(amount > 100) AS k FROM orders GROUP BY region",
    "SELECT region, COUNT(*) AS n FROM orders GROUP BY ROLLUP (region)",
    "SELECT COUNT(*) AS n, COUNT(DISTINCT customer) AS u, SUM(amount) AS s FROM orders",
]


@pytest.fixture(scope="module")
def with_nulls(raw: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("frame", raw.execute("FROM orders WHERE customer < 200").df())
        connection.execute("CREATE TABLE orders AS FROM frame")
        connection.execute("UPDATE orders SET amount = NULL WHERE amount % 5 = 0")
        yield connection


@pytest.mark.parametrize("schema", [PUBLIC, UNKNOWN], ids=["public", "unknown"])
@pytest.mark.parametrize("sql", SHAPES)
@pytest.mark.parametrize(("rows", "mechanism"), [(10, "laplace"), (11, "gaussian")])
def test_without_noise_the_answer_is_that_of_duckdb(
    schema: Any, sql: str, rows: int, mechanism: str, with_nulls: Any
) -> None:
    """Some amounts are NULL, which COUNT(*) counts, COUNT(amount) does not, and SUM passes over."""
    plain = with_nulls.execute(sql).fetchall()
    with dpsql.connect(with_nulls, schema=schema, budget=1e16, delta=1e-6) as connection:
        answer = connection.execute(sql, epsilon=1e14, mechanism=mechanism, max_rows_per_group=rows).fetchall()
    assert len(answer) == len(plain)
    for row, expected in zip(sorted(answer, key=repr), sorted(plain, key=repr), strict=True):
        assert all(
            math.isclose(a, b, rel_tol=1e-6) if isinstance(b, float) else a == b
            for a, b in zip(row, expected, strict=True)
        ), (row, expected)


@pytest.mark.parametrize("bound", [1e153, 1e160, 1e300])
@pytest.mark.parametrize("columns", ["SUM(x)", "AVG(x)", "AVG(x), COUNT(*)"])
def test_bounds_whose_squares_no_double_holds(bound: float, columns: str) -> None:
    people = pd.DataFrame({"person": range(50), "x": 1.0})
    declared = {"person": "integer", "x": {"type": "double", "bounds": [-bound, bound]}}
    schema = {"dataset": "d", "tables": {"people": {"unit": "person", "columns": declared}}}
    with dpsql.connect({"people": people}, schema=schema, budget=10, delta=1e-6) as conn:
        assert len(conn.execute(f"SELECT {columns} FROM people", epsilon=1).fetchall()) == 1

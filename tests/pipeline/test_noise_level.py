"""How much noise there is: as little as is claimed, and as much as the error bars say.

The measure is the best peer at epsilon 1, delta 1e-6, with 5 groups of 2 rows per person: 26.7 for a count, 13 360 for
a sum over [0, 500] (FIELD, peers).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.options import QueryRequest
from dpsql.pipeline.add_noise import noised
from dpsql.pipeline.calibrate_noise import Calibrated
from dpsql.pipeline.stages import compile_question

REGIONS = [f"region {number}" for number in range(10)]
SCHEMA = {
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
SQL = "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region ORDER BY region"
COUNT_STD, SUM_STD = 23.25, 10_070
RUNS = 500


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("""
        CREATE TABLE orders AS SELECT i // 10 AS customer, 'region ' || (i % 10 // 2 + 5 * (i // 10 % 2)) AS region,
                                      (i % 2000) / 4.0::DOUBLE AS amount
        FROM range(20000) AS r(i)""")
    yield connection
    connection.close()


@pytest.fixture
def session(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    """Affords exactly one such query."""
    with dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6, query_epsilon=1) as connection:
        yield connection


@pytest.fixture(scope="module")
def rich(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=1e6, delta=1e-6, query_epsilon=1) as connection:
        yield connection


def std_of(calibrated: Calibrated, name: str) -> float:
    """The standard deviation of a column that is a weighted sum of measures."""
    (output,) = (output for output in calibrated.outputs if output.name == name)
    stds = {measure.bounded.column: measure.std for measure in calibrated.releases[output.release].measures}
    return math.sqrt(sum((float(weight) * stds[column]) ** 2 for column, weight in output.estimate.weights))


def compiled(session: dpsql.Connection, sql: str) -> Calibrated:
    return compile_question(QueryRequest(sql=sql, epsilon=Fraction(1)), session.session.environment.public())


def test_claimed_noise(session: dpsql.Connection) -> None:
    explained, calibrated = session.explain(SQL), compiled(session, SQL)
    (release,) = explained.releases
    assert release.public_keys
    assert [measure.l0 for measure in release.measures] == [5, 5]
    assert explained.cost.epsilon == 1
    assert explained.cost.delta <= 1e-6
    assert std_of(calibrated, "n") <= COUNT_STD
    assert std_of(calibrated, "total") <= SUM_STD
    # 95 % of a normal distribution lie within 1.96 standard deviations
    _, count, total = explained.columns
    assert count.half_width <= 1.98 * COUNT_STD
    assert total.half_width <= 1.97 * SUM_STD


def test_sampled_noise(session: dpsql.Connection) -> None:
    """500 runs of ten groups: the sampled standard deviation is the claimed one within chance (3 % at 5000 samples)."""
    calibrated = compiled(session, SQL)
    (release,) = calibrated.releases
    zeros = np.zeros(RUNS * len(REGIONS), dtype=np.int64)
    measures = {measure.bounded.column: measure for measure in release.measures}
    drawn = noised(dict.fromkeys(measures, zeros), measures)
    for name, most in (("n", COUNT_STD), ("total", SUM_STD)):
        (output,) = (output for output in calibrated.outputs if output.name == name)
        noise = sum(float(weight) * drawn[column] for column, weight in output.estimate.weights)
        assert np.std(noise) == pytest.approx(std_of(calibrated, name), rel=0.05)
        assert np.std(noise) <= 1.04 * most
        assert abs(np.mean(noise)) <= 5 * most / math.sqrt(len(zeros))


def test_noise_of_whole_runs(raw: duckdb.DuckDBPyConnection) -> None:
    """The same seen from outside, each answer by a session of its own that can afford just this one."""
    truth = dict(raw.execute("SELECT region, COUNT(*) FROM orders GROUP BY region").fetchall())
    noise = []
    for _ in range(30):
        with dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6, ledger=":memory:") as connection:
            noise += [row[1] - truth[row[0]] for row in connection.execute(SQL, epsilon=1)]
            with pytest.raises(dpsql.BudgetExhausted):
                connection.execute(SQL, epsilon=1, fresh=True)
    # A session for one question has K-norm noise: 5 groups of 2 rows, 10 sqrt(4) = 20. Of 300 draws 25 % are 4.8 sigma.
    assert 0.75 * 20 <= np.std(noise) <= 1.25 * 20


def test_explained_error_is_the_reported_one(session: dpsql.Connection) -> None:
    explained = session.explain(SQL)
    cursor = session.execute(SQL)
    assert [column.half_width for column in explained.columns] == [
        column.half_width for column in cursor.result.columns
    ]
    frame = cursor.intervals(0.95)
    for column in explained.columns[1:]:
        low, high = frame[f"{column.name}_low"], frame[f"{column.name}_high"]
        assert ((high - low) / 2).to_numpy() == pytest.approx(column.half_width)
        assert ((high + low) / 2).to_numpy() == pytest.approx(frame[column.name].to_numpy().astype(float))


COVERED = [
    ("COUNT(*)", "gaussian"),
    ("COUNT(*)", "laplace"),
    ("SUM(amount)", "gaussian"),
    ("AVG(amount)", "gaussian"),
    ("AVG(amount)", "laplace"),
    ("SUM(amount) / COUNT(*)", "gaussian"),
    ("3 * COUNT(*) - SUM(amount) / 100", "laplace"),
]


@pytest.mark.parametrize(("expression", "mechanism"), COVERED)
def test_intervals_cover_the_truth(expression: str, mechanism: str, rich: Any, raw: Any) -> None:
    """At 95 %, of 300 answers between 90 % and 98.7 % hold the truth: four standard deviations to either side.

    Intervals of ratios may be wider than they had to be, so only their lower limit is checked.
    """
    sql = f"SELECT region, {expression} AS x FROM orders GROUP BY region ORDER BY region"
    truth = dict(raw.execute(sql).fetchall())
    held = []
    for _ in range(30):
        frame = rich.execute(sql, mechanism=mechanism, epsilon=1, fresh=True).intervals(0.95)
        held += [low <= truth[r] <= high for r, low, high in zip(frame.region, frame.x_low, frame.x_high, strict=True)]
    assert np.mean(held) >= 0.9
    if expression in ("COUNT(*)", "SUM(amount)"):
        assert np.mean(held) <= 0.987


def test_levels(session: dpsql.Connection) -> None:
    cursor = session.execute(SQL)
    widths = [(frame.n_high - frame.n_low).iloc[0] for frame in map(cursor.intervals, (0.5, 0.9, 0.95, 0.999))]
    assert widths == sorted(set(widths))
    for level in (0, 1, -0.5, 1.5, "95", True, float("nan")):
        with pytest.raises(dpsql.ProgrammingError):
            cursor.intervals(level)


def test_a_noise_that_does_not_fit_64_bits_is_refused_or_right() -> None:
    """Wrapped around 2^64 the answer would look exact, and its error bars would be a lie."""
    schema = {
        "dataset": "wide",
        "contribution": {"max_groups": 4, "max_rows_per_group": 5},
        "tables": {
            "t": {
                "unit": "u",
                "columns": {
                    "u": "integer",
                    "x": {"type": "decimal(18,2)", "bounds": [-9_000_000_000_000_000, 9_000_000_000_000_000]},
                },
            }
        },
    }
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t AS SELECT i AS u, 1::DECIMAL(18,2) AS x FROM range(10) AS r(i)")
    connection = dpsql.connect(raw, schema=schema, budget=1000, delta=1e-6)
    try:
        claimed = connection.explain("SELECT SUM(x) FROM t", epsilon=0.01).columns[0].half_width
        answers = [
            connection.execute("SELECT SUM(x) FROM t", epsilon=0.01, fresh=True).fetchone()[0] for _ in range(40)
        ]
    except dpsql.Error:
        return
    assert claimed / 5 <= np.std([float(answer) for answer in answers]) <= claimed

"""K-norm noise in whole questions: where it is chosen, what it crosses, where Laplace noise takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.mechanisms import k_norm
from dpsql.pipeline.add_noise import noised
from dpsql.pipeline.calibrate_noise import Calibrated
from dpsql.pipeline.stages import compile_question

SCHEMA: Any = {
    "dataset": "boxes",
    "contribution": {"max_groups": 3, "max_rows_per_group": 2},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": {"type": "text", "values": ["a", "b", "c", "d"]},
                "h": {"type": "text", "values": ["x", "y"]},
                "free": "text",
                "n": {"type": "integer", "bounds": [0, 100]},
                "w": {"type": "integer", "bounds": [-1_000_000, 1_000_000]},
            },
        }
    },
}
PAIR = "SELECT k, COUNT(*) AS n, SUM(n) AS s FROM t GROUP BY k"
CROSSED = {
    "by key": PAIR,
    "averages": "SELECT k, AVG(n) AS a, STDDEV(n) AS d, SUM(w) AS s FROM t GROUP BY k",
    "totals": "SELECT k, h, COUNT(*) AS n, SUM(n) AS s, AVG(n) AS a FROM t GROUP BY ROLLUP (k, h)",
    "exclusive": "SELECT COUNT_IF(h = 'x') AS x, COUNT_IF(h = 'y') AS y, SUM(CASE WHEN h = 'x' THEN n END) AS s FROM t",
    "beside exclusive": "SELECT COUNT(*) AS n, SUM(n) AS s, COUNT_IF(h = 'x') AS x, COUNT_IF(h = 'y') AS y FROM t",
    "people": "SELECT k, COUNT(DISTINCT u) AS p, COUNT(*) AS n, COUNT(DISTINCT n) AS d FROM t GROUP BY k",
    "median beside": "SELECT COUNT(*) AS n, SUM(n) AS s, MODE(h) AS m FROM t WHERE h = 'x'",
    "above": "SELECT SUM(s) / SUM(n) AS a FROM (SELECT k, COUNT(*) AS n, SUM(n) AS s FROM t GROUP BY k)",
}


@pytest.fixture(scope="module")
def raw() -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE t AS SELECT i // 6 AS u, ['a', 'b', 'c'][1 + i % 6 // 2] AS k, ['x', 'y', 'y'][1 + i % 3] AS h,
                                     'f' || (i % 7) AS free, i % 101 AS n, 1000 * (i % 77) AS w
            FROM range(6000) AS r(i)""")
        yield connection


def connect(raw: Any, budget: float = 1, delta: float = 0, **options: Any) -> dpsql.Connection:
    return dpsql.connect(raw, schema=SCHEMA, budget=budget, delta=delta, ledger=":memory:", **options)


def compiled(connection: dpsql.Connection, sql: str, **options: Any) -> Calibrated:
    return compile_question(connection.session.request(sql, None, **options), connection.session.environment.public())


@pytest.mark.parametrize("sql", CROSSED.values(), ids=list(CROSSED))
def test_it_is_chosen_without_a_delta_and_costs_what_it_says(raw: Any, sql: str) -> None:
    with connect(raw) as connection:
        found = compiled(connection, sql, epsilon=0.5)
        assert found.noise_plan.mechanism == "knorm"
        assert privacy_loss(found.event).epsilon <= Fraction(1, 2)
        assert privacy_loss(found.event).epsilon >= Fraction(1, 2) * (1 - Fraction(1, 1000))
        laplace = compiled(connection, sql, epsilon=0.5, mechanism="laplace")
        assert found.noise_plan.spread < laplace.noise_plan.spread


@pytest.mark.parametrize("sql", CROSSED.values(), ids=list(CROSSED))
def test_at_a_huge_epsilon_answers_are_exact(raw: Any, sql: str) -> None:
    with connect(raw, budget=1e11) as connection:
        plain, boxed = (
            connection.execute(sql, epsilon=1e10, mechanism=mechanism, max_groups=6).fetchall()
            for mechanism in ("laplace", "knorm")
        )
        assert len(boxed) == len(plain)
        # Nothing is in the group d, of which averages are nothing but noise.
        for row in (row for row in plain if "d" not in row):
            # Squares are rounded to 30 bits of their range, and sums to what noise leaves of them.
            assert any(all(map(is_near, row, other)) for other in boxed)


def is_near(one: Any, other: Any) -> bool:
    return bool(one == other or (isinstance(one, float) and one == pytest.approx(other, rel=1e-4, nan_ok=True)))


def test_a_session_with_a_delta_takes_it_for_large_questions(raw: Any) -> None:
    """At the whole of a session it has less error than Gaussian noise; at a hundredth it wastes too much of it."""
    with connect(raw, delta=1e-6) as connection:
        assert connection.explain(PAIR, epsilon=1).mechanism == "knorm"
        assert connection.explain(PAIR, epsilon=0.01).mechanism == "gaussian"
        assert connection.explain(PAIR).mechanism == "gaussian"


def test_the_reference_query_has_less_noise_than_with_any_other(raw: Any) -> None:
    """sqrt(4) bounds for both measures: docs/proofs/k_norm.md."""
    with connect(raw) as connection:
        count, total = (
            part.std * part.quantum for part in connection.explain(PAIR, epsilon=1, diagnose=False).releases[0].measures
        )
    assert count == pytest.approx(2 * 2 * 3, rel=1e-2)
    assert total == pytest.approx(2 * 2 * 3 * 50, rel=1e-2)


def test_one_measure_alone_is_laplace_noise(raw: Any) -> None:
    with connect(raw) as connection:
        assert connection.explain("SELECT COUNT(*) FROM t", epsilon=1).mechanism == "laplace"
        assert connection.explain("SELECT COUNT(*) FROM t", epsilon=1, mechanism="knorm").mechanism == "knorm"


def test_where_errors_are_weighed_there_is_no_box(raw: Any) -> None:
    with connect(raw) as connection:
        assert connection.explain(PAIR, epsilon=1, weights={"n": 2}).mechanism == "laplace"


def test_groups_that_are_chosen_have_other_noise(raw: Any) -> None:
    sql = "SELECT free, COUNT(*) AS n, SUM(n) AS s FROM t GROUP BY free"
    with connect(raw, budget=3, delta=1e-6) as connection:
        assert connection.explain(sql, epsilon=3).mechanism in ("laplace", "gaussian")
        with pytest.raises(dpsql.ProgrammingError, match="to choose the groups that are shown") as caught:
            connection.explain(sql, epsilon=1, mechanism="knorm")
        assert "use Laplace" in str(caught.value)
        least = PAIR.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(min_privacy_units_per_group = 50)")
        assert connection.explain(least, epsilon=3).mechanism != "knorm"


def test_a_clip_that_is_tested_has_other_noise(raw: Any) -> None:
    """Refusing it gives back what the sum would have cost, which is nothing within a box."""
    with connect(raw, budget=3, delta=1e-6) as connection:
        explained = connection.explain("SELECT SUM(w), COUNT(*) FROM t", epsilon=3, mechanism="ptr", propose=50_000)
        assert "knorm" not in explained.mechanism


def test_found_bounds(raw: Any) -> None:
    schema: Any = {**SCHEMA, "contribution": {"max_groups": 3, "max_rows_per_group": "auto"}}
    with dpsql.connect(raw, schema=schema, budget=1e6, ledger=":memory:") as connection:
        answer = connection.execute(PAIR, epsilon=1e5, mechanism="knorm")
        counted = {key: (rows, total) for key, rows, total in answer.fetchall()}
    assert counted == {
        key: (2000 if key != "d" else 0, pytest.approx(total or 0, abs=1))
        for key, total in (("a", _sum(raw, "a")), ("b", _sum(raw, "b")), ("c", _sum(raw, "c")), ("d", 0))
    }


def _sum(raw: Any, key: str) -> int:
    return int(raw.execute("SELECT SUM(n) FROM t WHERE k = ?", [key]).fetchone()[0])


def test_accuracy_and_plans_know_it(raw: Any) -> None:
    with connect(raw, budget=10) as connection:
        explained = connection.explain(PAIR, accuracy=200)
        assert explained.mechanism == "knorm"
        assert max(column.half_width for column in explained.columns if column.half_width is not None) <= 200
        assert "laplace" not in explained.reason, "which does not fit"
        assert connection.explain(PAIR, accuracy=200, mechanism="laplace").cost.epsilon > 10
        assert "takes" in connection.explain(PAIR, accuracy=400).reason
        plan = connection.plan([PAIR, "SELECT COUNT(*) FROM t"], epsilon=1)
        assert [part.explanation.mechanism for part in plan.queries] == ["knorm", "laplace"]
        assert plan.execute()


def test_all_measures_of_a_box_are_drawn_together(raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One radius for each group: each box is drawn once, with every measure of it."""
    asked: list[tuple[int, int]] = []
    draw = k_norm.rounded_box

    def spied(scales: Any, dimension: int, n: int) -> Any:
        asked.append((len(scales), dimension))
        return draw(scales, dimension, n)

    monkeypatch.setattr(k_norm, "rounded_box", spied)
    with connect(raw, budget=100) as connection:
        connection.execute(CROSSED["averages"], epsilon=1, mechanism="knorm")
        assert [made == whole for made, whole in asked] == [True]
        asked.clear()
        connection.execute(CROSSED["totals"], epsilon=1, mechanism="knorm")
        assert asked == [(3, 3)] * 3
        asked.clear()
        connection.execute(CROSSED["exclusive"], epsilon=1, mechanism="knorm")
        assert sorted(asked) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_cover(raw: Any, level: float) -> None:
    """Sums of coordinates of one box are not independent, and their intervals know."""
    runs = 20_000
    with connect(raw) as connection:
        found = compiled(connection, PAIR, epsilon=0.1)
        (release,) = found.releases
        measures = {measure.bounded.column: measure for measure in release.measures}
        drawn = noised(dict.fromkeys(measures, np.zeros(runs, dtype=np.int64)), measures)
        for output in found.outputs:
            if output.estimate is not None:
                errors = sum(float(weight) * drawn[name] for name, weight in output.estimate.weights)
                width = dpsql.intervals.half_width(output.estimate, release.noises, level)
                assert np.mean(np.abs(errors) <= width) == pytest.approx(level, abs=0.02)


def test_the_receipt_and_the_promise_name_it(raw: Any) -> None:
    with connect(raw) as connection:
        answer = connection.execute(PAIR, epsilon=0.5)
        assert answer.receipt.mechanism == "knorm"
        assert answer.receipt.cost.delta == 0
        assert connection.budget.remaining.epsilon == pytest.approx(0.5)
        assert connection.execute(PAIR, epsilon=0.5).receipt.recalled


JOINT = {
    "by key": PAIR,
    "distinct beside": "SELECT k, COUNT(*) AS n, COUNT(DISTINCT n) AS d, SUM(w) AS s FROM t GROUP BY k",
    "people beside": "SELECT k, COUNT(DISTINCT u) AS p, SUM(n) AS s, AVG(w) AS a FROM t GROUP BY k",
}


@pytest.mark.parametrize("sql", JOINT.values(), ids=list(JOINT))
@settings(max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 2),
            st.sampled_from("abcd"),
            st.one_of(st.none(), st.integers(-5, 200)),
            st.one_of(st.none(), st.integers(-(10**7), 10**7)),
        ),
        max_size=30,
    )
)
def test_nobody_moves_all_boxes_together_further(sql: str, empty: Any, rows: list[tuple[Any, ...]]) -> None:
    """The largest part of its bound that any measure of a group moves by, added up over groups: at most g, exactly."""
    raw, connection = empty
    raw.execute("DELETE FROM t")
    if rows:
        raw.executemany("INSERT INTO t VALUES (?, ?, 'x', 'f', ?, ?)", rows)
    (release,) = connection.explain(sql, mechanism="knorm", max_groups=2).releases
    whole = raw.execute(release.sql).fetchall()
    for person in (1, 2):
        raw.execute("BEGIN; DELETE FROM t WHERE u = ?", [person])
        without = raw.execute(release.sql).fetchall()
        raw.execute("ROLLBACK")
        bounds = [part.linf for part in release.measures]
        moved = [[abs(a - b) for a, b in zip(*pair, strict=True)] for pair in _measures(whole, without)]
        assert sum(max(Fraction(step, most) for step, most in zip(row, bounds, strict=True)) for row in moved) <= 2


def _measures(whole: list[Any], without: list[Any]) -> Iterator[tuple[Any, Any]]:
    for (key, *here), (same_key, *there) in zip(whole, without, strict=True):
        assert key == same_key
        yield here, there


@pytest.fixture(scope="module")
def empty() -> Iterator[Any]:
    with duckdb.connect() as raw:
        raw.execute("SET threads = 1")
        raw.execute("CREATE TABLE t (u BIGINT, k VARCHAR, h VARCHAR, free VARCHAR, n BIGINT, w BIGINT)")
        with connect(raw) as connection:
            yield raw, connection

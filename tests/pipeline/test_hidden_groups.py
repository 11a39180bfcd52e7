"""A group that is not shown costs nothing: what one person's rows could ask for is bounded before anything is charged.

A group that has one person in it stays below its threshold. Whether it is there must not show in the time or the
memory that an answer takes, and no choice of options may make it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.mechanisms import local_sensitivity
from dpsql.mechanisms.data_dependent import Proposed, SmoothDraw
from dpsql.mechanisms.draw_statistics import ChosenMode, ChosenQuantile, StableMode
from dpsql.mechanisms.local_sensitivity import largest_stretch
from dpsql.mechanisms.permute_and_flip import MostFrequent

Steps = Callable[[Callable[[], object]], int]

SCHEMA: dict[str, Any] = {
    "dataset": "people",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "visits": {
            "unit": "uid",
            "columns": {
                "uid": "integer",
                "name": "text",
                "x": {"type": "double", "bounds": [0, 1000]},
                "kind": {"type": "integer", "bounds": [0, 300]},
                "code": {"type": "integer", "bounds": [0, 9000]},
                "place": {"type": "integer", "bounds": [1, 9000]},
            },
        }
    },
}
ALONE = "SELECT name, {} FROM visits WHERE uid = 42 GROUP BY name"
STATISTICS = [
    ("MEDIAN(x)", {}),
    ("MEDIAN(x)", {"mechanism": "smooth"}),
    ("MEDIAN(x)", {"propose": 10}),
    ("AVG(x)", {"mechanism": "smooth"}),
    ("AVG(x)", {"propose": 10}),
    ("MODE(kind)", {}),
    ("MODE(kind)", {"mechanism": "stable"}),
]


def visits(rows: str) -> duckdb.DuckDBPyConnection:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE visits (uid BIGINT, name VARCHAR, x DOUBLE, kind BIGINT, code BIGINT, place BIGINT)")
    raw.execute(f"INSERT INTO visits {rows}")
    return raw


@pytest.fixture(scope="module")
def with_42() -> duckdb.DuckDBPyConnection:
    return visits("SELECT i, 'Ann', i, 7, 7, 1 FROM range(40, 44) AS r(i)")


@pytest.fixture(scope="module")
def without_42() -> duckdb.DuckDBPyConnection:
    return visits("SELECT i, 'Ann', i, 7, 7, 1 FROM range(40, 42) AS r(i)")


def connected(raw: duckdb.DuckDBPyConnection, **options: Any) -> dpsql.Connection:
    return dpsql.connect(raw, schema=SCHEMA, budget=1e6, delta=1e-6, **options)


@pytest.mark.parametrize(("aggregate", "options"), STATISTICS)
def test_nothing_is_drawn_for_a_group_that_is_not_shown(
    aggregate: str, options: dict[str, Any], with_42: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    for kind in (ChosenQuantile, SmoothDraw, Proposed, ChosenMode, StableMode):

        def spied(self: Any, profile: Any, drawn: Any = kind.draw) -> Any:
            seen.append(len(profile[0]))
            return drawn(self, profile)

        monkeypatch.setattr(kind, "draw", spied)
    with connected(with_42) as connection:
        assert connection.execute(ALONE.format(aggregate), epsilon=1, **options).fetchall() == []
    assert seen == [0]


def test_other_measures_of_a_hidden_group_get_no_noise(with_42: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the number of units, which decides."""
    from dpsql.mechanisms.laplace import LaplaceNoise

    sizes: list[int] = []
    sample = LaplaceNoise.sample

    def spied(self: LaplaceNoise, n: int) -> Any:
        sizes.append(n)
        return sample(self, n)

    monkeypatch.setattr(LaplaceNoise, "sample", spied)
    with connected(with_42) as connection:
        sql = ALONE.format("SUM(x), COUNT(*)")
        connection.execute(sql, epsilon=1, mechanism="laplace", diagnose=False).fetchall()
    assert sorted(sizes) == [0, 1]


@pytest.mark.parametrize(("aggregate", "options"), STATISTICS)
@pytest.mark.parametrize("epsilon", [0.01, 1])
def test_the_time_does_not_tell(
    aggregate: str, options: dict[str, Any], epsilon: float, with_42: Any, without_42: Any, steps: Steps
) -> None:
    """The noisy number of units is drawn anyway, by steps that are many or few at random."""

    def taken(raw: duckdb.DuckDBPyConnection) -> int:
        sql, asked = ALONE.format(aggregate), {"epsilon": epsilon, "fresh": True, **options}
        with connected(raw) as connection:
            connection.execute(sql, **asked)
            return min(steps(lambda: connection.execute(sql, **asked)) for _ in range(3))

    taken(without_42)  # the cost of each step of such a session is computed once in a process
    here, there = taken(with_42), taken(without_42)
    assert abs(here - there) < 300


@pytest.mark.parametrize(("aggregate", "options"), STATISTICS)
def test_what_the_engine_says_of_a_group_is_no_longer_than_its_rows(
    aggregate: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine describes hidden groups too, because it does not know which these are: by as many numbers as rows of
    them count, however many ranks the mechanism would look at."""
    run, lengths = DuckDBEngine.run, []

    def spied(engine: DuckDBEngine, sql: str, materialized: Any = None) -> Any:
        found = run(engine, sql, materialized)
        lengths.extend(np.size(cell) for column in found.values() for cell in column if isinstance(cell, np.ndarray))
        return found

    monkeypatch.setattr(DuckDBEngine, "run", spied)
    raw = visits("SELECT 42, 'Ann', i, i % 300, 7, 1 FROM range(5000) AS r(i)")
    with connected(raw) as connection:
        for rows in (1, 7):
            lengths.clear()
            asked = {**options, "max_rows_per_group": rows}
            assert connection.execute(ALONE.format(aggregate), epsilon=0.1, **asked).fetchall() == []
            assert all(length <= rows for length in lengths)


@pytest.mark.parametrize(("aggregate", "options"), STATISTICS)
def test_what_would_take_too_much_is_refused_before_the_charge(
    aggregate: str, options: dict[str, Any], with_42: Any
) -> None:
    """The largest bounds that can be named: answered as quickly as any, or refused and not charged."""
    with connected(with_42) as connection:
        for bounds in ({"max_rows_per_group": 2**31 - 1}, {"max_groups": 2**31 - 1}):
            before = connection.budget.queries
            try:
                connection.explain(ALONE.format(aggregate), epsilon=1, **bounds, **options)
            except dpsql.ProgrammingError:
                assert connection.budget.queries == before
            else:
                assert connection.execute(ALONE.format(aggregate), epsilon=1, **bounds, **options).fetchall() == []


def test_the_work_of_all_public_groups_is_bounded_before_the_charge(with_42: Any) -> None:
    with connected(with_42) as connection:
        sql = "SELECT place, {} FROM visits GROUP BY place"
        for aggregate, options in (("MODE(code)", {}), ("MEDIAN(x)", {"mechanism": "smooth"})):
            with pytest.raises(dpsql.ProgrammingError, match="too much work") as refused:
                connection.explain(sql.format(aggregate), epsilon=0.01, **options)
            assert "fewer groups" in str(refused.value)
        connection.explain(sql.format("MEDIAN(x)"), epsilon=0.01)


def test_one_row_does_not_decide_how_long_a_shown_group_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide range and an epsilon so small that every rank counts: all data has the same stretches to be compared."""
    lengths: list[int] = []

    def spied(above: Any, below: Any, rows: int, b: float) -> float:
        lengths.append(len(above))
        return largest_stretch(above, below, rows, b)

    monkeypatch.setattr(local_sensitivity, "largest_stretch", spied)
    for name, x in {"spread": "i / 3.0", "equal": "500", "geometric": "exp(i / 500.0)", "one": "500"}.items():
        raw = visits(f"SELECT i, 'Ann', {x}, 7, 7, 1 FROM range({1 if name == 'one' else 3000}) AS r(i)")
        with connected(raw) as connection:
            connection.execute("SELECT MEDIAN(x) FROM visits", mechanism="smooth", epsilon=0.02)
    assert len(lengths) == 4
    assert len(set(lengths)) == 1


def test_a_mode_takes_as_long_for_one_vote_as_for_none(steps: Steps) -> None:
    def taken(counts: Any) -> int:
        return steps(lambda: [MostFrequent(Fraction(100), 1).sample(counts) for _ in range(20)])

    none, one = np.zeros(9000, dtype=np.int64), np.eye(1, 9000, 77, dtype=np.int64)[0]
    assert taken(one) < 2 * taken(none)

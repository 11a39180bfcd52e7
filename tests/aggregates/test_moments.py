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
    return dpsql.connect(raw, schema=SCHEMA, budget=1e18, delta=1e-6)


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


HALVES = "CASE WHEN x < 5 THEN 0 ELSE 10 END"
"""Half of the values at either end of the range."""


@pytest.mark.parametrize(("asked", "most"), [("VAR_POP", 25), ("STDDEV_POP", 5), ("VARIANCE", 50), ("STDDEV", 50**0.5)])
def test_nothing_varies_more_than_its_range_allows(people: dpsql.Connection, asked: str, most: float) -> None:
    """However much noise there is: half of the values at either end, or two of a sample."""
    answers = (drawn(people, f"{asked}({HALVES})", epsilon) for epsilon in (0.3, 0.4, 1))
    found = [value for answer in answers for value in answer if value is not None]
    assert all(0 <= value <= most for value in found)
    assert max(found) == pytest.approx(most) if asked.endswith("POP") else max(found) > most / 2


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
        with dpsql.connect(raw, schema=schema, budget=1e6, delta=1e-6, ledger=":memory:") as connection:
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


# How the budget is shared: docs/proofs/moments.md. All in parts of half the range, and of what one row may cost.

EQUAL = {"m": {"type": "double", "bounds": [-1, 1]}, "o": {"type": "double", "bounds": [-1, 1]}, "u": "integer"}


def explained(expression: str) -> dict[str, float]:
    """The standard deviations of the measures of a question, by what they are, with Gaussian noise."""
    schema: dict[str, Any] = {"tables": {"t": {"unit": "u", "unique": True, "columns": EQUAL}}}
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE t (u BIGINT PRIMARY KEY, m DOUBLE NOT NULL, o DOUBLE NOT NULL)")
        with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
            (release,) = connection.explain(f"SELECT {expression} FROM t", epsilon=1, mechanism="gaussian").releases
    return {measure.what: measure.std * measure.quantum for measure in release.measures}


def kinds_of_data() -> tuple[Any, Any]:
    """Means from the middle, and means of squares, on a fine grid of what there is room for."""
    means, spreads = np.meshgrid((np.arange(40) + 0.5) / 40, (np.arange(40) + 0.5) / 40)
    return means, means**2 + spreads * (1 - means**2)


def errors_of(count: float, total: float, squares: float, centre: float) -> Any:
    """Of a variance over each kind of data, where squares are counted from `centre`; times the number of rows."""
    y, q = kinds_of_data()
    return np.sqrt(squares**2 + (2 * y * total) ** 2 + ((2 * y**2 - q + centre) * count) ** 2)


def geometric_mean(values: Any) -> float:
    return float(np.exp(np.mean(np.log(values))))


def cost(row: Any, count: float, total: float, squares: float, centre: float) -> Any:
    """What a row at this place costs, as a squared mu."""
    return 1 / count**2 + (row / total) ** 2 + ((row**2 - centre) / squares) ** 2


def test_a_variance_has_less_noise_than_with_equal_parts_and_nearly_that_of_one_event() -> None:
    count, total, squares = explained("VAR_POP(m)").values()
    mu = np.sqrt(1 / count**2 + 1 / total**2 + (0.5 / squares) ** 2)
    found = geometric_mean(errors_of(count * mu, total * mu, squares * mu, 0.5))
    # As sums in their own right: the count and the sum a part each, the sum of squares with the count that it leans on.
    before = geometric_mean(errors_of(1.5, np.sqrt(3), np.sqrt(1 / 0.889), 0.5))
    one_event = geometric_mean(errors_of(np.sqrt(3), np.sqrt(2), np.sqrt(2 / 3), 2 / 3))
    assert found == pytest.approx(0.935 * before, rel=0.01)
    assert one_event == pytest.approx(0.96 * found, rel=0.01)


def test_no_row_costs_more_than_the_event_says() -> None:
    """The sensitivity of moments as one event: at the middle and at both ends, and nowhere more."""
    rows = np.linspace(-1, 1, 20_001)
    costs = cost(rows, np.sqrt(3), np.sqrt(2), np.sqrt(2 / 3), 2 / 3)
    assert costs.max() == pytest.approx(1)
    assert costs[[0, 10_000, -1]] == pytest.approx(1)
    # Several rows together are no farther from 0 than as many of the worst.
    drawn = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    together = (3 / np.sqrt(3)) ** 2 + drawn.sum(axis=1) ** 2 / 2 + (drawn**2 - 2 / 3).sum(axis=1) ** 2 * 1.5
    assert together.max() <= 9


@pytest.mark.parametrize(
    ("expression", "measures"),
    [("COVAR_POP(m, o)", 4), ("REGR_SLOPE(m, o)", 5), ("REGR_INTERCEPT(m, o)", 5), ("CORR(m, o)", 6)],
)
def test_only_those_squares_are_measured_that_are_divided_by(expression: str, measures: int) -> None:
    assert len(explained(expression)) == measures


@pytest.mark.parametrize("end", [1e-300, 1e-60, 1e76, 1e120])
def test_ranges_of_any_width_are_planned(end: float) -> None:
    columns = EQUAL | {"m": {"type": "double", "bounds": [-end, end]}}
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE t AS SELECT i AS u, 0.5::DOUBLE AS m, 0.1::DOUBLE AS o FROM range(10) AS r(i)")
        schema: dict[str, Any] = {"tables": {"t": {"unit": "u", "unique": True, "columns": columns}}}
        with dpsql.connect(raw, schema=schema, budget=10, delta=1e-6) as connection:
            for asked in ("VAR_POP(m)", "COVAR_POP(m, o)", "CORR(m, o)", "REGR_SLOPE(o, m)", "CORR(1, m)"):
                assert len(connection.execute(f"SELECT {asked} AS x FROM t", epsilon=1).intervals()) == 1


def test_the_covariance_of_a_column_with_itself_is_its_variance(people: dpsql.Connection) -> None:
    (found,) = people.execute("SELECT COVAR_POP(x, x), VAR_POP(x) FROM people", epsilon=1e9).fetchall()
    assert found[0] == pytest.approx(found[1], rel=1e-4)

"""Bounds that a query finds by itself: right where nothing has to be lost, never above the price, and said."""

from __future__ import annotations

import math
import runpy
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.accounting.events import Composed, Event, Repeated
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.errors import Error
from dpsql.explain import explain_release
from dpsql.mechanisms.auto_bounds import Histogram, Setting, Sides, Wish, best_bounds
from dpsql.pipeline.auto_bounds import FoundBounds
from dpsql.pipeline.calibrate_noise import CalibratedRelease
from dpsql.pipeline.replan import made_again
from dpsql.pipeline.stages import compile_question
from dpsql.schema.model import Schema
from dpsql.synthetic import answer, made_up_worlds
from dpsql.verification.audit import moved_too_far, wrong_shape

REGIONS = ["north", "south", "west"]
SCHEMA: dict[str, Any] = {
    "dataset": "auto",
    "contribution": {"max_groups": "auto", "max_rows_per_group": "auto"},
    "tables": {
        "people": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "age": {"type": "integer", "auto": True}},
        },
        "orders": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "region": {"type": "text", "values": REGIONS},
                "shop": "text",
                "amount": {"type": "double", "bounds": [0, 1_000_000], "auto": True},
                "points": {"type": "integer", "bounds": "auto", "nullable": True},
                "price": {"type": "decimal(12,2)", "auto": True, "bounds": [-500000, 500000]},
                "fixed": {"type": "double", "bounds": [0, 50]},
            },
        },
    },
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    rng = np.random.default_rng(4)
    rows = np.minimum(rng.zipf(2.0, 400), 60)
    people = np.repeat(np.arange(400), rows)
    with duckdb.connect() as connection:
        connection.register(
            "made",
            {
                "person": people,
                "region": rng.integers(0, 3, len(people)),
                "shop": rng.integers(0, 5, len(people)),
                "amount": np.round(np.exp(rng.normal(3, 1.5, len(people))) * 4) / 4,
                "points": rng.integers(-300, 900, len(people)),
                "price": rng.integers(-90_000, 70_000, len(people)),
            },
        )
        connection.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, age BIGINT)")
        connection.execute("INSERT INTO people SELECT i, 18 + i % 70 FROM range(400) AS r(i)")
        connection.execute("""
            CREATE TABLE orders AS SELECT person, ['north', 'south', 'west'][region + 1] AS region,
            's' || shop AS shop, amount, CASE WHEN points % 7 <> 0 THEN points END AS points,
            CAST(price / 100.0 AS DECIMAL(12,2)) AS price, CAST((points + 300) % 50 + 0.25 AS DOUBLE) AS fixed
            FROM made""")
        yield connection


def connected(raw: duckdb.DuckDBPyConnection, epsilon: float = 1e12, **changed: Any) -> dpsql.Connection:
    return dpsql.connect(raw, schema=SCHEMA | changed, budget=epsilon, delta=1e-6, ledger=":memory:")


@cache
def exactly(raw: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    """One session for all that is asked without noise."""
    return connected(raw)


# -- without noise nothing has to be lost ------------------------------------------------------------------------------

JOINED = "FROM orders JOIN people ON person = id"
EXACT = [
    "SELECT COUNT(*) AS n FROM orders",
    "SELECT SUM(amount) FROM orders",
    "SELECT SUM(points), COUNT(points), AVG(points) FROM orders",
    "SELECT SUM(price), AVG(price) FROM orders",
    "SELECT SUM(amount), SUM(fixed), COUNT(*) FROM orders",
    "SELECT region, COUNT(*), SUM(amount), AVG(price) FROM orders GROUP BY region ORDER BY region",
    "SELECT region, SUM(amount * fixed), SUM(points) FILTER (WHERE fixed > 20) FROM orders GROUP BY region ORDER BY 1",
    "SELECT shop, COUNT(*), SUM(price) FROM orders GROUP BY shop ORDER BY shop",
    "SELECT region, COUNT(DISTINCT person) FROM orders GROUP BY region ORDER BY region",
    "SELECT VAR_POP(amount), STDDEV(points) FROM orders",
    f"SELECT region, SUM(age), COUNT(*) {JOINED} GROUP BY region ORDER BY region",
    f"SELECT SUM(amount + age) {JOINED} WHERE age > 40",
    "SELECT SUM(age), AVG(age) FROM people",
    "SELECT AVG(n), SUM(total) FROM (SELECT person, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY person)",
    "SELECT region, SUM(amount) FROM orders GROUP BY ROLLUP (region) ORDER BY region",
    "SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
    "SELECT SUM(amount) FROM orders WHERE region IN (SELECT region FROM orders GROUP BY region HAVING COUNT(*) > 5)",
    "SELECT SUM(amount, contribution_bounds_per_row => (0, 1000000)) FROM orders",
]


@pytest.mark.parametrize("sql", EXACT)
def test_with_hardly_any_noise_nothing_is_lost(raw: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = exactly(raw).execute(sql, epsilon=1e10).fetchall()
    plain = raw.execute(sql.replace(", contribution_bounds_per_row => (0, 1000000)", "")).fetchall()
    assert len(found) == len(plain)
    for mine, theirs in zip(found, plain, strict=True):
        for value, expected in zip(mine, theirs, strict=True):
            if isinstance(expected, str) or expected is None:
                assert value == expected
            else:
                assert float(value) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        ("SELECT region, COUNT(*), SUM(fixed) FROM orders GROUP BY region ORDER BY region", {}),
        ("SELECT SUM(fixed), SUM(amount) FROM orders", {"bounds": "auto"}),
        ("SELECT region, SUM(amount) FROM orders GROUP BY region ORDER BY region", {"max_groups": 3}),
    ],
)
def test_a_question_may_ask_for_it_itself(raw: duckdb.DuckDBPyConnection, sql: str, options: dict[str, Any]) -> None:
    options = {"max_rows_per_group": "auto", "max_groups": "auto"} | options
    with connected(raw, contribution={"max_groups": 1, "max_rows_per_group": 1}) as connection:
        found = connection.execute(sql, epsilon=1e10, **options)
        flat = [float(value) for row in found.fetchall() for value in row if not isinstance(value, str)]
        assert len(found.receipt.bounds) == 1
        options_in_sql = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed = auto) COUNT(*) FROM orders"
        (counted,) = connection.execute(options_in_sql, epsilon=1e10).fetchone() or ()
    plain = [float(value) for row in raw.execute(sql).fetchall() for value in row if not isinstance(value, str)]
    assert flat == pytest.approx(plain, rel=1e-3)
    assert counted == raw.execute("SELECT COUNT(*) FROM orders").fetchall()[0][0]


# -- the price is that which was charged, whatever is found ------------------------------------------------------------

FOUND_COUNTS = [(1, 1), (7, 3), (512, 2)]
PRICED = [
    "SELECT region, COUNT(*), SUM(amount), AVG(points) FROM orders GROUP BY region",
    "SELECT shop, SUM(amount), COUNT(DISTINCT person) FROM orders GROUP BY shop",
    "SELECT region, MEDIAN(amount), COUNT(*) FROM orders GROUP BY region",
]


@pytest.mark.parametrize("composition", ["mixed", "zcdp", "basic"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("sql", PRICED)
def test_whatever_is_found_costs_no_more(
    raw: duckdb.DuckDBPyConnection, sql: str, mechanism: str, composition: str
) -> None:
    """Each release, in each currency: as it is charged, and as what is really drawn."""
    with dpsql.connect(
        raw, schema=SCHEMA, budget=3, delta=1e-6, ledger=":memory:", composition=composition
    ) as connection:
        public = connection.session.environment.public()
        request = connection.session.request(sql, (), epsilon=1, mechanism=mechanism)
        calibrated = compile_question(request, public)
        auto_bounds = calibrated.releases[0].planned.auto_bounds
        for rows, groups in FOUND_COUNTS:
            for part in (Fraction(1), Fraction(1, 1000)):
                clips = tuple((value, (low, Fraction(int(high * part)))) for value, (low, high) in auto_bounds.values)
                made = made_again(calibrated, 0, FoundBounds(rows, groups, clips), public)
                assert made.releases[0].planned.release.groups == groups
                for release, settled in zip(made.releases, calibrated.releases, strict=True):
                    charged = privacy_loss(settled.event).amounts
                    for event in (release.event, drawn_event(release)):
                        spent = privacy_loss(event).amounts
                        assert all(mine <= most for mine, most in zip(spent, charged, strict=True))
                    assert release.delta <= settled.delta


def test_columns_that_exclude_each_other_still_share_one_bound(raw: duckdb.DuckDBPyConnection) -> None:
    conn = connected(raw, epsilon=10.0)
    public = conn.session.environment.public()
    columns = ", ".join(f"SUM(amount) FILTER (WHERE region = '{region}')" for region in REGIONS)
    calibrated = compile_question(conn.session.request(f"SELECT {columns} FROM orders", None, epsilon=1.0), public)
    auto_bounds = calibrated.releases[0].planned.auto_bounds
    made = made_again(
        calibrated,
        0,
        FoundBounds(2, 1, tuple((value, (Fraction(0), Fraction(9))) for value, _ in auto_bounds.values)),
        public,
    )
    assert all(part.place for part in made.releases[0].planned.release.measures)


@pytest.mark.parametrize(
    "what", ["COUNT(*)", "SUM(fixed)", "COUNT(*), SUM(fixed)", "COUNT(*) FILTER (WHERE fixed < 20)"]
)
@pytest.mark.parametrize("keys", ["shop", "ROLLUP (shop)", "ROLLUP (region, shop)"])
def test_a_count_of_rows_is_not_one_of_people(raw: duckdb.DuckDBPyConnection, what: str, keys: str) -> None:
    """At one row per person, which is presumed before anything is found, they are the same."""
    sql = f"SELECT {what} FROM orders GROUP BY {keys} ORDER BY ALL"
    got = exactly(raw).execute(sql, epsilon=1e7).fetchall()
    np.testing.assert_allclose(got, raw.execute(sql).fetchall(), atol=2.5, rtol=1e-4)


def drawn_event(release: CalibratedRelease) -> Event:
    """Each measure and each statistic over the groups that were found."""
    drawn = [Repeated((draw.event,), Fraction(release.planned.release.groups)) for _, draw in release.statistics]
    return Composed((*(measure.alone.event for measure in release.measures), *drawn))


@pytest.mark.parametrize("sql", PRICED)
def test_neighbours_stay_within_what_is_claimed_for_bounds_that_were_found(sql: str) -> None:
    """Ladders, and releases at bounds that were found: on wild rows of made-up people."""
    schema = Schema.model_validate(SCHEMA)
    worlds = made_up_worlds(schema, seed=5)
    with dpsql.connect(worlds[0].whole.raw, schema=schema, budget=3, delta=1e-6, ledger=":memory:") as connection:
        public = connection.session.environment.public()
        calibrated = compile_question(connection.session.request(sql, (), epsilon=1), public)
        clips = tuple(
            (value, (Fraction(0), Fraction(8))) for value, _ in calibrated.releases[0].planned.auto_bounds.values
        )
        made = made_again(calibrated, 0, FoundBounds(2, 2, clips), public)
        claims = [explain_release(release) for release in made.releases]
    assert len(claims) > 2
    for claim in claims:
        for world in worlds:
            whole = answer(world.whole.raw, claim.sql)
            others = [answer(other.raw, claim.sql) for other in world.neighbours]
            assert not [*wrong_shape(claim, [whole, *others])]
            assert not [problem for other in others for problem in moved_too_far(claim, whole, other)]


def test_hostile_rows_are_answered(raw: duckdb.DuckDBPyConnection) -> None:
    with raw.cursor() as other:
        other.execute("CREATE OR REPLACE TABLE wild AS SELECT * FROM orders")
        other.execute("""
            INSERT INTO wild SELECT 7, 'north', 's1', x, y, 999999.99, x
            FROM (VALUES ('nan'::DOUBLE, 9223372036854775807), ('inf'::DOUBLE, (-9223372036854775808)::BIGINT),
                         (1e308::DOUBLE, NULL), ((-1e308)::DOUBLE, 0)) AS v(x, y), range(3000)""")
        schema = SCHEMA | {"tables": {"wild": SCHEMA["tables"]["orders"]}}
        with dpsql.connect(other, schema=schema, budget=50, delta=1e-6, ledger=":memory:") as connection:
            sql = (
                "SELECT region, COUNT(*) AS n, SUM(amount) AS s, AVG(points) AS a, SUM(price) FROM wild GROUP BY region"
            )
            for epsilon in (0.01, 1, 20):
                rows = connection.execute(sql, epsilon=epsilon).fetchall()
                assert [row[0] for row in rows] == REGIONS
                assert all(math.isfinite(float(value)) for row in rows for value in row[1:] if value is not None)


# -- what is said, kept and refused ------------------------------------------------------------------------------------


def test_it_is_said(raw: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region"
    with connected(raw, epsilon=10) as connection:
        explained = connection.explain(sql, epsilon=1)
        assert {column.half_width for column in explained.columns} == {None}
        assert "n: error unknown until the query has found its bounds" in str(explained)
        assert (
            "auto       the query finds, for 10% of its cost: rows per group, groups per person, "
            "clip bounds of amount within 0 to 1e+06"
        ) in str(explained)
        _, *histograms = explained.releases
        assert sum(histogram.epsilon for histogram in histograms) == pytest.approx(0.1)
        cursor = connection.execute(sql, epsilon=1)
        assert cursor.receipt.epsilon == pytest.approx(explained.cost.epsilon) == pytest.approx(1)
        (note,) = cursor.receipt.bounds
        assert note in cursor.notes
        assert note.startswith("bounds found with 10% of the cost: max_rows_per_group=")
        assert connection.tables.rows[1][2] == "as many rows as each query finds in as many groups"


def test_an_answer_is_recalled_with_its_bounds(raw: duckdb.DuckDBPyConnection) -> None:
    """Though a histogram is shared by questions, and one of them may draw it again."""
    first, second = "SELECT SUM(amount) AS s FROM orders", "SELECT AVG(amount) AS s FROM orders"
    with connected(raw, epsilon=100) as connection:
        answers = {sql: connection.execute(sql, epsilon=1) for sql in (first, second)}
        assert answers[second].receipt.epsilon < 1  # its histograms were drawn for the first
        for _ in range(3):
            connection.execute(first, epsilon=1, fresh=True)
        again = connection.execute(second, epsilon=1)
        assert again.receipt.recalled
        assert again.receipt.bounds == answers[second].receipt.bounds
        assert again.intervals().equals(answers[second].intervals())


def test_bounds_that_are_named_are_another_question(raw: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT COUNT(*) AS n FROM orders"
    with connected(raw, epsilon=100) as connection:
        connection.execute(sql, epsilon=1)
        named = connection.execute(sql, epsilon=0.9, max_rows_per_group=1)
        assert not named.receipt.recalled
        assert named.receipt.bounds == ()


def test_a_plan_finds_bounds(raw: duckdb.DuckDBPyConnection) -> None:
    with connected(raw, epsilon=10) as connection:
        plan = connection.plan(["SELECT SUM(amount) AS s FROM orders", "SELECT COUNT(*) FROM people"], epsilon=2)
        assert "error unknown until" in str(plan)
        summed, counted = plan.execute()
        assert len(summed.receipt.bounds) == 1
        assert counted.receipt.bounds == ()
        assert connection.budget.spent.epsilon <= 2 + 1e-9


@pytest.mark.parametrize(
    ("sql", "options", "problem"),
    [
        ("SELECT SUM(amount) FROM orders", {"accuracy": 50}, "set max_rows_per_group=2, SUM.amount, contribution"),
        ("SELECT COUNT(*) FROM orders", {"accuracy": 50}, "hint: set max_rows_per_group=2; or set the cost"),
        ("SELECT COUNT(*) FROM orders", {"epsilon": 1, "diagnose": True}, "diagnose=True"),
        ("SELECT MEDIAN(amount) FROM orders", {"epsilon": 1, "mechanism": "smooth"}, 'mechanism="smooth"'),
        ("SELECT SUM(fixed) FROM orders", {"epsilon": 1, "bounds": (0, 5)}, 'bounds= can only be "auto"'),
        ("SELECT SUM(fixed) FROM orders", {"epsilon": 1, "max_groups": "many"}, "whole number of at least 1"),
    ],
)
def test_what_cannot_be_found_is_refused(
    raw: duckdb.DuckDBPyConnection, sql: str, options: dict[str, Any], problem: str
) -> None:
    with connected(raw, epsilon=10) as connection:
        with pytest.raises(Error, match=problem) as refused:
            connection.execute(sql, **options)
        assert refused.value.hint
        assert connection.budget.spent.epsilon == 0


# -- which bounds are best ---------------------------------------------------------------------------------------------

STEPS = tuple(float(1 << step) for step in range(12))
SETTING = Setting(groups=1, rows=1, all_groups=1, threshold=None, variance_exponent=2)


def histogram(counts: dict[int, float], noise: float = 5.0) -> Histogram:
    return Histogram(STEPS, tuple(counts.get(step, 0.0) for step in range(len(STEPS))), noise, 4 * noise)


def test_a_clip_ends_where_the_data_end() -> None:
    """However much wider the limits are, and whatever noise is on the empty steps."""
    seen = histogram({3: 900.0, 4: 800.0, 7: 12.0, 11: -9.0})
    (best, *_) = best_bounds(None, None, [Sides(seen, None)], [Wish("sum", 100.0)], SETTING)
    assert best.clips == ((None, 4),)


def test_more_noise_clips_more() -> None:
    seen = histogram({step: 4000.0 / 2**step for step in range(8)})
    clips = [
        best_bounds(None, None, [Sides(seen, None)], [Wish("sum", noise)], SETTING)[0].clips[0][1]
        for noise in (1.0, 1e4, 1e6, 1e8)
    ]
    assert clips == sorted(clips, reverse=True)  # type: ignore[type-var]
    assert len(set(clips)) > 2


def test_where_nothing_is_seen_the_limits_hold() -> None:
    (best, *_) = best_bounds(None, None, [Sides(histogram({}), histogram({2: 9.0}))], [Wish("sum", 100.0)], SETTING)
    assert best.clips == ((11, 11),)


def test_rows_count_until_their_noise_outweighs_what_is_lost() -> None:
    rows = histogram({0: 5000.0, 1: 2000.0, 2: 800.0, 3: 300.0, 4: 100.0})
    few, many = (best_bounds(rows, None, [], [Wish("rows", noise)], SETTING)[0].rows for noise in (3000.0, 1.0))
    assert few is not None
    assert many is not None
    assert few < 4 <= 16 <= many


@pytest.mark.long
@pytest.mark.parametrize("name", ["log-normal", "Pareto", "mostly zero"])
@pytest.mark.parametrize("question", ["SUM by region", "COUNT by region"])
def test_on_skewed_data_it_is_nearly_as_good_as_looking(name: str, question: str) -> None:
    """As the benchmark prints it: within twice the error of the best bounds, and better than guesses on average."""
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "auto_bounds.py"))
    raw = benchmark["data_sets"]()[name]
    best, found, guessed, *_ = benchmark["compare"](raw, benchmark["QUESTIONS"][question], 20)
    assert found < 2 * best
    assert found < guessed

"""What an answer says about itself: what bounding left out, and which columns are mostly noise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import pytest

import dpsql
from dpsql.cli.query import ask
from dpsql.pipeline.notes import DIAGNOSE
from dpsql.result import NOISE_ONLY, UNKNOWN_NOTE


@pytest.mark.parametrize(
    ("sql", "options", "notes"),
    [
        ("SELECT COUNT(*) FROM orders", {}, ("at most 2 rows per person count",)),
        ("SELECT COUNT(*) FROM orders", {"max_rows_per_group": 1}, ("at most 1 row per person counts",)),
        (
            "SELECT region, COUNT(*) FROM orders GROUP BY region",
            {},
            ("at most 2 rows per person count in each group", "at most 3 groups per person count"),
        ),
        # All four regions may count.
        (
            "SELECT region, COUNT(*) FROM orders GROUP BY region",
            {"max_groups": 4},
            ("at most 2 rows per person count in each group",),
        ),
        (
            "SELECT MEDIAN(amount) AS m FROM orders",
            {},
            (
                "at most 2 rows per person count",
                "m: off by at most 18 ranks at 95 %; the error in value depends on the data",
            ),
        ),
        (
            "SELECT COUNT_IF(amount > 5) / COUNT(*) AS share FROM orders",
            {},
            (
                "at most 2 rows per person count",
                '"share" is biased if anyone has more than 2 rows, because numerator and denominator are bounded '
                "separately; "
                "AVG(condition) is not",
            ),
        ),
        (
            "SELECT SUM(amount) / COUNT_IF(amount > 5) AS each FROM orders",
            {},
            (
                "at most 2 rows per person count",
                '"each" is biased if anyone has more than 2 rows, because numerator and denominator are bounded '
                "separately; "
                "AVG(amount) is not",
            ),
        ),
        # Also where counts lean on the number of people, and all of them are scaled.
        (
            "SELECT region, COUNT(DISTINCT customer_id) AS people, COUNT_IF(amount > 5) / COUNT(*) AS share "
            "FROM orders GROUP BY region",
            {"bounding": "l2_clip"},
            (
                "at most 2 rows per person count in each group",
                "anyone in n > 3 groups counts sqrt(3 / n) in each of them",
                '"share" is biased if anyone has more than 2 rows, because numerator and denominator are bounded '
                "separately; "
                "AVG(condition) is not",
            ),
        ),
        ("SELECT AVG(amount > 5) AS share FROM orders", {}, ("at most 2 rows per person count",)),
        ("SELECT SUM(amount) / COUNT(*) AS mean FROM orders", {}, ("at most 2 rows per person count",)),
        # However many rows a person has, they are one.
        ("SELECT COUNT(DISTINCT customer_id) FROM orders", {}, ()),
        ("SELECT COUNT(*), COUNT(DISTINCT customer_id) FROM orders", {}, ("at most 2 rows per person count",)),
        (
            "SELECT AVG(n) FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id)",
            {},
            ("n is clamped to [1, 2], from max_rows_per_group; set contribution_bounds_per_row for other bounds",),
        ),
        ("SELECT AVG(LEAST(n, 9)) FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id)", {}, ()),
    ],
)
def test_what_bounding_leaves_out_is_said(
    shop: dpsql.Connection, sql: str, options: dict[str, Any], notes: tuple[str, ...]
) -> None:
    told = shop.execute(sql, epsilon=3, diagnose=False, **options).notes
    assert tuple(note for note in told if note != DIAGNOSE) == notes
    limited = bool(notes) and "per person count" in notes[0]
    assert (DIAGNOSE in told) == (limited and "bounding" not in options)


def test_one_row_for_each_person_leaves_nothing_out(shop_schema: Any) -> None:
    del shop_schema["tables"]["orders"]
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE customers (id BIGINT PRIMARY KEY, age BIGINT)")
        raw.execute("INSERT INTO customers SELECT i, i % 90 FROM range(100) AS r(i)")
        with dpsql.connect(raw, schema=shop_schema, budget=1e6, delta=1e-6) as connection:
            assert connection.execute("SELECT COUNT(*) FROM customers", epsilon=1000).notes == ()


def test_groups_that_are_not_shown_are_said(shop: dpsql.Connection) -> None:
    cursor = shop.execute("SELECT note, COUNT(*) FROM orders GROUP BY note", epsilon=3)
    (release,) = shop.explain("SELECT note, COUNT(*) FROM orders GROUP BY note", epsilon=3).releases
    hidden = f"groups of fewer than about {release.threshold} people are not shown"
    assert f"{hidden}, and calculations over all groups leave them out" in cursor.notes
    cursor = shop.execute("SELECT note, COUNT(*) FROM orders GROUP BY note", epsilon=3, max_rows_per_group=1)
    assert "at most 1 row per person counts in each group" in cursor.notes


def test_totals_that_are_measured_leave_no_group_out(shop: dpsql.Connection) -> None:
    notes = shop.execute("SELECT note, COUNT(*) FROM orders GROUP BY ROLLUP (note)", epsilon=3).notes
    assert any(note.endswith("people are not shown") for note in notes)


def test_columns_of_one_name_are_to_be_renamed(shop: dpsql.Connection) -> None:
    """The error of none is known, but keys have none."""
    counts, totals = (f"(SELECT items, {what} AS n FROM orders GROUP BY items)" for what in ("COUNT(*)", "SUM(amount)"))
    joined = f"FROM {counts} AS a JOIN {totals} AS b USING (items)"
    cursor = shop.execute(f"SELECT a.items, a.n, b.n {joined}", epsilon=3)
    same = '"n", "n": the error is unknown because two columns have the same name; rename one with AS'
    assert same in cursor.notes
    assert [column.is_noisy for column in cursor.result.columns] == [False, True, True]
    renamed = shop.execute(f"SELECT a.items, a.n, b.n AS total {joined}", epsilon=3)
    assert not any("unknown" in note for note in renamed.notes)
    # A star may give a name twice, too.
    star = shop.execute(f"SELECT * FROM {counts} AS a, {totals} AS b WHERE a.items = b.items", epsilon=3)
    assert [column.is_noisy for column in star.result.columns][1::2] == [True, True]


EXACT = "± does not include the noise of the subquery's answer"
UNKNOWN = "± ?: rows are compared with a noisy answer, so the error is unknown"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
        "SELECT region, COUNT(*) AS n FROM orders WHERE amount > (SELECT MEDIAN(amount) FROM orders) GROUP BY region",
        "SELECT SUM(CASE WHEN amount > (SELECT AVG(amount) FROM orders) THEN 1 ELSE 0 END) AS n FROM orders",
        "SELECT ROUND(COUNT(*) / 10) AS n FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
        "SELECT COUNT(*) AS n FROM orders, (SELECT AVG(amount) AS mean FROM orders) WHERE amount > mean",
    ],
)
def test_what_is_compared_with_a_noisy_answer_has_no_interval(shop: dpsql.Connection, sql: str) -> None:
    """It would cover its own noise only, and held 91 % at 95 %."""
    cursor = shop.execute(sql, epsilon=1)
    assert UNKNOWN in cursor.notes
    assert cursor.intervals()[["n_low", "n_high"]].isna().all(axis=None)
    assert "± ?" in str(cursor.result)
    explained = {column.name: column for column in shop.explain(sql, epsilon=1).columns}["n"]
    assert explained.half_width is None
    assert "compared with a noisy answer" in explained.note


@pytest.mark.parametrize(
    ("sql", "is_said"),
    [
        (
            "SELECT COUNT(*) FROM orders WHERE region IN "
            "(SELECT region FROM orders GROUP BY region ORDER BY COUNT(*) DESC LIMIT 2)",
            True,
        ),
        # What is known already has no noise, and an answer that stands beside others has its own error.
        ("SELECT COUNT(*) FROM orders WHERE amount > (SELECT 3)", False),
        ("SELECT COUNT(*) FROM orders JOIN (VALUES ('north')) AS v(r) ON region = r", False),
        ("SELECT COUNT(*), (SELECT AVG(amount) FROM orders) FROM orders", False),
    ],
)
def test_a_noisy_constant_is_said(shop: dpsql.Connection, sql: str, is_said: bool) -> None:
    assert (EXACT in shop.execute(sql, epsilon=1).notes) is is_said
    assert (EXACT in shop.execute(sql, epsilon=1).notes) is is_said  # recalled
    assert (EXACT in shop.explain(sql, epsilon=1).notes) is is_said


def test_a_column_that_is_mostly_noise_is_faint(shop: dpsql.Connection) -> None:
    sql = "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region"
    cursor = shop.execute(sql, epsilon=0.01)
    assert cursor.result.faint == {"n", "total"}
    assert any(note.startswith('"n" is mostly noise at this epsilon') for note in cursor.notes)
    assert "dp-faint" in (cursor._repr_html_() or "")
    assert shop.execute(sql, epsilon=3).result.faint == frozenset()


def test_a_few_large_groups_among_empty_ones_are_no_noise() -> None:
    hour = {"type": "integer", "bounds": [0, 23]}
    schema = {
        "dataset": "gym",
        "tables": {"visits": {"unit": "person", "columns": {"person": "integer", "hour": hour}}},
    }
    visits = pd.DataFrame({"person": range(1000), "hour": 18})
    with dpsql.connect(visits, schema=schema, budget=10) as connection:
        cursor = connection.execute("SELECT hour, COUNT(*) AS n FROM visits GROUP BY hour", epsilon=1)
        assert cursor.rowcount == 24
        assert cursor.result.faint == frozenset()


def test_a_spread_without_a_known_error_does_not_look_exact(shop: dpsql.Connection) -> None:
    cursor = shop.execute("SELECT region, STDDEV(amount) AS spread FROM orders GROUP BY region", epsilon=0.01)
    unknown = cursor.intervals()["spread_low"].isna() & cursor.intervals()["spread"].notna()
    for shown in (str(cursor), cursor._repr_html_() or ""):
        assert shown.replace(UNKNOWN_NOTE, "").count("± ?") == unknown.sum()
        assert shown.count(UNKNOWN_NOTE) == unknown.any()


def test_an_error_that_is_not_known_is_explained_once(shop: dpsql.Connection) -> None:
    change = "SELECT {0}, COUNT(*) / LAG(COUNT(*)) OVER (ORDER BY {0}) AS c FROM orders {1} GROUP BY {0}"
    nobody = change.format("items", "WHERE amount < 0")
    assert str(shop.execute(nobody, epsilon=0.01)).count(UNKNOWN_NOTE) == 1
    assert UNKNOWN_NOTE in ask(shop, nobody, epsilon=0.01).document["notes"]
    # The tails of Laplace noise are now and then too far out for an error bar of a quotient.
    assert UNKNOWN_NOTE not in str(shop.execute(change.format("region", ""), epsilon=3, mechanism="gaussian"))
    # A column of which no error is known has a note of its own.
    largest = "SELECT MAX(n) AS m FROM (SELECT region, COUNT(*) AS n FROM orders GROUP BY region)"
    assert UNKNOWN_NOTE not in str(shop.execute(largest, epsilon=1))


def test_the_better_price_is_one(shop: dpsql.Connection) -> None:
    """What is named for ± 10 % gives about that: the noise of the answer itself is in it."""
    sql = "SELECT region, COUNT(*) AS n FROM orders GROUP BY region"
    named = []
    for _ in range(60):
        cursor = shop.execute(sql, epsilon=0.1, fresh=True)
        named += [note for note in cursor.notes if "would give" in note]
        if len(named) > 5:
            break
    for note in named:
        epsilon = float(note.partition("about epsilon ")[2].partition(" ")[0])
        width = shop.explain(sql, epsilon=epsilon).columns[1].half_width
        assert width is not None
        assert 8 <= width <= 50  # of 200 in each region


def test_notes_are_told_by_every_front_end(shop: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) FROM orders"
    report = ask(shop, sql, epsilon=3)
    assert report.document["notes"][:2] == ("at most 2 rows per person count", DIAGNOSE)
    assert "too few people" in report.document["notes"][2]
    assert "at most 2 rows per person count" in (shop.execute(sql, epsilon=3)._repr_html_() or "")


# -- diagnose=True -----------------------------------------------------------------------------------------------------

VISITS: dict[str, Any] = {
    "dataset": "visits",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "integer", "bounds": [0, 9]},
                "cost": {"type": "integer", "bounds": [0, 50]},
            },
        }
    },
}


@pytest.fixture
def visits() -> Iterator[dpsql.Connection]:
    """2 000 people with six visits each, to one ward, and 20 with 200, to all."""
    with duckdb.connect() as raw:
        raw.execute(
            "CREATE TABLE visits AS SELECT i % 2000 AS person, i % 10 AS ward, 5 AS cost FROM range(12000) AS r(i)"
        )
        raw.execute("INSERT INTO visits SELECT 2000 + i % 20, i // 20 % 10, 5 FROM range(4000) AS r(i)")
        with dpsql.connect(raw, schema=VISITS, budget=1e6, delta=1e-6) as connection:
            yield connection


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT COUNT(*) FROM visits", 8000 + 20 * 198),
        ("SELECT ward, SUM(cost) FROM visits GROUP BY ward", 8000 + 20 * 196),
        ("SELECT MEDIAN(cost) FROM visits", 8000 + 20 * 198),
    ],
)
def test_how_much_was_left_out(visits: dpsql.Connection, sql: str, rows: int) -> None:
    notes = " ".join(visits.execute(sql, epsilon=5000, diagnose=True).notes)
    found = re.search(r"left out about ([\d,]+) rows of ([\d,]+) people \(this estimate took 5% of the cost", notes)
    assert found is not None
    assert int(found[1].replace(",", "")) == pytest.approx(rows, rel=0.25)
    assert int(found[2].replace(",", "")) == 2020
    assert "max_rows_per_group=8 would count all rows of 99% of the people" in notes


def test_nothing_was_left_out(visits: dpsql.Connection) -> None:
    notes = visits.execute("SELECT COUNT(*) FROM visits", epsilon=50, max_rows_per_group=1000, diagnose=True).notes
    assert "bounding left out almost nothing (this estimate took 5% of the cost)" in notes
    assert not any("would count" in note for note in notes)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", None])
@pytest.mark.parametrize("sql", ["SELECT COUNT(*) FROM visits", "SELECT COUNT(*), MEDIAN(cost) FROM visits"])
def test_it_is_a_twentieth_of_the_cost(visits: dpsql.Connection, sql: str, mechanism: str | None) -> None:
    explained = visits.explain(sql, epsilon=1, mechanism=mechanism, diagnose=True)
    asked, *diagnosing = explained.releases
    assert explained.cost.epsilon == 1
    assert asked.epsilon == pytest.approx(0.95)
    assert [release.epsilon for release in diagnosing] == pytest.approx([0.025] * 2)
    assert {(measure.l1, measure.linf) for release in diagnosing for measure in release.measures} == {(1, 1)}
    before = visits.budget.tally.totals
    visits.execute(sql, epsilon=1, mechanism=mechanism, diagnose=True)
    if mechanism == "laplace":
        assert visits.budget.tally.totals.epsilon - before.epsilon == 1


# -- what ± does not tell of -------------------------------------------------------------------------------------------

PER_PERSON = "SELECT COUNT(*) AS n, COUNT(DISTINCT uid) AS people FROM t"
FEW, MANY_ROWS = {"max_groups": 1, "max_rows_per_group": 2}, {"max_groups": 3, "max_rows_per_group": 100}
BIASED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("SELECT COUNT(*) AS n FROM t", FEW, ["n"]),
    ("SELECT COUNT(DISTINCT uid) AS people FROM t", FEW, []),
    ("SELECT kind, AVG(x) AS a FROM t GROUP BY kind", FEW, ["a"]),
    ("SELECT kind, COUNT(DISTINCT uid) AS people FROM t GROUP BY kind", FEW, ["people"]),
    ("SELECT MEDIAN(x) AS m FROM t", FEW, ["m"]),
    ("SELECT SUM(n) AS s FROM (SELECT kind, COUNT(*) AS n FROM t GROUP BY kind) AS g", FEW, ["s"]),
    ("SELECT COUNT(*) AS n FROM once", FEW, []),
    ("SELECT SUM(x) AS s FROM once", FEW, []),
    ("SELECT SUM(x, contribution_bounds_per_row => (0, 5)) AS s FROM once", FEW, ["s"]),
    ("SELECT SUM(x, contribution_bounds_per_row => (0, 50)) AS s FROM once", FEW, []),
    ("SELECT SUM(n) AS s FROM (SELECT uid, COUNT(*) AS n FROM t GROUP BY uid) AS g", MANY_ROWS, ["s"]),
    ("SELECT COUNT(*) AS n FROM (SELECT uid, COUNT(*) AS n FROM t GROUP BY uid) AS g", MANY_ROWS, []),
]


@pytest.mark.parametrize(("sql", "contribution", "biased"), BIASED)
def test_columns_say_where_their_error_is_that_of_the_noise_alone(
    sql: str, contribution: dict[str, Any], biased: list[str]
) -> None:
    columns = {
        "uid": "integer",
        "kind": {"type": "text", "values": ["a", "b"]},
        "x": {"type": "integer", "bounds": [0, 9]},
    }
    tables = {"t": {"unit": "uid", "columns": columns}, "once": {"unit": "uid", "unique": True, "columns": columns}}
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t AS SELECT n % 50 AS uid, 'a' AS kind, n % 10 AS x FROM range(300) AS r(n)")
        database.execute("CREATE TABLE once (uid BIGINT PRIMARY KEY, kind TEXT, x BIGINT)")
        database.execute("INSERT INTO once SELECT n, 'b', n % 10 FROM range(50) AS r(n)")
        schema = {"dataset": "d", "contribution": contribution, "tables": tables}
        with dpsql.connect(database, schema=schema, budget=10, delta=1e-6, ledger=":memory:") as session:
            result = session.execute(sql, epsilon=1).result
    assert [column.name for column in result.columns if column.noise_only] == biased
    assert (NOISE_ONLY in str(result)) is (NOISE_ONLY in result._repr_html_()) is bool(biased)
    for frame in (result.df(), result.intervals()):
        exact = [column.name for column in result.columns if column.left_out is not None]
        assert frame.attrs == {"noise_only": biased, "left_out": dict.fromkeys(exact, 0.0), "notes": list(result.notes)}


def test_what_is_rounded_to_a_coarser_grid_says_so() -> None:
    """Integers and decimals are summed exactly over up to 2^40 of their steps; doubles never are."""
    columns: dict[str, Any] = {
        "u": "integer",
        "narrow": {"type": "integer", "bounds": [-(10**12), 10**12]},
        "wide": {"type": "integer", "bounds": [-(10**13), 10**13]},
        "price": {"type": "decimal(18, 2)", "bounds": [0, 10**11]},
        "x": {"type": "double", "bounds": [0, 10**13]},
    }
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE t AS SELECT i AS u, i AS narrow, i AS wide, i::DECIMAL(18, 2) AS price, i AS x FROM range(9) r(i)"
    )
    schema = {"tables": {"t": {"unit": "u", "unique": True, "columns": columns}}}
    with dpsql.connect(raw, schema=schema, budget=1e16, query_epsilon=1e14) as session:
        asked = {
            "SUM(narrow)": ((36,), ()),
            "SUM(wide, contribution_bounds_per_row => (0, 500))": ((36,), ()),
            "SUM(x)": ((0.0,), ()),
            "SUM(wide)": ((0,), ("wide is summed in multiples of 16384",)),
            "AVG(price) > 10": ((False,), ("price is summed in multiples of 128",)),
        }
        for expression, (row, said) in asked.items():
            answer = session.execute(f"SELECT {expression} FROM t")
            notes = [note for note in answer.notes if "summed" in note]
            assert (answer.fetchone(), len(notes)) == (row, len(said)), expression
            assert all(note.startswith(part) for note, part in zip(notes, said, strict=True)), notes
            assert [part in str(session.explain(f"SELECT {expression} FROM t")) for part in said] == [True] * len(said)

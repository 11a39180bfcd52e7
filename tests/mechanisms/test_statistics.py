"""Medians, modes, averages and joins across people, from SQL to answer: what leaves the engine, and what is shown.

The engine describes a group by the values around one rank; they are compared here with a sorted Python list. How a
mechanism draws from them is tested beside this file.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.engines.duckdb import render
from dpsql.mechanisms.exponential import QuantileChoice, extreme, share
from dpsql.mechanisms.local_sensitivity import CrossJoin

LOW, HIGH = -50, 50
SCHEMA: dict[str, Any] = {
    "dataset": "visits",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {
        "people": {
            "unit": "person",
            "unique": True,
            "columns": {
                "person": "integer",
                "place": {"type": "text", "values": ["a", "b", "c"], "nullable": True},
                "x": {"type": "integer", "bounds": [LOW, HIGH], "nullable": True},
                "d": {"type": "double", "bounds": [LOW, HIGH], "nullable": True},
            },
        },
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "place": {"type": "text", "values": ["a", "b", "c"], "nullable": True},
                "x": {"type": "integer", "bounds": [LOW, HIGH], "nullable": True},
                "d": {"type": "double", "bounds": [LOW, HIGH], "nullable": True},
                "money": {"type": "decimal(6,2)", "bounds": [LOW, HIGH]},
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
                "moment": {"type": "timestamp", "bounds": ["2024-01-01", "2024-12-31"]},
                "huge": {"type": "double", "bounds": [0, 1e9]},
                "free": "double",
            },
        },
    },
}
CREATE = """
    SET threads = 1;
    CREATE TABLE people (person BIGINT PRIMARY KEY, place VARCHAR, x BIGINT, d DOUBLE);
    CREATE TABLE visits (person BIGINT, place VARCHAR, x BIGINT, d DOUBLE, money DECIMAL(6,2), day DATE,
                         moment TIMESTAMP, huge DOUBLE, free DOUBLE);
"""
Visit = tuple[int, str | None, int | None]


def database(visits: list[Visit]) -> duckdb.DuckDBPyConnection:
    """Visits as given, and people with the first visit of each."""
    raw = duckdb.connect()
    raw.execute(CREATE)
    if visits:
        rows = ", ".join(
            f"({person}, {'NULL' if place is None else repr(place)}, {'NULL' if x is None else x})"
            for person, place, x in visits
        )
        raw.execute(f"INSERT INTO visits (person, place, x) VALUES {rows}")
    raw.execute("INSERT INTO people SELECT person, first(place), first(x), first(x) FROM visits GROUP BY person")
    raw.execute("""UPDATE visits SET d = x / 4.0, money = greatest(least(x, 90), -90) / 4.0, huge = abs(x), free = x,
        day = DATE '2024-07-01' + CAST(greatest(least(x, 90), -90) AS INTEGER),
        moment = TIMESTAMP '2024-07-01' + to_hours(CAST(greatest(least(x, 90), -90) AS INTEGER))""")
    return raw


def connect(raw: duckdb.DuckDBPyConnection, **options: Any) -> dpsql.Connection:
    return dpsql.connect(raw, schema=SCHEMA, **({"budget": 1e6, "delta": 1e-6} | options))


Profile = tuple[list[int], int, int]
"""The points of consecutive ranks, how many rows are below them, and how many there are."""


def released(connection: dpsql.Connection, sql: str, **options: Any) -> str:
    """What the engine is asked. No row of people decides it, so other databases can be asked the same."""
    (release,) = connection.explain(sql, **options).releases
    return release.sql


def profiles(raw: duckdb.DuckDBPyConnection, sql: str) -> dict[object, Profile]:
    """The exact description of each group, by its key."""
    found = {}
    for row in raw.execute(sql).fetchall():
        points, counts, below, rows = row[-4:]
        expanded = [point for point, count in zip(points or [], counts or [], strict=True) for _ in range(count)]
        found[row[0] if len(row) > 4 else "all"] = expanded, below or 0, rows or 0
    return found


def check_profile(profile: Profile, values: list[int], choice: QuantileChoice) -> None:
    """Every rank that the mechanism looks at is there, at its place, and the number of rows is right."""
    points, below, rows = profile
    ordered = sorted(values)
    assert rows == len(ordered)
    assert points == ordered[below : below + len(points)]
    (aim,), parts = choice.aim.at(np.array([rows])), choice.aim.parts
    first, last = (aim - choice.cap) // parts + 1, -((-aim - choice.cap) // parts)
    assert below < max(first, 1)
    assert below + len(points) >= min(last, rows)


def bounded(x: int) -> int:
    return min(max(x, LOW), HIGH)


def choice_of(fraction: str, epsilon: float, rows: int) -> QuantileChoice:
    if fraction in ("0", "1"):
        return extreme(Fraction(epsilon), rows, LOW, HIGH, greatest=fraction == "1")
    return QuantileChoice(share(Fraction(fraction)), Fraction(epsilon), rows, LOW, HIGH)


ADVERSARIAL = {
    "nothing": lambda rng: [],
    "one row": lambda rng: [7],
    "all equal": lambda rng: [7] * 900,
    "two values": lambda rng: [rng.choice([3, 4]) for _ in range(900)],
    "a heavy tie beside the median": lambda rng: [0] * 440 + [1] * 500,
    "whole numbers": lambda rng: [rng.randint(LOW, HIGH) for _ in range(1200)],
    "out of range": lambda rng: [rng.choice([-(10**12), 10**12, 0]) for _ in range(300)],
    "with nulls": lambda rng: [rng.choice([None, rng.randint(LOW, HIGH)]) for _ in range(600)],
    "only nulls": lambda rng: [None] * 20,
    "sorted": lambda rng: [i * 100 // 1500 + LOW for i in range(1500)],
}
GUESSES = {
    "as it is": {},
    "everything is sampled": {"SAMPLED": 1},
    "nothing is sampled": {"SAMPLED": 1 << 40},
    "fences too near": {"SAMPLED": 2, "CHANCE": 0},
    "fences on the wrong side": {"SAMPLED": 1, "CHANCE": -3},
}


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("data", ADVERSARIAL)
def test_the_ranks_that_a_quantile_needs(data: str, guess: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come exactly from the engine, whatever the sample says about where they are."""
    for name, value in GUESSES[guess].items():
        monkeypatch.setattr(render, name, value)
    values = ADVERSARIAL[data](random.Random(data))
    raw = database([(person, "a", value) for person, value in enumerate(values)])
    present = [bounded(value) for value in values if value is not None]
    asked = [("0.5", "people", 1), ("0.03", "visits", 2)] + ([] if GUESSES[guess] else [("1", "people", 1)])
    with connect(raw) as connection:
        for fraction, table, rows in asked:
            sql = released(connection, f"SELECT QUANTILE_DISC(x, {fraction}) FROM {table}", epsilon=4)
            check_profile(profiles(raw, sql)["all"], present, choice_of(fraction, 4, rows))


rows_of_few = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None, "elsewhere"]), st.none() | st.integers(-60, 60)), max_size=40
)


@settings(max_examples=6)
@given(rows=rows_of_few, fraction=st.sampled_from(["0.5", "0.25", "1"]), sampled=st.sampled_from([1, 2, 64]))
def test_groups_with_their_own_ranks(rows: list[tuple[str | None, int | None]], fraction: str, sampled: int) -> None:
    """Public groups are all there, empty ones too; a text that is not declared is NULL, which is one of them."""
    raw = database([(person, place, x) for person, (place, x) in enumerate(rows)])
    with pytest.MonkeyPatch.context() as patch, connect(raw) as connection:
        patch.setattr(render, "SAMPLED", sampled)
        for table, each in (("people", 1), ("visits", 2)):
            reached = 1 if table == "people" else 2
            sql = f"SELECT place, QUANTILE_DISC(x, {fraction}) FROM {table} GROUP BY place"
            found = profiles(raw, released(connection, sql, epsilon=9))
            assert set(found) == {"a", "b", "c", None}
            for place, profile in found.items():
                mine = [
                    bounded(x) for at, x in rows if x is not None and (at if at in ("a", "b", "c") else None) == place
                ]
                check_profile(profile, mine, choice_of(fraction, 9 / reached, each))


def test_doubles_that_are_no_numbers_do_not_count() -> None:
    raw = database([])
    kinds = ["CAST('nan' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "CAST('-inf' AS DOUBLE)", "NULL", "1e300", "-0.0", "2.5"]
    for person, value in enumerate(kinds * 3):
        raw.execute(f"INSERT INTO people VALUES ({person}, 'a', 0, {value})")
    sql = released(connect(raw), "SELECT MEDIAN(d) FROM people", epsilon=4)
    points, below, rows = profiles(raw, sql)["all"]
    assert (below, rows, len(points)) == (0, 9, 9)
    assert sorted(Counter(points).values()) == [3, 3, 3]


@pytest.mark.parametrize(
    ("table", "grouped"), [("people", False), ("people", True), ("visits", False), ("visits", True)]
)
def test_one_person_changes_few_rows_of_few_groups(table: str, grouped: bool) -> None:
    """For every statistic: the values that count differ by at most `rows` in at most `groups` groups."""
    rng = random.Random(3)
    visits = [(rng.randint(0, 2), rng.choice("abc"), rng.randint(LOW, HIGH)) for _ in range(40)]
    visits += [(9, rng.choice("abc"), rng.randint(LOW, HIGH)) for _ in range(40)]
    groups, rows = (1, 1) if table == "people" else (2, 2)
    by, key = (" GROUP BY place", "place, ") if grouped else ("", "")
    with connect(database([])) as connection:  # epsilon is so small that the whole column is looked at
        median = released(connection, f"SELECT {key}MEDIAN(x) FROM {table}{by}", epsilon=1e-4)
        mode = released(connection, f"SELECT {key}MODE(x) FROM {table}{by}", epsilon=1)
    whole = multisets(database(visits), median, mode)
    for person in sorted({person for person, _, _ in visits}):
        without = multisets(database([visit for visit in visits if visit[0] != person]), median, mode)
        for statistic in whole:
            moved = {
                place: sum((whole[statistic][place] - without[statistic][place]).values())
                + sum((without[statistic][place] - whole[statistic][place]).values())
                for place in whole[statistic]
            }
            assert sum(count > 0 for count in moved.values()) <= (groups if grouped else 1), statistic
            assert max(moved.values()) <= rows, statistic


def multisets(raw: duckdb.DuckDBPyConnection, median: str, mode: str) -> dict[str, dict[object, Counter[int]]]:
    """By statistic and group, all values that count."""
    return {
        "median": {place: Counter(points) for place, (points, _, _) in profiles(raw, median).items()},
        "mode": {
            row[0] if len(row) > 2 else "all": Counter(dict(zip(row[-2] or [], row[-1] or [], strict=True)))
            for row in raw.execute(mode).fetchall()
        },
    }


def test_an_average_moves_by_the_rows_of_one_person() -> None:
    rng = random.Random(4)
    visits = [(rng.randint(0, 4), rng.choice("abc"), rng.randint(-80, 80)) for _ in range(60)]
    sql = released(connect(database([])), "SELECT AVG(x) FROM visits", mechanism="smooth", epsilon=1)

    def total(some: list[tuple[int, str, int]]) -> tuple[int, int]:
        ((whole, rest, rows),) = database(some).execute(sql).fetchall()
        return (LOW + whole) * rows + rest, rows

    whole = total(visits)
    for person in range(5):
        part = total([visit for visit in visits if visit[0] != person])
        assert 0 <= whole[1] - part[1] <= 2
        assert abs(whole[0] - part[0]) <= 2 * HIGH


def test_explain_says_what_counts_of_a_unit_in_a_join_across_people() -> None:
    sql = "SELECT COUNT(*) FROM visits a JOIN visits b ON a.x = b.x"
    explained = connect(database([])).explain(sql, mechanism="smooth", epsilon=1)
    rows = explained.releases[0].max_rows_per_group
    assert f"at most {rows} rows per person on each side of the join" in str(explained)


@pytest.mark.parametrize("meets", ["a.x = b.x", "a.x < b.x", "a.x BETWEEN b.x - 1 AND b.x AND a.place <> b.place"])
@pytest.mark.parametrize("select", ["COUNT(*)", "SUM(b.x)", "SUM(a.x + b.x)"])
def test_pairs_of_people_move_no_further_than_the_local_sensitivity(select: str, meets: str) -> None:
    """Over all groups together, from the frequencies that the engine found; those move by a unit's rows at most."""
    rng = random.Random(5)
    visits = [(rng.randint(0, 6), rng.choice("abc"), rng.randint(0, 4)) for _ in range(70)]
    sql = f"SELECT a.place, {select} FROM visits a JOIN visits b ON {meets} GROUP BY a.place"
    asked = released(connect(database([])), sql, mechanism="smooth", epsilon=1)
    value = {"COUNT(*)": 1, "SUM(b.x)": HIGH}.get(select, 2 * HIGH)

    def totals(some: list[tuple[int, str, int]]) -> tuple[dict[object, int], int, int]:
        found = database(some).execute(asked).fetchall()
        return {row[0]: row[1] or 0 for row in found}, found[0][2] or 0, found[0][3] or 0

    whole, left, right = totals(visits)
    assert set(whole) == {"a", "b", "c", None}
    for person in range(7):
        part, fewer_left, fewer_right = totals([visit for visit in visits if visit[0] != person])
        moved = sum(abs(whole[place] - part[place]) for place in whole)
        assert moved <= min(
            CrossJoin(4, 4, left, right, value).at(0), CrossJoin(4, 4, fewer_left, fewer_right, value).at(0)
        )
        assert 0 <= left - fewer_left <= 4
        assert 0 <= right - fewer_right <= 4


# -- answers without noise -------------------------------------------------------------------------------------------


@pytest.fixture(name="raw", scope="module")
def odd_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """301 people, one visit each, in one place but for a few."""
    rng = random.Random(6)
    places = ["a"] * 200 + ["b"] * 99 + ["c"] * 2
    raw = database([(person, place, rng.randint(LOW, HIGH)) for person, place in enumerate(places)])
    yield raw
    raw.close()


@pytest.fixture(name="refusing", scope="module")
def session_that_answers_nothing(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    """For all that is refused."""
    with connect(raw) as connection:
        yield connection


@pytest.fixture(name="exact")
def session_without_noise(raw: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    return connect(raw, budget=1e15, query_epsilon=1e9)


@pytest.mark.parametrize(
    "expression",
    [
        "MEDIAN(x)",
        "MEDIAN(d)",
        "MEDIAN(money)",
        "QUANTILE_DISC(x, 0.5)",
        "QUANTILE_DISC(money, 0.5)",
        "QUANTILE_DISC(day, 0.5)",
        "QUANTILE_DISC(moment, 0.5)",
        "MEDIAN(x) FILTER (WHERE place = 'b')",
        "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x DESC)",
        "MODE(place)",
    ],
)
def test_without_noise_it_is_the_answer_of_duckdb(
    expression: str, raw: duckdb.DuckDBPyConnection, exact: dpsql.Connection
) -> None:
    sql = f"SELECT {expression} FROM visits"
    ((answer,),) = exact.execute(sql).fetchall()
    ((plain,),) = raw.execute(sql).fetchall()
    assert type(answer) is type(plain)
    assert answer == plain


@pytest.mark.parametrize(
    ("column", "kind"), [("x", int), ("d", float), ("money", Decimal), ("day", date), ("moment", datetime)]
)
def test_extremes_are_of_the_column_s_type(column: str, kind: type, exact: dpsql.Connection) -> None:
    ((least, most),) = exact.execute(f"SELECT MIN({column}), MAX({column}) FROM visits").fetchall()
    assert type(least) is type(most) is kind
    assert least < most


def test_lists_of_quantiles(exact: dpsql.Connection, raw: duckdb.DuckDBPyConnection) -> None:
    ((listed, buckets),) = exact.execute(
        "SELECT QUANTILE_CONT(x, [0.9, 0.1, 0.5]), APPROX_QUANTILES(x, 4) FROM visits"
    ).fetchall()
    assert listed[1] <= listed[2] <= listed[0]
    assert len(buckets) == 5
    assert buckets == sorted(buckets)
    assert all(isinstance(value, float) for value in listed)


def test_several_quantiles_share_one_price_and_come_out_sorted(raw: duckdb.DuckDBPyConnection) -> None:
    """Even where noise alone would put them in another order."""
    connection = connect(raw)
    for _ in range(6):
        sql = "SELECT MIN(x), QUANTILE_CONT(x, 0.4), MEDIAN(x), QUANTILE_CONT(x, 0.6), MAX(x) FROM visits"
        cursor = connection.execute(sql, epsilon=0.01, fresh=True)
        ((*values,),) = cursor.fetchall()
        assert values == sorted(values)
        assert cursor.receipt.epsilon == pytest.approx(0.01)


# -- tests that refuse -----------------------------------------------------------------------------------------------


def test_a_refusal_is_an_answer_and_costs_the_test_alone(raw: duckdb.DuckDBPyConnection) -> None:
    connection = connect(raw, budget=10)
    for sql, propose in (("SELECT MEDIAN(x) FROM visits", 1), ("SELECT AVG(d) FROM visits", 0.01)):
        before = connection.budget.spent.epsilon
        cursor = connection.execute(sql, mechanism="ptr", propose=propose, epsilon=1)
        assert cursor.fetchall() == [(None,)]
        assert cursor.receipt.refused
        assert cursor.receipt.epsilon == pytest.approx(0.5)
        assert connection.budget.spent.epsilon - before == pytest.approx(0.5)
        again = connection.execute(sql, mechanism="ptr", propose=propose, epsilon=1)
        assert again.fetchall() == [(None,)]
        assert again.receipt.refused
        assert again.receipt.epsilon == 0


def test_groups_are_refused_one_by_one(raw: duckdb.DuckDBPyConnection) -> None:
    """Place c has two visits, so nothing is known about its average."""
    cursor = connect(raw).execute(
        "SELECT place, AVG(d) FROM visits GROUP BY place", mechanism="ptr", propose=20, epsilon=20, max_groups=1
    )
    found = dict(cursor.fetchall())
    assert found["a"] is not None
    assert found["c"] is None
    assert cursor.receipt.epsilon == pytest.approx(20), "what one group was told is paid for"


def test_noise_of_a_proposal_that_passes(raw: duckdb.DuckDBPyConnection) -> None:
    """Laplace noise for the proposal at half of epsilon, around the true average."""
    connection = connect(raw)
    ((truth,),) = raw.execute("SELECT AVG(d) FROM visits").fetchall()
    options = {"mechanism": "ptr", "propose": 1, "epsilon": 10, "fresh": True}
    answers = [connection.execute("SELECT AVG(d) FROM visits", **options).fetchone()[0] for _ in range(60)]
    assert np.mean(answers) == pytest.approx(truth, abs=5 * 0.2 * math.sqrt(2) / math.sqrt(60))
    assert 0.12 < np.std(answers) < 0.6


def test_a_clip_for_a_range_that_is_far_too_wide(raw: duckdb.DuckDBPyConnection) -> None:
    """Declared up to 1e9, and nobody has more than 100."""
    connection = connect(raw)
    ((truth, rows),) = raw.execute("SELECT SUM(huge), COUNT(*) FROM visits").fetchall()
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism='ptr', propose=100, epsilon=4)"
    asked = [connection.execute(f"{clause} SUM(huge) FROM visits", fresh=True).fetchone()[0] for _ in range(9)]
    shown = [answer for answer in asked if answer is not None]
    assert len(shown) >= 5
    assert abs(np.median(shown) - truth) < 1000
    plain = [connection.execute("SELECT SUM(huge) FROM visits", epsilon=4, fresh=True).fetchone()[0] for _ in range(9)]
    assert np.median(np.abs(np.array(plain) - truth)) > 10**6
    counted = connection.execute("SELECT COUNT(*) FROM visits", mechanism="ptr", propose=1, epsilon=50)
    assert abs(counted.fetchone()[0] - rows) < 10
    tight = connection.execute("SELECT SUM(huge) FROM visits", mechanism="ptr", propose=1, epsilon=4)
    assert tight.fetchall() == [(None,)]
    assert tight.receipt.refused


def test_a_stable_mode_is_exact_or_refused(raw: duckdb.DuckDBPyConnection) -> None:
    connection = connect(raw)
    assert connection.execute("SELECT MODE(place) FROM visits", mechanism="stable", epsilon=4).fetchall() == [("a",)]
    near = connection.execute("SELECT MODE(place) FROM visits", mechanism="stable", epsilon=0.1, fresh=True)
    assert near.fetchall() == [(None,)]
    assert near.receipt.refused
    assert near.receipt.epsilon == pytest.approx(0.1), "the test is all that it costs"


# -- joins across people ---------------------------------------------------------------------------------------------

PAIRS = "FROM visits a JOIN visits b ON a.x = b.x"


def test_pairs_of_people_by_smooth_and_by_ptr(raw: duckdb.DuckDBPyConnection) -> None:
    connection = connect(raw)
    plain = dict(raw.execute(f"SELECT a.place, COUNT(*) {PAIRS} GROUP BY a.place").fetchall())
    for options in ({"mechanism": "smooth"}, {"mechanism": "ptr", "propose": 400}):
        found = dict(
            connection.execute(
                f"SELECT a.place, COUNT(*) {PAIRS} GROUP BY a.place", epsilon=80, max_groups=1, **options
            ).fetchall()
        )
        assert set(found) == {"a", "b", "c", None}
        for place, count in plain.items():
            assert found[place] == pytest.approx(count, abs=300)


def test_without_a_mechanism_the_error_names_those_that_fit(refusing: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Unsupported, match=r'mechanism="smooth", or "ptr" and propose='):
        refusing.execute(f"SELECT COUNT(*) {PAIRS}")


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT COUNT(*) FROM (SELECT DISTINCT a.x {PAIRS}) AS q",
        f"SELECT COUNT(*) FROM (SELECT a.x {PAIRS} UNION ALL SELECT x FROM visits) AS q",
        f"SELECT COUNT(*) FROM (SELECT a.person, COUNT(*) AS n {PAIRS} GROUP BY a.person) AS q",
        f"SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY a.person ORDER BY a.x) AS n {PAIRS}) AS q",
        f"SELECT COUNT(*) {PAIRS} JOIN visits c ON b.d = c.d",
        f"SELECT COUNT(*) {PAIRS} JOIN visits c ON a.person = c.person",
        f"SELECT COUNT(*) {PAIRS} WHERE a.person IN (SELECT person FROM visits WHERE x > 3)",
        f"SELECT COUNT(*) FROM visits WHERE person IN (SELECT a.person {PAIRS})",
        f"SELECT COUNT(*) FROM visits v WHERE EXISTS (SELECT 1 {PAIRS} WHERE a.person = v.person)",
        f"SELECT MEDIAN(a.x) {PAIRS}",
        f"SELECT AVG(a.x) {PAIRS}",
        f"SELECT COUNT(DISTINCT a.person) {PAIRS}",
        f"SELECT a.x, COUNT(*) {PAIRS.replace('ON a.x = b.x', 'ON a.free = b.free')} GROUP BY a.free, a.x",
        "SELECT COUNT(*) FROM visits a LEFT JOIN visits b ON a.x = b.x",
        "SELECT COUNT(*) FROM visits a, visits b",
        "SELECT COUNT(*) FROM visits a, visits b WHERE a.x < 3 AND b.x > 2",
    ],
)
def test_pairs_of_people_are_for_counts_and_sums_alone(sql: str, refusing: dpsql.Connection) -> None:
    for options in ({"mechanism": "smooth"}, {"mechanism": "ptr", "propose": 1000}):
        with pytest.raises(dpsql.Error):
            refusing.execute(sql, epsilon=1, **options)
    assert refusing.budget.spent.epsilon == 0


# -- bad input -------------------------------------------------------------------------------------------------------

QUESTIONS = [
    "SELECT MEDIAN(x) FROM visits",
    "SELECT AVG(x) FROM visits",
    "SELECT SUM(x) FROM visits",
    f"SELECT COUNT(*) {PAIRS}",
]


@pytest.mark.parametrize("sql", QUESTIONS)
@pytest.mark.parametrize("propose", [0, -1, math.nan, math.inf, "much", True, None])
def test_proposals_that_are_none(sql: str, propose: object, refusing: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError):
        refusing.execute(sql, mechanism="ptr", propose=propose, epsilon=1)


@pytest.mark.parametrize("sql", QUESTIONS[:3])
def test_a_proposal_above_the_declared_range_proposes_nothing(sql: str, refusing: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="propos"):
        refusing.execute(sql, mechanism="ptr", propose=1000, epsilon=1)


def test_a_proposal_that_no_data_could_bear_out(refusing: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="less than what one person can change on any data"):
        refusing.execute(f"SELECT COUNT(*) {PAIRS}", mechanism="ptr", propose=2, epsilon=1)


@pytest.mark.parametrize("fraction", ["-0.1", "1.5", "NULL", "'a'", "x", "[0.5, 2]", "[]"])
def test_quantiles_outside_0_and_1(fraction: str, refusing: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error):
        refusing.execute(f"SELECT QUANTILE_CONT(x, {fraction}) FROM visits", epsilon=1)


@pytest.mark.parametrize("mechanism", ["exponential", "smooth", "ptr"])
@pytest.mark.parametrize("values", [[], [5], [5] * 300])
def test_few_or_equal_values_have_an_answer_inside_the_range(values: list[int], mechanism: str) -> None:
    """Of nobody, of one person, of people who are all alike: something within the declared range, or a refusal."""
    connection = connect(database([(person, "a", value) for person, value in enumerate(values)]))
    options = {"propose": 1} if mechanism == "ptr" else {}
    ((answer,),) = connection.execute(
        "SELECT MEDIAN(x) FROM visits", mechanism=mechanism, epsilon=5, **options
    ).fetchall()
    assert answer is None if mechanism == "ptr" and len(values) < 300 else LOW <= answer <= HIGH
    if len(values) == 300 and mechanism == "exponential":
        assert answer == 5


def test_a_column_without_bounds(raw: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(dpsql.UnboundedColumn):
        connect(raw).execute("SELECT MEDIAN(free) FROM visits")


@pytest.mark.parametrize(
    ("sql", "mechanism"),
    [
        ("SELECT MEDIAN(x) FROM visits", "stable"),
        ("SELECT MEDIAN(x) FROM visits", "laplace"),
        ("SELECT MODE(place) FROM visits", "smooth"),
        ("SELECT AVG(x) FROM visits", "exponential"),
        ("SELECT SUM(x) FROM visits", "smooth"),
    ],
)
def test_a_mechanism_that_does_not_fit(sql: str, mechanism: str, raw: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(dpsql.Unsupported, match="does not fit"):
        connect(raw).execute(sql, mechanism=mechanism)


def test_sessions_without_delta(raw: duckdb.DuckDBPyConnection) -> None:
    """Smooth noise is Cauchy's there; what needs a delta says so."""
    connection = connect(raw, delta=0, budget=100)
    assert (
        LOW <= connection.execute("SELECT MEDIAN(x) FROM visits", mechanism="smooth", epsilon=5).fetchone()[0] <= HIGH
    )
    connection.execute(f"SELECT COUNT(*) {PAIRS}", mechanism="smooth", epsilon=5)
    assert connection.budget.spent.delta == 0
    for sql, options in (
        ("SELECT MEDIAN(x) FROM visits", {"mechanism": "ptr", "propose": 1}),
        ("SELECT MODE(place) FROM visits", {"mechanism": "stable"}),
        (f"SELECT a.place, COUNT(*) {PAIRS} GROUP BY a.place", {"mechanism": "smooth"}),
    ):
        with pytest.raises(dpsql.ProgrammingError, match="needs a delta"):
            connection.execute(sql, epsilon=1, **options)


@pytest.mark.parametrize("mechanism", ["exponential", "smooth", "ptr"])
@pytest.mark.parametrize("epsilon", [1e-18, 1e-2, 99, 1e5])
def test_any_epsilon_is_answered_or_refused_before_the_charge(
    mechanism: str, epsilon: float, raw: duckdb.DuckDBPyConnection
) -> None:
    connection = connect(raw)
    options = {"propose": 1} if mechanism == "ptr" else {}
    try:
        connection.execute("SELECT MEDIAN(x) FROM visits", mechanism=mechanism, epsilon=epsilon, **options)
    except dpsql.ProgrammingError:
        assert connection.budget.spent.epsilon == 0


@pytest.mark.parametrize("composition", ["auto", "gdp", "zcdp", "basic"])
def test_a_release_of_statistics_alone_stands_beside_one_of_measures(composition: str) -> None:
    session = connect(database([]), composition=composition)
    sql = "SELECT (SELECT MEDIAN(x) FROM people) AS middle, (SELECT COUNT(*) FROM people) AS people"
    cost = session.explain(sql, epsilon=1.0, mechanism="gaussian").cost
    assert cost.epsilon == pytest.approx(1.0)
    assert 0 < cost.delta <= 1e-6


@pytest.fixture
def keys_of_two_types() -> Any:
    """200 whole numbers, of which 129 are the same double."""
    database = duckdb.connect()
    database.execute("CREATE TABLE a AS SELECT i AS person, 2::BIGINT ** 60 + i % 200 AS key FROM range(1000) AS r(i)")
    database.execute("ALTER TABLE a ALTER key TYPE BIGINT")
    database.execute("CREATE TABLE b AS SELECT i AS person, (2 ** 60)::DOUBLE AS key FROM range(1000) AS r(i)")
    tables = {
        name: {"unit": "person", "columns": {"person": "integer", "key": kind}}
        for name, kind in (("a", "integer"), ("b", "double"))
    }
    schema = {"dataset": "visits", "contribution": {"max_rows_per_group": 1, "max_groups": 1}, "tables": tables}
    with dpsql.connect(database, schema=schema, budget=10, delta=1e-6) as conn:
        yield conn


def test_people_are_matched_by_keys_of_one_type(keys_of_two_types: dpsql.Connection) -> None:
    """Keys of two types are a condition like any other, of pairs that each with each make: no key is rarer than all."""
    (release,) = keys_of_two_types.explain(
        "SELECT COUNT(*) FROM a JOIN b ON a.key = b.key", mechanism="smooth"
    ).releases
    assert "count(*) AS _count FROM _left_rows WHERE true" in release.sql
    assert "count(*) AS _count FROM _right_rows WHERE true" in release.sql
    assert keys_of_two_types.explain("SELECT COUNT(*) FROM a JOIN a AS c ON a.key = c.key", mechanism="smooth")

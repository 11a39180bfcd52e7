"""Columns that people randomised themselves: what is estimated from them, at what price, and what is refused."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpsql
from dpsql.errors import DataError, Error, ProgrammingError, Unsupported
from dpsql.local import KaryResponse, LocalMechanism, OptimizedUnaryEncoding, Rappor, SubsetSelection
from dpsql.local.unary import BitReports

PEOPLE = 5_000
DRINKS = ["never", "some", "daily"]
SMOKER = KaryResponse(["no", "yes"], 1.0)
DRINK = KaryResponse(DRINKS, 1.5)
BITS: dict[str, BitReports] = {
    "rappor": Rappor(DRINKS, 2.0),
    "longitudinal": Rappor(DRINKS, 4.0, instantaneous=(0.25, 0.75)),
    "oue": OptimizedUnaryEncoding(DRINKS, 1.0),
    "subset": SubsetSelection(DRINKS, 0.5),
}


def collected(mechanism: LocalMechanism, **more: object) -> dict[str, Any]:
    values = list(mechanism.domain.values)
    return {"mechanism": mechanism.name, "epsilon": mechanism.epsilon, "values": values, **more}


COLUMNS: dict[str, Any] = {
    "id": "integer",
    "age": {"type": "integer", "bounds": [0, 120]},
    "region": {"type": "text", "values": ["north", "south"]},
    "town": "text",
    "smoker": {"type": "text", "collected": collected(SMOKER)},
    "drink": {"type": "text", "collected": collected(DRINK)},
    **{
        name: {
            "type": "text",
            "collected": collected(mechanism, **({"instantaneous": [0.25, 0.75]} if name == "longitudinal" else {})),
        }
        for name, mechanism in BITS.items()
    },
}
SCHEMA = {
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "people": {"unit": "id", "unique": True, "columns": COLUMNS},
        "bodies": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "height": {"type": "integer", "bounds": [0, 250]}},
        },
        "answers": {
            "unit": {"through": "person", "to": "people.id"},
            "columns": {"person": "integer", "cheated": {"type": "text", "collected": collected(SMOKER)}},
        },
        "orders": {"unit": "id", "columns": {"id": "integer", "amount": {"type": "double", "bounds": [0, 10]}}},
        "open": {
            "public": True,
            "columns": {name: COLUMNS[name] for name in ("region", "smoker", "drink", "oue")} | {"weight": "integer"},
        },
        "places": {"public": True, "columns": {"region": "text", "smoker": "text"}},
    },
}


def made_people() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The truth, and what was reported of it."""
    generator = np.random.default_rng(2)
    truth = pd.DataFrame(
        {
            "id": np.arange(PEOPLE),
            "age": generator.integers(18, 90, PEOPLE),
            "region": generator.choice(["north", "south"], PEOPLE),
            "town": generator.choice(["a", "b"], PEOPLE),
            "smoker": generator.choice(["no", "yes"], PEOPLE, p=[0.7, 0.3]),
            "drink": generator.choice(DRINKS, PEOPLE, p=[0.5, 0.3, 0.2]),
            "weight": 1,
        }
    )
    reports = truth.assign(
        smoker=SMOKER.perturb(truth.smoker),
        drink=DRINK.perturb(truth.drink),
        **{name: mechanism.as_integers(mechanism.perturb(truth.drink)) for name, mechanism in BITS.items()},
    )
    return truth, reports


TRUTH, REPORTS = made_people()


def database(people: pd.DataFrame = REPORTS) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE people AS SELECT * FROM people")
    connection.execute("ALTER TABLE people ADD PRIMARY KEY (id)")
    connection.execute("CREATE TABLE bodies AS SELECT id, 150 + age AS height FROM people")
    connection.execute("ALTER TABLE bodies ADD PRIMARY KEY (id)")
    connection.execute("CREATE TABLE answers AS SELECT id AS person, smoker AS cheated FROM people")
    connection.execute("CREATE TABLE orders AS SELECT id, 2.5 AS amount FROM people")
    connection.execute("CREATE TABLE open AS SELECT region, smoker, drink, oue, weight FROM people")
    connection.execute("CREATE TABLE places AS SELECT 'north' AS region, 'yes' AS smoker")
    return connection


@pytest.fixture(scope="module")
def conn() -> dpsql.Connection:
    return dpsql.connect(database(), schema=SCHEMA, budget=1e6, delta=1e-6, query_epsilon=1.0)


def is_true(frame: pd.DataFrame, **cells: str) -> int:
    return int(np.logical_and.reduce([frame[name] == value for name, value in cells.items()]).sum())


# -- what is estimated -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["smoker", "drink", *BITS])
def test_groups_are_estimated_as_the_mechanism_says(conn: dpsql.Connection, column: str) -> None:
    mechanism: LocalMechanism = {"smoker": SMOKER, "drink": DRINK, **BITS}[column]
    reports = REPORTS[column].to_numpy()
    plain = mechanism.from_integers(reports) if isinstance(mechanism, BitReports) else reports
    wanted = mechanism.estimate(plain)
    answer = conn.execute(f"SELECT {column}, COUNT(*) AS n FROM people GROUP BY {column}")
    found = answer.intervals().set_index(column).loc[list(mechanism.domain.values)]
    assert found.n.to_numpy() == pytest.approx(wanted.counts)
    assert (found.n_high - found.n).to_numpy() == pytest.approx(1.959964 * wanted.standard_errors)
    assert answer.receipt.epsilon == answer.receipt.delta == 0


def test_a_cross_tabulation_inverts_the_kronecker_channel(conn: dpsql.Connection) -> None:
    channels = [np.array(mechanism.channel, dtype=float) for mechanism in (SMOKER, DRINK)]
    joint = np.kron(*channels)
    cells = list(itertools.product(SMOKER.domain.values, DRINKS))
    reported = [is_true(REPORTS, smoker=str(smoker), drink=drink) for smoker, drink in cells]
    wanted = np.linalg.solve(joint.T, reported)
    found = conn.execute("SELECT smoker, drink, COUNT(*) FROM people GROUP BY smoker, drink").fetchall()
    assert {(smoker, drink): n for smoker, drink, n in found} == pytest.approx(dict(zip(cells, wanted, strict=True)))


@pytest.mark.parametrize(
    ("sql", "truth"),
    [
        ("SELECT COUNT(*) AS x FROM people WHERE smoker = 'yes'", is_true(TRUTH, smoker="yes")),
        ("SELECT COUNT(*) FILTER (WHERE drink <> 'never') AS x FROM people", PEOPLE - is_true(TRUTH, drink="never")),
        ("SELECT COUNT_IF(smoker = 'yes' AND drink = 'daily') AS x FROM people", None),
        ("SELECT COUNT(CASE WHEN smoker = 'yes' THEN 1 END) AS x FROM people", is_true(TRUTH, smoker="yes")),
        ("SELECT COUNT(smoker) AS x FROM people WHERE drink IN ('some', 'daily')", None),
        ("SELECT AVG(CASE WHEN smoker = 'yes' THEN 1 ELSE 0 END) AS x FROM people", (TRUTH.smoker == "yes").mean()),
        ("SELECT AVG(CAST(smoker = 'yes' AS INTEGER)) AS x FROM people WHERE drink = 'never'", None),
        ("SELECT SUM(CASE drink WHEN 'some' THEN 1 WHEN 'daily' THEN 7 ELSE 0 END) AS x FROM people", None),
        ("SELECT 100 * AVG(CASE WHEN smoker = 'yes' THEN 1 ELSE 0 END) AS x FROM people", None),
        (
            "SELECT COUNT(*) AS x FROM (SELECT smoker AS s, drink FROM people WHERE drink = 'some') WHERE s = 'yes'",
            None,
        ),
        ("WITH p AS (SELECT * FROM people) SELECT COUNT(*) AS x FROM p WHERE smoker = 'yes' AND oue = 'some'", None),
        ("SELECT COUNT(*) AS x FROM open WHERE smoker = 'yes' AND drink = 'daily'", None),
        ("SELECT COUNT(*) AS x FROM (SELECT drink FROM people WHERE smoker = 'yes') WHERE drink = 'some'", None),
        ("SELECT COUNT(*) AS x FROM (SELECT 1 AS one FROM people WHERE smoker = 'yes')", None),
        (
            "SELECT COUNT(*) AS x FROM (SELECT d FROM (SELECT drink AS d, smoker AS s FROM people) WHERE s = 'yes')",
            None,
        ),
    ],
)
def test_what_is_asked_of_answers(conn: dpsql.Connection, sql: str, truth: float | None) -> None:
    """Free, and within five standard errors of what the same SQL says of the truth."""
    answer = conn.execute(sql)
    assert answer.receipt.epsilon == 0
    low, high = answer.intervals().loc[0, ["x_low", "x_high"]]
    plain = duckdb.connect()
    for name in ("people", "open"):
        plain.register(name, TRUTH.assign(oue=TRUTH.drink))
    (wanted,) = plain.execute(sql).fetchone() or (None,)
    assert truth is None or truth == pytest.approx(wanted)
    error = (high - low) / (2 * 1.959964)
    assert error > 0
    assert abs((low + high) / 2 - wanted) < 5 * error


def test_what_stands_above_is_ordinary_sql(conn: dpsql.Connection) -> None:
    rows = conn.execute(
        "SELECT drink, COUNT(*) AS n FROM people GROUP BY drink HAVING COUNT(*) > 0 ORDER BY n DESC LIMIT 2"
    ).fetchall()
    assert [drink for drink, _ in rows] == ["never", "some"]
    ((share,),) = conn.execute(
        "SELECT MAX(n) / SUM(n) FROM (SELECT drink, COUNT(*) AS n FROM people GROUP BY drink)"
    ).fetchall()
    assert share == pytest.approx(0.5, abs=0.1)


def test_all_rows_are_certain(conn: dpsql.Connection) -> None:
    """How many reports there are is no estimate."""
    frame = conn.execute("SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE smoker = 'yes') AS y FROM people").intervals()
    assert frame.loc[0, ["n", "n_low", "n_high"]].tolist() == [PEOPLE] * 3
    assert frame.y_low[0] < frame.y_high[0]


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 2.9, 123.456])
def test_an_average_of_the_same_value_is_certain_below_noise_too(conn: dpsql.Connection, value: float) -> None:
    cur = conn.execute(f"SELECT AVG(CASE WHEN smoker = 'yes' THEN {value} END) AS a FROM people WHERE age > 40")
    ((average, low, high),) = cur.intervals().to_numpy()
    assert (low, average, high) == pytest.approx((value, value, value))


def test_no_answer_meets_the_condition(conn: dpsql.Connection) -> None:
    assert conn.execute("SELECT COUNT(*) FROM people WHERE smoker = 'perhaps'").fetchall() == [(0,)]
    assert conn.execute("SELECT drink, COUNT(*) FROM people WHERE drink = 'x' GROUP BY drink").fetchall() == []
    ((average,),) = conn.execute("SELECT AVG(CASE WHEN smoker = 'x' THEN 1 END) FROM people").fetchall()
    assert average is None


# -- what it costs -----------------------------------------------------------------------------------------------------

FREE, CHARGED = "free", "charged"
PRICES = [
    ("SELECT smoker, COUNT(*) FROM people GROUP BY smoker", FREE),
    ("SELECT COUNT(*) FROM people WHERE smoker = 'yes'", FREE),
    ("SELECT COUNT(*) FROM people", CHARGED),
    ("SELECT smoker, COUNT(*) FROM people WHERE age > 40 GROUP BY smoker", CHARGED),
    ("SELECT smoker, COUNT(*) FROM (SELECT * FROM people WHERE age > 40) GROUP BY smoker", CHARGED),
    ("SELECT region, smoker, COUNT(*) FROM people GROUP BY region, smoker", CHARGED),
    ("SELECT smoker, COUNT(age) FROM people GROUP BY smoker", CHARGED),
    ("SELECT smoker, COUNT(*) FROM people WHERE id > 100 GROUP BY smoker", CHARGED),
    ("SELECT smoker, COUNT(*) FROM people WHERE id IN (SELECT id FROM orders) GROUP BY smoker", CHARGED),
    ("SELECT smoker, COUNT(*) FROM people JOIN bodies USING (id) GROUP BY smoker", CHARGED),
    ("SELECT smoker, COUNT(*) FROM people JOIN bodies USING (id) WHERE height > 200 GROUP BY smoker", CHARGED),
    ("SELECT cheated, COUNT(*) FROM answers GROUP BY cheated", CHARGED),
    ("SELECT region, COUNT(*) FROM (SELECT region FROM people WHERE smoker = 'yes') GROUP BY region", CHARGED),
    ("SELECT region, smoker, COUNT(*) FROM open GROUP BY region, smoker", FREE),
    ("SELECT region, COUNT(*) FROM open WHERE smoker = 'yes' GROUP BY region", FREE),
    ("SELECT COUNT(*) FROM open WHERE weight > 0 AND smoker = 'yes'", FREE),
    ("SELECT region, COUNT(*), SUM(weight) FROM open GROUP BY region", FREE),
    ("SELECT COUNT(*) FROM (SELECT id, smoker FROM people UNION ALL SELECT id, smoker FROM people)", CHARGED),
]


@pytest.mark.parametrize(("sql", "price"), PRICES)
def test_prices(conn: dpsql.Connection, sql: str, price: str) -> None:
    before = conn.budget.spent.epsilon
    explained = conn.explain(sql, fresh=True)
    answer = conn.execute(sql, fresh=True)
    assert (answer.receipt.epsilon == 0) == (conn.budget.spent.epsilon == before) == (price == FREE)
    assert (explained.cost.epsilon == 0) == (price == FREE)


FROMS = [
    "people",
    "(SELECT * FROM people)",
    "(SELECT id, smoker AS town, town AS smoker, drink, age, region FROM people)",
    "(SELECT * FROM people WHERE {})",
    "(SELECT *, age > 50 AS _r_smoker FROM people)",
    "people JOIN bodies USING (id)",
    "people SEMI JOIN orders ON people.id = orders.id",
    "people, places",
    "answers JOIN people ON answers.person = people.id",
    "open",
]
CONDITIONS = [
    *("smoker = 'yes'", "drink <> 'daily' OR smoker = 'no'", "town = 'a'", "age > 50", "id > 9", "region = 'north'"),
    *("smoker = town", "id IN (SELECT id FROM orders)", "EXISTS (SELECT 1 FROM orders WHERE orders.id = people.id)"),
    *("true", "2 < (SELECT COUNT(*) FROM orders)", "age > (SELECT AVG(age) FROM people)", "smoker IS NOT NULL"),
]
VALUES = [
    *("COUNT(*)", "COUNT(smoker)", "COUNT(age)", "COUNT(id)", "AVG(CASE drink WHEN 'some' THEN 2 END)", "SUM(1.5)"),
    *("COUNT(*) FILTER (WHERE smoker = 'yes')", "COUNT(*) FILTER (WHERE age > 50)", "COUNT_IF(town = 'b')"),
]
KEYS = ["", "", "smoker", "drink", "region", "town", "smoker, region", "age > 50", "id"]


def in_order(rows: list[tuple[Any, ...]]) -> list[str]:
    """Several threads may add up reports, and hand over groups, in another order."""
    return sorted(str([f"{value:.9g}" if isinstance(value, float) else value for value in row]) for row in rows)


def drawn_question(draw: random.Random) -> str:
    values = ", ".join(draw.sample(VALUES, draw.randint(1, 2)))
    source = draw.choice(FROMS).format(draw.choice(CONDITIONS))
    where = " AND ".join(f"({condition})" for condition in draw.sample(CONDITIONS, draw.randint(0, 2)))
    keys = draw.choice(KEYS)
    return f"SELECT {values} FROM {source}" + f" WHERE {where}" * bool(where) + f" GROUP BY {keys}" * bool(keys)


def test_what_is_free_follows_from_reports_alone() -> None:
    """The same people and reports, and all else of them otherwise: a free answer is the same."""
    draw, generator, free = random.Random(3), np.random.default_rng(3), 0
    private = ["age", "region", "town"]
    other = REPORTS.assign(**{name: generator.permutation(REPORTS[name]) for name in private})
    world = database(other)
    world.execute("DELETE FROM orders WHERE id % 3 = 0; DELETE FROM bodies WHERE id % 2 = 0; DELETE FROM answers")
    world.execute("UPDATE open SET region = REPORTS.region FROM REPORTS WHERE open.rowid = REPORTS.id")
    one, two = (dpsql.connect(data, schema=SCHEMA, budget=1, delta=1e-6) for data in (database(), world))
    for sql in [drawn_question(draw) for _ in range(80)]:
        try:
            is_free = one.explain(sql).cost.epsilon == 0
        except Error:
            continue
        if is_free:
            free += 1
            assert in_order(one.execute(sql).fetchall()) == in_order(two.execute(sql).fetchall()), sql
    assert free >= 4


def test_explain_says_which_case_it_is(conn: dpsql.Connection) -> None:
    free = conn.explain("SELECT smoker, COUNT(*) AS n FROM people GROUP BY smoker")
    assert free.cost.epsilon == 0
    assert '"smoker" (kary, epsilon 1 per report): counted exactly, then de-biased; free' in str(free)
    assert [part.is_free for part in free.reports] == [True]
    sql = "SELECT smoker, COUNT(*) AS n FROM people WHERE age > 40 GROUP BY smoker"
    mixed = conn.explain(sql, epsilon=0.5, fresh=True)
    assert mixed.cost.epsilon == 0.5
    assert "the query also reads private columns, so report counts get noise" in str(mixed)
    assert "intervals() cover both errors" in mixed._repr_html_()
    assert [(column.name, column.half_width) for column in mixed.columns] == [("smoker", None), ("n", None)]


def test_reports_beside_private_columns_get_noise_before_they_are_estimated(conn: dpsql.Connection) -> None:
    """The release is of reports; an estimate of the same noisy counts is the same, and asking again is free."""
    sql = "SELECT smoker, COUNT(*) AS n FROM people WHERE age > 40 GROUP BY smoker"
    (release,) = conn.explain(sql, epsilon=0.01, mechanism="laplace").releases
    exact = database().execute(release.sql).fetchall()
    older = REPORTS[REPORTS.age > 40]
    assert dict(exact) == {value: is_true(older, smoker=value) for value in ("no", "yes")}
    answer = conn.execute(sql, epsilon=0.01, mechanism="laplace")
    again = conn.execute(sql, epsilon=0.01, mechanism="laplace")
    assert again.receipt.recalled
    assert answer.fetchall() == again.fetchall()
    # The noise of epsilon 0.01 on both counts, times the factors of the estimate, beside the coins.
    p, q, std = float(SMOKER.truth), float(SMOKER.other), math.sqrt(2) * 100
    noise = std**2 * (p**2 + q**2) / (p - q) ** 2
    coins = len(older) * p * q / (p - q) ** 2
    frame = answer.intervals(0.95)
    found = (frame.n_high - frame.n_low)[0] / 2 / math.sqrt(noise + coins)
    assert found == pytest.approx(2.05, abs=0.1)


# -- error bars --------------------------------------------------------------------------------------------------------

SURVEYS, ANSWERED = 4_000, 1_000


@pytest.fixture(scope="module")
def surveys() -> tuple[dpsql.Connection, pd.DataFrame]:
    """The same people in thousands of surveys, each a group of its own."""
    smoker, drink = np.array([700, 300]), np.array([500, 300, 200])
    truth = pd.DataFrame(
        {
            "smoker": np.repeat(["no", "yes"], smoker),
            "drink": np.random.default_rng(5).permutation(np.repeat(DRINKS, drink)),
        }
    )
    everybody = pd.concat([truth] * SURVEYS, ignore_index=True)
    reports = everybody.assign(
        id=np.arange(len(everybody)),
        survey=np.repeat(np.arange(SURVEYS), ANSWERED),
        smoker=SMOKER.perturb(everybody.smoker),
        drink=DRINK.perturb(everybody.drink),
        oue=BITS["oue"].as_integers(BITS["oue"].perturb(everybody.drink)),
    )
    connection = duckdb.connect()
    connection.register("reports", reports)
    connection.execute("CREATE TABLE open AS SELECT * FROM reports")
    connection.execute("CREATE TABLE people AS SELECT * FROM reports")
    connection.execute("ALTER TABLE people ADD PRIMARY KEY (id)")
    columns = {name: COLUMNS[name] for name in ("id", "smoker", "drink", "oue")}
    columns["survey"] = {"type": "integer", "bounds": [0, SURVEYS - 1]}
    tables = {"open": {"public": True, "columns": columns}, "people": {"unit": "id", "columns": columns}}
    return dpsql.connect(connection, schema={"tables": tables}, budget=1e6, delta=1e-6), truth


FORMS = {
    "GROUP BY": "SELECT survey, smoker, COUNT(*) AS x FROM {} GROUP BY survey, smoker",
    "GROUP BY of bits": "SELECT survey, oue AS drink, COUNT(*) AS x FROM {} GROUP BY survey, oue",
    "FILTER": "SELECT survey, COUNT(*) FILTER (WHERE drink = 'daily') AS x FROM {} GROUP BY survey",
    "WHERE": "SELECT survey, COUNT(*) AS x FROM {} WHERE drink <> 'never' GROUP BY survey",
    "AVG": "SELECT survey, AVG(CASE WHEN smoker = 'yes' THEN 1.0 ELSE 0.0 END) AS x FROM {} GROUP BY survey",
    "cross": "SELECT survey, smoker, drink, COUNT(*) AS x FROM {} GROUP BY survey, smoker, drink",
}


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("noise", [None, "laplace", "gaussian"])
def test_intervals_hold_the_truth_as_often_as_they_say(
    surveys: tuple[dpsql.Connection, pd.DataFrame], form: str, noise: str | None
) -> None:
    conn, truth = surveys
    sql = FORMS[form]
    if noise is None:
        answer = conn.execute(sql.format("open"))
        assert answer.receipt.epsilon == 0
    else:
        answer = conn.execute(sql.format("people"), epsilon=0.05, mechanism=noise, fresh=True)
        assert answer.receipt.epsilon == 0.05
    frame = answer.intervals(0.95)
    plain = duckdb.connect()
    plain.register("one", truth.assign(oue=truth.drink, survey=0))
    wanted = plain.sql(sql.format("one")).df().drop(columns="survey").rename(columns={"x": "truth"})
    keys = [name for name in wanted.columns if name != "truth"]
    joined = frame.merge(wanted, on=keys) if keys else frame.assign(truth=wanted.truth[0])
    assert len(joined) == SURVEYS * len(wanted)
    covered = ((joined.x_low <= joined.truth) & (joined.truth <= joined.x_high)).mean()
    bias = (joined.x - joined.truth).groupby(joined.truth).agg(["mean", "sem"])
    print(f"\n{form}, {noise or 'free'}: {covered:.4f} of {len(joined)} intervals")
    assert covered == pytest.approx(0.95, abs=0.01)
    if form != "AVG":
        assert (bias["mean"].abs() < 4.5 * bias["sem"]).all()


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED = [
    ("SELECT smoker FROM people", "rows of people"),
    ("SELECT smoker FROM open", "rows of people"),
    ("SELECT * FROM open", "rows of people"),
    ("SELECT smoker, drink FROM open WHERE region = 'north' LIMIT 5", "rows of people"),
    ("SELECT DISTINCT smoker FROM people", "which answers occur"),
    ("SELECT DISTINCT smoker FROM open", "rows of people"),
    ("SELECT smoker, AVG(age) FROM people GROUP BY smoker", "AVG cannot be estimated"),
    ("SELECT smoker, SUM(weight) FROM open GROUP BY smoker", "SUM cannot be estimated"),
    ("SELECT MODE(smoker) FROM people", "MODE cannot be estimated"),
    ("SELECT MIN(smoker) FROM people", "cannot be"),
    ("SELECT MEDIAN(age) FROM people WHERE smoker = 'yes'", "MEDIAN cannot be estimated"),
    ("SELECT COUNT(DISTINCT id) FROM people WHERE smoker = 'yes'", "COUNT cannot be estimated"),
    ("SELECT COUNT(DISTINCT smoker) FROM people", "COUNT cannot be estimated"),
    ("SELECT COUNT(*) FROM people WHERE smoker = 'yes' OR age > 40", "row by row"),
    ("SELECT COUNT(*) FROM people WHERE smoker = region", "row by row"),
    ("SELECT COUNT(*) FROM people WHERE smoker || town = 'yesa'", "row by row"),
    ("SELECT COUNT(*) FILTER (WHERE smoker = 'yes' AND age > 40) FROM people", "row by row"),
    ("SELECT smoker || region, COUNT(*) FROM people GROUP BY 1", "row by row"),
    ("SELECT SUM(LENGTH(smoker) * age) FROM people", "row by row"),
    ("SELECT AVG(smoker) FROM people", ""),
    ("SELECT COUNT(*) FROM people p JOIN places o ON p.smoker = o.smoker", "a single row"),
    ("SELECT COUNT(*) FROM people p, places o WHERE p.smoker = o.smoker", ""),
    ("SELECT p.smoker, COUNT(*) FROM people p JOIN places o ON p.region = o.region GROUP BY 1", "a single row"),
    ("SELECT smoker, COUNT(*) FROM people JOIN orders USING (id) GROUP BY smoker", "a single row"),
    ("SELECT COUNT(*) FROM open o JOIN people p ON o.region = p.region WHERE o.smoker = 'yes'", ""),
    ("SELECT COUNT(*) FROM open WHERE smoker = 'yes' AND region IN (SELECT region FROM people)", "different people"),
    ("SELECT COUNT(*) FROM open WHERE smoker = 'yes' AND EXISTS (SELECT 1 FROM people WHERE id = 7)", "same unit"),
    ("SELECT COUNT(*) FROM open WHERE smoker = 'yes' AND weight < (SELECT COUNT(*) FROM people)", "another answer"),
    ("SELECT COUNT(*) FROM people JOIN places USING (smoker)", ""),
    ("SELECT COUNT(*) FROM people NATURAL JOIN places", ""),
    ("SELECT COUNT(*) FROM people WHERE smoker IN (SELECT smoker FROM places)", "a single row"),
    ("SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM places o WHERE o.smoker = people.smoker)", "row"),
    ("SELECT COUNT(*) FROM orders WHERE id IN (SELECT id FROM people WHERE smoker = 'yes')", "a single row"),
    ("SELECT COUNT(*) FROM (SELECT id, MAX(smoker) AS s FROM people GROUP BY id) WHERE s = 'yes'", "a single row"),
    ("SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM people WHERE smoker = 'yes' GROUP BY id)", "a single row"),
    ("SELECT s, COUNT(*) FROM (SELECT smoker = 'yes' AS s FROM people) GROUP BY s", "a single row"),
    ("SELECT COUNT(*) FROM (SELECT DISTINCT id, smoker FROM people)", "a single row"),
    ("SELECT smoker, COUNT(*) FROM (SELECT smoker FROM people UNION ALL SELECT smoker FROM people) GROUP BY 1", ""),
    ("SELECT COUNT(*) FROM (SELECT id, LAG(smoker) OVER (PARTITION BY id) AS s FROM people) WHERE s = 'yes'", ""),
    ("SELECT COUNT(*) FROM people a LEFT JOIN people b ON a.id = b.id WHERE b.smoker = 'yes'", "a single row"),
    ("SELECT smoker, COUNT(*) FROM people GROUP BY ROLLUP (smoker)", "totals"),
    ("SELECT town, COUNT(*) FROM people WHERE smoker = 'yes' GROUP BY town", "must be public"),
    ("SELECT COUNT(*) AS n, DP_INTERVAL_LOW(n) FROM people WHERE smoker = 'yes'", "intervals"),
    ("SELECT COUNT(*) FROM orders WHERE amount > (SELECT COUNT(*) FROM people WHERE smoker = 'yes')", "another"),
    ("SELECT COUNT(*) FROM people WHERE smoker = 'yes' AND age > (SELECT AVG(age) FROM people)", "another"),
    ("SELECT COUNT(*) FROM open JOIN (VALUES ('north')) AS v(r) ON region = r WHERE smoker = 'yes'", "another"),
    ("SELECT smoker, COUNT(*) FROM people WHERE oue = 'some' AND rappor = 'some' AND longitudinal = 'some' "
     "AND subset = 'some' AND age > 4 GROUP BY smoker", "this many bits"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "problem"), REFUSED)
def test_what_is_not_understood_is_refused_and_costs_nothing(conn: dpsql.Connection, sql: str, problem: str) -> None:
    before = conn.budget.spent
    with pytest.raises(Error, match=problem or None) as raised:
        conn.execute(sql)
    assert isinstance(raised.value, Unsupported | ProgrammingError)
    assert conn.budget.spent == before


def test_mechanisms_that_leave_counts_out_are_refused(conn: dpsql.Connection) -> None:
    sql = "SELECT smoker, COUNT(*) FROM people WHERE age > 40 GROUP BY smoker"
    with pytest.raises(Unsupported, match="all of them are shown"):
        conn.execute(sql, mechanism="ptr", propose=1)
    with pytest.raises(Unsupported, match="all of them are shown"):
        conn.execute(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(min_privacy_units_per_group = 5) {sql[7:]}")
    with pytest.raises(Unsupported, match="not known beforehand"):
        conn.execute(sql, accuracy=50)


@pytest.mark.parametrize(
    ("column", "wrong"), [("smoker", "maybe"), ("smoker", None), ("oue", 8), ("oue", -1), ("subset", 7)]
)
def test_reports_outside_the_declared_values_are_counted(column: str, wrong: object) -> None:
    people = REPORTS.astype({column: object})
    people.loc[:11, column] = wrong  # type: ignore[call-overload]
    if column != "smoker":
        people[column] = people[column].astype("int64")
    conn = dpsql.connect(database(people), schema=SCHEMA, budget=1.0, delta=1e-6)
    with pytest.raises(DataError, match=f'^"{column}": 12 of 5,000 reports are outside') as raised:
        conn.execute(f"SELECT {column}, COUNT(*) FROM people GROUP BY {column}")
    assert "maybe" not in str(raised.value)
    assert conn.budget.spent.epsilon == 0
    # Beside private columns the number of such reports is nobody's to know: they are left out.
    frame = conn.execute(f"SELECT {column}, COUNT(*) AS n FROM people WHERE age > 0 GROUP BY {column}").df()
    assert frame.n.sum() == pytest.approx(PEOPLE - 12, abs=2_000)


def test_a_table_that_is_not_as_declared() -> None:
    people = REPORTS.assign(oue="text")
    with pytest.raises(dpsql.SchemaError, match="declared as integer, but the database has VARCHAR"):
        dpsql.connect(database(people), schema=SCHEMA, budget=1.0)


def test_a_frame_of_reports(conn: dpsql.Connection) -> None:
    """The same through frames, where rows are only read once a question is paid for, or free."""
    schema = {"tables": {"people": {"unit": "id", "columns": COLUMNS}}}
    direct = dpsql.connect({"people": REPORTS}, schema=schema, budget=1.0)
    sql = "SELECT drink, COUNT(*) AS n FROM people GROUP BY drink ORDER BY drink"
    assert direct.execute(sql).fetchall() == conn.execute(sql).fetchall()


def test_the_audit_makes_up_reports_too() -> None:
    """Beside private columns the counts of reports move by no more than is claimed when one person goes."""
    from dpsql.synthetic import made_up_worlds
    from dpsql.verification.audit import Auditor, default_questions

    schema = dpsql.Schema.model_validate({"tables": {"people": SCHEMA["tables"]["people"]}})
    assert not any("smoker" in question or "oue" in question for question in default_questions(schema))
    questions = [
        "SELECT smoker, COUNT(*) FROM people WHERE age > 40 GROUP BY smoker",
        "SELECT region, COUNT(*) FROM people WHERE oue = 'some' GROUP BY region",
    ]
    found = Auditor(schema, made_up_worlds(schema, 0), 1.0, 0.01, 1000).audit(questions, lambda: None)
    assert [part.refused for part in found] == [None, None]
    assert not any(part.broken for part in found)


def test_a_plan_has_something_to_pay_for(conn: dpsql.Connection) -> None:
    free, paid = "SELECT smoker, COUNT(*) FROM people GROUP BY smoker", "SELECT COUNT(*) FROM people WHERE age > 40"
    with pytest.raises(ProgrammingError, match="nothing in the plan costs anything"):
        conn.plan([free], epsilon=1.0)
    assert [answer.receipt.epsilon > 0 for answer in conn.plan([free, paid], epsilon=1.0).execute()] == [False, True]

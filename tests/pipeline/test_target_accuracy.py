"""accuracy=: the promised half-width is kept, at the least cost, or the question is refused and costs nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.pipeline.add_noise import noised
from dpsql.pipeline.calibrate_noise import Calibrated
from dpsql.pipeline.stages import compile_question

RUNS = 2000
COUNT = "SELECT COUNT(*) AS n FROM orders"
BY_REGION = "SELECT region, COUNT(*) AS n FROM orders GROUP BY region"
SUMS = "SELECT region, SUM(amount) AS total, SUM(amount) - 10 * COUNT(*) AS above FROM orders GROUP BY region"
UNKNOWN_KEYS = "SELECT note, COUNT(*) AS n FROM orders GROUP BY note"
PROMISED = [(COUNT, 50), (BY_REGION, 7.5), (SUMS, 20_000)]


def spent(connection: dpsql.Connection) -> float:
    return connection.budget.spent.epsilon


def enough(runs: int) -> float:
    """A share of 95 % is seen as less than this in one of thirty thousand tests."""
    return 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)


@pytest.fixture(scope="module")
def raw(small_shop: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    with small_shop() as connection:
        yield connection


@pytest.fixture(scope="module", params=["auto", "zcdp", "basic", "pure"])
def rich(request: pytest.FixtureRequest, raw: Any, small_shop_schema: Any) -> Iterator[dpsql.Connection]:
    """A session of each kind that affords much."""
    pure = request.param == "pure"
    options = {"delta": 0} if pure else {"delta": 1e-6, "composition": request.param}
    with dpsql.connect(raw, schema=small_shop_schema, budget=1000, **options) as connection:
        yield connection


def compiled(connection: dpsql.Connection, sql: str, **options: Any) -> Calibrated:
    return compile_question(connection.session.request(sql, None, **options), connection.session.environment.public())


def within(calibrated: Calibrated, accuracy: float) -> list[float]:
    """For each noisy column, how often its error is no more than that."""
    shares = []
    for output in calibrated.outputs:
        if output.estimate is not None:
            release = calibrated.releases[output.release]
            measures = {part.bounded.column: part for part in release.measures}
            noise = noised(dict.fromkeys(measures, np.zeros(RUNS)), measures)
            errors = sum(float(weight) * noise[name] for name, weight in output.estimate.weights)
            shares.append(np.mean(np.abs(errors) <= accuracy))
    return shares


# -- the promise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sql", "accuracy"), PROMISED)
def test_the_promise_is_kept_in_every_column(sql: str, accuracy: float, rich: dpsql.Connection) -> None:
    shares = within(compiled(rich, sql, accuracy=accuracy), accuracy)
    assert shares
    assert min(shares) >= enough(RUNS)


def test_the_promise_is_kept_where_groups_are_not_public(shop: dpsql.Connection) -> None:
    (share,) = within(compiled(shop, UNKNOWN_KEYS, accuracy=300), 300)
    assert share >= enough(RUNS)


@pytest.mark.parametrize(("sql", "accuracy"), [(COUNT, 50), (COUNT, 0.5), (BY_REGION, 7.5)])
def test_a_little_less_would_not_do(sql: str, accuracy: float, shop: dpsql.Connection) -> None:
    explained = shop.explain(sql, accuracy=accuracy)
    assert max(column.half_width or 0 for column in explained.columns) <= accuracy
    less = shop.explain(sql, epsilon=explained.cost.epsilon * 0.989, mechanism=explained.mechanism)
    assert max(column.half_width or 0 for column in less.columns) > accuracy


def test_the_cheaper_noise_is_taken(shop: dpsql.Connection) -> None:
    """That of which the session affords more; each kind has its own least epsilon."""
    taken = set()
    for sql, accuracy in ((COUNT, 50), (COUNT, 1)):
        ways = [compiled(shop, sql, accuracy=accuracy, mechanism=kind) for kind in ("laplace", "gaussian")]
        found = compiled(shop, sql, accuracy=accuracy)
        assert shop.budget.queries_like(found.event) == max(shop.budget.queries_like(way.event) for way in ways)
        taken.add(found.mechanism)
    assert taken == {"laplace", "gaussian"}


def runs_within(connection: dpsql.Connection, raw: Any, sql: str, accuracy: float, runs: int) -> float:
    """The share of cells within the promise over whole questions, against the SQL that explain shows."""
    explained = connection.explain(sql, accuracy=accuracy)
    (release,) = explained.releases
    (measure,) = release.measures
    truth = [row[-1] * measure.quantum for row in sorted(raw.sql(release.sql).fetchall())]
    seen = [connection.execute(sql, accuracy=accuracy, fresh=True).fetchall() for _ in range(runs)]
    errors = [abs(row[-1] - exact) for rows in seen for row, exact in zip(sorted(rows), truth, strict=True)]
    return sum(error <= accuracy for error in errors) / len(errors)


def test_whole_questions_keep_the_promise(raw: Any, small_shop_schema: Any) -> None:
    with dpsql.connect(raw, schema=small_shop_schema, budget=1000, delta=1e-6) as connection:
        assert runs_within(connection, raw, BY_REGION, 50, 60) >= enough(4 * 60)


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("sql", "accuracy"),
    [(BY_REGION, 40), ("SELECT region, SUM(amount) AS total FROM orders GROUP BY region", 15_000)],
)
def test_two_thousand_questions_keep_the_promise(
    sql: str, accuracy: float, mechanism: str, raw: Any, small_shop_schema: Any
) -> None:
    with dpsql.connect(raw, schema=small_shop_schema, budget=100_000, delta=1e-6) as connection:
        asked = sql.replace("SELECT", f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = '{mechanism}')", 1)
        assert runs_within(connection, raw, asked, accuracy, RUNS) >= enough(4 * RUNS)


# -- the price ---------------------------------------------------------------------------------------------------------


def test_explain_says_the_price_for_free(shop: dpsql.Connection) -> None:
    explained = shop.explain(BY_REGION, accuracy=50)
    assert "the least cost for ± 50 in every row" in str(explained)
    assert spent(shop) == 0
    receipt = shop.execute(BY_REGION, accuracy=50).receipt
    assert receipt.epsilon == explained.cost.epsilon
    assert shop.execute(BY_REGION, accuracy=50).receipt.recalled


def test_what_does_not_fit_costs_nothing(shop: dpsql.Connection) -> None:
    explained = shop.explain(BY_REGION, accuracy=0.2)
    with pytest.raises(dpsql.BudgetExhausted, match=r"the least for ± 0\.2 at 95 %; use a wider") as caught:
        shop.execute(BY_REGION, accuracy=0.2)
    assert caught.value.requested == explained.cost.epsilon > caught.value.remaining
    assert spent(shop) == 0


def test_an_accuracy_that_next_to_nothing_buys(shop: dpsql.Connection) -> None:
    assert shop.explain(COUNT, accuracy=10**15).cost.epsilon == 1e-6
    with pytest.raises(dpsql.ProgrammingError, match="more than 1,000,000"):
        shop.explain("SELECT SUM(amount) FROM orders", accuracy=1e-9)


# -- a part of a total -------------------------------------------------------------------------------------------------


def test_a_percentage_is_of_the_first_answer(shop: dpsql.Connection) -> None:
    first = sum(n for _, n in shop.execute(BY_REGION, epsilon=1).fetchall())
    explained = shop.explain(BY_REGION, accuracy="5%")
    assert explained.cost == shop.explain(BY_REGION, accuracy=0.05 * first).cost
    assert explained.columns[1].half_width <= 0.05 * first
    shop.execute(BY_REGION, accuracy=" 5 %")
    again = shop.execute(f"{BY_REGION} ORDER BY n", accuracy="5%")
    assert again.receipt.recalled


def test_a_percentage_of_each_column(shop: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders"
    ((n, total),) = shop.execute(sql, epsilon=1).fetchall()
    widths = {column.name: column.half_width for column in shop.explain(sql, accuracy="10%").columns}
    assert widths["n"] <= n / 10
    assert widths["total"] <= total / 10


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_columns_share_the_epsilon_by_what_they_need(mechanism: str, shop: dpsql.Connection) -> None:
    """A count that is as exact as that for next to nothing leaves the sum what it would have alone."""
    total = "SUM(amount) AS total"
    alone, beside = (
        shop.explain(f"SELECT {columns} FROM orders", accuracy=30_000, mechanism=mechanism).share
        for columns in (total, f"{total}, COUNT(DISTINCT customer_id) AS n")
    )
    assert beside <= 1.01 * alone


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "knorm"])
def test_no_weights_meet_the_accuracy_for_less(mechanism: str, shop: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders"
    shop.execute(sql, epsilon=1)
    least = shop.explain(sql, accuracy="5%", mechanism=mechanism).share
    others = [
        shop.explain(sql, accuracy="5%", mechanism=mechanism, weights={"n": 1, "total": weight}).share
        for weight in (0.8, 1, 1.2)
    ]
    assert least <= 1.02 * min(others)


@pytest.mark.parametrize("options", [{}, {"fresh": True}])
def test_a_percentage_of_nothing_known(options: dict[str, Any], shop: dpsql.Connection) -> None:
    """What is drawn anew may be about other rows, so an adaptive subquery says nothing about it."""
    if options:
        shop.execute(COUNT, epsilon=1)
    with pytest.raises(dpsql.ProgrammingError, match='needs a known total of "n"') as caught:
        shop.execute(COUNT, accuracy="5%", **options)
    assert "accuracy=50" in str(caught.value.hint)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "problem", "hint"),
    [
        (
            "SELECT COUNT(*) AS n, AVG(amount) AS mean FROM orders",
            '"mean" depends on the answer',
            "SUM and COUNT",
        ),
        (
            "SELECT SUM(amount) / COUNT(*) AS mean FROM orders",
            '"mean" depends on the answer',
            "SUM and COUNT",
        ),
        ("SELECT VARIANCE(amount) AS spread FROM orders", '"spread" is not known', "for COUNT and SUM"),
        ("SELECT MEDIAN(amount) AS half FROM orders", '"half" is not known', "for COUNT and SUM"),
        (
            "SELECT region, COUNT(*) AS n FROM orders GROUP BY ROLLUP (region)",
            '"n" is not known',
            "epsilon=",
        ),
        (
            "SELECT COUNT(*) + (SELECT COUNT(*) FROM customers) AS n FROM orders",
            '"n" is not known',
            "epsilon=",
        ),
        ("SELECT region FROM orders GROUP BY region", "no column of the answer is noisy", "epsilon="),
        (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) COUNT(*) FROM orders",
            "accuracy= already says how",
            "one place",
        ),
    ],
)
def test_what_cannot_be_promised(sql: str, problem: str, hint: str, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.DatabaseError) as caught:
        shop.execute(sql, accuracy=50)
    assert problem in caught.value.problem
    assert hint in str(caught.value.hint)
    assert spent(shop) == 0


@pytest.mark.parametrize("accuracy", [0, -1, "0%", "-5%", "many", "%", "5 %%", True, math.nan, math.inf, [50], "1e999"])
def test_what_is_no_accuracy(accuracy: object, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        shop.execute(COUNT, accuracy=accuracy)
    assert "accuracy" in caught.value.problem
    assert caught.value.hint == 'write accuracy=50, or accuracy="5%"'


def test_either_a_price_or_an_accuracy(shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="give one"):
        shop.explain(COUNT, accuracy=50, epsilon=0.1)

"""conn.plan: one budget for queries decided in advance, shown for free, charged at once or not at all."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.accounting.events import Composed
from dpsql.accounting.filters import filter_named
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.batch import Batch, plan_batch, weigh
from dpsql.pipeline.add_noise import noised

COUNT = "SELECT COUNT(*) AS n FROM orders"
BY_REGION = "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region"
BY_NOTE = "SELECT note, COUNT(*) AS n FROM orders GROUP BY note"
MEDIAN = "SELECT MEDIAN(amount) AS half FROM orders"
COUNTS = [f"SELECT COUNT(*) AS n FROM orders WHERE items > {number}" for number in range(10)]
SESSIONS = [("auto", 1e-6), ("gdp", 1e-6), ("zcdp", 1e-6), ("basic", 1e-6), ("auto", 0)]


def spent(connection: dpsql.Connection) -> float:
    return connection.budget.spent.epsilon


def widths(plan: Any) -> list[float]:
    """Of the last column of each query."""
    return [query.explanation.columns[-1].half_width for query in plan.queries]


def batched(connection: dpsql.Connection, queries: list[str], **options: Any) -> Batch:
    session = connection.session
    questions = [session.request(sql, None) for sql in queries]
    weights = weigh(options.get("weights"), len(queries))
    return plan_batch(questions, weights, Fraction(1), options.get("delta"), session.environment.public())


# -- the budget --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("composition", "delta"), SESSIONS)
def test_the_whole_plan_is_within_its_budget(
    composition: str, delta: float, shop_database: Any, shop_schema: Any
) -> None:
    """As a session of that epsilon and delta would see it: every answer in it, whatever kind it is."""
    queries = [COUNT, BY_REGION, MEDIAN, *([BY_NOTE] if delta else [])]
    with dpsql.connect(shop_database, schema=shop_schema, budget=3, delta=delta, composition=composition) as shop:
        plan, batch = shop.plan(queries, epsilon=1), batched(shop, queries)
        assert spent(shop) == 0
        assert 0.98 <= plan.cost.epsilon <= 1
        assert filter_named(composition, Fraction(1), batch.filter.delta).admits(batch.privacy_loss)
        assert 0.98 <= sum(query.share for query in plan.queries) <= 1 + 1e-9
        answers = plan.execute()
        assert [len(answer.description) for answer in answers] == [1, 3, 1, 2][: len(queries)]
        assert shop.budget.remaining.epsilon == pytest.approx(plan.remaining.epsilon)
        assert spent(shop) == pytest.approx(plan.cost.epsilon)


def test_a_delta_for_the_plan(shop: dpsql.Connection) -> None:
    plan = shop.plan([BY_NOTE, f"{BY_NOTE} HAVING n > 5", BY_REGION], epsilon=1, delta=1e-8)
    assert plan.cost.delta <= 1e-8
    plan.execute()
    assert shop.session.environment.ledger.budget.tally.totals.delta <= Fraction(1e-8) / 20


def test_a_plan_is_tighter_than_its_queries_one_by_one(shop: dpsql.Connection) -> None:
    """Ten counts at a tenth each are one tenth of epsilon each; in a plan their squared mus add up to the whole."""
    alone = shop.explain(COUNTS[0], epsilon=0.1).columns[0].half_width
    (first, *others) = widths(shop.plan(COUNTS, epsilon=1))
    assert set(others) == {first}
    assert first < alone / 2.5


def test_the_sum_of_squares_is_the_whole(shop: dpsql.Connection) -> None:
    batch = batched(shop, COUNTS)
    assert float(batch.privacy_loss.mu_squared / batch.filter.mu_budget**2) == pytest.approx(1, abs=1e-8)
    assert batch.privacy_loss == privacy_loss(Composed(tuple(part.event for part in batch.parts)))


def test_a_tenth_of_the_session_by_default(shop: dpsql.Connection) -> None:
    """In its own currency: a tenth of mu^2 by itself is more than a tenth of epsilon."""
    cost = shop.plan([COUNT, BY_REGION]).cost
    assert shop.budget.queries_like(cost.epsilon) == pytest.approx(10, abs=1)
    assert cost.epsilon == pytest.approx(float(shop.budget.filter.currency.epsilon_of(Fraction(1, 10))))


# -- the errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("composition", "delta"), [("auto", 1e-6), ("auto", 0)])
def test_twice_the_weight_is_half_the_error(
    composition: str, delta: float, shop_database: Any, shop_schema: Any
) -> None:
    with dpsql.connect(shop_database, schema=shop_schema, budget=3, delta=delta, composition=composition) as shop:
        queries = [f"SELECT SUM(amount) AS s FROM orders WHERE items > {number}" for number in range(3)]
        heavy, light, lighter = widths(shop.plan(queries, [2, 1, 0.5], epsilon=1))
        assert light / heavy == pytest.approx(2, rel=1e-3)
        assert lighter / light == pytest.approx(2, rel=1e-3)
        assert widths(shop.plan(queries, [8, 4, 2], epsilon=1)) == pytest.approx([heavy, light, lighter], rel=1e-3)


def test_the_expected_error_is_that_of_the_noise(shop: dpsql.Connection) -> None:
    batch, runs = batched(shop, [COUNT, BY_REGION], weights=[3, 1]), 20_000
    for part in batch.parts:
        for measure in part.releases[0].measures:
            column = measure.bounded.column
            drawn = noised({column: np.zeros(runs)}, {column: measure})[column].astype(float)
            assert drawn.std() == pytest.approx(measure.std, rel=5 / math.sqrt(2 * runs))


# -- paying ------------------------------------------------------------------------------------------------------------


def test_all_or_nothing(shop_database: Any, shop_schema: Any) -> None:
    """Two of three would fit; none is charged, and none is drawn."""
    with dpsql.connect(shop_database, schema=shop_schema, budget=1) as shop:
        plan = shop.plan(COUNTS[:3], epsilon=0.6)
        shop.execute(COUNT, epsilon=0.5)
        entries = len(shop.history())
        with pytest.raises(dpsql.BudgetExhausted) as caught:
            plan.execute()
        assert (caught.value.requested, caught.value.remaining) == (0.6, 0.5)
        assert len(shop.history()) == entries
        assert spent(shop) == 0.5
        shop.session.environment.ledger.verify()


def test_a_plan_that_never_fits_is_still_shown(shop: dpsql.Connection) -> None:
    plan = shop.plan([COUNT, BY_REGION], epsilon=100)
    assert plan.remaining.epsilon == 0
    with pytest.raises(dpsql.BudgetExhausted):
        plan.execute()
    assert spent(shop) == 0


def test_answers_come_in_order_and_once(shop: dpsql.Connection) -> None:
    plan = shop.plan([(f"{COUNT} WHERE items > ?", [5]), BY_REGION], epsilon=1)
    one, two = plan.execute()
    assert ([column[0] for column in one.description], len(two.fetchall())) == (["n"], 4)
    assert one.intervals()["n_high"][0] > one.fetchone()[0]
    before = spent(shop)
    again, _ = plan.execute()
    assert again.receipt.recalled
    assert spent(shop) == before
    history = shop.history()
    assert history[history.state == "charged"].sql.tolist() == [f"{COUNT} WHERE items > ?", BY_REGION]


def test_what_was_answered_before_is_not_paid_again(shop: dpsql.Connection) -> None:
    shop.plan([COUNT, BY_REGION], epsilon=1).execute()
    before = spent(shop)
    shop.plan([COUNT, BY_REGION], epsilon=1).execute()
    assert spent(shop) == before


def test_an_executed_plan_needs_its_connection(shop: dpsql.Connection) -> None:
    plan = shop.plan([COUNT])
    shop.close()
    with pytest.raises(dpsql.InterfaceError, match="closed"):
        plan.execute()


# -- looks and refusals ------------------------------------------------------------------------------------------------


def test_looks(shop: dpsql.Connection) -> None:
    plan = shop.plan([COUNT, BY_REGION, MEDIAN, "SELECT region FROM orders GROUP BY region -- <b>"], epsilon=1)
    text, html = str(plan), plan._repr_html_()
    assert "n ±" in text
    assert "total ±" in text
    assert "ranks" in text
    assert "no noisy column" in text
    assert "% of the cost" in text
    assert "part of the cost" in html
    assert "&lt;b&gt;" in html


@pytest.mark.parametrize(
    ("queries", "options", "problem"),
    [
        ([], {}, "at least one query"),
        (COUNT, {}, "at least one query"),
        (None, {}, "at least one query"),
        ([COUNT, 5], {}, "a query must be a string"),
        ([(COUNT, [], {})], {}, "must be a string, or a string and its parameters"),
        ([COUNT, COUNT], {}, "the same query twice"),
        ([COUNT, BY_REGION], {"weights": [1]}, "2 queries"),
        ([COUNT, BY_REGION], {"weights": "12"}, "2 queries"),
        ([COUNT, BY_REGION], {"weights": 2}, "2 queries"),
        ([COUNT, BY_REGION], {"weights": [1, -1]}, "a weight cannot be negative"),
        ([COUNT, BY_REGION], {"weights": [1, 0]}, "a weight must be above 0"),
        ([COUNT, BY_REGION], {"weights": [1, "much"]}, "a weight must be a number"),
        ([COUNT], {"epsilon": 0}, "epsilon must be above 0"),
        ([COUNT], {"delta": 0.5}, "more than the session's"),
        ([COUNT, "SELECT nothing FROM orders"], {}, "nothing"),
        (
            ["SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) COUNT(*) FROM orders"],
            {},
            "the plan already says how",
        ),
    ],
)
def test_what_is_no_plan(queries: Any, options: dict[str, Any], problem: str, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        shop.plan(queries, **options)
    assert problem in caught.value.problem
    assert spent(shop) == 0

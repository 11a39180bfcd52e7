"""A question that names no price takes a tenth of the budget, in the session's own currency."""

from __future__ import annotations

import math
from typing import Any

import pytest

import dpsql

COUNT = "SELECT COUNT(DISTINCT customer_id) FROM orders WHERE items > {}"
MEDIAN = "SELECT MEDIAN(amount) FROM orders WHERE items > {}"
QUESTIONS = [
    COUNT,
    "SELECT region, COUNT(*), SUM(amount) FROM orders WHERE items > {} GROUP BY region",
    "SELECT note, COUNT(*) FROM orders WHERE items > {} GROUP BY note",
    MEDIAN,
    "SELECT COUNT(*), MEDIAN(amount), AVG(items) FROM orders WHERE items > {}",
]
SESSIONS = [("auto", 1e-6), ("gdp", 1e-6), ("zcdp", 1e-6), ("basic", 1e-6), ("mixed", 0)]


def opened(raw: Any, schema: Any, composition: str = "mixed", delta: float = 1e-6) -> dpsql.Connection:
    return dpsql.connect(raw, schema=schema, budget=1, delta=delta, composition=composition)


EACH = [("mixed", 1e-6, sql) for sql in QUESTIONS] + [(*session, QUESTIONS[-1]) for session in SESSIONS]


@pytest.mark.parametrize(("composition", "delta", "sql"), EACH)
def test_ten_use_the_session_up(composition: str, delta: float, sql: str, shop_database: Any, shop_schema: Any) -> None:
    with opened(shop_database, shop_schema, composition, delta) as connection:
        for number in range(10):
            connection.execute(sql.format(number))
        # Small choices cost less while much is left, so that two more medians fit: docs/proofs/smoothed.md.
        fitting = 12 if sql == MEDIAN else 10
        for number in range(10, fitting):
            connection.execute(sql.format(number))
        assert connection.budget.spent.epsilon >= 0.97
        with pytest.raises(dpsql.BudgetExhausted):
            connection.execute(sql.format(fitting))


def test_a_count_has_the_error_that_ten_of_them_can_have(shop_database: Any, shop_schema: Any) -> None:
    with opened(shop_database, shop_schema) as connection:
        explained = connection.explain(COUNT.format(0))
        assert explained.columns[0].half_width == 27
        assert explained.share == pytest.approx(0.1, rel=1e-3)
        assert "10.00% of the budget" in str(explained)
        assert connection.explain(COUNT.format(0), epsilon=0.1).columns[0].half_width == 73


def test_a_statistic_takes_no_more_than_a_measure(shop_database: Any, shop_schema: Any) -> None:
    """Half of the tenth each: the count has sqrt(2) of its error alone, and not that of half its epsilon."""
    with opened(shop_database, shop_schema) as connection:
        alone = connection.explain("SELECT COUNT(*) FROM orders").columns[0].half_width
        beside = connection.explain("SELECT COUNT(*), MEDIAN(amount) FROM orders").columns[0].half_width
        assert beside == pytest.approx(2**0.5 * alone, rel=0.05)


def test_a_price_that_is_named_is_the_price(shop_database: Any, shop_schema: Any) -> None:
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.2) COUNT(*) FROM orders"
    with opened(shop_database, shop_schema) as connection:
        assert connection.explain(clause).cost.epsilon == 0.2
        assert connection.explain(COUNT.format(0), epsilon=0.1).cost.epsilon == 0.1
        assert str(connection.trace(COUNT.format(0))).count("10% of the session")
    with dpsql.connect(shop_database, schema=shop_schema, budget=1, delta=1e-6, query_epsilon=0.3) as connection:
        assert connection.explain(COUNT.format(0)).cost.epsilon == 0.3


def test_laplace_by_name_takes_a_tenth_of_epsilon(shop_database: Any, shop_schema: Any) -> None:
    """Its epsilons add up, and ten of them are the whole."""
    with opened(shop_database, shop_schema) as connection:
        assert connection.explain(COUNT.format(0), mechanism="laplace").cost.epsilon == 0.1


def test_the_same_question_is_recalled(shop_database: Any, shop_schema: Any) -> None:
    with opened(shop_database, shop_schema) as connection:
        first = connection.execute(COUNT.format(0)).fetchall()
        assert connection.execute(COUNT.format(0)).fetchall() == first
        assert connection.budget.queries == 1


@pytest.mark.parametrize("sql", ["SELECT MEDIAN(amount) AS m FROM orders", "SELECT MODE(region) AS m FROM orders"])
@pytest.mark.parametrize("composition", ["mixed", "gdp"])
def test_the_share_that_is_shown_is_what_the_session_loses(
    sql: str, composition: str, shop_database: Any, shop_schema: Any
) -> None:
    """Also of what is drawn: on the curve, a median counts as half its epsilon."""
    with dpsql.connect(shop_database, schema=shop_schema, budget=3, delta=1e-6, composition=composition) as shop:
        share = shop.explain(sql, epsilon=0.1).share
        shop.execute(sql, epsilon=0.1)
        loss = shop.budget.tally.totals
        limits = [rule.limit for rule in shop.budget.filter.rules if loss <= rule.limit]
        taken = min(
            max(
                float(amount / limit)
                for amount, limit in zip(loss.amounts, whole.amounts, strict=True)
                if amount and limit not in (0, math.inf)
            )
            for whole in limits
        )
        assert share == pytest.approx(taken, rel=1e-9)

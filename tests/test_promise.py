"""What conn.promise() says, and that noise keeps it: docs/proofs/promise.md, executed."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest

import dpsql
from dpsql.promise import PRIORS, Limits, Promise

OUTCOMES = np.arange(-60, 61)


def laplace(epsilon: float, value: int) -> np.ndarray:
    """The probability of every outcome for a count of `value`."""
    q = math.exp(-epsilon)
    return (1 - q) / (1 + q) * q ** np.abs(OUTCOMES - value)


def gaussian(sigma: float, value: int) -> np.ndarray:
    def above(x: float) -> float:
        return 0.5 * math.erfc(x / (sigma * math.sqrt(2)))

    return np.array([above(distance - 0.5) - above(distance + 0.5) for distance in np.abs(OUTCOMES - value)])


def test_known_numbers() -> None:
    """Two fair coins, the classical survey: epsilon = ln 3."""
    limits = Limits(math.log(3), 0.0)
    assert limits.factor == pytest.approx(3)
    assert [limits.most(prior) for prior in PRIORS] == pytest.approx([3 / 102, 1 / 4, 3 / 4])
    assert [limits.least(prior) for prior in PRIORS] == pytest.approx([1 / 298, 1 / 28, 1 / 4])


def test_no_answers_change_nothing() -> None:
    assert Limits(0.0, 0.0).most(0.01) == Limits(0.0, 0.0).least(0.01) == 0.01


def test_a_huge_epsilon_promises_nothing() -> None:
    limits = Limits(1e6, 1e-6)
    assert (limits.least(0.5), limits.most(0.5), limits.factor) == (0.0, 1.0, math.inf)
    assert limits.between_values == Limits(2e6, 1.0)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("prior", PRIORS)
def test_no_outcome_of_laplace_noise_tells_more_and_some_tell_as_much(epsilon: float, prior: float) -> None:
    there, gone = laplace(epsilon, 1), laplace(epsilon, 0)
    posterior = prior * there / (prior * there + (1 - prior) * gone)
    limits = Limits(epsilon, 0.0)
    assert posterior.max() == pytest.approx(limits.most(prior), rel=1e-9)
    assert posterior.min() == pytest.approx(limits.least(prior), rel=1e-9)


def test_gaussian_noise_splits_into_an_ordinary_part_and_delta() -> None:
    sigma, epsilon, prior = 4.0, 1.0, 0.01
    there, gone = gaussian(sigma, 1), gaussian(sigma, 0)
    limits = Limits(epsilon, 0.0)
    posterior = prior * there / (prior * there + (1 - prior) * gone)
    assert posterior.max() > limits.most(prior), "single outcomes may say more than epsilon allows"
    ordinary, absent = np.minimum(there, math.exp(epsilon) * gone), np.minimum(gone, math.exp(epsilon) * there)
    delta = max(1 - ordinary.sum(), 1 - absent.sum())
    assert 0 < delta < 1e-3
    bounded = prior * ordinary / (prior * ordinary + (1 - prior) * absent)
    assert bounded.max() <= limits.most(prior) * (1 + 1e-9)
    assert bounded.min() >= limits.least(prior) * (1 - 1e-9)


def test_what_the_rows_say_is_two_steps_away() -> None:
    epsilon, sigma = 0.5, 4.0
    one, other, absent = gaussian(sigma, 1), gaussian(sigma, -1), gaussian(sigma, 0)
    delta = max(np.maximum(0, a - math.exp(epsilon) * b).sum() for a, b in [(one, absent), (absent, one)])
    doubled = Limits(epsilon, float(delta)).between_values
    assert doubled.epsilon == 1.0
    assert np.maximum(0, one - math.exp(doubled.epsilon) * other).sum() <= doubled.delta


def test_the_text_says_the_numbers(shop: dpsql.Connection) -> None:
    """Epsilon 10 in all; nothing was asked yet."""
    text = str(shop.promise())
    assert "customers.id or orders.customer_id" in " ".join(text.split())
    rows = {name: limits for name, *limits in (re.split(r"\s{2,}", line) for line in text.splitlines())}
    assert rows["epsilon"] == ["0", "10"]
    assert rows["a suspicion of 1 % becomes"] == ["1 % to 1 %", "4.58e-05 % to 99.6 %"]
    assert rows["probability that no limit holds"] == ["0", "1e-06"]
    assert "1 in 1,000,000" in text


def test_what_was_spent_is_promised_too(shop: dpsql.Connection) -> None:
    shop.execute("SELECT COUNT(*) FROM customers", epsilon=1, mechanism="laplace")
    promise = shop.promise()
    assert promise.spent.epsilon == 1.0
    assert promise.spent.most(0.01) == pytest.approx(0.01 * math.e / (0.99 + 0.01 * math.e))
    assert "2.68 %" in str(promise)
    assert "2.68 %" in promise._repr_html_()


def test_no_delta_no_exception() -> None:
    promise = Promise("shop", ("people.id",), Limits(0.0, 0.0), Limits(1.0, 0.0))
    assert "without exception" in str(promise)


def test_a_path_to_the_unit_is_told() -> None:
    schema = {
        "tables": {
            "orders": {"unit": "person", "columns": {"id": "integer", "person": "integer"}},
            "lines": {"unit": {"through": "order_id", "to": "orders.id"}, "columns": {"order_id": "integer"}},
            "days": {"public": True, "columns": {"day": "timestamp"}},
        }
    }
    frames = {
        "orders": pd.DataFrame({"id": [1], "person": [1]}),
        "lines": pd.DataFrame({"order_id": [1]}),
        "days": pd.DataFrame({"day": pd.to_datetime(["2024-01-01"])}),
    }
    with dpsql.connect(frames, schema=schema, budget=1) as conn:
        assert conn.promise().units == ("orders.person", "orders.person (reached from lines.order_id)")


def test_reports_that_are_counted_exactly_are_told() -> None:
    """Whether somebody has rows beside them is no secret, and no epsilon is about it; over a path nothing is free."""
    answer = {"type": "boolean", "collected": {"mechanism": "kary", "epsilon": 1.5, "values": [False, True]}}
    schema = {
        "tables": {
            "people": {"unit": "id", "columns": {"id": "integer", "smoker": answer}},
            "trips": {
                "unit": {"through": "person", "to": "people.id"},
                "columns": {"person": "integer", "late": answer},
            },
        }
    }
    people = pd.DataFrame({"id": [1, 2], "smoker": [True, False]})
    trips = pd.DataFrame({"person": [1], "late": [True]})
    with dpsql.connect({"people": people, "trips": trips}, schema=schema, budget=1) as conn:
        promise = conn.promise()
        rows = conn.execute("SELECT COUNT(*) FROM people WHERE smoker OR NOT smoker")
        assert (round(rows.fetchall()[0][0]), rows.receipt.cost.epsilon) == (2, 0)
    assert promise.reported == ("people.smoker (epsilon 1.5 a report)",)
    for text in (" ".join(str(promise).split()), promise._repr_html_()):
        assert "everybody may know that a person has rows there" in text


def test_names_are_escaped() -> None:
    hostile = Promise("<script>", ("<b>.id",), Limits(0.0, 0.0), Limits(1.0, 1e-6))
    assert "<script>" not in hostile._repr_html_()
    assert "<b>.id" not in hostile._repr_html_()


def test_rounding_never_flatters() -> None:
    """e^1 is 2.718...: the limit shown is 2.72, never 2.71."""
    assert "2.72" in str(Promise("d", ("p.id",), Limits(0.0, 0.0), Limits(1.0, 0.0)))

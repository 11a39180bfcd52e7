"""What a session has spent and has left, as people see it."""

import sys
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest

from dpsql.accounting.budget import Budget
from dpsql.accounting.events import Composed, Free, Gaussian, Laplace, PureRelease
from dpsql.accounting.filters import FILTERS, Auto, Basic, Gdp
from dpsql.accounting.ledger.journal import RunningTotals
from dpsql.accounting.privacy_loss import Cost, privacy_loss

DELTA = Fraction(1, 10**6)


def after(a_filter, event, k, epsilon="1/10", delta=0):
    tally = RunningTotals()
    for _ in range(k):
        tally = tally.plus(privacy_loss(event), Fraction(epsilon), Fraction(delta))
    return Budget(a_filter, tally)


def test_a_fresh_budget():
    budget = Budget(Auto(Fraction(3), DELTA), RunningTotals())
    assert (budget.epsilon, budget.delta, budget.queries) == (3.0, 1e-6, 0)
    assert budget.spent == Cost(0.0, 0.0)
    assert budget.remaining == Cost(3.0, 1e-6)
    assert budget.basic == Cost(0.0, 0.0)
    with pytest.raises(FrozenInstanceError):
        budget.tally = RunningTotals()


@pytest.mark.parametrize(
    "cost",
    [
        0.1,
        "0.1",
        Decimal("0.1"),
        Fraction(1, 10),
        Cost(0.1, 0.0),
        SimpleNamespace(epsilon=0.1, delta=0),
        Laplace(Fraction(10)),
    ],
)
def test_how_many_more_fit_whatever_the_cost_is_written_as(cost):
    assert after(Basic(Fraction(1), DELTA), Laplace(Fraction(10)), 3).queries_like(cost) == 7


def test_how_many_more_fit_beside_gaussians():
    event = Auto(Fraction(3), DELTA).queries_at(Fraction(1, 10), Fraction(0))[1]
    budget = after(Auto(Fraction(3), DELTA), event, 100)
    assert budget.queries_like(0.1) == budget.queries_like(event) == 454
    # The delta of a Gaussian read at the curve is not lost again with every query.
    assert budget.queries_like(Cost(0.1, float(budget.filter.curve_delta))) == 454
    assert budget.queries_like(Cost(0.1, 1e-8)) == 5
    assert budget.queries_like(Free()) == sys.maxsize


@pytest.mark.parametrize("name", FILTERS)
def test_a_forecast_comes_true(name):
    a_filter = FILTERS[name](Fraction(1), DELTA)
    event = a_filter.queries_at(Fraction(1, 5), Fraction(0))[-1]
    k = Budget(a_filter, RunningTotals()).queries_like(event)
    assert after(a_filter, event, k).queries_like(event) == 0
    assert k >= 5


def test_what_the_textbook_rules_would_have_said():
    budget = after(Gdp(Fraction(10), DELTA), PureRelease(Fraction(1, 10)), 100)
    assert budget.basic == Cost(10.0, 0.0)
    assert budget.advanced.epsilon == pytest.approx(6.3082, abs=1e-4)
    assert budget.advanced.delta == 1e-6
    assert Budget(Basic(Fraction(1), Fraction(0)), RunningTotals()).advanced is None


def test_huge_queries_do_not_overflow():
    budget = after(Auto(Fraction(10**15), DELTA), PureRelease(Fraction(10**12)), 5, epsilon="1000000000000")
    assert budget.spent.epsilon == 5e12
    assert budget.advanced.epsilon == float("inf")
    assert budget.queries_like(1e12) > 900
    assert "5e+12" in str(budget)


def test_a_tally_survives_json_also_when_a_sum_is_infinite():
    tally = after(Gdp(Fraction(1), DELTA), Composed((Gaussian(Fraction(3)),)), 2, epsilon="900").tally
    assert RunningTotals.from_json(tally.to_json()) == tally


def test_it_reads_well():
    budget = after(Auto(Fraction(1), DELTA), Laplace(Fraction(10)), 3)
    assert str(budget) == (
        "epsilon: 0.3 of 1 spent in 3 queries, 0.7 left for the next (0.3681 with Gaussian noise)\n"
        "delta: 0 of 1e-06 spent"
    )
    assert budget.comparison() == "with basic composition 0.3, advanced composition 0.942"

"""Propose-test-release: the least threshold that keeps the promise, and the promise, added up exactly."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import exp
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.aggregates.measure import Average, Grid
from dpsql.expressions.tree import Column
from dpsql.mechanisms.data_dependent import proposed_average
from dpsql.mechanisms.draw import Terms
from dpsql.mechanisms.propose_test_release import StabilityTest
from dpsql.schema.types import Integer

TESTS = [
    StabilityTest(epsilon, delta)
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(7, 2))
    for delta in (Fraction(1, 100), Fraction(1, 10**6))
]


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_the_threshold_is_the_least_that_fails_the_unstable(test: StabilityTest) -> None:
    with localcontext() as context:
        context.prec = 60
        q = (-Decimal(test.epsilon.numerator) / test.epsilon.denominator).exp()

        def passing(threshold: int) -> Decimal:
            return q ** (threshold + 1) / (1 + q)

        allowed = Decimal(test.delta.numerator) / test.delta.denominator
        assert passing(test.threshold) <= allowed
        assert test.threshold == 0 or passing(test.threshold - 1) > allowed


def pmf(noise_scale: float, k: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.tanh(1 / (2 * noise_scale)) * np.exp(-np.abs(k) / noise_scale)


@pytest.mark.parametrize("delta", [Fraction(1, 50), Fraction(1, 10**5)], ids=float)
@pytest.mark.parametrize(("of_test", "of_release"), [(Fraction(1, 2), Fraction(1, 2)), (Fraction(2), Fraction(1))])
def test_test_and_release_together(of_test: Fraction, of_release: Fraction, delta: Fraction) -> None:
    """All pairs of neighbours that there can be: the distances differ by at most 1, and unless both are 0 the answers
    differ by at most the proposal. The exact divergence, over `refused` and every noisy answer."""
    test, proposed = StabilityTest(of_test, delta), 3
    scale = proposed / float(of_release)
    answers = np.arange(-400, 2000)

    def outcomes(distance: int, answer: int) -> NDArray[np.float64]:
        passed = test.pass_probability(distance)
        return np.concatenate(([1 - passed], passed * pmf(scale, answers - answer)))

    near = [((d, 0), (e, q)) for d in range(40) for e in (d, d + 1) for q in (0, proposed) if e]
    unstable = [((0, 0), (0, 1500))]
    for one, other in near + unstable:
        for here, there in ((one, other), (other, one)):
            bound = exp(of_test + of_release) * outcomes(*there)
            divergence = np.maximum(0, outcomes(*here) - bound).sum()
            assert divergence <= (float(delta) * (1 + 1e-6) if one[0] == other[0] == 0 else 1e-9)


def test_an_unstable_group_hardly_ever_passes() -> None:
    test = StabilityTest(Fraction(1), Fraction(1, 10**4))
    passed = np.count_nonzero(test.passes(np.zeros(200_000, dtype=np.int64)))
    assert passed <= 20 + 6 * np.sqrt(20)
    assert test.passes(np.full(10_000, test.limit)).all()


@pytest.mark.parametrize("distance", [0, 5, 9, 12, 30])
def test_pass_probability(distance: int) -> None:
    test, draws = StabilityTest(Fraction(1, 2), Fraction(1, 100)), 50_000
    p = test.pass_probability(distance)
    passed = np.count_nonzero(test.passes(np.full(draws, distance)))
    assert abs(passed - draws * p) <= 6 * np.sqrt(draws * p * (1 - p)) + 1


def test_what_a_test_costs() -> None:
    totals = privacy_loss(StabilityTest(Fraction(1, 2), Fraction(1, 100)).event)
    assert (totals.epsilon, totals.delta) == (Fraction(1, 2), Fraction(1, 100))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: StabilityTest(Fraction(0), Fraction(1, 100)),
        lambda: StabilityTest(Fraction(1, 2**60), Fraction(1, 100)),
        lambda: StabilityTest(Fraction(1), Fraction(0)),
        lambda: StabilityTest(Fraction(1), Fraction(2, 3)),
    ],
)
def test_refuses(wrong: Any) -> None:
    with pytest.raises(ValueError, match="needs"):
        wrong()


def test_means_that_are_one_step_apart_stay_so_when_they_are_rounded() -> None:
    """1/2, 3/2, 5/2, ...: rounded to even, two of them would be two steps apart."""
    terms = Terms("ptr", Fraction(1), Fraction(1), Fraction(1, 10**6), 1)
    draw = proposed_average(Average(Column("x", Integer()), Grid(Fraction(1), 0, 10), finer=1), terms)
    sums = np.array([1, 3, 5, 7, 9])
    answers, _ = draw.found([sums // 2, sums % 2, np.full_like(sums, 2)])
    assert all(later - earlier == 1 for earlier, later in pairwise(answers))

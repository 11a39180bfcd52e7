"""docs/proofs/gaussian_dp.md, executed: against fifty-digit arithmetic and against dp-accounting."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import dp_accounting
import mpmath
import pytest

from dpsql.accounting import curves
from dpsql.accounting.curves import TOLERANCE, delta_at, gaussian_epsilon_at, mu_for, mu_of_pure

EPSILONS = ["1e-9", "0.001", "0.1", "1", "3", "10", "100", "1e6"]
DELTAS = ["0.3", "1e-3", "1e-6", "1e-10", "1e-30", "1e-200"]


def true_delta(mu, epsilon):
    with mpmath.workdps(120 + int(abs(mpmath.log10(mu)))):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)

        def tail(x):
            return mpmath.erfc(x / mpmath.sqrt(2)) / 2

        return tail(epsilon / mu - mu / 2) - mpmath.exp(epsilon) * tail(epsilon / mu + mu / 2)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.1, 1.0, 5.0, 30.0, 1000.0])
@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 60.0])
def test_delta_is_an_upper_bound_and_a_tight_one(mu, epsilon):
    true, bound = true_delta(mu, epsilon), delta_at(mu, epsilon)
    assert bound >= true
    assert bound <= true * (1 + mpmath.mpf(1e-14)) + 1e-320


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_safe_and_nearly_the_largest(epsilon, delta):
    mu = mu_for(Fraction(epsilon), Fraction(delta))
    assert true_delta(float(mu), epsilon) <= mpmath.mpf(delta)
    assert true_delta(float(mu) * (1 + 1e-12), epsilon) > mpmath.mpf(delta)


def halved(part: Callable[[float], Decimal], inside: float, outside: float) -> float:
    """Halving that computes every point."""
    while abs(outside - inside) > TOLERANCE * inside:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if part(middle) <= 1 else (inside, middle)
    return inside


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_need_not_be_computed_is_not_found_otherwise(epsilon, delta, monkeypatch):
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    mu = float(mu_for(epsilon, delta)) / 3
    found = mu_for(epsilon, delta), gaussian_epsilon_at(mu, delta), mu_of_pure(epsilon)
    monkeypatch.setattr(curves, "_edge", halved)
    again = (
        mu_for.__wrapped__(epsilon, delta),
        gaussian_epsilon_at.__wrapped__(mu, delta),
        mu_of_pure.__wrapped__(epsilon),
    )
    assert found == again


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1, 3, 10])
def test_calibration_agrees_with_dp_accounting_from_the_safe_side(epsilon, delta):
    sigma = float(1 / mu_for(Fraction(str(epsilon)), Fraction(str(delta))))
    # Their search ends within 1e-12 on either side of the root, ours on the side of more noise.
    assert sigma == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-9)
    assert true_delta(1 / mpmath.mpf(sigma), epsilon) <= delta * (1 + 1e-14)


@pytest.mark.parametrize("mu", [0.001, 0.05, 0.5, 2.0, 7.0])
def test_epsilon_agrees_with_dp_accounting_from_the_safe_side(mu):
    delta = Fraction(1, 10**6)
    ours, theirs = gaussian_epsilon_at(mu, delta), dp_accounting.get_epsilon_gaussian(1 / mu, float(delta))
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-11)
    assert true_delta(mu, ours) <= mpmath.mpf(1) / 10**6


def test_the_textbook_sigma_is_too_large_for_small_epsilon_and_too_small_for_large_ones():
    delta = Fraction(1, 10**6)

    def textbook(epsilon):
        return math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    for epsilon in (0.1, 1, 5):
        assert 1.05 < textbook(epsilon) * float(mu_for(Fraction(str(epsilon)), delta)) < 1.5
    assert textbook(10) * float(mu_for(Fraction(10), delta)) < 1


@pytest.mark.parametrize("epsilon", ["1e-12", "0.001", "0.1", "1", "5", "50", "900"])
def test_mu_of_a_pure_release_is_an_upper_bound(epsilon):
    mu = mu_of_pure(Fraction(epsilon))
    with mpmath.workdps(500):
        target = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))

        def tail(z):
            return mpmath.erfc(mpmath.mpf(float(z)) / 2 / mpmath.sqrt(2)) / 2

        assert tail(mu) <= target
        assert tail(float(mu) * (1 - 1e-12)) > target


@pytest.mark.parametrize("epsilon", [10**6, 10**9, 10**15, 10**18])
def test_huge_epsilons_work_everywhere(epsilon):
    delta = Fraction(1, 10**6)
    mu = mu_for(Fraction(epsilon), delta)
    assert 0.99 * math.sqrt(2 * epsilon) < mu < math.sqrt(2 * epsilon)
    assert delta_at(float(mu), float(epsilon)) <= 1e-6
    assert gaussian_epsilon_at(float(mu), delta) == pytest.approx(epsilon)
    assert mu_of_pure(Fraction(epsilon)) == pytest.approx(2 * math.sqrt(2 * epsilon), rel=1e-2)
    # The bound that large epsilons fall back to: the loss is below epsilon, so Gaussian DP at mu must allow it.
    assert delta_at(float(mu_of_pure(Fraction(epsilon))), float(epsilon)) > 0.5


def test_the_ends_of_the_range():
    assert delta_at(0.0, 1.0) == 0.0
    assert delta_at(1e200, 1.0) == 1.0
    assert 0 < delta_at(1e-5, 1e300) < 1e-300
    assert gaussian_epsilon_at(0.0, Fraction(1, 10**6)) == 0.0
    assert gaussian_epsilon_at(1e200, Fraction(1, 10**6)) == math.inf
    assert gaussian_epsilon_at(1.0, Fraction(0)) == math.inf
    assert gaussian_epsilon_at(1e-9, Fraction(1, 10**6)) == 0.0
    assert mu_of_pure(Fraction(0)) == 0
    assert float(mu_for(Fraction(0), Fraction(1, 10**6))) == pytest.approx(math.sqrt(2 * math.pi) * 1e-6)

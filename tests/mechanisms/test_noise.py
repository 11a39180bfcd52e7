"""What a noise says about itself: never too good, and not needlessly bad."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction
from math import atanh, cos, exp, log, pi, sin, sqrt, tan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpsql.mechanisms import GaussianNoise, LaplaceNoise, Noise, gaussian, laplace

WIDTHS = [Fraction(width) for width in ("1/40", "1/3", "1", "19/10", "15/2", "1000", "1048576")]
NOISES: list[Noise] = [*map(LaplaceNoise, WIDTHS), *map(GaussianNoise, WIDTHS)]
POINTS = [-5000, -40, -3, -1, 0, 1, 2, 3, 8, 40, 700, 5000, 10**6]


def exact_laplace_tail(scale: Fraction, t: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        q = (-Decimal(scale.denominator) / scale.numerator).exp()
        beyond = q ** max(t, 1 - t) / (1 + q)
        return beyond if t > 0 else 1 - beyond


@pytest.mark.parametrize("scale", WIDTHS, ids=str)
def test_laplace_tail_is_exact_from_above(scale: Fraction) -> None:
    for t in POINTS:
        exact, told = exact_laplace_tail(scale, t), Decimal(LaplaceNoise(scale).tail(t))
        assert exact <= told <= max(exact * Decimal("1.0000000001"), Decimal("2.3e-308"))


@pytest.mark.parametrize("sigma", WIDTHS, ids=str)
def test_gaussian_tail_is_exact_from_above(sigma: Fraction) -> None:
    for t in POINTS:
        exact, told = stats.norm.sf((t - 0.5) / float(sigma)), GaussianNoise(sigma).tail(t)
        # scipy rounds too: by some 10^-13 where its tail is smallest.
        assert exact * (1 - 1e-12) <= told <= max(exact * (1 + 1e-10), 2.3e-308)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_tails_never_vanish_and_never_rise(noise: Noise) -> None:
    tails = [noise.tail(t) for t in (*range(-50, 51), 10**4, 10**9, 10**40)]
    assert all(0 < p <= 1 for p in tails)
    assert all(here >= there for here, there in itertools.pairwise(tails))


def test_tails_around_the_end_of_float64() -> None:
    with localcontext() as context:
        context.prec = 40
        for t in range(690, 760):
            assert Decimal(LaplaceNoise(Fraction(1)).tail(t)) >= exact_laplace_tail(Fraction(1), t)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_std_is_that_of_the_integers(noise: Noise) -> None:
    reach = min(60 * (1 + int(noise.std)), 10**6)
    if noise.std < 10**4:
        k = np.arange(1.0, reach)
        assert noise.std == pytest.approx(sqrt(2 * np.sum((2 * k - 1) * noise.survival(k))), rel=1e-9)


def test_std_without_cancellation() -> None:
    assert LaplaceNoise(Fraction(2**50)).std == pytest.approx(sqrt(2) * 2**50)
    assert GaussianNoise(Fraction(2**50)).std == pytest.approx(2**50)
    just_below_2 = Fraction(2) - Fraction(1, 10**15)
    assert GaussianNoise(Fraction(2)).std == pytest.approx(GaussianNoise(just_below_2).std, rel=1e-14)


@pytest.mark.parametrize("level", [0, 0.5, 0.9, 0.95, 0.999, 1 - 1e-9, 1 - 2.0**-53])
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_half_width_is_the_least_that_suffices(noise: Noise, level: float) -> None:
    t = noise.half_width(level)
    outside = 1 - level
    assert 2 * noise.tail(t + 1) <= outside
    assert t == 0 or 2 * noise.tail(t) > outside


@pytest.mark.parametrize("noise", [LaplaceNoise(Fraction(10)), GaussianNoise(Fraction(10))], ids=str)
def test_half_width_covers_as_often_as_it_says(noise: Noise) -> None:
    n, level = 100_000, 0.9
    t = noise.half_width(level)
    covered = np.count_nonzero(np.abs(noise.sample(n)) <= t)
    # 6 standard deviations: one false alarm in 10^9 runs.
    assert abs(covered - n * (1 - 2 * noise.tail(t + 1))) < 6 * sqrt(n * level * (1 - level))


@pytest.mark.parametrize("groups", [1, 2, 10, 1000])
@pytest.mark.parametrize("delta", [Fraction(1, 2), *(Fraction(1, 10**k) for k in (3, 6, 12, 200))], ids=float)
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_threshold_is_the_least_that_hides_a_lone_unit(noise: Noise, delta: Fraction, groups: int) -> None:
    def shown(tau: int) -> Decimal:
        """The probability that a unit, alone in each of its groups, is seen in one of them: exact from above."""
        return 1 - (1 - Decimal(noise.tail(tau - 1))) ** groups

    with localcontext() as context:
        context.prec = 400
        allowed = Decimal(delta.numerator) / delta.denominator
        tau = noise.threshold(groups, delta)
        assert shown(tau) <= allowed
        assert tau == 1 or shown(tau - 1) > allowed * (1 - Decimal("1e-9"))


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("groups", [1, 4])
def test_thresholds_lie_next_to_the_continuous_formulas(groups: int, delta: float) -> None:
    each = 1 - (1 - delta) ** (1 / groups)
    continuous_laplace = 1 - groups / 0.1 * np.log(2 * each)
    continuous_gaussian = 1 + 30 * stats.norm.isf(each)
    assert abs(LaplaceNoise(Fraction(groups * 10)).threshold(groups, Fraction(delta)) - continuous_laplace) <= 1.5
    assert abs(GaussianNoise(Fraction(30)).threshold(groups, Fraction(delta)) - continuous_gaussian) <= 1.5


@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**6)], ids=float)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)], ids=str)
def test_thresholded_count_is_private_in_both_directions(epsilon: Fraction, delta: Fraction) -> None:
    """A unit in one shared and one lonely group: the exact divergence of what is shown, with and without it."""
    noise = laplace.calibrated(2, epsilon)
    tau = noise.threshold(2, delta)
    shown = np.arange(tau, tau + 60 * int(noise.scale + 1))

    def outcomes(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The probabilities of a group being hidden, and of each noisy count that it may be shown with."""
        b = float(noise.scale)
        pmf = np.tanh(1 / (2 * b)) * np.exp(-np.abs(shown - count) / b)
        return np.concatenate([[1 - pmf.sum()], pmf])

    for others in (1, 5, tau, tau + 20):
        absent = np.ones(len(shown) + 1)
        absent[1:] = 0
        without, with_unit = np.outer(outcomes(others), absent), np.outer(outcomes(others + 1), outcomes(1))
        for here, there in ((without, with_unit), (with_unit, without)):
            assert np.maximum(0, here - exp(epsilon) * there).sum() <= float(delta) * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("noise", [LaplaceNoise(Fraction(0)), GaussianNoise(Fraction(0))], ids=str)
def test_no_noise_is_for_what_nobody_can_change(noise: Noise) -> None:
    assert noise.std == 0
    assert noise.half_width(0.999999) == 0
    assert not noise.sample(1000).any()
    assert noise.tail(0) == 1
    assert noise.tail(1) < 1e-300
    assert noise.threshold(1, Fraction(1, 10**6)) == 2


def test_names() -> None:
    assert (LaplaceNoise(Fraction(1)).name, GaussianNoise(Fraction(1)).name) == ("laplace", "gaussian")


@pytest.mark.parametrize("level", [-0.1, 1, 1.5])
def test_refuses_levels_that_are_none(level: float) -> None:
    with pytest.raises(ValueError, match="confidence level"):
        LaplaceNoise(Fraction(1)).half_width(level)


@pytest.mark.parametrize(("groups", "delta"), [(0, "1/10"), (1, "0"), (1, "3/4"), (1, "1e-320")])
def test_refuses_thresholds_that_cannot_be(groups: int, delta: str) -> None:
    with pytest.raises(ValueError, match="threshold"):
        GaussianNoise(Fraction(1)).threshold(groups, Fraction(delta))


def test_refuses_negative_widths() -> None:
    with pytest.raises(ValueError, match="negative"):
        LaplaceNoise(Fraction(-1))
    with pytest.raises(ValueError, match="negative"):
        GaussianNoise(Fraction(-1))


@given(l1=st.integers(1, 10**12), epsilon=st.fractions(Fraction(1, 10**6), 100))
def test_laplace_calibration_is_exact(l1: int, epsilon: Fraction) -> None:
    assert laplace.calibrated(l1, epsilon).scale * epsilon == l1


@given(
    l2_squared=st.fractions(min_value=Fraction(1, 10**30), max_value=10**30),
    multiplier=st.fractions(min_value=Fraction(1, 10**9), max_value=10**9),
)
def test_gaussian_calibration_rounds_up_a_little(l2_squared: Fraction, multiplier: Fraction) -> None:
    sigma = gaussian.calibrated(l2_squared, multiplier).sigma
    needed = l2_squared * multiplier**2
    assert needed <= sigma**2 <= needed * (1 + Fraction(1, 2**56))
    odd_part = sigma.numerator >> ((sigma.numerator & -sigma.numerator).bit_length() - 1)
    assert odd_part.bit_length() <= 63


def test_calibration_of_what_nobody_can_change() -> None:
    assert laplace.calibrated(0, Fraction(1)) == LaplaceNoise(Fraction(0))
    assert gaussian.calibrated(0, Fraction(1)) == GaussianNoise(Fraction(0))


@pytest.mark.parametrize(("sensitivity", "cost"), [(-1, Fraction(1)), (1, Fraction(0)), (1, Fraction(-1))])
def test_calibration_refuses_nonsense(sensitivity: int, cost: Fraction) -> None:
    for calibrated in (laplace.calibrated, gaussian.calibrated):
        with pytest.raises(ValueError, match="calibration"):
            calibrated(sensitivity, cost)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("l1", [1, 5])
def test_calibrated_laplace_is_private(epsilon: Fraction, l1: int) -> None:
    """Every event {X >= t}, by its exact tails: a shift of l1 changes its probability by at most e^epsilon."""
    scale = laplace.calibrated(l1, epsilon).scale
    bound = Decimal(exp(epsilon)) * Decimal("1.000000000001")
    for t in range(-20, 21):
        assert exact_laplace_tail(scale, t - l1) <= bound * exact_laplace_tail(scale, t)


def least_information(level: float) -> float:
    """Of noise that stays within 1 at this level: a cosine inside, exponential tails outside, their slopes equal."""

    def at(a: float) -> tuple[float, float]:
        b, inside, outside = a * tan(a), 1 + sin(2 * a) / (2 * a), cos(a) ** 2 / (a * tan(a))
        information = 4 * (a * a * (1 - sin(2 * a) / (2 * a)) + b * cos(a) ** 2)
        return outside / (inside + outside), information / (inside + outside)

    low, high = 1e-3, pi / 2 - 1e-9
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[0] > 1 - level else (low, middle)
    return at(high)[1]


def test_no_noise_of_the_same_width_costs_much_less() -> None:
    """In a session of many questions a noise costs its Fisher information: docs/proofs/calibration.md."""
    gaussian_information = float(stats.norm.ppf(0.975)) ** 2
    assert least_information(0.95) == pytest.approx(3.708, abs=1e-3)
    assert 0.96 < least_information(0.95) / gaussian_information < 1
    # Other noises of that width cost more than the least: Laplace, logistic, uniform sums, a bare cosine.
    laplace_information = log(20) ** 2
    logistic_information = (2 * atanh(0.95)) ** 2 / 3
    for information in (gaussian_information, laplace_information, logistic_information, pi**2):
        assert information > least_information(0.95)

"""Smooth sensitivity: the constants keep the promise, seen by integrating the worst pairs of densities."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.mechanisms.local_sensitivity import AverageSensitivity, CrossJoin, order_statistic
from dpsql.mechanisms.smooth_sensitivity import SmoothNoise, cauchy, laplace
from dpsql.sampling.gaussian import Cauchy, StandardLaplace

EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(3), Fraction(10), Fraction(40)]
DELTAS = [Fraction(1, 100), Fraction(1, 10**6)]
IDEAL: dict[type, Any] = {Cauchy: stats.cauchy, StandardLaplace: stats.laplace}


def pairs(noise: SmoothNoise) -> list[tuple[float, float]]:
    """(shift, log of the ratio of scales) of neighbours, with the first scale 1: the corners and some between."""
    a, b = float(noise.a), float(noise.b)
    ratios = [-b, -b / 2, 0.0, b / 3, b]
    return [(part * a * min(1, exp(ratio)), ratio) for ratio in ratios for part in (0.0, 0.5, 1.0)]


def divergence(noise: SmoothNoise, shift: float, ratio: float, epsilon: float) -> float:
    """The exact delta at epsilon between Z and shift + e^ratio Z, by the trapezoid rule."""
    ideal = IDEAL[noise.kind]
    t = np.linspace(-50, 50, 50_001)
    excess = ideal.pdf(t) - np.exp(epsilon + ideal.logpdf((t - shift) / exp(ratio)) - ratio)
    return float(np.trapezoid(np.maximum(excess, 0), t))


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_cauchy_loses_epsilon_at_most_and_reaches_it(epsilon: Fraction) -> None:
    noise = cauchy(epsilon)
    t = np.concatenate([np.linspace(-50, 50, 20_001), np.geomspace(50, 1e12, 10_000)])
    t = np.concatenate([t, -t]) * max(1.0, float(noise.a))
    worst = 0.0
    for shift, ratio in pairs(noise):
        loss = stats.cauchy.logpdf(t) - stats.cauchy.logpdf((t - shift) / exp(ratio)) + ratio
        worst = max(worst, float(np.abs(loss).max()))
    assert worst <= float(epsilon) * (1 + 1e-9)
    assert worst >= float(epsilon) * 0.98


@pytest.mark.parametrize("delta", DELTAS, ids=float)
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_delta_is_kept(epsilon: Fraction, delta: Fraction) -> None:
    noise = laplace(epsilon, delta)
    for shift, ratio in pairs(noise):
        assert divergence(noise, shift, ratio, float(epsilon)) <= float(delta) * (1 + 1e-4)


@pytest.mark.parametrize("delta", DELTAS, ids=float)
@pytest.mark.parametrize("epsilon", EPSILONS[1:], ids=str)
def test_the_scale_alone_uses_half_of_epsilon_and_delta(epsilon: Fraction, delta: Fraction) -> None:
    noise = laplace(epsilon, delta)
    lost = divergence(noise, 0.0, -float(noise.b), float(epsilon) / 2)
    assert float(delta) * 0.99 <= lost <= float(delta) * (1 + 1e-4)


@pytest.mark.parametrize("cells", [1, 2, 7, 60])
@pytest.mark.parametrize("epsilon", EPSILONS[:4], ids=str)
def test_the_divergence_of_a_common_scale(epsilon: Fraction, cells: int) -> None:
    """|Z| has a Gamma distribution, and b is the largest at which it tells no more than delta."""
    delta, half = 1e-6, float(epsilon) / 2
    b = float(laplace(epsilon, Fraction(delta), cells).b)
    assert cells * b <= half

    def lost(b: float) -> float:
        z = (half + cells * b) / np.expm1(b)
        gamma = stats.gamma(cells)
        return float(gamma.sf(z) - exp(half) * gamma.sf(exp(b) * z))

    assert lost(b) <= delta * (1 + 1e-6)
    assert lost(b * 1.001) > delta or cells * b * 1.001 > half


@pytest.mark.parametrize("cells", [2, 5])
def test_delta_is_kept_over_several_numbers(cells: int) -> None:
    """By simulation at a delta that is large enough to be seen: P - e^epsilon Q where P is likelier."""
    epsilon, delta = Fraction(1), Fraction(1, 20)
    noise = laplace(epsilon, delta, cells)
    a, b = float(noise.a), float(noise.b)
    z = np.random.default_rng(5).laplace(size=(200_000, cells))
    for ratio in (-b, 0.0, b):
        shift = np.full(cells, a * min(1, exp(ratio)) / cells)
        loss = np.abs((z - shift) / exp(ratio)).sum(axis=1) + cells * ratio - np.abs(z).sum(axis=1)
        found = np.maximum(-np.expm1(float(epsilon) - loss), 0)
        assert found.mean() <= float(delta) + 5 * found.std() / sqrt(len(found))
    alone = laplace(epsilon, delta)
    loss = np.abs(z).sum(axis=1) * np.expm1(float(alone.b)) - cells * float(alone.b)
    assert np.maximum(-np.expm1(float(epsilon) / 2 - loss), 0).mean() > float(delta), "one number's b is too large"


def test_less_noise_than_the_textbook_at_the_usual_epsilons() -> None:
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(5)):
        e, delta = float(epsilon), 1e-6
        assert cauchy(epsilon).a > 5 * e / 6
        assert cauchy(epsilon).b == 3 * epsilon / 6
        assert laplace(epsilon, Fraction(1, 10**6)).b > e / (2 * log(2 / delta))


@pytest.mark.parametrize("noise", [cauchy(Fraction(1)), laplace(Fraction(1), DELTAS[1])])
def test_release(noise: SmoothNoise) -> None:
    """Half of the answers lie as near as half of Z does."""
    bounds, answer, draws = AverageSensitivity(1000, 1, 0, 10**6), Fraction(10**7, 21), 300
    near = float(bounds.smooth(noise.b)) / float(noise.a) * IDEAL[noise.kind].ppf(0.75)
    drawn = np.array([noise.release(answer, bounds, 0, 10**6) for _ in range(draws)])
    assert abs(np.count_nonzero(np.abs(drawn - float(answer)) < near) - draws / 2) < 6 * sqrt(draws / 4)
    assert drawn.min() >= 0
    assert drawn.max() <= 10**6


def test_release_of_other_answers() -> None:
    values = np.arange(1000, 3000)
    median = order_statistic(values, 1, 2000, 1000, 200, 1, 0, 10**5)
    assert abs(cauchy(Fraction(1)).release(Fraction(2000), median, 0, 10**5) - 2000) < 10**5
    assert laplace(Fraction(1), DELTAS[1]).release(Fraction(10**9), CrossJoin(2, 2, 50, 60), 0, 2**62) > 10**8


def test_an_answer_that_nobody_can_change_is_released_as_it_is() -> None:
    assert cauchy(Fraction(1)).release(Fraction(7), AverageSensitivity(10, 1, 7, 7), 7, 7) == 7


def test_what_it_costs() -> None:
    assert privacy_loss(cauchy(Fraction(1)).event).delta == 0
    with_delta = privacy_loss(laplace(Fraction(1), DELTAS[0]).event)
    assert (with_delta.epsilon, with_delta.delta) == (1, DELTAS[0])


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**5), Fraction(100)], ids=float)
def test_extreme_epsilons(epsilon: Fraction) -> None:
    for noise in (cauchy(epsilon), laplace(epsilon, Fraction(1, 10**200))):
        assert noise.a > 0
        assert 0 < noise.b <= epsilon / 2


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cauchy(Fraction(0)),
        lambda: cauchy(Fraction(1, 10**15)),
        lambda: cauchy(Fraction(1000)),
        lambda: laplace(Fraction(1), Fraction(0)),
        lambda: laplace(Fraction(1), Fraction(1)),
        lambda: laplace(Fraction(1), Fraction(1, 10**300)),
    ],
)
def test_refuses(wrong: Any) -> None:
    with pytest.raises(ValueError, match="smooth"):
        wrong()

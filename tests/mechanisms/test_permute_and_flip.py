"""The most frequent value: the right distribution, private without the factor 2, and near the best."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from math import comb, exp, log

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.mechanisms.permute_and_flip import MostFrequent

Tally = tuple[int, ...]


@cache
def by_permute_and_flip(gains: Tally, rate: float) -> NDArray[np.float64]:
    """From the definition of the coins: uniform among those whose coin would succeed."""
    coins = [exp(-rate * (max(gains) - gain)) for gain in gains]
    total = np.zeros(len(gains))
    for heads in product((0, 1), repeat=len(gains)):
        probability = np.prod([p if h else 1 - p for p, h in zip(coins, heads, strict=True)])
        total += probability * np.array(heads) / max(sum(heads), 1)
    return total


@cache
def by_exponential(gains: Tally, rate: float) -> NDArray[np.float64]:
    weights = np.exp(-rate * (max(gains) - np.array(gains)))
    return weights / weights.sum()


@pytest.mark.parametrize("counts", [(5, 5, 5), (9, 0), (3, 4, 7, 6, 1)])
def test_distribution(counts: Tally) -> None:
    mode, draws = MostFrequent(Fraction(3, 4), per_value=2), 1000
    observed = np.bincount([mode.sample(np.array(counts)) for _ in range(draws)], minlength=len(counts))
    expected = by_permute_and_flip(counts, 0.375) * draws
    assert stats.chisquare(observed, expected, sum_check=False).pvalue > 1e-6


@pytest.mark.parametrize("per_value", [1, 2])
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_private_without_the_factor_2(per_value: int, epsilon: float) -> None:
    """Every small tally, and every unit that may join it."""
    rate = float(MostFrequent(Fraction(epsilon), per_value).rate)
    worst = 0.0
    for counts in product(range(5), repeat=3):
        for unit in product(range(per_value + 1), repeat=3):
            joined = tuple(n + u for n, u in zip(counts, unit, strict=True))
            losses = np.log(by_permute_and_flip(joined, rate)) - np.log(by_permute_and_flip(counts, rate))
            worst = max(worst, float(np.abs(losses).max()))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst >= epsilon * 0.5


def test_gains_that_move_both_ways_need_the_factor_2() -> None:
    """A unit that lifts one candidate and lowers another by 1: epsilon is lost at half the rate."""
    for rate, lost in ((0.5, 1.0), (1.0, 2.0)):
        losses = np.log(by_permute_and_flip((0, 0), rate)) - np.log(by_permute_and_flip((1, -1), rate))
        assert np.abs(losses).max() == pytest.approx(lost)


def test_permute_and_flip_is_not_of_bounded_range() -> None:
    """Its losses span more than epsilon, and its divergence is above epsilon^2/8: it is charged as a pure release."""
    epsilon = 0.5
    even, lifted = by_permute_and_flip((0, 0), epsilon), by_permute_and_flip((0, 1), epsilon)
    assert np.ptp(np.log(even) - np.log(lifted)) > epsilon * 1.5
    assert np.sum(even * np.log(even / lifted)) > epsilon**2 / 8
    charged = privacy_loss(MostFrequent(Fraction(1, 2), 1).event)
    assert (charged.epsilon, charged.rho) == (Fraction(1, 2), Fraction(1, 8))


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_never_worse_than_the_exponential_mechanism(rate: float) -> None:
    for gains in product(range(0, 10, 3), repeat=4):
        missed = max(gains) - np.array(gains)
        for t in range(1, 10):
            flipped, exponential = (
                ideal(gains, rate)[missed >= t].sum() for ideal in (by_permute_and_flip, by_exponential)
            )
            assert flipped <= exponential + 1e-12


def test_it_is_the_largest_after_exponential_noise() -> None:
    """Two candidates: P[E_1 > gap + E_2] = exp(-rate gap) / 2."""
    assert by_permute_and_flip((0, 3), 0.4)[0] == pytest.approx(exp(-1.2) / 2)
    # m equal ones, and one better: it wins if none of the others survives, and else with a fair share.
    p, m = exp(-0.4), 4
    share = sum(comb(m, k) * p**k * (1 - p) ** (m - k) / (k + 1) for k in range(m + 1))
    assert by_permute_and_flip((0,) * m + (1,), 0.4)[-1] == pytest.approx(share)


def test_a_clear_winner() -> None:
    assert MostFrequent(Fraction(1), 1).sample(np.array([10, 5000, 20, 9000, 7000])) == 3


def test_shortfall_is_kept() -> None:
    counts, mode, draws, level = list(range(0, 400, 4)), MostFrequent(Fraction(1, 2), 1), 200, 0.8
    allowed = mode.shortfall(len(counts), level)
    assert allowed == -(-int(1e9 * log(100 / 0.2) * 2) // 10**9)
    kept = sum(max(counts) - counts[mode.sample(np.array(counts))] < allowed for _ in range(draws))
    assert kept >= level * draws


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0)])
def test_refuses(wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="most frequent"):
        MostFrequent(Fraction(wrong[0]), wrong[1])
    with pytest.raises(ValueError, match="confidence"):
        MostFrequent(Fraction(1), 1).shortfall(10, 1)

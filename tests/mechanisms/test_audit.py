"""Every mechanism, seen from outside, on the neighbours that are worst for it: it never loses more than it claims.

And the audit can see: each planted bug is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, log

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.mechanisms.exponential import QuantileChoice, QuantileFraction, RankWindows, extreme
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.local_sensitivity import AverageSensitivity
from dpsql.mechanisms.permute_and_flip import MostFrequent
from dpsql.mechanisms.propose_test_release import StabilityTest
from dpsql.mechanisms.smooth_sensitivity import SmoothNoise, cauchy, laplace
from dpsql.mechanisms.stable_value import distances
from dpsql.sampling import CryptographicRandomness

Answers = NDArray[np.int64]
Run = Callable[[int], Answers]
CertainEpsilon = Callable[[Answers, Answers, float], float]

REFUSED = -(10**6)
MANY = 200_000
ONE, DELTA = Fraction(1), Fraction(1, 100)


@dataclass(frozen=True)
class Pair:
    """A mechanism on two neighbouring inputs, what it claims, and how many runs the suite can afford."""

    name: str
    here: Run
    there: Run
    epsilon: float
    delta: float = 0.0
    runs: int = MANY

    def __str__(self) -> str:
        return self.name


def quantile(choice: QuantileChoice, data: list[int]) -> Run:
    values, counts = np.unique(data, return_counts=True)

    def run(n: int) -> Answers:
        starts = np.arange(n + 1) * len(values)
        whole = RankWindows(
            np.tile(values, n), np.tile(counts, n), starts, np.zeros(n, dtype=np.int64), np.full(n, len(data))
        )
        return choice.sample(whole)

    return run


def medians(choice: QuantileChoice, epsilon: float, name: str) -> Pair:
    """A wide gap on the right and a narrow one on the left, both as bad; a row on the left makes the difference."""
    data = [3, 3]
    return Pair(name, quantile(choice, data), quantile(choice, [*data, 0]), epsilon)


def mode(epsilon: Fraction, name: str) -> Pair:
    """A tie, and one more vote."""
    source, most_frequent = CryptographicRandomness(), MostFrequent(epsilon, 1)

    def run(counts: list[int]) -> Run:
        return lambda n: np.array([most_frequent.sample(np.array(counts), source) for _ in range(n)])

    return Pair(name, run([8, 8]), run([8, 9]), 1.0, runs=4000)


def released(test: StabilityTest, distance: int, answer: int, noise: LaplaceNoise) -> Run:
    def run(n: int) -> Answers:
        passed = test.passes(np.full(n, distance))
        return np.where(passed, answer + noise.sample(n), REFUSED)

    return run


def unstable(test: StabilityTest, claim: StabilityTest, name: str) -> Pair:
    """Both at distance 0, with answers that are worlds apart, and no noise to hide them."""
    runs = [released(test, 0, answer, LaplaceNoise(Fraction(0))) for answer in (0, 1000)]
    return Pair(name, *runs, float(claim.epsilon), float(claim.delta))


def at_the_threshold(test: StabilityTest, name: str) -> Pair:
    """One step apart where the test turns, with answers that differ by the proposal of 5."""
    noise = LaplaceNoise(5 / ONE)
    runs = [released(test, test.threshold + step, 5 * step, noise) for step in (0, 1)]
    return Pair(name, *runs, float(test.epsilon) + 1, 0.0)


def winners(distance: Callable[[NDArray[np.int64], int], NDArray[np.int64]], name: str) -> Pair:
    """A lead of one unit's votes, which the unit takes away: ties go to the first."""
    test = StabilityTest(Fraction(2), DELTA)

    def run(counts: list[int], winner: int) -> Run:
        lead = np.array([max(counts) - min(counts)])
        return released(test, int(distance(lead, 3)[0]), winner, LaplaceNoise(Fraction(0)))

    return Pair(name, run([0, 3], 1), run([3, 3], 0), 2.0, float(DELTA))


class Remembered(AverageSensitivity):
    """So that a hundred thousand runs on the same data compute their bound once."""

    smooth = cache(AverageSensitivity.smooth)  # type: ignore[assignment]


def smooth(noise: SmoothNoise, epsilon: float, delta: float, name: str) -> Pair:
    """One row at the top of the range, or none."""
    source = CryptographicRandomness()

    def run(rows: int, answer: int) -> Run:
        bounds = Remembered(rows, 1, 0, 100)
        return lambda n: np.array(
            [noise.release(Fraction(answer), bounds, -2000, 2000, source) for _ in range(n)], dtype=np.int64
        )

    return Pair(name, run(1, 100), run(0, 0), epsilon, delta, runs=1000)


def median_choice(epsilon: Fraction) -> QuantileChoice:
    return QuantileChoice(QuantileFraction(1, 2), epsilon, 1, 0, 99)


SOUND = [
    medians(median_choice(ONE), 1.0, "median"),
    medians(median_choice(Fraction(30)), 30.0, "median with a low cap"),
    medians(extreme(ONE, 1, 0, 99, greatest=True), 1.0, "maximum"),
    mode(ONE, "mode"),
    unstable(StabilityTest(ONE, DELTA), StabilityTest(ONE, DELTA), "unstable"),
    at_the_threshold(StabilityTest(ONE, DELTA), "at the threshold"),
    winners(distances, "winners"),
    smooth(cauchy(ONE), 1.0, 0.0, "smooth, Cauchy"),
    smooth(laplace(ONE, DELTA), 1.0, float(DELTA), "smooth, Laplace"),
]


class UnNoisedTest(StabilityTest):
    def passes(self, distances: NDArray[np.int64]) -> NDArray[np.bool_]:
        return distances > self.threshold


class LowThreshold(StabilityTest):
    """Lower by ln 2 / epsilon: twice as many pass."""

    @property
    def threshold(self) -> int:
        return super().threshold - ceil(log(2) / self.epsilon)


def less_noise(noise: SmoothNoise, times: int) -> SmoothNoise:
    return SmoothNoise(noise.kind, times * noise.a, noise.b, noise.event)


PLANTED = [
    medians(median_choice(Fraction(2)), 1.0, "median with half the noise"),
    mode(Fraction(2), "mode with half the noise"),
    unstable(LowThreshold(ONE, DELTA), StabilityTest(ONE, DELTA), "threshold off by ln 2"),
    at_the_threshold(UnNoisedTest(ONE, DELTA), "a test without noise"),
    winners(lambda lead, c: -(-lead // c), "distance to another winner, not to a fragile one"),
    smooth(less_noise(cauchy(ONE), 4), 1.0, 0.0, "Cauchy with a quarter of the noise"),
    smooth(less_noise(laplace(ONE, DELTA), 8), 1.0, float(DELTA), "Laplace with an eighth of the noise"),
]


def audit(pair: Pair, certain_epsilon: CertainEpsilon, runs: int) -> float:
    return certain_epsilon(pair.here(runs), pair.there(runs), pair.delta)


@pytest.mark.parametrize("pair", SOUND, ids=str)
def test_no_more_than_the_claim_is_lost(pair: Pair, certain_epsilon: CertainEpsilon) -> None:
    assert audit(pair, certain_epsilon, pair.runs) <= pair.epsilon


@pytest.mark.long
@pytest.mark.parametrize("pair", [pair for pair in SOUND if pair.runs < MANY], ids=str)
def test_no_more_than_the_claim_is_lost_in_many_runs(pair: Pair, certain_epsilon: CertainEpsilon) -> None:
    assert audit(pair, certain_epsilon, MANY) <= pair.epsilon


@pytest.mark.parametrize("pair", PLANTED, ids=str)
def test_planted_bugs_are_found(pair: Pair, certain_epsilon: CertainEpsilon) -> None:
    assert audit(pair, certain_epsilon, pair.runs) > pair.epsilon


@pytest.mark.long
def test_half_of_the_cauchy_noise_is_found_missing(certain_epsilon: CertainEpsilon) -> None:
    pair = smooth(less_noise(cauchy(ONE), 2), 1.0, 0.0, "Cauchy with half the noise")
    assert audit(pair, certain_epsilon, 50_000) > pair.epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.05), (3.0, 0.0)])
def test_the_audit_comes_close_to_the_truth(epsilon: float, delta: float, certain_epsilon: CertainEpsilon) -> None:
    """Randomized response that gives itself away with probability delta."""
    keep, runs = np.exp(epsilon) / (1 + np.exp(epsilon)), 200_000

    def run(bit: int) -> Answers:
        words = CryptographicRandomness().words(2 * runs).reshape(2, runs) / 2**64
        honest = np.where(words[0] < keep, bit, 1 - bit)
        return np.where(words[1] < delta, 10 + bit, honest)

    found = certain_epsilon(run(0), run(1), delta)
    assert 0.9 * epsilon < found <= epsilon

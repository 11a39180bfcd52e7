"""Amplification by shuffling: against published figures, the closed form, and small surveys that are written out."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpsql.errors import ProgrammingError
from dpsql.local import KaryResponse, shuffled_epsilon
from dpsql.local.estimate import ROUNDING, _clones, _delta, _log_binomial


def test_published_figures() -> None:
    """The authors' own program, for 100 000 people, epsilon 4, delta 1e-6: between 0.16754 and 0.17279."""
    assert 0.1675385 < shuffled_epsilon(4, 100_000, 1e-6) < 0.1727906


@pytest.mark.parametrize(
    ("epsilon", "n", "delta"), [(0.5, 1000, 1e-6), (1, 10**4, 1e-6), (2, 10**5, 1e-8), (4, 10**6, 1e-6)]
)
def test_below_the_closed_form(epsilon: float, n: int, delta: float) -> None:
    """Theorem 3.1 of Feldman, McMillan and Talwar 2021."""
    e = math.exp(epsilon)
    bound = math.log1p((e - 1) / (e + 1) * (8 * math.sqrt(e * math.log(4 / delta) / n) + 8 * e / n))
    assert shuffled_epsilon(epsilon, n, delta) < bound


def divergence(more: np.ndarray, less: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(more - math.exp(epsilon) * less, 0).sum())


@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("local", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("central", [0.0, 0.2, 0.9])
def test_the_sum_over_clones_is_that_of_the_definition(n: int, local: float, central: float) -> None:
    """Clones, their coins and the coin that counts, one by one."""
    t = math.exp(local) / (1 + math.exp(local))
    wanted = 0.0
    for c in range(n):
        heads = stats.binom.pmf(np.arange(c + 2), c, 0.5)
        one_more = np.roll(heads, 1)
        p, q = t * one_more + (1 - t) * heads, (1 - t) * one_more + t * heads
        wanted += stats.binom.pmf(c, n - 1, math.exp(-local)) * divergence(p, q, central)
    assert _delta(central, _clones(local, n)) == pytest.approx(wanted, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("local", [0.5, 1.5])
def test_no_shuffled_survey_loses_more(k: int, local: float) -> None:
    """k-ary response of six people: the histogram of their reports, for all neighbours, against the bound."""
    n = 6
    channel = np.array(KaryResponse(range(k), local).channel, dtype=float)
    clones = _clones(local, n)
    for others in {tuple(sorted(answers)) for answers in product(range(k), repeat=n - 1)}:
        first, second = (histogram(channel, (answer, *others)) for answer in (0, 1))
        for central in (0.05, 0.2, 0.5):
            assert divergence(first, second, central) <= _delta(central, clones)


def histogram(channel: np.ndarray, answers: tuple[int, ...]) -> np.ndarray:
    """How likely each histogram of reports is: a polynomial in as many variables as there are values."""
    k = len(channel)
    masses = np.zeros((len(answers) + 1,) * k)
    masses[(0,) * k] = 1.0
    for answer in answers:
        masses = sum(channel[answer][value] * np.roll(masses, 1, axis=value) for value in range(k))  # type: ignore[assignment]
    return masses


def test_more_people_hide_better_and_never_worse_than_alone() -> None:
    found = [shuffled_epsilon(2.0, n, 1e-6) for n in (1, 10, 1000, 10**5)]
    assert found == sorted(found, reverse=True)
    assert 1.99999 < found[0] <= 2.0
    assert found[-1] < 0.1
    assert shuffled_epsilon(1e-6, 10**4, 1e-6) <= 1e-6
    assert shuffled_epsilon(50, 10**4, 1e-6) == 50


def test_so_do_very_many() -> None:
    """Numbers of people for which factorials would lose the digits that delta is made of."""
    assert shuffled_epsilon(4.0, 10**9, 1e-8) <= shuffled_epsilon(4.0, 10**8, 1e-8) < shuffled_epsilon(4.0, 10**7, 1e-8)


@pytest.mark.parametrize("chance", [0.01, 0.5, 0.9])
def test_chances_have_the_digits_that_rounding_is_said_to_leave(chance: float) -> None:
    n = 10**8
    mean, width = round(n * chance), 10 * math.isqrt(n)
    together = np.exp(_log_binomial(n, np.arange(mean - width, mean + width), chance)).sum()
    assert together == pytest.approx(1, abs=ROUNDING / 100)


def test_clones_in_blocks_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = shuffled_epsilon(3.0, 20_000, 1e-6)
    monkeypatch.setattr("dpsql.local.estimate.BLOCKS", 10**6)
    fine = shuffled_epsilon(3.0, 20_000, 1e-6)
    assert fine <= coarse <= 1.01 * fine


@pytest.mark.parametrize(
    ("epsilon", "n", "delta"),
    [(0, 10, 1e-6), (1, 0, 1e-6), (1, 1.5, 1e-6), (1, 10, 0), (1, 10, 1), (math.nan, 10, 0.1)],
)
def test_mistakes(epsilon: float, n: int, delta: float) -> None:
    with pytest.raises(ProgrammingError):
        shuffled_epsilon(epsilon, n, delta)

"""Estimates are unbiased, their errors are the textbook's, and their intervals hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsql.local import (
    KaryResponse,
    LocalMechanism,
    OptimizedUnaryEncoding,
    RandomizedResponse,
    Rappor,
    SubsetSelection,
    best_for,
)
from dpsql.local.mechanism import on_simplex

SURVEYS, PEOPLE = 2_000, 1_000
TRUTH = np.array([500, 300, 150, 50])
MECHANISMS = [
    KaryResponse(range(4), 1.0),
    OptimizedUnaryEncoding(range(4), 1.0),
    Rappor(range(4), 1.0),
    Rappor(range(4), 3.0, instantaneous=(0.5, 0.75)),
    SubsetSelection(range(4), 0.5),
]


def surveys(mechanism: LocalMechanism, truth: np.ndarray, coins: object) -> list[np.ndarray]:
    """The reports of the same people in many surveys."""
    people = np.repeat(np.arange(len(truth)), truth)
    reports = mechanism.perturb(np.tile(people, SURVEYS), coins)  # type: ignore[arg-type]
    return np.split(reports, SURVEYS)


@pytest.mark.parametrize(
    "mechanism",
    [*MECHANISMS[:2], *(pytest.param(mechanism, marks=pytest.mark.long) for mechanism in MECHANISMS[2:])],
    ids=repr,
)
def test_unbiased_with_the_textbook_variance_and_coverage(mechanism: LocalMechanism, coins: object) -> None:
    found = [mechanism.estimate(reports) for reports in surveys(mechanism, TRUTH, coins)]
    counts = np.array([estimate.counts for estimate in found])
    variance = mechanism.variance(PEOPLE, TRUTH.astype(float))
    # Unbiased: the mean of 2 000 surveys is off by less than 4 of its standard errors.
    assert np.abs(counts.mean(axis=0) - TRUTH) == pytest.approx(0, abs=4 * math.sqrt(variance.max() / SURVEYS))
    # A variance of 2 000 surveys is off by sqrt(2 / 2000) = 3 %, one standard error.
    assert counts.var(axis=0) == pytest.approx(variance, rel=0.12)
    errors = np.array([estimate.standard_errors for estimate in found])
    assert (np.abs(counts - TRUTH) <= 1.959964 * errors).mean() == pytest.approx(0.95, abs=0.01)
    first = found[0].intervals(0.95)
    assert first.count_high.to_numpy() == pytest.approx(counts[0] + 1.959964 * errors[0])


def test_coverage_of_the_two_coin_survey(coins: object) -> None:
    survey, truth = RandomizedResponse.two_coins(), np.array([880, 120])
    people = np.repeat([False, True], truth)
    reports = survey.perturb(np.tile(people, SURVEYS), coins).reshape(SURVEYS, -1)  # type: ignore[arg-type]
    found = [survey.estimate(row) for row in reports]
    covered = [abs(e.counts[1] - 120) <= 1.959964 * e.standard_errors[1] for e in found]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)
    assert np.mean([e.counts[1] for e in found]) == pytest.approx(120, abs=4 * math.sqrt(750 / SURVEYS))


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (8, 1.0), (64, 0.5), (64, 3.0)])
def test_variances_of_wang_and_others(k: int, epsilon: float) -> None:
    """Wang et al. 2017, table 1: the variance of a rare value, over n."""
    n, e = 10_000, math.exp(epsilon)
    assert float(KaryResponse(range(k), epsilon).variance(n, 0)) == pytest.approx(n * (k - 2 + e) / (e - 1) ** 2)
    half = math.exp(epsilon / 2)
    assert float(Rappor(range(k), epsilon).variance(n, 0)) == pytest.approx(n * half / (half - 1) ** 2)
    assert float(OptimizedUnaryEncoding(range(k), epsilon).variance(n, 0)) == pytest.approx(n * 4 * e / (e - 1) ** 2)


def test_best_for_takes_the_least_variance() -> None:
    for k in (2, 3, 5, 10, 40):
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
            best = best_for(range(k), epsilon, n=100)
            kinds = (KaryResponse, SubsetSelection, OptimizedUnaryEncoding, Rappor)
            assert best.total_variance(100) == min(kind(range(k), epsilon).total_variance(100) for kind in kinds)
    assert isinstance(best_for([False, True], 1.0, n=100), KaryResponse)


def test_total_variance_is_the_same_whatever_the_people_say() -> None:
    for mechanism in MECHANISMS:
        for truth in (TRUTH, np.array([1000, 0, 0, 0])):
            total = mechanism.variance(PEOPLE, truth.astype(float)).sum()
            assert total == pytest.approx(mechanism.total_variance(PEOPLE))


def test_projection_is_the_nearest_possible_point() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        counts = generator.normal(20, 60, 5)
        nearest = on_simplex(counts, 100)
        assert nearest.min() >= 0
        assert nearest.sum() == pytest.approx(100)
        others = 100 * generator.dirichlet(np.ones(5), 200)
        assert np.linalg.norm(nearest - counts) <= np.linalg.norm(others - counts, axis=1).min() + 1e-9


def test_projected_estimates_are_better_on_the_whole(coins: object) -> None:
    mechanism = KaryResponse(range(4), 0.5)
    plain = projected = 0.0
    for reports in surveys(mechanism, TRUTH, coins)[:200]:
        plain += ((mechanism.estimate(reports).counts - TRUTH) ** 2).sum()
        found = mechanism.estimate(reports, project=True).counts
        projected += ((found - TRUTH) ** 2).sum()
        assert found.sum() == pytest.approx(PEOPLE)
    assert projected < plain

"""Parts of a budget: they add up, no others do better, and the cases that are known in closed form come out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsql.pipeline.allocate import as_fractions, least_geometric_mean, least_worst_ratio, together

GAUSSIAN, LAPLACE = 1, 2


def apart(measures: int) -> list[tuple[int, int]]:
    """None of them excludes another."""
    return [(number, 0) for number in range(measures)]


def bundles(measures: int) -> list[tuple[int, int]]:
    """Some are alone, some the only measure of a case, and some one of two."""
    return [(number // 5, number % 5 // 2) for number in range(measures)]


def errors(variances: Any, parts: Any, variance_exponent: int) -> Any:
    return (variances / parts**variance_exponent).sum(axis=1)


def geometric_mean(variances: Any, parts: Any, variance_exponent: int, places: Any) -> float:
    return float(np.log(errors(variances, parts, variance_exponent)).mean()) / 2


def worst_ratio(variances: Any, parts: Any, variance_exponent: int, places: Any) -> float:
    """Beside what each column would have alone: roots add up within a case, their powers within a bundle."""
    order = variance_exponent + 1
    alone: Any = 0
    for bundle in {bundle for bundle, _ in places}:
        cases = {case for other, case in places if other == bundle}
        own = [variances[:, [place == (bundle, case) for place in places]] for case in cases]
        alone = alone + sum((part ** (1 / order)).sum(axis=1) ** order for part in own) ** (1 / order)
    return float(np.log(errors(variances, parts, variance_exponent) / alone**order).max()) / 2


@pytest.mark.parametrize("placed", [apart, bundles])
@pytest.mark.parametrize("variance_exponent", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize(
    ("best", "objective", "slack"),
    [(least_geometric_mean, geometric_mean, 1e-6), (least_worst_ratio, worst_ratio, 2e-3)],
)
@pytest.mark.parametrize(("columns", "measures"), [(2, 2), (3, 3), (7, 5), (20, 20)])
def test_no_other_parts_do_better(
    variance_exponent: int,
    best: Callable[..., Any],
    objective: Callable[..., float],
    slack: float,
    columns: int,
    measures: int,
    placed: Callable[[int], list[tuple[int, int]]],
) -> None:
    places = placed(measures)
    rng = np.random.default_rng(columns)
    kept = rng.random((columns, measures)) < 0.4
    variances = rng.exponential(size=(columns, measures)) ** 3 * kept + np.eye(columns, measures) * 1e-3
    variances[:, 0] += 1e-3
    variances *= 10.0 ** rng.integers(-6, 6, size=(columns, 1))  # columns are in units of their own
    found = best(variances, [1] * columns, variance_exponent, places)
    assert together(found, places) == pytest.approx(1)
    for far in (0.001, 0.01, 0.1, 0.5):
        for _ in range(50):
            other = found * np.exp(far * rng.normal(size=measures))
            other /= together(other, places)
            reached = objective(variances, found, variance_exponent, places)
            assert objective(variances, other, variance_exponent, places) >= reached - slack


def test_one_column_of_several_measures() -> None:
    """The whole budget is shared by the square roots (Gaussian) or the cubic roots (Laplace) of what each brings."""
    variances = np.array([[1.0, 64.0]])
    for best in (least_geometric_mean, least_worst_ratio):
        assert best(variances, [1], GAUSSIAN, apart(2)) == pytest.approx([1 / 9, 8 / 9])
        assert best(variances, [1], LAPLACE, apart(2)) == pytest.approx([1 / 5, 4 / 5])


def test_columns_of_their_own_measures_share_by_importance() -> None:
    assert least_geometric_mean(np.diag([1.0, 1e12]), [1, 3], GAUSSIAN, apart(2)) == pytest.approx([1 / 4, 3 / 4])
    # Twice the weight is half the error, which for Gaussian noise is four times the part.
    assert least_worst_ratio(np.diag([1.0, 1e12]), [1, 2], GAUSSIAN, apart(2)) == pytest.approx(
        [1 / 5, 4 / 5], rel=1e-3
    )
    assert least_worst_ratio(np.diag([1.0, 1e12]), [1, 2], LAPLACE, apart(2)) == pytest.approx([1 / 3, 2 / 3], rel=1e-3)


@pytest.mark.parametrize("rows", [2, 5, 20])
def test_a_count_of_units_is_free_beside_a_count_of_rows(rows: int) -> None:
    """docs/proofs/weights.md: rows = (1 + rows)/2 * units + rows counted from the middle."""
    middle, reach = (rows + 1) / 2, (rows - 1) / 2
    variances = np.array([[middle**2, reach**2]])
    parts = least_geometric_mean(variances, [1], GAUSSIAN, apart(2))
    assert math.sqrt(errors(variances, parts, GAUSSIAN)[0]) == pytest.approx(rows)
    assert parts[0] == pytest.approx(middle / rows)


def test_parts_are_fractions_that_add_up_to_one() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 3, 10, 1000):
        parts = rng.exponential(size=size) ** 5
        exact = as_fractions(parts / parts.sum(), apart(size))
        assert sum(exact) == 1
        assert min(exact) > 0
        assert [float(part) for part in exact] == pytest.approx((parts / parts.sum()).tolist(), abs=2e-3)


def test_parts_of_a_bundle_are_those_of_its_largest_case() -> None:
    places = [(0, 0), (0, 0), (0, 1), (1, 0)]
    exact = as_fractions(np.array([0.2, 0.3, 0.4, 0.5]), places)
    assert exact[0] + exact[1] + exact[3] == 1
    assert exact[2] < exact[0] + exact[1]


def test_cases_each_have_what_one_would_have() -> None:
    """k columns that exclude each other: the error of one, whatever k is."""
    for variance_exponent in (GAUSSIAN, LAPLACE):
        for best in (least_geometric_mean, least_worst_ratio):
            parts = best(np.eye(7), [1] * 7, variance_exponent, [(0, case) for case in range(7)])
            assert parts == pytest.approx([1.0] * 7)


@pytest.mark.parametrize("variance_exponent", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("largest", [1.0, 1e37, 1e218, 1e300])
def test_columns_of_any_size_share(largest: float, variance_exponent: int) -> None:
    """However much larger one is, each has the same ratio to what it would be alone."""
    parts = least_worst_ratio(np.array([[largest, 0.0], [0.0, 4.0]]), [1, 1], variance_exponent, apart(2))
    assert parts == pytest.approx([0.5, 0.5], abs=1e-3)

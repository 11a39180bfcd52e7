"""Noise for a box of measures: private for all of them at once, with tails and sums that are known exactly."""

from __future__ import annotations

from fractions import Fraction
from math import comb, exp, log
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import integrate, stats

import dpsql
from dpsql.accounting.filters import filter_named
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.mechanisms import GaussianNoise, KNormNoise, LaplaceNoise, Noise, k_norm
from dpsql.mechanisms.additive import Allowance, Box, Share, joint_part
from dpsql.mechanisms.combined import BoxSum, Combined, half_width, independent
from dpsql.mechanisms.k_norm import KNormMechanism, drawn_together
from dpsql.mechanisms.laplace import LaplaceMechanism

PAIR = Box(2, (0, 0))
NODES, WEIGHTS = ((part + shift) / 2 for part, shift in zip(np.polynomial.legendre.leggauss(40), (1, 0), strict=True))


def cell(scales: tuple[float, float], low: tuple[float, float]) -> float:
    """The probability of a square of side 1: the integral of e^-max(|x|/s, |y|/t) / (2 * 4 s t)."""
    (s, t), (x, y) = scales, low
    values = np.exp(-np.maximum(np.abs(x + NODES)[:, None] / s, np.abs(y + NODES)[None, :] / t)) / (8 * s * t)
    return float(WEIGHTS @ values @ WEIGHTS)


@pytest.mark.parametrize("moved", [(2, 3), (2, -3), (-2, 0), (1, 3), (0, 3)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_no_cell_is_much_likelier_for_a_neighbour(moved: tuple[int, int], epsilon: float) -> None:
    """Bounds of 2 and 3: what one unit moves within the box changes no probability by more than e^epsilon."""
    calibrations, _ = _calibrated(Fraction(epsilon), (1, 1))
    scales = tuple(float(calibration.noise(c).scale) for calibration, c in zip(calibrations, (2, 3), strict=True))  # type: ignore[attr-defined]
    worst = 0.0
    for x in range(-8, 9):
        for y in range(-8, 9):
            here = cell(scales, (x - 0.5, y - 0.5))  # type: ignore[arg-type]
            there = cell(scales, (x - moved[0] - 0.5, y - moved[1] - 0.5))  # type: ignore[arg-type]
            worst = max(worst, abs(log(here / there)))
    assert worst <= epsilon * (1 + 1e-4)
    if 3 in map(abs, moved):
        assert worst >= epsilon * 0.9


def _calibrated(epsilon: Fraction, groups: tuple[int, ...]) -> tuple[list, object]:  # type: ignore[type-arg]
    allowance = Allowance(epsilon, Fraction(0), filter_named("mixed", Fraction(10), Fraction(0)))
    shares = [Share(g, Fraction(1), ((0, -1), i), Box(len(groups), (0, -1, 0))) for i, g in enumerate(groups)]
    return KNormMechanism().calibrate(allowance, shares)


def test_draws_fall_into_cells_as_often_as_they_should() -> None:
    noises: list[Noise] = [KNormNoise(Fraction(2), PAIR), KNormNoise(Fraction(3), PAIR)]
    x, y = drawn_together(noises, 200_000)
    expected, observed = [], []
    for a in range(-4, 5):
        for b in range(-6, 7):
            expected.append(cell((2, 3), (a - 0.5, b - 0.5)) * 200_000)
            observed.append(np.count_nonzero((x == a) & (y == b)))
    rest = 200_000 - sum(expected)
    assert stats.chisquare([*observed, 200_000 - sum(observed)], [*expected, rest], sum_check=False).pvalue > 1e-6


def test_a_box_costs_epsilon_once_and_each_group_a_part() -> None:
    _, event = _calibrated(Fraction(1), (4, 4, 4))
    loss = privacy_loss(event)  # type: ignore[arg-type]
    assert loss.epsilon == 1
    assert float(loss.mu_squared) == pytest.approx(0.3918, abs=1e-3)


@pytest.mark.parametrize("d", [1, 2, 5, 40])
def test_the_standard_deviation_is_less_than_that_of_laplace_noise(d: int) -> None:
    """sqrt((d + 1)(d + 2)/3) against sqrt(2) d."""
    noise = KNormNoise(Fraction(1000), Box(d))
    assert noise.std == pytest.approx(1000 * ((d + 1) * (d + 2) / 3) ** 0.5, rel=1e-6)
    assert noise.std <= LaplaceNoise(Fraction(1000 * d)).std * (1 + 1e-6)
    draws = drawn_together([noise], 200_000)[0].astype(float)
    assert draws.std() == pytest.approx(noise.std, rel=0.02)
    assert np.mean(draws**4) / np.mean(draws**2) ** 2 - 3 == pytest.approx(noise.kurtosis, abs=0.5)


@pytest.mark.parametrize("d", [1, 2, 3, 200])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(4), Fraction(777)])
def test_tails_are_exact_from_above(d: int, scale: Fraction) -> None:
    """The mean of Gamma tails, also where e^-x alone is no float64 any more."""
    noise = KNormNoise(scale, Box(d))
    for t in (1, 2, 10, 1000, 10**6):
        x = (t - 0.5) / float(scale)
        exact = np.mean([stats.gamma.sf(x, n) for n in range(1, d + 1)]) / 2
        if exact > 1e-290:
            assert exact * (1 - 1e-9) <= noise.tail(t) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999, 1 - 1e-9])
@pytest.mark.parametrize(
    ("d", "scales", "weights"), [(2, (100, 40), (1, 1)), (2, (50, 50), (1, -1)), (6, (10, 900), (3, 1))]
)
def test_sums_within_a_box(d: int, scales: tuple[int, int], weights: tuple[int, int], level: float) -> None:
    """Against the integral over |W|, whose density is a trapezium."""
    terms: list[tuple[float, Noise]] = [
        (weight, KNormNoise(Fraction(s), Box(d))) for weight, s in zip(weights, scales, strict=True)
    ]
    a, b = sorted((abs(w) * s for w, s in zip(weights, scales, strict=True)), reverse=True)

    def outside(t: float) -> float:
        def at(w: float) -> float:
            return min(1 / a, (a + b - w) / (2 * a * b)) * float(stats.gamma.sf(t / w, d + 1))

        pieces = [(1e-9, a - b), (a - b, a + b)]
        return sum(integrate.quad(at, *piece, epsrel=1e-9)[0] for piece in pieces if piece[1] > piece[0])

    rounding = sum(abs(weight) for weight in weights) / 2
    found = half_width(terms, level) - rounding
    assert outside(found * 1.0001) <= 1 - level
    assert outside(found * 0.992) >= (1 - level) * 0.999


def test_a_table_for_many_points_is_no_less_than_the_sum_itself() -> None:
    summed = BoxSum(3, (1e6, 3e5, 2e5))
    points = np.exp(np.linspace(3, 17, 500))
    one_by_one = np.concatenate([summed.survival(points[i : i + 50]) for i in range(0, 500, 50)])
    assert (summed.survival(points) >= one_by_one * 0.997 - 1e-12).all()
    assert (summed.survival(points) <= one_by_one * 1.05 + 1e-12).all()


def test_the_kurtosis_of_a_sum() -> None:
    summed = BoxSum(2, (2000.0, 700.0))
    draws = summed.sample(400_000).astype(float)
    assert draws.std() == pytest.approx(summed.std, rel=0.02)
    assert np.mean(draws**4) / np.mean(draws**2) ** 2 - 3 == pytest.approx(summed.kurtosis, abs=0.5)


def test_boxes_are_independent_of_each_other_and_of_other_noise() -> None:
    one, other = KNormNoise(Fraction(100), Box(2, (0,))), KNormNoise(Fraction(100), Box(2, (1,)))
    together, apart = half_width([(1, one), (1, one)], 0.99), half_width([(1, one), (1, other)], 0.99)
    assert together != pytest.approx(apart, rel=0.01)
    draws = drawn_together([one, other], 300_000)
    assert np.quantile(np.abs(draws[0] + draws[1]), 0.99) == pytest.approx(apart, rel=0.03)
    mixed = Combined(((1.0, one), (1.0, GaussianNoise(Fraction(50)))))
    (x, y), z = drawn_together([one, one], 300_000), GaussianNoise(Fraction(50)).sample(300_000)
    assert half_width([(1, mixed), (1, one)], 0.95) == pytest.approx(np.quantile(np.abs(x + y + z), 0.95), rel=0.03)


def test_noise_that_is_nearly_nothing_has_no_width() -> None:
    """Rounding is not noise: at a huge epsilon, answers are exact and said to be."""
    tiny = KNormNoise(Fraction(1, 10**6), PAIR)
    assert half_width([(1, tiny), (250, tiny)], 0.95) == 0
    nothing = KNormNoise(Fraction(0), PAIR)
    merged, rounding = independent([(0.0, tiny), (0.0, tiny), (1.0, nothing), (2.0, nothing)])
    assert sum(weight * noise.std for weight, noise in merged) == rounding == 0
    assert not any(values.any() for values in drawn_together([tiny, KNormNoise(Fraction(0), PAIR)], 1000))


def test_a_box_of_one_is_laplace_noise() -> None:
    for t in (1, 5, 50):
        x = (t - 0.5) / 10
        assert KNormNoise(Fraction(10), Box()).tail(t) == pytest.approx(exp(-x) / 2, rel=1e-9)


def test_a_larger_box_has_one_part() -> None:
    shares = [Share(3, Fraction(1, 2), ((0, -1), i), Box(4, (0, -1, 0))) for i in range(4)]
    assert joint_part([*shares, Share(3, Fraction(1, 2))]) == 1


@pytest.mark.parametrize("d", range(1, 8))
def test_width_compares_with_laplace_noise(d: int) -> None:
    """The ratio of variances to that of Laplace noise with the same part."""
    assert KNormMechanism().width(d) == pytest.approx(comb(d + 2, 2) / 3)
    assert LaplaceMechanism().width(d) == 1


def test_measures_with_the_same_noise_sum_its_deviation_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few steps over a large box it takes milliseconds, and each of 500 averages used to do it seven times."""
    asked = []
    series = k_norm.gamma_series
    monkeypatch.setattr(k_norm, "gamma_series", lambda *given: asked.append(len(given[0])) or series(*given))
    columns: dict[str, Any] = {f"c{number}": {"type": "double", "bounds": [0, 600]} for number in range(40)}
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE t AS SELECT i AS u, "
        + ", ".join(f"i::DOUBLE AS {name}" for name in columns)
        + " FROM range(9) r(i)"
    )
    schema = {"tables": {"t": {"unit": "u", "unique": True, "columns": {"u": "integer", **columns}}}}
    with dpsql.connect(raw, schema=schema, budget=100) as session:
        session.execute(f"SELECT {', '.join(f'AVG({name})' for name in columns)} FROM t", epsilon=50, mechanism="knorm")
    assert max(asked) > 40
    assert len(asked) <= 10

"""Error bars of weighted sums of noises, against exact convolutions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsql.mechanisms import GaussianNoise, LaplaceNoise, Noise
from dpsql.mechanisms.combined import half_width

# Integer weights, so that the sum lives on the integers and can be convolved exactly.
SUMS: list[list[tuple[int, Noise]]] = [
    [(1, LaplaceNoise(Fraction(10))), (1, LaplaceNoise(Fraction(10)))],
    [(1, LaplaceNoise(Fraction(40))), (-7, LaplaceNoise(Fraction(3)))],
    [(1, LaplaceNoise(Fraction(20))), (2, GaussianNoise(Fraction(30)))],
    [(3, GaussianNoise(Fraction(1, 2))), (1, GaussianNoise(Fraction(2)))],
    [(1, GaussianNoise(Fraction(200))), (1, GaussianNoise(Fraction(300)))],
    [(100, LaplaceNoise(Fraction(1, 4))), (1, LaplaceNoise(Fraction(5)))],
    [(1, LaplaceNoise(Fraction(30))), (5, GaussianNoise(Fraction(9))), (2, LaplaceNoise(Fraction(11)))],
]


def exact_half_width(terms: list[tuple[int, Noise]], level: float) -> int:
    total = np.ones(1)
    for weight, noise in terms:
        reach = noise.half_width(1 - 1e-13)
        beyond = noise.survival(np.arange(1.0, reach + 2))
        side = beyond[:-1] - beyond[1:]
        pmf = np.concatenate([side[::-1], [1 - 2 * beyond[0]], side])
        stretched = np.zeros((len(pmf) - 1) * abs(weight) + 1)
        stretched[:: abs(weight)] = pmf
        total = np.convolve(total, stretched)
    middle = len(total) // 2
    outside = 2 * np.cumsum(total[::-1])[: middle + 1][::-1]
    # outside[t] = P[|S| >= t]
    return int(np.flatnonzero(np.append(outside, 0)[1:] <= 1 - level)[0])


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("terms", SUMS, ids=str)
def test_sums_of_noises(terms: list[tuple[int, Noise]], level: float) -> None:
    exact = exact_half_width(terms, level)
    assert exact <= half_width(terms, level) <= exact * 1.006


def test_one_term_is_its_own() -> None:
    for noise in (LaplaceNoise(Fraction(7)), GaussianNoise(Fraction(7))):
        assert half_width([(-0.25, noise)], 0.95) == 0.25 * noise.half_width(0.95)
        with_idle = [(0.25, noise), (0.0, noise), (3.0, LaplaceNoise(Fraction(0)))]
        assert half_width(with_idle, 0.95) == 0.25 * noise.half_width(0.95)


def test_nothing_noisy_has_no_width() -> None:
    assert half_width([], 0.95) == 0
    assert half_width([(2.0, LaplaceNoise(Fraction(0))), (1.0, GaussianNoise(Fraction(0)))], 0.95) == 0


def test_gaussians_add_up_as_normals() -> None:
    terms = [(0.5, GaussianNoise(Fraction(6000))), (2.0, GaussianNoise(Fraction(2000)))]
    normal = 5000 * stats.norm.isf(0.025)
    assert normal <= half_width(terms, 0.95) <= normal * 1.005


def test_wide_noises_with_any_weights() -> None:
    """Continuous Laplace plus normal, from the closed form of their sum's distribution."""
    b, s = 2.0**30, 2.0**29
    terms = [(0.1, LaplaceNoise(Fraction(2**30))), (0.1, GaussianNoise(Fraction(2**29)))]
    t = half_width(terms, 0.95) / 0.1

    def beyond(x: float) -> float:
        up = np.exp(s**2 / (2 * b**2) - x / b) * stats.norm.cdf(x / s - s / b)
        down = np.exp(s**2 / (2 * b**2) + x / b) * stats.norm.sf(x / s + s / b)
        return float(2 * (stats.norm.sf(x / s) + (up - down) / 2))

    assert beyond(t) <= 0.05 <= beyond(t / 1.005)


def test_levels_next_to_one_are_safe() -> None:
    noise = LaplaceNoise(Fraction(10))
    t = half_width([(1.0, noise), (1.0, noise)], 1 - 2.0**-53)
    assert noise.half_width(1 - 2.0**-53) <= t <= 3 * noise.half_width(1 - 2.0**-53)


def test_concentrated_noises() -> None:
    noise = LaplaceNoise(Fraction(1, 100))
    assert 0 <= half_width([(1.0, noise), (1.0, noise)], 0.95) < 0.01


@pytest.mark.parametrize("scale", [1, 1000, 10**12])
def test_the_grid_is_as_fine_for_every_noise(scale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it takes some milliseconds, whatever the noise."""
    sizes: list[int] = []
    rfft = np.fft.rfft

    def spied(masses: NDArray[np.float64], size: int) -> NDArray[np.complex128]:
        sizes.append(size)
        return rfft(masses, size)

    monkeypatch.setattr(np.fft, "rfft", spied)
    half_width([(1.0, LaplaceNoise(Fraction(scale))), (0.3, GaussianNoise(Fraction(scale)))], 0.95)
    assert sizes == [2**15] * 2

"""Replicas of noise: in every row all quantiles once, in another order, and together what the mechanism draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.additive import Box, Noise
from dpsql.mechanisms.bootstrap import REPLICATES, bootstrap_interval, quantiles, redrawn
from dpsql.mechanisms.combined import Combined
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.k_norm import KNormNoise, drawn_together
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.sampling import RepeatableRandomness

NOISES = (
    LaplaceNoise(Fraction(3)),
    LaplaceNoise(Fraction(1, 10)),
    LaplaceNoise(Fraction(2**50)),
    GaussianNoise(Fraction(17)),
    KNormNoise(Fraction(10), Box(3)),
)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_quantiles_are_half_widths(noise: Noise) -> None:
    found = quantiles(noise)
    assert len(found) == REPLICATES == 199
    assert found[-5] == pytest.approx(noise.half_width(0.95), rel=1e-9) == -found[4]
    assert found[-50] == pytest.approx(noise.half_width(0.5), rel=1e-9) == -found[49]
    assert found[99] == 0
    assert np.all(np.diff(found) >= 0)


@pytest.mark.parametrize("noise", [NOISES[0], NOISES[3], NOISES[4]], ids=str)
def test_the_outermost_stand_for_the_tails(noise: Noise) -> None:
    assert np.std(quantiles(noise)) == pytest.approx(noise.std, rel=1e-6)


def test_every_row_has_all_quantiles_in_an_order_of_its_own() -> None:
    (drawn,) = redrawn([NOISES[0]], 20, RepeatableRandomness(b"seed"))
    assert drawn.shape == (REPLICATES, 20)
    assert np.array_equal(np.sort(drawn, axis=0), np.tile(quantiles(NOISES[0])[:, None], 20))
    assert not np.array_equal(drawn[:, 0], drawn[:, 1])


def test_the_same_seed_draws_the_same() -> None:
    once, again, other = (redrawn([NOISES[3]], 5, RepeatableRandomness(seed))[0] for seed in (b"a", b"a", b"b"))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_noises_of_a_box_keep_their_radius() -> None:
    """Both are large at once as often as where the mechanism draws them; those of other boxes are not."""
    box = Box(2)
    noises = [KNormNoise(Fraction(100), box), KNormNoise(Fraction(300), box), KNormNoise(Fraction(100), Box(2, (1,)))]
    together = [np.abs(draws).ravel() for draws in redrawn(noises, 500, RepeatableRandomness(b"box"))]
    drawn = [np.abs(draws) for draws in drawn_together(noises[:2], 100_000)]
    expected = np.corrcoef(drawn[0], drawn[1])[0, 1]
    assert np.corrcoef(together[0], together[1])[0, 1] == pytest.approx(expected, abs=0.05)
    assert abs(np.corrcoef(together[0], together[2])[0, 1]) < 0.02


def test_what_several_noises_made_is_their_sum() -> None:
    combined = Combined(((2.0, NOISES[0]), (1.0, NOISES[3])))
    (drawn,) = redrawn([combined], 200, RepeatableRandomness(b"sum"))
    assert np.std(drawn) == pytest.approx(combined.std, rel=0.02)


# -- the interval around a value that was computed again and again over other noise ------------------------------------

EVENLY = np.arange(-99.0, 100.0)
WITH_ONE_FAR = np.append(EVENLY[:-1], 1000.0)


@pytest.mark.parametrize(("scale", "is_known"), [(1.0, False), (1e-3, False), (1e-12, True)])
def test_one_far_replica_tells_of_a_divisor_near_0_unless_it_is_next_to_the_value(scale: float, is_known: bool) -> None:
    assert (bootstrap_interval(50.0, 50 + scale * WITH_ONE_FAR, 0.95) is not None) is is_known
    assert bootstrap_interval(50.0, 50 + scale * EVENLY, 0.95) is not None


def test_so_little_noise_still_has_its_width() -> None:
    far, evenly = (bootstrap_interval(50.0, 50 + 1e-12 * drawn, 0.95) or () for drawn in (WITH_ONE_FAR, EVENLY))
    assert np.subtract(far, 50) == pytest.approx(np.subtract(evenly, 50), rel=1e-3)

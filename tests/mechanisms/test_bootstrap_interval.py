"""The interval around a value that was computed again and again over other noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.mechanisms.bootstrap import bootstrap_interval

EVENLY = np.arange(-99.0, 100.0)
WITH_ONE_FAR = np.append(EVENLY[:-1], 1000.0)


@pytest.mark.parametrize(("scale", "is_known"), [(1.0, False), (1e-3, False), (1e-12, True)])
def test_one_far_replica_tells_of_a_divisor_near_0_unless_it_is_next_to_the_value(scale: float, is_known: bool) -> None:
    assert (bootstrap_interval(50.0, 50 + scale * WITH_ONE_FAR, 0.95) is not None) is is_known
    assert bootstrap_interval(50.0, 50 + scale * EVENLY, 0.95) is not None


def test_so_little_noise_still_has_its_width() -> None:
    far, evenly = (bootstrap_interval(50.0, 50 + 1e-12 * drawn, 0.95) or () for drawn in (WITH_ONE_FAR, EVENLY))
    assert np.subtract(far, 50) == pytest.approx(np.subtract(evenly, 50), rel=1e-3)

"""How far a private median of skewed data is from the true one: log-normal amounts of 100,000 people, from 0 to 10^6.

    python benchmarks/bench_quantiles.py

Ends with code 1 when a target is missed. Errors are medians over repeated releases; OpenDP chooses among 10,000 evenly
spaced candidates, which is as many as it does in a second.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import opendp.prelude as opendp

from dpsql.mechanisms.exponential import QuantileChoice, QuantileFraction, RankWindows
from dpsql.mechanisms.laplace import calibrated
from dpsql.mechanisms.local_sensitivity import order_statistic, smooth_reach, target_rank
from dpsql.mechanisms.smooth_sensitivity import SmoothNoise, cauchy, laplace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

PEOPLE, LOW, HIGH = 100_000, 0, 10**6
RELEASES = 25
CANDIDATES = 10_000
MEDIAN = QuantileFraction(1, 2)

TIMES_BETTER_THAN_CLIPPING = 10  # at least


def by_exponential(data: NDArray[np.int64], epsilon: Fraction) -> int:
    choice = QuantileChoice(MEDIAN, epsilon, 1, LOW, HIGH)
    below = max(len(data) // 2 - choice.reach, 0)
    values, counts = np.unique(data[below : (len(data) + 1) // 2 + choice.reach], return_counts=True)
    ends, rows = np.array([0, len(values)]), np.array([len(data)])
    return int(choice.sample(RankWindows(values, counts, ends, np.array([below]), rows))[0])


def by_smooth(data: NDArray[np.int64], noise: SmoothNoise) -> int:
    target = int(target_rank(MEDIAN, np.array([len(data)]))[0])
    bounds = order_statistic(data, 1, len(data), target, smooth_reach(noise.b, LOW, HIGH), 1, LOW, HIGH)
    return noise.release(Fraction(int(data[target - 1])), bounds, LOW, HIGH)


def by_clipping(data: NDArray[np.int64], epsilon: Fraction) -> int:
    """The median as if one person could move it through the whole range, which on other data they could."""
    noisy = int(np.median(data)) + int(calibrated(HIGH - LOW, epsilon).sample(1)[0])
    return min(max(noisy, LOW), HIGH)


def by_opendp(epsilon: float) -> Callable[[NDArray[np.int64]], int]:
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.symmetric_distance()
    candidates = np.linspace(LOW, HIGH, CANDIDATES).astype(int).tolist()
    # A median's score moves by 1/2 with each person, either way.
    release = opendp.m.make_private_quantile(*space, opendp.max_divergence(), candidates, 0.5, 1 / epsilon)
    assert release.map(1) <= epsilon * (1 + 1e-9)
    return lambda data: int(release(data.tolist()))


def error_and_time(release: Callable[[], int], truth: int) -> tuple[float, float]:
    errors, times = [], []
    for _ in range(RELEASES):
        started = perf_counter()
        errors.append(abs(release() - truth))
        times.append(perf_counter() - started)
    return median(errors), median(times) * 1000


def main() -> int:
    opendp.enable_features("contrib")
    drawn = np.random.default_rng(7).lognormal(np.log(3000), 1.2, PEOPLE)
    data = np.sort(np.clip(drawn, LOW, HIGH).astype(np.int64))
    truth, met = int(np.median(data)), True
    print(f"true median {truth}; median error and milliseconds of {RELEASES} releases")
    print("epsilon   exponential   smooth, Cauchy   smooth, Laplace 1e-6        OpenDP      clipping")
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(3)):
        pure, with_delta, theirs = cauchy(epsilon), laplace(epsilon, Fraction(1, 10**6)), by_opendp(float(epsilon))
        found = [
            error_and_time(lambda e=epsilon: by_exponential(data, e), truth),  # type: ignore[misc]
            error_and_time(lambda n=pure: by_smooth(data, n), truth),  # type: ignore[misc]
            error_and_time(lambda n=with_delta: by_smooth(data, n), truth),  # type: ignore[misc]
            error_and_time(lambda t=theirs: t(data), truth),  # type: ignore[misc]
            error_and_time(lambda e=epsilon: by_clipping(data, e), truth),  # type: ignore[misc]
        ]
        print(f"{float(epsilon):>7g}" + "".join(f"{error:>10.0f} {time:>5.0f}" for error, time in found))
        ours, others = found[0][0], found[3][0]
        met &= ours <= others and ours * TIMES_BETTER_THAN_CLIPPING <= found[4][0]
    print("targets met" if met else "targets MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

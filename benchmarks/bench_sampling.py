"""What exact, cryptographic noise costs: a million draws, next to numpy's unsafe generators and OpenDP's samplers.

    python benchmarks/bench_sampling.py

Ends with code 1 when a target is missed. The contenders take turns, so that a busy moment of the machine hits them all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import opendp.prelude as opendp

from dpsql.sampling import discrete_laplace, rounded_gaussian

if TYPE_CHECKING:
    from collections.abc import Callable

DRAWS = 1_000_000
OPENDP_DRAWS = 10_000
REPETITIONS = 11

TIMES_NUMPY = {"laplace": 4.0, "gaussian": 5.0}  # at most
TIMES_FASTER_THAN_OPENDP = 50.0  # at least


@dataclass(frozen=True)
class Contest:
    noise: str
    scale: int
    ours: Callable[[], object]
    numpy: Callable[[], object]
    opendp: Callable[[], object]


def contests(scale: int) -> list[Contest]:
    generator = np.random.default_rng()
    integers = opendp.vector_domain(opendp.atom_domain(T=int))
    laplace = opendp.m.make_laplace(integers, opendp.l1_distance(T=int), float(scale))
    gaussian = opendp.m.make_gaussian(integers, opendp.l2_distance(T=float), float(scale))
    zeros = [0] * OPENDP_DRAWS
    return [
        Contest(
            "laplace",
            scale,
            lambda: discrete_laplace(Fraction(scale), DRAWS),
            lambda: np.rint(generator.laplace(0, scale, DRAWS)).astype(np.int64),
            lambda: laplace(zeros),
        ),
        Contest(
            "gaussian",
            scale,
            lambda: rounded_gaussian(Fraction(scale), DRAWS),
            lambda: np.rint(generator.normal(0, scale, DRAWS)).astype(np.int64),
            lambda: gaussian(zeros),
        ),
    ]


def milliseconds(draw: Callable[[], object]) -> float:
    started = perf_counter()
    draw()
    return (perf_counter() - started) * 1000


def run(contest: Contest) -> bool:
    """Print a line of the table; true if both targets are met."""
    rounds = [[milliseconds(f) for f in (contest.ours, contest.numpy, contest.opendp)] for _ in range(REPETITIONS)]
    ours, numpy, theirs = (median(times) for times in zip(*rounds, strict=True))
    theirs *= DRAWS / OPENDP_DRAWS
    met = ours <= TIMES_NUMPY[contest.noise] * numpy and theirs >= TIMES_FASTER_THAN_OPENDP * ours
    print(
        f"{contest.noise:<9}{contest.scale:>9}{ours:>10.1f}{numpy:>10.1f}{theirs:>11.0f}"
        f"{ours / numpy:>9.2f} x{theirs / ours:>11.0f} x   {'met' if met else 'MISSED'}"
    )
    return met


def main() -> int:
    opendp.enable_features("contrib")
    print(f"{DRAWS} draws, milliseconds (median of {REPETITIONS}); OpenDP scaled up from {OPENDP_DRAWS}")
    print("noise        scale     dpsql     numpy     OpenDP   to numpy    vs OpenDP   targets")
    results = [run(contest) for scale in (1000, 2**20) for contest in contests(scale)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What it costs to randomise ten million answers of a domain of ten values: CPU seconds, and memory beyond the reports.

    python benchmarks/bench_local.py

Ends with code 1 when a target is missed.
"""

from __future__ import annotations

import sys
import tracemalloc
from time import process_time
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpsql.local import KaryResponse, Mechanism, OptimizedUnaryEncoding, Rappor, SubsetSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANSWERS = 10_000_000
SECONDS = 3.0  # at most
EXTRA_MEMORY = 64 * 2**20  # at most, in bytes

NAMES = [f"answer {number}" for number in range(10)]


def run(mechanism: Mechanism, answers: NDArray[np.object_] | NDArray[np.int64], what: str) -> bool:
    """Print a line of the table; true if both targets are met."""
    started = process_time()
    reports = mechanism.perturb(answers)
    seconds = process_time() - started
    started = process_time()
    mechanism.estimate(reports)
    estimating = process_time() - started
    del reports
    tracemalloc.start()
    reports = mechanism.perturb(answers)
    extra = tracemalloc.get_traced_memory()[1] - reports.nbytes
    tracemalloc.stop()
    met = seconds <= SECONDS and extra <= EXTRA_MEMORY
    print(
        f"{mechanism.name:<8}{what:<8}{seconds:>9.2f}{estimating:>10.2f}{reports.nbytes / 2**20:>10.0f}"
        f"{extra / 2**20:>10.1f}   {'met' if met else 'MISSED'}"
    )
    return met


def main() -> int:
    codes = np.random.default_rng().integers(0, 10, ANSWERS)
    texts = np.array(NAMES, dtype=object)[codes]
    pd.Index(["load", "pandas"])
    print(f"{ANSWERS:,} answers of 10 values, epsilon 1; CPU seconds, and memory in MB")
    print("         values    perturb  estimate   reports     extra   targets")
    kinds = (KaryResponse, OptimizedUnaryEncoding, Rappor, SubsetSelection)
    results = [run(kind(range(10), 1.0), codes, "integer") for kind in kinds]
    results.append(run(KaryResponse(NAMES, 1.0), texts, "text"))
    results.append(run(Rappor(range(10), 2.0, instantaneous=(0.5, 0.75)), codes, "integer"))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""How long a durable charge takes, and looking at a long ledger.

    python benchmarks/bench_ledger.py

Ends with code 1 when a goal is missed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.accounting import curves
from dpsql.accounting.events import Gaussian, PureRelease
from dpsql.accounting.ledger.journal import Journal, Record
from dpsql.accounting.ledger.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRIES = 100_000
EVENT = Gaussian(Fraction(1000))


def median_ms(action: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def charge(ledger: Ledger) -> None:
    ledger.charge(PureRelease(Fraction(1, 1000)), sql="SELECT COUNT(*) FROM orders", fingerprint="f", epsilon="0.001")


def fill(ledger: Ledger) -> None:
    """In one transaction, so that the benchmark does not spend its time waiting for the disk."""
    record = Record(
        dataset="shop",
        analyst=None,
        state="charged",
        epsilon=Fraction(1, 100),
        fingerprint="f",
        sql="SELECT 1",
        event=EVENT,
    )
    with ledger._file.writing() as connection:
        book = Journal(connection)
        for _ in range(ENTRIES // 2):
            charged = book.append(record)
            # A charge whose end nobody recorded would count as failed, and suspend the account.
            book.append(Record(dataset="shop", analyst=None, state="released", charge=charged.number, fingerprint="f"))


def look(path: Path) -> str:
    """Opens the ledger and explains its budget, as a new process would: nothing is remembered from before."""
    for remembered in (curves.mu_for, curves.gaussian_epsilon_at, curves.mu_of_pure):
        remembered.cache_clear()
    ledger = Ledger.open(path, dataset="shop")
    words = str(ledger.budget)
    ledger.close()
    return words


def measure(folder: Path) -> list[tuple[str, float, float]]:
    short = Ledger.open(folder / "short.ledger", dataset="shop", epsilon=100, delta=1e-6)
    rows = [("durable charge, median of 300", median_ms(lambda: charge(short), 300), 5.0)]
    short.close()
    path = folder / "long.ledger"
    long = Ledger.open(path, dataset="shop", epsilon=100, delta=1e-6)
    fill(long)
    rows.append((f"durable charge after {ENTRIES:,} entries", median_ms(lambda: charge(long), 100), 5.0))
    long.close()
    rows.append((f"open and explain {ENTRIES:,} entries", median_ms(lambda: look(path), 15), 50.0))
    return rows


def main() -> int:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        rows = measure(Path(folder))
    print(f"{'':44} {'ms':>8} {'goal':>8}")
    for what, took, goal in rows:
        print(f"{what:44} {took:8.2f} {goal:8.0f} {'' if took < goal else '  missed'}")
    return 0 if all(took < goal for _, took, goal in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

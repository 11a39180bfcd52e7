"""Asks a PostgreSQL and a Spark of our own every question of the tests, and fails where one differs from DuckDB.

python benchmarks/certify_engines.py [postgresql] [spark] [one question in how many]
"""

from __future__ import annotations

import runpy
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.cli.app import main

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1] / "tests" / "engines"


@contextmanager
def postgresql() -> Iterator[str]:
    with runpy.run_path(str(TESTS / "postgresql_cluster.py"))["cluster"]() as url:
        yield url


@contextmanager
def spark() -> Iterator[str]:
    with runpy.run_path(str(TESTS / "spark_session.py"))["session"]() as (_, url):
        yield url


def certified(url: str, every: str) -> bool:
    try:
        main(["certify", "--engine", url, "--every", every])
    except SystemExit as ended:
        return not ended.code
    return True


def run(names: list[str], every: str) -> int:
    results = []
    for engine in (postgresql, spark):
        if not names or engine.__name__ in names:
            print(f"== {engine.__name__}", flush=True)
            with engine() as url:
                results.append(certified(url, every))
    return 0 if all(results) else 1


if __name__ == "__main__":
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    sys.exit(run([word for word in sys.argv[1:] if not word.isdigit()], numbers[0] if numbers else "1"))

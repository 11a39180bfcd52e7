"""Asks a PostgreSQL and a Spark of our own every question of the tests, and fails where one differs from DuckDB."""

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


if __name__ == "__main__":
    results = []
    for engine in (postgresql, spark):
        print(f"== {engine.__name__}", flush=True)
        with engine() as url:
            results.append(certified(url, sys.argv[1] if len(sys.argv) > 1 else "1"))
    sys.exit(0 if all(results) else 1)

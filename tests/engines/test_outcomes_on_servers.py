"""Nobody's row can change how a question ends, on PostgreSQL and Spark either: the questions of test_outcomes.py.

One person's rows are as odd as rows can be. By hand, as many pairs as one likes, and from which on:

    DPSQL_PAIRS=100 DPSQL_FIRST=0 python -m pytest tests/engines/test_outcomes_on_servers.py
"""

from __future__ import annotations

import itertools
import os
import random
import re
import runpy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.verification.certify import PREFIX, target

outcomes = runpy.run_path(str(Path(__file__).parents[1] / "whole" / "test_outcomes.py"))
PAIRS, FIRST = int(os.environ.get("DPSQL_PAIRS", "1")), int(os.environ.get("DPSQL_FIRST", "0"))
TABLES: dict[str, dict[str, str]] = outcomes["TABLES"]
Tables = dict[str, list[tuple[object, ...]]]
Opener = Callable[[Tables, random.Random, Path], tuple[str, dict[str, Any]]]


def in_postgresql(url: str, stack: ExitStack) -> Opener:
    import psycopg

    from dpsql.engines.postgresql.engine import TYPES_OF_DUCKDB

    numbers = itertools.count()

    def opened(tables: Tables, rng: random.Random, folder: Path) -> tuple[str, dict[str, Any]]:
        place = stack.enter_context(target(url).place(f"{PREFIX}pair_{next(numbers)}"))
        with psycopg.connect(place, autocommit=True) as connection:
            for name, rows in tables.items():
                columns = ", ".join(f"{column} {kind}" for column, kind in TABLES[name].items())
                for theirs, ours in TYPES_OF_DUCKDB.items():
                    columns = re.sub(theirs, ours, columns)
                connection.execute(f"CREATE TABLE {name} ({columns})".encode())
                with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row([spelled(value) for value in row])
        return place, {}

    return opened


def spelled(value: object) -> str | None:
    """PostgreSQL's first day is later than DuckDB's."""
    return None if value is None else str(value).replace("5000-01-01 (BC)", "4713-01-01 BC")


def in_spark(url: str, stack: ExitStack) -> Opener:
    numbers = itertools.count()

    def opened(tables: Tables, rng: random.Random, folder: Path) -> tuple[str, dict[str, Any]]:
        place = stack.enter_context(target(url).place(f"{PREFIX}pair_{next(numbers)}"))
        with outcomes["filled"](duckdb.connect(), tables) as model:
            target(url).fill(place, "", tables, model)
        return place, {}

    return opened


SERVERS = {"postgresql_url": in_postgresql, "spark_url": in_spark}


@pytest.fixture(
    scope="module", params=["postgresql_url", pytest.param("spark_url", marks=[pytest.mark.spark, pytest.mark.long])]
)
def opener(request: pytest.FixtureRequest) -> Iterator[Opener]:
    url = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        yield SERVERS[request.param](url, stack)


def test_no_row_changes_how_a_question_ends(opener: Opener, tmp_path: Path) -> None:
    findings = outcomes["Findings"]()
    for number in range(FIRST, FIRST + PAIRS):
        outcomes["look"](number, tmp_path, findings, questions=12, source=opener)
    assert not findings.faults, "\n".join(findings.faults[:5])
    assert findings.answered > findings.asked // 10, "most questions were refused: this shows nothing"


def test_attacks_end_alike(opener: Opener, tmp_path: Path) -> None:
    with outcomes["opened"](0, tmp_path, opener) as pair:
        assert pair is not None
        for name, question in outcomes["ATTACKS"].items():
            both = [outcomes["asked"](connection, question) for connection in (pair.full, pair.less)]
            assert not list(outcomes["differences"](*both)), name

"""Which strategy bounds what a unit adds, and that there are no more than five."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.aggregates.strategies import STRATEGIES, Strategy

PROOFS = Path(__file__).parents[2] / "docs" / "proofs"
WARDS = [f"w{number}" for number in range(20)]
SCHEMA: dict[str, Any] = {
    "dataset": "wards",
    "contribution": {"max_groups": 3, "max_rows_per_group": 2},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "text", "values": WARDS},
                "doctor": "text",
                "cost": {"type": "double", "bounds": [0, 100]},
            },
        },
        "people": {"unit": "id", "unique": True, "columns": {"id": "integer", "town": "text"}},
    },
}
COUNTS = "SELECT ward, COUNT(*), SUM(cost) FROM visits GROUP BY ward"
ASKED: list[tuple[str, dict[str, Any], str | None]] = [
    ("SELECT town, COUNT(*) FROM people GROUP BY town", {}, "one row per unit"),
    ("SELECT COUNT(DISTINCT person) FROM visits", {}, "all groups kept"),
    ("SELECT COUNT(*) FROM visits", {}, "all groups kept"),
    (COUNTS, {"max_groups": 20}, "all groups kept"),
    (COUNTS, {}, "ranked groups"),
    ("SELECT doctor, COUNT(*) FROM visits GROUP BY doctor", {}, "ranked groups"),
    (COUNTS, {"max_groups": 1}, "down-weighted rows"),
    (COUNTS, {"bounding": "l2_clip"}, "L2-clipped"),
    ("SELECT ward, MEDIAN(cost) FROM visits GROUP BY ward", {}, None),
    ("SELECT ward, COUNT(DISTINCT doctor) FROM visits GROUP BY ward", {}, None),
]


@pytest.fixture(scope="module")
def conn() -> Iterator[dpsql.Connection]:
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE visits (person BIGINT, ward VARCHAR, doctor VARCHAR, cost DOUBLE)")
        raw.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, town VARCHAR)")
        with dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6) as session:
            yield session


@pytest.mark.parametrize(("sql", "options", "strategy"), ASKED)
def test_explain_names_it(conn: dpsql.Connection, sql: str, options: dict[str, Any], strategy: str | None) -> None:
    found = conn.explain(sql, **options)
    assert found.releases[0].strategy == strategy
    assert (f"strategy   {strategy}" in str(found)) == (strategy is not None)


def test_there_are_five() -> None:
    names = [strategy.name for strategy in STRATEGIES]
    assert len(names) == len(set(names)) == 5
    assert set(names) == {strategy for _, _, strategy in ASKED if strategy is not None}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_each_names_its_proof(strategy: Strategy) -> None:
    proof, passage = re.findall(r"docs/proofs/(\w+\.md)(?:, \"(.*)\")?\.$", strategy.__doc__ or "", re.MULTILINE)[0]
    assert passage in (PROOFS / proof).read_text(encoding="utf-8")

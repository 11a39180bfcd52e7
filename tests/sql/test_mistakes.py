"""What newcomers get wrong is refused with what they need to know, and the way out that the hint names is open.

tests/sql/mistakes.txt has the queries, the whole messages, and for each the query that follows the hint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql

BOUNDED_DAY = {"type": "date", "bounds": ["2024-01-01", "2025-12-31"]}
SCHEMA: dict[str, Any] = {
    "contribution": {"max_groups": 3, "max_rows_per_group": 3},
    "tables": {
        "patients": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "age": {"type": "integer", "bounds": [0, 120]}, "smoker": "boolean"},
        },
        "visits": {
            "unit": "patient_id",
            "columns": {
                "visit_id": "integer",
                "patient_id": "integer",
                "department": {"type": "text", "values": ["Cardiology", "Emergency Room", "Neurology"]},
                "cost": {"type": "double", "bounds": [0, 800]},
                "day": BOUNDED_DAY,
                "arrived": "timestamp",
                "urgent": "boolean",
                "code": "text",
                "score": "integer",
            },
        },
        "tests": {
            "unit": {"through": "visit_id", "to": "visits.visit_id"},
            "columns": {"visit_id": "integer", "kind": "text"},
        },
        "wards": {"public": True, "columns": {"department": "text", "floor": "integer"}},
    },
}


def hospital() -> duckdb.DuckDBPyConnection:
    """Empty: what is said of a query follows from the declarations alone."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE patients (id INTEGER, age INTEGER, smoker BOOLEAN)")
    raw.execute(
        "CREATE TABLE visits (visit_id INTEGER UNIQUE, patient_id INTEGER, department VARCHAR, cost DOUBLE, day DATE, "
        "arrived TIMESTAMP, urgent BOOLEAN, code VARCHAR, score INTEGER)"
    )
    raw.execute("CREATE TABLE tests (visit_id INTEGER, kind VARCHAR)")
    raw.execute("CREATE TABLE wards (department VARCHAR, floor INTEGER)")
    return raw


_, *BLOCKS = (Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8").strip().split("\n\n")
CASES = [block.split("\n=> ") for block in BLOCKS if not block.startswith("-- ")]
MISTAKES = {sql: told.partition("\ninstead: ")[0] for sql, told in CASES}
WAYS_OUT = {sql: told.partition("\ninstead: ")[2] for sql, told in CASES if "\ninstead: " in told}


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Connection]:
    with hospital() as raw, dpsql.connect(raw, schema=SCHEMA, budget=1, delta=1e-6) as connection:
        yield connection


def asked_for_free(sql: str, session: dpsql.Connection) -> None:
    """DESCRIBE and SHOW are answered, everything else is explained."""
    session.execute(sql if sql.startswith(("DESCRIBE", "SHOW")) else f"EXPLAIN {sql}")


@pytest.mark.parametrize("sql", MISTAKES)
def test_the_whole_message(sql: str, session: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error) as caught:
        session.explain(sql) if not sql.startswith("DESCRIBE") else session.execute(sql)
    assert f"{type(caught.value).__name__}: {caught.value}" == MISTAKES[sql]


@pytest.mark.parametrize("sql", WAYS_OUT)
def test_the_way_out_is_open(sql: str, session: dpsql.Connection) -> None:
    asked_for_free(WAYS_OUT[sql], session)

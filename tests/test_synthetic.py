"""Made-up people fit the schema that they are made from, and questions about the real ones can be tried on them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.owner.check import check_complete
from dpsql.schema import load_schema
from dpsql.synthetic import practice_database

ROOT = Path(__file__).parents[1]
SCHEMAS = {
    "shop": ROOT / "schemas" / "shop.yaml",
    "every type": {
        "tables": {
            "people": {
                "unit": "name",
                "columns": {
                    "name": "text",
                    "born": "date",
                    "seen": {"type": "timestamp", "bounds": ["2024-01-01", "2024-02-01"]},
                    "paid": {"type": "decimal(9,2)", "bounds": [0, 50]},
                    "level": {"type": "integer", "values": [1, 5, 9]},
                    "asked": {"type": "date", "values": ["2024-01-31"]},
                    "member": {"type": "boolean", "nullable": True},
                    "smoker": {
                        "type": "boolean",
                        "collected": {"mechanism": "kary", "epsilon": 1, "values": [False, True]},
                    },
                    "diet": {
                        "type": "text",
                        "collected": {"mechanism": "oue", "epsilon": 1, "values": ["a", "b", "c"]},
                    },
                },
            }
        }
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_they_are_as_declared(name: str) -> None:
    schema = load_schema(SCHEMAS[name])
    with practice_database(schema, people=200, seed=0) as made:
        engine = DuckDBEngine.open(made, schema)
        check_complete(engine, schema)
        engine.close()


def test_keys_lead_from_table_to_table() -> None:
    with practice_database(load_schema(SCHEMAS["shop"]), people=300, seed=1) as made:
        joined = "order_lines l JOIN orders o ON l.order_id = o.id JOIN customers c ON o.customer_id = c.id"
        [(lines, people)] = made.sql(f"SELECT count(*), count(DISTINCT c.id) FROM {joined}").fetchall()
        [(met,)] = made.sql("SELECT count(DISTINCT region) FROM customers JOIN regions USING (region)").fetchall()
    assert (lines, met) == (1200, 4)
    assert 100 < people <= 300


def test_the_same_seed_makes_the_same_people() -> None:
    schema = load_schema(SCHEMAS["shop"])

    def amounts(seed: int) -> list[object]:
        with practice_database(schema, 50, seed) as made:
            return made.sql("SELECT amount FROM orders").fetchall()

    assert amounts(3) == amounts(3) != amounts(4)


def test_a_session_to_practise_in() -> None:
    """It has the budget and the schema of the real one, and takes nothing from it."""
    columns = {"person": "integer", "town": {"type": "text", "values": ["Oslo", "Rome"]}}
    rows = pd.DataFrame({"person": [1], "town": ["Oslo"]})
    schema = {"tables": {"visits": {"unit": "person", "columns": columns}}}
    with dpsql.connect(rows, schema=schema, budget=1, delta=1e-6) as real, real.practice(people=500) as made:
        found = made.execute("SELECT town, COUNT(*) AS n FROM visits GROUP BY town", epsilon=0.9).df()
        assert found["n"].sum() > 100
        assert (real.budget.queries, made.budget.queries) == (0, 1)
        assert made.budget.epsilon == real.budget.epsilon

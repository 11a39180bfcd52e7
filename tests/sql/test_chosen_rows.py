"""Where rows are chosen by their noise, intervals hold for all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql

GROUPS, PEOPLE = 400, 20
SCHEMA: dict[str, Any] = {
    "dataset": "equal",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": {"type": "integer", "bounds": [0, GROUPS - 1]},
                "x": {"type": "integer", "bounds": [0, 10]},
            },
        }
    },
}
BY_K = "SELECT k, COUNT(*) AS n, AVG(x) AS a FROM t GROUP BY k"


@pytest.fixture(scope="module")
def equal() -> Iterator[dpsql.Connection]:
    """400 groups of 20 people each."""
    with duckdb.connect() as raw:
        raw.execute(f"CREATE TABLE t AS SELECT i AS u, i % {GROUPS} AS k, 5 AS x FROM range({GROUPS * PEOPLE}) AS r(i)")
        with dpsql.connect(raw, schema=SCHEMA, budget=1e6, delta=1e-6, query_epsilon=0.5) as connection:
            yield connection


@pytest.mark.parametrize(
    ("clauses", "chosen"),
    [
        ("", False),
        ("ORDER BY n", False),
        ("ORDER BY k LIMIT 5", False),
        ("ORDER BY 1 LIMIT 5", False),
        ("HAVING k > 5", False),
        ("LIMIT 5", False),
        ("ORDER BY n LIMIT 5", True),
        ("ORDER BY COUNT(*) DESC OFFSET 5", True),
        ("ORDER BY 2 LIMIT 5", True),
        ("ORDER BY k, a LIMIT 5", True),
        ("HAVING COUNT(*) > 30", True),
        ("HAVING AVG(x) > 5", True),
        ("QUALIFY ROW_NUMBER() OVER (ORDER BY n) <= 3", True),
    ],
)
def test_what_is_a_choice_by_noise(equal: dpsql.Connection, clauses: str, chosen: bool) -> None:
    cursor = equal.execute(f"{BY_K} {clauses}")
    assert [column.chosen_from for column in cursor.result.columns] == [GROUPS if chosen else 1] * 3
    assert any("noisy values chose the rows" in note for note in cursor.notes) == chosen
    explained = equal.explain(f"{BY_K} {clauses}").columns[1]
    assert explained.half_width == cursor.result.columns[1].half_width
    assert ("for all groups at once" in explained.note) == chosen


def test_the_largest_of_many_are_covered(equal: dpsql.Connection) -> None:
    """At 95 % each, intervals of the five largest of 400 equal groups would hold in 1 of 100 cases."""
    held, naive = [], []
    width = equal.explain(BY_K).columns[1].half_width
    assert width is not None
    for _ in range(20):
        frame = equal.execute(f"{BY_K} ORDER BY n DESC LIMIT 5", fresh=True).intervals()
        held += list((frame.n_low <= PEOPLE) & (frame.n_high >= PEOPLE))
        naive += list(abs(frame.n - PEOPLE) <= width)
    assert sum(held) >= 95
    assert sum(naive) <= 20


def test_an_accuracy_is_promised_for_all_groups_or_not_at_all(equal: dpsql.Connection) -> None:
    any_row = equal.explain("SELECT k, COUNT(*) AS n FROM t GROUP BY k", accuracy=30)
    largest = equal.explain("SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC LIMIT 5", accuracy=30)
    assert any_row.columns[1].half_width <= 30
    assert largest.columns[1].half_width <= 30
    assert largest.cost.epsilon > 1.5 * any_row.cost.epsilon
    with pytest.raises(dpsql.Unsupported, match="noisy values choose the rows"):
        equal.explain(
            "SELECT LEFT(CAST(u AS VARCHAR), 1) AS k, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY n LIMIT 5", accuracy=30
        )


def test_groups_that_are_not_public_are_counted_when_they_are_there(equal: dpsql.Connection) -> None:
    sql = "SELECT LEFT(CAST(u AS VARCHAR), 1) AS k, COUNT(*) AS n FROM t GROUP BY ALL HAVING COUNT(*) > 3"
    explained = equal.explain(sql).columns[1]
    assert explained.half_width is None
    assert explained.note.startswith("more than ± ")
    assert equal.execute(sql).result.columns[1].chosen_from == 9

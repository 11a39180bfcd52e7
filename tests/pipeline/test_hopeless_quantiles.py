"""A quantile is NULL where it may be off by as many rows as its group has, as far as released counts tell."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.pipeline.notes import _enough


@pytest.fixture(scope="module")
def connection() -> dpsql.Connection:
    raw = duckdb.connect()
    raw.execute("""CREATE TABLE t AS SELECT i AS u, CASE WHEN i < 30 THEN 'few' ELSE 'many' END AS g,
                   (i * 37 % 1000)::DOUBLE AS x FROM range(6000) AS r(i)""")
    columns: dict[str, Any] = {
        "u": "integer",
        "g": {"type": "text", "values": ["few", "many", "none"]},
        "x": {"type": "double", "bounds": [0, 1000]},
    }
    schema = {"dataset": "hopeless", "tables": {"t": {"unit": "u", "unique": True, "columns": columns}}}
    return dpsql.connect(raw, schema=schema, budget=1e6, delta=1e-6)


def test_it_is_null_beside_a_count(connection: dpsql.Connection) -> None:
    sql = "SELECT g, COUNT(*) AS n, MIN(x) AS least, MEDIAN(x) AS m, MAX(x) AS most FROM t GROUP BY g ORDER BY g"
    cursor = connection.execute(sql, epsilon=1)
    few, many, none = cursor.fetchall()
    assert few[2:] == none[2:] == (None, None, None)
    assert None not in many
    assert any(note.startswith("m is NULL in 2 groups: it may be off by") for note in cursor.notes)
    assert any("people it is the median" in note for note in cursor.notes)
    again = connection.execute(sql, epsilon=1)
    assert again.receipt.recalled
    assert again.fetchall() == [few, many, none]


def test_a_larger_epsilon_answers(connection: dpsql.Connection) -> None:
    cursor = connection.execute("SELECT COUNT(*) AS n, MEDIAN(x) AS m FROM t WHERE g = 'few'", epsilon=40)
    assert None not in cursor.fetchall()[0]
    assert not any("NULL" in note for note in cursor.notes)


def test_without_a_count_nothing_tells(connection: dpsql.Connection) -> None:
    assert connection.execute("SELECT MEDIAN(x) FROM t WHERE g = 'few'", epsilon=0.1).fetchall() != [(None,)]


def test_advice_is_for_half_of_the_values_and_not_for_the_largest() -> None:
    """One group of 300 noise widths beside 99 of one: half of them need far more than the largest does."""
    values = np.array([300.0, *np.full(99, 1.0)])
    enough = _enough(values, 1.96, 0.1)
    assert enough == pytest.approx(0.1 * 1.96 / 0.1)
    assert _enough(np.array([300.0, *np.tile([-1.0, 1.0], 50)]), 1.96, 0.1) is not None
    assert _enough(np.array([300.0, *np.tile([-1.0, 0.0, 1.0], 33)]), 1.96, 0.1) is None

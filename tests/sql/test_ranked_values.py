"""Aggregates within one person that choose a row by its rank are what DuckDB makes of that person's rows."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import dpsql

PEOPLE, PARTS = 60, 4
SCHEMA = {
    "dataset": "ranked",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "id": "integer",
                "part": {"type": "text", "values": ["a", "b"]},
                "i": {"type": "integer", "bounds": [-50, 50], "nullable": True},
                "x": {"type": "double", "bounds": [-50, 50], "nullable": True},
                "d": {"type": "decimal(6,2)", "bounds": [-50, 50], "nullable": True},
                "o": {"type": "integer", "nullable": True},
            },
        }
    },
}
NUMBERS = [
    *(f"{name}({column})" for name in ("STDDEV", "STDDEV_POP", "VAR_POP", "VARIANCE") for column in "ixd"),
    *(f"QUANTILE_CONT({column}, {part})" for column in "ix" for part in ("0", "0.1", "0.25", "0.9", "1", "0.333")),
    *(f"QUANTILE_DISC({column}, {part})" for column in "ixd" for part in ("0", "0.1", "0.5", "0.75", "1", "0.333")),
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY i)",
    "PERCENTILE_DISC(0.2) WITHIN GROUP (ORDER BY x)",
    "PERCENTILE_CONT(0.2) WITHIN GROUP (ORDER BY x DESC)",
    "MEDIAN(i)",
    "MEDIAN(x)",
    "MEDIAN(d::DOUBLE)",
    "FIRST(i ORDER BY id)",
    "LAST(x ORDER BY id)",
    "FIRST(i ORDER BY o DESC, id)",
    "LAST(i ORDER BY o NULLS FIRST, id)",
    "FIRST(d ORDER BY o, id DESC)",
    "ARG_MIN(i, id)",
    "ARG_MAX(x, id)",
    "MAX_BY(d, o * 1000 + id)",
    "MIN_BY(i, o * 1000 - id)",
    "MEDIAN(i) - MIN(i) + FIRST(x ORDER BY id)",
    "QUANTILE_DISC(i + id, 0.5)",
]


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    source, rows = random.Random(34), list[tuple[Any, ...]]()
    for person in range(PEOPLE):
        for _ in range(source.choice((1, 1, 2, 3, 4, 7, 12))):
            values = [None if source.random() < 0.2 else source.randrange(-5000, 5000) / 100 for _ in range(3)]
            whole = None if values[0] is None else int(values[0]) // 3
            exact = None if values[2] is None else Decimal(str(values[2]))
            order = source.choice((None, 1, 2, 3, 4))
            rows.append((person, len(rows), source.choice("ab"), whole, values[1], exact, order))
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t (person INTEGER, id INTEGER, part VARCHAR, i INTEGER, x DOUBLE, d DECIMAL(6,2), o INTEGER)"
    )
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return connection


@pytest.fixture(scope="module")
def conn(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    with pytest.warns(dpsql.errors.Warning):
        return dpsql.connect(database, schema=SCHEMA, budget=1e15, query_epsilon=1e9)


def asked(value: str, keys: str = "person") -> str:
    """Sums of values over parts of the people, in which one wrong value would show."""
    clamped = "LEAST(GREATEST(v::DOUBLE, -2000), 2000)"
    sums = [f"SUM({clamped}) FILTER (WHERE person % {PARTS} = {part})" for part in range(PARTS)]
    return f"SELECT COUNT(v), {', '.join(sums)} FROM (SELECT {keys}, {value} AS v FROM t GROUP BY {keys})"


QUICK = NUMBERS[3::6]


@pytest.mark.parametrize("value", QUICK)
def test_the_value_of_each_person(value: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    check_value(value, conn, database)


@pytest.mark.long
@pytest.mark.parametrize("value", [value for value in NUMBERS if value not in QUICK])
def test_every_value(value: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    check_value(value, conn, database)


def check_value(value: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    plain = database.execute(asked(value)).fetchone()
    assert plain is not None
    assert conn.execute(asked(value)).fetchone() == pytest.approx([part or 0 for part in plain], abs=2e-4)


def test_more_keys_conditions_and_names(conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    for question in (
        "SELECT part, ROUND(SUM(LEAST(v, 60)), 2) FROM (SELECT person, part, MEDIAN(i) AS v FROM t GROUP BY ALL) "
        "GROUP BY part ORDER BY part",
        "SELECT COUNT(*) FROM (SELECT person FROM t WHERE i > 0 GROUP BY person HAVING MEDIAN(i) > 5 AND COUNT(*) > 1)",
        "SELECT f, COUNT(*) FROM (SELECT person, FIRST(part ORDER BY id) AS f FROM t GROUP BY person) "
        "WHERE f IS NOT NULL GROUP BY f ORDER BY f",
        "SELECT COUNT(*) FROM (SELECT person, FIRST(part ORDER BY id) = LAST(part ORDER BY id) AS same FROM t "
        "GROUP BY 1) WHERE same",
        'SELECT COUNT("median(i)") FROM (SELECT person, MEDIAN(i) FROM t GROUP BY person)',
    ):
        wide = {"max_rows_per_group": 2}
        assert conn.execute(question, **wide).fetchall() == database.execute(question).fetchall()


@pytest.mark.parametrize(
    "value",
    [
        "FIRST(i)",
        "MODE(part)",
        "STRING_AGG(part, ',')",
        "ARG_MAX(i, id, 2)",
        "MEDIAN(DISTINCT i)",
        "LIST(i)",
        "MEDIAN(d)",
    ],
)
def test_what_depends_on_the_order_of_rows_or_grows_is_refused(value: str, conn: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error):
        conn.explain(f"SELECT COUNT(*) FROM (SELECT person, {value} AS v FROM t GROUP BY person) WHERE v IS NULL")


def test_over_many_people_they_are_refused_as_before(conn: dpsql.Connection) -> None:
    for value in ("FIRST(i ORDER BY id)", "ARG_MAX(i, id)"):
        with pytest.raises(dpsql.Error, match=r"FIRST over many people|ARG_MAX"):
            conn.explain(f"SELECT {value} FROM t")

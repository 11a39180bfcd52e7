"""Values are said to exclude each other only where no row has two of them, and where people would say so."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import duckdb
import pytest

import dpsql
from dpsql.aggregates.disjoint import bundled
from dpsql.expressions.tree import Expression
from dpsql.options import QueryRequest
from dpsql.pipeline.stages import compile_question

SCHEMA = {
    "dataset": "rows",
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "a": {"type": "text", "nullable": True},
                "n": {"type": "integer", "bounds": [-3, 3], "nullable": True},
                "big": {"type": "integer", "nullable": True},
                "d": {"type": "double", "nullable": True},
                "day": {"type": "date", "nullable": True},
                "moment": {"type": "timestamp", "nullable": True},
                "b": {"type": "boolean", "nullable": True},
            },
        }
    },
}
EXCLUDING = [
    ("a = 'x'", "a = 'y'"),
    ("a = 'x'", "a = 'X'"),
    ("'x' = a", "a IN ('y', 'z')"),
    ("a = 'x' AND n > 0", "n < 3 AND a = 'y'"),
    ("a = 'x'", "a <> 'x'"),
    ("a IN ('x', 'y')", "a NOT IN ('x', 'y', 'z')"),
    ("a IS NULL", "a IS NOT NULL"),
    ("a IS NULL", "a = 'x'"),
    ("a IS NULL", "a < 'x'"),
    ("a LIKE 'x%'", "NOT a LIKE 'x%'"),
    ("LOWER(a) = 'x'", "LOWER(a) = 'y'"),
    ("n < 0", "n >= 0"),
    ("n <= 0", "n BETWEEN 1 AND 2"),
    ("n < 0", "NOT n < 1"),
    ("n + 1 = 2", "n + 1 = 3"),
    ("n > 1", "NOT (n > 1 OR n IS NULL)"),
    ("n = 1", "n > 1.5"),
    ("d < 0.5", "d >= 0.5"),
    ("d = 0.25", "d = 0.5"),
    ("day < DATE '2024-02-01'", "day >= DATE '2024-02-01'"),
    ("YEAR(day) = 2023", "YEAR(day) = 2024"),
    ("b", "NOT b"),
    ("b", "b = false"),
    ("b IS TRUE", "b IS FALSE"),
    ("b IS NULL", "b"),
    ("CASE WHEN n < 0 THEN 'low' ELSE 'high' END = 'low'", "CASE WHEN n < 0 THEN 'low' ELSE 'high' END = 'high'"),
]
OVERLAPPING = [
    ("a = 'x'", "n = 1"),
    ("a = 'x'", "a IN ('x', 'y')"),
    ("a <> 'x'", "a <> 'y'"),
    ("a < 'x'", "a > 'a'"),
    ("n <= 0", "n >= 0"),
    ("n < 2", "n > 1 - 1"),
    ("a = 'x' OR n = 1", "a = 'y' OR n = 1"),
    ("a IS DISTINCT FROM 'x'", "a IS NULL"),
    ("b IS DISTINCT FROM true", "b IS NULL"),
    # As doubles these are one number.
    ("CAST(big AS DOUBLE) = 9007199254740992", "CAST(big AS DOUBLE) = 9007199254740993"),
    ("big = 9007199254740993", "big = 9007199254740992e0"),
    ("big <= 9007199254740992", "big >= 9007199254740993e0"),
    ("day <= DATE '2024-02-01'", "day >= TIMESTAMP '2024-02-01 00:00:00'"),
    ("moment <= TIMESTAMP '2024-02-01 12:00:00'", "moment > DATE '2024-02-01'"),
]
CONDITIONS = list(dict.fromkeys(condition for pair in EXCLUDING + OVERLAPPING for condition in pair))
ROWS = """
    INSERT INTO t SELECT row_number() OVER (), * FROM
        (VALUES (NULL), ('x'), ('X'), ('y'), ('z'), ('xy'), ('')) AS a(a),
        (VALUES (NULL), (-3), (-1), (0), (1), (2), (3)) AS n(n),
        (VALUES (NULL, NULL, NULL, NULL), (9007199254740992, 0.25, DATE '2023-12-31', TIMESTAMP '2024-02-01 06:00:00'),
                (9007199254740993, 0.5, DATE '2024-02-01', TIMESTAMP '2024-02-01 12:00:00'),
                (1, 'nan'::DOUBLE, DATE '2024-02-02', TIMESTAMP '2024-02-01 18:00:00')) AS d(big, d, day, moment),
        (VALUES (NULL), (true), (false)) AS b(b)"""


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE t
            (u BIGINT, a VARCHAR, n BIGINT, big BIGINT, d DOUBLE, day DATE, moment TIMESTAMP, b BOOLEAN)""")
        connection.execute(ROWS)
        yield connection


@pytest.fixture(scope="module")
def values(raw: duckdb.DuckDBPyConnection) -> dict[str, Expression]:
    """CASE WHEN condition THEN 1 END for each condition, as dpsql reads it."""
    with dpsql.connect(raw, schema=SCHEMA, budget=1) as connection:
        public = connection.session.environment.public()
        found = {}
        for condition in CONDITIONS:
            request = QueryRequest(sql=f"SELECT COUNT(*) FILTER (WHERE {condition}) FROM t", epsilon=Fraction(1))
            (release,) = compile_question(request, public).releases
            (measure,) = release.planned.release.measures
            found[condition] = measure.measure.argument  # type: ignore[union-attr]
        return found


@pytest.mark.parametrize(("one", "other"), EXCLUDING)
def test_what_excludes_each_other(values: dict[str, Expression], one: str, other: str) -> None:
    assert bundled([values[one], values[other]]) == {values[one]: (0, 0), values[other]: (0, 1)}


@pytest.mark.parametrize(("one", "other"), OVERLAPPING)
def test_what_does_not(values: dict[str, Expression], one: str, other: str) -> None:
    assert bundled([values[one], values[other]]) == {}


def test_no_row_has_two_of_them(values: dict[str, Expression], raw: duckdb.DuckDBPyConnection) -> None:
    """All pairs, on rows with every combination of values."""
    claimed = [pair for pair in combinations(CONDITIONS, 2) if bundled([values[part] for part in pair])]
    assert len(claimed) > len(EXCLUDING)
    both = ", ".join(f"count(*) FILTER (WHERE ({one}) AND ({other}))" for one, other in claimed)
    counts = raw.execute(f"SELECT {both} FROM t").fetchone()
    assert counts is not None
    assert [pair for pair, rows in zip(claimed, counts, strict=True) if rows] == []

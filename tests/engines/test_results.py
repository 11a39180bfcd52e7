"""Answers as arrays: the rows and frames that are made of them are those that rows of Python's values would give."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pandas as pd
import pytest

from dpsql.engines.results import Cells, fetch_cells
from dpsql.result import Result, ResultColumn

ROWS = "(VALUES (1, '2.5'), (2, NULL), (NULL, 'nan'), (-7, '-inf')) AS t(n, x)"
QUERIES = {
    "whole numbers": "SELECT CAST(n AS INTEGER) AS i, CAST(n AS BIGINT) AS b, CAST(n AS HUGEINT) AS h FROM " + ROWS,
    "whole numbers without NULL": "SELECT n::INTEGER AS i, n::BIGINT AS b, n::HUGEINT AS h FROM range(5) AS r(n)",
    "numbers that a double does not hold": "SELECT 9007199254740993::HUGEINT + n AS h, n FROM range(3) AS r(n)",
    "numbers that 64 bits do not hold": "SELECT 170141183460469231731687303715884105727 - n AS h FROM range(3) AS r(n)",
    "doubles": "SELECT CAST(x AS DOUBLE) AS x, CAST(n AS DOUBLE) AS y FROM " + ROWS,
    "texts and conditions": "SELECT CAST(n AS VARCHAR) AS t, n > 1 AS c, 'a' AS d, true AS e FROM " + ROWS,
    "no rows": "SELECT CAST(n AS INTEGER) AS i, 'a' AS t, CAST(n AS HUGEINT) AS h FROM range(0) AS r(n)",
    "nothing but NULL": "SELECT CAST(NULL AS HUGEINT) AS h, CAST(NULL AS VARCHAR) AS t FROM range(3)",
    "dates and decimals": "SELECT DATE '2025-01-01' + CAST(n AS INTEGER) AS d, CAST(n AS DECIMAL(9, 2)) AS e FROM "
    + ROWS,
    "one name twice": "SELECT n AS a, n + 1 AS a FROM range(3) AS r(n)",
    "one name twice but for case": 'SELECT n AS "A", n + 1 AS a FROM range(3) AS r(n)',
    "lists": "SELECT [n] AS l FROM range(3) AS r(n)",
}


def said(rows: list[tuple[Any, ...]]) -> list[list[tuple[type, object]]]:
    """With their types, and NaN equal to itself."""
    return [
        [(type(value), "nan" if isinstance(value, float) and math.isnan(value) else value) for value in row]
        for row in rows
    ]


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_rows_and_frames_are_those_of_plain_rows(sql: str) -> None:
    with duckdb.connect() as connection:
        expected = connection.execute(sql).fetchall()
        described, cells = fetch_cells(connection, sql)
    columns = tuple(ResultColumn(name=name, type=kind, estimate=None, noises={}, hidden={}) for name, kind in described)
    assert said(cells.rows) == said(expected)
    made, plain = (Result(columns, part, receipt=None) for part in (cells, Cells(expected)))  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(made.df(), plain.df())
    if "170141183460469231731687303715884105727" not in sql:  # for which Arrow has no whole number
        assert made.arrow().schema == plain.arrow().schema
        assert repr(made.arrow().to_pylist()) == repr(plain.arrow().to_pylist())


def test_simple_columns_are_arrays() -> None:
    with duckdb.connect() as connection:
        _, cells = fetch_cells(connection, QUERIES["whole numbers"])
        assert cells.columns is not None
        _, cells = fetch_cells(connection, QUERIES["numbers that a double does not hold"])
        assert cells.columns is None

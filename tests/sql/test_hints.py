"""Each hint is followed: parsed out of the message, put in place, and run. The answer is that of plain SQL.

The table has names with spaces and quotes, reserved words, NULLs, and a column of each type.
"""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA: dict[str, Any] = {
    "dataset": "clinic",
    "tables": {
        "my visits": {
            "unit": "patient id",
            "unique": True,
            "columns": {
                "patient id": "integer",
                "Cost (EUR)": {"type": "double", "nullable": True},
                "people's age": {"type": "integer", "nullable": True},
                "order": {"type": "decimal(8,2)", "nullable": True},
                "visit id": "text",
                "seen": {"type": "timestamp", "nullable": True},
                "day": {"type": "date", "nullable": True},
                "smoker": {"type": "boolean", "nullable": True},
            },
        }
    },
}
ROWS = """
    CREATE TABLE "my visits" AS SELECT i AS "patient id", CASE WHEN i % 2 = 0 THEN (i % 4) * 50.0 END AS "Cost (EUR)",
    CASE WHEN i % 3 > 0 THEN i % 90 END AS "people's age", CASE WHEN i % 5 > 0 THEN (i % 7)::DECIMAL(8, 2) END
    AS "order", 'v' || (i % 3) AS "visit id", CASE WHEN i % 4 > 0 THEN TIMESTAMP '2024-05-01' + INTERVAL (i % 9) DAY END
    AS seen, CASE WHEN i % 4 > 0 THEN DATE '2024-05-01' + (i % 9)::INT END AS day,
    CASE WHEN i % 3 > 0 THEN i % 4 = 1 END AS smoker FROM range(3600) AS r(i)
"""
COST, AGE, TABLE = '"Cost (EUR)"', '"people\'s age"', '"my visits"'
HINT = re.compile(
    r"hint: .*?(?:write|numbers:|quotes:)  ?(.+?)(?:  with| +in its place|; |: seconds|, or |$)", re.MULTILINE
)


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(ROWS)
    return connection


@pytest.fixture(scope="module")
def session(raw: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    with pytest.warns(Warning, match="protects against little"):
        return dpsql.connect(raw, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9)


HINTS = [
    # what was asked, what the hint replaces in it, and plain SQL for what was meant
    (f"SELECT AVG({COST}) FROM {TABLE}", f"AVG({COST})", None),
    (f"SELECT SUM({AGE}) FROM {TABLE}", f"SUM({AGE})", None),
    (f"SELECT SUM(DISTINCT {AGE}) FROM {TABLE}", f"SUM(DISTINCT {AGE})", None),
    (f'SELECT SUM("order") FROM {TABLE}', 'SUM("order")', None),
    (
        f"SELECT SUM({COST} * {AGE}) FROM {TABLE}",
        f"SUM({COST} * {AGE})",
        f"SELECT SUM(LEAST({COST} * {AGE}, 500)) FROM {TABLE} WHERE {COST} * {AGE} >= 0",
    ),
    (f"SELECT AVG({AGE}) FILTER (WHERE smoker) FROM {TABLE}", f"AVG({AGE}) FILTER (WHERE smoker)", None),
    (f"SELECT STDDEV({COST}) FROM {TABLE}", f"STDDEV({COST})", None),
    (f"SELECT VAR_POP({AGE}) FROM {TABLE}", f"VAR_POP({AGE})", None),
    (f"SELECT MEDIAN({AGE}) FROM {TABLE}", f"MEDIAN({AGE})", None),
    (f"SELECT QUANTILE_CONT({AGE}, 0.9) FROM {TABLE}", f"QUANTILE_CONT({AGE}, 0.9)", None),
    (f"SELECT MAX({AGE}) FROM {TABLE}", f"MAX({AGE})", None),
    (f"SELECT MIN(day) FROM {TABLE}", "day", None),
    (f"SELECT MAX(seen) FROM {TABLE}", "seen", None),
    (
        f"SELECT AVG(LN({COST})) FROM {TABLE}",
        f"AVG(LN({COST}))",
        f"SELECT AVG(LN({COST})) FROM {TABLE} WHERE {COST} > 0",
    ),
    (f"SELECT CORR({COST}, {AGE}) FROM {TABLE}", None, None),
    (f"SELECT REGR_SLOPE({AGE}, {COST}) FROM {TABLE}", None, None),
    (f"SELECT CORR(smoker, {AGE}) FROM {TABLE}", "smoker", f"SELECT CORR(smoker::INT, {AGE}) FROM {TABLE}"),
    (f"SELECT COUNT(*) FROM {TABLE} WHERE {AGE} > '18'", None, None),
    (
        f'SELECT COUNT(*) FROM {TABLE} WHERE "visit id" = 3',
        '"visit id" = 3',
        f"SELECT COUNT(*) FROM {TABLE} WHERE \"visit id\" = '3'",
    ),
    (f"SELECT COUNT(Cost (EUR)) FROM {TABLE}", "Cost (EUR)", f"SELECT COUNT({COST}) FROM {TABLE}"),
    (f'SELECT "visit id" FROM {TABLE}', f'SELECT "visit id" FROM {TABLE}', f"SELECT COUNT(*) FROM {TABLE}"),
    (f"SELECT PRODUCT({AGE} + 1) FROM {TABLE} WHERE {AGE} < 2", f"PRODUCT({AGE} + 1)", None),
]


@pytest.mark.parametrize(("sql", "replaced", "plain"), HINTS, ids=[case[0] for case in HINTS])
def test_the_hint_gives_the_answer(
    sql: str, replaced: str | None, plain: str | None, session: dpsql.Connection, raw: duckdb.DuckDBPyConnection
) -> None:
    asked = sql
    for _ in range(3):  # of two columns, one message names one
        hint = hint_for(asked, session)
        if hint is not None:
            clamped = re.match(r"CASE WHEN (.+?) IS NOT NULL THEN LEAST", hint)
            named = clamped[1] if clamped else replaced or ""
            asked = re.sub(re.escape(named), hint.replace("\\", r"\\"), asked, count=1, flags=re.IGNORECASE)
    ((value,),) = session.execute(asked).fetchall()
    ((expected,),) = raw.execute(plain or sql).fetchall()
    if isinstance(value, int | float):
        near = 2 if "QUANTILE" in asked or "MEDIAN" in asked else 1e-6  # quantiles are drawn among equally good values
        expected = pytest.approx(float(expected), rel=1e-4, abs=near)
    assert value == expected, asked


def hint_for(sql: str, session: dpsql.Connection) -> str | None:
    try:
        session.explain(sql)
    except dpsql.Error as error:
        found = HINT.search(str(error).replace("aggregate:", "write"))
        return found[1] if found else str(error)
    return None

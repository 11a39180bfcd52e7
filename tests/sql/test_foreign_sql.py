"""Questions from other suites that once had another answer than DuckDB's, alone and crossed with older features."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import pytest

import dpsql

HUGE = 1e10
COLUMNS: dict[str, Any] = {
    "person": "integer",
    "city": {"type": "text", "values": ["north", "south", "east", "west"]},
    "m": {"type": "integer", "bounds": [0, 11]},
    "x": {"type": "double", "bounds": [-4, 4]},
    "day": {"type": "date", "bounds": ["2024-01-01", "2024-03-31"]},
    "seen": {"type": "timestamp", "bounds": ["2024-01-01", "2024-03-31"]},
    "word": {"type": "text", "nullable": True},
}
SCHEMA = {"dataset": "foreign", "tables": {"t": {"unit": "person", "unique": True, "columns": COLUMNS}}}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE t AS SELECT i AS person, ['north', 'south'][1 + i % 2] AS city, i % 12 AS m,
                (i % 7 - 3)::DOUBLE AS x, DATE '2024-01-01' + (i % 80)::INTEGER AS day,
                TIMESTAMP '2024-01-01 06:00:00' + INTERVAL (i % 80) DAY AS seen,
                CASE WHEN i % 5 > 0 THEN 'w' || i % 3 END AS word FROM range(1200) AS r(i)""")
        yield connection


@pytest.fixture(scope="module")
def people(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=HUGE) as connection:
        yield connection


def check(people: dpsql.Connection, raw: duckdb.DuckDBPyConnection, sql: str) -> None:
    """The same groups with rows, in whatever order; what is computed in doubles is near enough."""
    found, expected = people.execute(sql).fetchall(), raw.execute(sql).fetchall()
    found, expected = (sorted((row for row in rows if row[-1]), key=repr) for rows in (found, expected))
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]
    assert [float(row[-1]) for row in found] == pytest.approx([float(row[-1]) for row in expected], abs=1e-5)


# -- keys that are repeated --------------------------------------------------------------------------------------------

REPEATED = [
    "ROLLUP (city, city)",
    "city, ROLLUP (city, m % 2)",
    "CUBE (city, m % 3), city",
    "ROLLUP ((city), m % 2, city)",
    "GROUPING SETS ((m % 2), (m % 3, m % 3, (city)))",
    "GROUPING SETS ((city), (city, city), ())",
    "GROUPING SETS ((m % 3)), CUBE (city, m % 3)",
]
GROUPINGS = {
    "ROLLUP (city, m % 2, m % 3)": "GROUPING(city, m % 2, m % 3)",
    "CUBE (city, m % 3)": "GROUPING(m % 3, city, m % 3)",
    "ROLLUP (city)": "GROUPING(city, city, city, city)",
    "GROUPING SETS ((city, m % 2, m % 3), (m % 3), ())": "GROUPING(m % 3, m % 2, city)",
}
WITHIN = ["", "WHERE x > 0", "WHERE EXISTS (SELECT 1 FROM t AS o WHERE o.person = t.person AND o.x < 1)"]
MEASURED = ["COUNT(*)", "SUM(x + 5)", "AVG(m + 1)", "COUNT(word)"]


@pytest.mark.parametrize(("keys", "where"), [*product(REPEATED, WITHIN)])
def test_a_set_has_a_key_once(people: dpsql.Connection, raw: duckdb.DuckDBPyConnection, keys: str, where: str) -> None:
    measure = MEASURED[len(keys) % len(MEASURED)]
    check(people, raw, f"SELECT {measure} AS n FROM t {where} GROUP BY {keys}")


@pytest.mark.parametrize(("keys", "bits"), [*GROUPINGS.items()])
def test_grouping_numbers_the_keys_that_are_left_out(
    people: dpsql.Connection, raw: duckdb.DuckDBPyConnection, keys: str, bits: str
) -> None:
    check(people, raw, f"SELECT {bits} AS g, COUNT(*) AS n FROM t GROUP BY {keys}")
    check(people, raw, f"SELECT COUNT(*) AS n FROM t GROUP BY {keys} HAVING {bits} IN (1, 4, 5)")


# -- days and texts with a time ----------------------------------------------------------------------------------------

UNITS = ["minute", "hour", "day", "week", "month", "quarter", "year"]
NOON = "'2024-02-10 12:00:00'"
DIFFERENCES = ["DATE_DIFF", "DATEDIFF", "DATE_SUB", "DATESUB"]


@pytest.mark.parametrize(("function", "column"), [*product(DIFFERENCES, ("day", "seen"))])
def test_a_text_is_what_it_is_compared_with(
    people: dpsql.Connection, raw: duckdb.DuckDBPyConnection, function: str, column: str
) -> None:
    """A text with a time beside a DATE is that day: below aggregates, above them, and of constants."""
    of = [f"{function}('{unit}', {ends})" for unit in UNITS for ends in (f"{column}, {NOON}", f"{NOON}, {column}")]
    groups = f"t WHERE {column} IN ('2024-02-09', '2024-02-12', '2024-02-09 06:00:00', '2024-02-12 06:00:00')"
    check(people, raw, f"SELECT {', '.join(of)}, COUNT(*) AS n FROM {groups} GROUP BY {column}")
    below = [f"SUM({one})" for one in of]
    check(people, raw, f"SELECT {' + '.join(below)} AS n FROM {groups}")
    check(people, raw, f"SELECT {function}('hour', DATE '2024-02-09', {NOON}) AS h, COUNT(*) AS n FROM t")


# -- functions without a value -----------------------------------------------------------------------------------------

WITHOUT_VALUE = ["POWER(x, 0.5)", "SQRT(x)", "POWER(m * 0, -1 - ABS(x))", "LN(x - 4)", "POWER(-1 - m, 0.5)"]


@pytest.mark.parametrize("value", WITHOUT_VALUE)
def test_what_has_no_value_is_null_in_conditions_and_in_keys(people: dpsql.Connection, value: str) -> None:
    """DuckDB gives NaN, an infinity or an error: docs/differences.md."""
    [(known, null, finite)] = people.execute(
        f"SELECT COUNT({value}), COUNT_IF({value} IS NULL), COUNT_IF(ISFINITE({value})) FROM t"
    ).fetchall()
    assert known == finite
    assert known + null == 1200
    keys = [key for key, _ in people.execute(f"SELECT {value} AS k, COUNT(*) FROM t GROUP BY k").fetchall()]
    assert keys.count(None) == 1
    assert not any(key != key or abs(key) == float("inf") for key in keys if key is not None)


# -- reports, states ---------------------------------------------------------------------------------------------------

REPORTS = [
    "SUM(m, contribution_bounds_per_group => (0, 10), report_format => 'JSON')",
    "SUM(m, report_format => JSON, contribution_bounds_per_row => (0, 10))",
    "ANON_SUM(m CLAMPED BETWEEN 0 AND 10 WITH REPORT(FORMAT = JSON))",
    "ANON_COUNT(* WITH REPORT (format = json))",
    "COUNT(*, contribution_bounds_per_group => (0, 1), report_format => JSON)",
]


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_needs_no_alias(people: dpsql.Connection, report: str) -> None:
    for sql in (f"SELECT {report} FROM t", f"SELECT city, {report} FROM t GROUP BY ROLLUP (city)"):
        cursor = people.execute(sql)
        rows = cursor.fetchall()
        assert all(json.loads(row[-1])["value"] >= 0 for row in rows)
        name = str(cursor.description[-1][0])
        assert name in ("sum(m)", "count_star()")
        assert name in cursor.df()


REFUSED = {
    "SELECT ANON_COUNT(* WITH REPORT(wrong_option = json)) FROM t": "WITH REPORT (FORMAT = JSON)",
    "SELECT ANON_COUNT(* WITH REPORT(FORMAT = json, x = json)) FROM t": "WITH REPORT (FORMAT = JSON)",
    "SELECT ANON_COUNT(* WITH REPORT()) FROM t": "WITH REPORT (FORMAT = JSON)",
    "SELECT CORR(x, m) export_state FROM t": "AS export_state",
    "SELECT SUM(m) FILTER (WHERE x > 0) EXPORT_STATE FROM t": "AS export_state",
}


@pytest.mark.parametrize(("sql", "hint"), [*REFUSED.items()])
def test_what_is_not_understood_is_refused(people: dpsql.Connection, sql: str, hint: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        people.execute(sql)
    assert hint in str(caught.value)


def test_a_name_may_still_be_export_state(people: dpsql.Connection) -> None:
    for alias in ("AS export_state", '"export_state"'):
        assert people.execute(f"SELECT COUNT(*) {alias} FROM t").fetchall() == [(1200,)]

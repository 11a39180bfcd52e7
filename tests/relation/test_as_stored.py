"""Declared values of a text key, looked up in the list that groups are joined to, or row by row: one answer."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest

import dpsql

WARDS = {"type": "text", "values": ["a", "b"]}
ROWS = [
    (1, "a", 1.0),
    (1, "b", 2.0),
    (2, "a", 3.0),
    (2, "stray", 4.0),
    (2, "other", 5.0),
    (3, None, 6.0),
    (4, "b", 7.0),
]
GROUPED = "SELECT ward, COUNT(*), SUM(x), COUNT(DISTINCT x), MEDIAN(x) FROM visits {} GROUP BY ward ORDER BY ward"


def session(ward: dict[str, Any], rows: list[tuple[Any, ...]] = ROWS, *, unique: bool = False) -> dpsql.Connection:
    database = duckdb.connect()
    database.execute(f"CREATE TABLE visits (person INTEGER {'PRIMARY KEY' if unique else ''}, ward VARCHAR, x INTEGER)")
    database.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    database.execute("CREATE TABLE wards AS SELECT 'a' AS ward, 1 AS floor")
    schema = {
        "dataset": "clinic",
        "contribution": {"max_groups": 3, "max_rows_per_group": 3},
        "tables": {
            "visits": {
                "unit": "person",
                "columns": {"person": "integer", "ward": ward, "x": {"type": "integer", "bounds": [0, 10]}},
            },
            "wards": {"public": True, "columns": {"ward": "text", "floor": "integer"}},
        },
    }
    return dpsql.connect(database, schema=schema, budget=1e18, query_epsilon=1e12)


def sql_of(conn: dpsql.Connection, sql: str) -> str:
    return "".join(release.sql for release in conn.explain(sql).releases)


LOOKED_UP = "IN ('a', 'b')"


def test_what_is_not_declared_is_no_group() -> None:
    with session(WARDS) as conn:
        assert LOOKED_UP not in sql_of(conn, GROUPED.format(""))
        answers = conn.execute(GROUPED.format("")).fetchall()
    assert [row[:4] for row in answers] == [("a", 2, 4, 2), ("b", 2, 9, 2)]


def test_one_row_each() -> None:
    rows = [(1, "a", 1), (2, "stray", 4), (3, None, 6), (4, "b", 7)]
    with session(WARDS, rows, unique=True) as conn:
        assert LOOKED_UP not in sql_of(conn, GROUPED.format(""))
        assert [row[:3] for row in conn.execute(GROUPED.format(""))] == [("a", 1, 1), ("b", 1, 7)]


@pytest.mark.parametrize(
    ("ward", "sql"),
    [
        # NULL is a group, and has the rows with other texts.
        (WARDS | {"nullable": True}, GROUPED.format("")),
        # Something else reads the column.
        (WARDS, GROUPED.format("WHERE ward <> 'b'")),
        (WARDS, "SELECT ward, COUNT_IF(ward IS NULL) FROM visits GROUP BY ward"),
        (WARDS, "SELECT ward, upper(ward) AS w, COUNT(*) FROM visits GROUP BY ward, w"),
        (WARDS, "SELECT ward, COUNT(*) FROM visits WHERE ward IN (SELECT ward FROM wards) GROUP BY ward"),
        (WARDS, "SELECT v.ward, COUNT(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY v.ward"),
        (WARDS, "SELECT p, COUNT(*) FROM (SELECT person, ward AS p FROM visits) GROUP BY p"),
    ],
)
def test_a_column_that_something_else_reads_is_looked_up(ward: dict[str, Any], sql: str) -> None:
    with session(ward) as conn:
        assert LOOKED_UP in sql_of(conn, sql)


def test_groups_that_are_chosen_from_are_declared() -> None:
    """Else each text that is not declared would take the place of a group."""
    with session(WARDS) as conn:
        sql = "".join(part.sql for part in conn.explain(GROUPED.format(""), max_groups=1).releases)
        assert sql.count("COLLATE C) IN ('a', 'b'))") == 3


def test_null_has_the_rows_with_other_texts() -> None:
    with session(WARDS | {"nullable": True}) as conn:
        found = conn.execute("SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDER BY ward").fetchall()
    assert found == [("a", 2), ("b", 2), (None, 3)]


# -- numbers that are clamped where they are summed -------------------------------------------------------------------

ADVERSARIAL = [(1, "a", -5), (1, "a", 3), (2, "b", 99), (3, "b", None), (4, "b", 10), (4, "a", 7), (4, "c", 7)]
STORED = {
    "DOUBLE": "double",
    "FLOAT": "double",
    "INTEGER": "integer",
    "SMALLINT": "integer",
    "HUGEINT": "integer",
    "DECIMAL(9,2)": "decimal(9,2)",
}


def amounts(stored: str, *, unique: bool, groups: int = 3, rows: int = 3) -> dpsql.Connection:
    """Bounds from 0 to 10. The last row of each person alone, where these are unique."""
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE visits (person INTEGER {'PRIMARY KEY' if unique else ''}, ward VARCHAR, x {stored})"
    )
    found = list({row[0]: row for row in ADVERSARIAL}.values()) if unique else ADVERSARIAL
    database.executemany("INSERT INTO visits VALUES (?, ?, ?)", found)
    if stored in ("DOUBLE", "FLOAT"):
        database.execute("INSERT INTO visits VALUES (8, 'a', 'NaN'), (9, 'b', '-Infinity')")
    columns = {"person": "integer", "ward": WARDS, "x": {"type": STORED[stored], "bounds": [0, 10], "nullable": True}}
    schema = {
        "dataset": "clinic",
        "contribution": {"max_groups": groups, "max_rows_per_group": rows},
        "tables": {"visits": {"unit": "person", "columns": columns}},
    }
    return dpsql.connect(database, schema=schema, budget=1e18, query_epsilon=1e12)


def clamps(sql: str) -> int:
    """How often values are held between the bounds, of which the lower is 0."""
    return len(re.findall(r"BETWEEN (?:CAST\('?)?0", sql))


VALUES = "SELECT ward, COUNT(x), SUM(x), AVG(x) FROM visits {} GROUP BY ward ORDER BY ward"


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize(
    ("unique", "times", "expected"), [(True, 1, [1, 3, 3, 1, 10, 10]), (False, 2, [3, 10, 10 / 3, 2, 20, 10])]
)
def test_what_is_summed_is_clamped_once(stored: str, unique: bool, times: int, expected: list[float]) -> None:
    """Of people with several rows either among the light rows or among the heavy ones."""
    with amounts(stored, unique=unique) as conn:
        assert clamps(sql_of(conn, VALUES.format(""))) == times
        found = [float(cell) for row in conn.execute(VALUES.format("")) for cell in row[1:]]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("unique", [True, False])
def test_a_median_is_that_of_clamped_values(stored: str, unique: bool) -> None:
    """Ranks are those of the stored values; the values that are drawn from are clamped."""
    sql = "SELECT ward, MEDIAN(x) FROM visits GROUP BY ward ORDER BY ward"
    with amounts(stored, unique=unique) as conn:
        assert clamps(sql_of(conn, sql)) == 1
        assert [float(row[1]) for row in conn.execute(sql)] == pytest.approx([3, 10])


@pytest.mark.parametrize(
    "sql",
    [
        VALUES.format("WHERE x < 9"),
        "SELECT x > 4 AS large, SUM(x) FROM visits GROUP BY large",
        "SELECT SUM(x), SUM(x + 1) FROM visits",
    ],
)
def test_a_number_that_something_else_reads_is_clamped_there(sql: str) -> None:
    with amounts("DOUBLE", unique=True) as conn:
        assert clamps(sql_of(conn, sql)) > 1


def test_a_group_that_is_not_declared_takes_no_place() -> None:
    """Person 4 is in two declared groups and in one that is not; two may count, and do."""
    with amounts("DOUBLE", unique=False, groups=2) as conn:
        for _ in range(5):
            assert [row[1] for row in conn.execute(VALUES.format(""), fresh=True)] == [3, 2]


@pytest.mark.parametrize("rows", [1, 50])
def test_groups_are_ranked_on_the_rows(rows: int) -> None:
    sql = "SELECT ward, COUNT(x), COUNT(DISTINCT person) FROM visits GROUP BY ward"
    with amounts("DOUBLE", unique=False, groups=1, rows=rows) as conn:
        assert "dense_rank" in sql_of(conn, sql)
        for _ in range(5):
            assert sum(row[1] for row in conn.execute(sql, fresh=True)) == 3 + min(rows, 2) - 1


@pytest.mark.parametrize("groups", [15, 16])
def test_a_unit_with_few_rows_keeps_all_its_groups(groups: int) -> None:
    """Of three people one is in 10 groups, one in 40, one has 40 rows in one; the first and the last keep all."""
    database = duckdb.connect()
    database.execute("CREATE TABLE visits (person INTEGER, ward VARCHAR)")
    database.execute("INSERT INTO visits SELECT 1, 'w' || n FROM range(10) AS _(n)")
    database.execute("INSERT INTO visits SELECT 2, 'w' || n FROM range(40) AS _(n)")
    database.execute("INSERT INTO visits SELECT 3, 'w0' FROM range(40) AS _(n)")
    wards = {"type": "text", "values": [f"w{number}" for number in range(50)]}
    schema = {
        "dataset": "clinic",
        "contribution": {"max_groups": groups, "max_rows_per_group": 1},
        "tables": {"visits": {"unit": "person", "columns": {"person": "integer", "ward": wards}}},
    }
    sql = "SELECT ward, COUNT(*) FROM visits GROUP BY ward ORDER BY ward"
    kept = set()
    with dpsql.connect(database, schema=schema, budget=1e18, query_epsilon=1e12, delta=1e-6) as conn:
        for _ in range(5):
            answer = dict(conn.execute(sql, fresh=True).fetchall())
            assert sum(answer.values()) == 10 + groups + 1
            assert min(answer[f"w{number}"] for number in range(10)) >= 1
            kept.add(tuple(answer.values()))
    assert len(kept) > 1

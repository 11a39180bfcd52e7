"""Columns that exclude each other share their bound: each has the noise of one alone. docs/proofs/exclusive.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.synthetic import answer
from dpsql.verification.audit import moved_too_far

SCHEMA: dict[str, Any] = {
    "dataset": "visits",
    "contribution": {"max_groups": 2, "max_rows_per_group": 3},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "ward": {"type": "text", "values": ["a", "b", "c", "d"]},
                "kind": {"type": "text", "nullable": True},
                "cost": {"type": "double", "bounds": [-10, 90], "nullable": True},
                "days": {"type": "integer", "bounds": [0, 9]},
            },
        },
        "people": {
            "unit": "id",
            "unique": True,
            "columns": {
                "id": "integer",
                "kind": {"type": "text", "nullable": True},
                "age": {"type": "integer", "bounds": [0, 99]},
            },
        },
    },
}
COUNTS = ", ".join(f"COUNT(*) FILTER (WHERE kind = '{kind}') AS {kind}" for kind in "xyz")
SHAPES = {
    "counts": f"SELECT {COUNTS} FROM visits",
    "counts by public keys": f"SELECT ward, {COUNTS} FROM visits GROUP BY ward",
    "counts by unknown keys": f"SELECT days, {COUNTS} FROM visits GROUP BY days",
    "beside a count of all": f"SELECT ward, COUNT(*), {COUNTS}, SUM(cost) FROM visits GROUP BY ward",
    "sums": """
        SELECT SUM(CASE WHEN kind = 'x' THEN cost END), SUM(CASE WHEN kind = 'y' THEN days ELSE 0 END) FROM visits""",
    "counts, sums and averages": """
        SELECT ward, COUNT(*) FILTER (WHERE days < 3), SUM(cost) FILTER (WHERE days < 3),
               AVG(cost) FILTER (WHERE days > 5), AVG(days) FILTER (WHERE days BETWEEN 3 AND 5)
        FROM visits GROUP BY ward""",
    "two bundles": f"SELECT {COUNTS}, COUNT_IF(days < 5), COUNT_IF(days >= 5) FROM visits",
    "people": f"SELECT {COUNTS}, AVG(age) FILTER (WHERE kind = 'v') FROM people",
    "people by unknown keys": f"SELECT age, {COUNTS} FROM people GROUP BY age",
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("""
            SET threads = 1;
            CREATE TABLE visits (person BIGINT, ward VARCHAR, kind VARCHAR, cost DOUBLE, days BIGINT);
            CREATE TABLE people (id BIGINT PRIMARY KEY, kind VARCHAR, age BIGINT)""")
        yield connection


@pytest.fixture(scope="module")
def session(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=1e9, delta=1e-6, query_epsilon=1) as connection:
        yield connection


visits = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from("abcd"),
        st.one_of(st.none(), st.sampled_from(["x", "y", "z", "v", "X"])),
        st.one_of(st.none(), st.floats()),
        st.integers(-1, 10),
    ),
    max_size=30,
)


@pytest.mark.parametrize("sql", SHAPES.values(), ids=SHAPES)
@settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rows=visits)
def test_nobody_moves_a_bundle_further_than_one_of_its_cases(
    sql: str, raw: duckdb.DuckDBPyConnection, session: dpsql.Connection, rows: list[tuple[Any, ...]]
) -> None:
    """In each group, all cases together: so the joint move is bounded in L1 and in L2."""
    raw.execute("DELETE FROM visits; DELETE FROM people")
    if rows:  # in one statement, which takes a quarter of the time
        raw.execute(f"INSERT INTO visits VALUES {', '.join(['(?, ?, ?, ?, ?)'] * len(rows))}", [*chain(*rows)])
        raw.execute("INSERT INTO people SELECT person, any_value(kind), max(days) FROM visits GROUP BY person")
    (release,) = session.explain(sql).releases
    assert any(measure.place for measure in release.measures)
    (statement,) = raw.extract_statements(release.sql)
    whole = answer(raw, statement)
    for person in (1, 2):
        raw.execute("BEGIN; DELETE FROM visits WHERE person = ?", [person])
        raw.execute("DELETE FROM people WHERE id = ?", [person])
        assert list(moved_too_far(release, whole, answer(raw, statement))) == []
        raw.execute("ROLLBACK")


def test_a_row_of_two_cases_counts_for_one(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    """The bound does not lean on the conditions: here an engine takes both of them for true."""
    raw.execute("DELETE FROM visits; DELETE FROM people; INSERT INTO people VALUES (1, 'x', 50)")
    raw.execute("INSERT INTO visits SELECT 1, 'a', 'x', 5, 1 FROM range(3)")
    for sql in (SHAPES["people"], SHAPES["counts"]):
        (release,) = session.explain(sql).releases
        confused = release.sql.replace("= 'y'", "= 'x'").replace("= 'z'", "= 'x'")
        (row,) = answer(raw, confused)[1]
        cases: dict[Any, float] = {}
        for step, measure in zip(row, release.measures, strict=True):
            cases[measure.place] = max(step / measure.linf, cases.get(measure.place, 0))
        assert 0.99 < sum(cases.values()) <= 1


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_each_has_the_noise_of_one_alone(session: dpsql.Connection, mechanism: str) -> None:
    def widths(sql: str) -> list[float | None]:
        return [column.half_width for column in session.explain(sql, mechanism=mechanism).columns]

    (alone,) = widths("SELECT COUNT(*) FILTER (WHERE kind = 'x') FROM visits")
    assert alone is not None
    assert widths(SHAPES["counts"]) == pytest.approx([alone] * 3, rel=0.05)
    overlapping = "SELECT COUNT_IF(days < 1), COUNT_IF(days < 2), COUNT_IF(days < 3) FROM visits"
    assert min(width or 0 for width in widths(overlapping)) > 1.6 * alone
    people = widths("SELECT COUNT_IF(kind = 'x'), COUNT_IF(kind = 'y'), COUNT_IF(kind = 'z') FROM people")
    assert people == widths("SELECT COUNT_IF(kind = 'x') FROM people") * 3


def test_the_whole_costs_what_one_does(session: dpsql.Connection) -> None:
    for mechanism in ("laplace", "gaussian"):
        one = session.explain("SELECT COUNT(*) FILTER (WHERE kind = 'x') FROM visits", mechanism=mechanism)
        three = session.explain(SHAPES["counts"], mechanism=mechanism)
        assert three.cost == one.cost
        assert three.share == pytest.approx(one.share)
        assert "a row counts in only one of 3 columns" in str(three)
        assert "at most 3 rows per person in all of them" in str(three)


ANSWERS = [
    "SELECT COUNT_IF(kind = 'x') a, COUNT_IF(kind = 'y') b, COUNT_IF(kind IS NULL) c FROM visits",
    "SELECT ward, SUM(CASE WHEN kind = 'x' THEN days ELSE 0 END) a, AVG(cost) FILTER (WHERE kind = 'y') b,"
    " SUM(cost) FILTER (WHERE kind IS NULL) c FROM visits GROUP BY ward",
    "PIVOT (SELECT ward, kind, days FROM visits) ON kind IN ('x', 'y', 'z') USING SUM(days)",
    "SELECT COUNT_IF(kind = 'x') a, AVG(age) FILTER (WHERE kind = 'y') b FROM people",
]


@pytest.mark.parametrize("sql", ANSWERS)
def test_without_noise_they_are_what_they_should_be(
    sql: str, raw: duckdb.DuckDBPyConnection, session: dpsql.Connection
) -> None:
    """Three rows of a person in one group at most, so that nothing is cut."""
    raw.execute("""
        DELETE FROM visits; DELETE FROM people;
        INSERT INTO visits SELECT i // 3, substr('abcd', 1 + (i // 3) % 4, 1),
            [NULL, 'x', 'y', 'z', 'v'][1 + i * 7 % 5], CASE WHEN i % 11 THEN i * 13 % 101 - 10 END, i % 10
            FROM range(300) AS r(i);
        INSERT INTO people SELECT i, ['x', 'y', NULL][1 + i % 3], i % 100 FROM range(300) AS r(i)""")
    found = session.execute(sql, epsilon=1e7, mechanism="laplace").fetchall()
    for row, wanted in zip(sorted(found), sorted(raw.execute(sql).fetchall()), strict=True):
        keys = sum(isinstance(cell, str) for cell in wanted)
        assert row[:keys] == wanted[:keys]
        assert list(map(float, row[keys:])) == pytest.approx(list(map(float, wanted[keys:])), abs=1e-3)


def test_heavy_people_keep_their_proportions(raw: duckdb.DuckDBPyConnection, session: dpsql.Connection) -> None:
    """30 rows of which 3 count: 20 x, 7 y and 3 z become 2, 0.7 and 0.3 for each of 100 people."""
    raw.execute("DELETE FROM visits")
    raw.execute("""
        INSERT INTO visits SELECT p, 'a', CASE WHEN i < 20 THEN 'x' WHEN i < 27 THEN 'y' ELSE 'z' END, 0, 0
        FROM range(100) AS a(p), range(30) AS b(i)""")
    assert session.execute(SHAPES["counts"], epsilon=1e6).fetchall() == [(200, 70, 30)]

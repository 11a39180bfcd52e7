"""Rows that are alone in a group of their unit are added up by key, beside units with more rows there: nothing else
follows from it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import dpsql
from dpsql.aggregates import write_by_hash
from dpsql.engine_sql.tree import Either
from dpsql.engines.duckdb.render import SPELLED
from dpsql.engines.render import Renderer
from dpsql.synthetic import answer
from dpsql.verification.audit import moved_too_far

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Query
    from dpsql.explain import ExplainedRelease
    from dpsql.synthetic import Answer

HASHES = {
    "as it is": SPELLED["keyed hash"],
    "all alike": lambda *parts: "CAST(0 AS UINTEGER)",
    "eight": lambda *parts: f"CAST(hash({', '.join(parts)}) & 7 AS UINTEGER)",
}
ANSWERS = (
    "COUNT(*), COUNT(paid), COUNT(DISTINCT person), SUM(paid), AVG(paid)",
    "SUM(whole), AVG(whole), SUM(large), COUNT(DISTINCT CASE WHEN whole > 2 THEN person END)",
    "SUM(price), COUNT(*, contribution_bounds_per_group => (0, 1)), AVG(price)",
    "SUM(whole, contribution_bounds_per_group => (1, 4)), COUNT(*)",
    "COUNT_IF(whole > 3), COUNT_IF(whole <= 3), SUM(CASE WHEN whole > 3 THEN paid END)",
    "VARIANCE(whole), SUM(coalesce(paid, 0))",
)
SOURCES = {
    "a table": "visits",
    "a union": "(SELECT * FROM visits UNION ALL SELECT * FROM visits WHERE whole > 0)",
    "a join": "(SELECT v.*, w.whole AS other FROM visits v JOIN visits w ON v.person = w.person AND v.house = w.house)",
}
COLUMNS: dict[str, Any] = {
    "place": "text",
    "house": "integer",
    "whole": {"type": "integer", "bounds": [-3, 7]},
    "large": {"type": "integer", "bounds": [-(10**12), 10**12]},
    "paid": {"type": "double", "bounds": [-5, 20]},
    "price": {"type": "decimal(8, 2)", "bounds": [0, 50]},
}
BOUNDS = (("place", 1), ("house", 2), ("place", 8))
"""By which key, and how many rows of a group may count."""


def visits(people: int, rows: int) -> duckdb.DuckDBPyConnection:
    """Of some people many rows and of others one, in groups that have one of them or several, nowhere included."""
    database = duckdb.connect()
    a, b, c, d = (f"CAST(hash(i, {seed}) >> 20 AS BIGINT)" for seed in range(4))
    database.execute(
        f"CREATE TABLE visits AS SELECT CAST(pow({a} / pow(2, 44), 2) * {people} AS INTEGER) AS person, "
        f"nullif('p' || {b} % 12, 'p0') AS place, nullif({b} % 12, 1) AS house, nullif({c} % 15 - 5, 0) AS whole, "
        f"{d} % 4 * 400000000000 - 500000000000 AS large, CAST({c} % 6000 / 100 AS DECIMAL(8, 2)) AS price, "
        f"CASE {d} % 7 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE ELSE {c} % 31 - 6.5 END AS paid "
        f"FROM range({rows}) AS numbers(i)"
    )
    return database


def connected(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    tables = {"visits": {"unit": "person", "columns": {"person": "integer", **COLUMNS}}}
    return dpsql.connect(database, schema={"tables": tables}, budget=1, delta=1e-6)


@cache
def kept_visits(people: int, rows: int) -> duckdb.DuckDBPyConnection:
    """A database that is left as it is."""
    database = visits(people, rows)
    database.execute("SET threads = 1")
    return database


@cache
def kept_session(people: int, rows: int, hashed: str, written: str) -> dpsql.Connection:
    """SQL is kept there as it was written: one for each hash, and for each way to write it."""
    return connected(kept_visits(people, rows))


def releases_of(connection: dpsql.Connection, answers: str, source: str = "visits") -> list[ExplainedRelease]:
    return [
        release
        for key, rows in BOUNDS
        for release in connection.explain(
            f"SELECT {key}, {answers} FROM {source} GROUP BY {key}", max_groups=4, max_rows_per_group=rows
        ).releases
    ]


def found(database: duckdb.DuckDBPyConnection, releases: list[ExplainedRelease]) -> list[Answer]:
    return [answer(database, release.sql) for release in releases]


def by_key(renderer: Renderer, query: Query) -> str:
    return renderer.query(query.by_key) if isinstance(query, Either) else WRITTEN(renderer, query)


WRITTEN = Renderer._query


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("answers", ANSWERS)
def test_the_same_counts(answers: str, source: str, hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all rows are summed by unit and rank, whatever the hashes are; where they differ, as by their keys."""
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    database = kept_visits(40, 200)
    beside = found(database, releases_of(kept_session(40, 200, hashed, "beside"), answers, SOURCES[source]))
    if hashed == "as it is":
        monkeypatch.setattr(Renderer, "_query", by_key)
    else:
        monkeypatch.setattr(write_by_hash, "FEW_ROWS", 0)
    assert found(database, releases_of(kept_session(40, 200, hashed, "by key"), answers, SOURCES[source])) == beside


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("answers", ANSWERS)
def test_nobody_moves_further(answers: str, hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    database = kept_visits(6, 40)
    releases = releases_of(kept_session(6, 40, hashed, "beside"), answers)
    statements = [database.extract_statements(release.sql)[0] for release in releases]
    together = [answer(database, statement) for statement in statements]
    for person in range(7):
        database.execute(f"BEGIN; DELETE FROM visits WHERE person = {person}")
        for release, statement, whole in zip(releases, statements, together, strict=True):
            assert list(moved_too_far(release, whole, answer(database, statement))) == []
        database.execute("ROLLBACK")


def test_ties_are_seen_in_one_order() -> None:
    """Whether a row is alone is asked of several functions over one window: the engine sorts once for all of them."""
    database = visits(30_000, 300_000)
    with connected(database) as connection:
        release, *_ = releases_of(connection, "COUNT(*), SUM(paid)")
    plan = database.execute(f"EXPLAIN (FORMAT json) {release.sql}").fetchall()[0][1]
    assert release.sql.count("OVER (") == 4
    assert plan.count('"WINDOW"') == 1
    tied = """
        SELECT count(*) FROM (
            SELECT row_number() OVER tied = rank() OVER tied AND lead(h) OVER tied IS DISTINCT FROM h AS alone,
                count(*) OVER (PARTITION BY person, h) AS number
            FROM (SELECT person, hash(place) & 3 AS h FROM visits) WINDOW tied AS (PARTITION BY person ORDER BY h))
        WHERE alone <> (number = 1)"""
    assert database.execute(tied).fetchall() == [(0,)]

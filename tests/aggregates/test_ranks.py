"""At most g groups of each unit count, whatever their hashes are, and the same ones however a unit is stored."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.render import SPELLED

GROUPS = 3
HASHES = {
    "as it is": SPELLED["keyed hash"],
    "all alike": lambda *parts: "CAST(0 AS UINTEGER)",
    "even and odd": lambda *parts: f"CAST(hash({', '.join(parts)}) & 1 AS UINTEGER)",
    "four": lambda *parts: f"CAST(hash({', '.join(parts)}) & 3 AS UINTEGER)",
}
COLUMNS = {"place": "text", "street": "text", "day": {"type": "integer", "bounds": [0, 6]}}
QUESTIONS = (
    "SELECT place, COUNT(DISTINCT person) FROM visits GROUP BY place",
    "SELECT place, street, COUNT(DISTINCT person) FROM visits GROUP BY place, street",
    "SELECT day, COUNT(DISTINCT person) FROM visits GROUP BY day",
    "SELECT place, COUNT(DISTINCT person), COUNT(DISTINCT day) FROM visits GROUP BY place",
    "SELECT place, COUNT(DISTINCT person), MEDIAN(day) FROM visits GROUP BY place",
)


def visits(people: int, person: str = "INTEGER") -> duckdb.DuckDBPyConnection:
    """Everybody is everywhere, nowhere included."""
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE visits AS SELECT CAST(u AS {person}) AS person, nullif('p' || p, 'p0') AS place, "
        "'s' || s AS street, p % 7 AS day "
        f"FROM range(1, {people + 1}) AS us(u), range(9) AS ps(p), range(2) AS ss(s)"
    )
    return database


def connected(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    schema = {
        "contribution": {"max_groups": GROUPS, "max_rows_per_group": 2},
        "tables": {"visits": {"unit": "person", "columns": {"person": "integer", **COLUMNS}}},
    }
    return dpsql.connect(database, schema=schema, epsilon=1, delta=1e-6)


def exact(database: duckdb.DuckDBPyConnection, question: str) -> list[tuple[Any, ...]]:
    with connected(database) as connection:
        return found(connection, question)


def found(connection: dpsql.Connection, question: str) -> list[tuple[Any, ...]]:
    (release,) = connection.explain(question).releases
    columns = connection.session.environment.engine.run(release.sql)
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_unit_is_in_more_groups(question: str, hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    keys = question.count(",", 0, question.index("COUNT"))
    groups = exact(visits(1), question)
    assert 1 <= sum(row[keys] for row in groups) <= GROUPS
    assert all(row[keys] <= 1 for row in groups)
    assert len({row[:keys] for row in groups}) == len(groups)


@pytest.mark.parametrize("hashed", HASHES)
def test_everybody_counts_as_if_alone(hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else is there."""
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    database = visits(8)
    together = {place: people for place, people, *_ in exact(database, QUESTIONS[0])}
    for _ in range(8):
        person = database.execute("SELECT max(person) FROM visits").fetchall()[0][0]
        database.execute(f"DELETE FROM visits WHERE person = {person}")
        others = {place: people for place, people, *_ in exact(database, QUESTIONS[0])}
        moved = [place for place in together if together[place] != others.get(place, 0)]
        assert 1 <= len(moved) <= GROUPS
        assert all(together[place] - others.get(place, 0) == 1 for place in moved)
        together = others


@pytest.mark.parametrize("question", QUESTIONS)
def test_how_a_unit_is_stored_does_not_matter(question: str) -> None:
    wide = exact(visits(50, "BIGINT"), question)
    for person in ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "HUGEINT"):
        assert str(exact(visits(50, person), question)) == str(wide)


def test_units_of_different_widths_meet() -> None:
    """A union of two tables has each person once."""
    database = visits(50)
    database.execute("ALTER TABLE visits RENAME TO first")
    database.execute("CREATE TABLE second AS SELECT * REPLACE (CAST(person AS BIGINT) AS person) FROM first")
    columns = {"person": "integer", **COLUMNS}
    schema = {
        "contribution": {"max_groups": GROUPS, "max_rows_per_group": 2},
        "tables": {name: {"unit": "person", "columns": columns} for name in ("first", "second")},
    }
    both = "(SELECT person, place FROM first UNION ALL SELECT person, place FROM second)"
    joined = "first JOIN second ON first.person = second.person AND first.day = second.day"
    with dpsql.connect(database, schema=schema, epsilon=1, delta=1e-6) as connection:
        united = found(connection, f"SELECT place, COUNT(DISTINCT person) FROM {both} GROUP BY place")
        meeting = found(connection, f"SELECT COUNT(DISTINCT first.person) FROM {joined}")
    assert sum(row[1] for row in united) == 50 * GROUPS
    assert meeting[0][0] == 50

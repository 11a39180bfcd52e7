"""At most g groups of each unit count, whatever their hashes are, and the same ones however a unit is stored."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.render import SPELLED
from dpsql.synthetic import answer
from dpsql.verification.audit import moved_too_far

GROUPS = 3
HASHES = {
    "as it is": SPELLED["keyed hash"],
    "all alike": lambda *parts: "CAST(0 AS UINTEGER)",
    "even and odd": lambda *parts: f"CAST(hash({', '.join(parts)}) & 1 AS UINTEGER)",
    "four": lambda *parts: f"CAST(hash({', '.join(parts)}) & 3 AS UINTEGER)",
}
COLUMNS: dict[str, Any] = {
    "place": "text",
    "street": "text",
    "zone": {"type": "text", "values": [f"p{number}" for number in range(9)]},
    "house": "integer",
    "since": "date",
    "day": {"type": "integer", "bounds": [0, 6]},
    "paid": {"type": "double", "bounds": [-5, 20]},
}
QUESTIONS = (
    "SELECT place, COUNT(DISTINCT person) FROM visits GROUP BY place",
    "SELECT place, street, COUNT(DISTINCT person) FROM visits GROUP BY place, street",
    "SELECT day, COUNT(DISTINCT person) FROM visits GROUP BY day",
    "SELECT place, COUNT(DISTINCT person), COUNT(DISTINCT day) FROM visits GROUP BY place",
    "SELECT place, COUNT(DISTINCT person), MEDIAN(day) FROM visits GROUP BY place",
    "SELECT house, COUNT(DISTINCT person), COUNT(*), SUM(paid) FROM visits GROUP BY house",
    "SELECT since, COUNT(DISTINCT person), SUM(paid) FROM visits GROUP BY since",
)
MOVES = (
    "SELECT place, COUNT(*), COUNT(paid), SUM(paid), AVG(paid) FROM visits GROUP BY place",
    "SELECT place, street, COUNT(*), SUM(paid) FROM visits GROUP BY place, street",
    "SELECT house, COUNT(*), SUM(paid), COUNT(DISTINCT person) FROM visits GROUP BY house",
    "SELECT since, COUNT(*), SUM(paid) FROM visits GROUP BY since",
    "SELECT day, COUNT(*), SUM(paid) FROM visits GROUP BY day",
    "SELECT place, COUNT(*), COUNT(DISTINCT day), SUM(paid) FROM visits GROUP BY place",
    "SELECT CASE WHEN zone <> 'p0' THEN zone END AS z, COUNT(*), SUM(paid), COUNT(DISTINCT day) FROM visits GROUP BY z",
    "SELECT CASE WHEN zone <> 'p0' THEN zone END AS z, COUNT(*), SUM(paid) FROM visits GROUP BY z",
)


def visits(people: int, person: str = "INTEGER") -> duckdb.DuckDBPyConnection:
    """Everybody is everywhere, nowhere included."""
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE visits AS SELECT CAST(u AS {person}) AS person, nullif('p' || p, 'p0') AS place, "
        "'s' || s AS street, 'p' || p AS zone, p, p % 7 AS day, nullif(p, 1) AS house, "
        "DATE '2020-01-01' + nullif(p, 2)::INTEGER AS since, "
        "CASE p % 5 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE ELSE 7.0 * u - 5 * p * s END AS paid "
        f"FROM range(1, {people + 1}) AS us(u), range(9) AS ps(p), range(2) AS ss(s)"
    )
    return database


def connected(database: duckdb.DuckDBPyConnection, epsilon: float = 1) -> dpsql.Connection:
    schema = {
        "contribution": {"max_groups": GROUPS, "max_rows_per_group": 2},
        "tables": {"visits": {"unit": "person", "columns": {"person": "integer", **COLUMNS}}},
    }
    return dpsql.connect(database, schema=schema, budget=epsilon, delta=1e-6)


@cache
def kept(people: int, hashed: str) -> tuple[duckdb.DuckDBPyConnection, dpsql.Connection]:
    """A database that is left as it is, and its session. SQL is kept there as it was written: one for each hash."""
    database = visits(people)
    return database, connected(database)


def found(connection: dpsql.Connection, question: str) -> list[tuple[Any, ...]]:
    (release,) = connection.explain(question).releases
    columns = connection.session.environment.engine.run(release.sql)
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_unit_is_in_more_groups(question: str, hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    keys = question.count(",", 0, question.index("COUNT"))
    _, connection = kept(1, hashed)
    groups = found(connection, question)
    assert 1 <= sum(row[keys] for row in groups) <= GROUPS
    assert all(row[keys] <= 1 for row in groups)
    assert len({row[:keys] for row in groups}) == len(groups)


@pytest.mark.parametrize("hashed", HASHES)
def test_everybody_counts_as_if_alone(hashed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else is there."""
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    database = visits(8)
    with connected(database) as connection:
        together = {place: people for place, people, *_ in found(connection, QUESTIONS[0])}
        for _ in range(8):
            person = database.execute("SELECT max(person) FROM visits").fetchall()[0][0]
            database.execute(f"DELETE FROM visits WHERE person = {person}")
            others = {place: people for place, people, *_ in found(connection, QUESTIONS[0])}
            moved = [place for place in together if together[place] != others.get(place, 0)]
            assert 1 <= len(moved) <= GROUPS
            assert all(together[place] - others.get(place, 0) == 1 for place in moved)
            together = others


@pytest.mark.parametrize("people", [1, 4])
@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("question", MOVES)
def test_nobody_moves_further(question: str, hashed: str, people: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the hashes are: at most g groups move, by no more than is claimed, on all branches together."""
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES[hashed])
    database, connection = kept(people, hashed)
    (release,) = connection.explain(question).releases
    (statement,) = database.extract_statements(release.sql)
    together = answer(database, statement)
    for person in range(1, people + 1):
        database.execute(f"BEGIN; DELETE FROM visits WHERE person = {person}")
        assert list(moved_too_far(release, together, answer(database, statement))) == []
        database.execute("ROLLBACK")


@pytest.mark.parametrize("key", ["place", "house", "since", "day", "place, house"])
def test_nothing_is_lost_where_groups_are_few(key: str) -> None:
    """Of people who are in no more groups than may count, and have no more rows there, everything counts."""
    database = visits(300)
    database.execute("DELETE FROM visits WHERE (p - person) % 3 <> 0 OR p > 6")
    question = f"SELECT {key}, COUNT(*), COUNT(paid), COUNT(DISTINCT person) FROM visits GROUP BY {key} ORDER BY ALL"
    plain = database.execute(question.replace("COUNT(paid)", "COUNT(nullif(paid, 'nan'))")).fetchall()
    with connected(database, epsilon=1e9) as connection:
        answers = connection.execute(question, epsilon=1e8).fetchall()
    assert len(plain) == 7
    assert answers == plain


def test_ties_keep_groups_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 127 groups have places of their own, though all hashes are alike."""
    monkeypatch.setitem(SPELLED, "keyed hash", HASHES["all alike"])
    database = duckdb.connect()
    database.execute("CREATE TABLE visits AS SELECT u AS person, d AS day FROM range(3) us(u), range(127) ds(d)")
    assert sum(times for _, times in counted_by_day(database, groups=100, days=127)) == 300


def counted_by_day(database: duckdb.DuckDBPyConnection, groups: int, days: int) -> list[tuple[Any, ...]]:
    columns = {"person": "integer", "day": {"type": "integer", "bounds": [0, days - 1]}}
    schema = {
        "contribution": {"max_groups": groups, "max_rows_per_group": 1},
        "tables": {"visits": {"unit": "person", "columns": columns}},
    }
    with dpsql.connect(database, schema=schema, budget=1, delta=1e-6) as connection:
        return found(connection, "SELECT day, COUNT(DISTINCT person) FROM visits GROUP BY day")


def test_how_a_unit_is_stored_does_not_matter() -> None:
    answers = {}
    for person in ("BIGINT", "TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "HUGEINT"):
        with connected(visits(50, person)) as connection:
            answers[person] = [str(found(connection, question)) for question in QUESTIONS]
    for other in answers.values():
        assert other == answers["BIGINT"]


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
    with dpsql.connect(database, schema=schema, budget=1, delta=1e-6) as connection:
        united = found(connection, f"SELECT place, COUNT(DISTINCT person) FROM {both} GROUP BY place")
        meeting = found(connection, f"SELECT COUNT(DISTINCT first.person) FROM {joined}")
    assert sum(row[1] for row in united) == 50 * GROUPS
    assert meeting[0][0] == 50

"""What is declared can be looked at, for free: in SQL, as attributes, and in the repr of everything."""

from __future__ import annotations

import pandas as pd
import pytest

import dpsql

SCHEMA = {
    "dataset": "hospital",
    "tables": {
        "patients": {
            "unit": "id",
            "unique": True,
            "columns": {"id": "integer", "sex": {"type": "text", "values": ["f", "m"]}, "note": "text"},
        },
        "visits": {
            "unit": "patient",
            "contribution": {"max_groups": 2, "max_rows_per_group": 3},
            "columns": {
                "visit": "integer",
                "patient": "integer",
                "cost": {"type": "double", "bounds": [0, 800], "nullable": True},
            },
        },
        "tests": {"unit": {"through": "visit", "to": "visits.visit"}, "columns": {"visit": "integer", "kind": "text"}},
        "wards": {"public": True, "columns": {"ward": "text"}},
    },
}


@pytest.fixture
def session() -> dpsql.Connection:
    frames = {
        "patients": pd.DataFrame({"id": [1], "sex": ["f"], "note": [""]}),
        "visits": pd.DataFrame({"visit": [1], "patient": [1], "cost": [2.0]}),
        "tests": pd.DataFrame({"visit": [1], "kind": ["x"]}),
        "wards": pd.DataFrame({"ward": ["a"]}),
    }
    return dpsql.connect(frames, schema=SCHEMA, budget=1, delta=1e-6)


def test_tables(session: dpsql.Connection) -> None:
    assert list(session.tables) == [
        ("patients", "id", "one row per person", "id, sex, note"),
        ("visits", "patient", "3 rows in each of 2 groups", "visit, patient, cost"),
        ("tests", "visit -> visits -> patient", "as many rows as each query finds in as many groups", "visit, kind"),
        ("wards", "public", "everything", "ward"),
    ]
    assert session.execute("SHOW TABLES").fetchall() == list(session.tables)
    assert session.execute(" show all tables ;").fetchall() == list(session.tables)


@pytest.mark.parametrize(
    "sql", ["DESCRIBE visits", "desc Visits;", 'DESCRIBE TABLE "visits"', "SHOW COLUMNS FROM visits"]
)
def test_columns(sql: str, session: dpsql.Connection) -> None:
    cursor = session.execute(sql)
    assert [name for name, *_ in cursor.description or ()] == ["column", "type", "declared"]
    assert cursor.fetchall() == [
        ("visit", "integer", ""),
        ("patient", "integer", "identifies the person"),
        ("cost", "double", "from 0 to 800; may be NULL"),
    ]
    assert cursor.df().shape == (3, 3)


def test_the_whole_schema(session: dpsql.Connection) -> None:
    assert ("patients", "sex", "text", "'f', 'm'") in list(session.schema)
    assert ("tests", "visit", "integer", "leads to visits.visit") in list(session.schema)
    assert len(session.schema) == 9
    assert "<td>leads to visits.visit</td>" in session.schema._repr_html_()


def test_listing_costs_nothing(session: dpsql.Connection) -> None:
    session.execute("DESCRIBE patients")
    assert session.budget.queries == 0


def test_everything_says_what_it_is(session: dpsql.Connection) -> None:
    assert repr(session) == "<dpsql connection to hospital: epsilon 1 of 1 left>"
    cursor = session.cursor()
    assert repr(cursor) == "<dpsql cursor, no query yet>"
    assert repr(cursor.execute("SHOW TABLES")).startswith("table ")
    assert repr(session.explain("SELECT COUNT(*) FROM visits")).startswith("cost ")
    assert repr(session.execute("SELECT COUNT(*) AS n FROM visits", diagnose=False)).split()[0] == "n"
    assert "spent in 1 query," in repr(session.budget)
    assert repr(session.promise()).startswith("Each person in")
    session.close()
    assert repr(session) == "<dpsql connection, closed>"


WARNED = {
    "sex = 'F'": "no row has sex 'F': did you mean 'f'?",
    "p.sex IN ('m', 'male')": "no row has sex 'male': it has 'f', 'm'",
    "'x' <> sex": "no row has sex 'x': it has 'f', 'm'",
    "sex = 'f'": None,
    "note = 'F'": None,
    "UPPER(sex) = 'F'": None,
}


@pytest.mark.parametrize("condition", WARNED)
def test_a_constant_that_is_not_declared_is_pointed_out(condition: str, session: dpsql.Connection) -> None:
    """The list of values is public, so this is said before the charge, and the question is answered all the same."""
    sql, expected = f"SELECT COUNT(*) FROM patients AS p WHERE {condition}", WARNED[condition]
    wanted = [] if expected is None else [expected]
    assert list(session.explain(sql).notes) == wanted
    cursor = session.execute(sql, epsilon=0.1)
    said = [str(warning) for _, warning in cursor.messages]
    assert [note for note in said if "noise" not in note] == wanted
    assert all(kind is dpsql.Warning for kind, _ in cursor.messages)
    assert all(note in (cursor._repr_html_() or "").replace("&#x27;", "'") for note in wanted)


def test_a_name_of_a_with_query_declares_nothing(session: dpsql.Connection) -> None:
    sql = "WITH patients AS (SELECT id, note AS sex FROM patients) SELECT COUNT(*) FROM patients WHERE sex = 'F'"
    assert session.explain(sql).notes == ()


def test_an_error_is_shown_by_ipython_in_its_own_words(session: dpsql.Connection) -> None:
    with pytest.raises(dpsql.UnknownName) as caught:
        session.execute("SELECT COUNT(*) FROM visit")
    assert caught.value._render_traceback_() == [f"UnknownName: {caught.value}"]

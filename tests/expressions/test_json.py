"""Columns of JSON are texts, and what they say at a path is what DuckDB reads; what is no JSON says nothing."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

SCHEMA = {
    "dataset": "events",
    "tables": {
        "events": {
            "unit": "person",
            "unique": True,
            "columns": {"person": "integer", "payload": "text", "raw": "text", "opened": "text"},
        }
    },
}
PAYLOADS = [
    '{"kind": "click", "n": 3, "at": {"x": 1.50, "tags": ["a", "b"]}, "a.b": "dot", "a b": "space"}',
    '{"kind": "view", "n": null, "at": {"x": true, "tags": []}, "a": {"b": "path"}}',
    '{"kind": "Grüße", "n": "7", "at": [1E9, 1e15], "kind\\n": 1}',
    '[{"x": 5}, {"x": 6}]',
    '"text"',
    "null",
    "{}",
    "1e400",
]
BROKEN = ["{bad", "", " ", '{"a": "\\ud800"}', '{"kind": }', '{"kind": "click"', "[" * 5000, "nan", "\\", "ü{"]
"""Texts that no database reads as JSON."""
PATHS = [
    "payload ->> 'kind'",
    "payload ->> '$.kind'",
    "json_extract_string(payload, '$.n')",
    "payload ->> 'a.b'",
    "payload ->> '$.a.b'",
    """payload ->> '$."a b"'""",
    "payload ->> 'a b'",
    "payload ->> '$.at.x'",
    "payload -> 'at' ->> 'x'",
    "(payload -> 'at') ->> 'x'",
    "payload -> '$.at' -> 'tags' ->> 0",
    "payload ->> '$.at.tags[1]'",
    "payload ->> '$[0].x'",
    "payload ->> 1",
    "payload ->> 'at'",
    "json_extract_string(payload, 'kind')",
]
REFUSED = [
    "payload ->> '/kind'",
    "payload ->> '$[*].x'",
    "payload ->> '$..x'",
    "payload ->> '*'",
    "payload ->> raw",
    "payload ->> '0'",
    "payload ->> '$[#-1]'",
    "payload ->> '$'",
    "payload -> 'kind'",
    "person ->> 'kind'",
]


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE events (person INTEGER PRIMARY KEY, payload JSON, raw VARCHAR, opened TIME)")
    for person in range(20 * len(PAYLOADS)):
        payload = PAYLOADS[person % len(PAYLOADS)]
        raw = BROKEN[person % len(BROKEN)] if person % 2 else payload
        opened = f"{8 + person // 60:02}:{person % 60:02}:00"
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", [person, payload, raw, opened])
    return connection


@pytest.fixture(scope="module")
def conn(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    with pytest.warns(dpsql.errors.Warning):
        return dpsql.connect(database, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9)


@pytest.mark.parametrize("path", PATHS)
def test_what_duckdb_reads(path: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    question = f"SELECT {path} AS k, COUNT(*) FROM events GROUP BY k ORDER BY k"
    assert conn.execute(question).fetchall() == database.execute(question).fetchall()


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_json_says_nothing(path: str, conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    question = f"SELECT {path.replace('payload', 'raw')} AS k, COUNT(*) FROM events GROUP BY k ORDER BY k"
    tried = question.replace("SELECT ", "SELECT TRY(", 1).replace(" AS k", ") AS k")
    assert conn.execute(question).fetchall() == database.execute(tried).fetchall()


@pytest.mark.parametrize("path", REFUSED)
def test_other_paths_are_refused(path: str, conn: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error):
        conn.explain(f"SELECT COUNT(*) FROM events WHERE {path} = 'x'")


def test_beside_everything_else(conn: dpsql.Connection, database: duckdb.DuckDBPyConnection) -> None:
    for question in (
        "SELECT COUNT(*) FROM events WHERE payload ->> 'kind' LIKE 'c%'",
        "SELECT COUNT(*) FROM events WHERE (payload ->> 'kind') IN ('click', 'view') AND payload ->> 'n' IS NOT NULL",
        "SELECT SUM(LEAST(GREATEST(CAST(payload ->> 'n' AS INTEGER), 0), 10)) FROM events",
        "SELECT COUNT(*) FROM events WHERE payload = 'null'",
        "SELECT COUNT(*) FROM events WHERE raw = '{bad' OR raw ->> 'kind' = 'click'",
        "SELECT COUNT(*) FROM events WHERE opened < '09:00:00'",
        "SELECT LEFT(opened, 2) AS h, COUNT(*) FROM (SELECT person, opened::VARCHAR AS opened FROM events) GROUP BY h "
        "ORDER BY h",
    ):
        plain = question.replace("raw ->>", "TRY(raw::JSON) ->>")
        assert conn.execute(question).fetchall() == database.execute(plain).fetchall(), question


def test_a_text_that_is_no_time_is_compared_as_a_text(conn: dpsql.Connection) -> None:
    assert conn.execute("SELECT COUNT(*) FROM events WHERE opened = 'noon'").fetchone() == (0,)
    assert conn.execute("SELECT COUNT(*) FROM events WHERE payload = '{no json'").fetchone() == (0,)


def test_above_the_aggregates_a_key_is_no_path(conn: dpsql.Connection) -> None:
    answer = conn.execute("""SELECT '{"a.b": 1, "a": {"b": 2}}' ->> 'a.b' AS k, COUNT(*) > 0 FROM events""")
    assert answer.fetchall() == [("1", True)]


def test_a_long_chain_of_calls_is_refused_before_it_is_read(conn: dpsql.Connection) -> None:
    """The parser would take minutes."""
    with pytest.raises(dpsql.Error, match="nested too deeply"):
        conn.explain(f"SELECT COUNT(*) FROM events WHERE raw{'.lower()' * 5000} = 'x'")

"""What tools ask of system tables: every query is answered, without an error and without a cost."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpsql.schema import load_schema
from dpsql.server.catalog import Catalog, read_statement
from dpsql.server.protocol import Refused
from dpsql.server.statements import parameter_types, statements_of
from dpsql.server.worker import declared

QUERIES: dict[str, str] = yaml.safe_load((Path(__file__).parent / "introspection.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def catalog(small_shop_schema: dict[str, Any]) -> Catalog:
    return Catalog("shop", declared(load_schema(small_shop_schema)))


@pytest.mark.parametrize("name", QUERIES)
def test_what_tools_ask_is_answered(catalog: Catalog, name: str) -> None:
    reading = read_statement(QUERIES[name])
    assert reading.is_catalog
    found = catalog.run(reading, [], "ada", 7)
    assert found.columns


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT relname FROM pg_class WHERE relkind = 'r' ORDER BY 1", [["customers"], ["orders"]]),
        ("SELECT 'orders'::regclass::oid = oid FROM pg_class WHERE relname = 'orders'", [[True]]),
        ("SELECT oid::regclass FROM pg_class WHERE relname = 'orders'", [["orders"]]),
        ("SELECT format_type(1700, 1179654), format_type(25, -1), format_type(1016, NULL)", None),
        ("SELECT current_user, current_database(), current_schema()", [["ada", "shop", "public"]]),
        ("SELECT count(*) FROM information_schema.columns WHERE table_name = 'orders'", [[7]]),
        ("SELECT obj_description(oid, 'pg_class') FROM pg_class WHERE relname = 'customers'", None),
        ("SELECT column_name, declared FROM dpsql.columns WHERE column_name = 'age'", [["age", "from 0 to 120"]]),
    ],
)
def test_it_says_what_is_declared(catalog: Catalog, sql: str, rows: list[list[Any]] | None) -> None:
    found = catalog.run(read_statement(sql), [], "ada", 7).rows
    assert None not in found[0]
    assert rows is None or found == rows


def test_names_with_blanks_are_quoted_in_keys() -> None:
    """psql prints the definitions, and people copy them."""
    way = {"unit": {"through": "rental no", "to": "all rentals.rental no"}, "columns": {"rental no": "integer"}}
    rentals = {"unit": "rider id", "unique": True, "columns": {"rental no": "integer", "rider id": "text"}}
    shown = Catalog("bikes", declared(load_schema({"tables": {"all rentals": rentals, "damages": way}})))
    found = shown.run(read_statement("SELECT pg_get_constraintdef(oid) FROM pg_constraint ORDER BY 1"), [], "ada", 7)
    keys = ['FOREIGN KEY ("rental no") REFERENCES "all rentals"("rental no")', 'PRIMARY KEY ("rider id")']
    assert found.rows == [[key] for key in keys]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM pg_catalog.duckdb_secrets()",
        "SELECT getenv('HOME')",
        "SELECT query('SELECT 1')",
        "SELECT * FROM query_table('pg.pg_class')",
        "SELECT f.version(), getvariable('login')",
        "SELECT sleep_ms(1000)",
        "SELECT * FROM pg_class, (SELECT setseed(0.5)) AS x",
        "SELECT nextval('x')",
        "WITH x AS (SELECT pg_read_file('/etc/passwd')) SELECT * FROM x",
        "SELECT lo_import('/etc/passwd')",
        "SELECT repeat('x', 1000000000)",
        "SELECT * FROM own.columns",
        "SELECT * FROM pg._definitions",
    ],
)
def test_nothing_else_is_reached(catalog: Catalog, sql: str) -> None:
    try:
        reading = read_statement(sql)
        assert reading.is_catalog is False or catalog.run(reading, [], "ada", 7) is None
    except Refused:
        pass


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (DELETE FROM pg_namespace RETURNING *) SELECT * FROM x",
        "WITH x AS (UPDATE pg_namespace SET nspname = 'mine' RETURNING *) SELECT * FROM x",
        "WITH x AS (INSERT INTO pg_namespace (oid) VALUES (7) RETURNING *) SELECT * FROM x",
        'SELECT extract("epoch FROM now()); DELETE FROM pg.pg_namespace; SELECT extract(epoch" FROM now())',
        'SELECT extract("epoch FROM now()), (SELECT getvariable(chr(112))), extract(epoch" FROM now())',
    ],
)
def test_nothing_is_written_and_no_word_is_a_statement(catalog: Catalog, sql: str) -> None:
    spaces = read_statement("SELECT nspname FROM pg_namespace ORDER BY 1")
    before = catalog.run(spaces, [], "ada", 7).rows
    with pytest.raises(Refused):
        catalog.run(read_statement(sql), [], "ada", 7)
    assert catalog.run(spaces, [], "ada", 7).rows == before


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM pg.pg_namespace", "SELECT 1; DELETE FROM pg.pg_namespace", "SET VARIABLE login = 'bob'", "BEGIN"],
)
def test_whatever_is_written_for_the_engine_it_reads_one_query(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """Behind the checks of the tree there is another."""
    monkeypatch.setattr("dpsql.server.catalog.rewritten", lambda tree: sql)
    with pytest.raises(Refused):
        catalog.run(read_statement("SELECT 1"), [], "ada", 7)


def test_a_large_answer_is_refused(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.catalog.LARGEST_ANSWER", 10_000)
    with pytest.raises(Refused, match="too long"):
        catalog.run(read_statement("SELECT relname FROM pg_class, generate_series(1, 100) AS g"), [], "ada", 7)
    with pytest.raises(Refused):
        catalog.run(read_statement("SELECT length(rpad('x', 2000000000, 'y'))"), [], "ada", 7)


@pytest.mark.parametrize("opening", ["array[", "int[", "text(", "if["])
def test_no_brackets_keep_the_parser_busy(opening: str) -> None:
    """It would try each both ways: 30 of them for years."""
    closing = {"[": "]", "(": ")"}[opening[-1]]
    assert not read_statement(f"SELECT {opening * 30}1{closing * 30}").is_catalog


def test_the_number_of_a_parameter_takes_no_memory() -> None:
    with pytest.raises(Refused, match="no parameter"):
        parameter_types(statements_of("SELECT $999999999")[0], {})


def test_work_without_end_is_stopped(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.catalog.MOST_SECONDS", 0.3)
    tables = ", ".join(f"pg_class AS c{number}" for number in range(12))
    with pytest.raises(Refused):
        catalog.run(read_statement(f"SELECT count(*) FROM {tables} WHERE c1.oid + c2.oid > c3.oid"), [], "ada", 7)


def test_the_types_of_a_description_are_those_of_the_answer(exact_session: Any) -> None:
    """A client that prepares a question is told its columns before it is paid for."""
    case_files = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))["CASE_FILES"]
    connection = exact_session("shop")
    compared = 0
    for case in case_files["shop"].cases[::15]:
        if case.parameters:
            continue
        explained = connection.explain(case.sql)
        result = connection.execute(case.sql).result
        told = [(column.name, column.type, column.is_noisy) for column in explained.columns]
        assert told == [(column.name, column.type, column.is_noisy) for column in result.columns], case.sql
        compared += 1
    assert compared > 5

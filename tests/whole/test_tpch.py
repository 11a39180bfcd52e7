"""TPC-H at scale 0.01: each of its 22 queries has the answer of plain DuckDB when there is no noise, or is refused.

tests/tpch/q01.sql to q22.sql are the queries of the specification (TPC-H 3.0.1, clause 2.4) with the parameters of its
validation runs; the customers of schemas/tpch.yaml are the people. Where an answer differs by design, because empty
public groups are shown or groups of one person are not, qNN.plain.sql is what plain DuckDB is asked instead.
"""

from __future__ import annotations

import copy
import math
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

import dpsql
from dpsql.relation.relation import Filter, Relation, SemiJoin

HERE = Path(__file__).parents[1]
SCHEMA: dict[str, Any] = yaml.safe_load((HERE.parent / "schemas" / "tpch.yaml").read_text(encoding="utf-8"))
QUERIES = [f"q{number:02}" for number in range(1, 23)]

REFUSED: dict[str, tuple[type[dpsql.Error], str]] = {
    # Their groups are one customer, or one order of a customer, each.
    "q03": (dpsql.Unsupported, "each group would be one person's"),
    "q10": (dpsql.Unsupported, "each group would be one person's"),
    "q18": (dpsql.Unsupported, "each group would be one person's"),
}
ANSWERED = [name for name in QUERIES if name not in REFUSED]
Tables = dict[str, Any]
"""The declarations of the tables, by their names."""


def read(name: str) -> str:
    return (HERE / "tpch" / f"{name}.sql").read_text(encoding="utf-8")


# -- the data, and other ways to store and declare it -----------------------------------------------------------------


@pytest.fixture(scope="session")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with generated(tmp_path_factory.mktemp("tpch"), "0.01") as connection:
        yield connection


@pytest.fixture(scope="session")
def larger_tpch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with generated(tmp_path_factory.mktemp("tpch"), "0.1") as connection:
        yield connection


@contextmanager
def generated(folder: Path, scale: str) -> Iterator[duckdb.DuckDBPyConnection]:
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([generator, "parquet", f"--scale-factor={scale}", f"--output-dir={folder}", "--quiet"], check=True)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for table in SCHEMA["tables"]:
            connection.execute(f"CREATE TABLE {table} AS FROM '{folder / table}.parquet'")
        connection.execute("ALTER TABLE orders ADD PRIMARY KEY (o_orderkey)")
        yield connection


@pytest.fixture(scope="session")
def tpch_with_keys(tpch: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The same tables, with what the database guarantees: one row per customer, one per order."""
    tpch.execute("CREATE SCHEMA keyed")
    for table in SCHEMA["tables"]:
        tpch.execute(f"CREATE TABLE keyed.{table} AS FROM main.{table}")
    tpch.execute("ALTER TABLE keyed.customer ADD PRIMARY KEY (c_custkey)")
    tpch.execute("ALTER TABLE keyed.orders ADD PRIMARY KEY (o_orderkey)")
    return in_schema(tpch, "keyed")


@pytest.fixture(scope="session")
def tpch_in_doubles(tpch: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The same tables, with doubles in place of decimals."""
    tpch.execute("CREATE SCHEMA doubles")
    for table, declared in SCHEMA["tables"].items():
        casts = [f"CAST({name} AS DOUBLE) AS {name}" for name in decimals(declared)]
        replaced = f"REPLACE ({', '.join(casts)})" if casts else ""
        tpch.execute(f"CREATE TABLE doubles.{table} AS SELECT * {replaced} FROM main.{table}")
    tpch.execute("ALTER TABLE doubles.orders ADD PRIMARY KEY (o_orderkey)")
    return in_schema(tpch, "doubles")


def in_schema(connection: duckdb.DuckDBPyConnection, schema: str) -> duckdb.DuckDBPyConnection:
    cursor = connection.cursor()
    cursor.execute(f"SET schema = '{schema}'")
    return cursor


def decimals(table: dict[str, Any]) -> list[str]:
    columns = table["columns"].items()
    return [name for name, column in columns if isinstance(column, dict) and column["type"].startswith("decimal")]


def not_unique(tables: Tables) -> None:
    del tables["customer"]["unique"]


def nullable(tables: Tables) -> None:
    """All but those that list their values, where NULL would be one more public group."""
    for table in tables.values():
        for name, column in table["columns"].items():
            whole = column if isinstance(column, dict) else {"type": column}
            table["columns"][name] = {**whole, "nullable": "values" not in whole}


def in_doubles(tables: Tables) -> None:
    for table in tables.values():
        for name in decimals(table):
            table["columns"][name]["type"] = "double"


# -- the queries ------------------------------------------------------------------------------------------------------


@cache
def exact(database: duckdb.DuckDBPyConnection, *changes: Callable[[Tables], None]) -> dpsql.Connection:
    """A session with so much epsilon for one query that there is no noise, not even on the last digit of a decimal."""
    schema = copy.deepcopy(SCHEMA)
    for change in changes:
        change(schema["tables"])
    return dpsql.connect(database, schema=schema, budget=1e18, delta=1e-6, query_epsilon=5e16)


def check(
    name: str, database: duckdb.DuckDBPyConnection, *changes: Callable[[Tables], None], empty: bool = False
) -> None:
    """The same names, rows, order, types and NULLs. No ORDER BY of these queries leaves a tie."""
    plain = read(f"{name}.plain") if (HERE / "tpch" / f"{name}.plain.sql").exists() else read(name)
    expected = database.execute(plain)
    names, rows = [item[0] for item in expected.description or ()], expected.fetchall()
    assert bool(rows) != empty
    answer = exact(database, *changes).execute(read(name))
    assert [item[0] for item in answer.description or ()] == names
    answers = answer.fetchall()
    assert len(answers) == len(rows)
    for mine, its in zip(answers, rows, strict=True):
        assert list(map(type, mine)) == list(map(type, its)), (mine, its)
        assert all(map(same, mine, its)), (mine, its)


def same(value: object, plain: object) -> bool:
    if isinstance(value, float) and isinstance(plain, float):
        # Doubles are rounded to 2^-31 of their bounds, which are less than 16 times as large as what is summed.
        return math.isclose(value, plain, rel_tol=2**-27)
    return value == plain


def test_the_declarations_cut_nothing(tpch: duckdb.DuckDBPyConnection) -> None:
    def number(sql: str) -> int:
        (found,) = tpch.execute(sql).fetchone() or (None,)
        assert isinstance(found, int)
        return found

    for name, table in dpsql.Schema.model_validate(SCHEMA).tables.items():
        for column in table.columns.values():
            assert number(f"SELECT COUNT(*) FROM {name} WHERE {column.name} IS NULL") == 0
            if column.bounds is not None:
                low, high = column.bounds
                beyond = f"{column.name} NOT BETWEEN '{low}' AND '{high}'"
                assert number(f"SELECT COUNT(*) FROM {name} WHERE {beyond}") == 0, column
            if column.values is not None:
                listed = ", ".join(f"'{value}'" for value in column.values)
                assert number(f"SELECT COUNT(*) FROM {name} WHERE {column.name} NOT IN ({listed})") == 0, column
    lines = "SELECT COUNT(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey GROUP BY o_custkey"
    assert number(f"SELECT MAX(n) FROM ({lines})") <= min(SCHEMA["contribution"].values())


@pytest.mark.parametrize("name", ANSWERED)
def test_the_answer_is_that_of_duckdb(name: str, tpch: duckdb.DuckDBPyConnection) -> None:
    check(name, tpch)


@pytest.mark.long
@pytest.mark.parametrize("name", ANSWERED)
def test_ten_times_as_many_people(name: str, larger_tpch: duckdb.DuckDBPyConnection) -> None:
    check(name, larger_tpch, empty=name == "q11")  # whose threshold is that of scale 1


def test_most_queries_are_answered() -> None:
    assert len(ANSWERED) == 19


def test_subqueries_are_tried_on_rows_that_are_joined_already(
    tpch: duckdb.DuckDBPyConnection, relation_of: Callable[[dpsql.Connection, str], Relation]
) -> None:
    """Not on every line beside every supplier and every nation, where q21 would never end."""
    relation = relation_of(exact(tpch), read("q21"))
    assert isinstance(relation, SemiJoin)
    assert isinstance(relation.source, SemiJoin)
    assert isinstance(relation.source.source, Filter)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str, tpch: duckdb.DuckDBPyConnection) -> None:
    kind, words = REFUSED[name]
    with pytest.raises(kind) as refusal:
        exact(tpch).execute(read(name))
    assert type(refusal.value) is kind
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM orders, lineitem", "orders.o_orderkey = lineitem.l_orderkey"),
        ("SELECT COUNT(*) FROM lineitem a JOIN lineitem b USING (l_partkey)", "a.l_orderkey = b.l_orderkey"),
        ("SELECT COUNT(*) FROM (SELECT * FROM lineitem LIMIT 9)", "PARTITION BY lineitem.l_orderkey"),
    ],
)
def test_the_key_that_leads_to_a_person_is_named(sql: str, said: str, tpch: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(dpsql.Unsupported) as refusal:
        exact(tpch).execute(sql)
    assert said in str(refusal.value.hint)


# -- what else an owner might say of the same tables changes no answer ------------------------------------------------

PUBLIC = ["q02", "q11", "q16"]
"""About nobody: they read parts and suppliers alone."""
PRIVATE = [name for name in ANSWERED if name not in PUBLIC]


@pytest.mark.parametrize("name", PRIVATE)
def test_keys_of_the_database(name: str, tpch_with_keys: duckdb.DuckDBPyConnection) -> None:
    check(name, tpch_with_keys)


@pytest.mark.parametrize("name", [name for name in PRIVATE if "customer" in read(name) and name != "q05"])
def test_customers_that_are_not_unique(name: str, tpch: duckdb.DuckDBPyConnection) -> None:
    check(name, tpch, not_unique)


def test_customers_with_many_lines_are_left_out_of_a_join_of_three(tpch: duckdb.DuckDBPyConnection) -> None:
    """Where a customer may have several rows, those of q05 are multiplied by orders and by lines."""
    answer = exact(tpch, not_unique).execute(read("q05"))
    assert "people with more than 64 rows are left out" in " ".join(answer.notes)


@pytest.mark.parametrize("name", PRIVATE)
def test_columns_that_may_be_null(name: str, tpch: duckdb.DuckDBPyConnection) -> None:
    check(name, tpch, nullable)


@pytest.mark.parametrize("name", PRIVATE)
def test_doubles(name: str, tpch_in_doubles: duckdb.DuckDBPyConnection) -> None:
    check(name, tpch_in_doubles, in_doubles)

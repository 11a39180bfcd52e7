"""Whatever is wrong with a question or a database: a clear error of the right class, no charge, the session goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import dpsql

GOOD = "SELECT COUNT(*) FROM orders"


@pytest.fixture(scope="module")
def shop_database(small_shop: Callable[[], duckdb.DuckDBPyConnection]) -> Iterator[duckdb.DuckDBPyConnection]:
    """One for the whole file: what is refused changes nothing."""
    with small_shop() as connection:
        yield connection


@pytest.fixture(scope="module")
def shop(shop_database: duckdb.DuckDBPyConnection, small_shop_schema: Any) -> Iterator[dpsql.Connection]:
    with dpsql.connect(shop_database, schema=small_shop_schema, budget=10, delta=1e-6) as connection:
        yield connection


@pytest.fixture(autouse=True)
def the_session_goes_on(shop: dpsql.Connection) -> Iterator[None]:
    """Around every test: the bad question spent nothing, and a good one is answered afterwards."""
    before = shop.budget.spent
    yield
    assert shop.budget.spent == before
    assert len(shop.execute(GOOD, epsilon=1e-6, fresh=True).fetchall()) == 1


def refusal(run: Callable[[], object], kind: type[dpsql.Error]) -> dpsql.Error:
    with pytest.raises(dpsql.Error) as caught:
        run()
    assert type(caught.value) is kind, repr(caught.value)
    return caught.value


# -- questions ---------------------------------------------------------------------------------------------------------

SYNTAX = dpsql.SqlSyntaxError
UNSUPPORTED = dpsql.Unsupported
PROGRAMMING = dpsql.ProgrammingError
UNKNOWN = dpsql.UnknownName

# question, class of the error, a word of its text
QUESTIONS: list[tuple[str, type[dpsql.Error], str]] = [
    ("", SYNTAX, "empty"),
    ("   \n\t ", SYNTAX, "empty"),
    (";", SYNTAX, "empty"),
    ("-- only a comment", SYNTAX, "empty"),
    ("/* only a comment */", SYNTAX, "empty"),
    (f"{GOOD}; {GOOD}", SYNTAX, "2 statements"),
    ("SELECT COUNT(* FROM orders", SYNTAX, "cannot be read"),
    ("SELECT COUNT(*) FROM orders WHERE note = 'open", SYNTAX, "quotes"),
    ("SELECT", PROGRAMMING, ""),
    ("SELECT COUNT(*) FROM orders GROUP BY", SYNTAX, "GROUP BY"),
    ("hello", SYNTAX, "not a query"),
    # what changes something
    ("DELETE FROM orders", UNSUPPORTED, "DELETE"),
    ("INSERT INTO orders VALUES (1)", UNSUPPORTED, "INSERT"),
    ("UPDATE orders SET items = 1", UNSUPPORTED, "UPDATE"),
    ("CREATE TABLE t AS SELECT 1", UNSUPPORTED, "CREATE"),
    ("DROP TABLE orders", UNSUPPORTED, "DROP"),
    ("ATTACH 'x.db' AS x", UNSUPPORTED, ""),
    ("COPY orders TO 'x.csv'", UNSUPPORTED, ""),
    ("SET memory_limit = '1GB'", UNSUPPORTED, ""),
    ("PRAGMA database_list", UNSUPPORTED, ""),
    ("SUMMARIZE orders", UNSUPPORTED, ""),
    ("DESCRIBE SELECT 1", UNSUPPORTED, "DESCRIBE a_table"),
    # names
    ("SELECT COUNT(*) FROM ordres", UNKNOWN, '"orders"'),
    ("SELECT COUNT(*) FROM information_schema.tables", UNKNOWN, ""),
    ("SELECT COUNT(*) FROM duckdb_tables", UNKNOWN, ""),
    ("SELECT SUM(amuont) FROM orders", UNKNOWN, '"amount"'),
    ("SELECT SUM(o.amount) FROM orders", UNKNOWN, "o.amount"),
    ("SELECT COUNT(*) FROM orders WHERE secret = 1", UNKNOWN, "secret"),
    ("SELECT COUNT(*) FROM orders GROUP BY secret", UNKNOWN, "secret"),
    ("SELECT region, COUNT(*) FROM orders GROUP BY region ORDER BY secret", UNKNOWN, "secret"),
    ("SELECT region, COUNT(*) FROM orders GROUP BY region HAVING secret > 1", UNKNOWN, "secret"),
    ("SELECT COUNT(*) FROM orders GROUP BY 7", PROGRAMMING, "GROUP BY 7"),
    # rows of people
    ("SELECT * FROM orders", UNSUPPORTED, "rows of people"),
    ("SELECT region, amount FROM orders", UNSUPPORTED, "rows of people"),
    ("SELECT region FROM orders ORDER BY amount LIMIT 1", UNSUPPORTED, "rows of people"),
    ("SELECT (SELECT amount FROM orders LIMIT 1)", UNSUPPORTED, ""),
    ("SELECT COUNT(*), (SELECT MAX(note) FROM orders) FROM orders", UNSUPPORTED, "MAX"),
    ("SELECT COUNT(*) FROM (SELECT * FROM orders LIMIT 10) AS t", UNSUPPORTED, "LIMIT"),
    ("SELECT COUNT(*) FROM (SELECT *, ROW_NUMBER() OVER () AS r FROM orders) AS t WHERE r < 5", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM orders TABLESAMPLE 10%", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM orders USING SAMPLE 10", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM orders, customers", UNSUPPORTED, "join"),
    ("SELECT COUNT(*) FROM orders JOIN customers ON orders.items = customers.age", UNSUPPORTED, "join"),
    ("SELECT COUNT(*) FROM orders LEFT JOIN customers ON customer_id > id", UNSUPPORTED, "join"),
    ("SELECT COUNT(*) FROM orders WHERE items IN (SELECT age FROM customers)", UNSUPPORTED, "people"),
    ("SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id", UNSUPPORTED, "one person's"),
    ("SELECT COUNT(*) FROM (SELECT items FROM orders UNION SELECT age FROM customers)", UNSUPPORTED, "people"),
    ("SELECT COUNT(*) FROM orders WHERE EXISTS (SELECT 1 FROM customers)", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM (SELECT DISTINCT ON (region) * FROM orders) AS t", UNSUPPORTED, ""),
    ("SELECT items FROM orders UNION ALL SELECT items FROM orders", UNSUPPORTED, ""),
    (
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t",
        UNSUPPORTED,
        "RECURSIVE",
    ),
    ("PIVOT orders ON region USING COUNT(*)", UNSUPPORTED, ""),
    # aggregates
    ("SELECT region, COUNT(*) FROM orders", PROGRAMMING, "GROUP BY"),
    ("SELECT region, amount, COUNT(*) FROM orders GROUP BY region", PROGRAMMING, "GROUP BY"),
    ("SELECT SUM(note) FROM orders", PROGRAMMING, "number"),
    ("SELECT AVG(day) FROM orders", PROGRAMMING, "number"),
    ("SELECT SUM(weight) FROM orders", dpsql.UnboundedColumn, "weight"),
    ("SELECT AVG(weight * 2) FROM orders", dpsql.UnboundedColumn, "bound"),
    ("SELECT SUM(LENGTH(note)) FROM orders", dpsql.UnboundedColumn, "bound"),
    ("SELECT MAX(note) FROM orders", UNSUPPORTED, "text"),
    ("SELECT MAX(weight) FROM orders", dpsql.UnboundedColumn, "weight"),
    ("SELECT QUANTILE_CONT(amount, 2) FROM orders", PROGRAMMING, "between 0 and 1"),
    ("SELECT MODE(note) FROM orders", UNSUPPORTED, "public"),
    ("SELECT STRING_AGG(note) FROM orders", UNSUPPORTED, ""),
    ("SELECT LIST(amount) FROM orders", UNSUPPORTED, ""),
    ("SELECT FIRST(amount) FROM orders", UNSUPPORTED, "FIRST"),
    ("SELECT SUM(SUM(amount)) FROM orders", PROGRAMMING, "cannot be nested"),
    ("SELECT SUM(amount ORDER BY day) FROM orders", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM orders WHERE COUNT(*) > 1", UNSUPPORTED, "COUNT"),
    # functions
    ("SELECT COUNT(*) FROM orders WHERE RANDOM() < 0.5", UNSUPPORTED, "RAND"),
    ("SELECT COUNT(*) FROM orders WHERE nextval('s') > 1", UNSUPPORTED, "NEXTVAL"),
    ("SELECT COUNT(*) FROM orders WHERE note = getenv('HOME')", UNSUPPORTED, "GETENV"),
    ("SELECT COUNT(*) FROM orders WHERE note = current_user", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM orders WHERE frobnicate(amount) = 1", UNSUPPORTED, "FROBNICATE"),
    ("SELECT COUNT(*) FROM orders WHERE error(note) IS NULL", UNSUPPORTED, "ERROR"),
    ("SELECT COUNT(*) FROM orders WHERE note LIKE region", PROGRAMMING, "pattern"),
    ("SELECT COUNT(*) FROM read_csv('/etc/passwd')", UNSUPPORTED, ""),
    ("SELECT COUNT(*) FROM '/etc/passwd'", UNKNOWN, ""),
    ("SELECT * FROM read_text('/etc/passwd')", UNSUPPORTED, ""),
    ("SELECT region, COUNT(*) FROM orders GROUP BY region HAVING frobnicate(COUNT(*))", PROGRAMMING, "frobnicate"),
    # types
    ("SELECT COUNT(*) FROM orders WHERE note > 5", PROGRAMMING, "compare"),
    ("SELECT COUNT(*) FROM orders WHERE amount", PROGRAMMING, "condition"),
    ("SELECT COUNT(*) FROM orders WHERE amount AND items", PROGRAMMING, "condition"),
    ("SELECT COUNT(*) FROM orders WHERE day > '2024-99-99'", PROGRAMMING, "2024-99-99"),
    ("SELECT SUM(CASE WHEN amount > 1 THEN 1 ELSE 'one' END) FROM orders", PROGRAMMING, "CASE"),
    ("SELECT COUNT(*) FROM orders WHERE CAST(amount AS BLOB) IS NULL", UNSUPPORTED, "cast"),
    ("SELECT COUNT(*) FROM orders WHERE CAST(amount AS DECIMAL(40, 2)) > 1", PROGRAMMING, ""),
    # not understood yet
    ("SELECT COUNT(*) FROM orders WHERE items > $1", PROGRAMMING, "parameter"),
    ("SELECT COUNT(*) FROM orders WHERE items > :low", PROGRAMMING, "parameter"),
]


@pytest.mark.parametrize(("sql", "kind", "word"), QUESTIONS, ids=[sql or "empty" for sql, _, _ in QUESTIONS])
def test_questions(sql: str, kind: type[dpsql.Error], word: str, shop: dpsql.Connection) -> None:
    error = refusal(lambda: shop.execute(sql), kind)
    assert word in str(error)
    assert error.hint, f"no way out is shown: {error}"
    assert type(refusal(lambda: shop.explain(sql), kind)) is kind


def test_a_refusal_tells_nothing_of_the_engine(shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error) as caught:
        shop.execute("SELECT COUNT(*) FROM orders HAVING frobnicate(COUNT(*))")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "_noisy" not in str(caught.value)
    assert "_a0" not in str(caught.value)


DEEP, NUMBER = "nested too deeply", "the number is too large"
LONG = {
    "a megabyte of parentheses": ("(" * 500_000 + ")" * 500_000, "longer than 100,000 characters"),
    "many parentheses": ("SELECT " + "(" * 20_000 + "1" + ")" * 20_000, DEEP),
    "parentheses below": ("SELECT COUNT(*) FROM orders WHERE " + "(" * 400 + "items = 1" + ")" * 400, DEEP),
    "a long chain of conditions": (f"{GOOD} WHERE " + " AND ".join(["items = 1"] * 3000), "more than 300 conditions"),
    "a long sum": (f"{GOOD} WHERE items = " + " + ".join(["1"] * 3000), DEEP),
    "many NOTs": (f"{GOOD} WHERE " + "NOT " * 2000 + "items = 1", DEEP),
    "deep subqueries": ("SELECT COUNT(*) FROM " + "(SELECT * FROM " * 150 + "orders" + ") AS t" * 150, DEEP),
    "a deep case": (
        "SELECT SUM(" + "CASE WHEN items > 1 THEN " * 500 + "1" + " ELSE 0 END" * 500 + ") FROM orders",
        DEEP,
    ),
    "a long list": (f"{GOOD} WHERE items IN (" + ", ".join(map(str, range(15_000))) + ")", "more than 10,000 values"),
    "a number that no double holds": (f"{GOOD} WHERE amount < 1e400", NUMBER),
    "a number that no memory holds": (f"{GOOD} WHERE amount < 1e300000000000", NUMBER),
    "a number without its exponent": (f"{GOOD} WHERE amount < 4e", "the number ends before its exponent"),
    "such a number above": ("SELECT COUNT(*) * 1e300000000000 FROM orders", NUMBER),
    "a zero byte": (f"{GOOD} WHERE note = 'a\x00b'", "NUL character"),
}


@pytest.mark.parametrize(("sql", "said"), LONG.values(), ids=LONG)
def test_extreme_questions(sql: str, said: str, shop: dpsql.Connection) -> None:
    """Refused by us, and before anything is charged; what is in them is never computed, which would take forever."""
    before = shop.budget.queries
    for ask in (shop.explain, shop.execute):
        error = refusal(lambda ask=ask: ask(sql), SYNTAX)
        assert said in error.problem
        assert error.hint
    assert shop.budget.queries == before


def test_half_a_character(shop: dpsql.Connection) -> None:
    """No file and no engine can hold a lone surrogate, so the question ends before the charge."""
    refusal(lambda: shop.execute(f"{GOOD} WHERE note = '\ud800'"), SYNTAX)


@pytest.mark.parametrize("sql", [None, 5, b"SELECT 1", ["SELECT 1"]])
def test_no_text(sql: Any, shop: dpsql.Connection) -> None:
    refusal(lambda: shop.execute(sql), PROGRAMMING)


CARETS = [
    ("SELECT SUM(amuont) FROM orders", "amuont"),
    ("SELECT COUNT(*)\nFROM ordres", "ordres"),
    ("SELECT region,\n  COUNT(*)\nFROM orders\nWHERE secret = 1\nGROUP BY region", "secret"),
    ("SELECT SUM(weight) FROM orders", "weight"),
    ("SELECT region, amount, COUNT(*) FROM orders GROUP BY region", "amount"),
    ("SELECT COUNT(*) FROM orders WHERE RANDOM() < 1", "RANDOM"),
    ("EXPLAIN SELECT SUM(amuont) FROM orders", "amuont"),
]


@pytest.mark.parametrize(("sql", "piece"), CARETS)
def test_the_caret_stands_under_the_piece(sql: str, piece: str, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error) as caught:
        shop.execute(sql)
    place = caught.value.at
    assert place is not None
    assert sql[place.start : place.end + 1].startswith(piece)
    _, line, caret, *_ = str(caught.value).splitlines()
    assert line.startswith(f"LINE {sql[: sql.index(piece)].count(chr(10)) + 1}: ")
    assert line[caret.index("^") :].startswith(piece)


# -- costs and options -------------------------------------------------------------------------------------------------

NO_EPSILON = [0, -1, math.nan, math.inf, -math.inf, "abc", "", True, False, [1], 1j, "0", 0.0, Decimal("NaN")]


@pytest.mark.parametrize("epsilon", NO_EPSILON, ids=repr)
def test_no_epsilon(epsilon: Any, shop: dpsql.Connection, shop_database: Any, shop_schema: Any) -> None:
    for run in (
        lambda: shop.execute(GOOD, epsilon=epsilon),
        lambda: shop.explain(GOOD, epsilon=epsilon),
        lambda: dpsql.connect(shop_database, schema=shop_schema, budget=epsilon),
        lambda: dpsql.connect(shop_database, schema=shop_schema, budget=1, query_epsilon=epsilon),
    ):
        error = refusal(run, PROGRAMMING)
        assert "epsilon" in str(error) or "budget" in str(error)


@pytest.mark.parametrize("delta", [1, 1.0, 2, -1e-6, math.nan, math.inf, "abc", True, [0]], ids=repr)
def test_no_delta(delta: Any, shop: dpsql.Connection, shop_database: Any, shop_schema: Any) -> None:
    for run in (
        lambda: shop.execute(GOOD, delta=delta),
        lambda: dpsql.connect(shop_database, schema=shop_schema, budget=1, delta=delta),
    ):
        error = refusal(run, PROGRAMMING)
        assert "delta" in str(error)


OPTIONS = [
    {"delta": 1e-5},  # more than the session has
    {"mechanism": "magic"},
    {"max_groups": 0},
    {"max_groups": -1},
    {"max_groups": 1.5},
    {"max_groups": True},
    {"max_groups": 2**31},
    {"max_rows_per_group": 0},
    {"max_rows_per_group": "many"},
    {"mechanism": "ptr"},
    {"propose": 5, "mechanism": "laplace"},
    {"propose": 0},
    {"propose": -1},
    {"propose": float("nan")},
    {"propose": 10**9},
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_options(options: dict[str, Any], shop: dpsql.Connection) -> None:
    error = refusal(lambda: shop.execute(GOOD, **options), PROGRAMMING)
    assert error.hint


def test_no_budget_at_all(shop_database: Any, shop_schema: Any, shop: dpsql.Connection) -> None:
    error = refusal(lambda: dpsql.connect(shop_database, schema=shop_schema), dpsql.LedgerError)
    assert "budget=" in str(error)


def test_unknown_groups_need_a_delta(shop_database: Any, shop_schema: Any, shop: dpsql.Connection) -> None:
    with dpsql.connect(shop_database, schema=shop_schema, budget=1) as pure:
        error = refusal(lambda: pure.execute("SELECT note, COUNT(*) FROM orders GROUP BY note"), PROGRAMMING)
        assert "delta" in str(error)
        refusal(lambda: pure.execute(GOOD, mechanism="gaussian"), PROGRAMMING)
        assert pure.budget.spent.epsilon == 0


# -- parameters --------------------------------------------------------------------------------------------------------

ONE = "SELECT COUNT(*) FROM orders WHERE items > ?"


@pytest.mark.parametrize(
    ("sql", "parameters", "kind"),
    [
        (ONE, None, PROGRAMMING),
        (ONE, [], PROGRAMMING),
        (ONE, [1, 2], PROGRAMMING),
        (GOOD, [1], PROGRAMMING),
        (ONE, "1", dpsql.InterfaceError),
        (ONE, 1, dpsql.InterfaceError),
        (ONE, {"items": 1}, PROGRAMMING),
        (ONE, ["many"], PROGRAMMING),
        (ONE, [math.nan], PROGRAMMING),
        (ONE, [math.inf], PROGRAMMING),
        (ONE, [b"1"], PROGRAMMING),
        (ONE, [[1]], PROGRAMMING),
        ("SELECT ? FROM orders", ["amount"], UNSUPPORTED),
        ("SELECT COUNT(*) FROM ?", ["orders"], UNSUPPORTED),
    ],
    ids=repr,
)
def test_parameters(sql: str, parameters: Any, kind: type[dpsql.Error], shop: dpsql.Connection) -> None:
    refusal(lambda: shop.execute(sql, parameters), kind)


@pytest.mark.parametrize(
    "value", [10**400, -(10**30), 1e300, "\ud800", "x" * 100_000, Decimal("1E+500")], ids=lambda v: str(v)[:9]
)
def test_extreme_parameters(value: Any, shop: dpsql.Connection, shop_database: Any) -> None:
    """Refused before the charge, or answered; never an error of another kind, never a failure after the charge."""
    column = "note" if isinstance(value, str) else "amount"
    with dpsql.connect(shop_database, schema=shop.session.environment.schema, budget=1) as connection:
        with suppress(dpsql.ProgrammingError):
            connection.execute(f"SELECT COUNT(*) FROM orders WHERE {column} = ?", [value])
            return
        assert connection.budget.spent.epsilon == 0


# -- schemas and databases ---------------------------------------------------------------------------------------------


def test_missing_schema_file(tmp_path: Path, shop_database: Any, shop: dpsql.Connection) -> None:
    error = refusal(lambda: dpsql.connect(shop_database, schema=tmp_path / "no.yaml", budget=1), dpsql.SchemaError)
    assert "no.yaml" in str(error)


@pytest.mark.parametrize("text", ["", "tables: [", "- a list", "tables: {}", "42", "tables:\n\t- tabs", "\x00"])
def test_malformed_schema_file(text: str, tmp_path: Path, shop_database: Any, shop: dpsql.Connection) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    refusal(lambda: dpsql.connect(shop_database, schema=tmp_path / "bad.yaml", budget=1), dpsql.SchemaError)


@pytest.mark.parametrize("schema", [None, 5, [], "", {}, {"tables": None}, {"tables": {"t": {}}}], ids=repr)
def test_no_schema(schema: Any, shop_database: Any, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error):
        dpsql.connect(shop_database, schema=schema, budget=1)


def test_not_a_duckdb_file(tmp_path: Path, shop_schema: Any, shop: dpsql.Connection) -> None:
    (tmp_path / "shop.duckdb").write_text("this is no database, it is a text about alice")
    error = refusal(
        lambda: dpsql.connect(tmp_path / "shop.duckdb", schema=shop_schema, budget=1), dpsql.OperationalError
    )
    assert "shop.duckdb" in str(error)
    assert "alice" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("database", "kind"),
    [
        ("no such file.duckdb", dpsql.OperationalError),
        ("no such file.parquet", dpsql.OperationalError),
        ("no such file.csv", dpsql.OperationalError),
        (":memory:", dpsql.InterfaceError),
        (42, dpsql.InterfaceError),
        (None, dpsql.InterfaceError),
        ({}, dpsql.SchemaError),
        ({"orders": 42}, dpsql.InterfaceError),
        ({"orders": "no.csv"}, dpsql.OperationalError),
    ],
    ids=repr,
)
def test_no_database(
    database: Any, kind: type[dpsql.Error], tmp_path: Path, monkeypatch: Any, shop_schema: Any, shop: dpsql.Connection
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(lambda: dpsql.connect(database, schema=shop_schema, budget=1), kind)
    assert error.hint
    assert list(tmp_path.iterdir()) == [], "a failed connect leaves no files"


def test_broken_files(tmp_path: Path, shop_schema: Any, shop: dpsql.Connection) -> None:
    del shop_schema["tables"]["customers"]
    (tmp_path / "orders.parquet").write_text("no parquet")
    refusal(lambda: dpsql.connect(tmp_path / "orders.parquet", schema=shop_schema, budget=1), dpsql.OperationalError)


@pytest.mark.parametrize(
    ("column", "declared", "hint"),
    [
        ("note", "integer", "text"),
        ("items", "text", "integer"),
        ("items", "boolean", "integer"),
        ("amount", "integer", "double"),
        ("amount", "decimal(10,2)", "double"),
        ("day", "text", "date"),
    ],
)
def test_a_type_that_differs(
    column: str, declared: str, hint: str, shop_database: Any, shop_schema: Any, shop: Any
) -> None:
    shop_schema["tables"]["orders"]["columns"][column] = declared
    error = refusal(lambda: dpsql.connect(shop_database, schema=shop_schema, budget=1), dpsql.SchemaError)
    assert f"tables.orders.columns.{column}" in str(error)
    assert hint in (error.hint or "")


def test_missing_table_and_column(shop_database: Any, shop_schema: Any, shop: dpsql.Connection) -> None:
    renamed = {**shop_schema, "tables": {"ordrs": shop_schema["tables"]["orders"]}}
    error = refusal(lambda: dpsql.connect(shop_database, schema=renamed, budget=1), dpsql.SchemaError)
    assert '"orders"' in (error.hint or "")
    shop_schema["tables"]["orders"]["columns"]["amuont"] = "double"
    error = refusal(lambda: dpsql.connect(shop_database, schema=shop_schema, budget=1), dpsql.SchemaError)
    assert '"amount"' in (error.hint or "")


def test_bounds_as_wide_as_doubles_go(shop_schema: Any, shop_database: Any, shop: dpsql.Connection) -> None:
    shop_schema["tables"]["orders"]["columns"]["amount"]["bounds"] = [-1.7976931348623157e308, 1.7976931348623157e308]
    with dpsql.connect(shop_database, schema=shop_schema, budget=1) as connection:
        error = refusal(lambda: connection.explain("SELECT SUM(amount) FROM orders"), dpsql.UnboundedColumn)
        assert "cannot be exact over a range as wide as" in error.problem
        assert connection.explain("SELECT COUNT(amount) FROM orders").cost.epsilon == 0.1


def test_one_frame_for_two_tables(shop_schema: Any, shop: dpsql.Connection) -> None:
    refusal(lambda: dpsql.connect(pd.DataFrame({"id": [1]}), schema=shop_schema, budget=1), dpsql.InterfaceError)


def test_unknown_composition(shop_schema: Any, shop_database: Any, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error, match="composition"):
        dpsql.connect(shop_database, schema=shop_schema, budget=1, composition="magic")


def test_a_closed_database(shop_schema: Any, shop: dpsql.Connection) -> None:
    raw = duckdb.connect()
    raw.close()
    with pytest.raises(dpsql.Error):
        dpsql.connect(raw, schema=shop_schema, budget=1)

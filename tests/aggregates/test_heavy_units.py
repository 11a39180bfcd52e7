"""Rows whose unit is found over a foreign key are counted by key before they are counted by unit.

Where rows are immutable, they are counted in the whole table, once for all questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.aggregates import heavy_units
from dpsql.engines.duckdb import engine
from dpsql.synthetic import answer
from dpsql.verification.audit import moved_too_far, wrong_shape

KINDS = list("abcd")
LINE = {
    "order_id": "integer",
    "kind": {"type": "text", "values": KINDS},
    "price": {"type": "decimal(9,2)", "bounds": [0, 10]},
    "weight": {"type": "double", "bounds": [-1, 1]},
    "code": "integer",
}
SHAPES = {
    "count": "SELECT kind, COUNT(*) AS n FROM lines GROUP BY kind",
    "sums": "SELECT kind, SUM(price) AS p, SUM(weight) AS w, COUNT(price) AS n FROM lines GROUP BY kind",
    "filtered": "SELECT kind, AVG(price * price) AS a, COUNT(*) AS n FROM lines WHERE price < 5 GROUP BY kind",
    "projected": "SELECT k, SUM(p) AS p FROM (SELECT kind AS k, price * 2 AS p FROM lines) GROUP BY k",
    "a public table": "SELECT kind, label, COUNT(*) AS n FROM lines JOIN codes USING (code) GROUP BY kind, label",
    "a public test": "SELECT kind, COUNT(*) AS n FROM lines WHERE code IN (SELECT code FROM codes) GROUP BY kind",
    "over two keys": "SELECT kind, COUNT(*) AS n, SUM(price) AS p FROM parts GROUP BY kind",
    "with its owner": "SELECT kind, COUNT(*) AS n FROM lines JOIN orders ON lines.order_id = orders.id GROUP BY kind",
    "parts": "SELECT kind, COUNT(*) AS n, SUM(price) AS p, SUM(weight) AS w FROM lines GROUP BY kind",
    "parts, filtered": "SELECT kind, COUNT(*) AS n, SUM(price) AS p FROM lines WHERE price < 5 GROUP BY kind",
    "of their own": "SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind",
    "of their own, filtered": "SELECT kind, COUNT(*) AS n, SUM(price) AS p FROM visits WHERE price < 5 GROUP BY kind",
    "listed once": "SELECT kind, COUNT(*) FROM lines JOIN (SELECT DISTINCT code FROM codes) USING (code) GROUP BY 1",
}
LISTED = "RIGHT JOIN (SELECT DISTINCT code FROM codes) AS listed ON {}.code = listed.code"
SHAPES["groups of a list"] = (
    f"SELECT listed.code, COUNT(kind) AS n, SUM(price) AS p FROM lines {LISTED.format('lines')} GROUP BY listed.code"
)
SHAPES["groups of a list, filtered"] = (
    f"SELECT listed.code, COUNT(kind) AS n FROM visits {LISTED.format('visits')} AND price < 5 GROUP BY listed.code"
)
LEFT_ALONE = ("with its owner", "of their own", "of their own, filtered", "groups of a list, filtered")
"""Rows of people beside others of theirs, and those that name their unit."""
NOT_OF_A_TABLE = ("with its owner", "a public table")
"""Of one row there may be several."""


def schema(groups: int, rows: int) -> Any:
    return {
        "dataset": "lines",
        "contribution": {"max_groups": groups, "max_rows_per_group": rows},
        "tables": {
            "orders": {"unit": "customer", "columns": {"id": "integer", "customer": "integer"}},
            "lines": {"unit": {"through": "order_id", "to": "orders.id"}, "columns": {"id": "integer", **LINE}},
            "parts": {"unit": {"through": "order_id", "to": "lines.id"}, "columns": LINE},
            "visits": {"unit": "customer", "columns": {"customer": "integer", **LINE}},
            "codes": {
                "public": True,
                "columns": {"code": "integer", "label": {"type": "text", "values": ["x", "y"]}},
            },
        },
    }


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_units, "LEAST", 1)


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    line = "order_id BIGINT, kind VARCHAR, price DECIMAL(9, 2), weight DOUBLE, code BIGINT"
    with duckdb.connect() as connection:
        connection.execute(f"""
            SET threads = 1;
            CREATE TABLE orders (id BIGINT UNIQUE, customer BIGINT);
            CREATE TABLE lines (id BIGINT UNIQUE, {line});
            CREATE TABLE parts ({line});
            CREATE TABLE visits (customer BIGINT, {line});
            CREATE TABLE codes (code BIGINT, label VARCHAR);
            INSERT INTO codes VALUES (1, 'x'), (2, 'y'), (2, 'x'), (NULL, 'x')""")
        yield connection


identifiers = st.one_of(st.none(), st.integers(1, 6))
orders = st.lists(st.tuples(identifiers, st.one_of(st.none(), st.integers(1, 3))), max_size=8, unique_by=itemgetter(0))
prices = st.one_of(st.none(), st.decimals(-20, 20, places=2))
line = (
    identifiers,
    st.sampled_from([*KINDS, "elsewhere", None]),
    prices,
    st.floats(),
    st.one_of(st.none(), st.integers(0, 3)),
)
lines = st.lists(st.tuples(st.integers(1, 16), *line), max_size=16, unique_by=itemgetter(0))
parts = st.lists(st.tuples(*line), max_size=16)


def fill(raw: duckdb.DuckDBPyConnection, **tables: list[tuple[Any, ...]]) -> None:
    for name, rows in tables.items():
        raw.execute(f"DELETE FROM {name}")
        if rows:  # in one statement, which takes a quarter of the time
            row = f"({', '.join('?' * len(rows[0]))})"
            raw.execute(f"INSERT INTO {name} VALUES {', '.join([row] * len(rows))}", [*chain(*rows)])


def session(data: Any, groups: int, rows: int, delta: float) -> dpsql.Connection:
    options: Any = {"budget": 1e13, "delta": delta, "query_epsilon": 1e9, "ledger": ":memory:"}
    return dpsql.connect(data, schema=schema(groups, rows), **options)


def file_of(raw: duckdb.DuckDBPyConnection) -> str:
    """The same tables, whose rows nobody changes while it is open."""
    path = Path(mkdtemp()) / "lines.duckdb"
    raw.execute(f"ATTACH '{path}' AS kept; COPY FROM DATABASE memory TO kept; DETACH kept")
    return str(path)


@cache
def explained(raw: duckdb.DuckDBPyConnection, shape: str, groups: int, rows: int, stay: bool) -> Any:
    """Rows count in parts where there is no delta."""
    delta = 0 if shape.startswith("parts") else 1e-6
    (release,) = kept_session(raw, groups, rows, delta, stay).explain(SHAPES[shape]).releases
    return release


@cache
def kept_session(raw: duckdb.DuckDBPyConnection, groups: int, rows: int, delta: float, stay: bool) -> dpsql.Connection:
    """One for all that is only explained."""
    return session(file_of(raw) if stay else raw, groups, rows, delta)


@cache
def parsed(raw: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The SQL of a release, read once: that takes a third of the time."""
    (statement,) = raw.extract_statements(sql)
    return statement


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stay", [False, True])
def test_units_are_looked_up_for_keys_not_for_rows(raw: duckdb.DuckDBPyConnection, shape: str, stay: bool) -> None:
    assert ("_nowhere" in explained(raw, shape, 2, 2, stay).sql) is (shape not in LEFT_ALONE)


@pytest.mark.parametrize("shape", SHAPES)
def test_only_units_with_many_rows_in_the_table_are_counted_again(raw: duckdb.DuckDBPyConnection, shape: str) -> None:
    some_rows = any(word in SHAPES[shape] for word in ("WHERE", "JOIN"))
    counted_again = "_heavy_keys AS (" in explained(raw, shape, 2, 2, stay=True).sql
    assert counted_again is (some_rows and shape not in NOT_OF_A_TABLE)
    assert "_heavy_keys AS (" not in explained(raw, shape, 2, 2, stay=False).sql


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("stay", "groups", "rows"),
    [
        (False, 2, 2),
        (True, 4, 1),
        pytest.param(False, 4, 1, marks=pytest.mark.long),
        pytest.param(True, 2, 2, marks=pytest.mark.long),
    ],
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(own=orders, of_orders=lines, of_lines=parts)
def test_nobody_moves_further(
    raw: duckdb.DuckDBPyConnection,
    shape: str,
    stay: bool,
    groups: int,
    rows: int,
    own: list[tuple[Any, ...]],
    of_orders: list[tuple[Any, ...]],
    of_lines: list[tuple[Any, ...]],
) -> None:
    """Without the orders of one customer their lines lead nowhere. Lines are visits too, of whom they name."""
    release = explained(raw, shape, groups, rows, stay)
    statement = parsed(raw, release.sql)
    owned_once = list(dict(own).items())
    visits = [(row[1], *row[1:]) for row in of_orders]
    fill(raw, orders=owned_once, lines=of_orders, parts=of_lines, visits=visits)
    whole = answer(raw, statement)
    assert not list(wrong_shape(release, [whole]))
    people = {row[1] for row in (*owned_once, *of_orders)}
    for person in people & {1, 2, 3}:  # without anybody else the tables are the same
        raw.execute(
            f"BEGIN; DELETE FROM orders WHERE customer = {person}; DELETE FROM visits WHERE customer = {person}"
        )
        others = answer(raw, statement)
        raw.execute("ROLLBACK")
        assert not list(moved_too_far(release, whole, others))


PLAIN = {
    "count": "SELECT kind, COUNT(*) FROM owned GROUP BY kind",
    "sums": "SELECT kind, SUM(price), SUM(weight), COUNT(price) FROM owned GROUP BY kind",
    "a public table": "SELECT kind, label, COUNT(*) FROM owned JOIN codes USING (code) GROUP BY kind, label",
}
SOLD = [
    *[(1, "a", 1, 1), (1, "b", 2, 2), (2, "a", 3, 2), (3, "d", 4, 1), (3, "elsewhere", 1, 1)],
    *[(4, "a", 5, 1), (None, "a", 5, 1), (9, "b", 5, 2)],
]
"""Order, kind, price and code of each line: of customers, and of nobody."""


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("stay", [False, True])
def test_who_has_few_rows_counts_in_full(raw: duckdb.DuckDBPyConnection, delta: float, stay: bool) -> None:
    """As in a join by hand, in which rows that lead nowhere, or to nobody, have no partner."""
    fill(
        raw,
        orders=[(1, 1), (2, 1), (3, 2), (4, None), (None, 3)],
        lines=[(number, order, kind, price, price / 4, code) for number, (order, kind, price, code) in enumerate(SOLD)],
    )
    raw.execute("""
        CREATE OR REPLACE TEMP VIEW owned AS
        SELECT kind, price, least(weight, 1) AS weight, code
        FROM lines JOIN orders ON lines.order_id = orders.id WHERE customer IS NOT NULL AND kind <> 'elsewhere'""")
    with session(file_of(raw) if stay else raw, 4, 20, delta) as connection:
        for shape, plain in PLAIN.items():
            keys = 2 if shape == "a public table" else 1
            wanted = {row[:keys]: row[keys:] for row in raw.execute(plain).fetchall()}
            for row in connection.execute(SHAPES[shape]).fetchall():
                expected = list(map(float, wanted.get(row[:keys], (0,) * len(row[keys:]))))
                assert [float(cell or 0) for cell in row[keys:]] == pytest.approx(expected, abs=1e-3), shape


def fill_with_many(raw: duckdb.DuckDBPyConnection) -> None:
    """Customer 1 has sixteen lines, customer 2 eight; sixteen others lead nowhere, or to nobody."""
    rows = [
        (number, number % 5, KINDS[number % 3], number % 9, number / 40, number % 4 or None) for number in range(40)
    ]
    visits = [(row[1] % 3, *row[1:]) for row in rows]
    fill(raw, orders=[(1, 1), (2, 1), (3, 2), (4, None)], lines=rows, parts=[row[1:] for row in rows], visits=visits)


@pytest.mark.parametrize("shape", ["groups of a list", "groups of a list, filtered"])
def test_rows_are_not_joined_to_what_groups_are_joined_to(raw: duckdb.DuckDBPyConnection, shape: str) -> None:
    one_scan = "_unit_rows AS NOT MATERIALIZED"
    assert one_scan in explained(raw, shape, 2, 2, stay=True).sql
    assert one_scan not in explained(raw, shape, 2, 2, stay=False).sql


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_a_text_that_is_not_declared_is_no_group_of_a_list(delta: float) -> None:
    """It is NULL, and counted nowhere, also where the list has it: who has forty such rows has few."""
    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE visits AS SELECT 1::BIGINT AS customer, 'elsewhere' AS kind FROM range(40)")
        raw.execute("CREATE TABLE kinds AS SELECT unnest(['a', 'elsewhere']) AS kind")
        tables = {
            "visits": {
                "unit": "customer",
                "columns": {"customer": "integer", "kind": {**LINE["kind"], "nullable": True}},
            },
            "kinds": {"public": True, "columns": {"kind": "text"}},
        }
        listed = "(SELECT DISTINCT kind FROM kinds) AS listed"
        sql = f"SELECT listed.kind, COUNT(customer) FROM visits RIGHT JOIN {listed} USING (kind) GROUP BY listed.kind"
        for data in (raw, file_of(raw)):
            own = schema(4, 2) | {"tables": tables}
            with dpsql.connect(data, schema=own, budget=1e9, delta=delta, ledger=":memory:") as connection:
                assert sorted(connection.execute(sql, epsilon=1e6).fetchall()) == [("a", 0), ("elsewhere", 0)]


OF_LISTED_CODES = "(SELECT * FROM lines WHERE code < 9 AND code IN (SELECT code + 1 FROM codes)) AS listed_lines"
BESIDE_OTHERS = "lines JOIN (SELECT DISTINCT code AS other FROM codes) AS others ON lines.code - 1 = other"


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_rows_of_other_groups_are_not_counted(raw: duckdb.DuckDBPyConnection, delta: float) -> None:
    """A unit with sixteen rows of a code that is no group has few rows, wherever else its rows are looked up."""
    own = [(number, 1, "a", 1, 0, 3 if number < 16 else 2) for number in range(20)]
    fill(raw, orders=[(1, 1)], lines=own, parts=[], visits=[])
    for data in (raw, file_of(raw)):
        with session(data, 16, 1, delta) as connection:
            for source in ("lines", OF_LISTED_CODES, BESIDE_OTHERS):
                table = source.split()[-1] if source == OF_LISTED_CODES else "lines"
                listed = f"{source} {LISTED.format(table)}"
                sql = f"SELECT listed.code, COUNT(price) AS n FROM {listed} GROUP BY listed.code"
                assert dict(connection.execute(sql).fetchall())[2] == 4, source


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_is_counted_where_rows_are_immutable(raw: duckdb.DuckDBPyConnection, shape: str) -> None:
    fill_with_many(raw)
    own, materialized = (raw.execute(explained(raw, shape, 8, 1, stay).sql).fetchall() for stay in (False, True))
    assert own == materialized


def test_what_lasts_is_found_once(raw: duckdb.DuckDBPyConnection) -> None:
    """Questions one after the other, answered as if each were the first."""
    fill_with_many(raw)
    with session(raw, 8, 1, 1e-6) as one, session(file_of(raw), 8, 1, 1e-6) as another:
        for shape in (*SHAPES, *SHAPES):
            first, second = (connection.execute(SHAPES[shape], fresh=True).df() for connection in (one, another))
            numbers = [frame.select_dtypes("number").astype(float) for frame in (first, second)]
            assert np.allclose(*numbers, atol=1e-3, equal_nan=True), shape
        materialized = another._session.environment.engine._materialized  # type: ignore[attr-defined]
    assert len(materialized) == 4  # of lines, parts and visits, and the list of codes


def test_an_answer_is_found_again_whether_rows_are_immutable(raw: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fill_with_many(raw)
    ledger = tmp_path / "account.ledger"
    options: Any = {"schema": schema(8, 1), "budget": 100, "delta": 1e-6, "ledger": ledger, "query_epsilon": 1}
    with dpsql.connect(raw, **options) as connection:
        first = {shape: connection.execute(sql).fetchall() for shape, sql in SHAPES.items()}
        spent = connection.budget.spent
    with dpsql.connect(file_of(raw), **options) as connection:
        assert {shape: connection.execute(sql).fetchall() for shape, sql in SHAPES.items()} == first
        assert connection.budget.spent == spent


def test_tables_that_last_are_not_more_and_more(
    raw: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are not needed go, and are made again."""
    monkeypatch.setattr(engine, "MOST_TABLES", 1)
    fill_with_many(raw)
    with session(file_of(raw), 8, 1, 1e-6) as connection:
        shapes = ["count", "of their own", "listed once", "count"]
        answers = [connection.execute(SHAPES[shape], fresh=True).fetchall() for shape in shapes]
        assert len(connection._session.environment.engine._materialized) == 1  # type: ignore[attr-defined]
    assert answers[0] == answers[-1]


def test_tables_that_last_are_not_wider_and_wider(
    raw: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may have a column under many names: of such there is one more than fit, that of the last question."""
    monkeypatch.setattr(engine, "MOST_CELLS", 100)
    fill_with_many(raw)
    with session(file_of(raw), 8, 1, 1e-6) as connection:
        for number in range(5):
            names = [f"n{number}_{column}" for column in range(20)]
            listed = f"(SELECT DISTINCT {', '.join(f'code AS {name}' for name in names)} FROM codes) AS listed"
            meets = " AND ".join(f"lines.code = {name}" for name in names)
            connection.execute(f"SELECT kind, COUNT(*) FROM lines JOIN {listed} ON {meets} GROUP BY kind")
        cells = list(connection._session.environment.engine._materialized._cells.values())  # type: ignore[attr-defined]
        assert max(cells) == 3 * 20
        assert sum(cells) <= 100


def test_a_text_is_not_taken_for_what_lasts(raw: duckdb.DuckDBPyConnection) -> None:
    """A value, or a name, that says what a part of the query says stays what it is."""
    fill_with_many(raw)
    with session(file_of(raw), 8, 1, 1e-6) as connection:
        (release,) = connection.explain(SHAPES["of their own"]).releases
        part = release.sql.partition("_rows_per_unit AS (")[2].partition("), _heavy_units")[0]
        assert part.startswith("SELECT _unit, count(*)")
        text = f"({part})"
        group = f"CASE WHEN price < 5 THEN '{text}' ELSE 'it''s ({part}' END"
        for name in ("v", '"it\'s"'):
            found = connection.execute(f"SELECT {group} AS g, COUNT(*) FROM visits AS {name} GROUP BY 1").fetchall()
            assert {key for key, _ in found} == {text, f"it's ({part}"}


def test_what_could_not_be_removed_is_made_again(
    raw: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Ctrl-C comes while a table goes, it is there still, and nobody knows it."""
    fill_with_many(raw)
    with session(file_of(raw), 8, 1, 1e-6) as connection:
        first = connection.execute(SHAPES["count"], fresh=True).fetchall()
        monkeypatch.setattr(connection._session.environment.engine, "_materialized", engine.MaterializedTables())
        assert connection.execute(SHAPES["count"], fresh=True).fetchall() == first


@pytest.mark.parametrize(
    "condition", ["code IN (SELECT code FROM codes)", "kind = 'b' OR code IN (SELECT code FROM codes)"]
)
@pytest.mark.parametrize("table", ["lines", "visits"])
def test_rows_are_kept_where_a_view_tells_which(condition: str, table: str) -> None:
    """A view that is read for a condition alone may read otherwise the second time as well."""
    with duckdb.connect() as raw:
        raw.execute(
            "CREATE TABLE orders (id BIGINT UNIQUE, customer BIGINT); CREATE VIEW codes AS SELECT 1::BIGINT AS code"
        )
        raw.execute("CREATE TABLE lines (order_id BIGINT, kind VARCHAR, code BIGINT)")
        raw.execute("CREATE TABLE visits (customer BIGINT, kind VARCHAR, code BIGINT)")
        own = schema(2, 2)
        tables = {name: own["tables"][name] for name in ("orders", "lines", "codes")}
        read = {name: LINE[name] for name in ("kind", "code")}
        tables["lines"] |= {"columns": {"order_id": "integer", **read}}
        tables["visits"] = {"unit": "customer", "columns": {"customer": "integer", **read}}
        tables["codes"] |= {"columns": {"code": "integer"}, "view": "trusted"}
        with dpsql.connect(raw, schema=own | {"tables": tables}, budget=1, delta=1e-6, ledger=":memory:") as found:
            sql = f"SELECT kind, COUNT(*) AS n FROM {table} WHERE {condition} GROUP BY kind"
            (release,) = found.explain(sql).releases
    assert "_unit_rows AS MATERIALIZED" in release.sql


@pytest.mark.parametrize("name", ["_unit_rows", "_UNIT_ROWS", "_rows_per_unit", "_heavy_units"])
def test_no_table_is_taken_for_rows_of_our_own(name: str) -> None:
    """These orders would be looked up among the lines, with the order for its customer."""
    with duckdb.connect() as raw:
        raw.execute(
            f"CREATE TABLE {name} (_k0 BIGINT UNIQUE, _unit BIGINT); CREATE TABLE lines (order_id BIGINT, code BIGINT)"
        )
        tables = {
            name: {"unit": "_unit", "columns": {"_k0": "integer", "_unit": "integer"}},
            "lines": {
                "unit": {"through": "order_id", "to": f"{name}._k0"},
                "columns": {"order_id": "integer", "code": {"type": "integer", "bounds": [1, 4]}},
            },
        }
        with dpsql.connect(raw, schema=schema(2, 2) | {"tables": tables}, budget=1, ledger=":memory:") as connection:
            with pytest.raises(dpsql.Unsupported, match="clashes with a name that dpsql uses"):
                connection.execute("SELECT code, COUNT(*) FROM lines GROUP BY code")
            assert connection.budget.spent.epsilon == 0

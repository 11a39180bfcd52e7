"""What dpsql adds to PEP 249: EXPLAIN, frames, error bars, receipts, and what can be a database."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.duckdb.catalog import is_set

SQL = "SELECT region, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY region ORDER BY region"
REGIONS = ["east", "north", "south", "west"]


@pytest.fixture
def cursor(shop: dpsql.Connection) -> dpsql.Cursor:
    return shop.execute(SQL, epsilon=5)


# -- EXPLAIN -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["EXPLAIN ", "explain\n", "  -- why\nEXPLAIN ", "/* why */ Explain "])
def test_explain_statement(prefix: str, shop: dpsql.Connection) -> None:
    cursor = shop.execute(prefix + SQL)
    lines = [line for (line,) in cursor.fetchall()]
    assert cursor.description == [("explain", "VARCHAR", None, None, None, None, None)]
    assert cursor.rowcount == len(lines)
    assert "\n".join(lines) == str(shop.explain(SQL))
    assert shop.budget.spent.epsilon == 0


def test_explanation_shows_everything(shop: dpsql.Connection) -> None:
    text = str(shop.explain(SQL, epsilon=0.5))
    for piece in (
        "epsilon 0.5",
        "orders.customer_id",
        "3 groups per person",
        "2 rows per group",
        "95 %",
        "public",
    ):
        assert piece in text
    assert "threshold" in text or "shown from" not in text
    hidden = str(shop.explain("SELECT note, COUNT(*) FROM orders GROUP BY note"))
    assert "shown if the noisy number of people is at least" in hidden
    assert "<pre>" in shop.explain(SQL)._repr_html_()


def test_explanation_fields(shop: dpsql.Connection) -> None:
    """The contract of DESIGN 10."""
    explained = shop.explain(SQL, epsilon=0.5)
    assert explained.cost.epsilon == 0.5
    assert explained.cost.delta >= 0
    assert [column.name for column in explained.columns] == ["region", "n", "mean"]
    key, count, mean = explained.columns
    assert (key.half_width, mean.half_width) == (None, None)
    assert count.half_width > 0
    (release,) = explained.releases
    assert len(release.keys) == 1
    assert release.public_keys is True
    assert release.threshold is None
    for measure in release.measures:
        assert measure.mechanism in ("laplace", "knorm", "gaussian")
        assert measure.l1 == measure.l0 * measure.linf
        assert measure.l2 == pytest.approx(measure.l0**0.5 * measure.linf)
        assert measure.std > 0
        assert measure.quantum > 0


def test_explanation_sql_runs_on_the_raw_database(shop: dpsql.Connection, shop_database: Any) -> None:
    (release,) = shop.explain(SQL).releases
    rows = shop_database.execute(release.sql).fetchall()
    assert [row[0] for row in rows] == REGIONS
    assert [row[1] for row in rows] == [200, 200, 200, 200]


# -- frames ------------------------------------------------------------------------------------------------------------

TYPED = (
    "SELECT region, COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a, DATE '2024-01-31' AS d, "
    "TIMESTAMP '2024-01-31 12:00:00' AS t, COUNT(*) > 0 AS b, CAST(COUNT(*) AS DECIMAL(10, 2)) AS m "
    "FROM orders GROUP BY region ORDER BY region"
)
KINDS = [str, int, float, float, datetime.date, datetime.datetime, bool, decimal.Decimal]


def test_python_types(shop: dpsql.Connection) -> None:
    for row in shop.execute(TYPED, epsilon=5):
        assert [type(value) for value in row] == KINDS


def test_df(shop: dpsql.Connection) -> None:
    cursor = shop.execute(TYPED, epsilon=5)
    frame = cursor.df()
    assert list(frame.columns) == ["region", "n", "s", "a", "d", "t", "b", "m"]
    assert [tuple(row) for row in frame[["region", "n", "s"]].itertuples(index=False)] == [
        row[:3] for row in cursor.fetchall()
    ]
    assert frame.n.dtype == "int64"
    assert frame.s.dtype == "float64"
    assert frame.b.dtype == "bool"
    assert frame.t.dtype.kind == "M"


def test_arrow_and_polars(shop: dpsql.Connection) -> None:
    cursor = shop.execute(TYPED, epsilon=5)
    rows = cursor.fetchall()
    table = cursor.arrow()
    assert isinstance(table, pa.Table)
    assert table.num_rows == 4
    assert [tuple(row.values()) for row in table.to_pylist()] == rows
    assert table.schema.field("n").type == pa.int64()
    assert table.schema.field("d").type == pa.date32()
    assert table.schema.field("t").type == pa.timestamp("us")
    frame = cursor.pl()
    assert isinstance(frame, pl.DataFrame)
    assert frame.rows() == rows


def test_an_empty_answer_keeps_its_types(shop: dpsql.Connection) -> None:
    cursor = shop.execute(TYPED.replace("ORDER BY", "HAVING COUNT(*) < -1000000 ORDER BY"), epsilon=5)
    assert cursor.fetchall() == []
    full, empty = shop.execute(TYPED, epsilon=5), cursor
    assert empty.arrow().schema == full.arrow().schema
    assert list(empty.df().columns) == list(full.df().columns)
    assert empty.pl().schema == full.pl().schema
    assert len(empty.intervals()) == 0
    assert "<table" in empty._repr_html_()


def test_arrow_stream(cursor: dpsql.Cursor) -> None:
    assert pa.table(cursor).num_rows == 4
    assert pl.DataFrame(cursor).height == 4
    assert pd.DataFrame.from_arrow(cursor).shape == (4, 3)
    assert duckdb.connect().execute("SELECT COUNT(*) FROM cursor").fetchall() == [(4,)]


def test_duplicate_names(shop: dpsql.Connection) -> None:
    cursor = shop.execute("SELECT COUNT(*), COUNT(*), SUM(items) AS n, SUM(items) AS n FROM orders", epsilon=5)
    (row,) = cursor.fetchall()
    assert len(row) == 4
    assert cursor.df().shape == (1, 4)
    assert cursor.arrow().num_columns == 4
    noisy = [name for name in cursor.intervals().columns if name.endswith("_low")]
    assert len(noisy) == 4


def test_intervals(cursor: dpsql.Cursor) -> None:
    frame = cursor.intervals(0.95)
    assert list(frame.columns) == ["region", "n", "n_low", "n_high", "mean", "mean_low", "mean_high"]
    assert (frame.n_low < frame.n).all()
    assert (frame.n < frame.n_high).all()
    assert (frame.mean_low <= frame["mean"]).all()
    assert (frame["mean"] <= frame.mean_high).all()
    assert (frame.mean_low >= 0).all(), "an average stays within the declared range"
    assert (frame.mean_high <= 500).all()


def test_html(cursor: dpsql.Cursor, shop: dpsql.Connection) -> None:
    page = cursor._repr_html_()
    assert page.count("<tr>") == 5
    assert "±" in page
    assert "&lt;b&gt;" in shop.execute('SELECT COUNT(*) AS "<b>" FROM orders')._repr_html_()


def test_receipt(cursor: dpsql.Cursor) -> None:
    receipt = cursor.receipt
    assert receipt.epsilon == 5
    assert receipt.mechanism in ("laplace", "knorm", "gaussian")
    assert (receipt.recalled, receipt.refused) == (False, False)


def test_pandas_reads_it(shop: dpsql.Connection) -> None:
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        frame = pd.read_sql("SELECT region, COUNT(*) AS n FROM orders GROUP BY region", shop)  # type: ignore[call-overload]
    assert list(frame.columns) == ["region", "n"]


# -- what can be a database --------------------------------------------------------------------------------------------

ORDERS = {"tables": {"orders": {"unit": "customer", "columns": {"customer": "integer", "note": "text"}}}}
FRAME = pd.DataFrame({"customer": range(100), "note": ["gift"] * 100})


def databases(folder: Path) -> Iterator[tuple[str, object]]:
    FRAME.to_csv(folder / "orders.csv", index=False)
    pq.write_table(pa.Table.from_pandas(FRAME), folder / "orders.parquet")
    with duckdb.connect(str(folder / "shop.duckdb")) as raw:
        raw.register("frame", FRAME)
        raw.execute("CREATE TABLE orders AS SELECT * FROM frame")
    raw = duckdb.connect()
    raw.register("frame", FRAME)
    raw.execute("CREATE TABLE orders AS SELECT * FROM frame")
    yield "a pandas frame", FRAME
    yield "a polars frame", pl.DataFrame({"customer": range(100), "note": ["gift"] * 100})
    yield "an arrow table", pa.Table.from_pandas(FRAME)
    yield "a dict of frames", {"orders": FRAME}
    yield "a dict of paths", {"orders": str(folder / "orders.csv")}
    yield "a csv file", folder / "orders.csv"
    yield "a csv file by its name", str(folder / "orders.csv")
    yield "a parquet file", folder / "orders.parquet"
    yield "a duckdb file", folder / "shop.duckdb"
    yield "a duckdb file by its name", str(folder / "shop.duckdb")
    yield "a connection", raw


def test_databases(tmp_path: Path) -> None:
    for what, database in databases(tmp_path):
        with dpsql.connect(database, schema=ORDERS, budget=1e9, query_epsilon=1e6, ledger=":memory:") as connection:
            assert connection.execute("SELECT COUNT(*) FROM orders").fetchall() == [(100,)], what


def test_a_file_can_be_connected_to_again(tmp_path: Path) -> None:
    """As a notebook does whose first cell is run twice. Every connection and cursor has the same settings."""
    path = dict(databases(tmp_path))["a duckdb file"]
    with (
        dpsql.connect(path, schema=ORDERS, budget=2) as first,
        dpsql.connect(path, schema=ORDERS, budget=2) as second,
    ):
        first.execute("SELECT COUNT(*) FROM orders", epsilon=1)
        assert second.budget.spent.epsilon == 1
        for connection in (first, second):
            raw = connection.session.environment.engine._connection
            for cursor in (raw, raw.cursor(), connection.session.environment.post_processor._connection.cursor()):
                assert not is_set(cursor, "python_enable_replacements")
                assert not is_set(cursor, "enable_external_access")
                assert is_set(cursor, "lock_configuration")


def test_what_dpsql_opens_is_locked(tmp_path: Path) -> None:
    """No other file can be read, nothing be written, no setting changed, whatever reached the engine."""
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for what, database in databases(tmp_path):
        if what == "a connection":
            continue
        with dpsql.connect(database, schema=ORDERS, budget=1, ledger=":memory:") as connection:
            raw = connection.session.environment.engine._connection
            for sql in (
                f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
                f"SELECT * FROM '{tmp_path}/secret.csv'",
                f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
                f"ATTACH '{tmp_path}/other.duckdb' AS other",
                "SET enable_external_access = true",
                "SET threads = 1",
                "INSTALL httpfs",
                "SELECT * FROM FRAME",
            ):
                with pytest.raises(duckdb.Error):
                    raw.cursor().execute(sql).fetchall()
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "other.duckdb").exists()


def test_the_finish_is_locked(shop: dpsql.Connection, tmp_path: Path) -> None:
    """The analyst's own SQL above the aggregates runs where there are no files and no settings."""
    (tmp_path / "secret.csv").write_text("a\n1\n")
    raw = shop.session.environment.post_processor._connection
    for sql in (f"SELECT * FROM read_csv('{tmp_path}/secret.csv')", "SET threads = 1", "SELECT * FROM FRAME"):
        with pytest.raises(duckdb.Error):
            raw.cursor().execute(sql).fetchall()
    for sql in (
        f"SELECT COUNT(*), (SELECT a FROM read_csv('{tmp_path}/secret.csv')) FROM orders",
        f"SELECT * FROM (SELECT COUNT(*) AS n FROM orders) AS t, read_csv('{tmp_path}/secret.csv')",
        "SELECT COUNT(*) FROM orders UNION ALL SELECT amount FROM orders",
        "SELECT getvariable('x'), COUNT(*) FROM orders, duckdb_settings()",
    ):
        with pytest.raises(dpsql.Error):
            shop.execute(sql)
    assert shop.budget.spent.epsilon == 0


def test_a_file_is_opened_read_only(tmp_path: Path) -> None:
    list(databases(tmp_path))
    before = (tmp_path / "shop.duckdb").read_bytes()
    with dpsql.connect(tmp_path / "shop.duckdb", schema=ORDERS, budget=1) as connection:
        connection.execute("SELECT COUNT(*) FROM orders")
        with pytest.raises(duckdb.Error):
            connection.session.environment.engine._connection.execute("CREATE TABLE t AS SELECT 1")
    assert (tmp_path / "shop.duckdb").read_bytes() == before


def test_schemas_in_every_form(tmp_path: Path) -> None:
    import yaml

    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(ORDERS))
    forms = (ORDERS, dpsql.Schema.model_validate(ORDERS), tmp_path / "orders.yaml", str(tmp_path / "orders.yaml"))
    read = set()
    for schema in forms:
        with dpsql.connect(FRAME, schema=schema, budget=1) as connection:
            read.add(connection.session.environment.schema.model_dump_json())
            assert connection.execute("SELECT COUNT(*) FROM orders").rowcount == 1
    assert len(read) == 1


def test_the_budget_is_not_called_epsilon() -> None:
    """`budget` is the session's, `epsilon` a question's."""
    frame = pd.DataFrame({"id": [1, 2], "age": [30, 40]})
    schema = {"tables": {"people": {"unit": "id", "columns": {"id": "integer", "age": "integer"}}}}
    with dpsql.connect(frame, schema=schema, budget=2) as conn:
        assert (conn.budget.epsilon, conn.budget.delta) == (2, 0)
    with (
        pytest.warns(DeprecationWarning, match=r"connect\(budget=\)"),
        dpsql.connect(frame, schema=schema, epsilon=2) as conn,
    ):
        assert conn.budget.epsilon == 2
    with pytest.raises(dpsql.ProgrammingError, match="both given"):
        dpsql.connect(frame, schema=schema, budget=2, epsilon=2)
    with pytest.raises(dpsql.ProgrammingError, match="no analyst is named"):
        dpsql.connect(frame, schema=schema, budget=2, analyst_budget=1)
    with pytest.warns(dpsql.Warning, match="epsilon 100 protects against little"):
        dpsql.connect(frame, schema=schema, budget=100).close()

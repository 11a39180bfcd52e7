"""The SQLAlchemy dialect, as pandas, notebooks and other tools use it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pandas as pd
import pytest
import sqlalchemy as sa
import yaml
from sqlalchemy.engine import Engine

import dpsql
from dpsql.schema import load_schema
from dpsql.sqlalchemy import declared_checks

SCHEMA = {
    "dataset": "shop",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {
        "customers": {
            "unit": "id",
            "unique": True,
            "columns": {
                "id": "integer",
                "Home Town": {"type": "text", "values": ["Oslo", "Rome"]},
                "order": {"type": "integer", "bounds": [0, 9]},
            },
        },
        "orders": {
            "unit": {"through": "customer", "to": "customers.id"},
            "columns": {
                "customer": "integer",
                "amount": {"type": "decimal(10,2)", "bounds": [0, 100], "nullable": True},
                "weight": "double",
                "day": "date",
                "moment": "timestamp",
                "gift": "boolean",
            },
        },
        "regions": {"public": True, "columns": {"region": "text"}},
    },
}
BY_TOWN = 'SELECT "Home Town" AS town, COUNT(*) AS n FROM customers GROUP BY town ORDER BY town'


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A shop with more in it than is declared."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(SCHEMA, sort_keys=False))
    with duckdb.connect("shop.duckdb") as database:
        database.execute("""
            CREATE TABLE customers AS SELECT i AS id, ['Oslo', 'Rome'][1 + i % 2] AS "Home Town", i % 10 AS "order",
                'secret' AS name FROM range(1000) AS r(i);
            ALTER TABLE customers ADD PRIMARY KEY (id);
            CREATE TABLE orders AS SELECT i AS customer, 5::DECIMAL(10, 2) AS amount, 1.5::DOUBLE AS weight,
                DATE '2024-01-31' AS day, TIMESTAMP '2024-01-31 12:00:00' AS moment, true AS gift
                FROM range(1000) AS r(i);
            CREATE TABLE regions AS SELECT 'north' AS region;
            CREATE TABLE salaries AS SELECT 1 AS id""")
    return "dpsql:///shop.duckdb?schema=shop.yaml&budget=1000&query_epsilon=50"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = sa.create_engine(url)
    yield made
    made.dispose()


def spent(engine: Engine) -> float:
    with engine.connect() as connection:
        opened = connection.connection.dbapi_connection
        assert isinstance(opened, dpsql.Connection)
        return opened.budget.spent.epsilon


# -- asking ------------------------------------------------------------------------------------------------------------


def test_pandas(engine: Engine) -> None:
    frame = pd.read_sql(BY_TOWN, engine)
    assert frame.town.tolist() == ["Oslo", "Rome"]
    assert frame.n.tolist() == pytest.approx([500, 500], abs=5)


def test_bound_parameters(engine: Engine) -> None:
    asked = sa.text('SELECT COUNT(*) AS n FROM customers WHERE "order" >= :least AND "Home Town" = :town')
    frame = pd.read_sql(asked, engine, params={"town": "Rome", "least": 5})
    assert frame.n.tolist() == pytest.approx([300], abs=5)


def test_core(engine: Engine) -> None:
    """A statement built in Python, from reflected tables: names that need quotes, a list, parameters out of order."""
    shop = sa.MetaData()
    shop.reflect(engine)
    customers, orders = shop.tables["customers"], shop.tables["orders"]
    with engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(customers)).scalar() == pytest.approx(
            1000, abs=5
        )
        town = customers.c["Home Town"]
        grouped = sa.select(town, sa.func.avg(customers.c.order).label("mean")).group_by(town)
        chosen = grouped.where(town.in_(["Oslo", "Rome"])).order_by(sa.desc("mean")).limit(1)
        assert [row[0] for row in connection.execute(chosen)] == ["Rome"]
        joined = sa.select(sa.func.sum(orders.c.amount)).select_from(orders.join(customers))
        assert float(connection.execute(joined).scalar_one()) == pytest.approx(5000, abs=200)


def test_a_public_table_is_read_whole(engine: Engine) -> None:
    assert pd.read_sql_table("regions", engine).region.tolist() == ["north"]


# -- what a query costs ------------------------------------------------------------------------------------------------


def test_the_cost_of_a_query(engine: Engine) -> None:
    asked = sa.text(BY_TOWN)
    with engine.connect() as connection:
        connection.execute(asked.execution_options(dpsql_epsilon=1))
        connection.execute(asked, execution_options={"dpsql_epsilon": 2})
    with engine.connect().execution_options(dpsql_epsilon=4) as connection:
        pd.read_sql(BY_TOWN, connection)
    pd.read_sql(BY_TOWN, engine.execution_options(dpsql_epsilon=8))
    pd.read_sql(BY_TOWN.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 16)"), engine)
    assert spent(engine) == pytest.approx(31)


def test_connections_of_a_pool_share_the_budget(engine: Engine) -> None:
    def ask(number: int) -> int:
        return len(pd.read_sql(f'SELECT COUNT(*) FROM customers WHERE "order" > {number}', engine))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(8))) == [1] * 8
    assert spent(engine) == pytest.approx(400)


# -- reflection --------------------------------------------------------------------------------------------------------


def test_inspect_lists_exactly_what_is_declared(engine: Engine) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == list(SCHEMA["tables"])
    for name, table in SCHEMA["tables"].items():
        assert [column["name"] for column in inspector.get_columns(name)] == list(table["columns"])
    assert inspector.get_view_names() == []
    assert inspector.has_table("orders")
    assert not inspector.has_table("salaries")
    with pytest.raises(sa.exc.NoSuchTableError):
        inspector.get_columns("salaries")


def test_types_and_keys(engine: Engine) -> None:
    inspector = sa.inspect(engine)
    types = {column["name"]: column["type"].as_generic() for column in inspector.get_columns("orders")}
    assert {name: type(kind) for name, kind in types.items()} == {
        "customer": sa.BigInteger,
        "amount": sa.Numeric,
        "weight": sa.Double,
        "day": sa.Date,
        "moment": sa.DateTime,
        "gift": sa.Boolean,
    }
    assert [column["nullable"] for column in inspector.get_columns("orders")] == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert inspector.get_pk_constraint("customers")["constrained_columns"] == ["id"]
    assert inspector.get_pk_constraint("orders")["constrained_columns"] == []
    (key,) = inspector.get_foreign_keys("orders")
    assert (key["constrained_columns"], key["referred_table"], key["referred_columns"]) == (
        ["customer"],
        "customers",
        ["id"],
    )


def test_whatever_a_tool_may_ask_is_answered(engine: Engine) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_schema_names() == [inspector.default_schema_name] == ["main"]
    assert inspector.get_unique_constraints("customers") == inspector.get_sequence_names() == []
    assert inspector.get_temp_table_names() == inspector.get_materialized_view_names() == []
    assert inspector.get_table_comment("customers") == {"text": "people by id: one row per person"}
    assert inspector.get_table_comment("regions") == {"text": "public"}
    checks = {check["name"]: check["sqltext"] for check in inspector.get_check_constraints("customers")}
    assert checks == {"order_bounds": '"order" BETWEEN 0 AND 9'}
    comments = {column["name"]: column["comment"] for column in inspector.get_columns("customers")}
    assert comments["id"] == "identifies the person"
    assert comments["order"] == "from 0 to 9"


# -- errors ------------------------------------------------------------------------------------------------------------


def test_errors_keep_their_kind(engine: Engine) -> None:
    with engine.connect() as connection:
        with pytest.raises(sa.exc.ProgrammingError, match="no table") as unknown:
            connection.execute(sa.text("SELECT COUNT(*) FROM salaries"))
        assert isinstance(unknown.value.orig, dpsql.UnknownName)
        with pytest.raises(sa.exc.OperationalError) as poor:
            connection.execute(sa.text(BY_TOWN), execution_options={"dpsql_epsilon": 10_000})
        assert isinstance(poor.value.orig, dpsql.BudgetExhausted)
        with pytest.raises(sa.exc.ProgrammingError, match="no option epsilom="):
            connection.execute(sa.text(BY_TOWN), execution_options={"dpsql_epsilom": 1})
        with pytest.raises(sa.exc.NotSupportedError):
            connection.execute(sa.text("SELECT COUNT(*) FROM customers WHERE id = :id"), [{"id": 1}, {"id": 2}])
        with pytest.raises(sa.exc.NotSupportedError):
            connection.execute(sa.text("DELETE FROM customers"))
    assert spent(engine) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("&budget=", "&epsilon="), "has no option epsilon"),
        (("schema=shop.yaml&", ""), "write dpsql:///"),
        (("shop.duckdb", ""), "write dpsql:///"),
        (("&query_epsilon=50", "&ledger=:memory:"), "share one ledger"),
    ],
)
def test_a_url_that_cannot_be_right(change: tuple[str, str], said: str, url: str) -> None:
    with pytest.raises(sa.exc.ArgumentError, match=said):
        sa.create_engine(url.replace(*change)).connect()


def test_a_connection_of_ones_own(shop: dpsql.Connection) -> None:
    """Frames have no URL: the engine can be given an open connection."""
    engine = sa.create_engine("dpsql://", creator=lambda: shop, poolclass=sa.StaticPool)
    assert len(pd.read_sql("SELECT region, COUNT(*) AS n FROM orders GROUP BY region", engine)) == 4
    engine.dispose()


def test_bounds_are_reflected_as_sql() -> None:
    """Of decimals and dates too: what is reflected can be run by a database."""
    columns = {
        "u": "integer",
        "cost": {"type": "decimal(8,2)", "bounds": [0, 500]},
        "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
    }
    schema = load_schema({"tables": {"t": {"unit": "u", "columns": columns}}})
    checks = [check["sqltext"] for check in declared_checks(schema.tables["t"])]
    assert checks == ['"cost" BETWEEN 0.00 AND 500.00', "\"day\" BETWEEN '2024-01-01' AND '2024-12-31'"]


NOBODY = 'SELECT "order", COUNT(*) AS n FROM customers WHERE id % 10 = 3 GROUP BY "order"'


@pytest.mark.parametrize(
    ("parameter", "declared", "options", "shown"),
    [
        ("", None, {}, 1),
        ("&empty_groups=show", None, {}, 10),
        ("", "show", {}, 10),
        ("&empty_groups=hide", "show", {}, 1),
        ("", None, {"dpsql_empty_groups": "show"}, 10),
    ],
)
def test_empty_groups_are_hidden_from_bi_tools(
    url: str, parameter: str, declared: str | None, options: dict[str, str], shown: int
) -> None:
    """By default; the URL, then the schema, and first of all the question decide."""
    if declared is not None:
        Path("shop.yaml").write_text(yaml.safe_dump({**SCHEMA, "empty_groups": declared}))
    made = sa.create_engine(url + parameter, execution_options=options)
    with made.connect() as connection:
        assert len(connection.execute(sa.text(NOBODY)).fetchall()) == shown
    made.dispose()


def test_an_unknown_way_to_show_groups_is_refused(url: str) -> None:
    with pytest.raises(sa.exc.ProgrammingError, match='is "show" or "hide"'):
        sa.create_engine(url + "&empty_groups=some").connect()

"""PostgreSQL clients against a live server: psql, psycopg, psycopg2, asyncpg, pg8000, SQLAlchemy, pandas."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import shutil
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest

for client in ("asyncpg", "pg8000", "psycopg2"):
    pytest.importorskip(client, reason="`make server` installs it")
pytestmark = pytest.mark.server
BY_REGION = "SELECT region, count(*) AS n FROM orders GROUP BY region ORDER BY region"
REGIONS = ["east", "north", "south", "west"]


def test_a_value_of_each_type_in_text_and_in_binary(conn: psycopg.Connection[Any]) -> None:
    sql = """SELECT true AS a, 7::smallint AS b, 7 AS c, 7::bigint AS d, 1.5::double precision AS e,
        12.50::numeric(8,2) AS f, -0.0001::numeric(8,4) AS g, 'it''s' AS h, date '2024-02-29' AS i,
        timestamp '2024-02-29 12:30:00.5' AS j, NULL AS k, array[1,2] AS l, 12345678901234567890::numeric(38,0) AS m"""
    expected = (
        True,
        7,
        7,
        7,
        1.5,
        Decimal("12.50"),
        Decimal("-0.0001"),
        "it's",
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 12, 30, 0, 500_000),
        None,
        [1, 2],
        Decimal("12345678901234567890"),
    )
    for binary in (False, True):
        assert conn.cursor(binary=binary).execute(sql).fetchone() == expected


def test_an_answer_and_its_notices(conn: psycopg.Connection[Any]) -> None:
    said: list[str] = []
    conn.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    rows = conn.execute(BY_REGION).fetchall()
    assert [region for region, _ in rows] == REGIONS
    assert said[0].startswith(("cost: epsilon 0.05", "free: asked on"))
    assert "left: epsilon" in said[0]
    again = conn.execute(BY_REGION).fetchall()
    assert again == rows
    assert any(text.startswith("free: asked on") for text in said)


def test_preparing_is_free_and_executing_twice_is_recalled(conn: psycopg.Connection[Any]) -> None:
    left = "SELECT remaining_epsilon, questions FROM dpsql.budget"
    before = conn.execute(left).fetchone()
    sql = b"SELECT region, count(*) FROM orders WHERE items > $1 GROUP BY region"
    assert conn.pgconn.prepare(b"twice", sql).error_message == b""
    described = conn.pgconn.describe_prepared(b"twice")
    assert [described.fname(number) for number in range(2)] == [b"region", b"count"]
    assert [described.param_type(0), described.ftype(0), described.ftype(1)] == [20, 25, 20]
    assert conn.execute(left).fetchone() == before
    first, second = (conn.pgconn.exec_prepared(b"twice", [b"3"]) for _ in range(2))
    assert [first.get_value(0, 1), first.ntuples] == [second.get_value(0, 1), 4]
    after = conn.execute(left).fetchone()
    assert before is not None
    assert after is not None
    assert after[1] == before[1] + 1


@pytest.mark.parametrize(
    ("sql", "state", "hint", "position"),
    [
        ("SELECT amuont FROM orders", "42703", 'did you mean "amount"?', 8),
        ("SELECT count(* FROM orders", "42601", "never closed", None),
        ("SELECT note FROM orders", "0A000", "aggregate", 8),
        ("SELECT count(*) FROM public.nothing", "42P01", None, 22),
        ("DELETE FROM orders", "0A000", "write a SELECT", None),
        ("SET dpsql.epsilom = 1", "22023", 'did you mean "epsilon"?', None),
        ("SET dpsql.charge = 'up-to 3'", "22023", "write up-to 0.05 or less", None),
        ("SET LOCAL dpsql.charge = 'up-to 0.01'", "0A000", "write SET, later RESET", None),
        ("SET ROLE bob", "0A000", "another login", None),
        ("SET SESSION AUTHORIZATION bob", "0A000", "another login", None),
        ("SET session_authorization TO bob", "0A000", "another login", None),
        ("BEGIN; SELECT 'never closed", "42601", "close the quotes", None),
        ("SELECT count(*) FROM orders, pg_class", "0A000", "ask two queries", None),
        ("SELECT getenv('HOME')", "42883", None, None),
        ("SELECT * FROM read_csv('/etc/passwd')", "0A000", None, None),
        ("SELECT * FROM duckdb_settings()", "42883", None, None),
        ("SELECT current_setting('data_directory') FROM pg_catalog.pg_nothing", "42P01", None, None),
    ],
)
def test_errors_have_code_place_and_way_out(
    conn: psycopg.Connection[Any], sql: str, state: str, hint: str | None, position: int | None
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(sql)
    assert caught.value.sqlstate == state
    assert hint is None or hint in (caught.value.diag.message_hint or "")
    assert position is None or caught.value.diag.statement_position == str(position)
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_places_in_a_text_of_several_statements(conn: psycopg.Connection[Any]) -> None:
    sql = "SELECT 1; SELECT amuont FROM orders"
    found = conn.pgconn.exec_(sql.encode())
    assert found.error_field(psycopg.pq.DiagnosticField.STATEMENT_POSITION) == str(sql.index("amuont") + 1).encode()


def test_intervals_and_other_settings(conn: psycopg.Connection[Any]) -> None:
    conn.execute("SET dpsql.intervals = on")
    conn.execute("SET dpsql.epsilon TO 0.04")
    cursor = conn.execute(BY_REGION)
    assert [column.name for column in cursor.description or ()] == ["region", "n", "n_low", "n_high"]
    assert all(low <= n <= high for _, n, low, high in cursor.fetchall())
    heard: list[str] = []
    conn.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    conn.execute("SELECT sum(amount)::float / count(*) AS mean FROM orders").fetchall()
    assert '"mean": the interval covers the noise only, not what is left out' in heard
    assert conn.execute("SHOW dpsql.epsilon").fetchone() == ("0.04",)
    assert "would be left" in "\n".join(line for (line,) in conn.execute("EXPLAIN SELECT sum(amount) FROM orders"))
    conn.execute("RESET ALL")
    assert conn.execute("SHOW dpsql.intervals").fetchone() == ("off",)
    assert "left" in str(conn.execute("SHOW dpsql.budget").fetchone())
    assert ("dpsql.charge", "up-to 0.05", "") in conn.execute("SHOW ALL").fetchall()
    assert conn.execute("SHOW DateStyle").fetchone() == ("ISO, MDY",)
    assert conn.execute("SHOW TABLES").fetchall()[0][0] == "customers"
    assert ("region", "text", "'north', 'south', 'east', 'west'") in conn.execute("DESCRIBE orders").fetchall()


def test_row_limits_leave_a_portal_open(conn: psycopg.Connection[Any], server: Any) -> None:
    import asyncpg

    async def fetched() -> list[list[Any]]:
        opened = await asyncpg.connect(**server.where(database="shop"))
        async with opened.transaction():
            cursor = await opened.cursor("SELECT relname FROM pg_class ORDER BY relname LIMIT 5")
            found = [[row[0] for row in await cursor.fetch(2)] for _ in range(3)]
        await opened.close()
        return found

    assert [len(rows) for rows in asyncio.run(fetched())] == [2, 2, 1]


def test_parameters_have_the_types_of_what_they_meet(server: Any) -> None:
    import asyncpg

    async def asked() -> list[Any]:
        opened = await asyncpg.connect(**server.where(database="shop"))
        day = datetime.date(2024, 1, 10)
        found = [
            await opened.fetchval("SELECT count(*) FROM orders WHERE day >= $1 AND amount < $2", day, 80.5),
            await opened.fetchval("SELECT count(*) FROM orders WHERE region = any($1)", ["north", "south"]),
            await opened.fetchval("SELECT count(*) FROM orders AS o WHERE o.items BETWEEN $1 AND $2", 1, 9),
        ]
        await opened.close()
        return found

    assert all(isinstance(value, int) for value in asyncio.run(asked()))


def test_copy_in_three_formats(conn: psycopg.Connection[Any]) -> None:
    def copied(how: str) -> bytes:
        with conn.cursor().copy(f"COPY ({BY_REGION}) TO STDOUT {how}") as found:
            return b"".join(bytes(part) for part in found)

    assert [line.split("\t")[0] for line in copied("").decode().splitlines()] == REGIONS
    assert copied("WITH (FORMAT csv, HEADER)").startswith(b"region,n\neast,")
    with conn.cursor().copy(f"COPY ({BY_REGION}) TO STDOUT (FORMAT binary)") as found:
        found.set_types(["text", "int8"])
        assert [region for region, _ in found.rows()] == REGIONS


def test_transactions_are_accepted_and_do_nothing(server: Any) -> None:
    with server.connect() as conn, conn.transaction():
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert len(conn.execute(BY_REGION).fetchall()) == 4


@pytest.mark.skipif(shutil.which("psql") is None, reason="`make server` installs psql")
def test_psql(server: Any) -> None:
    found = server.psql("\\dt", "\\d orders", "\\l", "\\du", "\\dn", "\\df", "\\dv dpsql.*", "SHOW server_version")
    assert found.stderr == ""
    assert "public|orders|table|dpsql" in found.stdout
    assert "amount|double precision||not null|" in found.stdout
    assert "dpsql|budget|view|dpsql" in found.stdout
    wrong = server.psql("SELECT regin FROM orders")
    assert '^\nHINT:  did you mean "region"?' in wrong.stderr


def test_psycopg2_and_pg8000(server: Any) -> None:
    import pg8000.dbapi
    import psycopg2

    for connect, name in ((psycopg2.connect, "dbname"), (pg8000.dbapi.connect, "database")):
        opened = connect(**server.where(**{name: "shop"}))
        cursor = opened.cursor()
        cursor.execute("SELECT region, count(*) AS n FROM orders WHERE items > %s GROUP BY region", [4])
        assert sorted(row[0] for row in cursor.fetchall()) == REGIONS
        opened.rollback()
        opened.close()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_sqlalchemy_reflects_and_pandas_reads(server: Any, driver: str) -> None:
    import pandas as pd
    import sqlalchemy as sa

    where = {**server.where(database="shop"), "username": "ada"}
    del where["user"]
    engine = sa.create_engine(sa.URL.create(f"postgresql+{driver}", **where))
    tables = sa.MetaData()
    tables.reflect(engine)
    orders = tables.tables["orders"]
    kinds = {name: str(column.type) for name, column in orders.columns.items()}
    assert kinds["amount"] == "DOUBLE PRECISION"
    assert kinds["day"] == "DATE"
    assert orders.columns["amount"].comment == "from 0 to 500"
    assert sa.inspect(engine).get_pk_constraint("customers")["constrained_columns"] == ["id"]
    asked = sa.select(orders.c.region, sa.func.count().label("n")).where(orders.c["items"] > 4).group_by("region")
    frame = pd.read_sql(asked, engine)
    assert sorted(frame["region"]) == REGIONS
    assert frame["n"].dtype == "int64"
    engine.dispose()


def test_a_cancel_stops_the_wait(server: Any) -> None:
    """The charge stands, so the answer is there for free when it is asked again."""
    sql = """SELECT o.region, sum(o.amount), avg(o.amount) FROM orders o JOIN orders p ON o.customer_id = p.customer_id
        WHERE o.amount < 433 GROUP BY o.region"""
    with server.connect() as conn, contextlib.suppress(psycopg.errors.QueryCanceled):
        timer = threading.Timer(0.02, conn.cancel)
        timer.start()
        conn.execute(sql)
    timer.join()
    with server.connect() as conn:
        start = time.monotonic()
        assert conn.execute("SELECT 1").fetchone() == (1,)
        assert time.monotonic() - start < 10
        assert len(conn.execute(sql).fetchall()) == 4


CHARGES: list[tuple[str, Callable[[psycopg.Connection[Any]], Any], str | None]] = [
    ("tool", lambda conn: conn.execute("SELECT count(*) FROM orders WHERE items > 11"), "to allow it in this session"),
    ("guest", lambda conn: conn.execute("SELECT count(*) FROM orders WHERE items > 12"), "ask what was asked before"),
    ("ada", lambda conn: conn.execute("SET dpsql.epsilon = 1") and conn.execute(BY_REGION), "dpsql.epsilon = '0.05'"),
    ("guest", lambda conn: conn.execute("SET dpsql.charge = 'up-to 0.01'"), "ask the data owner for another"),
]


@pytest.mark.parametrize(("user", "ask", "hint"), CHARGES, ids=["ask", "free-only", "up-to", "not more"])
def test_a_login_spends_what_it_may(
    server: Any, user: str, ask: Callable[[psycopg.Connection[Any]], Any], hint: str
) -> None:
    with server.connect(user) as conn:
        before = conn.execute("SELECT remaining_epsilon FROM dpsql.budget").fetchone()
        with pytest.raises(psycopg.Error) as caught:
            ask(conn)
        assert hint in (caught.value.diag.message_hint or "")
        assert conn.execute("SELECT remaining_epsilon FROM dpsql.budget").fetchone() == before


def test_who_may_not_spend_gets_what_others_paid_for(server: Any) -> None:
    sql = "SELECT count(*) AS n FROM orders WHERE items > 13"
    with server.connect("tool") as tool, server.connect("guest") as guest:
        tool.execute("SET dpsql.charge = 'up-to 0.02'")
        paid = tool.execute(sql).fetchall()
        assert guest.execute("SET dpsql.epsilon = 0.02")
        assert guest.execute(sql).fetchall() == paid
        own = tool.execute("SELECT DISTINCT analyst FROM dpsql.history").fetchall()
        assert own == [("tool",)]
        assert guest.execute("SELECT * FROM dpsql.history").fetchall() == []

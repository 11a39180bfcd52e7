"""PEP 249 (DB-API 2.0), section by section: https://peps.python.org/pep-0249/"""

from __future__ import annotations

import datetime
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql

SQL = "SELECT region, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY region ORDER BY region"
REGIONS = ["east", "north", "south", "west"]


@pytest.fixture
def cursor(shop: dpsql.Connection) -> dpsql.Cursor:
    return shop.execute(SQL, epsilon=5)


# -- Module Interface: constructors and globals ------------------------------------------------------------------------


def test_globals() -> None:
    assert dpsql.apilevel == "2.0"
    assert dpsql.threadsafety == 2
    assert dpsql.paramstyle == "qmark"


def test_connect_takes_what_is_promised() -> None:
    names = list(inspect.signature(dpsql.connect).parameters)
    assert names[0] == "database"
    wanted = {"schema", "budget", "delta", "ledger", "query_epsilon", "composition"}
    assert wanted <= set(names)


def test_connect_gives_a_connection(shop_database: Any, shop_schema: Any) -> None:
    with dpsql.connect(shop_database, schema=shop_schema, budget=1) as connection:
        assert isinstance(connection, dpsql.Connection)


def test_several_connections_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as raw:
        raw.execute("CREATE TABLE people AS SELECT i AS id FROM range(100) AS r(i)")
    schema = {"tables": {"people": {"unit": "id", "columns": {"id": "integer"}}}}
    one, two = (dpsql.connect(path, schema=schema, budget=1) for _ in range(2))
    one.execute("SELECT COUNT(*) FROM people", epsilon=0.25)
    one.close()
    two.execute("SELECT COUNT(*) FROM people", epsilon=0.5)
    assert two.budget.spent.epsilon == pytest.approx(0.75)
    with pytest.raises(duckdb.Error):  # the second is locked as the first was
        two.session.environment.engine._connection.execute("SET threads = 1")
    two.close()


# -- Module Interface: exceptions --------------------------------------------------------------------------------------

STANDARD = {
    dpsql.Warning: UserWarning,  # so that `warnings` can show it; an Exception too, as PEP 249 wants
    dpsql.Error: Exception,
    dpsql.InterfaceError: dpsql.Error,
    dpsql.DatabaseError: dpsql.Error,
    dpsql.DataError: dpsql.DatabaseError,
    dpsql.OperationalError: dpsql.DatabaseError,
    dpsql.IntegrityError: dpsql.DatabaseError,
    dpsql.InternalError: dpsql.DatabaseError,
    dpsql.ProgrammingError: dpsql.DatabaseError,
    dpsql.NotSupportedError: dpsql.DatabaseError,
}
OURS = {
    dpsql.BudgetExhausted: dpsql.OperationalError,
    dpsql.LedgerError: dpsql.OperationalError,
    dpsql.SealedExecutionError: dpsql.OperationalError,
    dpsql.UnknownName: dpsql.ProgrammingError,
    dpsql.SqlSyntaxError: dpsql.ProgrammingError,
    dpsql.UnboundedColumn: dpsql.ProgrammingError,
    dpsql.SchemaError: dpsql.ProgrammingError,
    dpsql.Unsupported: dpsql.NotSupportedError,
}


def test_the_tree_of_errors() -> None:
    for error, parent in (STANDARD | OURS).items():
        assert error.__bases__ == (parent,)


@pytest.mark.parametrize("name", [error.__name__ for error in STANDARD])
def test_errors_on_the_connection(name: str, shop: dpsql.Connection) -> None:
    """The optional extension: generic code can catch errors without the module."""
    assert getattr(shop, name) is getattr(dpsql, name)


RAISED: dict[str, tuple[Callable[[dpsql.Connection], object], type[dpsql.Error]]] = {
    "a syntax error": (lambda connection: connection.execute("SELECT COUNT( FROM orders"), dpsql.ProgrammingError),
    "a table not found": (lambda connection: connection.execute("SELECT COUNT(*) FROM x"), dpsql.ProgrammingError),
    "too few parameters": (
        lambda connection: connection.execute("SELECT COUNT(*) FROM orders WHERE items = ?"),
        dpsql.ProgrammingError,
    ),
    "not this database's business": (
        lambda connection: connection.execute("DELETE FROM orders"),
        dpsql.NotSupportedError,
    ),
    "no budget left": (lambda connection: connection.execute(SQL, epsilon=99), dpsql.OperationalError),
    "a misuse of the interface": (lambda connection: connection.cursor().fetchone(), dpsql.InterfaceError),
}


@pytest.mark.parametrize(("use", "error"), RAISED.values(), ids=RAISED)
def test_what_is_raised_when(
    use: Callable[[dpsql.Connection], object], error: type[dpsql.Error], shop: dpsql.Connection
) -> None:
    with pytest.raises(error):
        use(shop)


# -- Connection Objects ------------------------------------------------------------------------------------------------


def test_connection_methods(shop: dpsql.Connection) -> None:
    assert isinstance(shop.cursor(), dpsql.Cursor)
    assert shop.commit() is None
    assert shop.cursor().connection is shop


def test_rollback_does_not_take_a_charge_back(shop: dpsql.Connection) -> None:
    shop.execute(SQL, epsilon=5)
    assert shop.rollback() is None
    assert shop.budget.spent.epsilon == pytest.approx(5)


def test_connection_as_context(shop_database: Any, shop_schema: Any) -> None:
    with dpsql.connect(shop_database, schema=shop_schema, budget=1) as connection:
        connection.execute("SELECT COUNT(*) FROM orders")
    with pytest.raises(dpsql.InterfaceError):
        connection.cursor().execute("SELECT COUNT(*) FROM orders")
    with pytest.raises(dpsql.InterfaceError), connection:
        pass


CLOSED_CONNECTION: dict[str, Callable[[dpsql.Connection], object]] = {
    "execute": lambda connection: connection.execute(SQL),
    "explain": lambda connection: connection.explain(SQL),
    "budget": lambda connection: connection.budget,
    "history": lambda connection: connection.history(),
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "cursor": lambda connection: connection.cursor(),
}


@pytest.mark.parametrize("use", CLOSED_CONNECTION.values(), ids=CLOSED_CONNECTION)
def test_a_closed_connection(use: Callable[[dpsql.Connection], object], shop: dpsql.Connection) -> None:
    shop.close()
    shop.close()  # closing twice is fine
    with pytest.raises(dpsql.InterfaceError):
        use(shop)


def test_cursors_of_a_closed_connection(shop: dpsql.Connection, cursor: dpsql.Cursor) -> None:
    shop.close()
    for use in CLOSED_CURSOR.values():
        with pytest.raises(dpsql.InterfaceError):
            use(cursor)


def test_the_callers_connection_stays_open(shop_database: Any, shop: dpsql.Connection) -> None:
    shop.close()
    assert shop_database.execute("SELECT 1").fetchall() == [(1,)]


# -- Cursor Objects: attributes ----------------------------------------------------------------------------------------


def test_before_execute(shop: dpsql.Connection) -> None:
    cursor = shop.cursor()
    assert cursor.description is None
    assert cursor.rowcount == -1
    assert cursor.arraysize == 1
    for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall, cursor.df, cursor.arrow, cursor.intervals):
        with pytest.raises(dpsql.Error):
            fetch()


def test_description(cursor: dpsql.Cursor) -> None:
    assert [item[0] for item in cursor.description or ()] == ["region", "n", "mean"]
    for item in cursor.description or ():
        assert len(item) == 7
        assert item[1] is not None, "name and type_code are mandatory"
        assert item[2:] == (None,) * 5


def test_rowcount(shop: dpsql.Connection, cursor: dpsql.Cursor) -> None:
    assert cursor.rowcount == 4
    cursor.fetchall()
    assert cursor.rowcount == 4
    assert shop.execute(SQL.replace("ORDER BY", "HAVING COUNT(*) < -1000000 ORDER BY"), epsilon=5).rowcount == 0


# -- Cursor Objects: methods -------------------------------------------------------------------------------------------


def test_execute_returns_the_cursor(shop: dpsql.Connection) -> None:
    cursor = shop.cursor()
    assert cursor.execute(SQL) is cursor


def test_parameters(shop: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) AS n FROM orders WHERE region IN (?, ?) AND items < ? AND day >= ?"
    values = ["north", "south", 21, dpsql.Date(2024, 1, 1)]
    for parameters in (values, tuple(values)):
        assert shop.execute(sql, parameters, epsilon=1).rowcount == 1


def test_parameters_are_bound_in_the_order_of_the_text(shop: dpsql.Connection) -> None:
    """Wherever the clause stands in the parser's tree."""
    sql = (
        "SELECT region, ? AS mark FROM (SELECT region, COUNT(*) AS n FROM orders WHERE items < ? GROUP BY region) AS t "
    )
    cursor = shop.execute(sql + "WHERE region <> ? ORDER BY region LIMIT ? OFFSET ?", ["x", 30, "east", 2, 1])
    assert cursor.fetchall() == [("south", "x"), ("west", "x")]


@pytest.mark.parametrize("parameters", [[], [1], [1, 2, 3], {"a": 1}, "ab", 5])
def test_parameters_that_do_not_fit(parameters: Any, shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.Error):
        shop.execute("SELECT COUNT(*) FROM orders WHERE items BETWEEN ? AND ?", parameters)
    assert shop.budget.queries == 0


def test_executemany_is_not_supported(shop: dpsql.Connection) -> None:
    with pytest.raises(dpsql.NotSupportedError):
        shop.cursor().executemany("SELECT COUNT(*) FROM orders WHERE items = ?", [[1], [2]])
    assert shop.budget.spent.epsilon == 0


def test_optional_methods_that_are_not_there(cursor: dpsql.Cursor) -> None:
    """There are no stored procedures and no further result sets, so as PEP 249 asks there are no such methods."""
    assert not hasattr(cursor, "callproc")
    assert not hasattr(cursor, "nextset")


def test_fetch_one_by_one(cursor: dpsql.Cursor) -> None:
    rows = [cursor.fetchone() for _ in range(4)]
    assert [row[0] for row in rows if row] == REGIONS
    assert all(type(row) is tuple for row in rows)
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


def test_fetch_many(cursor: dpsql.Cursor) -> None:
    assert len(cursor.fetchmany()) == 1
    cursor.arraysize = 2
    assert len(cursor.fetchmany()) == 2
    assert len(cursor.fetchmany(size=10)) == 1
    assert cursor.fetchmany(5) == []


def test_fetch_all_gives_the_rest(cursor: dpsql.Cursor) -> None:
    cursor.fetchone()
    assert [row[0] for row in cursor.fetchall()] == REGIONS[1:]


def test_iteration(cursor: dpsql.Cursor) -> None:
    """The optional extension: `next` and `for`."""
    assert next(cursor)[0] == "east"
    assert [row[0] for row in cursor] == REGIONS[1:]
    with pytest.raises(StopIteration):
        next(cursor)


def test_execute_again_starts_anew(cursor: dpsql.Cursor) -> None:
    cursor.fetchall()
    cursor.execute("SELECT COUNT(*) AS n FROM orders")
    assert [item[0] for item in cursor.description or ()] == ["n"]
    assert len(cursor.fetchall()) == 1


def test_a_failed_execute_leaves_no_old_answer(cursor: dpsql.Cursor) -> None:
    with pytest.raises(dpsql.Error):
        cursor.execute("SELECT nonsense FROM orders")
    assert cursor.description is None
    assert cursor.rowcount == -1
    with pytest.raises(dpsql.Error):
        cursor.fetchall()


def test_sizes_do_nothing(cursor: dpsql.Cursor) -> None:
    cursor.setinputsizes([1])
    cursor.execute("SELECT 'longer than one character'")
    cursor.setoutputsize(1)
    cursor.setoutputsize(1, 0)
    assert cursor.fetchall() == [("longer than one character",)]


CLOSED_CURSOR: dict[str, Callable[[dpsql.Cursor], object]] = {
    "execute": lambda cursor: cursor.execute(SQL),
    "fetchone": lambda cursor: cursor.fetchone(),
    "fetchmany": lambda cursor: cursor.fetchmany(),
    "fetchall": lambda cursor: cursor.fetchall(),
    "iterate": list,
    "df": lambda cursor: cursor.df(),
    "intervals": lambda cursor: cursor.intervals(),
    "receipt": lambda cursor: cursor.receipt,
}


@pytest.mark.parametrize("use", CLOSED_CURSOR.values(), ids=CLOSED_CURSOR)
@pytest.mark.parametrize("sql", [SQL, f"EXPLAIN {SQL}"], ids=["answered", "explained"])
def test_a_closed_cursor(sql: str, use: Callable[[dpsql.Cursor], object], shop: dpsql.Connection) -> None:
    cursor = shop.execute(sql)
    cursor.close()
    cursor.close()
    with pytest.raises(dpsql.InterfaceError):
        use(cursor)


def test_cursor_as_context(shop: dpsql.Connection) -> None:
    with shop.cursor() as cursor:
        assert len(cursor.execute(SQL).fetchall()) == 4
    with pytest.raises(dpsql.InterfaceError):
        cursor.fetchall()


def test_cursors_are_independent(shop: dpsql.Connection) -> None:
    one, two = shop.execute(SQL), shop.execute("SELECT COUNT(*) FROM orders")
    assert len(one.fetchall()) == 4
    assert len(two.fetchall()) == 1


# -- Type Objects and Constructors -------------------------------------------------------------------------------------


def test_constructors() -> None:
    assert dpsql.Date(2024, 1, 31) == datetime.date(2024, 1, 31)
    assert dpsql.Time(12, 30, 1) == datetime.time(12, 30, 1)
    assert dpsql.Timestamp(2024, 1, 31, 12, 30, 1) == datetime.datetime(2024, 1, 31, 12, 30, 1)
    assert dpsql.Binary(b"x") == b"x"


@pytest.mark.parametrize("ticks", [0, 1_700_000_000, 1_700_000_000.75])
def test_constructors_from_ticks(ticks: float) -> None:
    """Seconds since the epoch, as local time; fractions of a second are dropped."""
    moment = datetime.datetime.fromtimestamp(int(ticks))
    assert dpsql.DateFromTicks(ticks) == moment.date()
    assert dpsql.TimeFromTicks(ticks) == moment.time()
    assert dpsql.TimestampFromTicks(ticks) == moment


def test_type_objects(shop: dpsql.Connection) -> None:
    sql = (
        "SELECT region, COUNT(*), AVG(amount), CAST(COUNT(*) AS DECIMAL(10, 2)), COUNT(*) > 0, DATE '2024-01-31', "
        "TIMESTAMP '2024-01-31 12:00:00', CAST('x' AS BLOB) FROM orders GROUP BY region"
    )
    expected = [dpsql.STRING, *[dpsql.NUMBER] * 4, *[dpsql.DATETIME] * 2, dpsql.BINARY]
    every = {dpsql.STRING, dpsql.BINARY, dpsql.NUMBER, dpsql.DATETIME, dpsql.ROWID}
    assert len(every) == 5
    for (_, code, *_), wanted in zip(shop.execute(sql).description or (), expected, strict=True):
        assert code == wanted
        assert all(code != other for other in every - {wanted})


def test_null_is_none(shop: dpsql.Connection) -> None:
    (row,) = shop.execute("SELECT COUNT(*), NULL FROM orders WHERE note <> ?", [None]).fetchall()
    assert row[1] is None


# -- threadsafety 2: threads may share the module and connections ------------------------------------------------------


def test_threads_share_a_connection(shop: dpsql.Connection) -> None:
    failures: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            sql = f"SELECT region, COUNT(*) FROM orders WHERE items > {number} GROUP BY region"
            assert len(shop.execute(sql, epsilon=0.1).fetchall()) == 4
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

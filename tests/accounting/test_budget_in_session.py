"""The account seen from a session: refused is free, charged before read, the same question again is free."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import dpsql

BY_REGION = "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region"


def spent(connection: dpsql.Connection) -> float:
    return connection.budget.spent.epsilon


@pytest.fixture
def pure(shop_database: Any, shop_schema: Any) -> Any:
    """Epsilon 1 and no delta: epsilons simply add."""
    with dpsql.connect(shop_database, schema=shop_schema, budget=1) as connection:
        yield connection


def test_a_tenth_by_default(pure: dpsql.Connection, shop_database: Any, shop_schema: Any) -> None:
    assert pure.execute("SELECT COUNT(*) FROM orders").receipt.epsilon == 0.1
    with dpsql.connect(shop_database, schema=shop_schema, budget=1, query_epsilon=0.25) as connection:
        assert connection.execute("SELECT COUNT(*) FROM orders").receipt.epsilon == 0.25


def test_ten_tenths_are_one(pure: dpsql.Connection) -> None:
    for number in range(10):
        pure.execute(f"SELECT COUNT(*) FROM orders WHERE items > {number}", epsilon=0.1)
    assert spent(pure) == 1
    assert pure.budget.remaining.epsilon == 0
    with pytest.raises(dpsql.BudgetExhausted):
        pure.execute("SELECT COUNT(*) FROM orders WHERE items > 10", epsilon=1e-9)


def test_epsilon_is_the_cost_of_the_whole_query(pure: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*), SUM(amount), SUM(items), AVG(amount), COUNT(DISTINCT customer_id) FROM orders"
    receipt = pure.execute(sql, epsilon=0.5).receipt
    assert receipt.epsilon == 0.5
    assert spent(pure) == 0.5
    assert not receipt.recalled
    assert not receipt.refused


def test_refusal_is_free(pure: dpsql.Connection) -> None:
    for sql in ("SELECT * FROM orders", "SELECT SUM(weight) FROM orders", "SELECT MAX(note) FROM orders", "nonsense"):
        with pytest.raises(dpsql.Error):
            pure.execute(sql, epsilon=0.5)
    assert spent(pure) == 0
    assert (pure.history().state == "charged").sum() == 0


def test_explain_is_free_and_right(shop: dpsql.Connection) -> None:
    for options in ({"epsilon": 0.5, "mechanism": "laplace"}, {"epsilon": 0.5, "mechanism": "gaussian"}, {}):
        before = spent(shop)
        explained = shop.explain(BY_REGION, fresh=True, **options)
        assert spent(shop) == before
        receipt = shop.execute(BY_REGION, fresh=True, **options).receipt
        assert (receipt.epsilon, receipt.delta) == (explained.cost.epsilon, explained.cost.delta)
        assert shop.budget.remaining.epsilon == pytest.approx(explained.remaining.epsilon)


def test_exceeding_changes_nothing(pure: dpsql.Connection) -> None:
    pure.execute(BY_REGION, epsilon=0.7)
    entries = len(pure.history())
    with pytest.raises(dpsql.BudgetExhausted) as caught:
        pure.execute("SELECT COUNT(*) FROM orders", epsilon=0.4)
    assert caught.value.requested == 0.4
    assert caught.value.remaining == pytest.approx(0.3)
    assert spent(pure) == 0.7
    assert len(pure.history()) == entries
    pure.execute("SELECT COUNT(*) FROM orders", epsilon=0.3)
    assert spent(pure) == 1


def test_exhausted_before_the_engine_is_asked(pure: dpsql.Connection) -> None:
    class Untouchable:
        def __init__(self, engine: Any) -> None:
            self.guarantees, self.check_unchanged, self.close = engine.guarantees, engine.check_unchanged, engine.close
            self.render, self.can_run = engine.render, engine.can_run

        def run(self, select: Any, materialized: Any = None) -> None:
            raise AssertionError("the engine was asked")

    session = pure.session
    session.environment = dataclasses.replace(session.environment, engine=Untouchable(session.environment.engine))
    with pytest.raises(dpsql.BudgetExhausted):
        pure.execute("SELECT COUNT(*) FROM orders", epsilon=2)


def test_charged_before_the_engine_is_asked(pure: dpsql.Connection) -> None:
    seen = []
    engine = pure.session.environment.engine

    class Watching:
        guarantees, check_unchanged, close = engine.guarantees, engine.check_unchanged, engine.close
        render, can_run = staticmethod(engine.render), staticmethod(engine.can_run)

        def run(self, select: Any, materialized: Any = None) -> Any:
            seen.append(spent(pure))
            return engine.run(select, materialized)

    pure.session.environment = dataclasses.replace(pure.session.environment, engine=Watching())
    pure.execute("SELECT COUNT(*) FROM orders", epsilon=0.3)
    assert seen == [0.3, 0.3]  # the question, and the histogram that tells what is left out of it


# -- the same question ------------------------------------------------------------------------------------------------


def test_the_same_question_is_free_and_equal(shop: dpsql.Connection) -> None:
    first = shop.execute(BY_REGION, epsilon=0.1)
    rows, before = first.fetchall(), spent(shop)
    again = shop.execute(BY_REGION, epsilon=0.1)
    assert again.fetchall() == rows
    assert spent(shop) == before
    assert again.receipt.recalled
    assert (again.receipt.epsilon, again.receipt.delta) == (0, 0)


def test_another_price_is_another_question(shop: dpsql.Connection) -> None:
    shop.execute(BY_REGION, epsilon=0.1)
    before = spent(shop)
    assert not shop.execute(BY_REGION, epsilon=0.2).receipt.recalled
    assert spent(shop) > before


def test_fresh_pays(shop: dpsql.Connection) -> None:
    rows, before = shop.execute(BY_REGION, epsilon=0.1).fetchall(), spent(shop)
    fresh = shop.execute(BY_REGION, epsilon=0.1, fresh=True)
    assert not fresh.receipt.recalled
    assert spent(shop) > before
    assert fresh.fetchall() != rows
    # the latest answer is the one that is recalled from now on
    assert shop.execute(BY_REGION, epsilon=0.1).receipt.recalled


VARIANTS = [
    f"{BY_REGION} ORDER BY n DESC",
    f"{BY_REGION} ORDER BY region LIMIT 2",
    f"{BY_REGION} HAVING COUNT(*) > 100",
    f"  {BY_REGION.replace('SELECT', 'select')}  -- the same",
    BY_REGION.replace("GROUP BY region", "GROUP BY 1"),
    "SELECT region, COUNT(*), SUM(amount), SUM(amount) / COUNT(*) FROM orders GROUP BY region",
    "SELECT SUM(n) FROM (SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region) AS t",
]


@pytest.mark.parametrize("sql", VARIANTS)
def test_other_finishes_of_the_same_release_are_free(sql: str, shop: dpsql.Connection) -> None:
    shop.execute(BY_REGION, epsilon=0.1)
    before = spent(shop)
    assert shop.execute(sql, epsilon=0.1).receipt.recalled
    assert spent(shop) == before


OTHERS = [
    ("SELECT region, COUNT(*) FROM orders WHERE items > 3 GROUP BY region", {}),
    (BY_REGION, {"max_groups": 1}),
    (BY_REGION, {"max_rows_per_group": 1}),
    (BY_REGION, {"mechanism": "laplace"}),
]


@pytest.mark.parametrize(("sql", "options"), OTHERS)
def test_other_releases_are_not(sql: str, options: dict[str, Any], shop: dpsql.Connection) -> None:
    shop.execute(BY_REGION, epsilon=0.1, mechanism="gaussian")
    assert not shop.execute(sql, epsilon=0.1, **options).receipt.recalled


def test_parameters_are_part_of_the_question(shop: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) FROM orders WHERE items > ?"
    shop.execute(sql, [3], epsilon=0.1)
    assert shop.execute(sql, [3], epsilon=0.1).receipt.recalled
    assert not shop.execute(sql, [4], epsilon=0.1).receipt.recalled


RECALLED = [
    "SELECT note, COUNT(*) AS n FROM orders GROUP BY note ORDER BY note",
    "SELECT CAST(DATE_TRUNC('month', day) AS DATE) AS d, COUNT(*) AS n FROM orders GROUP BY d ORDER BY d",
    "SELECT DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM orders GROUP BY m ORDER BY m",
    "SELECT CAST(items AS DECIMAL(5, 1)) AS k, AVG(amount) AS a FROM orders GROUP BY k ORDER BY k",
    "SELECT items > 3 AS many, SUM(amount) AS s FROM orders GROUP BY many ORDER BY many",
    "SELECT FLOOR(amount / 100) AS bin, SUM(items) AS s FROM orders GROUP BY bin ORDER BY bin",
    "SELECT CASE WHEN items > 3 THEN note END AS k, COUNT(*) FROM orders GROUP BY k ORDER BY k",
]


@pytest.mark.parametrize("sql", RECALLED)
def test_recalled_rows_are_the_same_to_the_type(sql: str, shop: dpsql.Connection) -> None:
    first, again = shop.execute(sql, epsilon=5), shop.execute(sql, epsilon=5)
    assert again.receipt.recalled
    assert again.description == first.description
    rows, recalled = first.fetchall(), again.fetchall()
    assert rows
    assert recalled == rows
    assert [list(map(type, row)) for row in recalled] == [list(map(type, row)) for row in rows]
    assert again.intervals().equals(first.intervals())


def test_the_ledger_remembers(tmp_path: Path, shop_database: Any, shop_schema: Any) -> None:
    """Another connection, another process: what was spent is spent, what was answered is free."""
    ledger = tmp_path / "shop.ledger"
    with dpsql.connect(shop_database, schema=shop_schema, budget=1, delta=1e-6, ledger=ledger) as connection:
        rows, before = connection.execute(BY_REGION, epsilon=0.4).fetchall(), connection.budget.spent
    with dpsql.connect(shop_database, schema=shop_schema, ledger=ledger) as connection:
        assert connection.budget.spent == before
        assert (connection.budget.epsilon, connection.budget.delta) == (1, 1e-6)
        again = connection.execute(BY_REGION, epsilon=0.4)
        assert again.receipt.recalled
        assert again.fetchall() == rows
        assert connection.budget.spent == before
        with pytest.raises(dpsql.BudgetExhausted):
            connection.execute(BY_REGION, epsilon=0.9)


def test_a_file_database_has_its_ledger_beside_it(tmp_path: Path, shop_schema: Any) -> None:
    import duckdb

    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as raw:
        raw.execute("CREATE TABLE orders (customer_id BIGINT)")
    schema = {"tables": {"orders": {"unit": "customer_id", "columns": {"customer_id": "integer"}}}}
    with dpsql.connect(path, schema=schema, budget=1) as connection:
        connection.execute("SELECT COUNT(*) FROM orders", epsilon=0.5)
    assert (tmp_path / "shop.duckdb.ledger").exists()
    with dpsql.connect(path, schema=schema, budget=1) as connection:
        assert spent(connection) == 0.5


def test_two_connections_share_the_account(tmp_path: Path, shop_database: Any, shop_schema: Any) -> None:
    ledger = tmp_path / "shop.ledger"
    with (
        dpsql.connect(shop_database, schema=shop_schema, budget=1, ledger=ledger) as one,
        dpsql.connect(shop_database, schema=shop_schema, budget=1, ledger=ledger) as two,
    ):
        one.execute("SELECT COUNT(*) FROM orders", epsilon=0.6)
        assert spent(two) == 0.6
        with pytest.raises(dpsql.BudgetExhausted):
            two.execute("SELECT SUM(items) FROM orders", epsilon=0.6)


def test_history_and_receipt(shop: dpsql.Connection) -> None:
    cursor = shop.execute(BY_REGION, epsilon=0.1, diagnose=False)
    history = shop.history()
    charged = history[history.state == "charged"]
    assert list(charged.sql) == [BY_REGION]
    assert list(charged.number) == [cursor.receipt.number]
    assert list(charged.epsilon) == [pytest.approx(0.1)]
    assert shop.budget.queries_like(cursor.receipt) > 0


def test_public_answers_without_measures_are_free(shop: dpsql.Connection) -> None:
    """The list of declared values is no secret."""
    cursor = shop.execute("SELECT DISTINCT region FROM orders ORDER BY region")
    assert cursor.fetchall() == [("east",), ("north",), ("south",), ("west",)]
    assert spent(shop) == 0


def test_many_small_gaussians_cost_less_than_their_sum(shop: dpsql.Connection) -> None:
    for number in range(20):
        shop.execute(f"SELECT COUNT(*) FROM orders WHERE items > {number}", epsilon=0.1, mechanism="gaussian")
    assert spent(shop) < 1.0

"""The histogram of rows per person: drawn once for a table, for a part of the first question's cost, then free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.cli.query import answered
from dpsql.errors import BudgetExhausted
from dpsql.plot.chart import chart_of
from dpsql.result import NOISE_ONLY

PEOPLE, EACH = 3000, 120
COUNT, KINDS = "SELECT COUNT(*) AS n FROM t", "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind ORDER BY kind"
COLUMNS = {
    "uid": "integer",
    "kind": {"type": "text", "values": ["a", "b"]},
    "x": {"type": "integer", "bounds": [0, 9]},
}
SCHEMA: dict[str, Any] = {
    "contribution": {"max_groups": 1, "max_rows_per_group": 1},
    "tables": {
        "t": {"unit": "uid", "columns": COLUMNS},
        "once": {"unit": "uid", "unique": True, "columns": COLUMNS},
        "few": {"unit": "uid", "columns": COLUMNS},
    },
}


@pytest.fixture(scope="module")
def rows() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as raw:
        kind = "CASE WHEN n % 7 = 0 THEN 'b' ELSE 'a' END AS kind"
        made = f"SELECT n % {{people}} AS uid, {kind}, n % 10 AS x FROM range({{n}}) AS r(n)"
        raw.execute(f"CREATE TABLE t AS {made.format(people=PEOPLE, n=PEOPLE * EACH)}")
        raw.execute(f"CREATE TABLE few AS {made.format(people=20, n=60)}")
        raw.execute("CREATE TABLE once (uid BIGINT PRIMARY KEY, kind TEXT, x BIGINT)")
        raw.execute("INSERT INTO once SELECT n, 'a', n % 10 FROM range(50) AS r(n)")
        yield raw


@pytest.fixture(params=[(0, "basic"), (0, "mixed"), (1e-6, "mixed"), (1e-6, "gdp")], ids=str)
def session(rows: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    delta, composition = request.param
    with dpsql.connect(
        rows, schema=SCHEMA, budget=50, delta=delta, composition=composition, ledger=":memory:"
    ) as connection:
        yield connection


def charges(session: dpsql.Connection) -> int:
    return int((session.history()["state"] == "charged").sum())


def test_it_is_a_part_of_the_first_cost_and_free_from_then_on(session: dpsql.Connection) -> None:
    explained = session.explain(COUNT, epsilon=3)
    first = session.execute(COUNT, epsilon=3)
    rows = first.fetchall()
    assert explained.cost.epsilon == first.receipt.epsilon == 3
    assert explained.cost == first.receipt.cost
    assert any("measures, once for all questions, how many rows" in note for note in explained.notes)
    assert not first.result.columns[0].noise_only
    spent = session.budget.spent
    # Word for word, with less epsilon, and with the ledger's record of both: free.
    for epsilon in (3, 1):
        again = session.execute(COUNT, epsilon=epsilon)
        assert (again.receipt.epsilon, again.fetchall(), session.budget.spent) == (0, rows, spent)
        assert session.explain(COUNT, epsilon=epsilon).cost.epsilon == 0
        assert again.result.columns[0].not_counted == first.result.columns[0].not_counted
    other = session.explain(KINDS, epsilon=0.5)
    assert any(note.endswith("is on record: free") for note in other.notes)
    asked = session.execute(KINDS, epsilon=0.5)
    assert asked.receipt.epsilon == other.cost.epsilon == 0.5
    assert not asked.result.columns[1].noise_only


def test_the_interval_holds_what_is_missing(session: dpsql.Connection) -> None:
    result = session.execute(COUNT, epsilon=3).result
    frame = result.intervals()
    assert result.rows[0][0] < 1.1 * PEOPLE
    assert frame["n_low"][0] <= PEOPLE * EACH <= frame["n_high"][0] < 4 * PEOPLE * EACH
    kinds = session.execute(KINDS, epsilon=3).result
    assert (kinds.intervals()["n_high"] > 0.8 * PEOPLE * EACH).all()


def test_every_front_end_says_it(session: dpsql.Connection) -> None:
    cursor = session.execute(KINDS, epsilon=3)
    result = cursor.result
    (_, column) = result.columns
    said = column.caveat
    assert said.startswith("+ up to ")
    assert said.endswith(",000 not counted")
    for shown in (
        str(result),
        result._repr_html_(),
        "".join(str(part.header) for part in answered(result, session.budget).text.columns),
    ):
        assert said in shown
        assert NOISE_ONLY not in shown
    assert result.df().attrs["left_out"] == {"n": column.not_counted}
    document = answered(result, session.budget).document
    assert document["columns"][1]["left_out"] == column.not_counted
    assert document["intervals"][0][1][1] > 0.8 * PEOPLE * EACH
    chart = chart_of(result)
    assert f"n: {said}" in chart.notes
    assert all(point.high - point.value > 10 * (point.value - point.low) for point in chart.panels[0].points)
    assert any("each person's first 1,024 rows of t" in note for note in cursor.notes)


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        (COUNT, {"diagnose": False}),
        (COUNT, {"diagnose": True}),
        (COUNT, {"accuracy": 20}),
        (COUNT, {"max_rows_per_group": "auto"}),
        ("SELECT COUNT(*) AS n FROM once", {}),
        ("SELECT COUNT(DISTINCT uid) AS n FROM t", {}),
        ("SELECT MEDIAN(x) AS n FROM t", {}),
        ("SELECT SUM(x) / COUNT(*) AS n FROM t", {}),
        ("SELECT VAR_POP(x) AS n FROM t", {}),
        ("SELECT COUNT(*) AS n FROM t JOIN few ON t.uid = few.uid", {}),
        ("SELECT kind, COUNT(*) AS n FROM t GROUP BY ROLLUP (kind)", {}),
        ("SELECT SUM(x, contribution_bounds_per_row => (0, 5)) AS n FROM t", {}),
    ],
)
def test_who_cannot_use_it_does_not_pay(rows: duckdb.DuckDBPyConnection, sql: str, options: dict[str, Any]) -> None:
    with dpsql.connect(rows, schema=SCHEMA, budget=50, ledger=":memory:") as session:
        priced = {"epsilon": 3, **options} if "accuracy" not in options else options
        result = session.execute(sql, **priced).result
        assert charges(session) == 1
        assert result.columns[-1].left_out is None
        assert result.columns[-1].noise_only is not ("once" in sql or "DISTINCT uid" in sql)


def test_too_few_people_leave_it_at_the_noise(rows: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(rows, schema=SCHEMA, budget=50, ledger=":memory:") as session:
        cursor = session.execute("SELECT COUNT(*) AS n FROM few", epsilon=1)
        assert cursor.result.columns[0].noise_only
        assert any("too few people" in note for note in cursor.notes)
        assert charges(session) == 2


def test_the_budget_decides(rows: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(rows, schema=SCHEMA, budget=1, ledger=":memory:") as session:
        with pytest.raises(BudgetExhausted):
            session.execute(COUNT, epsilon=1.01)
        assert charges(session) == 0
        session.execute(COUNT, epsilon=1)
        assert session.budget.remaining.epsilon == 0


def test_fresh_draws_both_again(rows: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(rows, schema=SCHEMA, budget=50, ledger=":memory:") as session:
        session.execute(COUNT, epsilon=3)
        assert session.execute(COUNT, epsilon=3, fresh=True).receipt.epsilon == 3
        assert charges(session) == 4


def test_an_analyst_pays_within_the_limit_and_shares_it(rows: duckdb.DuckDBPyConnection, tmp_path: Any) -> None:
    ledger = str(tmp_path / "shared.ledger")
    with dpsql.connect(rows, schema=SCHEMA, budget=9, ledger=ledger, analyst="ann", analyst_budget=3) as session:
        session.execute(COUNT, epsilon=3)
        assert session.budget.remaining.epsilon == 0
    with dpsql.connect(rows, schema=SCHEMA, ledger=ledger, analyst="ben", analyst_budget=3) as session:
        result = session.execute(KINDS, epsilon=1)
        assert result.receipt.epsilon == 1
        assert not result.result.columns[1].noise_only


def test_a_plan_uses_none(rows: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(rows, schema=SCHEMA, budget=9, ledger=":memory:") as session:
        answers = session.plan([COUNT, KINDS], epsilon=2).execute()
        assert all(answer.result.columns[-1].noise_only for answer in answers)
        assert charges(session) == 2


def test_an_owner_who_hides_small_groups_has_none(rows: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(rows, schema={**SCHEMA, "minimum_people": 20}, budget=9, ledger=":memory:") as session:
        assert session.execute(COUNT, epsilon=3).result.columns[0].noise_only
        assert charges(session) == 1


def test_a_question_with_far_more_epsilon_measures_again(rows: duckdb.DuckDBPyConnection) -> None:
    """Once a first question at next to no epsilon left all later ones without."""
    with dpsql.connect(rows, schema=SCHEMA, budget=50, ledger=":memory:") as session:
        assert session.execute(COUNT, epsilon=0.01).result.columns[0].noise_only
        assert not session.execute(COUNT, epsilon=3).result.columns[0].noise_only
        session.execute(KINDS, epsilon=5)
        assert charges(session) == 5

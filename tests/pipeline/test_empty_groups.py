"""Public groups that nobody may be in: hidden for free where the released numbers look empty, and named in a note."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import ProgrammingError

SCHEMA: dict[str, Any] = {
    "dataset": "people",
    "tables": {
        "visits": {
            "unit": "uid",
            "unique": True,
            "columns": {
                "uid": "integer",
                "place": {"type": "integer", "bounds": [0, 199]},
                "name": "text",
                "x": {"type": "integer", "bounds": [-50, 50]},
            },
        }
    },
}
BY_PLACE = "SELECT place, COUNT(*) AS n, SUM(x) AS s FROM visits GROUP BY place"


@pytest.fixture
def session() -> dpsql.Connection:
    """Five of two hundred places have somebody in them."""
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE visits AS SELECT i AS uid, i % 5 AS place, 'a' AS name, i % 50 AS x FROM range(5000) r(i)"
    )
    return dpsql.connect(raw, schema=SCHEMA, budget=100, delta=1e-6, query_epsilon=1)


def test_groups_that_look_empty_are_hidden_free(session: dpsql.Connection) -> None:
    shown = session.execute(BY_PLACE)
    hidden = session.execute(BY_PLACE, empty_groups="hide")
    rows = hidden.fetchall()
    assert hidden.receipt.cost.epsilon == 0
    assert {row[0] for row in rows} >= {0, 1, 2, 3, 4}
    assert set(rows) <= set(shown.fetchall())
    # Of 195 empty groups a twentieth looks like more: 25 is five standard deviations away.
    assert 5 <= len(rows) < 5 + 25
    assert f"{200 - len(rows)} of 200 groups are hidden: their numbers cannot be told from 0" in hidden.notes
    # Noisy values chose the rows, so the intervals hold for all groups at once.
    assert any("because noisy values chose the rows" in note for note in hidden.notes)


ABOVE = [
    # what is computed above public groups, whether it says that empty groups take part
    ("SELECT AVG(n), COUNT(*) FROM (SELECT place, COUNT(*) AS n FROM visits GROUP BY place)", True),
    ("SELECT place, RANK() OVER (ORDER BY COUNT(*)) AS r FROM visits GROUP BY place", True),
    ("SELECT place, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY place) AS running FROM visits GROUP BY place", True),
    (BY_PLACE, False),
    ("SELECT COUNT(*) FROM visits", False),
    ("SELECT AVG(n) FROM (SELECT name, COUNT(*) AS n FROM visits GROUP BY name)", False),
]


@pytest.mark.parametrize(("sql", "says_so"), ABOVE)
def test_what_is_computed_above_groups_says_so(sql: str, says_so: bool, session: dpsql.Connection) -> None:
    assert any("over all groups include groups" in note for note in session.execute(sql).notes) == says_so
    assert not any("over all groups include" in note for note in session.execute(sql, empty_groups="hide").notes)


def test_an_average_over_groups_is_that_of_the_groups_shown(session: dpsql.Connection) -> None:
    sql = "SELECT AVG(n), COUNT(*) FROM (SELECT place, COUNT(*) AS n FROM visits GROUP BY place)"
    ((mean, groups),) = session.execute(sql, empty_groups="hide").fetchall()
    assert groups < 5 + 25
    assert mean > 1000 * 5 / 30 - 10


KEPT = [
    "SELECT COUNT(*) AS n FROM visits WHERE x > 50",
    "SELECT name, COUNT(*) AS n FROM visits GROUP BY name",
    "SELECT place, MEDIAN(x) AS m FROM visits GROUP BY place",
]


@pytest.mark.parametrize("sql", KEPT)
def test_other_rows_are_kept(sql: str, session: dpsql.Connection) -> None:
    shown, hidden = session.execute(sql), session.execute(sql, empty_groups="hide")
    assert (hidden.notes, hidden.fetchall()) == (shown.notes, shown.fetchall())


def test_totals_by_rollup_are_judged_by_their_own_noise(session: dpsql.Connection) -> None:
    sql = "SELECT place % 2 AS half, place, COUNT(*) AS n FROM visits GROUP BY ROLLUP (half, place)"
    rows = session.execute(sql, empty_groups="hide").fetchall()
    assert {(None, None), (0, None), (1, None)} <= {row[:2] for row in rows}
    assert len(rows) < 8 + 30


def test_another_value_is_refused(session: dpsql.Connection) -> None:
    with pytest.raises(ProgrammingError, match='empty_groups= is "show" or "hide"'):
        session.execute(BY_PLACE, empty_groups="drop")  # type: ignore[arg-type]


def test_the_owner_may_hide_them_unless_a_query_says_otherwise() -> None:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE visits AS SELECT i AS uid, i % 5 AS place, 'a' AS name, i % 50 AS x FROM range(500) r(i)")
    with dpsql.connect(raw, schema=SCHEMA | {"empty_groups": "hide"}, budget=1000, query_epsilon=100) as session:
        assert 5 <= len(session.execute(BY_PLACE).fetchall()) < 5 + 25
        assert len(session.execute(BY_PLACE, empty_groups="show").fetchall()) == 200

"""What notebooks show: answers, explanations and budgets as HTML that is whole, escaped and needs nothing else."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import duckdb
import pandas as pd
import pytest

import dpsql
from dpsql.display.html import DARK, LIGHT, STYLE, Cell, Scale, table
from dpsql.display.numbers import with_error

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
VOID = {"img", "br", "hr", "meta", "link", "input"}


class Page(HTMLParser):
    """Reads HTML strictly: every tag closed in order; keeps tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in VOID
        self._open.append(tag)
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def assert_harmless(self) -> None:
        assert set(self.tags).isdisjoint({"script", "img", "iframe", "link", "object", "a"})
        assert {name for name, _ in self.attributes} <= {"class", "style", "title", "colspan"}


def shown(thing: Any) -> Page:
    page = Page(thing._repr_html_())
    page.assert_harmless()
    return page


# -- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_has_values_errors_bars_and_a_receipt(shop: dpsql.Connection) -> None:
    cur = shop.execute("SELECT region, COUNT(*) AS n FROM orders GROUP BY region", epsilon=2, diagnose=False)
    page = shown(cur)
    (width,) = {with_error(n, cur.result.columns[1].interval((), n, 0.95))[1] for _, n in cur.result.rows}
    assert page.text.count(width) == 4
    assert [value for name, value in page.attributes if name == "class"].count("dp-bar") == 4
    left = f"ε {shop.budget.remaining.epsilon:.4g} left"
    assert f"cost ε 2 · {cur.receipt.mechanism} noise, ± at 95 % · {left}" in page.text
    assert shown(cur.result).text == page.text


def test_the_same_question_again_is_free(shop: dpsql.Connection) -> None:
    for _ in range(2):
        cur = shop.execute("SELECT COUNT(*) FROM orders", epsilon=1, mechanism="laplace")
    page = shown(cur)
    assert "free: asked on" in page.text
    assert "ε 9 left" in page.text
    assert "cost" not in page.text


def test_a_receipt_says_what_was_left_then(shop: dpsql.Connection) -> None:
    first = shop.execute("SELECT COUNT(*) FROM orders", epsilon=1, mechanism="laplace")
    shop.execute("SELECT COUNT(*) FROM customers", epsilon=1, mechanism="laplace")
    assert first.receipt.remaining.epsilon == pytest.approx(9)


def test_null_is_shown_as_such_and_differs_from_the_word() -> None:
    page = Page(table(["key", "n"], [[Cell(None), Cell(None)], [Cell("NULL"), Cell(5, (3.0, 7.0))]], 2, []))
    assert page.words.count("NULL") == 3
    assert [value for name, value in page.attributes if name == "class"].count("dp-null") == 2


def test_many_rows_are_cut_with_a_note(shop: dpsql.Connection) -> None:
    cur = shop.execute("SELECT age, COUNT(*) AS n FROM customers GROUP BY age", epsilon=1)
    page = shown(cur)
    assert "showing 50 of 121 rows" in page.text
    assert page.tags.count("tr") == 51
    assert len(cur.fetchall()) == 121


def test_an_answer_without_rows(shop: dpsql.Connection) -> None:
    cur = shop.execute("SELECT region, COUNT(*) AS n FROM orders GROUP BY region HAVING COUNT(*) > 1e9", epsilon=1)
    assert "region n" in shown(cur).text


def test_a_cursor_that_asked_nothing_shows_nothing(shop: dpsql.Connection) -> None:
    assert shop.cursor()._repr_html_() is None


def test_hostile_names_and_values_stay_text() -> None:
    people = pd.DataFrame({"id": range(100), "town": [HOSTILE] * 100})
    schema = {"tables": {"people": {"unit": "id", "columns": {"id": "integer", "town": "text"}}}}
    quoted = HOSTILE.replace('"', '""')
    sql = f'SELECT town AS "{quoted}", COUNT(*) AS "n{quoted}" FROM people GROUP BY town'
    with dpsql.connect(people, schema=schema, budget=20, delta=1e-6) as conn:
        pages = [shown(conn.explain(sql)), shown(conn.execute(sql, epsilon=9)), shown(conn.budget)]
    assert all(HOSTILE in page.text for page in pages[:2])
    assert "<script>" in pages[2].text, "the ledger's list shows the question as it was written"


def test_bars_share_a_scale_that_holds_zero() -> None:
    scale = Scale.of([Cell(-5, (-10.0, 0.0)), Cell(30, (20.0, 40.0)), Cell(1, (-math.inf, math.inf)), Cell(None)])
    assert (scale.low, scale.high) == (-10.0, 40.0)
    assert (scale.at(-10), scale.at(0), scale.at(15), scale.at(math.inf)) == (0.0, 20.0, 50.0, 100.0)
    assert Scale.of([Cell(0, (0.0, 0.0))]).at(0.0) == 0.0
    widest = Scale.of([Cell(1e308, (-1.7e308, 1.7e308))])
    assert widest.at(0.0) == 50.0


@pytest.mark.parametrize(
    ("value", "ends", "expected"),
    [
        (8238, (8202.0, 8274.0), ("8,238", "± 36")),
        (-3, (-36.0, 30.0), ("-3", "± 33")),
        (40.5929, (40.31, 40.87), ("40.59", "± 0.28")),
        (Decimal("12.50"), (12.0, 13.0), ("12.50", "± 0.50")),
        (0.000123, (0.000023, 0.000223), ("0.00012", "± 0.00010")),
        (7, (7.0, 7.0), ("7", "± 0")),
        (119.0, (0.0, 120.0), ("119", "[0, 120]")),
        # An error that rounds up to one digit more has no digit more.
        (47.71, (46.712, 48.708), ("47.7", "± 1.0")),
        (60.91, (50.95, 70.87), ("61", "± 10")),
        (2.5, (-math.inf, math.inf), ("2.5", "± ∞")),
        (1.09694, (-math.inf, math.inf), ("1.1", "± ∞")),
        (9.32105, (math.nan, math.nan), ("9.32105", "± ?")),
        (20101, (math.nan, math.nan), ("20,101", "± ?")),
        (Decimal("19.6"), (math.nan, math.nan), ("19.6", "± ?")),
        (math.nan, (math.nan, math.nan), ("nan", "")),
        (None, None, ("NULL", "")),
        (True, None, ("True", "")),
    ],
)
def test_numbers_have_the_digits_that_their_error_leaves(
    value: object, ends: tuple[float, float] | None, expected: tuple[str, str]
) -> None:
    assert with_error(value, ends) == expected


# -- explanations and budgets -----------------------------------------------------------------------------------------


def test_an_explanation_is_a_card(shop: dpsql.Connection) -> None:
    explained = shop.explain("SELECT note, COUNT(*) AS n, AVG(items) AS a FROM orders GROUP BY note", epsilon=1)
    page = shown(explained)
    assert "ε 1 cost, with δ" in page.text
    assert f"± {explained.columns[1].half_width:,.4g}" in page.text
    assert "error depends on the answer" in page.text
    assert "orders.customer_id" in page.text
    assert "3 groups per person, 2 rows per group" in page.text
    assert f"the noisy number of people is at least {explained.releases[0].threshold}" in page.text
    assert "details" in page.tags
    assert " ".join(explained.releases[0].sql.split()) in page.text


def test_explain_in_sql_shows_the_same_card(shop: dpsql.Connection) -> None:
    sql = "SELECT COUNT(*) FROM orders"
    assert shown(shop.execute(f"EXPLAIN {sql}", epsilon=1)).text == shown(shop.explain(sql, epsilon=1)).text


def heights(budget: Any) -> list[float]:
    """What each query added, in percent of all that was spent."""
    return [float(found) for found in re.findall(r'<b style="height:([\d.]+)%', budget._repr_html_())]


def test_a_budget_is_drawn_query_by_query(shop: dpsql.Connection) -> None:
    assert "ε 0 of 10 spent" in shown(shop.budget).text
    for number, epsilon in enumerate((1, 2, 1)):
        sql = f"SELECT COUNT(*) FROM orders WHERE items > {number}"
        shop.execute(sql, epsilon=epsilon, mechanism="laplace", diagnose=False)
    page = shown(shop.budget)
    assert "ε 4 of 10 spent ε 6 left for the next query 3 queries charged" in page.text
    assert heights(shop.budget) == [25.0, 50.0, 25.0]
    assert re.findall(r'<b style="width:([\d.]+)%', shop.budget._repr_html_()) == ["10.00", "20.00", "10.00"]
    assert "SELECT COUNT(*) FROM orders WHERE items > 2" in page.text


def test_a_budget_draws_what_it_counts_and_no_more(shop: dpsql.Connection) -> None:
    shop.execute("SELECT COUNT(*) FROM orders", epsilon=1, mechanism="laplace", diagnose=False)
    before = shop.budget
    shop.execute("SELECT COUNT(*) FROM customers", epsilon=1, mechanism="laplace")
    assert len(heights(before)) == 1
    assert len(heights(shop.budget)) == 2


def test_a_pickled_budget_leaves_the_ledger_behind(shop: dpsql.Connection) -> None:
    shop.execute("SELECT COUNT(*) FROM orders", epsilon=1, mechanism="laplace")
    copied = pickle.loads(pickle.dumps(shop.budget))
    assert copied == shop.budget
    assert "ε 1 of 10 spent" in shown(copied).text


def test_of_many_queries_the_earlier_ones_are_one_step(
    small_shop: Callable[[], duckdb.DuckDBPyConnection], small_shop_schema: dict[str, Any]
) -> None:
    with dpsql.connect(small_shop(), schema=small_shop_schema, budget=10) as conn:
        for number in range(50):
            conn.execute(f"SELECT COUNT(*) + {number} FROM orders", epsilon=0.1, fresh=True, diagnose=False)
        page = shown(conn.budget)
        drawn = heights(conn.budget)
    assert len(drawn) == 40
    assert drawn[0] == pytest.approx(100 * 11 / 50)
    assert sum(drawn) == pytest.approx(100, abs=0.5)
    assert "11 queries: ε 1.1" in {value for name, value in page.attributes if name == "title"}


# -- light and dark ---------------------------------------------------------------------------------------------------


def test_the_style_touches_nothing_else() -> None:
    rules = re.sub(r"@media[^{]*\{(.*?\})\}", r"\1", STYLE, flags=re.DOTALL)
    selectors = [one for rule in re.findall(r"([^{}]+)\{", rules) for one in rule.split(",")]
    assert len(selectors) > 40
    assert [one for one in selectors if ".dpsql" not in one] == []
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@pytest.mark.parametrize(
    ("notebook", "scheme"),
    [
        ("body[data-jp-theme-light=true]", LIGHT),
        ("body[data-jp-theme-light=false]", DARK),
        ("body.vscode-light", LIGHT),
        ("body.vscode-dark", DARK),
        ("[data-theme=dark]", DARK),
    ],
)
def test_a_notebooks_own_theme_comes_after_the_systems(notebook: str, scheme: str) -> None:
    own = STYLE.index(f"{notebook} .dpsql")
    assert STYLE.index("prefers-color-scheme:dark") < own
    assert STYLE[own:].partition("{")[2].startswith(scheme)

"""cur.plot(): which chart is chosen for which answer, and that both libraries draw it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import date
from fractions import Fraction
from typing import Any

import altair as alt
import pandas as pd
import pytest
from matplotlib.figure import Figure

import dpsql
from dpsql.aggregates.estimate import Linear, Ratio
from dpsql.engines.results import Cells
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.plot import plot
from dpsql.plot.chart import MOST_GROUPS, chart_of
from dpsql.result import Result, ResultColumn

SCHEMA = {
    "contribution": {"max_groups": 50, "max_rows_per_group": 1},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "person": "integer",
                "town": {"type": "text", "values": ["here", "there"], "nullable": True},
                "kind": {"type": "text", "values": ["long", "short"]},
                "day": {"type": "timestamp", "bounds": ["2024-01-01", "2024-03-01"]},
                "age": {"type": "integer", "bounds": [0, 99]},
            },
        }
    },
}


@pytest.fixture(scope="module")
def visits() -> Iterator[dpsql.Connection]:
    frame = pd.DataFrame(
        {
            "person": range(2000),
            "town": ["here", "there", "there", None] * 500,
            "kind": ["long", "short"] * 1000,
            "day": pd.to_datetime(["2024-01-15", "2024-02-15"] * 1000),
            "age": [number % 100 for number in range(2000)],
        }
    )
    with dpsql.connect(frame, schema=SCHEMA, budget=1000, delta=1e-6, query_epsilon=5) as conn:
        yield conn


def made(rows: list[tuple[Any, ...]], *columns: tuple[str, str], estimates: int = 1) -> Result:
    """An answer as it would be with these keys in front, and linear aggregates without noise behind."""
    keys = [
        ResultColumn(name=name, type=kind, estimate=None, noises={}, hidden={}, is_key=True) for name, kind in columns
    ]
    noisy = [
        ResultColumn(name=f"n{at}", type="BIGINT", estimate=Linear(()), noises={}, hidden={}, is_key=False)
        for at in range(estimates)
    ]
    return Result((*keys, *noisy), Cells(rows), receipt=None)  # type: ignore[arg-type]


BY_TOWN = "SELECT town, COUNT(*) AS n, AVG(age) AS a FROM visits GROUP BY town ORDER BY n DESC"
CASES = {
    "one number": ("SELECT COUNT(*) AS n FROM visits", "bars", ("",), 1),
    "one key": (BY_TOWN, "bars", ("town",), 2),
    "dates": ("SELECT DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM visits GROUP BY m", "line", ("m",), 1),
    "two keys": ("SELECT town, kind, COUNT(*) AS n FROM visits GROUP BY ALL", "heat map", ("town", "kind"), 1),
    "three keys": ("SELECT town, kind, age > 9 AS old, COUNT(*) FROM visits GROUP BY ALL", "bars", None, 1),
    "a value without a known error": (
        "SELECT town, STDDEV(age) AS s, COUNT(*) AS n, COUNT(*) > 5 AS many FROM visits GROUP BY town",
        "bars",
        ("town",),
        2,
    ),
    "several releases": (
        "SELECT 'all' AS what, COUNT(*) AS n FROM visits UNION ALL SELECT 'old', COUNT(*) FROM visits WHERE age > 50",
        "bars",
        ("what",),
        1,
    ),
    "a histogram": ("SELECT age // 10 AS decade, COUNT(*) AS n FROM visits GROUP BY decade", "bars", ("decade",), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_chart_follows_from_the_keys(visits: dpsql.Connection, name: str) -> None:
    sql, kind, axes, panels = CASES[name]
    cur = visits.execute(sql)
    chart = chart_of(cur.result)
    assert (chart.kind, chart.axes) == (kind, axes or ("town · kind · old",))
    assert len(chart.panels) == panels
    assert chart.upright == (name == "a histogram")
    told = visits.execute(sql, empty_groups="hide").result.rows
    assert {len(panel.points) for panel in chart.panels} == {len(told)}


@pytest.mark.parametrize("name", ["one number", "dates", "two keys", "a histogram"])
def test_both_libraries_draw_it(visits: dpsql.Connection, name: str) -> None:
    cur = visits.execute(CASES[name][0])
    by_altair, by_matplotlib = cur.plot("altair"), cur.plot("matplotlib")
    alt.TopLevelMixin.to_dict(by_altair)  # validates against the schema of Vega-Lite
    assert isinstance(by_matplotlib, Figure)
    png = by_matplotlib._repr_png_()  # type: ignore[attr-defined]
    assert png.startswith(b"\x89PNG")


def test_altair_needs_no_network(visits: dpsql.Connection) -> None:
    """The default renderer would let the browser fetch its scripts; one that was chosen is kept."""
    cur = visits.execute(BY_TOWN)
    shown = cur.plot("altair")._repr_mimebundle_()
    assert list(shown) == ["image/svg+xml"]
    assert "http" not in shown["image/svg+xml"].replace("http://www.w3.org/", "")
    with alt.renderers.enable("mimetype"):
        assert "image/svg+xml" not in cur.plot("altair")._repr_mimebundle_()


def test_a_heat_map_has_room_for_its_numbers(visits: dpsql.Connection) -> None:
    """Two lines of 7 points in each cell are a fifth of an inch."""
    sql = "SELECT age // 5 AS years, kind, COUNT(*) AS n FROM visits GROUP BY ALL"
    figure = visits.execute(sql).plot("matplotlib")
    rows = len(figure.axes[0].get_yticks())
    assert rows > 12
    assert figure.get_size_inches()[1] / rows > 2 * 7 / 72


def values(chart: Any) -> list[dict[str, Any]]:
    """The rows that an altair chart carries."""
    return [row for dataset in json.loads(chart.to_json())["datasets"].values() for row in dataset]


def test_values_and_error_bars_are_those_of_the_answer(visits: dpsql.Connection) -> None:
    cur = visits.execute("SELECT town, COUNT(*) AS n FROM visits GROUP BY town ORDER BY n DESC")
    frame = cur.intervals()
    drawn = values(cur.plot("altair"))
    assert [row["value"] for row in drawn] == frame["n"].tolist()
    assert [row["low"] for row in drawn] == frame["n_low"].tolist()
    assert [row["high"] for row in drawn] == frame["n_high"].tolist()
    axes = cur.plot("matplotlib").axes[0]
    assert [bar.get_width() for bar in axes.patches] == frame["n"].tolist()
    segments = axes.collections[0].get_segments()
    assert [segment[0, 0] for segment in segments] == pytest.approx(frame["n_low"].tolist())
    assert [segment[1, 0] for segment in segments] == pytest.approx(frame["n_high"].tolist())


def test_null_is_a_key_like_others(visits: dpsql.Connection) -> None:
    places = chart_of(visits.execute(BY_TOWN).result).places
    assert sorted(places) == [("NULL",), ("here",), ("there",)]


def test_null_and_the_word_stay_apart() -> None:
    chart = chart_of(made([(None, 1), ("NULL", 2), ("a", 3), ("a", 4)], ("key", "VARCHAR")))
    assert chart.places == (("NULL",), ("NULL (2)",), ("a",), ("a (2)",))


def test_two_keys_that_repeat_are_no_map() -> None:
    assert chart_of(made([("a", "b", 1), ("a", "b", 2)], ("x", "VARCHAR"), ("y", "VARCHAR"))).kind == "bars"


def test_two_keys_that_look_alike_are_no_map() -> None:
    assert chart_of(made([(None, "b", 1), ("NULL", "b", 2)], ("x", "VARCHAR"), ("y", "VARCHAR"))).kind == "bars"


def test_dates_are_drawn_in_their_order_and_begin_at_midnight() -> None:
    answer = made([(date(2024, 2, 1), 1), (None, 9), (date(2024, 1, 1), 2)], ("day", "DATE"))
    chart = chart_of(answer)
    assert chart.places == ((date(2024, 1, 1),), (date(2024, 2, 1),))
    assert chart.notes == ("rows without a date are not shown",)
    assert values(plot(answer, "altair"))[0]["key"] == "2024-01-01T00:00:00"


def test_of_many_groups_the_largest_are_drawn_in_the_answers_order() -> None:
    chart = chart_of(made([(f"g{n}", (n * 37) % 300 + 1) for n in range(300)], ("key", "VARCHAR")))
    drawn = [point.value for point in chart.panels[0].points if point is not None]
    assert sorted(drawn) == list(range(301 - MOST_GROUPS, 301))
    assert drawn == [size for size in ((n * 37) % 300 + 1 for n in range(300)) if size > 300 - MOST_GROUPS]
    assert chart.notes == (f"the {MOST_GROUPS} largest of 300 groups",)


def test_a_histogram_keeps_all_of_its_bins() -> None:
    answer = made([(age, age % 7 + 1) for age in range(120)], ("age", "BIGINT"))
    assert len(chart_of(answer).places) == 120
    assert len(plot(answer, "matplotlib").axes[0].get_xticks()) <= 24


def test_a_wide_map_keeps_the_largest_of_each_key() -> None:
    rows = [(x, f"y{y}", x + 1) for x in range(60) for y in range(2)]
    chart = chart_of(made(rows, ("x", "BIGINT"), ("y", "VARCHAR")))
    assert {int(place[0]) for place in chart.places} == set(range(20, 60))
    assert chart.notes == (f"the {MOST_GROUPS} largest of 60 groups",)


EMPTY = {
    # rows, type of the key, places that are drawn
    "bars": ([("a", 7), ("b", 0), ("c", 3)], "VARCHAR", [("a",), ("c",)]),
    "a line, in any order": (
        [(date(2024, 1, day), n) for day, n in ((5, 0), (2, 8), (3, 0), (4, 9), (1, 0))],
        "DATE",
        [(date(2024, 1, day),) for day in (2, 3, 4)],
    ),
    "a histogram": (list(enumerate((0, 0, 4, 0, 5, 0))), "BIGINT", [("2",), ("3",), ("4",)]),
    "nothing but empty groups": ([("a", 0), ("b", 0)], "VARCHAR", [("a",), ("b",)]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_groups_that_look_empty_are_not_drawn(name: str) -> None:
    """Of bars all, of an axis its ends; if there is nothing else, they are."""
    rows, kind, places = EMPTY[name]
    chart = chart_of(made(rows, ("key", kind)))
    assert list(chart.places) == places
    hidden = f"{len(rows) - len(places)} of {len(rows)} groups are hidden: their numbers cannot be told from 0"
    assert chart.notes == ((hidden,) if len(places) < len(rows) else ())


def test_groups_that_noise_chose_are_all_drawn(visits: dpsql.Connection) -> None:
    sql = "SELECT day, kind, COUNT(*) AS n FROM visits GROUP BY ALL HAVING COUNT(*) > -50"
    assert not any("hidden" in note for note in chart_of(visits.execute(sql).result).notes)


def test_error_bars_beside_hidden_groups_hold_for_all_groups() -> None:
    key = ResultColumn(name="key", type="VARCHAR", estimate=None, noises={}, hidden={}, is_key=True)
    noises = {"m": (LaplaceNoise(Fraction(10)), 1)}
    count = ResultColumn(name="n", type="BIGINT", estimate=Linear((("m", Fraction(1)),)), noises=noises, hidden={})
    widths = []
    for other in (400, 1):
        result = Result((key, count), Cells([("a", 500), ("b", other)]), receipt=None)  # type: ignore[arg-type]
        point = chart_of(result).panels[0].points[0]
        assert point is not None
        assert point.high is not None
        widths.append(point.high - 500)
    assert widths == [30, 37]


def test_what_cannot_be_drawn_is_left_out() -> None:
    """NULL has no bar; so has a value that is not a number."""
    chart = chart_of(made([("a", None), ("b", math.inf), ("c", -7)], ("key", "VARCHAR")))
    first, second, third = chart.panels[0].points
    assert (first, second) == (None, None)
    assert third is not None
    assert (third.value, third.low, third.high) == (-7.0, -7.0, -7.0)
    for library in ("altair", "matplotlib"):
        plot(made([("a", None), ("b", -7)], ("key", "VARCHAR")), library)


def test_an_error_without_limit_has_no_bar() -> None:
    """A quotient whose divisor, 3 with noise of scale 10, may well be zero."""
    measures = {name: (LaplaceNoise(Fraction(10)), 1) for name in ("above", "below")}
    above, below = (Linear(((name, Fraction(1)),)) for name in measures)
    share = ResultColumn(
        name="share", type="DOUBLE", estimate=Ratio(above, below), noises=measures, hidden={"above": 1, "below": 2}
    )
    chart = chart_of(Result((share,), Cells([(2.0, 6, 3)]), receipt=None))  # type: ignore[arg-type]
    (point,) = chart.panels[0].points
    assert point is not None
    assert (point.value, point.low, point.shown) == (2.0, None, "2 ± ∞")
    assert chart.notes == ("no error bar where the error is unknown or unbounded",)


@pytest.mark.parametrize("library", ["altair", "matplotlib"])
def test_hostile_names_are_drawn_as_text(library: str) -> None:
    hostile = "<script>$\\frac{1}{0}$ {datum} [x] 'a' \"b\""
    answer = made([(hostile, 1), (hostile + "2", 2)], (hostile, "VARCHAR"), estimates=1)
    drawn = plot(answer, library)
    if library == "altair":
        assert [row["key"] for row in values(drawn)] == [hostile, hostile + "2"]
    else:
        assert drawn._repr_png_().startswith(b"\x89PNG")


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_an_answer_of_keys_alone_is_refused() -> None:
    with pytest.raises(dpsql.ProgrammingError, match="has no numeric columns to plot"):
        plot(made([("a",)], ("key", "VARCHAR"), estimates=0))


@pytest.mark.parametrize("rows", [[], [(None, 1)]])
def test_an_answer_without_rows_is_refused(rows: list[tuple[Any, ...]]) -> None:
    """Or with none that has a date."""
    with pytest.raises(dpsql.ProgrammingError, match="no rows to plot"):
        plot(made(rows, ("day", "DATE")))


def test_nothing_was_asked(visits: dpsql.Connection) -> None:
    with pytest.raises(dpsql.InterfaceError, match="no query has been executed yet"):
        visits.cursor().plot()


def test_an_unknown_library() -> None:
    with pytest.raises(dpsql.ProgrammingError, match="plots are not drawn by 'excel'"):
        plot(made([("a", 1)], ("key", "VARCHAR")), "excel")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes it look as if only these libraries were installed."""

    def only(*names: str) -> None:
        monkeypatch.setattr("dpsql.plot.find_spec", lambda name: name if name in names else None)

    return only


def test_whichever_is_installed_draws(installed: Callable[..., None]) -> None:
    answer = made([("a", 1)], ("key", "VARCHAR"))
    assert isinstance(plot(answer), Figure)
    installed("altair")
    assert isinstance(plot(answer), alt.TopLevelMixin)
    installed()
    with pytest.raises(dpsql.NotSupportedError, match=r"plots need matplotlib or altair\nhint: pip install matplotlib"):
        plot(answer)
    with pytest.raises(dpsql.NotSupportedError, match="pip install altair"):
        plot(answer, "altair")

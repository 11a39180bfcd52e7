"""The error of what is computed from noisy answers: by replaying the post-processing over noise that is drawn again.

Shapes of SQL are crossed with aggregates and with keys that are public or not: with next to no noise an interval is
narrow and holds the answer of plain DuckDB, with noise it is there, and for what passes through it is the aggregate's.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpsql
from dpsql.result import Result

AGGREGATES = ("COUNT(*)", "SUM(x)", "AVG(x)", "STDDEV(x)", "COUNT_IF(x < 50)", "2 * COUNT(*) + 1", "SUM(y)")
KEYS = {"region": "'north'", "month": "1", "town": "'t1'"}
"""A key of declared values, one with bounds, one that is not public; and a value of each."""
SHAPES = (
    "SELECT {key}, {a} AS c FROM v GROUP BY {key}",
    "WITH t AS (SELECT {key} AS k, {a} AS n FROM v GROUP BY {key}) SELECT k, n AS c FROM t",
    "SELECT * FROM (SELECT {key} AS k, {a} AS c FROM v GROUP BY {key})",
    "WITH t AS (SELECT {key} AS k, {a} AS n FROM v GROUP BY {key}), s AS (SELECT k, n * 3 AS m FROM t)"
    " SELECT k, m / 3 AS c FROM s",
    "SELECT {key} AS k, {a} AS c FROM v GROUP BY {key} UNION ALL SELECT {value}, {a} FROM v",
    "SELECT {key}, ROUND({a}, 1) AS c FROM v GROUP BY {key}",
    "SELECT {key}, CAST({a} AS DECIMAL(18, 3)) AS c FROM v GROUP BY {key}",
    "SELECT {key}, COALESCE(ABS({a}), 0) AS c FROM v GROUP BY {key}",
    "SELECT {key}, SUM({a}) OVER () AS c FROM v GROUP BY {key}",
    "SELECT {key}, SUM({a}) OVER (ORDER BY {key}) AS c FROM v GROUP BY {key}",
    "SELECT {key}, {a} - LAG({a}) OVER (ORDER BY {key}) AS c FROM v GROUP BY {key}",
    "SELECT {key}, 100.0 * {a} / SUM({a}) OVER () AS c FROM v GROUP BY {key}",
    "SELECT {key}, ({a}) / (SELECT COUNT(*) FROM v) AS c FROM v GROUP BY {key}",
    "SELECT {key}, SQRT({a} * {a} + 1) * 2 AS c FROM v GROUP BY {key}",
    "SELECT a.k, a.n - b.n AS c FROM (SELECT {key} AS k, {a} AS n FROM v GROUP BY {key}) AS a"
    " JOIN (SELECT {key} AS k, {a} AS n FROM v WHERE x < 50 GROUP BY {key}) AS b USING (k)",
    "SELECT k, n / people AS c FROM (SELECT {key} AS k, {a} AS n FROM v GROUP BY {key}) CROSS JOIN pop",
    "SELECT COUNT(*) AS groups, AVG(n) AS c FROM (SELECT {key} AS k, {a} AS n FROM v GROUP BY {key})",
    "SELECT {key} AS k, {a} AS n, n + 1 AS c FROM v GROUP BY {key} ORDER BY n DESC LIMIT 2",
    "SELECT k, n * 2 AS c, middle FROM (SELECT {key} AS k, {a} AS n FROM v GROUP BY {key})"
    " JOIN (SELECT {key} AS k, MEDIAN(x) AS middle FROM v GROUP BY {key}) USING (k)",
    "SELECT (SELECT {a} FROM v WHERE {key} = {value}) AS c",
    "SELECT (SELECT {a} FROM v) / (SELECT COUNT(*) FROM v WHERE x < 50) AS c UNION ALL SELECT {a} FROM v",
)
BY_REGION = "(SELECT region, COUNT(*) AS n, AVG(x) AS a FROM v GROUP BY region)"


@cache
def opened() -> tuple[dpsql.Connection, duckdb.DuckDBPyConnection]:
    columns: dict[str, Any] = {
        "u": "integer",
        "region": {"type": "text", "values": ["north", "south", "east"]},
        "month": {"type": "integer", "bounds": [1, 4]},
        "town": "text",
        "x": {"type": "double", "bounds": [0, 100]},
        "y": {"type": "decimal(10, 2)", "bounds": [0, 100]},
    }
    schema: dict[str, Any] = {
        "dataset": "replayed",
        "contribution": {"max_groups": 1, "max_rows_per_group": 1},
        "tables": {
            "v": {"unit": "u", "columns": columns},
            "pop": {"public": True, "columns": {"people": "integer"}},
        },
    }
    raw = duckdb.connect()
    raw.execute("""
        CREATE TABLE v AS SELECT i AS u, (['north', 'south', 'east'])[i % 3 + 1] AS region, i % 4 + 1 AS month,
            't' || (i % 5) AS town, (i * 7 % 101)::DOUBLE AS x, (i * 7 % 101 / 4)::DECIMAL(10, 2) AS y
        FROM range(6000) AS t(i)""")
    raw.execute("CREATE TABLE pop AS SELECT 1000 AS people")
    return dpsql.connect(raw, schema=schema, budget=1e12, delta=1e-6), raw.cursor()


def asked(sql: str, epsilon: float = 1.0, **options: Any) -> Result:
    return opened()[0].execute(sql, epsilon=epsilon, fresh=True, diagnose=False, **options).result


def cells(result: Result, name: str = "c") -> list[tuple[float, float, float]]:
    """Each value with the ends of its interval."""
    frame = result.intervals()
    return [
        (float(value), math.nan if low is None else float(low), math.nan if high is None else float(high))
        for value, low, high in zip(frame[name], frame[f"{name}_low"], frame[f"{name}_high"], strict=True)
        if value is not None and not pd.isna(value)
    ]


CROSSED = [
    shape.format(a=aggregate, key=key, value=KEYS[key]) for shape, aggregate, key in product(SHAPES, AGGREGATES, KEYS)
]
SOME = CROSSED[::19]
"""Of each shape one or two, of all aggregates and keys."""
ALL = [pytest.param(sql, marks=() if sql in SOME else pytest.mark.long) for sql in CROSSED]


@pytest.mark.parametrize("sql", ALL)
def test_without_noise_it_is_the_answer_itself(sql: str) -> None:
    found = cells(asked(sql, 1e9))
    true = sorted(
        float(value) for (value,) in opened()[1].execute(f"SELECT c FROM ({sql})").fetchall() if value is not None
    )
    assert len(found) == len(true) > 0
    for (value, low, high), expected in zip(sorted(found), true, strict=True):
        assert low <= value <= high
        assert high - low <= 1e-3 * (1 + abs(value)) or "ROUND" in sql
        assert low - 1e-3 * (1 + abs(low)) <= expected <= high + 1e-3 * (1 + abs(high))


@pytest.mark.parametrize("sql", [*SOME[::3], *(pytest.param(sql, marks=pytest.mark.long) for sql in CROSSED)])
def test_with_noise_every_answer_says_how_far_off_it_may_be(sql: str) -> None:
    found = cells(asked(sql))
    assert found
    assert sum(low <= value <= high for value, low, high in found) >= 0.9 * len(found)
    assert all(high > low for _, low, high in found if not math.isnan(low))


@pytest.mark.parametrize("aggregate", ["COUNT(*)", "SUM(x)"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_what_passes_through_has_the_error_of_the_aggregate(aggregate: str, mechanism: str) -> None:
    direct = f"SELECT region, {aggregate} AS c FROM v GROUP BY region"
    ((width, *_), *_) = [[high - low for _, low, high in cells(asked(direct, mechanism=mechanism))]]
    for through in (
        f"SELECT * FROM ({direct})",
        f"SELECT region, LAG(c) OVER (ORDER BY region) AS c FROM ({direct})",
        f"{direct} UNION ALL {direct}",
    ):
        for _, low, high in cells(asked(through, mechanism=mechanism)):
            # Both ends of what is whole are rounded outwards where it is not known to be a single count.
            assert high - low == pytest.approx(width, rel=1e-6, abs=2 if "COUNT" in aggregate else None)


def test_an_average_has_about_the_same_error_both_ways() -> None:
    direct, through = (
        np.mean([high - low for _, low, high in cells(asked(sql))])
        for sql in (
            "SELECT region, AVG(x) AS c FROM v GROUP BY region",
            "SELECT region, a AS c FROM (SELECT region, AVG(x) AS a FROM v GROUP BY region)",
        )
    )
    assert through == pytest.approx(direct, rel=0.2)


def test_independent_errors_add_up_as_squares() -> None:
    (_, low, high), *_ = cells(asked("SELECT month, COUNT(*) AS c FROM v GROUP BY month", mechanism="gaussian"))
    width = high - low
    running = "SELECT month, SUM(COUNT(*)) OVER (ORDER BY month) AS c FROM v GROUP BY month ORDER BY month"
    found = [
        (high - low) / math.sqrt(terms)
        for _ in range(5)  # of one answer alone the mean is off by more than that once in a hundred runs
        for terms, (_, low, high) in enumerate(cells(asked(running, mechanism="gaussian")), 1)
    ]
    assert np.mean(found) == pytest.approx(width, rel=0.3)


def test_what_is_subtracted_from_itself_has_no_error() -> None:
    assert (
        cells(asked(f"SELECT a.n - b.n AS c FROM {BY_REGION} AS a JOIN {BY_REGION} AS b USING (region)"))
        == [(0.0, 0.0, 0.0)] * 3
    )


@pytest.mark.parametrize(
    "item",
    [
        "MAX(n)",  # the largest of several is likely to be too large
        "COUNT(DISTINCT n)",
        "RANK() OVER (ORDER BY n)",
        "(SELECT MAX(n) FROM {t}) - n",
        "QUANTILE_CONT(n, 0.5)",
    ],
)
def test_where_nothing_is_known_it_says_so(item: str) -> None:
    result = asked(f"SELECT {item.format(t=BY_REGION)} AS c FROM {BY_REGION}")
    assert str(result).splitlines()[1].strip().endswith("± ?")
    assert '"c": the error is unknown' in result.notes
    assert result.intervals()["c_low"].isna().all()


@pytest.mark.parametrize(
    "item",
    [
        "n > 1990",
        "n || ' riders'",
        "CASE WHEN n > 1990 THEN 'large' ELSE 'small' END",
        "DATE '2020-01-01' + CAST(n AS INTEGER)",
        "[n, 2]",
        "MAX(region) OVER (ORDER BY n)",
    ],
)
def test_what_is_no_number_is_named_and_has_no_mark(item: str) -> None:
    for sql in (f"SELECT region, {item} AS c FROM {BY_REGION}", f"SELECT {item} AS c, region FROM {BY_REGION}"):
        result = asked(sql)
        assert '"c": the error is unknown' in result.notes
        assert "±" not in str(result)
        assert sorted(result.intervals().columns) == ["c", "region"]


def test_texts_that_noise_chose_are_named_and_keys_are_not() -> None:
    chosen = asked(f"SELECT ARG_MAX(region, n) AS top, MIN(region) AS first FROM {BY_REGION} WHERE n > 10")
    assert '"top", "first": the error is unknown' in chosen.notes
    for sql in (
        f"SELECT region, UPPER(region) || '!' AS loud, 'x' AS mark FROM {BY_REGION} WHERE n > 10",
        "SELECT DISTINCT town FROM v",
        "SELECT region, COUNT(*) AS n FROM v GROUP BY region UNION SELECT 'all', COUNT(*) FROM v ORDER BY region",
        f"SELECT * EXCLUDE (n, a) FROM {BY_REGION}",
        "SELECT MODE(region) AS m FROM v",  # a note of its own says how many rows it may be off
        "SELECT MODE(month) AS m, MODE(month) AS m FROM v",
    ):
        named = [note for note in asked(sql).notes if note.endswith("the error is unknown")]
        assert named == [note for note in named if note.startswith('"n":')]


def test_a_number_of_groups_that_noise_chose_is_not_sure() -> None:
    assert "± ?" in str(asked(f"SELECT COUNT(*) AS c FROM {BY_REGION} WHERE n > 10"))
    assert "±" not in str(asked(f"SELECT COUNT(*) AS c FROM {BY_REGION}"))


def test_a_divisor_that_may_be_0_has_no_error_that_is_known() -> None:
    sql = "SELECT month, 1000 / NULLIF(n - 1500, 0) AS c FROM (SELECT month, COUNT(*) AS n FROM v GROUP BY month)"
    assert np.isnan([low for _, low, _ in cells(asked(sql))]).all()


def test_rows_that_noise_chose_have_longer_bars() -> None:
    direct, top = (
        np.mean([high - low for _, low, high in cells(asked(f"SELECT region, n AS c FROM {BY_REGION} {end}"))])
        for end in ("", "ORDER BY c DESC LIMIT 2")
    )
    assert top > 1.2 * direct
    assert any("noisy values chose the rows" in note for note in asked(f"SELECT n FROM {BY_REGION} WHERE n > 5").notes)


def test_the_same_answer_has_the_same_bars() -> None:
    sql = "SELECT month, SUM(COUNT(*)) OVER (ORDER BY month) AS c FROM v GROUP BY month"
    connection = opened()[0]
    once, again = (connection.execute(sql, epsilon=0.7).result for _ in range(2))
    assert again.receipt.recalled
    assert cells(once) == cells(again)


def test_bars_are_there_after_the_connection_is_closed() -> None:
    connection = opened()[0].practice()
    result = connection.execute(f"SELECT region, n / people AS c FROM {BY_REGION} CROSS JOIN pop", epsilon=1e6).result
    connection.close()
    assert not np.isnan([low for _, low, _ in cells(result)]).any()


def test_totals_have_the_error_of_their_level() -> None:
    sql = "SELECT region, ROUND(SUM(x), 2) AS c, SUM(x) AS s FROM v GROUP BY ROLLUP (region)"
    frame = asked(sql).intervals()
    through, direct = (frame[f"{name}_high"] - frame[f"{name}_low"] for name in ("c", "s"))
    assert through.to_numpy() == pytest.approx(direct.to_numpy(), rel=0.25)


def test_large_answers_are_given_without_bars() -> None:
    """The replay of very many rows would take seconds; their aggregates have bars all the same."""
    sql = "SELECT u // 1 AS k, COUNT(*) AS n, n * n AS c FROM v GROUP BY 1"
    columns = {"u": {"type": "integer", "bounds": [0, 29_999]}}
    schema = {"dataset": "many", "tables": {"v": {"unit": "u", "columns": columns}}}
    raw = duckdb.connect()
    raw.execute("CREATE TABLE v AS SELECT i AS u FROM range(30000) AS t(i)")
    result = dpsql.connect(raw, schema=schema, budget=10).execute(sql, epsilon=1).result
    frame = result.intervals()
    assert frame["n_low"].notna().all()
    assert frame["c_low"].isna().all()


def test_every_door_shows_them() -> None:
    result = asked(f"SELECT region, n, n * 2 AS twice FROM {BY_REGION}")
    assert str(result).count("±") == 6 + 2, "of six numbers, and of two columns whose error is that of the noise only"
    assert result._repr_html_().count('class="dp-bar"') == 6
    assert list(result.intervals()) == ["region", "n", "n_low", "n_high", "twice", "twice_low", "twice_high"]


@pytest.mark.parametrize("first", ["COUNT(*)", "SUM(x)"])
def test_rows_that_look_the_same_have_an_interval_that_holds_for_each(first: str) -> None:
    """The count is surely 0 here, the sum may as well be 1 or -1."""
    ((total,),) = opened()[1].execute("SELECT SUM(x) FROM v").fetchall()
    parts = {"COUNT(*)": "n / 1e9", "SUM(x)": f"(n - {total}) / 100"}
    rows = [
        f"SELECT CAST({parts[a]} AS INT) AS c FROM (SELECT {a} AS n FROM v)" for a in sorted(parts, key=first.__ne__)
    ]
    answers = (cells(asked(" UNION ALL ".join(rows), mechanism="laplace")) for _ in range(50))
    same = next(found for found in answers if {value for value, _, _ in found} == {0.0})
    assert len(same) == 2
    assert all(low <= -1 and high >= 1 for _, low, high in same)


@pytest.mark.parametrize(
    "flag", ["CASE WHEN n > 1500.5 THEN 1 ELSE 0 END", "SIGN(n - 1500.5)", "ROUND(n / 3000)", "n > 1500.5"]
)
def test_steps_of_many_groups_are_not_added_up(flag: str) -> None:
    """About every other group is above the limit by its noise, without noise none is; replicas are as wrong."""
    months = "(SELECT month, COUNT(*) AS n FROM v GROUP BY month)"
    assert "± ?" in str(asked(f"SELECT SUM({flag}) AS c FROM {months}"))
    assert "± ?" in str(asked(f"SELECT AVG(flag) OVER () AS c FROM (SELECT CAST({flag} AS INT) AS flag FROM {months})"))


@pytest.mark.parametrize("flag", ["n = 1500", "n BETWEEN 1499 AND 1501", "n > 1499 AND n < 1501"])
def test_a_place_that_noise_hardly_ever_meets_is_not_known_to_be_elsewhere(flag: str) -> None:
    """All months have 1500 rows, next to no noisy number and next to no replica is that."""
    months = "(SELECT month, COUNT(*) AS n FROM v GROUP BY month)"
    assert "± ?" in str(asked(f"SELECT month, CASE WHEN {flag} THEN 1 ELSE 0 END AS c FROM {months}", 0.01))

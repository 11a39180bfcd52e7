"""What the table says of an aggregate is tried, for each of them: its names, bounds, error bars, words and type.

A row that is added to the table is tried here without another line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.aggregates.count_sum import AVG, SUM
from dpsql.aggregates.function import AggregateFunction, BoundsRule, ErrorBars
from dpsql.aggregates.table import AGGREGATES, WORDS, by_name, ways_to_ask
from dpsql.frames.vocabulary import Vocabulary
from dpsql.sql.calls import HINT
from dpsql.sql.syntax import kinds_of, names_of

SCHEMA = {
    "dataset": "aggregates",
    "tables": {
        "t": {
            "unit": "u",
            "unique": True,
            "columns": {
                "u": "integer",
                "x": {"type": "integer", "bounds": [1, 50]},
                "y": {"type": "integer", "bounds": [1, 50]},
            },
        }
    },
}
ROWS = list(AGGREGATES.values())
HUGE = 1e9
# What DuckDB has no function for, or only one that approximates.
EXACTLY = {
    "APPROX_COUNT_DISTINCT(x)": "COUNT(DISTINCT x)",
    "APPROX_QUANTILE(x, p)": "QUANTILE_DISC(x, p)",
    "APPROX_QUANTILES(x, n)": "QUANTILE_DISC(x, [0, 0.25, 0.5, 0.75, 1])",
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    """No two aggregates have nearly the same value here."""
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE t AS
        SELECT i AS u, 1 + (i * i) % 37 AS x, 1 + ((i * i) % 37 + 3 * i) % 41 AS y FROM range(24) AS r(i)
        UNION ALL SELECT 24, 11, 40 UNION ALL SELECT 25, 11, 50""")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def people(raw: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(raw, schema=SCHEMA, budget=HUGE * 10**6, query_epsilon=HUGE) as connection:
        yield connection


def written(name: str, row: AggregateFunction, more: str = "") -> str:
    """A call by this name."""
    fraction = ", 0.3" if row.by_fraction else ""
    return f"{name}({', '.join(('y', 'x')[-row.arguments[-1] :])}{fraction}{more})"


def put(spelling: str) -> str:
    """MEDIAN(x), QUANTILE(x, p), ...: with the letters replaced by numbers."""
    for letter, value in (("p", "0.3"), ("n", "4"), ("condition", "x > 20")):
        spelling = re.sub(rf"\b{letter}\b", value, spelling)
    return spelling


def every_way() -> Iterator[Any]:
    for row in ROWS:
        for name in row.names:
            yield pytest.param(row, *[written(name, row)] * 2, id=name)
        for spelling in row.spellings:
            yield pytest.param(row, put(spelling), put(EXACTLY.get(spelling, spelling)), id=spelling)


def near(row: AggregateFunction, value: Any) -> Any:
    """A quantile is a point of a grid between two ranks, and MIN and MAX lie inside."""
    return pytest.approx(value, abs=4) if row.error is ErrorBars.RANKS else pytest.approx(value, rel=1e-3)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "asked", "plain"), list(every_way()))
def test_every_name_is_answered_as_its_own_aggregate(
    people: dpsql.Connection, raw: duckdb.DuckDBPyConnection, row: AggregateFunction, asked: str, plain: str
) -> None:
    ((truth,),) = raw.execute(f"SELECT {plain} FROM t").fetchall()
    ((answer,),) = people.execute(f"SELECT {asked} FROM t").fetchall()
    assert answer == near(row, truth)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ENTROPY(x) FROM t",
        "SELECT ENTROPY(x) FILTER (WHERE x > 20) FROM t",
        "SELECT COUNT(*) FROM (SELECT PRODUCT(x) OVER (PARTITION BY u) AS p FROM t) WHERE p > 5",
        "SELECT COUNT(*) FROM (SELECT u, ENTROPY(x) FILTER (WHERE x > 2) AS p FROM t GROUP BY u) WHERE p > 5",
        "SELECT COUNT(*) FROM (SELECT ROW_NUMBER() FILTER (WHERE x > 2) OVER (PARTITION BY u) AS p FROM t)",
        "SELECT RANK(x) OVER (PARTITION BY u) FROM t",
    ],
)
def test_what_no_table_has_is_no_aggregate(people: dpsql.Connection, sql: str) -> None:
    """Whatever stands around it: it is never taken for another one."""
    with pytest.raises(dpsql.Unsupported) as refused:
        people.explain(sql)
    assert any(name in refused.value.problem for name in re.findall(r"[A-Z_]+(?=\()", sql))


def test_a_name_cannot_stand_for_two_aggregates() -> None:
    with pytest.raises(ValueError, match="MEAN would be two"):
        by_name((AVG, replace(SUM, also=("MEAN",))))
    with pytest.raises(ValueError, match="mean would be two"):
        by_name((AVG, replace(SUM, words=AVG.words)))
    variance = replace(AGGREGATES["VAR_POP"], name="VARIANCE_SAMP")  # which the parser takes for VAR_SAMP
    with pytest.raises(ValueError, match="does not tell VARIANCE_SAMP from VAR_SAMP"):
        kinds_of(names_of({**AGGREGATES, variance.name: variance}))


def test_hints_name_every_way_to_ask() -> None:
    assert set(ways_to_ask()) <= set(re.findall(r"\w+", HINT))
    assert {"COUNT_IF", "MEDIAN", "MEAN", "REGR_INTERCEPT"} <= set(ways_to_ask())


# -- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("bounds", list(BoundsRule), ids=lambda bounds: bounds.value)
def test_the_bounds_that_it_takes_and_no_others(
    people: dpsql.Connection, row: AggregateFunction, bounds: BoundsRule
) -> None:
    sql = f"SELECT {written(row.name, row, f', {bounds.value} => (0, 5)')} FROM t"
    if row.by_fraction:
        sql = f"SELECT MEDIAN(x, {bounds.value} => (0, 5)) FROM t"
    if bounds in row.bounds:
        people.explain(sql)
    else:
        with pytest.raises((dpsql.ProgrammingError, dpsql.Unsupported)):
            people.explain(sql)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_older_dialect_clamps_what_the_table_says(people: dpsql.Connection, row: AggregateFunction) -> None:
    """ANON_SUM(x CLAMPED BETWEEN 0 AND 5) is SUM with bounds per group, ANON_AVG is AVG with bounds per row."""
    sql = f"SELECT ANON_{row.name}(x CLAMPED BETWEEN 0 AND 5) FROM t"
    if row.clamped is None:
        with pytest.raises((dpsql.Unsupported, dpsql.SqlSyntaxError)):
            people.explain(sql)
        return
    same = f"SELECT {written(row.name, row, f', {row.clamped.value} => (0, 5)')} FROM t"
    assert people.explain(sql).releases == people.explain(same).releases


# -- errors and types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_error_is_what_the_reference_says(people: dpsql.Connection, row: AggregateFunction) -> None:
    sql = f"SELECT {written(row.name, row)} AS a, DP_INTERVAL_LOW(a) AS low FROM t"
    column, _ = people.explain(sql).columns
    ((_, low),) = people.execute(sql).fetchall()
    assert (low is not None) == (row.error is ErrorBars.INTERVAL)
    assert ("rank" in column.note) == (row.error is ErrorBars.RANKS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_query_around_it_reads_it_as_what_it_is(
    people: dpsql.Connection, raw: duckdb.DuckDBPyConnection, row: AggregateFunction
) -> None:
    sql = f"SELECT COUNT(*) FROM t WHERE x * 2 > (SELECT {written(row.name, row)} FROM t)"
    ((truth,),) = raw.execute(sql).fetchall()
    assert people.execute(sql).fetchone() == ((truth,) if row.error is not ErrorBars.RANKS else near(row, (truth,)))


# -- words -----------------------------------------------------------------------------------------------------------


class Recorder(Vocabulary):
    """Writes down what would be asked."""

    def _check_columns(self, names: object) -> None: ...

    def _ask(self, sql: str, parameters: object, options: dict[str, Any]) -> Any:
        return sql

    _explain = _ask


@pytest.mark.parametrize("word", list(WORDS.values()), ids=lambda word: word.name)
def test_every_word_of_a_frame_is_its_aggregate(word: Any) -> None:
    sql = f'SELECT {word.sql.format(chr(34) + "age" + chr(34))} AS "age_{word.name}" FROM df'
    method = getattr(Recorder(), word.name)
    assert method("age") == Recorder().agg({"age": word.name}) == sql
    assert method.__name__ == word.name
    assert method.__doc__.partition("\n")[0] == word.says

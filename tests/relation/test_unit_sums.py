"""Sums and averages within one unit are exact, then rounded once: what is compared, binned and grouped is the number
that people expect, in whatever order the engine reads the rows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.render import render
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Relation
from dpsql.relation.sql import relation_sql

# -- the families: aggregates within a unit x what is asked of them ---------------------------------------------------

SCHEMA = {
    "dataset": "sums",
    "contribution": {"max_groups": 8, "max_rows_per_group": 8},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
                "k": {"type": "text", "values": ["a", "b"]},
                "f": {"type": "double", "bounds": [-100, 1000], "nullable": True},
                "g": {"type": "double", "bounds": [-100, 100]},
                "d": {"type": "decimal(9,2)", "nullable": True},
                "i": {"type": "integer", "bounds": [-20, 20], "nullable": True},
            },
        }
    },
}
TENTHS = [None, 0.1, 0.1, 0.2, 0.3, 0.7, -0.1, 1.1, 0.29999999999999999, 99.9]
DYADIC = [None, 0.5, 0.25, -1.75, 3.0, 40.125]


COPIES = 12
"""So many people have the same rows, so that no group is too small to be shown."""


def people() -> list[list[Any]]:
    """Up to two rows of tenths or up to six of sums that no order can change: there plain DuckDB is exact too."""
    draw = random.Random(4)
    table: list[list[Any]] = []
    for person in range(40):
        doubles, most = draw.choice([(TENTHS, 2), (DYADIC, 6)])
        for day in range(1, draw.randint(1, most) + 1):
            decimal = draw.choice([None, "0.10", "0.20", "0.35", "-7.25", "1234567.89"])
            numbers = [draw.choice(doubles), draw.choice([0.1, 0.5, -2.25]), decimal]
            row = [f"2024-01-{day:02}", draw.choice("ab"), *numbers, draw.choice([None, -20, -3, 1, 2, 20])]
            table += [[person * COPIES + copy, *row] for copy in range(COPIES)]
    return table


ARGUMENTS = ["f", "g", "d", "i", "f * 2", "ABS(i)", "f + i", "CASE WHEN k = 'a' THEN f END", "COALESCE(f, 0)"]
SOURCES = [
    "SELECT u, {} AS s FROM t GROUP BY u",
    "SELECT u, k, {} AS s FROM t GROUP BY u, k",
    "SELECT u, {} FILTER (WHERE k = 'b') AS s FROM t GROUP BY u",
    "SELECT u, {} OVER (PARTITION BY u) AS s FROM t",
    "SELECT u, {} OVER (PARTITION BY u ORDER BY day) AS s FROM t",
    "SELECT u, {} OVER (PARTITION BY u ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM t",
    "SELECT u, {} OVER (PARTITION BY u ORDER BY day ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS s FROM t",
    "SELECT o.u, (SELECT {} FROM t WHERE t.u = o.u) AS s FROM t AS o",
]
QUESTIONS = [
    "SELECT COUNT(*) FROM ({}) AS x WHERE s = 0.1",
    "SELECT COUNT(*) FROM ({}) AS x WHERE s = 0.3 OR s = 0.2 OR s = 1.1",
    "SELECT COUNT(*) FROM ({}) AS x WHERE s >= 0.3 AND s < 0.4",
    "SELECT COUNT(*) FROM ({}) AS x WHERE s BETWEEN 0.1 AND 0.7",
    "SELECT FLOOR(s * 10) AS bin, COUNT(*) FROM ({}) AS x GROUP BY bin ORDER BY bin",
    "SELECT ROUND(s, 1) AS bin, COUNT(*) FROM ({}) AS x GROUP BY bin ORDER BY bin",
    "SELECT s, COUNT(*) FROM ({}) AS x GROUP BY s ORDER BY s",
    "SELECT CAST(s AS VARCHAR) AS shown, COUNT(*) FROM ({}) AS x GROUP BY shown ORDER BY shown",
    "SELECT CAST(s AS BIGINT) AS whole, COUNT(*) FROM ({}) AS x GROUP BY whole ORDER BY whole",
    "SELECT CASE WHEN s > 0.1 THEN 'more' WHEN s = 0.1 THEN 'that' ELSE 'less' END AS c, COUNT(*) "
    "FROM ({}) AS x GROUP BY c ORDER BY c",
]
CROSSED = [
    question.format(source.format(f"{name}({argument})"))
    for name, argument, source, question in itertools.product(("SUM", "AVG"), ARGUMENTS, SOURCES, QUESTIONS)
]
FAMILIES = random.Random(8).sample(CROSSED, 50)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (u BIGINT, day DATE, k VARCHAR, f DOUBLE, g FLOAT, d DECIMAL(9,2), i BIGINT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", people())
    return connection


@pytest.fixture(scope="module")
def session(database: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Connection]:
    with dpsql.connect(database, schema=SCHEMA, budget=1e15, delta=1e-6, query_epsilon=1e9) as connection:
        yield connection


@pytest.mark.parametrize("sql", FAMILIES)
def test_what_is_asked_of_a_sum_has_the_answer_of_duckdb(
    sql: str, session: dpsql.Connection, database: duckdb.DuckDBPyConnection
) -> None:
    answer, plain = session.execute(sql).fetchall(), database.execute(sql).fetchall()
    answer = [row for row in answer if len(row) == 1 or row[-1]]  # a public group is shown though nobody is in it
    assert answer == plain
    if "s * 10" not in sql:
        assert [list(map(type, row)) for row in answer] == [list(map(type, row)) for row in plain]


# -- every bit --------------------------------------------------------------------------------------------------------

Total = Callable[[str, float, list[list[float]]], list[float]]


@pytest.fixture
def unit_totals(relation_of: Callable[[dpsql.Connection, str], Relation]) -> Total:
    """The aggregate of each list of doubles, which lie within +-`most`, as the engine gives it for one unit each."""

    def of(aggregate: str, most: float, lists: list[list[float]]) -> list[float]:
        raw = duckdb.connect()
        raw.execute("CREATE TABLE t (u BIGINT, x DOUBLE)")
        units = [unit for unit, each in enumerate(lists) for _ in each]
        raw.execute("INSERT INTO t SELECT unnest(?), unnest(?)", [units, [x for each in lists for x in each]])
        columns = {"u": "integer", "x": {"type": "double", "bounds": [-most, most]}}
        schema = {"dataset": "bits", "tables": {"t": {"unit": "u", "columns": columns}}}
        with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
            asked = f"SELECT COUNT(s) FROM (SELECT u, {aggregate}(x) AS s FROM t GROUP BY u) AS p"
            relation = relation_of(connection, asked)
        (name,) = facts_of(relation).any_row.keys() - {"u", "_k0"}
        found = raw.execute(
            f'SELECT "{name}" FROM ({render(relation_sql(relation, [name]))}) ORDER BY _unit'
        ).fetchall()
        return [value for (value,) in found]

    return of


def drawn(draw: random.Random, power: int) -> list[float]:
    """A few doubles within +-2^power: decimals, neighbours, all sizes down to 2^-60 of the largest."""
    steps: list[Callable[[], float]] = [
        lambda: math.ldexp(round(draw.random(), draw.randint(1, 3)), power),
        lambda: math.ldexp(draw.random(), power - draw.randint(0, 60)),
        lambda: math.ldexp(1 + draw.choice([0, 1, 2, 3]) * 2**-52, power - draw.randint(1, 4)),
        lambda: math.ldexp(draw.getrandbits(53) | 1, power - 53 - draw.randint(0, 10)),
    ]
    step = draw.choice(steps)
    return [step() * draw.choice([1, 1, -1]) for _ in range(draw.choice([1, 2, 3, 5, 40]))]


@pytest.mark.parametrize("power", [-300, -5, 0, 10, 40, 900])
def test_a_sum_is_the_double_that_is_nearest_to_the_exact_one(power: int, unit_totals: Total) -> None:
    draw = random.Random(power)
    lists = [drawn(draw, power) for _ in range(200)]
    assert unit_totals("SUM", 2.0**power, lists) == [math.fsum(each) for each in lists]


def test_the_order_of_rows_does_not_matter(unit_totals: Total) -> None:
    draw = random.Random(1)
    values = [draw.uniform(-1, 1) * 10.0 ** draw.randint(-12, 2) for _ in range(60)]
    orders = [draw.sample(values, len(values)) for _ in range(20)]
    for aggregate in ("SUM", "AVG"):
        assert len(set(unit_totals(aggregate, 100, orders))) == 1


ODD = [0.1, -0.1, 1 / 3, 100.0, -100.0, math.nextafter(100, 0), 5e-324, 1e-300, -1e-40, 2.0**-55, 1e-9, -0.0]


@pytest.mark.parametrize("aggregate", ["SUM", "AVG"])
def test_one_value_is_itself(aggregate: str, unit_totals: Total) -> None:
    assert unit_totals(aggregate, 100, [[value] for value in ODD]) == ODD
    (zero,) = unit_totals(aggregate, 100, [[-0.0]])
    assert math.copysign(1, zero) == 1, "zero has one spelling"


def test_an_average_is_near_the_exact_one_and_among_its_values(unit_totals: Total) -> None:
    draw = random.Random(9)
    lists = [[0.1] * 3, [0.7] * 7, [100.0] * 49, *(drawn(draw, 6) for _ in range(300))]
    for mean, values in zip(unit_totals("AVG", 100, lists), lists, strict=True):
        exact = sum(map(Fraction, values)) / len(values)
        assert abs(Fraction(mean) - exact) <= abs(exact) / 2**52
        assert min(values) <= mean <= max(values)


def test_values_far_below_the_range_are_summed_on_a_grid(unit_totals: Total) -> None:
    """Bits below 2^-115 of the range are rounded off where several values meet: 1e-40 is nothing beside 100."""
    tiny, small = 1e-40, 3e-17
    assert unit_totals("SUM", 100, [[tiny, tiny], [small, small, small]]) == [0, math.fsum([small] * 3)]


def test_many_rows_of_the_largest_value(unit_totals: Total) -> None:
    assert unit_totals("SUM", 2.0**1000, [[2.0**1000] * 5000]) == [5000 * 2.0**1000]


# -- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("digits", "fits"), [("decimal(18,4)", True), ("decimal(19,4)", False), ("decimal(20,19)", False)]
)
def test_decimals_that_could_overflow_are_refused(digits: str, fits: bool) -> None:
    raw = duckdb.connect()
    raw.execute(f"CREATE TABLE t (u BIGINT, x {digits})")
    schema = {"dataset": "d", "tables": {"t": {"unit": "u", "columns": {"u": "integer", "x": digits}}}}
    with dpsql.connect(raw, schema=schema, budget=1, delta=1e-6) as connection:
        asked = "SELECT COUNT(*) FROM (SELECT u, SUM(x) AS s FROM t GROUP BY u) AS p WHERE s > 1"
        if fits:
            connection.execute(asked)
        else:
            with pytest.raises(dpsql.Unsupported, match="up to 18 digits"):
                connection.execute(asked)

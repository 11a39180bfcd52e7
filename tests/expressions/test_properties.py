"""What is claimed of a value is true: every function, aggregate within a unit, window, join and set, on extreme rows.

Facts choose clamps and public groups, so a false one would be a wrong answer. Columns are declared anew in every world,
with ranges that end at limits of their type, next to each other, or nowhere; rows lie at and next to these ends.
"""

from __future__ import annotations

import itertools
import math
import random
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.base import engine_type
from dpsql.engines.duckdb.render import render, render_term
from dpsql.expressions.emit import written
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.properties import Properties, bounded, one_of, property_of
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Known, Literal
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, Join, Mark, Relation, SemiJoin
from dpsql.relation.sql import relation_sql
from dpsql.schema.types import ColumnType, Integer

TABLE = runpy.run_path(str(Path(__file__).parents[1] / "expressions" / "test_table.py"))
CASES, KINDS, lowered = TABLE["CASES"], TABLE["KINDS"], TABLE["lowered"]
WORLDS = range(4)

# -- one expression ---------------------------------------------------------------------------------------------------

BIG, TINY = 1.7976931348623157e308, 5e-324
INTEGERS = [-(2**63), -(2**62), -(2**53) - 1, -(2**31), -7, -1, 0, 1, 2, 12, 99, 2**31, 2**53 + 1, 2**62, 2**63 - 1]
DOUBLES = [-BIG, -1e300, -1e15, -2.5, -1.0, -0.1, -TINY, 0.0, TINY, 0.1, 0.3, 0.5, 1.0, 1.5, 2.675, 1e15, 1e300, BIG]
DECIMALS = ["-99999999.99", "-12.35", "-0.05", "0", "0.01", "0.5", "2.45", "7.25", "1234567.89", "99999999.99"]
DAYS = [date.min, date(1969, 12, 31), date(2000, 2, 29), date(2024, 1, 31), date(2024, 12, 31), date.max]
MOMENTS = [datetime.combine(day, datetime.min.time()) for day in DAYS]
MOMENTS += [datetime(9999, 12, 31, 23, 59, 59), datetime(2024, 2, 29, 23, 59, 59, 999_999)]
TEXTS = ["", "a", "-", "a-b-c", "ß", "İ", "é🤦🏼a-" * 50, "%_\\", "1e400", "12", "-0.5", "nan", "2024-02-29", "true"]
ENDS: dict[str, list[Any]] = {
    "integer": INTEGERS,
    "double": DOUBLES,
    "date": DAYS,
    "timestamp": MOMENTS,
    "text": TEXTS,
    "boolean": [False, True],
}


def ends_of(kind: ColumnType) -> list[Any]:
    return [Decimal(text) for text in DECIMALS] if kind.name.startswith("decimal") else ENDS[kind.name]


def beside(value: Any, draw: random.Random) -> Any:
    """The next value of its type, on one side or the other; the value itself where there is none."""
    sign = draw.choice([-1, 1])
    try:
        match value:
            case bool() | str():
                return value
            case int():
                return min(max(value + sign, -(2**63)), 2**63 - 1)
            case float():
                return math.nextafter(value, sign * math.inf)
            case Decimal():
                moved = value + sign * Decimal("0.01")
                return moved if abs(moved) < 10**8 else value
            case datetime():
                return value + timedelta(microseconds=sign)
            case _:
                return value + timedelta(days=sign)
    except OverflowError:
        return value


def exact(value: Any) -> Any:
    return Fraction(value) if isinstance(value, float | Decimal) else value


@dataclass(frozen=True)
class World:
    """The declared schema of every column, and rows that keep to it."""

    facts: dict[str, Properties]
    rows: list[list[Any]]


def world(seed: int) -> World:
    draw = random.Random(f"facts {seed}")
    facts: dict[str, Properties] = {}
    values: dict[str, list[Any]] = {}
    for name, kind in KINDS.items():
        facts[name], values[name] = declared(kind, draw)
    return World(facts, [[draw.choice(values[name]) for name in KINDS] for _ in range(60)])


def declared(kind: ColumnType, draw: random.Random) -> tuple[Properties, list[Any]]:
    ends, nullable = ends_of(kind), draw.random() < 0.4
    low, high = sorted(draw.choices(ends, k=2))
    if draw.random() < 0.3:
        low, high = sorted([low, beside(low, draw)])
    if kind.name in ("text", "integer") and draw.random() < 0.3:
        chosen = draw.sample(ends, 3)
        facts = one_of(kind, chosen, nullable=nullable)
    elif kind.name in ("text", "boolean") or draw.random() < 0.25:
        chosen = [value for value in ends if not isinstance(value, datetime) or value.microsecond == 0]
        chosen += [math.nan, math.inf, -math.inf] if kind.name == "double" else []
        facts = property_of(kind, nullable=nullable)
    else:
        chosen = [low, high, *(beside(end, draw) for end in (low, high) for _ in "12"), *ends]
        chosen = [value for value in chosen if low <= value <= high]
        facts = bounded(kind, exact(low), exact(high), nullable=nullable)
    return facts, [*chosen, None] if nullable else chosen


def is_claimed(value: Any, facts: Properties) -> bool:
    if value is None:
        return facts.nullable
    if isinstance(value, float) and not math.isfinite(value):
        return facts.low is None or facts.high is None
    found: Any = exact(value)
    if (facts.low is not None and found < facts.low) or (facts.high is not None and found > facts.high):
        return False
    return (not facts.whole or found == int(found)) and (facts.values is None or found in facts.values)


@pytest.mark.parametrize("seed", WORLDS)
def test_every_function_keeps_its_claims(seed: int) -> None:
    here = world(seed)
    raw = duckdb.connect()
    raw.execute(f"CREATE TABLE t ({', '.join(f'{name} {engine_type(kind)}' for name, kind in KINDS.items())})")
    raw.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(KINDS))})", here.rows)
    longest = [max(30, *(len(value) for value in row if isinstance(value, str)), 0) for row in here.rows]
    for start in range(0, len(CASES), 50):
        claims = [(case.sql, written(lowered(case.sql), here.facts)) for case in CASES[start : start + 50]]
        rows = raw.execute(f"SELECT {', '.join(render_term(ours.sql) for _, ours in claims)} FROM t").fetchall()
        for (sql, ours), column in zip(claims, zip(*rows, strict=True), strict=True):
            for value, length in zip(column, longest, strict=True):
                assert is_claimed(value, ours.properties), sql
                if isinstance(value, str):
                    assert len(value) <= ours.properties.growth * max(length, len(sql)), sql


# -- relations: whatever stands between the tables and the release ---------------------------------------------------

TABLES = {
    "persons": {
        "unit": "pid",
        "unique": True,
        "columns": {
            "pid": "integer",
            "age": {"type": "integer", "bounds": [-1, 7], "nullable": True},
            "wage": {"type": "double", "bounds": [0.1, math.nextafter(0.1, 1)]},
        },
    },
    "t": {
        "unit": "u",
        "columns": {
            "u": "integer",
            "i": {"type": "integer", "bounds": [3, 9], "nullable": True},
            "n": "integer",
            "x": {"type": "double", "bounds": [1.4999999999999, math.nextafter(1.5, 0)], "nullable": True},
            "y": {"type": "double", "bounds": [-1e300, 1e300]},
            "m": {"type": "decimal(6,2)", "bounds": [-0.05, 2.5]},
            "w": "decimal(18,3)",
            "v": {"type": "text", "values": ["a", "b"]},
            "s": {"type": "text", "nullable": True},
            "b": "boolean",
            "d": {"type": "date", "bounds": ["2024-02-28", "2024-03-01"]},
            "z": {"type": "timestamp", "nullable": True},
        },
    },
    "places": {"public": True, "columns": {"v": {"type": "text", "values": ["a", "c"]}, "seats": "integer"}},
}
CREATE = """
    CREATE TABLE persons (pid BIGINT PRIMARY KEY, age BIGINT, wage DOUBLE);
    CREATE TABLE t (u BIGINT, i BIGINT, n BIGINT, x DOUBLE, y DOUBLE, m DECIMAL(6,2), w DECIMAL(18,3), v VARCHAR,
                    s VARCHAR, b BOOLEAN, d DATE, z TIMESTAMP);
    CREATE TABLE places (v VARCHAR, seats BIGINT);
"""
EXTREMES: dict[str, list[Any]] = {
    "i": [None, 3, 9, -(2**63), 2**63 - 1],
    "n": [None, -(2**63), 2**63 - 1, 2**63 - 1000, 9 * 10**18, 0],
    "x": [None, 1.5, 1.4999999999999, math.nan, -math.inf],
    "y": [None, 1e300, -1e300, TINY, 0.1, math.inf],
    "m": [None, "2.5", "-0.05", "9999.99"],
    "w": [None, "-999999999999999.999", "999999999999999.999", "0.001"],
    "v": [None, "a", "b", "other"],
    "s": [None, "", "a" * 300],
    "b": [None, True, False],
    "d": [None, "2024-02-28", "2024-03-01", "0001-01-01", "infinity"],
    "z": [None, "0001-01-01 00:00:00", "9999-12-31 23:59:59", "infinity", "294247-01-10 04:00:54"],
}


UNDECLARED = (None, math.nan, math.inf, -math.inf, "other", "infinity", "294247-01-10 04:00:54")
"""What the scan makes NULL, where the schema says that there is none."""


def possible(table: str, column: str, values: list[Any], honest: bool) -> list[Any]:
    """The values to draw from; those of an honest table keep what is declared of NULL."""
    declared: Any = TABLES[table]["columns"][column]  # type: ignore[index]
    nullable = isinstance(declared, dict) and declared.get("nullable")
    return [value for value in values if not honest or nullable or not any(value is odd for odd in UNDECLARED)]


def extreme_database(honest: bool) -> duckdb.DuckDBPyConnection:
    """Units with no row, one row and several; every value of every column beside others."""
    draw = random.Random(5)
    raw = duckdb.connect()
    raw.execute(CREATE)
    wages = possible("persons", "wage", [0.1, 1e9, -1.0, math.nan], honest)
    people = [[unit, draw.choice([None, -9, 7, 8]), draw.choice(wages)] for unit in range(30)]
    raw.executemany("INSERT INTO persons VALUES (?, ?, ?)", people)
    units = [unit for unit in range(40) for _ in range(unit % 5)]
    columns = [possible("t", name, values, honest) for name, values in EXTREMES.items()]
    rows = [[unit, *(draw.choice(values) for values in columns)] for unit in units]
    raw.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 12)})", rows)
    raw.execute("INSERT INTO places VALUES ('a', 1), ('a', 9223372036854775807), ('c', 0)")
    return raw


NUMBERS = ["i", "n", "x", "y", "m", "w", "LEAST(GREATEST(i, 4), 4)", "CASE WHEN b THEN x END"]
OTHERS = ["v", "s", "b", "d", "z"]
AGGREGATES = [
    "COUNT(*)",
    "COUNT(*) FILTER (WHERE b)",
    *(f"{name}({column})" for name in ("SUM", "AVG") for column in NUMBERS),
    *(f"{name}({column})" for name in ("MIN", "MAX", "ANY_VALUE", "COUNT") for column in ("i", "x", "m", *OTHERS)),
    *(f"{name}(b)" for name in ("BOOL_AND", "BOOL_OR")),
]
POSITIONS = [
    *("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "PERCENT_RANK()", "CUME_DIST()", "NTILE(3)", "LAG(i)"),
    *("LEAD(x, 2)", "LAG(i, 1, 99)", "LAG(v, 1, 'none')", "FIRST_VALUE(m)", "LAST_VALUE(s)", "NTH_VALUE(d, 2)"),
]
STARTS = ["UNBOUNDED PRECEDING", "2 PRECEDING", "0 PRECEDING", "CURRENT ROW", "0 FOLLOWING", "1 FOLLOWING"]
STOPS = ["1 PRECEDING", "0 PRECEDING", "CURRENT ROW", "0 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING"]
FRAMES = [
    "",
    "ORDER BY i",
    *(f"ORDER BY i, d ROWS BETWEEN {start} AND {stop}" for start, stop in itertools.product(STARTS[:3], STOPS)),
    *(f"ORDER BY i, d ROWS BETWEEN CURRENT ROW AND {stop}" for stop in STOPS[2:]),
    *(f"ORDER BY i, d ROWS BETWEEN {start} AND {stop}" for start, stop in itertools.product(STARTS[4:], STOPS[3:])),
    *("ORDER BY i RANGE UNBOUNDED PRECEDING", "ORDER BY i RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"),
]
FRAMED = ["COUNT(*)", "COUNT(i)", "SUM(i)", "SUM(x)", "AVG(x)", "SUM(m)", "MIN(d)", "FIRST_VALUE(v)", "LAST_VALUE(i)"]
CONDITIONS = [
    *("i > 4", "i >= 4.5", "i < 3.5", "i <> 9", "i = 3", "i IN (3, 9, 77)", "i NOT IN (3)", "5 > i", "i IS NOT NULL"),
    *(
        "n > 9223372036854775806",
        "n < -9223372036854775807",
        "n <= 9223372036854774784e0",
        "n = 9223372036854775808e0",
        "n IN (9e18, 2)",
        "n >= 0 AND n <= 0",
        "x < 1.5",
        "x >= 1.5",
        "x = 1.5",
    ),
    *(
        "y > 1e299",
        "y BETWEEN -0.1 AND 0.1",
        "m > 2.45",
        "m < -0.04",
        "w >= 0.001",
        "w <= 0.001::DOUBLE",
        "w = 1e-3",
        "v = 'a'",
        "v > 'a'",
        "v <> 'a'",
    ),
    *("v IN ('a', 'zz')", "s = ''", "s IS NOT NULL", "b", "NOT b", "b = FALSE", "d > '2024-02-28'", "d < '2024-02-29'"),
    *("d >= TIMESTAMP '2024-02-28 12:00:00'", "d = '2024-03-01'", "z > '9999-01-01'", "z <= DATE '0001-01-01'"),
    *("i > 4 AND i < 3", "i > 4 OR b", "CASE WHEN i > 4 THEN b END", "i = n", "COALESCE(i, 3) > 3", "x < m"),
]


def listed(calls: list[str], over: str = "") -> str:
    return ", ".join(f"{call}{over} AS c{number}" for number, call in enumerate(calls))


COLUMNS = "u, i, n, x, y, m, w, v, s, b, d, z"
SHAPES = {
    "aggregates": f"SELECT u, {listed(AGGREGATES)} FROM t GROUP BY u",
    "by keys": f"SELECT u, v, d, i + 1 AS j, {listed(AGGREGATES)} FROM t GROUP BY u, v, d, i + 1",
    "of one row": "SELECT pid, COUNT(*) AS c, SUM(age) AS a, AVG(wage) AS w, SUM(wage) AS s, MAX(age) AS m "
    "FROM persons GROUP BY pid",
    "twice": "SELECT u, SUM(c) AS s, AVG(c) AS a, MIN(h) AS h FROM (SELECT u, v, COUNT(i) AS c, SUM(i) AS h FROM t "
    "GROUP BY u, v) AS q GROUP BY u",
    "positions": f"SELECT u, {listed(POSITIONS, ' OVER (PARTITION BY u ORDER BY d)')} FROM t",
    "position of one row": "SELECT pid, ROW_NUMBER() OVER w AS r, COUNT(*) OVER w AS c, SUM(wage) OVER w AS s "
    "FROM persons WINDOW w AS (PARTITION BY pid)",
    **{f"frame {frame}": f"SELECT u, {listed(FRAMED, f' OVER (PARTITION BY u {frame})')} FROM t" for frame in FRAMES},
    **{
        f"where {condition}": f"SELECT {COLUMNS}, i + n AS j, x * 2 AS k FROM t WHERE {condition}"
        for condition in CONDITIONS
    },
    **{
        f"case {condition}": f"SELECT u, CASE WHEN {condition} THEN i END AS a, "
        f"CASE WHEN {condition} THEN d ELSE d END AS b, CASE WHEN {condition} THEN x ELSE 2 END AS c FROM t"
        for condition in CONDITIONS
    },
    **{
        f"{kind} join": f"SELECT t.*, age, wage FROM persons {kind} JOIN t ON pid = u AND age > 0 AND i < 9"
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
    },
    "join where": "SELECT t.*, age, wage FROM persons LEFT JOIN t ON pid = u WHERE i < 5 AND age = 7",
    "public join": "SELECT t.*, places.v AS p, seats FROM t LEFT JOIN places ON t.v = places.v",
    "public inner join": "SELECT t.*, places.v AS p, seats FROM t JOIN places ON t.v = places.v AND seats > 1",
    **{
        word: f"SELECT u, i, x, v, d, m FROM t WHERE i > 4 {word} SELECT u, n, y, s, d, w FROM t WHERE y > 0 AND n < 9"
        for word in ("UNION ALL", "UNION", "INTERSECT", "EXCEPT")
    },
    "three": "SELECT u, i FROM t EXCEPT SELECT u, n FROM t UNION ALL SELECT pid, age FROM persons",
    "distinct": "SELECT DISTINCT u, i, x, b, s FROM t",
    "mark": "SELECT u, i, CASE WHEN EXISTS (SELECT 1 FROM persons WHERE pid = u AND age > 1) THEN i ELSE n END AS c "
    "FROM t",
    "semi join": "SELECT u, i, n FROM t WHERE u IN (SELECT pid FROM persons WHERE age > 1) "
    "AND v IN (SELECT v FROM places)",
    "correlated": "SELECT pid, (SELECT SUM(x) FROM t WHERE u = pid) AS s, (SELECT COUNT(*) FROM t WHERE u = pid) AS c, "
    "(SELECT AVG(i) FROM t WHERE u = pid) AS a FROM persons",
}


@dataclass(frozen=True)
class People:
    adversarial: duckdb.DuckDBPyConnection
    honest: duckdb.DuckDBPyConnection
    connection: dpsql.Connection


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    adversarial, honest = extreme_database(honest=False), extreme_database(honest=True)
    schema = {"dataset": "extremes", "tables": TABLES}
    with dpsql.connect(adversarial, schema=schema, budget=1, delta=1e-6) as connection:
        yield People(adversarial, honest, connection)


def unfiltered(relation: Relation) -> Relation:
    """The relation with all rows that an engine may look at: before any filter, whatever they are joined with."""
    if isinstance(relation, Filter | SemiJoin):
        return unfiltered(relation.source)
    if isinstance(relation, Mark):
        return replace(relation, test=replace(relation.test, source=unfiltered(relation.source)))
    parts = {field.name: getattr(relation, field.name) for field in fields(relation)}
    changed: dict[str, Any] = {name: unfiltered(part) for name, part in parts.items() if isinstance(part, Relation)}
    if isinstance(relation, Join) and relation.kind == "INNER":
        changed["condition"] = None
    return replace(relation, **changed)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_relation_keeps_its_claims(
    shape: str, people: People, relation_of: Callable[[dpsql.Connection, str], Relation]
) -> None:
    relation = relation_of(people.connection, f"SELECT COUNT(*) FROM ({SHAPES[shape]}) AS q")
    facts = facts_of(relation)
    assert_claims(people.adversarial, relation, facts.any_row)
    assert_claims(people.adversarial, unfiltered(relation), facts.any_row)
    assert_claims(people.honest, relation, facts.surviving)


def assert_claims(raw: duckdb.DuckDBPyConnection, relation: Relation, known: Known) -> None:
    names = sorted(known)
    shown = ", ".join(f'"{name}"' for name in names)
    for row in raw.execute(f"SELECT {shown} FROM ({render(relation_sql(relation, names))})").fetchall():
        for name, value in zip(names, row, strict=True):
            assert is_claimed(value, known[name]), (name, value, known[name])


@pytest.mark.parametrize(
    "frame", ["CURRENT ROW AND 1 PRECEDING", "1 FOLLOWING AND CURRENT ROW", "UNBOUNDED FOLLOWING AND 1 FOLLOWING"]
)
def test_a_frame_that_ends_before_it_starts_is_refused(frame: str, people: People) -> None:
    """The engine would refuse it too, but after the charge."""
    inner = f"SELECT u, COUNT(*) OVER (PARTITION BY u ORDER BY d ROWS BETWEEN {frame}) AS c FROM t"
    with pytest.raises(dpsql.Unsupported, match="a frame ends after it starts"):
        people.connection.explain(f"SELECT COUNT(*) FROM ({inner}) AS q WHERE c > 0")


def test_what_is_found_once_is_found_for_each_knowledge() -> None:
    more = Call(FUNCTIONS["+"], (Column("x", Integer()), Literal(1, Integer())), Integer())
    few, many = ({"x": bounded(Integer(), 0, most, nullable=False)} for most in (5, 9))
    assert [kept_properties(more, known).high for known in (few, few, many, few)] == [6, 6, 10, 6]

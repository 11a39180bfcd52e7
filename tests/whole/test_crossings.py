"""Questions that cross features, asked without noise: the answer is plain DuckDB's in value, type and NULL-ness.

A question is written from bytes, one for each choice: types and constants, functions, aggregates within people and
tests of them, joins under declarations, NULLs in negated tests, totals, columns of frames, and SQL on top of answers.
The data respects what is declared, no bound bites, and epsilon is so large that all noise rounds to nothing. A refusal
is fine; a difference that docs/differences.md does not name fails, and the shortest question that shows it is printed.

By hand, as many as one likes:  DPSQL_EXAMPLES=20000 DPSQL_SEED=7 python -m pytest tests/whole/test_crossings.py -s
"""

from __future__ import annotations

import math
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pandas as pd
import pytest

import dpsql

EXAMPLES = int(os.environ.get("DPSQL_EXAMPLES", "240"))
SEED = os.environ.get("DPSQL_SEED", "crossings")
PARTS = 2
MORE = [pytest.param(part, marks=pytest.mark.long) for part in range(PARTS, 20)]
"""Ten times as many, by `make test-long`."""
CHOICES = 160
PEOPLE = 240
FEW = 12
"""A group of fewer rows may be hidden."""

# -- the world --------------------------------------------------------------------------------------------------------


def nullable(declared: Any) -> dict[str, Any]:
    return {**(declared if isinstance(declared, dict) else {"type": declared}), "nullable": True}


CITY = {"type": "text", "values": ["a", "b", "c"]}
DAY = {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]}
MOMENT = {"type": "timestamp", "bounds": ["2024-01-01 00:00:00", "2025-01-01 00:00:00"]}
PERSON = {
    "pid": "integer",
    "age": {"type": "integer", "bounds": [0, 120]},
    "city": nullable(CITY),
    "score": {"type": "double", "bounds": [-1, 2]},
    "rate": {"type": "decimal(6,2)", "bounds": [0, 10]},
    "ok": nullable("boolean"),
    "born": nullable(DAY),
    "name": nullable("text"),
}
VISIT = {
    "id": "integer",
    "person": "integer",
    "minutes": nullable({"type": "integer", "bounds": [0, 100]}),
    "fee": nullable({"type": "decimal(8,2)", "bounds": [-50, 50]}),
    "day": DAY,
    "moment": nullable(MOMENT),
    "kind": nullable(CITY),
}
FRAME = {
    "person": "integer",
    "ns": nullable(MOMENT),
    "late": MOMENT,
    "us": MOMENT,
    "sec": MOMENT,
    "f32": {"type": "double", "bounds": [0, 10]},
    "big": nullable({"type": "integer", "bounds": [0, 100]}),
    "cat": CITY,
    "txt": nullable("text"),
    "yes": "boolean",
    "dec": {"type": "decimal(3,2)", "bounds": [0, 9]},
}
PUBLIC = {"k": CITY, "n": nullable({"type": "integer", "bounds": [0, 100]}), "since": DAY}
DATA = f"""
    CREATE MACRO divide_safely(a, b) AS a / b;
    CREATE TABLE people (pid BIGINT PRIMARY KEY, age INTEGER, city VARCHAR, score DOUBLE, rate DECIMAL(6,2),
                         ok BOOLEAN, born DATE, name VARCHAR);
    INSERT INTO people SELECT i, i % 90, ['a', 'b', 'c', NULL][1 + i % 4], [0.1, 0.2, 0.3, 0.7, 0.0][1 + i % 5],
        [0.05, 0.06, 0.07, 0.10, 1.5][1 + i % 5], [true, false, NULL][1 + i % 3],
        CASE WHEN i % 7 > 0 THEN DATE '2024-02-27' + (i % 4)::INTEGER END, ['abc', 'Bcd', NULL, '', 'é'][1 + i % 5]
        FROM range({PEOPLE}) AS r(i);
    CREATE TABLE members AS FROM people WHERE pid % 3 > 0;
    CREATE TABLE visits (id BIGINT PRIMARY KEY, person BIGINT, minutes INTEGER, fee DECIMAL(8,2), day DATE,
                         moment TIMESTAMP, kind VARCHAR);
    INSERT INTO visits SELECT i, i % {PEOPLE - 40}, CASE WHEN i % 11 > 0 THEN i % 13 END,
        CASE WHEN i % 6 > 0 THEN [0.1, 0.2, 0.07, -1.25, 10][1 + i % 5] END, DATE '2024-02-27' + (i % 3)::INTEGER,
        CASE WHEN i % 9 > 0 THEN TIMESTAMP '2024-02-28 12:00:00' + INTERVAL 6 HOUR * (i % 5) END,
        ['a', 'b', 'c', NULL][1 + i // 3 % 4]
        FROM range({2 * PEOPLE}) AS r(i);
    CREATE TABLE lines AS SELECT i % {2 * PEOPLE} AS visit, (i % 5)::BIGINT AS pieces FROM range({3 * PEOPLE}) AS r(i);
    CREATE TABLE pub AS SELECT * FROM (VALUES ('a', 1, DATE '2024-02-27'), ('b', 18, DATE '2024-02-28'),
        ('b', NULL, DATE '2024-02-29'), ('c', 65, DATE '2024-03-01')) AS rows(k, n, since);
"""


def frame() -> pd.DataFrame:
    """One row for each person, with a dtype in each column."""
    rows = range(PEOPLE)
    nanoseconds = ["2024-02-28 23:59:59.999999999", "2024-02-29 00:00:00", "2024-02-29 12:00:00.000000001", None]
    moments = pd.to_datetime(["2024-02-28 23:59:59", "2024-02-29 00:00:00", "2024-02-29 12:00:00"] * PEOPLE)[:PEOPLE]
    return pd.DataFrame(
        {
            "person": list(rows),
            "ns": pd.to_datetime([nanoseconds[i % 4] for i in rows], format="ISO8601").astype("datetime64[ns]"),
            "late": pd.to_datetime([nanoseconds[i % 3 // 2] for i in rows], format="ISO8601").astype("datetime64[ns]"),
            "us": moments.astype("datetime64[us]"),
            "sec": moments.astype("datetime64[s]"),
            "f32": pd.array([[0.1, 0.5, 2.25][i % 3] for i in rows], dtype="Float32"),
            "big": pd.array([[1, 2, None][i % 3] for i in rows], dtype="Int64"),
            "cat": pd.Categorical([["a", "b", "c"][i % 3] for i in rows]),
            "txt": pd.array([["abc", "Bcd", None][i % 3] for i in rows], dtype="string"),
            "yes": [i % 2 == 0 for i in rows],
            "dec": [Decimal([5, 6, 7, 150][i % 4]) / 100 for i in rows],
        }
    )


def declared_frame() -> pd.DataFrame:
    """The same as it is declared: all times in microseconds, all numbers with a point in doubles."""
    found = frame()
    return found.assign(
        ns=found["ns"].dt.floor("us").astype("datetime64[us]"),
        late=found["late"].dt.floor("us").astype("datetime64[us]"),
        sec=found["sec"].astype("datetime64[us]"),
        f32=found["f32"].astype("Float64"),
    )


SCHEMA: dict[str, Any] = {
    "dataset": "crossings",
    "contribution": {"max_groups": 60, "max_rows_per_group": 60},
    "tables": {
        "people": {"unit": "pid", "unique": True, "columns": PERSON},
        "members": {"unit": "pid", "unique": True, "columns": PERSON},
        "visits": {"unit": "person", "columns": VISIT},
        "lines": {
            "unit": {"through": "visit", "to": "visits.id"},
            "columns": {"visit": "integer", "pieces": {"type": "integer", "bounds": [0, 10]}},
        },
        "frame": {"unit": "person", "columns": FRAME},
        "pub": {"public": True, "columns": PUBLIC},
    },
}


class World:
    """The same data three times: plain, private in a database, and private in frames."""

    def __init__(self) -> None:
        self.plain = duckdb.connect()
        self.plain.execute("SET threads = 1")
        self.plain.execute(DATA)
        tables = SCHEMA["tables"]
        frames = {name: self.plain.table(name).to_arrow_table() for name in tables if name != "frame"}
        in_database = {**SCHEMA, "tables": {name: table for name, table in tables.items() if name != "frame"}}
        self.in_database = self.session(self.plain.cursor(), in_database)
        self.in_frames = self.session({**frames, "frame": frame()}, SCHEMA)
        self.plain.register("frame", declared_frame())

    def session(self, database: object, schema: dict[str, Any]) -> dpsql.Connection:
        return dpsql.connect(database, schema=schema, budget=1e18, delta=1e-6, query_epsilon=1e13)

    def private(self, sql: str) -> dpsql.Connection:
        return self.in_frames if "frame" in sql else self.in_database


@cache
def world() -> World:
    return World()


# -- questions --------------------------------------------------------------------------------------------------------

KINDS = {"integer": "n", "double": "f", "text": "s", "boolean": "b", "date": "d", "timestamp": "t"}
TABLES = {
    "people": ("pid", PERSON),
    "members": ("pid", PERSON),
    "visits": ("person", VISIT),
    "frame": ("person", FRAME),
}
CONSTANTS = {
    "n": ["1", "0", "2", "18", "-3", "100", "NULL"],
    "f": ["0.1::DOUBLE", "3e-1", "-0.0::DOUBLE", "7e-1", "1e0", "0e0"],
    "m": ["0.07", "0.06", "0.1", "1.5", "0.10", "-1.25", "10.00", "0.05", "3", "0.005"],
    "s": ["'a'", "'abc'", "''", "'B'", "NULL"],
    "b": ["TRUE", "FALSE", "NULL"],
    "d": ["DATE '2024-02-29'", "'2024-02-29'", "'2024-02-29 12:00:00'", "TIMESTAMP '2024-02-29 12:00:00'"],
    "t": ["TIMESTAMP '2024-02-29'", "'2024-02-29 12:00:00'", "DATE '2024-02-29'", "'2024-02-29'"],
}
REGRESSIONS = ("REGR_R2", "CORR", "COVAR_POP", "REGR_SLOPE")
PATTERNS = ("'a%'", "'_b%'", "'%'", "'abc'")
SIGNS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


WORDS = {
    "IFF(": "IF(",
    "NVL(": "COALESCE(",
    "SAFE_DIVIDE(": "divide_safely(",
    "TO_CHAR(": "STRFTIME(",
    "'YYYY-MM'": "'%Y-%m'",
    "'Mon DD'": "'%b %d'",
    "'Day HH24:MI'": "'%A %H:%M'",
    "'IYYY IW'": "'%G %V'",
}
"""What plain DuckDB calls words of other databases."""
MARKS = re.compile("[⟦⟧⟪⟫]")


@dataclass(frozen=True)
class Source:
    """Something to select from: its SQL, its unit, and its columns with their kinds."""

    sql: str
    unit: str
    columns: tuple[tuple[str, str], ...]

    def of(self, kind: str) -> list[str]:
        return [name for name, its in self.columns if its == kind]


@dataclass(frozen=True)
class Question:
    """`sums` says which columns may be 0 for NULL, `chosen` which are drawn: only their types are compared."""

    written: str
    """With divisors in marks, and doubles that are shown as text."""
    sums: frozenset[str] = frozenset()
    chosen: frozenset[str] = frozenset()
    explained: frozenset[str] = frozenset()
    """Which are REGR_R2 of what is no constant: NULL for 1 where y does not vary."""
    noisy: frozenset[str] = frozenset()
    """Which are ratios of spreads, or their roots: of a constant they are whatever the noise is."""
    hidden: bool = True
    """Whether a group of few may be missing."""
    plain: str | None = None
    """What DuckDB is asked instead; "" where dpsql has to refuse."""

    @property
    def sql(self) -> str:
        return MARKS.sub("", self.written)

    @property
    def plain_sql(self) -> str:
        """What DuckDB is asked: divided by zero is NULL, and zero has no sign."""
        asked = (self.plain or self.written).replace("⟦", "NULLIF(").replace("⟧", ", 0)")
        for word, plain in WORDS.items():
            asked = asked.replace(word, plain)
        return asked.replace("⟪", "(").replace("⟫", " + 0)")


def kind_of(declared: Any) -> str:
    name = declared["type"] if isinstance(declared, dict) else declared
    return KINDS.get(name, "m")


class Maker:
    """Writes a question from bytes; where they end, the first choice is taken."""

    def __init__(self, choices: bytes) -> None:
        self.choices = iter(choices)

    def pick(self, options: Any) -> Any:
        options = list(options)
        return options[next(self.choices, 0) % len(options)]

    def chance(self, percent: int) -> bool:
        return next(self.choices, 255) * 100 < percent * 256

    # -- expressions --------------------------------------------------------------------------------------------------

    def leaf(self, source: Source, kind: str) -> str:
        columns = source.of(kind)
        return str(self.pick(columns)) if columns and self.chance(75) else str(self.pick(CONSTANTS[kind]))

    def value(self, source: Source, kind: str, depth: int) -> str:
        if depth <= 0 or not self.chance(60):
            return self.leaf(source, kind)
        down: Callable[[str], str] = lambda k: self.value(source, k, depth - 1)  # noqa: E731
        general = [
            lambda: f"COALESCE({down(kind)}, {down(kind)})",
            lambda: f"NULLIF({down(kind)}, {down(kind)})",
            lambda: f"CASE WHEN {self.condition(source, depth - 1)} THEN {down(kind)} ELSE {down(kind)} END",
            lambda: f"{self.pick(['LEAST', 'GREATEST'])}({down(kind)}, {down(kind)})",
        ]
        own: dict[str, list[Callable[[], str]]] = {
            "n": [
                lambda: f"({down('n')} {self.pick('+-*%')} {down('n')})",
                lambda: f"({down('n')} // {down('n')})",
                lambda: f"LENGTH({down('s')})",
                lambda: (
                    f"{self.pick(['YEAR', 'MONTH', 'DAY'])}({self.pick([*source.of('t'), *source.of('d'), 'NULL'])})"
                ),
                lambda: f"DATE_DIFF('{self.pick(['day', 'hour'])}', {down('d')}, {down('d')})",
                lambda: f"CAST({down(self.pick('fmsb'))} AS {self.pick(['BIGINT', 'INTEGER'])})",
                lambda: f"ABS({down('n')})",
                lambda: f"EXTRACT({self.pick(['year', 'month', 'day', 'hour'])} FROM AGE({down('t')}, {down('t')}))",
                lambda: f"{self.pick(['EPOCH_MS', 'EPOCH_US', 'MILLISECOND'])}({down('t')})",
                lambda: f"DATE_PART('{self.pick(['isoyear', 'decade', 'century', 'doy'])}', {down('d')})",
                lambda: f"({down('n')} {self.pick(['<<', '>>'])} {self.pick([1, 3])})",
                lambda: f"STRPOS({down('s')}, 'b')",
                lambda: f"IFF({self.condition(source, depth - 1)}, {down('n')}, {down('n')})",
                lambda: f"NVL({down('n')}, {down('n')})",
            ],
            "f": [
                lambda: f"({down('f')} {self.pick('+-*')} {down(self.pick('fnm'))})",
                lambda: f"({down('f')} / ⟦{down(self.pick('fnm'))}⟧)",
                lambda: f"{self.pick(['FLOOR', 'CEIL', 'ROUND', 'ABS', 'SQRT'])}({down('f')})",
                lambda: f"CAST({down(self.pick('nms'))} AS DOUBLE)",
                lambda: f"({down('m')} / ⟦{down('m')}⟧)",
                lambda: f"({down('f')} {self.pick(['%', '//'])} ⟦{down(self.pick('fn'))}⟧)",
                lambda: f"FMOD({down('f')}, ⟦{down('f')}⟧)",
                lambda: f"EVEN({down(self.pick('fm'))})",
                lambda: f"SAFE_DIVIDE({down('f')}, ⟦{down('n')}⟧)",
            ],
            "m": [
                lambda: f"({down('m')} {self.pick('+-*')} {down(self.pick('mmn'))})",
                lambda: f"ROUND({down('m')}, {self.pick([1, 0, 2])})",
                lambda: f"ABS({down('m')})",
                lambda: f"({down('m')} % ⟦{down('m')}⟧)",
                lambda: f"CAST({down(self.pick('nfm'))} AS DECIMAL({self.pick(['8,2', '5,1', '12,4'])}))",
            ],
            "s": [
                lambda: f"{self.pick(['UPPER', 'LOWER', 'TRIM'])}({down('s')})",
                lambda: f"{down('s')}[{self.pick([1, 2, 3])}]",
                lambda: f"{self.pick(['UPPER', 'LOWER'])}({down('s')})[{self.pick([1, 2, 3])}]",
                lambda: f"({down('s')} || {down('s')})",
                lambda: f"CAST({down(self.pick('nbdtm'))} AS VARCHAR)",
                lambda: f"CAST(⟪{down('f')}⟫ AS VARCHAR)",
                lambda: f"SUBSTRING({down('s')}, {self.pick(['1, 2', '-2', '-2, 1', '0, 2', '2'])})",
                lambda: f"{down('s')}[{self.pick(['2:', ':-2', '-2:', '2:-1', '-3:2'])}]",
                lambda: f"{self.pick(['LEFT', 'RIGHT'])}({down('s')}, {self.pick([1, -1, 0, 2])})",
                lambda: f"SPLIT_PART({down('s')}, 'b', {self.pick([1, 2, -1, -2])})",
                lambda: f"REPEAT({down('s')}, 2)",
                lambda: f"TRANSLATE({down('s')}, 'ab', 'xy')",
                lambda: f"LPAD({down('s')}, 2, 'z')",
                lambda: f"STRFTIME({down('t')}, '{self.pick(['%a %-d', '%Y-W%V', '%j %p', '%b %y%%'])}')",
                lambda: f"TO_CHAR({down('t')}, '{self.pick(['YYYY-MM', 'Mon DD', 'Day HH24:MI', 'IYYY IW'])}')",
                lambda: f"CHR({self.pick([66, 233])})",
                lambda: f"NVL({down('s')}, {down('s')})",
            ],
            "d": [
                lambda: f"CAST({down('t')} AS DATE)",
                lambda: f"({down('d')} + 1)",
                lambda: f"LAST_DAY({down('d')})",
                lambda: f"TIME_BUCKET(INTERVAL '{self.pick(['10 days', '5 months', '2 weeks'])}', {self.day(source)})",
                lambda: f"CAST(({self.day(source)} + INTERVAL '1 month 3 days') AS DATE)",
                lambda: f"CAST(DATE_TRUNC('{self.pick(['decade', 'isoyear', 'week'])}', {self.day(source)}) AS DATE)",
            ],
            "t": [
                lambda: f"DATE_TRUNC('{self.pick(['day', 'hour', 'month'])}', {down('t')})",
                lambda: f"CAST({down('d')} AS TIMESTAMP)",
                lambda: f"({down('t')} + INTERVAL 1 DAY)",
                lambda: f"({down('t')} - INTERVAL '1 month 2 hours')",
                lambda: (
                    f"TIME_BUCKET(INTERVAL '{self.pick(['6 hours', '90 minutes', '3 days', '2 months'])}', {down('t')})"
                ),
            ],
            "b": [lambda: self.condition(source, depth - 1)],
        }
        return str(self.pick([*own[kind], *own[kind], *general])())

    def day(self, source: Source) -> str:
        """A date that is written as one."""
        return str(self.pick([*source.of("d"), "DATE '2024-02-29'"]))

    def spans(self, source: Source) -> str:
        """Lengths of time, compared."""
        span = self.pick(["1 day", "12 hours", "1 month", "1 month 2 days", "0 days", "-1 day"])
        moment: Callable[[], str] = lambda: self.value(source, "t", 1)  # noqa: E731
        return str(
            self.pick(
                [
                    f"AGE({moment()}, {moment()}) {self.pick(SIGNS[:6])} INTERVAL '{span}'",
                    f"AGE({self.day(source)}, {self.day(source)}) {self.pick(SIGNS[:6])} INTERVAL '{span}'",
                    f"({moment()} - {moment()}) {self.pick(SIGNS[:6])} INTERVAL '{span}'",
                    f"CAST({moment()} AS TIME) {self.pick(SIGNS[:6])} {self.pick(['TIME ', ''])}'12:00:00'",
                    f"CAST({moment()} AS TIME) BETWEEN '00:00:00' AND '18:00:00'",
                ]
            )
        )

    def spelled(self, source: Source) -> str:
        """Conditions in other words."""
        return str(
            self.pick(
                [
                    f"{self.value(source, 'n', 1)} {self.pick(SIGNS[:6])} '{self.pick([3, 0, 18])}'",
                    f"{self.value(source, 'n', 1)} IN ('1', '2', '18')",
                    f"{self.value(source, 'n', 1)} {self.pick(SIGNS[:6])} {self.pick(['ANY', 'ALL'])} ([1, 5, 18])",
                    f"{self.leaf(source, 'n')} {self.pick(SIGNS[:6])} {self.pick(['ANY', 'ALL'])} (SELECT n FROM pub)",
                    f"{self.value(source, 's', 1)} {self.pick(['LIKE', 'ILIKE', 'SIMILAR TO'])} {self.pick(PATTERNS)}",
                    f"({self.leaf(source, 'b')}) = 'true'",
                ]
            )
        )

    def zero(self, source: Source) -> str:
        """A double that is zero, or near it and rounded, in some rows or all."""
        number = self.leaf(source, "f")
        return str(self.pick([f"({number} * 0)", f"ROUND({number} / 10)", f"FLOOR({number})", f"ABS({number})"]))

    def kind(self, source: Source, kinds: str) -> str:
        return str(self.pick([kind for kind in kinds if source.of(kind)] or ["n"]))

    def condition(self, source: Source, depth: int = 1) -> str:
        kind = self.kind(source, "nmfsdt")
        value: Callable[[], str] = lambda: self.value(source, kind, depth)  # noqa: E731
        constant: Callable[[], str] = lambda: str(self.pick(CONSTANTS[kind]))  # noqa: E731
        found = self.pick(
            [
                lambda: f"{value()} {self.pick(SIGNS)} {value()}",
                lambda: f"{value()} {self.pick(SIGNS)} {constant()}",
                lambda: (
                    f"{value()} BETWEEN {constant()} {self.pick('+-') + ' 0.01' if kind == 'm' else ''} AND {value()}"
                ),
                lambda: f"{value()} {self.pick(['IN', 'NOT IN'])} ({constant()}, {constant()})",
                lambda: f"{value()} IS {self.pick(['NULL', 'NOT NULL'])}",
                lambda: self.membership(source),
                lambda: self.spans(source),
                lambda: self.spelled(source),
                lambda: f"({self.condition(source, 0)} {self.pick(['AND', 'OR'])} {self.condition(source, 0)})",
            ]
        )()
        return f"NOT ({found})" if self.chance(25) else f"({found})"

    def membership(self, source: Source) -> str:
        word = self.pick(["NOT IN", "IN"])
        kept = self.pick(["", " WHERE n > 100", " WHERE n IS NOT NULL", " WHERE k = 'b'"])
        match self.pick(["n", "s", "pair", "list", "unit"]):
            case "n":
                return f"{self.leaf(source, 'n')} {word} (SELECT n FROM pub{kept})"
            case "s":
                return f"{self.leaf(source, 's')} {word} (SELECT k FROM pub{kept})"
            case "pair":
                return f"({self.leaf(source, 's')}, {self.leaf(source, 'n')}) {word} (SELECT k, n FROM pub{kept})"
            case "list":
                pair = f"({self.leaf(source, 's')}, {self.leaf(source, 'n')})"
                return f"{pair} {word} (({self.leaf(source, 's')}, {self.leaf(source, 'n')}), ('a', 1))"
            case _:
                other = self.pick(["person FROM visits WHERE minutes > 100", "pid FROM members", "person FROM frame"])
                return f"{source.unit} {word} (SELECT {other})"

    # -- sources ------------------------------------------------------------------------------------------------------

    def table(self, name: str = "", alias: str = "") -> Source:
        name = name or self.pick(TABLES)
        unit, declared = TABLES[name]
        before = f"{alias}." if alias else ""
        columns = tuple(
            (before + column, kind_of(what)) for column, what in declared.items() if column not in ("id", unit)
        )
        return Source(f"{name} {alias}".strip(), before + unit, columns)

    def source(self) -> Source:
        kinds = [self.table, self.joined_public, self.joined, self.multiplied, self.totals, self.numbered, self.tested]
        return self.pick([self.table, *kinds])()  # type: ignore[no-any-return]

    def numbered(self) -> Source:
        """Some rows of each person, chosen by a window under its name."""
        one = self.table("visits")
        order = self.pick(["day, id", "id DESC", "minutes NULLS FIRST, id"])
        window = f"ROW_NUMBER() OVER (PARTITION BY {one.unit} ORDER BY {order}) AS place"
        sql = f"(SELECT *, {window} FROM visits QUALIFY place {self.pick(['= 1', '<= 2', '% 2 = 0'])}) q"
        return Source(sql, one.unit, (*one.columns, ("place", "n")))

    def tested(self) -> Source:
        one = self.table(alias="t")
        other = self.pick([("members", "pid"), ("visits", "person"), ("people", "pid")])
        join = self.pick(["SEMI JOIN", "ANTI JOIN"])
        return Source(f"{one.sql} {join} {other[0]} o ON o.{other[1]} = {one.unit}", one.unit, one.columns)

    def joined_public(self) -> Source:
        one = self.table(alias="t")
        meets = self.pick(
            [f"{self.leaf(one, 's')} = b.k", f"{self.leaf(one, 'n')} >= b.n", f"{self.leaf(one, 'd')} >= b.since"]
        )
        columns = (*one.columns, ("b.k", "s"), ("b.n", "n"), ("b.since", "d"))
        return Source(f"{one.sql} {self.pick(['', 'LEFT '])}JOIN pub b ON {meets}", one.unit, columns)

    def joined(self) -> Source:
        one, two = self.table(alias="t"), self.table(alias="v")
        more = f" AND {self.condition(two, 0)}" if self.chance(40) else ""
        join = self.pick(["JOIN", "LEFT JOIN", "FULL JOIN"])
        unit = f"COALESCE({one.unit}, {two.unit})" if join == "FULL JOIN" else one.unit
        return Source(f"{one.sql} {join} {two.sql} ON {one.unit} = {two.unit}{more}", unit, one.columns + two.columns)

    def multiplied(self) -> Source:
        one = self.table(alias="t")
        match self.pick(["range", "values", "union", "lines"]):
            case "range":
                return Source(f"{one.sql} CROSS JOIN RANGE(3) AS r(i)", one.unit, (*one.columns, ("r.i", "n")))
            case "values":
                sql = f"{one.sql} JOIN (VALUES (0), (18), (65)) AS m(x) ON {self.leaf(one, 'n')} >= m.x"
                return Source(sql, one.unit, (*one.columns, ("m.x", "n")))
            case "union":
                plain = self.table()
                return Source(
                    f"(SELECT * FROM {plain.sql} UNION ALL SELECT * FROM {plain.sql}) t", plain.unit, plain.columns
                )
            case _:
                visits = self.table("visits", "v")
                sql = f"{visits.sql} JOIN lines l ON l.visit = v.id"
                return Source(sql, visits.unit, (*visits.columns, ("l.pieces", "n")))

    def totals(self) -> Source:
        """One row for each person: aggregates within the person, whose values are then tested, binned or grouped."""
        below = self.pick([self.table, self.table, self.joined_public, self.joined, self.multiplied])()
        unit = self.pick(
            [below.unit, f"{below.unit} + 0", f"CAST({below.unit} AS VARCHAR)"] if self.chance(30) else [below.unit]
        )
        where = f" WHERE {self.condition(below, 0)}" if self.chance(30) else ""
        if self.chance(15):
            return Source(f"(SELECT DISTINCT {unit} AS who FROM {below.sql}{where}) x", "who", (("who", "u"),))
        parts = [self.within(below) for _ in range(self.pick([1, 2]))]
        columns = tuple((f"v{number}", kind) for number, (_, kind) in enumerate(parts))
        shown = ", ".join(f"{sql} AS v{number}" for number, (sql, _) in enumerate(parts))
        having = (
            f" HAVING {parts[0][0]} {self.pick(SIGNS)} {self.pick(CONSTANTS[parts[0][1]])}" if self.chance(30) else ""
        )
        grouped = f"SELECT {unit} AS who, {shown} FROM {below.sql}{where} GROUP BY {unit}{having}"
        return Source(f"({grouped}) x", "who", columns)

    def within(self, below: Source) -> tuple[str, str]:
        """Sums of doubles only where a person has one row: DuckDB's own depend on the order of the rows. No sums of
        whole constants: DuckDB's have 128 bits, and are doubles beside decimals."""
        match self.pick(["SUM", "AVG", "COUNT", "MAX", "MIN"]):
            case "SUM" | "AVG" as name if below.of("f") and " " not in below.sql:
                return f"{name}({self.leaf(below, 'f')})", "f"
            case "SUM" if below.of("m"):
                return f"SUM({self.pick(below.of('m'))})", "m"
            case "AVG":
                return f"AVG({self.leaf(below, self.kind(below, 'nm'))})", "f"
            case "MAX" | "MIN" as name:
                kind = self.kind(below, "nmfsdt")
                return f"{name}({self.leaf(below, kind)})", kind
            case _:
                return self.pick(["COUNT(*)", f"COUNT({self.leaf(below, self.kind(below, 'nmsd'))})"]), "n"

    # -- questions ----------------------------------------------------------------------------------------------------

    def aggregate(self, source: Source) -> str:
        kept = f" FILTER (WHERE {self.condition(source, 1)})" if self.chance(25) else ""
        kind = self.kind(source, "nmf")
        choices = [
            lambda: "COUNT(*)",
            lambda: f"COUNT({self.value(source, self.kind(source, 'nmfsbdt'), 1)})",
            lambda: f"SUM({self.summed(source, kind)})",
            lambda: f"AVG({self.summed(source, kind)})",
            lambda: f"COUNT(DISTINCT {source.unit})",
            lambda: self.some_people(source),
            lambda: f"COUNT_IF({self.condition(source, 1)})",
            lambda: f"MEDIAN({self.leaf(source, self.kind(source, 'ndtfm'))})",
            lambda: f"{self.pick(['VAR_POP', 'STDDEV', 'VAR_SAMP'])}({self.leaf(source, kind)})",
            lambda: f"{self.pick(REGRESSIONS)}({self.pick([self.leaf(source, kind), '1'])}, {self.leaf(source, kind)})",
        ]
        return str(self.pick(choices)()) + kept

    def some_people(self, source: Source) -> str:
        condition = self.condition(source, 0)
        if self.chance(50):
            return f"COUNT(DISTINCT CASE WHEN {condition} THEN {source.unit} END)"
        return f"COUNT(DISTINCT {source.unit}) FILTER (WHERE {condition})"

    def summed(self, source: Source, kind: str) -> str:
        number = self.value(source, kind, 2)
        return number if self.chance(60) else f"LEAST(GREATEST({number}, -100), 100)"

    def key(self, source: Source) -> str:
        if self.chance(10):
            return f"CAST(⟪-{self.zero(source)}⟫ AS VARCHAR)"
        kind = self.kind(source, "sbnmfdt")
        return self.value(source, kind, 1)

    def question(self) -> Question:
        kinds = [*[self.grouped] * 8, *[self.rolled_up] * 3, self.options, self.kept, self.pivoted, self.clauses]
        return self.pick(kinds)()  # type: ignore[no-any-return]

    def kept(self) -> Question:
        """Public rows that an outer join keeps, beside more public rows or the same person's."""
        one = self.table("visits", "t")
        meets = self.pick(["t.kind = b.k", "t.minutes >= b.n", "t.day >= b.since"])
        more = self.pick(
            [
                "",
                "",
                " LEFT JOIN pub c ON c.k = b.k",
                " JOIN pub c ON c.n >= b.n",
                " LEFT JOIN pub c ON c.k = t.kind",
                " LEFT JOIN people p ON p.pid = t.person",
                " CROSS JOIN (VALUES (1), (2)) AS c(x)",
            ]
        )
        keys = self.pick([["b.k"], ["b.since"], ["b.k", "b.n"], ["b.k", "b.n IS NULL"]])
        column = self.leaf(one, self.pick("nmsd"))
        test = self.condition(one, 0)
        counted = self.pick(
            [
                f"COUNT({column})",
                f"SUM(CASE WHEN {column} IS NULL THEN 0 ELSE 1 END)",
                f"SUM(COALESCE({self.leaf(one, 'n')}, 0))",
                f"COUNT(CASE WHEN {test} THEN t.id END)",
                f"SUM(CASE WHEN {test} THEN 1 ELSE 0 END)",
                f"SUM(CASE WHEN {test} THEN {self.leaf(one, 'n')} END)",
            ]
        )
        names = [f"{key} AS k{number}" for number, key in enumerate(keys)]
        where = (
            f" WHERE {self.pick(['b.n IS NOT NULL', 't.minutes > 3', self.condition(one, 0)])}"
            if self.chance(30)
            else ""
        )
        shown = f"{', '.join(names)}, {counted} AS a0, COUNT(t.id) AS n"
        sql = f"SELECT {shown} FROM pub b LEFT JOIN {one.sql} ON {meets}{more}{where} GROUP BY ALL"
        return Question(sql, frozenset({"a0"}))

    def pivoted(self) -> Question:
        """A column for each value, listed or declared."""
        one = self.table(self.pick(["people", "visits", "frame"]))
        on = self.pick([name for name in one.of("s") if name in ("city", "kind", "cat")])
        key, number = self.pick(one.of("b") + one.of("d")), self.leaf(one, self.pick("nm"))
        where = self.pick(["", f" WHERE {self.condition(one, 0)}"])
        rows = f"SELECT {key} AS k0, {on} AS o, {number} AS x FROM {one.sql}{where}"
        call, values = self.pick(["COUNT(x)", "COUNT(*)"]), self.pick(["", " IN ('a', 'b', 'c')"])
        shown = "k0, a AS a0, b AS a1, c AS a2, a + b + c AS n"
        plain = ", ".join(f"{call} FILTER (WHERE o = '{value}') AS {value}" for value in "abc")
        return Question(
            f"SELECT {shown} FROM (PIVOT ({rows}) ON o{values} USING {call} GROUP BY k0)",
            plain=f"SELECT {shown} FROM (SELECT k0, {plain} FROM ({rows}) GROUP BY k0)",
        )

    def clauses(self) -> Question:
        """Two parts with an options clause each."""
        one, two = self.table(), self.table()
        parts = [f"COUNT(*) AS n FROM {source.sql} WHERE {self.condition(source, 0)}" for source in (one, two)]
        clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1e12)"
        asked, plain = (
            " UNION ALL ".join(f"SELECT {before}{number} AS k0, {part}" for number, part in enumerate(parts))
            for before in (f"{clause} ", "")
        )
        return Question(asked, plain=plain)

    def grouped(self) -> Question:
        source = self.source()
        keys = [f"{self.key(source)} AS k{number}" for number in range(self.pick([0, 1, 1, 2]))]
        aggregates = [f"{self.aggregate(source)} AS a{number}" for number in range(self.pick([1, 1, 2]))]
        where = f" WHERE {self.condition(source)}" if self.chance(50) else ""
        group = (
            f" GROUP BY {', '.join(f'k{number}' for number in range(len(keys)))} HAVING COUNT(*) > 0" if keys else ""
        )
        sql = f"SELECT {', '.join([*keys, *aggregates])}, COUNT(*) AS n FROM {source.sql}{where}{group}"
        found = Question(sql, *self.marks(aggregates))
        return self.finished(found, keys, aggregates) if self.chance(25) else found

    def marks(self, aggregates: list[str]) -> tuple[frozenset[str], ...]:
        def written_as(pattern: str) -> frozenset[str]:
            return frozenset(f"a{number}" for number, sql in enumerate(aggregates) if re.match(pattern, sql))

        noisy = written_as("STDDEV|CORR|REGR")
        return written_as("SUM|COUNT_IF"), written_as("MEDIAN"), written_as(r"REGR_R2\((?!1,)"), noisy

    def finished(self, below: Question, keys: list[str], aggregates: list[str]) -> Question:
        """More SQL over the answer."""
        steady = [f"a{number}" for number, sql in enumerate(aggregates) if sql.startswith("COUNT(")] + ["n"]
        names = [f"k{number}" for number in range(len(keys))]
        made = self.pick(
            [
                f"{self.pick(steady)} {self.pick(['+', '*', '/', '//', '%'])} {self.pick([2, 3, '0.1', '0.07'])}",
                f"CASE WHEN {self.pick(steady)} > 10 THEN 'many' ELSE 'few' END",
                f"{self.pick(steady)} IN (SELECT n FROM pub WHERE n > 1000)",
                f"CAST({self.pick(steady)} AS VARCHAR)[1]",
                # Zero has no sign here, so that it is taken off in both.
                f"UPPER(REPLACE(CAST({self.pick([*names, 'n'])} AS VARCHAR), '-0.0', '0.0'))[1]",
            ]
        )
        sql = f"WITH w AS ({below.written}) SELECT {', '.join([*names, f'{made} AS a9'])}, n FROM w"
        return Question(sql)

    def rolled_up(self) -> Question:
        source = self.pick([self.table, self.joined_public, self.multiplied])()
        one = self.pick(
            source.of("b") + [name for name in source.of("s") if name.endswith(("city", "kind", "cat", "k"))]
        )
        two = self.pick([one, *source.of("b"), f"COALESCE({one} IS NULL, TRUE)"])
        aggregate = self.some_people if self.chance(20) else self.aggregate
        aggregates = [f"{aggregate(source)} AS a{number}" for number in range(self.pick([1, 1, 2]))]
        how = self.pick(["ROLLUP (k0, k1)", "CUBE (k0, k1)", "ROLLUP (k0)", "GROUPING SETS ((k0), (k1), ())"])
        where = f" WHERE {self.pick([self.condition(source, 0), 'FALSE'])}" if self.chance(40) else ""
        keys = [f"{one} AS k0"] + ([f"{two} AS k1"] if "k1" in how else [])
        sql = f"SELECT {', '.join([*keys, *aggregates])}, COUNT(*) AS n FROM {source.sql}{where} GROUP BY {how}"
        return Question(sql, *self.marks(aggregates), hidden=False)

    def options(self) -> Question:
        clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column = {0})"
        if self.chance(50):
            return Question(f"SELECT {clause.format('n')} k, COUNT(*) AS n FROM pub GROUP BY k", plain="")
        source = self.table()
        asked = f"{self.aggregate(source)} AS a0, COUNT(*) AS n FROM {source.sql}"
        marks = self.marks([asked])
        return Question(f"SELECT {clause.format(source.unit)} {asked}", *marks, plain=f"SELECT {asked}")


# -- comparing --------------------------------------------------------------------------------------------------------


def difference(question: Question) -> str | None:
    """What is wrong with the answer; "" if it was refused, None if nothing is."""
    here = world()
    try:
        cursor = here.private(question.sql).execute(question.sql)
        names = [item[0] for item in cursor.description or ()]
        kinds, rows = [item[1] for item in cursor.description or ()], cursor.fetchall()
    except dpsql.Error as problem:
        return "charged, then refused" if isinstance(problem, dpsql.OperationalError) else ""
    if question.plain == "":
        return "answered, and had to be refused"
    try:
        plain = here.plain.execute(question.plain_sql)
        plain_kinds, wanted = [str(item[1]) for item in plain.description or ()], plain.fetchall()
    except duckdb.Error:
        return ""  # what DuckDB cannot run is nothing to compare with
    if not all(map(same_type, names, kinds, plain_kinds)):
        return f"types {kinds} for {plain_kinds}"
    return compare_rows(question, names, rows, wanted)


def same_type(name: str, kind: str, plain: str) -> bool:
    """A bare NULL has no type."""
    return plain == '"NULL"' or as_declared(name, kind) == as_declared(name, plain)


def as_declared(name: str, kind: str) -> str:
    """A schema has one type for all whole numbers, for their sums within a person too, which may be keys. Decimals
    made with whole numbers are as much wider as these are here."""
    if kind in ("TINYINT", "SMALLINT", "INTEGER") or (kind == "HUGEINT" and name.startswith("k")):
        return "BIGINT"
    return "VARCHAR" if kind.startswith("ENUM") else re.sub(r"DECIMAL\(\d+,", "DECIMAL(", kind)


def compare_rows(question: Question, names: list[str], rows: list[Any], wanted: list[Any]) -> str | None:
    keys = sum(name.startswith("k") for name in names)
    found = grouped_rows(rows, keys)
    for key, plain_rows in grouped_rows(wanted, keys).items():
        mine = found.pop(key, [])
        if not mine and question.hidden and all(row[-1] < FEW for row in plain_rows):
            continue
        if len(mine) > len(plain_rows) and not mine[-len(plain_rows) - 1][-1]:
            mine = mine[-len(plain_rows) :]  # the first are of nobody: public groups that are empty
        if are_neighbours(mine, plain_rows, keys):
            continue
        if len(mine) != len(plain_rows):
            return f"{len(mine)} rows for {plain_rows}"
        for row, plain_row in zip(mine, plain_rows, strict=True):
            if row[-1] != plain_row[-1] or (row[-1] and not same_row(question, names, row, plain_row)):
                return f"{row} for {plain_row}"
    extra = [row for group in found.values() for row in group if row[-1]]
    return f"{extra[0]} for nothing" if extra else None


def are_neighbours(mine: list[Any], plain_rows: list[Any], keys: int) -> bool:
    """Means within a person are rounded once here; those of DuckDB may be two doubles next to each other."""
    doubles = any(isinstance(part, float) for row in plain_rows for part in row[:keys])
    return (
        doubles and len(mine) < len(plain_rows) and sum(row[-1] for row in mine) == sum(row[-1] for row in plain_rows)
    )


def grouped_rows(rows: list[Any], keys: int) -> dict[tuple[str, ...], list[Any]]:
    found: dict[tuple[str, ...], list[Any]] = {}
    for row in sorted(rows, key=lambda row: (row[-1] or 0, repr(row))):
        found.setdefault(tuple(map(shown_key, row[:keys])), []).append(row)
    return found


def shown_key(value: object) -> str:
    """What has no value, as the root of -1, is NULL."""
    if isinstance(value, float):
        return repr(None) if math.isnan(value) else f"{value + 0.0:.12g}"
    return repr(value)


def same_row(question: Question, names: list[str], row: tuple[object, ...], plain_row: tuple[object, ...]) -> bool:
    for name, value, plain in zip(names, row, plain_row, strict=True):
        if name in question.chosen:
            continue
        if plain is None and name in question.sums and same(value, type(value)(0)):
            continue
        if isinstance(plain, float) and math.isnan(plain) and (value is None or name in question.noisy):
            continue
        if name in question.noisy and isinstance(value, float) and math.isclose(value, plain or 0, abs_tol=5e-3):
            continue
        if value is None and plain == 1.0 and name in question.explained:
            continue
        if type(value) is not type(plain) or not same(value, plain):
            return False
    return True


def same(value: Any, plain: Any) -> bool:
    """Doubles, and whole numbers beyond 2^40, are summed on a grid of 2^-30 of their range, and a deviation is the root
    of such a sum."""
    if isinstance(value, float):
        return math.isclose(value, plain, rel_tol=1e-6, abs_tol=1e-3)
    if isinstance(plain, int) and abs(plain) > 2**50:
        return math.isclose(value, plain, rel_tol=2**-30)
    return bool(value == plain)


# -- the test ---------------------------------------------------------------------------------------------------------


MOST_SHOWN = 10


def outcome(question: Question) -> str:
    found = difference(question)
    return "equal" if found is None else "different" if found else "refused"


SHRINKING = 80
"""How many shorter questions are tried for each difference."""


def shortest(choices: bytes) -> bytes:
    """The choices without what the difference does not need."""
    tries = iter(range(SHRINKING))
    size = len(choices) // 2
    while size:
        start = 0
        while start < len(choices) and next(tries, None) is not None:
            shorter = choices[:start] + choices[start + size :]
            if outcome(Maker(shorter).question()) == "different":
                choices = shorter
            else:
                start += size
        size //= 2
    return choices


def drawn(part: str, count: int) -> Iterator[bytes]:
    rng = random.Random(f"{SEED} {part}")
    return (rng.randbytes(CHOICES) for _ in range(count))


@pytest.mark.parametrize("part", [*range(PARTS), *MORE])
def test_crossed_features_answer_as_duckdb(part: int) -> None:
    outcomes: Counter[str] = Counter()
    different: dict[str, str] = {}
    for choices in drawn(str(part), EXAMPLES // PARTS):
        found = outcome(Maker(choices).question())
        outcomes[found] += 1
        if found == "different" and len(different) < MOST_SHOWN:
            question = Maker(shortest(choices)).question()
            different[question.sql] = difference(question) or ""
    print(f"seed {SEED!r}, part {part}: {dict(outcomes)}")
    assert not different, "\n".join(f"{sql}\n    {problem}" for sql, problem in different.items())
    assert outcomes["equal"] > 0.3 * outcomes.total(), outcomes

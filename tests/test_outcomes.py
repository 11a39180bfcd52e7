"""Nobody's row can change how a question ends: not whether it is answered, not what an error says, not what it costs,
not how long it takes.

A *pair* is one table twice, with and without the rows of one person, which are as odd as rows can be; both are opened
in the same way: a file, a connection that somebody has used before, CSV, Parquet, frames. Questions are drawn with
constants at the ends of every type, and most of them let that one person's rows through and nobody else's, so that what
they compute is computed for these or not at all. Both must end alike; an engine that fails after the charge is a fault
even where it fails on both; and a plain count and sum move no further than one person may move them.

By hand, as many as one likes, and from which on:

    DPSQL_EXAMPLES=20000 DPSQL_FIRST=0 python -m pytest -n 2 tests/test_outcomes.py
"""

from __future__ import annotations

import csv
import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any, TypeAlias

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.errors import Error, SealedExecutionError

EXAMPLES = int(os.environ.get("DPSQL_EXAMPLES", "120"))
FIRST = int(os.environ.get("DPSQL_FIRST", "0"))
PARTS = 4
"""The examples are split over tests, so that several processes can share them."""
QUESTIONS = 15
"""So many are asked of one pair."""
SLOWER, SECONDS = 20, 2.0
"""A question takes too long for one row when it takes so many times longer, and so much time at all."""
MEMORY = 6 * 2**30
"""No question may need more than this; machines differ in what they do then, so here it is an error."""

PERSON = 42
ROWS, MOST = 3, 20
TYPES = {
    "u": "BIGINT",
    "k": "BIGINT",
    "n": "BIGINT",
    "x": "DOUBLE",
    "y": "DOUBLE",
    "c": "DECIMAL(18,2)",
    "s": "VARCHAR",
    "z": "VARCHAR",
    "d": "DATE",
    "m": "TIMESTAMP",
    "b": "BOOLEAN",
}
SCHEMA: dict[str, Any] = {
    "dataset": "outcomes",
    "contribution": {"max_groups": 2, "max_rows_per_group": ROWS},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": {"type": "integer", "bounds": [0, MOST], "nullable": True},
                "n": {"type": "integer", "nullable": True},
                "x": {"type": "double", "bounds": [-10, 100], "nullable": True},
                "y": {"type": "double", "nullable": True},
                "c": {"type": "decimal(18,2)", "nullable": True},
                "s": {"type": "text", "nullable": True},
                "z": {"type": "text", "values": ["a", "b", "c"], "nullable": True},
                "d": {"type": "date", "nullable": True},
                "m": {"type": "timestamp", "nullable": True},
                "b": {"type": "boolean", "nullable": True},
            },
        }
    },
}

# -- rows -------------------------------------------------------------------------------------------------------------

ODD: dict[str, list[object]] = {
    "BIGINT": [None, 0, -1, 1, 7, 2**63 - 1, -(2**63), 2**62, -(2**62) - 1, 2**53 + 1],
    "DOUBLE": [None, 0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.8e308, -1e308, 2.0**63],
    "DECIMAL(18,2)": [None, "0.00", "-0.01", "9999999999999999.99", "-9999999999999999.99"],
    "VARCHAR": [
        *(None, "", "a", "b", " ", "x" * 20_000, '"', 'a"b', '"quoted, with a comma"', "two\nlines", "tab\there"),
        *(
            "null",
            "NaN",
            "9" * 40,
            "2024-02-30",
            "\U0001f600é\u0301",
            "\u202e",
            "\\",
            "'",
            ";",
            "a,b,c,d,e,f,g,h,i,j,k,l,m",
        ),
    ],
    "DATE": [None, "2024-02-29", "0001-01-01", "9999-12-31", "infinity", "-infinity", "5000-01-01 (BC)"],
    "TIMESTAMP": [
        None,
        "2024-02-29 23:59:59.999999",
        "0001-01-01 00:00:00",
        "294247-01-10 04:00:54.775806",
        "infinity",
    ],
    "BOOLEAN": [None, True, False],
}
PLAIN: dict[str, list[object]] = {
    "BIGINT": [0, 1, 2, 3, 5, 8],
    "DOUBLE": [0.5, 1.0, 2.25, 40.0],
    "DECIMAL(18,2)": ["0.50", "1.00", "12.25"],
    "VARCHAR": ["a", "b", "c", "anna"],
    "DATE": ["2024-01-05", "2024-02-29"],
    "TIMESTAMP": ["2024-01-05 10:00:00", "2024-02-29 23:00:00"],
    "BOOLEAN": [True, False],
}
Row = tuple[object, ...]


def made_rows(rng: random.Random) -> tuple[list[Row], list[Row]]:
    """The rows of everybody else, and those of the person."""
    others = [(person, *(rng.choice(PLAIN[kind]) for kind in list(TYPES.values())[1:])) for person in range(30)]
    odd = [
        (PERSON, *(rng.choice(ODD[kind]) for kind in list(TYPES.values())[1:]))
        for _ in range(rng.choice([1, 1, 1, 2, 5]))
    ]
    return others, odd


# -- sources ----------------------------------------------------------------------------------------------------------

HABITS = (
    "SET ieee_floating_point_ops = false",
    "SET integer_division = true",
    "SET default_null_order = 'nulls_first'",
    "SET threads = 1",
    "CREATE MACRO least(a, b) AS a",
    "CREATE MACRO greatest(a, b) AS a",
    "CREATE MACRO hash(a) AS 1",
    "CREATE MACRO isfinite(a) AS true",
    "CREATE MACRO round(a) AS a + 1e300",
    "ALTER TABLE t RENAME TO base; CREATE VIEW t AS SELECT * REPLACE (k * (SELECT count(*) FROM base) AS k) FROM base",
    "ALTER TABLE t RENAME TO base; CREATE VIEW t AS SELECT * REPLACE (CAST(s AS INTEGER) AS n) FROM base WHERE u > 40",
    "ALTER TABLE t RENAME TO base; CREATE VIEW t AS SELECT * REPLACE (sum(k) OVER () AS k) FROM base",
    "CREATE SCHEMA elsewhere; USE elsewhere",
)


def filled(connection: duckdb.DuckDBPyConnection, rows: list[Row]) -> duckdb.DuckDBPyConnection:
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})")
    marks = ", ".join(f"CAST(? AS {kind})" for kind in TYPES.values())
    connection.executemany(f"INSERT INTO t VALUES ({marks})", [list(row) for row in rows])
    return connection


def arrow(rows: list[Row], rng: random.Random) -> pa.Table:
    table = filled(duckdb.connect(), rows).sql("SELECT * FROM t").to_arrow_table()
    if rng.random() < 0.5:
        return table
    texts = [value.encode() if value is not None else None for value in table["s"].to_pylist()]
    broken = [b"\xff\xfe" if row[0] == PERSON else value for row, value in zip(rows, texts, strict=True)]
    binary = pa.array(broken, pa.binary())
    column = pa.StringArray.from_buffers(len(binary), binary.buffers()[1], binary.buffers()[2], binary.buffers()[0])
    return table.set_column(table.schema.get_field_index("s"), "s", column)


def with_connection(rows: list[Row], rng: random.Random, folder: Path) -> object:
    connection = filled(duckdb.connect(), rows)
    for habit in rng.sample(HABITS, rng.choice([0, 1, 1, 2])):
        try:
            connection.execute(habit)
        except duckdb.Error:
            continue
    return connection


def with_file(rows: list[Row], rng: random.Random, folder: Path) -> object:
    filled(duckdb.connect(str(folder / "t.duckdb")), rows).close()
    return folder / "t.duckdb"


def with_csv(rows: list[Row], rng: random.Random, folder: Path) -> object:
    """The person's rows come first, in the middle or last; long files are read in parts."""
    first = rng.choice([True, False])
    ordered = sorted(rows, key=lambda row: (row[0] == PERSON) != first)
    many = [(1000 + i, *row[1:]) for i, row in enumerate(rows * 200) if row[0] != PERSON] if rng.random() < 0.3 else []
    encoding = rng.choice(["utf-8", "utf-8", "latin-1"])
    with (folder / "t.csv").open("w", newline="", encoding=encoding, errors="replace") as file:
        writer = csv.writer(file)
        writer.writerow(TYPES)
        writer.writerows(["" if value is None else value for value in row] for row in [*ordered, *many])
    return folder / "t.csv"


def with_parquet(rows: list[Row], rng: random.Random, folder: Path) -> object:
    pq.write_table(arrow(rows, rng), folder / "t.parquet")
    return folder / "t.parquet"


def with_arrow(rows: list[Row], rng: random.Random, folder: Path) -> object:
    return {"t": arrow(rows, rng)}


def with_reader(rows: list[Row], rng: random.Random, folder: Path) -> object:
    return {"t": arrow(rows, rng).to_reader()}


def with_pandas(rows: list[Row], rng: random.Random, folder: Path) -> object:
    frame = pd.DataFrame(rows, columns=list(TYPES))
    frame["c"] = frame["c"].astype(float)
    for name in ("d", "m"):
        frame[name] = pd.to_datetime(frame[name], errors="coerce")
    for name in ("k", "n"):
        frame[name] = pd.array([row[list(TYPES).index(name)] for row in rows], dtype="Int64")
    if rng.random() < 0.5:
        frame["s"] = frame["s"].astype(object)
        frame.loc[frame["u"] == PERSON, "s"] = "\ud800"
    return {"t": frame}


def with_polars(rows: list[Row], rng: random.Random, folder: Path) -> object:
    return {"t": pl.from_arrow(arrow(rows, random.Random(0)))}


Opener: TypeAlias = Callable[[list[Row], random.Random, Path], object]
SOURCES: tuple[Opener, ...] = (
    *(with_connection, with_connection, with_file, with_file, with_csv, with_csv),
    *(with_parquet, with_arrow, with_reader, with_pandas, with_polars),
)

# -- questions --------------------------------------------------------------------------------------------------------

WHOLE = (0, 1, -1, 2, 3, 5, 2**31, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, -(2**63) + 1, 10**18)
REAL = ("0.0", "1.0", "-1.0", "0.5", "1.49999999999999", "1e308", "-1e308", "5e-324", "1e-300", "9.3e18")


@dataclass
class Words:
    """Writes one question from random choices."""

    rng: random.Random

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def whole(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.pick("k", "k", "n", "w", "a", str(self.rng.choice(WHOLE)))
        inner, number = self.whole(depth - 1), str(self.rng.choice(WHOLE))
        return self.pick(
            f"({inner} + {number})",
            f"({inner} - {number})",
            f"({inner} * {number})",
            f"({inner} * {self.whole(depth - 1)})",
            f"({inner} // {number})",
            f"({inner} % {number})",
            f"(-{inner})",
            f"ABS({inner})",
            f"ROUND({inner}, -3)",
            f"CAST({self.real(depth - 1)} AS BIGINT)",
            f"CAST({self.text(depth - 1)} AS BIGINT)",
            f"LENGTH({self.text(depth - 1)})",
            f"DATE_DIFF('{self.pick('day', 'month', 'second')}', {self.day(depth - 1)}, {self.day(depth - 1)})",
            f"{self.pick('YEAR', 'WEEK', 'DAYOFYEAR')}({self.day(depth - 1)})",
            f"WIDTH_BUCKET({inner}, 0, {abs(self.rng.choice(WHOLE)) + 1}, 5)",
            f"SIGN({self.real(depth - 1)})",
        )

    def fixed(self) -> str:
        """A value that may be known to be one number, moved and multiplied up: what is known of it must be true."""
        number = self.rng.choice((0, 1, 2, 3))
        inner = self.pick("k", "n", "w", "w", "a", "a", "CAST(y AS BIGINT)")
        least, most = f"GREATEST({inner}, {number})", f"LEAST({inner}, {number})"
        value = self.pick(f"LEAST({least}, {number})", least, most, inner)
        steps = self.rng.choice(((f"- {number}",), (), ("+ 1",)))
        big = [f"* {self.rng.choice((3, 4, 2**61, 2**62, 2**62 + 1))}" for _ in range(self.rng.choice((1, 2, 2, 3)))]
        for step in (*steps, *big):
            value = f"({value} {step})"
        return value

    def real(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.pick("x", "y", "c", self.pick(*REAL))
        inner = self.real(depth - 1)
        return self.pick(
            f"({inner} {self.pick('+', '-', '*', '/')} {self.pick(*REAL)})",
            f"({inner} {self.pick('+', '-', '*', '/')} {self.real(depth - 1)})",
            f"{self.pick('SQRT', 'LN', 'EXP', 'SIN', 'TAN', 'ASIN', 'ACOS', 'CBRT', 'LOG2', 'DEGREES')}({inner})",
            f"POWER({inner}, {self.pick(*REAL)})",
            f"ATAN2({inner}, {self.real(depth - 1)})",
            f"{self.pick('FLOOR', 'CEIL')}({inner})",
            f"ROUND({inner}, {self.pick('0', '2', '-2', '15')})",
            f"CAST({inner} AS DECIMAL(18,2))",
            f"CAST({self.text(depth - 1)} AS DOUBLE)",
            f"NULLIF({inner}, {self.pick(*REAL)})",
            f"({self.whole(depth - 1)} / {self.whole(depth - 1)})",
        )

    def text(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            return self.pick("s", "z", "s", "''", "'a'")
        inner = self.text(depth - 1)
        return self.pick(
            f"{self.pick('UPPER', 'LOWER', 'REVERSE', 'TRIM', 'MD5')}({inner})",
            f"({inner} || {self.text(depth - 1)})",
            f"SUBSTRING({inner}, {self.pick('1', '3', '10000')}, {self.pick('0', '1', '10000')})",
            f"REPLACE({inner}, 'a', 'bb')",
            f"LPAD({inner}, {self.pick('0', '5', '100')}, '*')",
            f"SPLIT_PART({inner}, ',', 2)",
            f"REGEXP_EXTRACT({inner}, '([a-z]+)', 1)",
            f"CAST({self.real(depth - 1)} AS VARCHAR)",
            f"CAST({self.day(depth - 1)} AS VARCHAR)",
        )

    def day(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            return self.pick("d", "m", "DATE '2024-01-31'", "DATE '9999-12-31'", "TIMESTAMP '0001-01-01 00:00:00'")
        inner = self.day(depth - 1)
        return self.pick(
            f"({inner} + INTERVAL {self.pick('1', '-1', '9000')} {self.pick('DAY', 'MONTH', 'YEAR')})",
            f"DATE_TRUNC('{self.pick('month', 'week', 'hour')}', {inner})",
            f"LAST_DAY({inner})",
            f"(d + {self.whole(depth - 1)})",
            f"MAKE_DATE({self.whole(depth - 1)}, {self.whole(depth - 1)}, 1)",
            f"CAST({self.text(depth - 1)} AS DATE)",
        )

    def test(self, depth: int) -> str:
        return self.pick(
            f"{self.fixed()} > 5",
            f"{self.fixed()} = 0",
            f"{self.whole(depth)} {self.pick('<', '=', '>=')} {self.rng.choice(WHOLE)}",
            f"{self.real(depth)} {self.pick('<', '=', '>=')} {self.pick(*REAL)}",
            f"{self.text(depth)} {self.pick('=', '<', 'LIKE')} 'a'",
            f"{self.day(depth)} > DATE '2024-01-01'",
            f"{self.text(depth)} IS NULL",
            f"CONTAINS({self.text(depth)}, 'a')",
            f"LEVENSHTEIN({self.text(depth)}, 'anna') < 3",
        )

    def value(self, depth: int) -> str:
        return self.rng.choice((self.whole, self.real, self.fixed_at))(depth)

    def fixed_at(self, depth: int) -> str:
        return self.fixed()

    def aggregate(self) -> str:
        held = f"LEAST(GREATEST({self.value(2)}, -5), 50)"
        return self.pick(
            "COUNT(*)",
            "MEDIAN(x)",
            "COUNT(DISTINCT u)",
            f"COUNT({self.value(2)})",
            f"COUNT(DISTINCT {self.text(1)})",
            f"COUNT_IF({self.test(2)})",
            f"SUM({held})",
            f"AVG({held})",
            f"STDDEV({held})",
            f"MEDIAN({held})",
            f"MEDIAN({self.pick('x', 'k')})",
            f"QUANTILE_CONT(x, {self.pick('0', '0.1', '0.99')})",
            f"MIN({held})",
            "MODE(z)",
            "SUM(CAST(y AS BIGINT), contribution_bounds_per_row => (0, 5))",
            f"CORR({held}, x)",
        )

    def source(self) -> str:
        """Rows with w, a whole number from a window, and a, one from an average of the same person."""
        frame = self.pick(
            "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
        )
        held = self.pick("LEAST(GREATEST(y, 1.49999999999999), 1.49999999999999)", "x", "LEAST(GREATEST(y, 0.5), 0.5)")
        window = self.pick(
            f"COUNT(*) OVER (PARTITION BY u ORDER BY k {frame})",
            f"COUNT(n) OVER (PARTITION BY u ORDER BY k {frame})",
            f"CAST(SUM(k) OVER (PARTITION BY u ORDER BY n {frame}) AS BIGINT)",
            "ROW_NUMBER() OVER (PARTITION BY u ORDER BY s)",
            "NTILE(3) OVER (PARTITION BY u ORDER BY x)",
        )
        rows = f"SELECT t.*, {window} AS w, CAST(AVG({held}) OVER (PARTITION BY u) AS BIGINT) AS a FROM t"
        means = f"SELECT u, CAST({self.pick('AVG', 'SUM', 'MAX')}({held}) AS BIGINT) AS a FROM t GROUP BY u"
        return self.pick(
            f"({rows})",
            f"({rows})",
            f"(SELECT t.*, 1 AS w, g.a FROM t JOIN ({means}) g ON g.u = t.u)",
            f"(SELECT t.*, 0 AS w, n AS a FROM t {self.pick('UNION ALL', 'EXCEPT', 'UNION')} SELECT t.*, 1, k FROM t)",
            f"(SELECT l.*, 2 AS w, r.n AS a FROM t l {self.pick('', 'LEFT ')}JOIN t r ON l.u = r.u AND l.k < r.n)",
        )

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"epsilon": self.rng.choice((1.0, 1.0, 1000.0, 0.01))}
        if self.rng.random() < 0.4:
            found["mechanism"] = self.pick("smooth", "smooth", "laplace", "gaussian", "exponential")
        if self.rng.random() < 0.4:
            found["max_rows_per_group"] = self.rng.choice((1, 1000, 2**31 - 1, 2**31 - 1))
        if self.rng.random() < 0.2:
            found["max_groups"] = self.rng.choice((1, 1000))
        return found

    def question(self) -> tuple[str, dict[str, Any]]:
        gate = self.pick(f"u = {PERSON} AND", f"u = {PERSON} AND", f"u = {PERSON} AND", "")
        where = f"WHERE {gate} {self.test(2)}" if self.rng.random() < 0.7 else f"WHERE {gate} true"
        keys = [self.pick("s", "z", self.text(1), self.whole(1), self.day(1), "b")] if self.rng.random() < 0.5 else []
        items = [*keys, *(self.aggregate() for _ in range(self.rng.choice((1, 1, 2))))]
        named = ", ".join(f"{item} AS o{number}" for number, item in enumerate(items))
        grouped = f" GROUP BY {', '.join(str(number + 1) for number in range(len(keys)))}" if keys else ""
        return f"SELECT {named} FROM {self.source()} {where}{grouped}", self.options()


# -- outcomes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What somebody sees who asks, but for the values, which have noise."""

    kind: str
    text: str
    columns: tuple[tuple[object, ...], ...]
    charge: tuple[float, float]
    seconds: float

    @property
    def seen(self) -> tuple[object, ...]:
        return self.kind, self.text, self.columns, self.charge


def asked(conn: dpsql.Connection, sql: str, options: dict[str, Any]) -> Outcome:
    before, started = conn.budget.spent, process_time()
    kind, text, columns = "answer", "", ()
    try:
        cursor = conn.execute(sql, **options)
        columns = tuple(tuple(part[:2]) for part in cursor.description or ())
        cursor.fetchall()
    except SealedExecutionError as problem:
        kind, text = "FAILED", str(problem)
    except Error as problem:
        kind, text = "refused", str(problem)
    except Exception as problem:
        kind, text = "BROKEN", f"{type(problem).__name__}: {problem}"
    after = conn.budget.spent
    charge = round(after.epsilon - before.epsilon, 3), round(after.delta - before.delta, 9)
    return Outcome(kind, text, columns, charge, process_time() - started)


def differences(with_person: Outcome, without: Outcome) -> Iterator[str]:
    for outcome in (with_person, without):
        if outcome.kind in ("FAILED", "BROKEN"):
            yield f"{outcome.kind}: {outcome.text[:300]}"
    if with_person.seen != without.seen:
        yield f"with the person {with_person.seen}, without {without.seen}"
    slow, quick = sorted((with_person.seconds, without.seconds), reverse=True)
    if slow > SECONDS and slow > SLOWER * max(quick, 0.05):
        yield f"{slow:.1f} s against {quick:.1f} s"


PLAIN_TOTALS = "SELECT COUNT(*), SUM(k) FROM t"


def moved(pair: Pair) -> Iterator[str]:
    """One person may add so many rows, and each of these so much."""
    counts = []
    for conn in (pair.full, pair.less):
        outcome = asked(conn, PLAIN_TOTALS, {"epsilon": 1e7})
        if outcome.kind != "answer":
            yield f"{PLAIN_TOTALS}: {outcome.kind} {outcome.text[:300]}"
            return
        counts.append(conn.execute(PLAIN_TOTALS, epsilon=1e7).fetchall()[0])
    (rows, total), (fewer, less) = counts
    if abs(rows - fewer) > ROWS:
        yield f"one person moved the count by {abs(rows - fewer)}"
    if abs(float(total) - float(less)) > ROWS * MOST + 1:
        yield f"one person moved the sum by {abs(float(total) - float(less))}"


@dataclass
class Pair:
    full: dpsql.Connection
    less: dpsql.Connection
    source: str


def source_of(number: int) -> Opener:
    return random.Random(f"source {number}").choice(SOURCES)


@contextmanager
def opened(number: int, folder: Path) -> Iterator[Pair | None]:
    """The pair of this number; None where the owner, who opens it, is told that it cannot be used."""
    rng = random.Random(f"pair {number}")
    others, odd = made_rows(rng)
    source, seed = source_of(number), rng.random()
    connections = []
    for name, rows in (("full", others + odd), ("less", others)):
        place = folder / f"{number}_{name}"
        place.mkdir()
        try:
            database = source(rows, random.Random(seed), place)
            connections.append(dpsql.connect(database, schema=SCHEMA, epsilon=1e12, delta=1e-4, ledger=":memory:"))
        except Error:
            break
    try:
        yield Pair(*connections, source.__name__) if len(connections) == 2 else None
    finally:
        for conn in connections:
            conn.close()


def found(first: int, count: int, folder: Path) -> tuple[list[str], int]:
    """What went wrong in these examples, and how many were answered."""
    faults, answered = [], 0
    for number in range(first // QUESTIONS, -(-(first + count) // QUESTIONS)):
        with opened(number, folder) as pair:
            if pair is None:
                continue
            faults += [f"pair {number} ({pair.source}): {fault}" for fault in moved(pair)]
            words = Words(random.Random(f"questions {number}"))
            for _ in range(QUESTIONS):
                sql, options = words.question()
                outcomes = asked(pair.full, sql, options), asked(pair.less, sql, options)
                answered += outcomes[0].kind == "answer"
                faults += [f"pair {number} ({pair.source}): {sql} {options}\n  {f}" for f in differences(*outcomes)]
    return faults, answered


BIG = 2**62
HELD = "LEAST(GREATEST(y, 1.49999999999999), 1.49999999999999)"
ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "an engine that multiplies constants first": (
        f"SELECT COUNT(*) FROM t WHERE u = {PERSON} AND LEAST(GREATEST(k, 0), 0) * {BIG} * 3 > 5",
        {},
    ),
    "a frame without rows": (
        "SELECT COUNT(*) FROM (SELECT u, COUNT(*) OVER (PARTITION BY u ORDER BY k ROWS BETWEEN 1 FOLLOWING AND"
        f" 2 FOLLOWING) AS w FROM t) WHERE u = {PERSON} AND (LEAST(w, 1) - 1) * {BIG} * 4 > 5",
        {},
    ),
    "an average that is rounded outwards": (
        f"SELECT COUNT(*) FROM (SELECT u, CAST(AVG({HELD}) AS BIGINT) AS a FROM t GROUP BY u)"
        f" WHERE u = {PERSON} AND (a - 1) * {BIG} * 4 > 5",
        {},
    ),
    "a long list for a hidden group": (
        f"SELECT s, MEDIAN(x) FROM t WHERE u = {PERSON} GROUP BY s",
        {"mechanism": "smooth", "max_rows_per_group": 2**31 - 1},
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("source", [with_file, with_arrow])
def test_attacks_end_alike(name: str, source: Opener, tmp_path: Path) -> None:
    sql, options = ATTACKS[name]
    pair_of = next(number for number in range(1000) if source_of(number) is source)
    with opened(pair_of, tmp_path) as pair:
        assert pair is not None
        outcomes = [asked(conn, sql, {"epsilon": 1.0} | options) for conn in (pair.full, pair.less)]
    assert not list(differences(*outcomes))


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_row_changes_how_a_question_ends(part: int, tmp_path: Path) -> None:
    each = -(-EXAMPLES // PARTS)
    faults, answered = found(FIRST + part * each, each, tmp_path)
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:5])
    assert answered > each // 10, "most questions were refused: this shows nothing"

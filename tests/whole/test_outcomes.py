"""Nobody's row can change how a question ends: not whether it is answered, not what an error says, not what it costs,
not how long it takes.

A *pair* is one database twice, with and without the rows of one person, which are as odd as rows can be; both are
opened in the same way: a file, a connection that somebody has used before, CSV, Parquet, frames. Questions are drawn
with constants at the ends of every type, and most of them let that one person's rows through and nobody else's, so that
what they compute is computed for these or not at all. Both must end alike; an engine that fails after the charge is a
fault even where it fails on both; and a plain count and sum move no further than one person may move them. That faults
of this kind are found is shown by test_outcomes_power.py.

By hand, as many as one likes, and from which on:

    DPSQL_EXAMPLES=20000 DPSQL_FIRST=0 python -m pytest -n 2 tests/whole/test_outcomes.py
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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

EXAMPLES = int(os.environ.get("DPSQL_EXAMPLES", "80"))
FIRST = int(os.environ.get("DPSQL_FIRST", "0"))
PARTS = 4
"""The examples are split over tests, so that several processes can share them."""
QUESTIONS = 15
"""So many are asked of one pair."""
SLOWER, SECONDS = 20, 2.0
"""A question takes too long for one row when it takes so many times longer, and so much time at all."""
HEADROOM = 8 * 2**30
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
TABLES: dict[str, dict[str, str]] = {
    "t": TYPES,
    "v": {"u": "BIGINT", "q": "BIGINT", "r": "VARCHAR"},
    "p": {"z": "VARCHAR", "seats": "BIGINT"},
}
"""Two of the same people, and a public one."""
PUBLIC: list[tuple[object, ...]] = [("a", 1), ("b", 2), ("b", 3), ("e", 2**62)]
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
        },
        "v": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "q": {"type": "integer", "nullable": True},
                "r": {"type": "text", "nullable": True},
            },
        },
        "p": {"public": True, "columns": {"z": "text", "seats": "integer"}},
    },
}

# -- rows -------------------------------------------------------------------------------------------------------------

ODD: dict[str, list[object]] = {
    "BIGINT": [None, 0, -1, 1, 7, 2**63 - 1, -(2**63), 2**62, -(2**62) - 1, 2**53 + 1],
    "DOUBLE": [None, 0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.8e308, -1e308, 2.0**63],
    "DECIMAL(18,2)": [None, "0.00", "-0.01", "9999999999999999.99", "-9999999999999999.99"],
    "VARCHAR": [
        *(None, "", "a", "b", " ", "x" * 20_000, '"', 'a"b', '"quoted, with a comma"', "two\nlines", "tab\there"),
        *('"open', 'a,"b', '"a" b'),
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


Tables = dict[str, list[Row]]


def drawn(rng: random.Random, person: int, table: str, values: dict[str, list[object]]) -> Row:
    return person, *(rng.choice(values[kind]) for kind in list(TABLES[table].values())[1:])


def made_rows(rng: random.Random) -> tuple[Tables, Tables]:
    """A database with the person, whose rows come first or last, and the same without."""
    full, less = {"p": PUBLIC}, {"p": PUBLIC}
    for table, others in (("t", 30), ("v", 20)):
        less[table] = [drawn(rng, person, table, PLAIN) for person in range(others)]
        odd = [drawn(rng, PERSON, table, ODD) for _ in range(rng.choice([1, 1, 1, 2, 5, 40, 600]))]
        full[table] = odd + less[table] if rng.random() < 0.5 else less[table] + odd
    return full, less


# -- sources ----------------------------------------------------------------------------------------------------------

SETTINGS = (
    *("ieee_floating_point_ops = false", "integer_division = true", "error_on_division_by_zero = true"),
    *("default_null_order = 'nulls_first'", "default_order = 'desc'", "default_collation = 'nocase'"),
    *("preserve_identifier_case = 'lowercase'", "max_expression_depth = 30", "threads = 1"),
    "preserve_insertion_order = false",
)
MACROS = (
    *("least(a, b) AS a", "greatest(a, b) AS a", "hash(a) AS 1", "isfinite(a) AS true", "abs(a) AS -a"),
    *("round(a) AS a + 1e300", "floor(a) AS error('floor')", "sqrt(a) AS error('sqrt')", "sign(a) AS 2"),
    *("count(a) AS 1000000", "sum(a) AS max(a) * 1000000", "list_extract(a, b) AS error('list')"),
)
OVER_BASE = "ALTER TABLE t RENAME TO base; CREATE VIEW t AS SELECT * REPLACE ({}) FROM base"
ELSEWHERE = (
    "CREATE SCHEMA elsewhere; "
    + "".join(f"CREATE TABLE elsewhere.{table} AS FROM {table}; " for table in TABLES)
    + "USE elsewhere; UPDATE main.t SET u = 1000 + rowid"
)
"""The tables are in the schema that is in use; in the other one every row is a person's of its own."""
HABITS = (
    *(f"SET GLOBAL {setting}" for setting in SETTINGS),
    *(f"CREATE MACRO {macro}" for macro in MACROS),
    OVER_BASE.format("k * (SELECT count(*) FROM base) AS k"),
    OVER_BASE.format("CAST(s AS INTEGER) AS n") + " WHERE u > 40",
    OVER_BASE.format("sum(k) OVER () AS k"),
    "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.t AS SELECT * FROM t LIMIT 0; USE elsewhere",
    ELSEWHERE,
)
"""What somebody may have done to a connection before it is given to us."""

QUOTE = '"'
Source: TypeAlias = tuple[object, dict[str, Any]]
"""What is connected to, and what the schema says of each table besides."""


def filled(connection: duckdb.DuckDBPyConnection, tables: Tables) -> duckdb.DuckDBPyConnection:
    for table, rows in tables.items():
        columns = TABLES[table]
        connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())})")
        marks = ", ".join(f"CAST(? AS {kind})" for kind in columns.values())
        values = [value for row in rows for value in row]
        connection.execute(f"INSERT INTO {table} VALUES {', '.join([f'({marks})'] * len(rows))}", values)
    return connection


def arrow(tables: Tables, rng: random.Random) -> dict[str, pa.Table]:
    connection = filled(duckdb.connect(), tables)
    found = {name: connection.sql(f"SELECT * FROM {name}").to_arrow_table() for name in tables}
    if rng.random() < 0.5:
        found["t"] = with_broken_text(found["t"])
    return found


def with_broken_text(table: pa.Table) -> pa.Table:
    texts = [value.encode() if value is not None else None for value in table["s"].to_pylist()]
    people = table["u"].to_pylist()
    broken = [b"\xff\xfe" if person == PERSON else text for person, text in zip(people, texts, strict=True)]
    binary = pa.array(broken, pa.binary())
    column = pa.StringArray.from_buffers(len(binary), binary.buffers()[1], binary.buffers()[2], binary.buffers()[0])
    return table.set_column(table.schema.get_field_index("s"), "s", column)


def with_connection(tables: Tables, rng: random.Random, folder: Path) -> Source:
    connection = filled(duckdb.connect(), tables)
    for habit in rng.sample(HABITS, rng.choice([0, 1, 1, 2])):
        try:
            connection.execute(habit)
        except duckdb.Error:
            continue
    return connection, {}


def with_file(tables: Tables, rng: random.Random, folder: Path) -> Source:
    filled(duckdb.connect(str(folder / "t.duckdb")), tables).close()
    return folder / "t.duckdb", {}


def with_csv(tables: Tables, rng: random.Random, folder: Path) -> Source:
    """Long files are read in parts. What an encoding does not have is a question mark."""
    options = {"encoding": rng.choice(["utf-8", "latin-1", "windows-1252"]), "line_breaks": rng.random() < 0.5}
    lines = rng.choice([quoted_line, quoted_line, bare_line])
    one_line, long = not options["line_breaks"] and rng.random() < 0.7, rng.random() < 0.3
    for name, rows in tables.items():
        others = [row for row in rows if row[0] != PERSON] * (200 if name == "t" and long else 0)
        many = [(1000 + number, *row[1:]) for number, row in enumerate(others)]
        with (folder / f"{name}.csv").open("w", newline="", encoding=options["encoding"], errors="replace") as file:
            for row in [list(TABLES[name]), *rows, *many]:
                texts = ["" if value is None else str(value) for value in row]
                file.write(lines([text.replace("\n", " ") if one_line else text for text in texts]) + "\n")
    return {name: folder / f"{name}.csv" for name in tables}, {"csv": options}


def quoted_line(texts: list[str]) -> str:
    return ",".join(f'"{text.replace(QUOTE, QUOTE * 2)}"' if set(text) & set(',"\n') else text for text in texts)


def bare_line(texts: list[str]) -> str:
    """As programs write it that know nothing of quotes."""
    return ",".join(texts)


def with_parquet(tables: Tables, rng: random.Random, folder: Path) -> Source:
    found = arrow(tables, rng)
    for name, table in found.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in found}, {}


def with_arrow(tables: Tables, rng: random.Random, folder: Path) -> Source:
    return arrow(tables, rng), {}


def with_reader(tables: Tables, rng: random.Random, folder: Path) -> Source:
    return {name: table.to_reader() for name, table in arrow(tables, rng).items()}, {}


def with_pandas(tables: Tables, rng: random.Random, folder: Path) -> Source:
    frames = {name: pd.DataFrame(rows, columns=list(TABLES[name])) for name, rows in tables.items()}
    for table, name in (("t", "k"), ("t", "n"), ("v", "q")):
        values = [row[list(TABLES[table]).index(name)] for row in tables[table]]
        frames[table][name] = pd.array(values, dtype="Int64")
    frame = frames["t"]
    frame["m"] = pd.to_datetime(frame["m"], format="ISO8601", errors="coerce")
    if rng.random() < 0.5:
        frame["s"] = frame["s"].astype(object)
        frame.loc[frame["u"] == PERSON, "s"] = "\ud800"
    return frames, {}


def with_polars(tables: Tables, rng: random.Random, folder: Path) -> Source:
    return {name: pl.from_arrow(table) for name, table in arrow(tables, random.Random(0)).items()}, {}


Opener: TypeAlias = Callable[[Tables, random.Random, Path], Source]
SOURCES: tuple[Opener, ...] = (
    *(with_connection, with_connection, with_file, with_file, with_csv, with_csv),
    *(with_parquet, with_arrow, with_reader, with_pandas, with_polars),
)

# -- questions --------------------------------------------------------------------------------------------------------

WHOLE = (0, 1, -1, 2, 3, 5, 2**31, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, -(2**63) + 1, 10**18)
REAL = ("0.0", "1.0", "-1.0", "0.5", "1.49999999999999", "1e308", "-1e308", "5e-324", "1e-300", "9.3e18")


@dataclass(frozen=True)
class Question:
    sql: str
    options: dict[str, Any]
    keyed: bool = False
    """Whether its first column is a key."""


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
            f"{self.text(depth)} {self.pick('LIKE', 'NOT LIKE', 'ILIKE')} '{self.pattern()}'",
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

    def frame(self) -> str:
        return self.pick(
            "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
        )

    def held(self) -> str:
        return self.pick("LEAST(GREATEST(y, 1.49999999999999), 1.49999999999999)", "x", "LEAST(GREATEST(y, 0.5), 0.5)")

    def means(self) -> str:
        return (
            f"SELECT u, CAST({self.pick('AVG', 'AVG', 'SUM', 'MAX')}({self.held()}) AS BIGINT) AS a FROM t GROUP BY u"
        )

    def pattern(self) -> str:
        """Many places at which a search that goes back could begin again."""
        return self.pick("%", "%_", "_%a") + self.pick("x%", "a%", "_%") * self.rng.choice((1, 4, 12))

    def multiplied(self) -> str:
        """One row becomes many: by lists, or by the other rows of its person, again and again."""
        numbers, lists = "bcde", self.rng.choice((1, 1, 2, 3, 4))
        sizes = [self.pick("2", "10", "1000", "100000", "100000000") for _ in range(lists)]
        crossed = " ".join(
            f"CROSS JOIN {self.pick('RANGE', 'GENERATE_SERIES')}(0, {size}) {name}(i{name})"
            for name, size in zip(numbers, sizes, strict=False)
        )
        joined = " ".join(f"JOIN t {name} ON {name}.u = t.u" for name in numbers[:lists])
        window = f"ROWS BETWEEN {self.pick('1', '1000', '100000000')} PRECEDING AND CURRENT ROW"
        moving = self.pick("MIN(n)", "COUNT(n)", "MAX(s)")
        return self.pick(
            f"(SELECT t.*, ib AS w, ib AS a FROM t {crossed})",
            f"(SELECT DISTINCT t.*, ib AS w, ib AS a FROM t {crossed})",
            f"(SELECT t.*, b.k AS w, b.n AS a FROM t {joined})",
            f"(SELECT DISTINCT t.*, b.k AS w, b.n AS a FROM t {joined})",
            f"(SELECT t.*, LENGTH(CAST({moving} OVER (PARTITION BY u ORDER BY k {window}) AS VARCHAR)) AS w, k AS a"
            " FROM t)",
        )

    def source(self) -> str:
        """Rows with two more whole numbers, w and a, of a window, a join, a set or a sum within one person."""
        if self.rng.random() < 0.2:
            return self.multiplied()
        window = self.pick(
            f"COUNT(*) OVER (PARTITION BY u ORDER BY k {self.frame()})",
            f"COUNT(n) OVER (PARTITION BY u ORDER BY k {self.frame()})",
            f"CAST(SUM(k) OVER (PARTITION BY u ORDER BY n {self.frame()}) AS BIGINT)",
            "ROW_NUMBER() OVER (PARTITION BY u ORDER BY s)",
            "NTILE(3) OVER (PARTITION BY u ORDER BY x)",
        )
        rows = f"SELECT t.*, {window} AS w, CAST(AVG({self.held()}) OVER (PARTITION BY u) AS BIGINT) AS a FROM t"
        return self.pick(
            f"({rows})",
            f"({rows})",
            f"(SELECT t.*, 1 AS w, g.a FROM t JOIN ({self.means()}) g ON g.u = t.u)",
            f"(SELECT t.*, 0 AS w, n AS a FROM t {self.pick('UNION ALL', 'EXCEPT', 'UNION')} SELECT t.*, 1, k FROM t)",
            f"(SELECT l.*, 2 AS w, r.n AS a FROM t l {self.pick('', 'LEFT ')}JOIN t r ON l.u = r.u AND l.k < r.n)",
            f"(SELECT t.*, q AS w, LENGTH(r) AS a FROM t {self.pick('', 'LEFT ')}JOIN v ON t.u = v.u AND q >= k)",
            f"(SELECT t.*, 0 AS w, k AS a FROM t WHERE u {self.pick('', 'NOT ')}IN (SELECT u FROM v WHERE q > 1))",
            f"(SELECT t.*, seats AS w, seats * k AS a FROM t {self.pick('', 'LEFT ')}JOIN p ON t.z = p.z)",
            "(SELECT t.*, n AS w, (SELECT SUM(q) FROM v WHERE v.u = t.u) AS a FROM t)",
        )

    def known(self) -> Question:
        """Counts a person for whom a number that seems to be known is another one, multiplied up beyond 64 bits."""
        number = self.rng.choice((0, 1, 1, 2))
        inner, known, rows = self.rng.choice(
            (
                (
                    self.pick(f"LEAST(w, {number})", "w"),
                    number,
                    f"SELECT u, COUNT(*) OVER (PARTITION BY u ORDER BY k {self.frame()}) AS w FROM t",
                ),
                ("a", 1, self.means()),
                (f"LEAST(GREATEST({self.pick('k', 'n')}, {number}), {number})", number, "SELECT u, k, n FROM t"),
            )
        )
        value = f"({inner} - {known}) * {2**62} * {self.rng.choice((3, 4))}"
        # Not every mechanism counts: a question that is refused finds nothing.
        options = {name: value for name, value in self.options().items() if name != "mechanism"}
        return Question(f"SELECT COUNT(*) FROM ({rows}) WHERE u = {PERSON} AND {value} > 5", options)

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"epsilon": self.rng.choice((1.0, 1.0, 1000.0, 0.01))}
        if self.rng.random() < 0.4:
            found["mechanism"] = self.pick("smooth", "smooth", "laplace", "gaussian", "exponential")
        if self.rng.random() < 0.4:
            found["max_rows_per_group"] = self.rng.choice((1, 1000, 2**31 - 1, 2**31 - 1))
        if self.rng.random() < 0.2:
            found["max_groups"] = self.rng.choice((1, 1000))
        return found

    def question(self) -> Question:
        if self.rng.random() < 0.15:
            return self.known()
        gate = self.pick(f"u = {PERSON} AND", f"u = {PERSON} AND", f"u = {PERSON} AND", "")
        where = f"WHERE {gate} {self.test(2)}" if self.rng.random() < 0.7 else f"WHERE {gate} true"
        keys = [self.pick("s", "z", self.text(1), self.whole(1), self.day(1), "b")] if self.rng.random() < 0.5 else []
        items = [*keys, *(self.aggregate() for _ in range(self.rng.choice((1, 1, 2))))]
        named = ", ".join(f"{item} AS o{number}" for number, item in enumerate(items))
        grouped = f" GROUP BY {', '.join(str(number + 1) for number in range(len(keys)))}" if keys else ""
        return Question(f"SELECT {named} FROM {self.source()} {where}{grouped}", self.options(), bool(keys))


# -- outcomes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What somebody sees who asks, but for the values, which have noise."""

    kind: str
    text: str
    columns: tuple[tuple[object, ...], ...]
    charge: tuple[float, float]
    keys: tuple[str, ...]
    """In the order in which they are shown. Which are shown is up to the noise."""
    seconds: float

    @property
    def seen(self) -> tuple[object, ...]:
        return self.kind, self.text, self.columns, self.charge


def asked(conn: dpsql.Connection, question: Question) -> Outcome:
    before, started = conn.budget.spent, process_time()
    kind, text, columns, keys = "answer", "", (), ()
    try:
        cursor = conn.execute(question.sql, **question.options)
        columns = tuple(tuple(part[:2]) for part in cursor.description or ())
        rows = cursor.fetchall()
        keys = tuple(repr(row[0]) for row in rows) if question.keyed else ()
    except SealedExecutionError as problem:
        kind, text = "FAILED", str(problem)
    except Error as problem:
        kind, text = "refused", str(problem)
    except Exception as problem:
        kind, text = "BROKEN", f"{type(problem).__name__}: {problem}"
    after = conn.budget.spent
    charge = round(after.epsilon - before.epsilon, 3), round(after.delta - before.delta, 9)
    return Outcome(kind, text, columns, charge, keys, process_time() - started)


def differences(with_person: Outcome, without: Outcome) -> Iterator[str]:
    for outcome in (with_person, without):
        if outcome.kind in ("FAILED", "BROKEN"):
            yield f"{outcome.kind}: {outcome.text[:300]}"
    if with_person.seen != without.seen:
        yield f"with the person {with_person.seen}, without {without.seen}"
    both = set(with_person.keys) & set(without.keys)
    first, second = ([key for key in outcome.keys if key in both] for outcome in (with_person, without))
    if first != second:
        yield f"keys in the order {first} with the person, {second} without"
    slow, quick = sorted((with_person.seconds, without.seconds), reverse=True)
    if slow > SECONDS and slow > SLOWER * max(quick, 0.05):
        yield f"{slow:.1f} s against {quick:.1f} s"


PLAIN_TOTALS = Question("SELECT COUNT(*), SUM(k) FROM t", {"epsilon": 1e7})


def moved(pair: Pair) -> Iterator[str]:
    """One person may add so many rows, and each of these so much."""
    counts = []
    for conn in (pair.full, pair.less):
        outcome = asked(conn, PLAIN_TOTALS)
        if outcome.kind != "answer":
            yield f"{PLAIN_TOTALS.sql}: {outcome.kind} {outcome.text[:300]}"
            return
        counts.append(conn.execute(PLAIN_TOTALS.sql, **PLAIN_TOTALS.options).fetchall()[0])
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
def opened(number: int, folder: Path, source: Opener | None = None) -> Iterator[Pair | None]:
    """The pair of this number; None where the owner, who opens it, is told that it cannot be used."""
    rng = random.Random(f"pair {number}")
    source = source or source_of(number)
    databases, seed = made_rows(rng), rng.random()
    connections = []
    for name, tables in zip(("full", "less"), databases, strict=True):
        place = folder / f"{number}_{name}"
        place.mkdir()
        try:
            database, declared = source(tables, random.Random(seed), place)
            schema = SCHEMA | {"tables": {name: table | declared for name, table in SCHEMA["tables"].items()}}
            connections.append(dpsql.connect(database, schema=schema, budget=1e12, delta=1e-4, ledger=":memory:"))
        except Error:
            break
    try:
        yield Pair(*connections, source.__name__) if len(connections) == 2 else None
    finally:
        for conn in connections:
            conn.close()


@dataclass
class Findings:
    asked: int = 0
    answered: int = 0
    faults: list[str] = field(default_factory=list)


def look(
    number: int, folder: Path, findings: Findings, questions: int = QUESTIONS, source: Opener | None = None
) -> None:
    """Asks questions of one pair."""
    with opened(number, folder, source) as pair:
        if pair is None:
            return
        findings.faults += [f"pair {number} ({pair.source}): {fault}" for fault in moved(pair)]
        words = Words(random.Random(f"questions {number}"))
        for _ in range(questions):
            question = words.question()
            outcomes = asked(pair.full, question), asked(pair.less, question)
            findings.asked += 1
            findings.answered += outcomes[0].kind == "answer"
            where = f"pair {number} ({pair.source}): {question.sql} {question.options}"
            findings.faults += [f"{where}\n  {fault}" for fault in differences(*outcomes)]


BIG = 2**62
HELD = "LEAST(GREATEST(y, 1.49999999999999), 1.49999999999999)"
ATTACKS = {
    "an engine that multiplies constants first": Question(
        f"SELECT COUNT(*) FROM t WHERE u = {PERSON} AND LEAST(GREATEST(k, 0), 0) * {BIG} * 3 > 5", {"epsilon": 1.0}
    ),
    "a frame without rows": Question(
        "SELECT COUNT(*) FROM (SELECT u, COUNT(*) OVER (PARTITION BY u ORDER BY k ROWS BETWEEN 1 FOLLOWING AND"
        f" 2 FOLLOWING) AS w FROM t) WHERE u = {PERSON} AND (LEAST(w, 1) - 1) * {BIG} * 4 > 5",
        {"epsilon": 1.0},
    ),
    "an average that is rounded outwards": Question(
        f"SELECT COUNT(*) FROM (SELECT u, CAST(AVG({HELD}) AS BIGINT) AS a FROM t GROUP BY u)"
        f" WHERE u = {PERSON} AND (a - 1) * {BIG} * 4 > 5",
        {"epsilon": 1.0},
    ),
    "a product that is infinite": Question(
        f"SELECT COUNT(*) FROM t WHERE u = {PERSON} AND (COALESCE(x, 1) + 20) * 1e308 * 1e308 > 5", {"epsilon": 1.0}
    ),
    "a long list for a hidden group": Question(
        f"SELECT s, MEDIAN(x) FROM t WHERE u = {PERSON} GROUP BY s",
        {"epsilon": 1.0, "mechanism": "smooth", "max_rows_per_group": 2**31 - 1},
    ),
    "all rows of a person beside each other, three times": Question(
        f"SELECT COUNT(*) FROM t JOIN t a ON a.u = t.u JOIN t b ON b.u = t.u WHERE t.u = {PERSON}"
        " AND t.k % 7 + a.k % 11 + b.k % 13 < 50",
        {"epsilon": 1.0},
    ),
    "a slow draw for a hidden group": Question(
        f"SELECT s, MEDIAN(x) FROM t WHERE u = {PERSON} GROUP BY s",
        {"epsilon": 0.001, "mechanism": "smooth", "max_rows_per_group": 1},
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("source", [with_file, with_arrow])
def test_attacks_end_alike(name: str, source: Opener, tmp_path: Path) -> None:
    with opened(0, tmp_path, source) as pair:
        assert pair is not None
        assert not list(differences(asked(pair.full, ATTACKS[name]), asked(pair.less, ATTACKS[name])))


def after(habit: str) -> Opener:
    def with_habit(tables: Tables, rng: random.Random, folder: Path) -> Source:
        connection = filled(duckdb.connect(), tables)
        connection.execute(habit)
        return connection, {}

    return with_habit


@pytest.mark.parametrize("habit", HABITS)
def test_every_habit_alone(habit: str, tmp_path: Path) -> None:
    findings = Findings()
    look(HABITS.index(habit), tmp_path, findings, questions=3, source=after(habit))
    assert not findings.faults


@pytest.mark.parametrize("source", sorted(set(SOURCES), key=SOURCES.index))
def test_every_source_can_be_opened(source: Opener, tmp_path: Path) -> None:
    for number in range(5):
        with opened(number, tmp_path, source) as pair:
            if pair is not None:
                return
    pytest.fail("nothing is asked of it")


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    # Beyond what the process has already: earlier tests leave engines and their reserves behind.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_row_changes_how_a_question_ends(part: int, tmp_path: Path) -> None:
    each = -(-EXAMPLES // PARTS)
    first, findings = FIRST + part * each, Findings()
    for number in range(first // QUESTIONS, -(-(first + each) // QUESTIONS)):
        look(number, tmp_path, findings)
    faults = findings.faults
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:5])
    assert findings.answered > each // 10, "most questions were refused: this shows nothing"

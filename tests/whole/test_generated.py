"""Random schemas, wild data and nested queries: nobody moves an accepted answer further than is claimed.

A *world* is a schema, a database that breaks what it declares, and each of its neighbours with the rows in another
order. It is made from a number, so that many queries share it. Queries are written from bytes that hypothesis draws:
trees of joins, subqueries, unions, aggregates within people, windows and tests, with expressions, keys and aggregates
on top. A query may be refused, by a dpsql error only; the SQL of one that is accepted runs everywhere and keeps its
claims.

As many as one likes, others each time:  DPSQL_EXAMPLES=50000 python -m pytest -n 2 tests/whole/test_generated.py
"""

from __future__ import annotations

import os
import random
import runpy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import dpsql
from dpsql.aggregates.measure import CountRows
from dpsql.aggregates.release import Bounded
from dpsql.aggregates.release_sql import ReleaseWriter
from dpsql.engine_sql.build import TRUE
from dpsql.engine_sql.tree import Field

BY_HAND = "DPSQL_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("DPSQL_EXAMPLES", "240"))
PARTS = 3
"""The examples are split over tests, so that several processes can share them; each part has worlds of its own."""
MORE = [pytest.param(part, marks=pytest.mark.long) for part in range(PARTS, 30)]
"""Ten times as many, by `make test-long`."""
WORLDS = 100 if BY_HAND else 6
CHOICES = 200
"""Bytes that an example is made of, one for each choice; one that needs more has the simplest from there on. Drawing
them together costs a tenth of drawing them one by one."""

check_neighbour = runpy.run_path(str(Path(__file__).parents[1] / "whole" / "test_neighbours.py"))["check_neighbour"]


# -- worlds -----------------------------------------------------------------------------------------------------------

INTEGERS = {
    "TINYINT": [-128, 127, 3, 0],
    "INTEGER": [-(2**31), 2**31 - 1, -1, 5, 21],
    "BIGINT": [2**63 - 1, -(2**63), -1, 4, 21],
    "HUGEINT": [2**126, -(2**126), 2**63, 11],
    "UBIGINT": [2**64 - 1, 0, 7],
}
ODD_NUMBERS = ["nan", "inf", "-inf", "-0.0", "0.0", "1e300", "-1e300", "5e-324", "0.1", "-2.5", "3"]
ODD_FLOATS = ["nan", "inf", "-inf", "-0.0", "0.0", "3e38", "1e-45", "0.1", "-2.5", "3"]
TEXTS = ["", "a", "A", "b", "é\x01'\"", "42", "1e999", "infinity", "-0.0", "2024-02-29", "x" * 300]
DAYS = ["infinity", "-infinity", "5874897-12-31", "5877642-06-25 (BC)", "2024-02-29", "2024-01-05", "0001-01-01"]
MOMENTS = ["infinity", "-infinity", "294247-01-10 04:00:54.775806", "2024-02-29 23:59:59.5", "2024-01-05 00:00:00"]
MOMENTS_NS = ["2262-04-11 23:47:16", "1677-09-22 00:12:44", "2024-02-29 23:59:59.5"]

# What is declared, the engine's type, and values to put in: some within what is declared, most not.
COLUMNS: list[tuple[Any, str, list[object]]] = [
    *(({"type": "integer", "bounds": [0, 20]}, kind, [*values, 1, 2, 3]) for kind, values in INTEGERS.items()),
    ({"type": "integer", "values": [1, 2, 5]}, "INTEGER", [1, 2, 5, 6, -1]),
    ({"type": "integer", "bounds": [-(10**12), 10**15]}, "BIGINT", [*INTEGERS["BIGINT"], 10**14, 10**12 + 1]),
    ("integer", "BIGINT", INTEGERS["BIGINT"]),
    ({"type": "double", "bounds": [0, 500]}, "DOUBLE", ODD_NUMBERS),
    ({"type": "double", "bounds": [-1.5, 1e9]}, "DOUBLE", ODD_NUMBERS),
    ({"type": "double", "bounds": [0, 45.5]}, "FLOAT", ODD_FLOATS),
    ("double", "DOUBLE", ODD_NUMBERS),
    ({"type": "decimal(10,2)", "bounds": [-5, 50]}, "DECIMAL(10,2)", ["-99999999.99", "99999999.99", "0.01", "7"]),
    ({"type": "text", "values": ["a", "b", "c"]}, "VARCHAR", ["a", "b", "c", *TEXTS]),
    ({"type": "text", "values": ["a", "A"]}, "VARCHAR COLLATE NOCASE", ["a", "A", "b"]),
    ("text", "VARCHAR", TEXTS),
    ("boolean", "BOOLEAN", [True, False]),
    ({"type": "date", "bounds": ["2024-01-01", "2024-03-01"]}, "DATE", DAYS),
    ("date", "DATE", DAYS),
    ({"type": "timestamp", "bounds": ["2024-01-01 00:00:00", "2024-01-03 12:00:00"]}, "TIMESTAMP", MOMENTS),
    ({"type": "timestamp", "bounds": ["2024-01-01 00:00:00", "2025-01-03 12:00:00"]}, "TIMESTAMP_NS", MOMENTS_NS),
]
SHORT = {"integer": "n", "double": "f", "decimal(10,2)": "f", "text": "s", "boolean": "b", "date": "d"}


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    """n whole numbers, f other numbers, s texts, b booleans, d dates, t timestamps."""
    role: str = ""
    """`unit`, or the key that a declared way to the unit compares."""


@dataclass
class Table:
    name: str
    declared: dict[str, Any]
    columns: list[Column]
    create: str
    rows: list[tuple[object, ...]]


class World:
    """Some tables of people and a public one, with every neighbour as a schema of one database."""

    def __init__(self, number: int) -> None:
        self.rng = rng = random.Random(f"world {number}")
        self.unit_kind, self.people = rng.choice([("text", ["p", "P", "q"]), ("integer", [1, 2, 3])])
        self.tables = {table.name: table for table in self.made_tables()}
        self.public = self.public_table()
        everything = [*self.tables.values(), self.public]
        bounds = {"max_groups": rng.randint(1, 3), "max_rows_per_group": rng.randint(1, 3)}
        declared = {table.name: table.declared for table in everything}
        create = ";".join(table.create for table in everything)
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 1")
        self.neighbours = [f"without_{i}" for i in range(len(self.people))]
        for name, gone in [("main", None), *zip(self.neighbours, self.people, strict=True)]:
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}; SET schema = '{name}'; {create}")
            for table in everything:
                self.fill(table, gone)
        schema = {"dataset": "generated", "contribution": bounds, "tables": declared}
        self.session = dpsql.connect(self.connection, schema=schema, budget=1e6, delta=1e-6, query_epsilon=1)

    # -- tables -------------------------------------------------------------------------------------------------------

    def made_tables(self) -> Iterator[Table]:
        unique = self.rng.random() < 0.5
        yield self.table("a", "u", unique=unique, key="PRIMARY KEY" if unique and self.rng.random() < 0.7 else "")
        if self.rng.random() < 0.8:
            yield self.table("b", "w", identified=True)
            if self.rng.random() < 0.7:
                yield self.table("c", None)

    def table(
        self, name: str, unit: str | None, *, unique: bool = False, key: str = "", identified: bool = False
    ) -> Table:
        """A table of people: `unit` is its column; without one a foreign key leads to table b."""
        rng = self.rng
        chosen = [rng.choice(COLUMNS) for _ in range(rng.randint(2, 4))]
        people = "VARCHAR" if self.unit_kind == "text" else rng.choice(["INTEGER", "BIGINT", "HUGEINT"])
        first: dict[str, tuple[Any, str]] = {unit: (self.unit_kind, f"{people} {key}")} if unit else {}
        if identified:
            first["id"] = ("integer", "BIGINT PRIMARY KEY")
        if unit is None:
            first["b_id"] = ("integer", "INTEGER")
        named = {f"{name}{i}": (self.declared(what), kind) for i, (what, kind, _) in enumerate(chosen)}
        roles = {unit: "unit", "id": "b.id", "b_id": "b.id"}
        columns = [
            Column(column, SHORT.get(kind_of(what), "t"), roles.get(column, ""))
            for column, (what, _) in {**first, **named}.items()
        ]
        declared: dict[str, Any] = {
            "unit": unit or {"through": "b_id", "to": "b.id"},
            "columns": {column: what for column, (what, _) in {**first, **named}.items()},
        }
        if unique:
            declared["unique"] = True
        rows = list(self.rows(list(first), chosen, once=unique, own_ids=identified, strict=bool(key)))
        return Table(name, declared, columns, create(name, {**first, **named}), rows)

    def declared(self, what: Any) -> Any:
        full = what if isinstance(what, dict) else {"type": what}
        return full | {"nullable": True} if self.rng.random() < 0.5 else full

    def rows(
        self, first: list[str], chosen: list[tuple[Any, str, list[object]]], *, once: bool, own_ids: bool, strict: bool
    ) -> Iterator[tuple[object, ...]]:
        rng = self.rng
        owners: list[object] = list(self.people)
        if not once:
            owners = [rng.choice([self.people[0], *self.people, None]) for _ in range(rng.randint(4, 12))]
        elif not strict and rng.random() < 0.5:
            owners += [self.people[0], None]  # what is declared unique need not be
        for number, owner in enumerate(owners):
            ids = {"id": number, "b_id": rng.choice([*range(6), None])}
            values = [None if rng.random() < 0.15 else rng.choice(values) for _, _, values in chosen]
            row = (*(ids.get(column, owner) for column in first), *values)
            yield row
            if not once and not own_ids and rng.random() < 0.3:
                yield row

    def public_table(self) -> Table:
        columns = {
            "k": ({"type": "text", "values": ["a", "b", "c"]}, "VARCHAR"),
            "k_n": ({"type": "integer", "bounds": [0, 20]}, "INTEGER"),
            "k_b": ("boolean", "BOOLEAN"),
        }
        rows: list[tuple[object, ...]] = [("a", 1, True), ("b", 2, False), ("b", 3, True), ("c", 20, False)]
        seen = [Column("k", "s"), Column("k_n", "n"), Column("k_b", "b")]
        declared = {"public": True, "columns": {column: what for column, (what, _) in columns.items()}}
        return Table("pub", declared, seen, create("pub", columns), rows)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def fill(self, table: Table, gone: object) -> None:
        """All rows but those of one person; where somebody is gone the others come in another order."""
        rows = table.rows if gone is None else [row for row in reversed(table.rows) if self.owner(table, row) != gone]
        if rows:
            values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows)
            self.connection.execute(f"INSERT INTO {table.name} VALUES {values}")

    def owner(self, table: Table, row: tuple[object, ...]) -> object:
        """Whose the row is."""
        by_name = dict(zip((column.name for column in table.columns), row, strict=True))
        if table.name != "c":
            return by_name.get("u", by_name.get("w"))
        return next((order[0] for order in self.tables["b"].rows if order[1] == by_name["b_id"]), None)

    def run(self, schema: str, release: Any) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
        """Columns with their types, and rows: the keys, then the measures."""
        self.connection.execute(f"SET schema = '{schema}'")
        found = self.connection.execute(release.sql)
        columns = [(item[0], str(item[1])) for item in found.description or ()]
        order = [name for name, _ in columns]
        places = [order.index(name) for name in (*release.keys, *(measure.column for measure in release.measures))]
        return [columns[place] for place in places], [tuple(row[i] for i in places) for row in found.fetchall()]


def kind_of(what: Any) -> str:
    return str(what["type"] if isinstance(what, dict) else what)


def create(name: str, columns: dict[str, tuple[Any, str]]) -> str:
    return f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, (_, kind) in columns.items())})"


def literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + str(value).replace("'", "''") + "'"


@cache
def world(number: int) -> World:
    return World(number)


# -- queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rel:
    """An item of FROM under an alias, and its columns by their full names."""

    sql: str
    columns: list[Column]
    private: bool = True

    @property
    def units(self) -> list[Column]:
        return [column for column in self.columns if column.role == "unit"]

    def of(self, *kinds: str) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]


class Maker:
    """Writes one query. Zero is the simplest choice everywhere, so that hypothesis makes failures small."""

    def __init__(self, choices: Iterator[int], world: World) -> None:
        self.choices = choices
        self.world = world
        self.names = 0
        self.tables = list(world.tables.values())

    def pick(self, items: Any) -> Any:
        return items[self.between(0, len(items) - 1)]

    def between(self, low: int, high: int) -> int:
        return low + next(self.choices, 0) % (high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.between(0, 99) >= 100 - percent

    def name(self, start: str) -> str:
        self.names += 1
        return f"{start}{self.names}"

    # -- FROM ---------------------------------------------------------------------------------------------------------

    def rel(self, depth: int) -> Rel:
        if depth <= 0:
            return self.table()
        return self.pick(
            [
                self.table,
                self.subquery,
                self.subquery,
                self.join,
                self.join,
                self.public_join,
                self.set_operation,
                self.per_unit,
                self.per_unit,
                self.window,
                self.distinct,
            ]
        )(*([depth - 1] if depth else []))

    def table(self, depth: int = 0) -> Rel:
        return self.aliased(self.pick(self.tables))

    def aliased(self, table: Table) -> Rel:
        alias = self.name("q")
        columns = [Column(f"{alias}.{column.name}", column.kind, column.role) for column in table.columns]
        return Rel(f"{table.name} AS {alias}", columns, table is not self.world.public)

    def select(self, source: Rel, items: list[tuple[str, Column]], rest: str = "", word: str = "SELECT") -> Rel:
        """(SELECT items FROM source rest) AS q; each item is its SQL, and what is known of it."""
        alias = self.name("q")
        named = [(sql, self.name("x"), column) for sql, column in items]
        listed = ", ".join(f"{sql} AS {name}" for sql, name, _ in named)
        columns = [Column(f"{alias}.{name}", column.kind, column.role) for _, name, column in named]
        return Rel(f"({word} {listed} FROM {source.sql}{rest}) AS {alias}", columns, source.private)

    def kept(self, source: Rel, most: int = 3) -> list[tuple[str, Column]]:
        """The unit nearly always, and some columns and expressions."""
        units = source.units[:1] if self.chance(95) else []
        others = [column for column in source.columns if column not in units]
        chosen = [self.pick(others) for _ in range(self.between(0, most))] if others else []
        items = [(column.name, column) for column in dict.fromkeys([*units, *chosen])]
        if self.chance(50):
            kind = self.pick("nfsbdt")
            items.append((self.expression(source, kind, 2), Column("", kind)))
        return items or [("1", Column("", "n"))]

    def subquery(self, depth: int) -> Rel:
        source = self.rel(depth)
        return self.select(source, self.kept(source), self.where(source, depth))

    def distinct(self, depth: int) -> Rel:
        source = self.rel(depth)
        return self.select(source, self.kept(source), self.where(source, depth), "SELECT DISTINCT")

    def single(self, depth: int) -> Rel:
        """A table or a subquery: nothing with a join of its own."""
        found = self.rel(depth)
        return self.select(found, self.kept(found)) if " JOIN " in outside(found.sql) else found

    def join(self, depth: int) -> Rel:
        left, right = self.rel(depth), self.single(depth)
        keys = [
            f"{mine.name} = {its.name}"
            for mine in left.columns
            for its in right.columns
            if mine.role and mine.role == its.role
        ]
        condition = self.pick(keys) if keys else "true"
        both = Rel(f"{left.sql}, {right.sql}", left.columns + right.columns)
        if self.chance(40):
            condition += f" AND {self.condition(both, 1)}"
        if self.chance(10):
            return self.select(both, self.kept(both), f" WHERE {condition}")
        if self.chance(15) and left.units and right.units:
            return self.using(left, right)
        word = self.pick(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        # Which columns still are the unit is for dpsql to know: here the generator only avoids what is refused.
        sides = {"LEFT JOIN": (True, False), "RIGHT JOIN": (False, True), "FULL JOIN": (False, False)}
        keep_left, keep_right = sides.get(word, (True, True))
        columns = without_roles(left.columns, keep_left) + without_roles(right.columns, keep_right)
        return Rel(f"{left.sql} {word} {right.sql} ON {condition}", columns)

    def using(self, left: Rel, right: Rel) -> Rel:
        """Both sides under one name of their unit."""
        name, sides = self.name("z"), []
        for side in (left, right):
            other, alias, value = self.pick(side.columns), self.name("q"), self.name("x")
            unit = Column(f"{alias}.{name}", side.units[0].kind, "unit")
            rows = f"(SELECT {side.units[0].name} AS {name}, {other.name} AS {value} FROM {side.sql}) AS {alias}"
            sides.append(Rel(rows, [unit, Column(f"{alias}.{value}", other.kind)]))
        word = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN"])
        kept = {"LEFT JOIN": sides[:1], "RIGHT JOIN": sides[1:]}.get(word, sides)
        columns = [column for side in sides for column in without_roles(side.columns, side in kept)]
        return Rel(f"{sides[0].sql} {word} {sides[1].sql} USING ({name})", columns)

    def public_join(self, depth: int) -> Rel:
        left, right = self.rel(depth), self.aliased(self.world.public)
        pairs = [(mine, its) for mine in left.of("s", "n") for its in right.columns if mine.kind == its.kind]
        condition = "{.name} = {.name}".format(*self.pick(pairs)) if pairs else "true"
        if self.chance(40):
            condition += f" AND {self.condition(Rel('', left.columns + right.columns), 1)}"
        if self.chance(20) and " JOIN " not in outside(left.sql):
            return Rel(f"{right.sql} JOIN {left.sql} ON {condition}", right.columns + left.columns)
        word = self.pick(["JOIN", "JOIN", "LEFT JOIN", "CROSS JOIN"])
        on = "" if word == "CROSS JOIN" else f" ON {condition}"
        return Rel(f"{left.sql} {word} {right.sql}{on}", left.columns + right.columns)

    def set_operation(self, depth: int) -> Rel:
        left, right = self.rel(depth), self.rel(depth)
        word = self.pick(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        kinds = [self.pick("nfsbdt") for _ in range(self.between(1, 2))]
        sides, unit = [], bool(left.units and right.units)
        names = [self.name("x") for _ in range(len(kinds) + 1)]
        for side in (left, right):
            items = [side.units[0].name] if unit else []
            items += [self.expression(side, kind, 1) for kind in kinds]
            listed = ", ".join(f"{sql} AS {name}" for sql, name in zip(items, names, strict=False))
            sides.append(f"SELECT {listed} FROM {side.sql}{self.where(side, 0)}")
        alias = self.name("q")
        found = ([Column("", left.units[0].kind, "unit")] if unit else []) + [Column("", kind) for kind in kinds]
        columns = [Column(f"{alias}.{name}", c.kind, c.role) for name, c in zip(names, found, strict=False)]
        return Rel(f"({sides[0]} {word} {sides[1]}) AS {alias}", columns)

    def per_unit(self, depth: int) -> Rel:
        source = self.rel(depth)
        if not source.units:
            return source
        keys = [(source.units[0].name, source.units[0])]
        if self.chance(40):
            kind = self.pick("nsbd")
            key = self.expression(source, kind, 1)
            if "." in key:  # a constant key fails: see FOUND
                keys.append((key, Column("", kind)))
        calls = [self.own_aggregate(source) for _ in range(self.between(1, 3))]
        rest = f"{self.where(source, depth)} GROUP BY {', '.join(sql for sql, _ in keys)}"
        if self.chance(30):
            rest += f" HAVING {self.own_aggregate(source, 'n')[0]} {self.pick(['>', '=', '<>'])} {self.number()}"
        return self.select(source, [*keys, *calls], rest)

    def own_aggregate(self, source: Rel, wanted: str = "") -> tuple[str, Column]:
        """An aggregate over the rows of one person, and the kind of its value."""
        kind = wanted or self.pick("nnfsbdt")
        value = self.expression(source, kind, 1)
        if kind == "b":
            return f"{self.pick(['BOOL_OR', 'BOOL_AND'])}({value})", Column("", "b")
        if kind == "n" and self.chance(50):
            what = self.pick(["*", value, f"DISTINCT {self.expression(source, self.pick('nfsd'), 1)}"])
            return f"COUNT({what})", Column("", "n")
        if kind in "nf" and self.chance(50):
            word = self.pick(["SUM", "AVG"])
            held = f"LEAST(GREATEST({value}, -3), 9)" if self.chance(70) else value
            return f"{word}({held})", Column("", "f" if word == "AVG" else kind)
        return f"{self.pick(['MIN', 'MAX'])}({value})", Column("", kind)

    def window(self, depth: int) -> Rel:
        source = self.rel(depth)
        if not source.units:
            return source
        partition = source.units[0].name
        if self.chance(30):
            partition += f", {self.expression(source, self.pick('nsbd'), 1)}"
        orders = [self.expression(source, self.pick("nfsdt"), 1) for _ in range(self.between(0, 2))]
        order = ", ".join(f"{sql}{self.pick(['', ' DESC', ' NULLS FIRST'])}" for sql in orders)
        over = f"OVER (PARTITION BY {partition}{' ORDER BY ' + order if order else ''})"
        choices = ["ROW_NUMBER()", "RANK()", "DENSE_RANK()", ""]
        word = self.pick(choices) if order else ""
        call, column = word, Column("", "n")
        if not word and self.chance(50):
            kind = self.pick("nfsd")
            value = self.expression(source, kind, 1)
            call, column = f"{self.pick(['LAG', 'LEAD', 'FIRST_VALUE', 'LAST_VALUE'])}({value})", Column("", kind)
        elif not word:
            call, column = self.own_aggregate(source)
        items = self.kept(source)
        if self.chance(30):
            test = f"{call} {over} IS NOT NULL" if column.kind != "n" else f"{call} {over} <= {self.number()}"
            return self.select(source, items, f"{self.where(source, 0)} QUALIFY {test}")
        return self.select(source, [*items, (f"{call} {over}", column)], self.where(source, 0))

    # -- WHERE --------------------------------------------------------------------------------------------------------

    def where(self, source: Rel, depth: int) -> str:
        parts = [self.condition(source, 2)] if self.chance(40) else []
        if self.chance(25):
            parts.append(self.test(source, depth))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def test(self, source: Rel, depth: int) -> str:
        """IN or EXISTS over rows of the same person, or over public ones."""
        negated = self.pick(["", "NOT "])
        texts = source.of("s")
        if texts and self.chance(30):
            return f"{self.pick(texts).name} {negated}IN (SELECT k FROM pub WHERE k_n > {self.number()})"
        other = self.single(min(depth, 1))
        if not (source.units and other.units):
            return "true"
        mine, its = self.pick(source.units).name, other.units[0].name
        if self.chance(50):
            return f"{mine} {negated}IN (SELECT {its} FROM {other.sql}{self.where(other, 0)})"
        both = Rel("", source.columns + other.columns)
        more = f" AND {self.condition(both, 1)}" if self.chance(60) else ""
        return f"{negated}EXISTS (SELECT 1 FROM {other.sql} WHERE {its} = {mine}{more})"

    def condition(self, source: Rel, depth: int) -> str:
        return self.expression(source, "b", depth)

    # -- expressions --------------------------------------------------------------------------------------------------

    def number(self) -> str:
        return str(self.pick([0, 1, 2, 3, 7, 20]))

    def constant(self, kind: str) -> str:
        match kind:
            case "n":
                return self.number()
            case "f":
                return str(self.pick(["0.5", "2.0", "-1.25", "10"]))
            case "s":
                return str(self.pick(["'a'", "'b'", "''", "'A'", "'42'"]))
            case "b":
                return str(self.pick(["true", "false"]))
            case "d":
                return str(self.pick(["DATE '2024-01-05'", "DATE '2024-02-29'"]))
            case _:
                return str(self.pick(["TIMESTAMP '2024-01-02 03:04:05'", "TIMESTAMP '2024-02-29 00:00:00'"]))

    def kind(self, source: Rel, kinds: str) -> str:
        """One of these that the source has a column of, if there is one."""
        return str(self.pick([kind for kind in kinds if source.of(kind)] or kinds))

    def leaf(self, source: Rel, kind: str) -> str:
        columns = source.of(kind)
        if columns and self.chance(85):
            return str(self.pick(columns).name)
        return self.constant(kind)

    def expression(self, source: Rel, kind: str, depth: int) -> str:
        if depth <= 0 or self.chance(30):
            return self.leaf(source, kind)
        below = {k: (lambda k=k: self.expression(source, k, depth - 1)) for k in "nfsbdt"}
        if self.chance(15):
            return self.choice(kind, below)
        match kind:
            case "n":
                return self.whole(below)
            case "f":
                return self.real(below)
            case "s":
                return self.text(below)
            case "b":
                return self.truth(source, below)
            case "d":
                return self.pick([below["d"], lambda: f"CAST({below['t']()} AS DATE)"])()
            case _:
                return f"DATE_TRUNC('{self.pick(['day', 'month', 'week', 'hour'])}', {below['t']()})"

    def choice(self, kind: str, below: dict[str, Callable[[], str]]) -> str:
        a, b = below[kind](), below[kind]()
        match self.between(0, 4):
            case 0:
                return f"CASE WHEN {below['b']()} THEN {a} ELSE {b} END"
            case 1:
                return f"COALESCE({a}, {b})"
            case 2:
                return f"NULLIF({a}, {b})"
            case 3 if kind in "nf":
                return f"{self.pick(['LEAST', 'GREATEST'])}({a}, {b})"
            case _:
                return f"CASE WHEN {below['b']()} THEN {a} END"

    def whole(self, below: dict[str, Callable[[], str]]) -> str:
        match self.between(0, 7):
            case 0 | 1 | 2:
                return f"({below['n']()} {self.pick(['+', '-', '*', '//', '%'])} {below['n']()})"
            case 3:
                return f"ABS({below['n']()})"
            case 4:
                return f"LENGTH({below['s']()})"
            case 5:
                return f"{self.pick(['YEAR', 'MONTH', 'DAY', 'DAYOFWEEK'])}({below[self.pick('dt')]()})"
            case 6:
                return f"CAST({below[self.pick('fsb')]()} AS BIGINT)"
            case _:
                return f"-({below['n']()})"

    def real(self, below: dict[str, Callable[[], str]]) -> str:
        match self.between(0, 6):
            case 0 | 1:
                return f"({below['f']()} {self.pick(['+', '-', '*'])} {below[self.pick('nf')]()})"
            case 2:
                return f"({below[self.pick('nf')]()} / {below[self.pick('nf')]()})"
            case 3:
                return f"{self.pick(['FLOOR', 'CEIL', 'TRUNC', 'ABS', 'ROUND'])}({below['f']()})"
            case 4:
                return f"{self.pick(['SQRT', 'LN', 'LOG10', 'LOG2'])}({below[self.pick('nf')]()})"
            case 5:
                return f"CAST({below[self.pick('ns')]()} AS DOUBLE)"
            case _:
                return f"POWER({below['f']()}, 2)"

    def text(self, below: dict[str, Callable[[], str]]) -> str:
        match self.between(0, 4):
            case 0:
                return f"{self.pick(['LOWER', 'UPPER', 'TRIM'])}({below['s']()})"
            case 1:
                return f"SUBSTRING({below['s']()}, 1, 2)"
            case 2:
                return f"({below['s']()} || {below['s']()})"
            case 3:
                return f"CAST({below[self.pick('nbdt')]()} AS VARCHAR)"  # not of doubles: see FOUND
            case _:
                return f"REPLACE({below['s']()}, 'a', 'b')"

    def truth(self, source: Rel, below: dict[str, Callable[[], str]]) -> str:
        kind = self.kind(source, "nnffssdt")
        match self.between(0, 6):
            case 0 | 1 | 2:
                sign = self.pick(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
                return f"({below[kind]()} {sign} {below[kind]()})"
            case 3:
                return f"({below[kind]()} IN ({self.constant(kind)}, {self.constant(kind)}))"
            case 4:
                return f"({below[kind]()} IS {self.pick(['', 'NOT '])}NULL)"
            case 5:
                return f"({below['b']()} {self.pick(['AND', 'OR'])} {below['b']()})"
            case _:
                return f"(NOT {below['b']()})"

    # -- the release --------------------------------------------------------------------------------------------------

    def query(self) -> str:
        named = self.with_query() if self.chance(20) else ""
        source = self.rel(self.pick([0, 1, 1, 2, 2, 3]))
        keys = [self.expression(source, self.kind(source, "nfssbdt"), 2) for _ in range(self.between(0, 2))]
        aggregates = [self.aggregate(source) for _ in range(self.between(1, 2))]
        items = [f"{sql} AS {self.name('k')}" for sql in keys] + [f"{sql} AS {self.name('m')}" for sql in aggregates]
        group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        return f"{named}SELECT {', '.join(items)} FROM {source.sql}{self.where(source, 1)}{group}"

    def with_query(self) -> str:
        """WITH name AS (...), and the name among the tables that may be read, once or several times."""
        found, name = self.pick([self.subquery, self.per_unit, self.set_operation, self.window])(1), self.name("w")
        if not found.sql.startswith("("):
            return ""
        columns = [Column(column.name.partition(".")[2], column.kind, column.role) for column in found.columns]
        self.tables += [Table(name, {}, columns, "", [])] * 3
        return f"WITH {name} AS {found.sql.rpartition(' AS ')[0]} "

    def aggregate(self, source: Rel) -> str:
        units = source.units
        match self.between(0, 9):
            case 0 | 1:
                return "COUNT(*)"
            case 2:
                return f"COUNT({self.expression(source, self.kind(source, 'nfsbdt'), 1)})"
            case 3 if units:
                return f"COUNT(DISTINCT {units[0].name})"
            case 4:
                return f"COUNT(DISTINCT {self.expression(source, self.kind(source, 'nfsdt'), 1)})"
            case 5:
                return f"COUNT(*) FILTER (WHERE {self.condition(source, 1)})"
            case 6:
                return f"SUM(DISTINCT {self.held(source)})"
            case 7:
                return f"{self.pick(['VAR_POP', 'STDDEV'])}({self.held(source)})"
            case 8:
                return f"{self.pick(['CORR', 'COVAR_POP'])}({self.held(source, 1)}, {self.held(source, 0)})"
            case _:
                return f"{self.pick(['SUM', 'SUM', 'AVG'])}({self.held(source)})"

    def held(self, source: Rel, depth: int = 2) -> str:
        value = self.expression(source, self.kind(source, "nf"), depth)
        return f"LEAST(GREATEST({value}, -3), {self.pick(['7', '0.5', '100'])})" if self.chance(70) else value


def outside(sql: str) -> str:
    """The text without what stands in parentheses."""
    depth, kept = 0, []
    for letter in sql:
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter != ")":
            kept.append(letter)
    return "".join(kept)


def without_roles(columns: list[Column], kept: bool) -> list[Column]:
    return columns if kept else [Column(column.name, column.kind) for column in columns]


# -- the test ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [*range(PARTS), *MORE])
def test_generated_queries_keep_their_claims(part: int) -> None:
    outcomes = ask_many(part, EXAMPLES // PARTS, [Phase.generate, Phase.shrink])
    print(dict(outcomes))
    assert outcomes["accepted"] > 0.5 * outcomes.total(), outcomes  # else it would test little


PLANTED = {
    "a unit counts in all of its groups": (ReleaseWriter, "is_first", lambda self, rank, most: TRUE),
    "all rows of a unit count": (CountRows, "bounded", lambda self, name, rows: Field(name)),
    "half of a bound is claimed": (Bounded, "l1", property(lambda self: self.l0 * self.linf // 2)),
}


@pytest.mark.parametrize(("place", "name", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(place: Any, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, name, fault)
    with pytest.raises(AssertionError):
        ask_many(0, 400, [Phase.generate])


def ask_many(part: int, examples: int, phases: list[Phase]) -> Counter[str]:
    """How many questions were accepted and refused; raises when one breaks its claims."""
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        derandomize=not BY_HAND,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
        report_multiple_bugs=False,
    )
    @given(choices=st.binary(min_size=CHOICES, max_size=CHOICES))
    def ask(choices: bytes) -> None:
        number, gone, *others = choices
        found = world(part * WORLDS + number % WORLDS)
        neighbour = found.neighbours[gone % len(found.neighbours)]
        sql = Maker(iter(others), found).query()
        note(f"world({part * WORLDS + number % WORLDS}), {neighbour}: {sql}")
        outcomes[check(found, neighbour, sql)] += 1

    ask()
    return outcomes


def check(found: World, neighbour: str, sql: str) -> str:
    try:
        releases = found.session.explain(sql, mechanism="laplace").releases  # half the work of comparing two
    except dpsql.Error:
        return "refused"
    for release in releases:
        whole, other = found.run("main", release), found.run(neighbour, release)
        if release.measures:
            check_neighbour(release, whole, other)
    return "accepted"


# -- what it found ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """One table t(u, x) of units, with the values of x; the last unit goes."""

    sql: str
    declared: Any
    kind: str
    values: list[object]
    unit: tuple[str, str] = ("integer", "BIGINT")
    units: tuple[object, ...] = (1, 1, 2)


FOUND = {
    "statistics of the engine reach outside of the bounds": Found(
        sql="SELECT COUNT(*) FROM t WHERE WEEK(x) = 1",
        declared={"type": "date", "bounds": ["2024-01-01", "2024-03-01"]},
        kind="DATE",
        values=["2024-01-01", "2024-01-02", "5877642-06-25 (BC)"],
    ),
    "a unit whose spelling the database ignores": Found(
        sql="SELECT x, COUNT(*) FROM (SELECT x, ROW_NUMBER() OVER (PARTITION BY u ORDER BY x) AS k FROM t)"
        " WHERE k = 2 GROUP BY x",
        declared={"type": "integer", "bounds": [0, 9]},
        kind="INTEGER",
        values=[2, 3, 1],
        unit=("text", "VARCHAR COLLATE NOCASE UNIQUE"),
        units=("bob", "BOB", "Bob"),
    ),
    "zero has two spellings": Found(
        sql="SELECT CAST(x AS VARCHAR) AS k, COUNT(*) FROM (SELECT DISTINCT u, x FROM t) GROUP BY k",
        declared={"type": "double", "bounds": [-5, 5]},
        kind="DOUBLE",
        values=["-0.0", "0.0", "1"],
    ),
    "a constant is a position to GROUP BY": Found(
        sql="SELECT COUNT(*) FROM (SELECT u, 2 AS two, COUNT(*) AS n FROM t GROUP BY u, two) WHERE n > 0",
        declared="integer",
        kind="INTEGER",
        values=[1, 2, 3],
    ),
    "bounds that the type of a cast cannot hold": Found(
        sql="SELECT SUM(CAST(x AS DECIMAL(5, 2))) FROM t",
        declared={"type": "double", "bounds": [0, 1e9]},
        kind="DOUBLE",
        values=[1, 2, 3],
    ),
    "distinct values in other groups than the rest": Found(
        sql="SELECT x IS NULL AS k, COUNT(*), COUNT(DISTINCT x) FROM t GROUP BY k",
        declared={"type": "integer", "bounds": [0, 9], "nullable": True},
        kind="INTEGER",
        values=[1, 2, None],
        units=(1, 2, 2),
    ),
    "years that Python does not have": Found(
        sql="SELECT COUNT(DISTINCT DATE_TRUNC('year', x)) FROM t",
        declared={"type": "date", "bounds": ["0001-01-01", "9999-12-31"]},
        kind="DATE",
        values=["2024-01-01", "2024-01-02", "2024-01-03"],
    ),
}


@pytest.mark.parametrize("found", FOUND.values(), ids=FOUND)
def test_what_it_found(found: Found) -> None:
    declared, kind = found.unit
    columns = {"u": declared, "x": found.declared}
    schema = {
        "dataset": "found",
        "contribution": {"max_groups": 1, "max_rows_per_group": 2},
        "tables": {"t": {"unit": "u", "columns": columns}},
    }
    whole, other = duckdb.connect(), duckdb.connect()
    rows = list(zip(found.units, found.values, strict=True))
    for connection, kept in ((whole, rows), (other, [row for row in rows[::-1] if row[0] != found.units[-1]])):
        connection.execute(f"SET threads = 1; CREATE TABLE t (u {kind}, x {found.kind})")
        for row in kept:
            connection.execute(f"INSERT INTO t VALUES ({', '.join(map(literal, row))})")
    (release,) = dpsql.connect(whole, schema=schema, budget=1, delta=1e-6).explain(found.sql).releases
    answers = []
    for connection in (whole, other):
        answer = connection.execute(release.sql)
        answers.append(([(item[0], str(item[1])) for item in answer.description or ()], answer.fetchall()))
    check_neighbour(release, *answers)


@pytest.mark.parametrize("combine", ["UNION ALL", "EXCEPT"])
def test_units_of_one_declared_type_and_two_of_the_engine(combine: str) -> None:
    """A name that is no UUID must not make the query fail."""
    table = {"unit": "u", "columns": {"u": "text"}}
    schema = {"contribution": {"max_rows_per_group": 1}, "tables": {"a": table, "b": table}}
    raw = duckdb.connect()
    raw.execute("CREATE TABLE a (u VARCHAR); CREATE TABLE b (u UUID); INSERT INTO a VALUES ('bob')")
    sql = f"SELECT COUNT(*) FROM (SELECT u FROM a {combine} SELECT u FROM b)"
    (release,) = dpsql.connect(raw, schema=schema, budget=1, delta=1e-6).explain(sql).releases
    assert raw.execute(release.sql).fetchall() == [(1,)]


def test_measures_stand_in_their_order() -> None:
    """Programs that read release.sql by position would give one measure the noise of another."""
    found = world(0)
    sql = "SELECT COUNT(DISTINCT a0) AS d, COUNT(*) AS n FROM a"
    (release,) = found.session.explain(sql).releases
    columns = [item[0] for item in found.connection.execute(release.sql).description or ()]
    assert columns == [measure.column for measure in release.measures]


def test_bounds_that_no_double_can_hold() -> None:
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t (u BIGINT, x DOUBLE)")
    columns = {"u": "integer", "x": {"type": "double", "bounds": [0, 1e200]}}
    connection = dpsql.connect(raw, schema={"tables": {"t": {"unit": "u", "columns": columns}}}, budget=1)
    with pytest.raises(dpsql.UnboundedColumn):
        connection.explain("SELECT SUM(x * x) FROM t")

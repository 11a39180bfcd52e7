"""Made-up rows for a schema: tame ones that respect what it declares, wild ones that hold whatever a column can hold.

They are made from declarations alone, never from data, and the same seed makes the same rows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.types import engine_type
from dpsql.engines.quoting import quoted
from dpsql.schema import types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.schema.column import Collected, Column
    from dpsql.schema.model import Schema
    from dpsql.schema.table import Table


Row = dict[str, object]
Tables = dict[str, list[Row]]

WILDNESS = 0.45
"""How often a wild value is not tame."""
WILD: Mapping[type, tuple[object, ...]] = {
    types.Integer: (2**63 - 1, -(2**63), -1, 121),
    types.Double: (float("nan"), float("inf"), float("-inf"), -0.0, 1e300, -1e300, 5e-324, 500.0000001),
    types.Decimal: (Decimal("0.01"), Decimal(-9)),
    types.Text: ("", "gift", "42", "1e999", "infinity", "5874897-12-31", "x" * 3000, "é\x01'\""),
    types.Boolean: (True, False),
    types.Date: ("infinity", "-infinity", "5874897-12-31", "5877642-06-25 (BC)", "2024-02-29"),
    types.Timestamp: ("infinity", "-infinity", "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00"),
}
WORDS = ("gift", "fragile", "express", "Gift", "42")


@dataclass(frozen=True)
class Maker:
    """Makes tables of a schema. `wild`: whether rows may hold what nobody declared."""

    schema: Schema
    random: random.Random
    wild: bool

    def tables(self, people: int, rows: int) -> Tables:
        """Some people have many rows, some the same row again and again; some rows are nobody's."""
        made: Tables = {}
        for name in self.schema.tables:
            self._make(name, people, rows, made)
        return {name: made[name] for name in self.schema.tables}

    def _make(self, name: str, people: int, rows: int, made: Tables) -> None:
        if name in made:
            return
        table, hops = self.schema.tables[name], self.schema.unit_path(name)
        if hops:
            self._make(hops[0].to_table, people, rows, made)
            reached = [row[hops[0].to_column] for row in made[hops[0].to_table]]
        made[name] = []
        for number in range(self._length(table, people, rows)):
            row = {column.name: self.value(column) for column in table.columns.values()}
            if hops:
                row[hops[0].column] = self.random.choice(reached) if reached else None
            elif table.unit_column is not None:
                row[table.unit_column] = self._owner(table, people, number)
            made[name].append(row | self._keys(name, number))

    def _length(self, table: Table, people: int, rows: int) -> int:
        if table.is_public:
            return 5
        return people if table.unique else people and rows

    def _owner(self, table: Table, people: int, number: int) -> object:
        column = table.columns[table.unit_column or ""]
        if table.unique:
            return unit_value(column, number)
        if self.wild and self.random.random() < 0.1:
            return None
        return unit_value(column, 0 if self.random.random() < 0.4 else self.random.randrange(people))

    def _keys(self, name: str, number: int) -> Row:
        """Columns that rows of other tables name are numbered, so that each of these has one owner."""
        paths = [self.schema.unit_path(other) for other in self.schema.tables]
        named = {hop.to_column for path in paths for hop in path if hop.to_table == name}
        table = self.schema.tables[name]
        return {column: unit_value(table.columns[column], number) for column in named - {table.unit_column}}

    def value(self, column: Column) -> object:
        if not self.wild or self.random.random() > WILDNESS:
            return self.tame(column)
        return self.random.choice((None, *WILD[type(column.stored_type)]))

    def tame(self, column: Column) -> object:
        """A value as declared. Doubles are multiples of 1/4, so that their sums are exact in any order."""
        if column.nullable and self.random.random() < 0.1:
            return None
        if column.collected is not None:
            return self.report(column.collected)
        if column.values is not None:
            return self.random.choice(column.values)
        low, high = column.bounds or DEFAULT_BOUNDS.get(type(column.type), (0, 20))
        return _between(column.type, low, high, self.random)

    def report(self, collected: Collected) -> object:
        if collected.is_bits:
            return self.random.randrange(2 ** len(collected.values))
        return self.random.choice(collected.values)


DEFAULT_BOUNDS: Mapping[type, tuple[Any, Any]] = {
    types.Date: (date(2020, 1, 1), date(2025, 1, 1)),
    types.Timestamp: (datetime(2020, 1, 1), datetime(2025, 1, 1)),
}


def _between(kind: types.ColumnType, low: Any, high: Any, chance: random.Random) -> object:
    match kind:
        case types.Integer():
            return chance.randint(low, high)
        case types.Double():
            return chance.randint(int(4 * low), int(4 * high)) / 4
        case types.Decimal():
            return Decimal(chance.randint(int(low), int(high)))
        case types.Boolean():
            return chance.random() < 0.5
        case types.Date():
            return low + timedelta(days=chance.randint(0, (high - low).days))
        case types.Timestamp():
            return low + timedelta(seconds=chance.randint(0, int((high - low).total_seconds())))
        case _:
            return chance.choice(WORDS)


def unit_value(column: Column, number: int) -> object:
    """The name of a person or a row: one of the declared values, or a number or text that says which it is."""
    if column.values is not None:
        return column.values[number % len(column.values)]
    if isinstance(column.type, types.Integer):
        low: Any = column.bounds[0] if column.bounds else 1
        return low + number
    return f"p{number}"


def people_of(schema: Schema, tables: Tables) -> list[object]:
    """Everybody who has a row."""
    owned = (
        (row[table.unit_column] for row in tables[name]) for name, table in schema.tables.items() if table.unit_column
    )
    return [person for person in dict.fromkeys(person for rows in owned for person in rows) if person is not None]


def without(schema: Schema, tables: Tables, person: object) -> Tables:
    """The neighbour: every row of one person gone, in every table, along every path."""
    gone = {name: set(_rows_of(schema, tables, name, person)) for name in tables}
    return {name: [row for i, row in enumerate(rows) if i not in gone[name]] for name, rows in tables.items()}


def _rows_of(schema: Schema, tables: Tables, name: str, person: object) -> Iterator[int]:
    table = schema.tables[name]
    if table.unit_column is not None:
        yield from (i for i, row in enumerate(tables[name]) if row[table.unit_column] == person)
        return
    for hop in schema.unit_path(name)[:1]:
        owned = {tables[hop.to_table][i][hop.to_column] for i in _rows_of(schema, tables, hop.to_table, person)}
        yield from (i for i, row in enumerate(tables[name]) if row[hop.column] in owned)


# Databases of made-up people, each with its neighbours: the same rows without those of one person.

SIZES = ((1, 6, True), (3, 30, True), (4, 24, False))
"""People, rows of a table, and whether they are wild."""

Answer = tuple[list[tuple[str, str]], list[tuple[Any, ...]]]
"""Names and types of the columns, and the rows."""


@dataclass(frozen=True)
class Database:
    raw: duckdb.DuckDBPyConnection
    engine: DuckDBEngine
    """The same rows, as questions see them."""


@dataclass(frozen=True)
class World:
    whole: Database
    neighbours: tuple[Database, ...]


def made_up_worlds(schema: Schema, seed: int) -> list[World]:
    return list(_worlds(schema, random.Random(seed)))


def _worlds(schema: Schema, chance: random.Random) -> Iterator[World]:
    for people, rows, wild in SIZES:
        tables = Maker(schema, chance, wild).tables(people, rows)
        fewer = [without(schema, tables, person) for person in people_of(schema, tables)]
        yield World(filled(schema, tables), tuple(filled(schema, left) for left in fewer))


def filled(schema: Schema, tables: Tables) -> Database:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in schema.tables.items():
        kinds = {part.name: engine_type(part.stored_type) for part in table.columns.values()}
        connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(f'{quoted(c)} {k}' for c, k in kinds.items())})")
        if tables[name]:
            one = f"({', '.join(f'CAST(? AS {kind})' for kind in kinds.values())})"
            values = [None if row[c] is None else str(row[c]) for row in tables[name] for c in kinds]
            connection.execute(f"INSERT INTO {quoted(name)} VALUES {', '.join([one] * len(tables[name]))}", values)
    return Database(connection, DuckDBEngine.open(connection, schema))


def answer(connection: duckdb.DuckDBPyConnection, sql: str | duckdb.Statement) -> Answer:
    found = connection.execute(sql)
    return [(item[0], str(item[1])) for item in found.description or ()], found.fetchall()

"""Synthetic rows for a schema: conforming ones, and adversarial ones with any value that a column can have.

They are made from declarations alone, never from data, and the same seed makes the same rows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

from dpsql.engines.base import engine_type
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.render import literal, quoted
from dpsql.errors import OperationalError
from dpsql.schema import types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.schema.model import Collected, Column, Schema, Table
    from dpsql.schema.types import ColumnType

Row = dict[str, object]
Tables = dict[str, list[Row]]

ADVERSITY = 0.45
"""How often an adversarial value does not conform."""
ADVERSARIAL: Mapping[type, tuple[object, ...]] = {
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
    """Makes tables for a schema. `adversarial`: whether rows may violate the schema."""

    schema: Schema
    random: random.Random
    adversarial: bool

    def tables(self, people: int, rows: int) -> Tables:
        """Tables where some people have many rows, some repeat the same row, and some rows have no person."""
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
        rows = people if self._is_unique(table) else people and rows
        listed = (table.columns[key].values for key in self.schema.link_targets(table.name))
        return min([rows, *(len(values) for values in listed if values is not None)])

    def _is_unique(self, table: Table) -> bool:
        """Whether everybody has one row."""
        return table.unique or table.unit_column in self.schema.link_targets(table.name)

    def _owner(self, table: Table, people: int, number: int) -> object:
        column = table.columns[table.unit_column or ""]
        if self._is_unique(table):
            return unit_value(column, number)
        if self.adversarial and self.random.random() < 0.1:
            return None
        return unit_value(column, 0 if self.random.random() < 0.4 else self.random.randrange(people))

    def _keys(self, name: str, number: int) -> Row:
        """Columns that rows of other tables name are numbered, so that each of these has one owner."""
        table, named = self.schema.tables[name], self.schema.link_targets(name)
        return {column: unit_value(table.columns[column], number) for column in named - {table.unit_column}}

    def value(self, column: Column) -> object:
        if not self.adversarial or self.random.random() > ADVERSITY:
            return self.conforming(column)
        return self.random.choice((None, *ADVERSARIAL[type(column.stored_type)]))

    def conforming(self, column: Column) -> object:
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
    """The identifier of a person or row: one of the declared values, or a distinct number or text."""
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
"""People, rows of a table, and whether they are adversarial."""

QueryResult = tuple[list[tuple[str, str]], list[tuple[Any, ...]]]
"""Names and types of the columns, and the rows."""


@dataclass(frozen=True)
class Database:
    raw: duckdb.DuckDBPyConnection
    engine: DuckDBEngine
    """The same rows, as questions see them."""


@dataclass(frozen=True)
class Neighbourhood:
    whole: Database
    neighbours: tuple[Database, ...]


def made_up_worlds(schema: Schema, seed: int) -> list[Neighbourhood]:
    return list(_worlds(schema, random.Random(seed)))


def _worlds(schema: Schema, chance: random.Random) -> Iterator[Neighbourhood]:
    for people, rows, adversarial in SIZES:
        tables = Maker(schema, chance, adversarial).tables(people, rows)
        fewer = [without(schema, tables, person) for person in people_of(schema, tables)]
        yield Neighbourhood(filled(schema, tables), tuple(filled(schema, left) for left in fewer))


def filled(schema: Schema, tables: Tables) -> Database:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in schema.tables.items():
        kinds = {part.name: engine_type(part.stored_type) for part in table.columns.values()}
        columns = [f"{quoted(column)} {kind}" for column, kind in kinds.items()]
        keys = [f"UNIQUE ({quoted(key)})" for key in sorted(schema.link_targets(name))]
        connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(columns + keys)})")
        if tables[name]:
            one = f"({', '.join(f'CAST(? AS {kind})' for kind in kinds.values())})"
            values = [None if row[c] is None else str(row[c]) for row in tables[name] for c in kinds]
            connection.execute(f"INSERT INTO {quoted(name)} VALUES {', '.join([one] * len(tables[name]))}", values)
    return Database(connection, DuckDBEngine.open(connection, schema))


def answer(connection: duckdb.DuckDBPyConnection, sql: str | duckdb.Statement) -> QueryResult:
    found = connection.execute(sql)
    return [(item[0], str(item[1])) for item in found.description or ()], found.fetchall()


# -- rows --------------------------------------------------------------------------------------------------------------
# Rows to ask the corpus of: *conforming* ones respect everything that a schema declares, *adversarial* ones
# have any value that a column can have. Both are made from the declared schema alone, the same for the same seed.

Rows = list[tuple[Any, ...]]
CaseTables = dict[str, Rows]
HUGE = (2**63 - 1, -(2**63))


def conforming_value(column: Column, rng: random.Random) -> object:
    """A value as declared. Doubles are multiples of 1/4, so that their sums are exact in any order."""
    if column.nullable and rng.random() < 0.1:
        return None
    if column.values is not None:
        return rng.choice(column.values)
    low: Any
    high: Any
    low, high = column.bounds or (None, None)
    match column.type.name.partition("(")[0]:
        case "integer":
            return rng.randint(low or 0, 100 if high is None else high)
        case "double":
            return rng.randint(int(4 * (low or 0)), int(4 * (5 if high is None else high))) / 4
        case "decimal":
            return Decimal(rng.randint(int(4 * (low or 0)), int(4 * (100 if high is None else high)))) / 4
        case "text":
            return rng.choice(["gift", "fragile", "express", "Gift", "42"])
        case "boolean":
            return rng.random() < 0.5
        case "date":
            return low + timedelta(days=rng.randint(0, (high - low).days))
        case _:
            return low + timedelta(seconds=rng.randint(0, int((high - low).total_seconds())))


def adversarial_value(column: Column, kind: str, rng: random.Random) -> object:
    """Anything that the database's own type can hold: far out of range, NaN, infinite, undeclared, NULL."""
    if rng.random() < 0.55:
        return conforming_value(column, rng)
    if rng.random() < 0.2:
        return None
    match kind.partition("(")[0]:
        case "TINYINT":
            return rng.choice([-128, 127, 3, 0])
        case "SMALLINT":
            return rng.choice([-32768, 32767, -1])
        case "INTEGER":
            return rng.choice([-(2**31), 2**31 - 1, -1, 121])
        case "BIGINT":
            return rng.choice([*HUGE, -1, 21])
        case "HUGEINT":
            return rng.choice([2**126, -(2**126), *HUGE, 11])
        case "FLOAT":
            return rng.choice([float("nan"), float("inf"), float("-inf"), -0.0, 3e38, -3e38, 1e-45, 45.00001])
        case "DOUBLE":
            return rng.choice(
                [float("nan"), float("inf"), float("-inf"), -0.0, 1e300, -1e300, 5e-324, 500.0000001, 0.1]
            )
        case "DECIMAL":
            return rng.choice([Decimal("-99999999.99"), Decimal("99999999.99"), Decimal("0.01")])
        case "VARCHAR":
            return rng.choice(["", "gift", "WEB", "42", "1e999", "infinity", "5874897-12-31", "x" * 3000, "é\x01'\""])
        case "BOOLEAN":
            return rng.random() < 0.5
        case "DATE":
            return rng.choice(["infinity", "-infinity", "5874897-12-31", "5877642-06-25 (BC)", "2024-02-29"])
        case _:
            return rng.choice(["infinity", "-infinity", "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00"])


# -- whole databases ---------------------------------------------------------------------------------------------------


class DeclaredTables(Protocol):
    """A schema, and the SQL that creates its tables."""

    @property
    def schema(self) -> Schema: ...

    @property
    def create(self) -> str: ...


def unit_values(schema: Schema, count: int) -> list[object]:
    """Names of people, of the type that the units of this schema have."""
    (kind,) = {table.columns[table.unit_column].type.name for table in schema.tables.values() if table.unit_column}
    return [f"p{number}" for number in range(count)] if kind == "text" else list(range(1, count + 1))


def conforming_tables(file: DeclaredTables, rng: random.Random, units: int) -> CaseTables:
    """Everybody has one row in a table of people and at most two in any other."""
    people = unit_values(file.schema, units)
    made: CaseTables = {}

    def rows(table: Table) -> Iterator[dict[str, object]]:
        for number, person in enumerate(people if table.unique else [p for p in people for _ in range(2)]):
            row = {name: conforming_value(column, rng) for name, column in table.columns.items()}
            yield (
                row
                | {leading_column(file.schema, table): person if table.unit_column else number}
                | own_key(file.schema, table, number)
                | referring(file.schema, table, made, person, rng)
            )

    for name, table in file.schema.tables.items():
        made[name] = public_rows(table, rng) if table.is_public else [tuple(row.values()) for row in rows(table)]
    return made


def leading_column(schema: Schema, table: Table) -> str:
    """The column that has the person, or leads to one."""
    return table.unit_column or schema.unit_path(table.name)[0].column


def referring(schema: Schema, table: Table, made: CaseTables, person: object, rng: random.Random) -> Row:
    """The keys of rows that a row may refer to: of the same person, if that one has any."""
    found: Row = {}
    for reference in table.references:
        target = schema.tables[reference.to_table]
        columns = list(target.columns)
        place = columns.index(leading_column(schema, target))
        one = rng.choice([row for row in made[target.name] if row[place] == person] or made[target.name] or [()])
        for mine, its in zip(reference.through, reference.to_columns, strict=True):
            is_null = not one or (table.columns[mine].nullable and rng.random() < 0.1)
            found[mine] = None if is_null else one[columns.index(its)]
    return found


def public_rows(table: Table, rng: random.Random) -> Rows:
    """One row for each value of the first column, which is a key."""
    first, *others = table.columns.values()
    assert first.values is not None
    return [(value, *(conforming_value(column, rng) for column in others)) for value in first.values]


def own_key(schema: Schema, table: Table, number: int) -> dict[str, object]:
    """Columns that identify a row: an id, and those that others refer to, unless they are of a small range."""
    references = [reference for other in schema.tables.values() for reference in other.references]
    named = {name for one in references if one.to_table == table.name for name in one.to_columns} | {"id"}
    return {
        name: number
        for name, column in table.columns.items()
        if name in named and name != table.unit_column and column.bounds is None
    }


def adversarial_tables(file: DeclaredTables, rng: random.Random, units: int, rows: int) -> CaseTables:
    """A few people, some with many rows or only one group; some rows without a person, some lines without an order."""
    people = unit_values(file.schema, units)
    kinds = column_kinds(file)
    heavy = people[0] if people else None
    made: CaseTables = {}
    for name, table in file.schema.tables.items():
        if table.is_public:
            made[name] = public_rows(table, rng)
            continue
        only = {column: adversarial_value(table.columns[column], kinds[name, column], rng) for column in table.columns}
        made[name] = []
        for number, person in enumerate(chosen_people(table, people, heavy, rows, rng)):
            row = {c: adversarial_value(column, kinds[name, c], rng) for c, column in table.columns.items()}
            if people and person == people[-1]:
                row = dict(only)  # this one has the same row again and again
            key = {leading_column(file.schema, table): person if table.unit_column else rng.randint(0, rows + 2)}
            named = referring(file.schema, table, made, heavy if number % 3 == 0 else person, rng)
            made[name].append(tuple((row | key | own_key(file.schema, table, number) | named).values()))
    return made


def chosen_people(table: Table, people: list[object], heavy: object, rows: int, rng: random.Random) -> Iterator[object]:
    if table.unique:
        yield from people
        if table.name == "members" and people:
            yield from [people[0], people[0], None]  # no constraint of the database forbids it
        return
    for _ in range(rows):
        yield heavy if rng.random() < 0.4 else rng.choice([*people, None])


def column_kinds(file: DeclaredTables) -> dict[tuple[str, str], str]:
    """The database's type of every column."""
    with duckdb.connect() as connection:
        connection.execute(file.create)
        found = connection.execute("SELECT table_name, column_name, data_type FROM duckdb_columns()").fetchall()
    return {(table, column): kind for table, column, kind in found}


def without_person(file: DeclaredTables, tables: CaseTables, person: object) -> CaseTables:
    """The neighbour: every row of one person gone, in every table, lines of the person's orders included."""
    schema = file.schema

    def position(table: str, column: str) -> int:
        return list(schema.tables[table].columns).index(column)

    def belongs(table: str, row: tuple[Any, ...]) -> bool:
        declared = schema.tables[table]
        if declared.is_public:
            return False
        if declared.unit_column:
            return bool(row[position(table, declared.unit_column)] == person)
        (hop,) = schema.unit_path(table)
        reached = [
            order
            for order in tables[hop.to_table]
            if order[position(hop.to_table, hop.to_column)] == row[position(table, hop.column)]
        ]
        return any(belongs(hop.to_table, order) for order in reached)

    return {name: [row for row in rows if not belongs(name, row)] for name, rows in tables.items()}


def fill_case(connection: duckdb.DuckDBPyConnection, file: DeclaredTables, tables: CaseTables) -> None:
    """Fills the tables from frames of texts, which DuckDB reads far faster than a long INSERT."""
    import pandas

    connection.execute(file.create)
    for name, rows in tables.items():
        texts = [[None if value is None else str(value) for value in row] for row in rows]
        frame = pandas.DataFrame(texts, columns=list(file.schema.tables[name].columns), dtype=object)
        connection.register("_texts", frame)
        connection.execute(f"INSERT INTO {name} SELECT * FROM _texts")
        connection.unregister("_texts")


# -- practice ----------------------------------------------------------------------------------------------------------
# A database of made-up people for a schema, to develop questions on: no budget is spent, and no private value is read.
#
# Everything follows from the declarations: values are drawn evenly from what each column may hold, some people have
# many rows and most have few, and keys lead from table to table as the schema says. Answers about them mean nothing.

ROWS_PER_PERSON = 4
PUBLIC_ROWS = 5
NULLS = 0.1
PRACTICE_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
PRACTICE_BOUNDS: dict[type, tuple[Any, Any]] = {
    types.Date: (date(2024, 1, 1), date(2025, 12, 31)),
    types.Timestamp: (datetime(2024, 1, 1), datetime(2025, 12, 31)),
}


def practice_database(schema: Schema, people: int, seed: int, path: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """The same seed makes the same people."""
    if path != ":memory:" and Path(path).exists():
        raise OperationalError(f"{path} already exists", hint="name another file, or delete it")
    connection = duckdb.connect(path)
    connection.execute("SET threads = 1")
    connection.execute(f"SELECT setseed({(seed % 1000) / 1000})")
    for name, table in schema.tables.items():
        columns = ", ".join(f"{written} AS {quoted(column)}" for column, written in _columns(schema, table, people))
        numbers = f"range({_length(schema, table, people)}) AS r(i)"
        kinds = [f"{quoted(column.name)} {engine_type(column.stored_type)}" for column in table.columns.values()]
        keys = [f"UNIQUE ({quoted(key)})" for key in sorted(schema.link_targets(name))]
        connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(kinds + keys)})")
        connection.execute(f"INSERT INTO {quoted(name)} SELECT {columns} FROM {numbers}")
    return connection


def _length(schema: Schema, table: Table, people: int) -> int:
    if table.is_public:
        lists = [_values_of(schema, column) for column in table.columns.values() if _is_word(column)]
        return max((len(values) for values in lists if values), default=PUBLIC_ROWS)
    rows = people if _is_unique(schema, table) else ROWS_PER_PERSON * people
    listed = (table.columns[key].values for key in schema.link_targets(table.name))
    return min([rows, *(len(values) for values in listed if values is not None)])


def _is_unique(schema: Schema, table: Table) -> bool:
    """Whether everybody has one row."""
    return table.unique or table.unit_column in schema.link_targets(table.name)


def _columns(schema: Schema, table: Table, people: int) -> Iterator[tuple[str, str]]:
    named = schema.link_targets(table.name)
    hops = schema.unit_path(table.name)
    for column in table.columns.values():
        if hops and column.name == hops[0].column:
            target = schema.tables[hops[0].to_table]
            written = _key(column, f"CAST(floor(random() * {_length(schema, target, people)}) AS BIGINT)")
        elif column.name == table.unit_column:
            # Squared, so that some people have many rows.
            person = "i" if _is_unique(schema, table) else f"CAST(floor(random() * random() * {people}) AS BIGINT)"
            written = _key(column, person)
        elif column.name in named:
            written = _key(column, "i")
        elif table.is_public:
            written = _listed(_values_of(schema, column) or PRACTICE_WORDS, "i") if _is_word(column) else _value(column)
        else:
            written = _value(column)
        yield column.name, f"CAST({written} AS {engine_type(column.stored_type)})"


def _key(column: Column, number: str) -> str:
    """The identifier of a person or row: one of the declared values, or a distinct number or text."""
    if column.values is not None:
        return _listed(column.values, number)
    if isinstance(column.type, types.Integer):
        return f"{column.bounds[0] if column.bounds else 1} + {number}"
    return f"'p' || ({number})"


def _is_word(column: Column) -> bool:
    return isinstance(column.type, types.Text)


def _values_of(schema: Schema, column: Column) -> tuple[object, ...] | None:
    """Those of a column of the same name, so that public tables can be joined with private ones."""
    alike = (table.column(column.name) for table in schema.tables.values())
    return next((found.values for found in alike if found is not None and found.values), None)


def _value(column: Column) -> str:
    written = _present(column)
    return f"CASE WHEN random() >= {NULLS} THEN {written} END" if column.nullable else written


def _present(column: Column) -> str:
    if column.collected is not None and column.collected.is_bits:
        return f"floor(random() * {2 ** len(column.collected.values)})"
    values = column.collected.values if column.collected is not None else column.values
    if values is not None:
        return _listed(values, f"CAST(floor(random() * {len(values)}) AS BIGINT)")
    low, high = column.bounds or PRACTICE_BOUNDS.get(type(column.type), (0, 100))
    return _drawn_by_sql(column.type, low, high)


def _drawn_by_sql(kind: ColumnType, low: Any, high: Any) -> str:
    match kind:
        case types.Integer():
            return f"{low} + floor(random() * {high - low + 1})"
        case types.Double() | types.Decimal():
            return f"round({low} + random() * ({high} - {low}), 2)"
        case types.Boolean():
            return "random() < 0.5"
        case types.Date():
            return f"DATE '{low}' + CAST(floor(random() * {(high - low).days + 1}) AS INTEGER)"
        case types.Timestamp():
            return f"TIMESTAMP '{low}' + to_seconds(floor(random() * {int((high - low).total_seconds())}))"
        case types.Text():
            return _listed(PRACTICE_WORDS, f"CAST(floor(random() * {len(PRACTICE_WORDS)}) AS BIGINT)")


def _listed(values: tuple[object, ...], number: str) -> str:
    """The value at an index, modulo the number of values."""
    shown = ", ".join(literal(str(value)) for value in values)  # as texts: the column's own type is cast to above
    return f"list_extract([{shown}], 1 + ({number}) % {len(values)})"

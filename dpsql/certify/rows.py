"""Rows to ask the corpus of: *tame* ones respect everything that a schema declares, *wild* ones hold whatever a column
can hold. Both are made from the declared schema alone, the same for the same seed."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from dpsql.certify.corpus import CaseFile
    from dpsql.schema.column import Column
    from dpsql.schema.model import Schema
    from dpsql.schema.table import Table

Rows = list[tuple[Any, ...]]
Tables = dict[str, Rows]
HUGE = (2**63 - 1, -(2**63))


def tame_value(column: Column, rng: random.Random) -> object:
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


def wild_value(column: Column, kind: str, rng: random.Random) -> object:
    """Anything that the database's own type can hold: far out of range, NaN, infinite, undeclared, NULL."""
    if rng.random() < 0.55:
        return tame_value(column, rng)
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


# -- whole databases --------------------------------------------------------------------------------------------------


def unit_values(schema: Schema, count: int) -> list[object]:
    """Names of people, of the type that the units of this schema have."""
    (kind,) = {table.columns[table.unit_column].type.name for table in schema.tables.values() if table.unit_column}
    return [f"p{number}" for number in range(count)] if kind == "text" else list(range(1, count + 1))


def tame_tables(file: CaseFile, rng: random.Random, units: int) -> Tables:
    """Everybody has one row in a table of people and at most two in any other."""
    people = unit_values(file.schema, units)

    def rows(table: Table) -> Iterator[dict[str, object]]:
        for number, person in enumerate(people if table.unique else [p for p in people for _ in range(2)]):
            row = {name: tame_value(column, rng) for name, column in table.columns.items()}
            yield (
                row
                | ({table.unit_column: person} if table.unit_column else {"order_id": number})
                | own_key(table, number)
            )

    return {
        name: public_rows(table, rng) if table.is_public else [tuple(row.values()) for row in rows(table)]
        for name, table in file.schema.tables.items()
    }


def public_rows(table: Table, rng: random.Random) -> Rows:
    """One row for each value of the first column, which is a key."""
    first, *others = table.columns.values()
    assert first.values is not None
    return [(value, *(tame_value(column, rng) for column in others)) for value in first.values]


def own_key(table: Table, number: int) -> dict[str, object]:
    return {"id": number} if "id" in table.columns and table.unit_column != "id" else {}


def wild_tables(file: CaseFile, rng: random.Random, units: int, rows: int) -> Tables:
    """Few people: some with many rows, some in one group only, some rows of nobody, some lines of no order."""
    people = unit_values(file.schema, units)
    kinds = column_kinds(file)
    heavy = people[0] if people else None
    made: Tables = {}
    for name, table in file.schema.tables.items():
        if table.is_public:
            made[name] = public_rows(table, rng)
            continue
        only = {column: wild_value(table.columns[column], kinds[name, column], rng) for column in table.columns}
        made[name] = []
        for number, person in enumerate(chosen_people(table, people, heavy, rows, rng)):
            row = {c: wild_value(column, kinds[name, c], rng) for c, column in table.columns.items()}
            if people and person == people[-1]:
                row = dict(only)  # this one has the same row again and again
            key = {table.unit_column: person} if table.unit_column else {"order_id": rng.randint(0, rows + 2)}
            made[name].append(tuple((row | key | own_key(table, number)).values()))
    return made


def chosen_people(table: Table, people: list[object], heavy: object, rows: int, rng: random.Random) -> Iterator[object]:
    if table.unique:
        yield from people
        if table.name == "members" and people:
            yield from [people[0], people[0], None]  # no constraint of the database forbids it
        return
    for _ in range(rows):
        yield heavy if rng.random() < 0.4 else rng.choice([*people, None])


def column_kinds(file: CaseFile) -> dict[tuple[str, str], str]:
    """The database's type of every column."""
    with duckdb.connect() as connection:
        connection.execute(file.create)
        found = connection.execute("SELECT table_name, column_name, data_type FROM duckdb_columns()").fetchall()
    return {(table, column): kind for table, column, kind in found}


def without(file: CaseFile, tables: Tables, person: object) -> Tables:
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


def fill(connection: duckdb.DuckDBPyConnection, file: CaseFile, tables: Tables) -> None:
    """By way of frames of texts, which DuckDB reads far faster than a long INSERT."""
    import pandas

    connection.execute(file.create)
    for name, rows in tables.items():
        texts = [[None if value is None else str(value) for value in row] for row in rows]
        frame = pandas.DataFrame(texts, columns=list(file.schema.tables[name].columns), dtype=object)
        connection.register("_texts", frame)
        connection.execute(f"INSERT INTO {name} SELECT * FROM _texts")
        connection.unregister("_texts")

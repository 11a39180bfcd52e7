"""Databases of made-up people, each with its neighbours: the same rows without those of one person."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.audit.synthesize import Maker, people_of, without
from dpsql.engines.duckdb_engine import DuckDBEngine
from dpsql.engines.quoting import quoted
from dpsql.engines.stored_types import engine_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.audit.synthesize import Tables
    from dpsql.schema.model import Schema

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


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer:
    found = connection.execute(sql)
    return [(item[0], str(item[1])) for item in found.description or ()], found.fetchall()

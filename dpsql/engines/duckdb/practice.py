"""A database of made-up people for a schema, to develop questions on: no budget is spent, and no private value is read.

Everything follows from the declarations: values are drawn evenly from what each column may hold, some people have many
rows and most have few, and keys lead from table to table as the schema says. Answers about them mean nothing.
"""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.engines.duckdb.types import engine_type
from dpsql.engines.quoting import literal, quoted
from dpsql.errors import OperationalError
from dpsql.schema import types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.schema.column import Column
    from dpsql.schema.model import Schema
    from dpsql.schema.table import Table
    from dpsql.schema.types import ColumnType

ROWS_PER_PERSON = 4
PUBLIC_ROWS = 5
NULLS = 0.1
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
DEFAULT_BOUNDS: dict[type, tuple[Any, Any]] = {
    types.Date: (date(2024, 1, 1), date(2025, 12, 31)),
    types.Timestamp: (datetime(2024, 1, 1), datetime(2025, 12, 31)),
}


def practice_database(schema: Schema, people: int, seed: int, path: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """The same seed makes the same people."""
    if path != ":memory:" and Path(path).exists():
        raise OperationalError(f"{path} is there already", hint="name another file, or delete it")
    connection = duckdb.connect(path)
    connection.execute("SET threads = 1")
    connection.execute(f"SELECT setseed({(seed % 1000) / 1000})")
    for name, table in schema.tables.items():
        columns = ", ".join(f"{written} AS {quoted(column)}" for column, written in _columns(schema, table, people))
        numbers = f"range({_length(schema, table, people)}) AS r(i)"
        connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT {columns} FROM {numbers}")
    return connection


def _length(schema: Schema, table: Table, people: int) -> int:
    if table.is_public:
        lists = [_values_of(schema, column) for column in table.columns.values() if _is_word(column)]
        return max((len(values) for values in lists if values), default=PUBLIC_ROWS)
    return people if table.unique else ROWS_PER_PERSON * people


def _columns(schema: Schema, table: Table, people: int) -> Iterator[tuple[str, str]]:
    paths = [schema.unit_path(name) for name in schema.tables]
    named = {hop.to_column for path in paths for hop in path if hop.to_table == table.name}
    hops = schema.unit_path(table.name)
    for column in table.columns.values():
        if hops and column.name == hops[0].column:
            target = schema.tables[hops[0].to_table]
            written = _key(column, f"CAST(floor(random() * {_length(schema, target, people)}) AS BIGINT)")
        elif column.name == table.unit_column:
            # Squared, so that some people have many rows.
            person = "i" if table.unique else f"CAST(floor(random() * random() * {people}) AS BIGINT)"
            written = _key(column, person)
        elif column.name in named:
            written = _key(column, "i")
        elif table.is_public:
            written = _listed(_values_of(schema, column) or WORDS, "i") if _is_word(column) else _value(column)
        else:
            written = _value(column)
        yield column.name, f"CAST({written} AS {engine_type(column.stored_type)})"


def _key(column: Column, number: str) -> str:
    """The name of a person or a row: one of the declared values, or a number or text that says which it is."""
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
    low, high = column.bounds or DEFAULT_BOUNDS.get(type(column.type), (0, 100))
    return _between(column.type, low, high)


def _between(kind: ColumnType, low: Any, high: Any) -> str:
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
            return _listed(WORDS, f"CAST(floor(random() * {len(WORDS)}) AS BIGINT)")


def _listed(values: tuple[object, ...], number: str) -> str:
    """The value at a number, which begins anew after the last."""
    shown = ", ".join(literal(str(value)) for value in values)  # as texts: the column's own type is cast to above
    return f"list_extract([{shown}], 1 + ({number}) % {len(values)})"

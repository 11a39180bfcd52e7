"""Spark runs the engine SQL, and nothing but its result leaves it.

The session is our own. Every declared table is read through its declared columns alone, by its full name; functions are
Spark's own, which other sessions cannot replace here.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.engines.declared_tables import check_table
from dpsql.engines.public import Guarantees
from dpsql.engines.spark.catalog import FORMATS, found_table, table_names
from dpsql.engines.spark.connection import own_session, quiet
from dpsql.engines.spark.render import render
from dpsql.engines.spark.texts import quoted
from dpsql.errors import OperationalError, SchemaError
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from dpsql.engines.public import Render
    from dpsql.engines.spark.catalog import Place, SparkTable
    from dpsql.schema.model import Schema, Table


class SparkEngine:
    copied = False

    def __init__(self, database: object, schema: Schema) -> None:
        """Raises SchemaError unless every declared table and column is there, with a type that fits."""
        self._database = database
        self._session, self._place = own_session(database)
        self._lock = threading.RLock()
        names = table_names(self._session, self._place)
        self._tables = {
            table.name.lower(): _checked(self._session, self._place, table, names) for table in schema.tables.values()
        }
        reads = {name: self._read(table) for name, table in schema.tables.items()}
        self.render: Render = partial(render, tables=reads)
        self.guarantees = Guarantees()

    def _read(self, table: Table) -> str:
        """The declared columns, as they are declared."""
        found = self._tables[table.name.lower()]
        columns = []
        for column in table.columns.values():
            own = found.found.column(column.name) or column.name
            read = found.types[own].read_as(f"_stored.{quoted(own)}", column.stored_type)
            columns.append(f"{read} AS {quoted(column.name)}")
        return f"SELECT {', '.join(columns)} FROM {self._place.table(found.found.name)} AS _stored"

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""
        try:
            with self._lock, quiet():
                now = {name: found_table(self._session, self._place, name) for name in self._tables}
        except Exception:
            problem = OperationalError(
                "Spark does not answer, or a declared table is gone", hint="look at it with spark-sql; connect again"
            )
        else:
            if now == self._tables:
                return
            problem = OperationalError(
                "a declared table was changed since the connection was opened", hint="connect again: it is checked anew"
            )
        raise problem

    def run(self, sql: str) -> Mapping[str, np.ndarray]:
        with self._lock, quiet():
            try:
                return _fetched(self._session.sql(sql))
            except KeyboardInterrupt:
                self._session.interruptAll()
                raise

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        return self.run(sql)

    def close(self) -> None:
        if isinstance(self._database, str):
            self._session.stop()


def _checked(session: SparkSession, place: Place, table: Table, names: Mapping[str, str]) -> SparkTable:
    if table.name.lower() not in names:
        raise SchemaError(
            f'tables.{table.name}: the database {place} has no table "{table.name}"',
            hint=did_you_mean(table.name, names)
            or "a temporary view belongs to its session alone: save it with  df.write.saveAsTable(...)",
        )
    found = found_table(session, place, names[table.name.lower()])
    if table.view is None and found.kept_as not in (*FORMATS, "VIEW"):
        raise SchemaError(
            f"tables.{table.name}: it is kept as {found.kept_as or 'something unknown'}, and reading a row may fail",
            hint=f"CREATE TABLE ... USING parquet AS SELECT * FROM {table.name}; or write  view: trusted  in it, "
            "if no row can make it fail; docs/owners.md says why",
        )
    check_table(table, found.found)
    return found


def _fetched(frame: DataFrame) -> Mapping[str, np.ndarray]:
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    rows = frame.collect()
    decimals = any(kind.startswith("decimal") for kind in kinds.values())
    return {
        name: _column([row[place] for row in rows], kind, as_text=decimals)
        for place, (name, kind) in enumerate(kinds.items())
    }


INTEGERS = ("tinyint", "smallint", "int", "bigint")
INTEGER_LISTS = tuple(f"array<{kind}>" for kind in INTEGERS)


def _column(values: list[Any], kind: str, *, as_text: bool) -> np.ndarray:
    """Beside decimals, which as numbers would lose digits, all but whole numbers travel as text."""
    missing = [value is None for value in values]
    if kind in INTEGERS:
        return _masked(values, missing, 0, np.int64)
    if kind in INTEGER_LISTS:
        return _objects([None if value is None else np.array(value, dtype=np.int64) for value in values])
    if as_text:
        return _objects([None if value is None else str(value) for value in values])
    if kind == "boolean":
        return _masked(values, missing, False, np.bool_)
    if kind == "double":
        return _masked(values, missing, 0.0, np.float64)
    if kind in ("date", "timestamp_ntz"):
        return _masked(values, missing, np.datetime64(0, "us"), "datetime64[us]")
    return np.ma.masked_array(_objects(values), mask=missing)


def _masked(values: list[Any], missing: list[bool], instead: Any, kind: Any) -> np.ndarray:
    filled = [instead if gap else value for value, gap in zip(values, missing, strict=True)]
    return np.ma.masked_array(np.array(filled, dtype=kind), mask=missing)


def _objects(values: list[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found

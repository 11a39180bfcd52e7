"""Spark runs the engine SQL, and nothing but its result leaves it.

The session is our own. Every declared table is read through its declared columns alone, by its full name; functions are
Spark's own, which other sessions cannot replace here.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engines.duckdb.declared_tables import check_table
from dpsql.engines.engine import ConnectionLost, run_twice_if_lost
from dpsql.engines.fetched import columns
from dpsql.engines.public import Guarantees
from dpsql.engines.spark.catalog import FORMATS, Place, found_table, table_names
from dpsql.engines.spark.connection import RESTART, answers, own_session, quiet, reached_again
from dpsql.engines.spark.render import render
from dpsql.engines.spark.texts import quoted
from dpsql.errors import OperationalError, SchemaError
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from pyspark.sql import DataFrame, SparkSession

    from dpsql.engines.fetched import Fetched
    from dpsql.engines.public import Render
    from dpsql.engines.spark.catalog import SparkTable
    from dpsql.schema.model import Schema
    from dpsql.schema.table import Table


class SparkEngine:
    copied = False

    def __init__(self, session: SparkSession, place: Place, url: str | None, schema: Schema) -> None:
        """Raises SchemaError unless every declared table and column is there, with a type that fits."""
        self._session, self._url = session, url
        self._lost = False
        self._lock = threading.RLock()
        self._places = {
            table.name.lower(): Place(place.catalog, table.place[0] or place.database)
            for table in schema.tables.values()
        }
        names = {where: table_names(session, where) for where in set(self._places.values())}
        self._tables = {
            table.name.lower(): _checked(session, where, table, names[where])
            for table, where in zip(schema.tables.values(), self._places.values(), strict=True)
        }
        reads = {name: self._read(table) for name, table in schema.tables.items()}
        self.render: Render = partial(render, tables=reads)
        self.guarantees = Guarantees()

    @classmethod
    def open(cls, database: object, schema: Schema) -> SparkEngine:
        """Of a URL, the session is made anew where it was lost."""
        session, place = own_session(database)
        url = database if isinstance(database, str) else None
        try:
            return cls(session, place, url, schema)
        except BaseException:
            if url is not None:
                session.stop()
            raise

    def _read(self, table: Table) -> str:
        """The declared columns, as they are declared."""
        found = self._tables[table.name.lower()]
        read_columns = []
        for column in table.columns.values():
            own = found.found.column(column.name) or column.name
            read = found.types[own].read_as(f"_stored.{quoted(own)}", column.stored_type)
            read_columns.append(f"{read} AS {quoted(column.name)}")
        stored = self._places[table.name.lower()].table(found.found.name)
        return f"SELECT {', '.join(read_columns)} FROM {stored} AS _stored"

    def check_unchanged(self) -> None:
        """Raises OperationalError if a declared table is no longer the one that was opened."""
        with self._lock, quiet():
            try:
                self._compare()
            except OperationalError:
                if not self._is_lost():
                    raise
                self._connect_again(patience=0)

    def _compare(self) -> None:
        try:
            now = {
                name: found_table(self._session, self._places[name], table.found.name)
                for name, table in self._tables.items()
            }
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

    def _is_lost(self) -> bool:
        """Whether the session does not answer any more, and another one can be made."""
        self._lost = self._url is not None and not answers(self._session)
        return self._lost

    def _connect_again(self, patience: float) -> None:
        assert self._url is not None
        self._session, _ = reached_again(self._url, patience)
        self._compare()
        self._lost = False

    def run(self, sql: str, lasting: Mapping[str, str] | None = None) -> Mapping[str, np.ndarray]:
        assert not lasting, "rows of a server are changed by others"
        with self._lock, quiet():
            if self._lost:
                self._connect_again(RESTART)
            try:
                return _fetched(self._session.sql(sql))
            except KeyboardInterrupt:
                self._session.interruptAll()
                raise
            except Exception:
                if not self._is_lost():
                    raise
        raise ConnectionLost

    def run_public(self, sql: str) -> Mapping[str, np.ndarray]:
        return run_twice_if_lost(self.run, sql)

    def close(self) -> None:
        if self._url is not None:
            self._session.stop()


def _checked(session: SparkSession, place: Place, table: Table, names: Mapping[str, str]) -> SparkTable:
    own = table.place[1].lower()
    if own not in names:
        raise SchemaError(
            f'tables.{table.name}: the database {place} has no table "{table.place[1]}"',
            hint=did_you_mean(own, names)
            or "a temporary view belongs to its session alone: save it with  df.write.saveAsTable(...)",
        )
    found = found_table(session, place, names[own])
    if table.view is None and found.kept_as not in (*FORMATS, "VIEW"):
        raise SchemaError(
            f"tables.{table.name}: it is kept as {found.kept_as or 'something unknown'}, and reading a row may fail",
            hint=f"CREATE TABLE ... USING parquet AS SELECT * FROM {table.name}; or write  view: trusted  in it, "
            "if no row can make it fail; docs/owners.md says why",
        )
    check_table(table, found.found)
    return found


INTEGERS = ("tinyint", "smallint", "int", "bigint")
KINDS: dict[str, Fetched] = {
    **dict.fromkeys(INTEGERS, "integer"),
    **{f"array<{kind}>": "integers" for kind in INTEGERS},
    "boolean": "boolean",
    "double": "double",
    **dict.fromkeys(("date", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
}


def _fetched(frame: DataFrame) -> Mapping[str, np.ndarray]:
    kinds: dict[str, Fetched] = {
        field.name: KINDS.get(field.dataType.simpleString().partition("(")[0], "other") for field in frame.schema.fields
    }
    return columns(frame.collect(), kinds)

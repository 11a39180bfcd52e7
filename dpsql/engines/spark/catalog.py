"""What a catalogue of Spark says of its tables: columns, and how they are kept. No value is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.engines.duckdb.declared_tables import Found
from dpsql.engines.spark.stored import StoredType, stored_type
from dpsql.engines.spark.texts import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

TABLES, FORMATS = ("MANAGED", "EXTERNAL"), ("parquet", "orc")
"""What holds rows itself, in columns that have types: nothing of such a row is interpreted when it is read."""


@dataclass(frozen=True)
class Place:
    """Where tables are found by their names."""

    catalog: str
    database: str

    def __str__(self) -> str:
        return f"{quoted(self.catalog)}.{quoted(self.database)}"

    def table(self, name: str) -> str:
        return f"{self}.{quoted(name)}"


@dataclass(frozen=True)
class SparkTable:
    found: Found
    types: Mapping[str, StoredType]
    kept_as: str
    """The format of its files; VIEW if it has none."""
    identity: tuple[str, ...]
    """What tells it from another one of its name."""


def current_place(session: SparkSession) -> Place:
    ((catalog, database),) = session.sql("SELECT current_catalog(), current_database()").collect()
    return Place(catalog, database)


def table_names(session: SparkSession, place: Place) -> dict[str, str]:
    """The tables and views there, by their names in lower case; none where there is no such database."""
    if not session.catalog.databaseExists(str(place)):
        return {}
    rows = session.sql(f"SHOW TABLES IN {place}").collect()
    return {row["tableName"].lower(): row["tableName"] for row in rows if not row["isTemporary"]}


def found_table(session: SparkSession, place: Place, name: str) -> SparkTable:
    ((text,),) = session.sql(f"DESCRIBE TABLE EXTENDED {place.table(name)} AS JSON").collect()
    described: dict[str, Any] = json.loads(text)
    types = {column["name"]: stored_type(column["type"]) for column in described["columns"]}
    kind, form = str(described.get("type", "")), str(described.get("provider", "")).lower()
    holds_rows = kind in TABLES and form in FORMATS
    # Nothing is unique and nothing is never NULL: constraints of a lake are not enforced.
    columns = {column: stored.common for column, stored in types.items()}
    found = Found(name=name, columns=columns, is_view=not holds_rows)
    identity = tuple(str(described.get(part)) for part in ("created_time", "location", "view_text"))
    return SparkTable(found, types, form if kind in TABLES else "VIEW", identity)

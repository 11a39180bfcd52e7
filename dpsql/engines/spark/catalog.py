"""The catalogue of Spark: columns of tables, and how they are stored. No value is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.engines.spark.scalars import quoted, type_name
from dpsql.engines.tables import FoundTable
from dpsql.schema.types import Boolean, Date, Decimal, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from dpsql.schema.types import ColumnType

# -- stored ------------------------------------------------------------------------------------------------------------
# Types that Spark stores, and how a column of each is read as what is declared: it fails for no value.

COMMON: dict[str, str] = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    **dict.fromkeys(("string", "char", "varchar"), "VARCHAR"),
    "date": "DATE",
    **dict.fromkeys(("timestamp_ltz", "timestamp_ntz"), "TIMESTAMP"),
}
"""Spark's name of a type, and the one that schemas are checked by, which all engines share."""


@dataclass(frozen=True)
class StoredType:
    name: str
    digits: tuple[int, int] = (0, 0)
    """Precision and scale of a decimal."""

    @property
    def common(self) -> str:
        """The engine-independent type; a type with its own name matches no declared type."""
        if self.name == "decimal":
            precision, scale = self.digits
            return f"DECIMAL({precision},{scale})" if scale else "HUGEINT"
        return COMMON.get(self.name, self.name.upper())

    def read_as(self, column: str, declared: ColumnType) -> str:
        match declared:
            case Text():
                # A file may hold bytes that are no text, and a column may be compared in another way than by them.
                return f"try_validate_utf8(CAST({column} AS STRING) COLLATE UTF8_BINARY)"
            case Integer() | Decimal() if self.name == "decimal":
                return f"TRY_CAST({column} AS {type_name(declared)})"
            case Decimal():
                return f"TRY_CAST({column} AS {type_name(declared)})"
            case Timestamp() if self.name == "date":
                # The engine's dates go further than its timestamps.
                known = f"{column} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
                return f"CASE WHEN {known} THEN CAST({column} AS TIMESTAMP_NTZ) END"
            case Boolean() | Date():
                return column
            case _:
                return f"CAST({column} AS {type_name(declared)})"


def stored_type(described: Mapping[str, object]) -> StoredType:
    """
    >>> stored_type({"name": "decimal", "precision": 12, "scale": 2}).common
    'DECIMAL(12,2)'
    """
    name = str(described["name"])
    if name != "decimal":
        return StoredType(name)
    return StoredType(name, (int(str(described["precision"])), int(str(described["scale"]))))


# -- catalog -----------------------------------------------------------------------------------------------------------

TABLES, FORMATS = ("MANAGED", "EXTERNAL"), ("parquet", "orc")
"""What holds rows itself, in columns that have types: nothing of such a row is interpreted when it is read."""


@dataclass(frozen=True)
class Namespace:
    """The catalogue and database in which table names are resolved."""

    catalog: str
    database: str

    def __str__(self) -> str:
        return f"{quoted(self.catalog)}.{quoted(self.database)}"

    def table(self, name: str) -> str:
        return f"{self}.{quoted(name)}"


@dataclass(frozen=True)
class SparkTable:
    found: FoundTable
    types: Mapping[str, StoredType]
    kept_as: str
    """The format of its files; VIEW if it has none."""
    identity: tuple[str, ...]
    """What tells it from another one of its name."""


def current_place(session: SparkSession) -> Namespace:
    ((catalog, database),) = session.sql("SELECT current_catalog(), current_database()").collect()
    return Namespace(catalog, database)


def table_names(session: SparkSession, place: Namespace) -> dict[str, str]:
    """The tables and views there, by their names in lower case; none where there is no such database."""
    if not session.catalog.databaseExists(str(place)):
        return {}
    rows = session.sql(f"SHOW TABLES IN {place}").collect()
    return {row["tableName"].lower(): row["tableName"] for row in rows if not row["isTemporary"]}


def found_table(session: SparkSession, place: Namespace, name: str) -> SparkTable:
    ((text,),) = session.sql(f"DESCRIBE TABLE EXTENDED {place.table(name)} AS JSON").collect()
    described: dict[str, Any] = json.loads(text)
    types = {column["name"]: stored_type(column["type"]) for column in described["columns"]}
    kind, form = str(described.get("type", "")), str(described.get("provider", "")).lower()
    holds_rows = kind in TABLES and form in FORMATS
    # Nothing is unique and nothing is never NULL: constraints of a lake are not enforced.
    columns = {column: stored.common for column, stored in types.items()}
    found = FoundTable(name=name, columns=columns, is_view=not holds_rows)
    identity = tuple(str(described.get(part)) for part in ("created_time", "location", "view_text"))
    return SparkTable(found, types, form if kind in TABLES else "VIEW", identity)

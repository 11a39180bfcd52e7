"""Types that Spark stores, and how a column of each is read as what is declared: it fails for no value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.spark.casts import type_name
from dpsql.schema.types import Boolean, Date, Decimal, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.schema.types import ColumnType

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
        """As all engines call it; one of its own name cannot be read as anything declared."""
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

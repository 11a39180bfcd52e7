"""Types that PostgreSQL stores, and how a column of each is read as what is declared: it fails for no value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Wide
from dpsql.engines.postgresql.casts import by_code_points, from_numeric, try_cast, type_name
from dpsql.engines.postgresql.moments import FIRST_DAY, LAST_DAY
from dpsql.schema.types import WIDEST_DECIMAL, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Kind
    from dpsql.schema.types import ColumnType

COMMON: dict[str, str] = {
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bool": "BOOLEAN",
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext"), "VARCHAR"),
    "uuid": "UUID",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
}
"""PostgreSQL's name of a type, and the one that schemas are checked by, which all engines share."""
ANY_DECIMAL = f"DECIMAL({WIDEST_DECIMAL},0)"
"""A NUMERIC of any digits: whatever decimal is declared, what does not fit into it is no value."""


@dataclass(frozen=True)
class StoredType:
    """Of a domain it is the type below."""

    name: str
    digits: tuple[int, int] | None = None
    """Precision and scale of a NUMERIC that has them."""
    is_enum: bool = False

    @property
    def common(self) -> str:
        """As all engines call it; one of its own name cannot be read as anything declared."""
        if self.is_enum:
            return "ENUM"
        if self.name == "numeric" and self.digits is not None and self.digits[1] == 0:
            return "HUGEINT"
        if self.name == "numeric":
            return ANY_DECIMAL if self.digits is None else "DECIMAL({},{})".format(*self.digits)
        return COMMON.get(self.name, self.name.upper())

    @property
    def keeps_apart(self) -> bool:
        """A NUMERIC of any digits is rounded to those that are declared."""
        return self.name != "numeric" or self.digits is not None

    @property
    def may_be_nan(self) -> bool:
        return self.name == "numeric"

    def read_as(self, column: str, declared: ColumnType) -> str:
        match declared:
            case Text():
                return by_code_points(self._spelled(column))
            case Double() | Decimal() if self.name == "numeric":
                return from_numeric(column, declared, self.digits)
            case Integer() if self.name == "numeric":
                return _at_once(column, Wide(), declared)
            case Decimal():
                return _at_once(column, Integer(), declared)
            case Timestamp() if self.name == "timestamptz":
                return f"({column} AT TIME ZONE 'UTC')"
            case Timestamp() if self.name == "date":
                # The engine's dates go further than its timestamps.
                return f"CASE WHEN {column} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN CAST({column} AS TIMESTAMP) END"
            case Date() | Timestamp():
                return column
            case _:
                return f"CAST({column} AS {type_name(declared)})"

    def _spelled(self, column: str) -> str:
        """An enum as its label and a UUID as its digits, whatever casts to text somebody made for them."""
        if not self.is_enum and self.name != "uuid":
            return f"CAST({column} AS TEXT)"
        return f"CASE WHEN {column} IS NOT NULL THEN concat({column}) END"


def _at_once(column: str, source: Kind, declared: ColumnType) -> str:
    return try_cast(column, source, declared, lambda values, write: write(*values))


def stored_type(name: str, kind: str, modifier: int) -> StoredType:
    """By what the catalogue says: the name, whether it is an enum, and the modifier that holds a NUMERIC's digits.

    >>> stored_type("numeric", "b", ((10 << 16) | 2) + 4).common
    'DECIMAL(10,2)'
    """
    if name != "numeric" or modifier < 4:
        return StoredType(name, is_enum=kind == "e")
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    fits = precision <= WIDEST_DECIMAL and 0 <= scale <= precision
    return StoredType(name, (precision, scale) if fits else None)

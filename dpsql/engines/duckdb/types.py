"""Which of the engine's types can stand for a declared one, and how a stored column is read as what is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp, parse_type

if TYPE_CHECKING:
    from dpsql.schema.types import ColumnType

ENGINE_TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE",
    Text: "VARCHAR",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP",
}
KINDS: dict[str, ColumnType] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), Integer()),
    **dict.fromkeys(("FLOAT", "DOUBLE"), Double()),
    "VARCHAR": Text(),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    "TIMESTAMP": Timestamp(),
}
INTEGERS = {sign + size for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")}
# Those that 64 bits hold, and how many digits they have.
DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "UTINYINT": 3, "USMALLINT": 5, "UINTEGER": 10}
SHORTER = {"TINYINT", "SMALLINT", "INTEGER"}
"""Whole numbers that a declared one holds, and that take less room."""
# Which of the engine's types can stand for a declared one without losing what it holds.
FITTING: dict[type, set[str]] = {
    Integer: INTEGERS,
    Double: {"FLOAT", "DOUBLE", "DECIMAL", *INTEGERS},
    Decimal: {"DECIMAL", *INTEGERS},
    Text: {"VARCHAR", "ENUM", "UUID"},
    Boolean: {"BOOLEAN"},
    Date: {"DATE"},
    Timestamp: {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "DATE"},
}
# Types whose different values stay different as the declared type: the others are rounded when they are read.
APART: dict[type, set[str]] = {
    Double: {"FLOAT", "DOUBLE"},
    Timestamp: {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "DATE"},
}


def engine_type(kind: ColumnType) -> str:
    return f"DECIMAL({kind.precision}, {kind.scale})" if isinstance(kind, Decimal) else ENGINE_TYPES[type(kind)]


def answer_kind(engine_type: str) -> ColumnType | None:
    """The type in which a column of an answer is read, by the post-processing database's name for its own."""
    name = engine_type.partition("(")[0]
    return parse_type(engine_type) if name == "DECIMAL" else KINDS.get(name)


def fits(declared: ColumnType, stored: str) -> bool:
    name = stored.partition("(")[0]
    if isinstance(declared, Decimal) and name == "DECIMAL":
        scale = int(stored.partition(",")[2].rstrip(")"))
        return scale <= declared.scale
    return name in FITTING[type(declared)]


def stays_apart(declared: ColumnType, stored: str) -> bool:
    """Whether different stored values are different as the declared type too."""
    return stored.partition("(")[0] in APART.get(type(declared), FITTING[type(declared)])


def is_total(declared: ColumnType, stored: str, *, bounded: bool) -> bool:
    """Whether every stored value is a value as the declared type too: it fits, and is no NaN, infinity or endless text.

    Bounds bring the last day and moment of all, which are infinite, back.
    """
    name = stored.partition("(")[0]
    match declared:
        case Integer():
            return name in DIGITS
        case Double():
            return name in {"DECIMAL", *INTEGERS}
        case Decimal(precision, scale):
            before = _digits_before_point(stored) if name == "DECIMAL" else DIGITS.get(name, precision + 1)
            return before <= precision - scale
        case Boolean():
            return True
        case Date() | Timestamp():
            return bounded and name == declared.name.upper()
        case _:
            return name == "UUID"


def _digits_before_point(stored: str) -> int:
    """
    >>> _digits_before_point("DECIMAL(18,2)")
    16
    """
    precision, scale = stored.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return int(precision) - int(scale)


def declared_type(stored: str) -> str | None:
    """The type to declare for one of the engine's; None if no declared type can stand for it.

    >>> declared_type("UBIGINT"), declared_type("DECIMAL(18,2)"), declared_type("BLOB")
    ('integer', 'decimal(18,2)', None)
    """
    name = stored.partition("(")[0]
    if name == "DECIMAL":
        return stored.lower()
    return next((declared.__name__.lower() for declared, kinds in FITTING.items() if name in kinds), None)


def read_as(column: str, stored: str, declared: ColumnType) -> str:
    """The stored column as the declared type, NULL where a value does not fit: it fails for no value.

    A cast that has nothing to try keeps what the engine knows of the column, such as that it is never NULL.
    """
    if stored == "TIMESTAMP_NS":
        return f"TRY_CAST({_microsecond(column)} AS {engine_type(declared)})"
    if stored == "TIMESTAMP WITH TIME ZONE":
        # The moment in UTC, whatever the zone of a connection; an infinite one has none.
        return f"TRY(make_timestamp(epoch_us({column})))"
    return f"{'' if _always_fits(declared, stored) else 'TRY_'}CAST({column} AS {engine_type(declared)})"


def _always_fits(declared: ColumnType, stored: str) -> bool:
    name = stored.partition("(")[0]
    return name in DIGITS if isinstance(declared, Integer) else isinstance(declared, Double) and fits(declared, stored)


def valid_text(column: str) -> str:
    """A text whose bytes may be no UTF-8, as frames can hold it: then NULL."""
    return f"TRY(decode(encode({column})))"


def _microsecond(column: str) -> str:
    """The microsecond that a moment lies in. A cast would take the nearest, and so 23:59:59.999999999 to the next day.

    Nanoseconds before 1970 are negative, and // cuts towards zero. Infinite moments have none.
    """
    count = f"epoch_ns({column})"
    floor = f"CASE WHEN {count} >= 0 THEN {count} // 1000 ELSE ({count} + 1) // 1000 - 1 END"
    return f"CASE WHEN isfinite({column}) THEN make_timestamp({floor}) ELSE CAST({column} AS TIMESTAMP) END"

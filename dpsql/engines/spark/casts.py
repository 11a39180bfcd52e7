"""Casts that give NULL where a value does not fit. Spark has TRY_CAST, and cuts off where others round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Short, Wide
from dpsql.engines.spark.doubles import number, rounded
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.engine_sql.tree import Kind, Known

    Once = Callable[[list[str], Callable[..., str]], str]

WHOLE = (Integer, Wide, Short)
EXACT = (*WHOLE, Decimal)
SHORT = {8: "TINYINT", 16: "SMALLINT", 32: "INT"}
TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE",
    Text: "STRING",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP_NTZ",
    Wide: "DECIMAL(38, 0)",
}
WIDEST = 10**38


def type_name(kind: Kind) -> str:
    match kind:
        case Decimal(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case Short(bits):
            return SHORT[bits]
        case _:
            return TYPES[type(kind)]


def try_cast(value: str, source: Known, kind: Kind, once: Once) -> str:
    if source == kind:
        return value
    match kind:
        case Integer() | Short() if isinstance(source, (*EXACT, Boolean, Double)):
            return _whole(value, source, kind, once)
        case Double() | Decimal() | Wide() if isinstance(source, Boolean):
            return f"CAST(CAST({value} AS INT) AS {type_name(kind)})"
        case Double() if isinstance(source, EXACT):
            return f"CAST({value} AS DOUBLE)"
        case Decimal() | Wide() if isinstance(source, EXACT):
            # Digits that are cut off round half away from zero.
            return f"TRY_CAST({value} AS {type_name(kind)})"
        case Wide() if isinstance(source, Double):
            return once([f"rint({value})"], _exact)
        case Decimal() if isinstance(source, Double):
            return _rounded_decimal(value, kind, once)
        case Boolean() if isinstance(source, (*EXACT, Double)):
            return f"({value} <> 0)"
        case Text() if isinstance(source, (*WHOLE, Boolean, Date, Timestamp)):
            return f"CAST({value} AS STRING)"
        case Text() if isinstance(source, Decimal):
            return f"CAST(CAST({value} AS {type_name(source)}) AS STRING)"
        case Date() | Timestamp() if isinstance(source, Date | Timestamp):
            return f"CAST({value} AS {type_name(kind)})"
    raise no_cast(source, kind)


def no_cast(source: Known, kind: Kind) -> Unsupported:
    before = "this value" if source is None else source.name
    return Unsupported(
        f"on Spark {before} cannot be cast to {kind.name}",
        hint="texts are read, and doubles are spelled, otherwise there: leave the cast out, or store such a column",
    )


def _whole(value: str, source: Known, kind: Integer | Short, once: Once) -> str:
    """Doubles are rounded half to even, decimals half away from zero; the engine's own cast cuts off."""
    name = type_name(kind)
    match source:
        case Double():
            # The engine takes 2^63 for the largest integer.
            end = 2.0 ** (63 if isinstance(kind, Integer) else kind.bits - 1)
            held = "CASE WHEN {0} < " + number(end) + " THEN TRY_CAST({0} AS " + name + ") END"
            return once([f"rint({value})"], held.format)
        case Decimal(scale=scale) if scale > 0:
            return f"TRY_CAST(round({value}, 0) AS {name})"
        case _:
            return f"TRY_CAST({value} AS {name})"


def _rounded_decimal(value: str, kind: Decimal, once: Once) -> str:
    """Rounded to a whole number of units of the last digit, as a double; then as many of them."""

    def fitted(count: str) -> str:
        held = f"CASE WHEN abs({count}) < {number(float(10**kind.precision))} THEN {_exact(count)} END"
        unit = f"CAST('1e-{kind.scale}' AS DECIMAL({max(kind.scale, 1)}, {kind.scale}))"
        return f"TRY_CAST(try_multiply({held}, {unit}) AS {type_name(kind)})"

    return once([once([f"({value} * {number(float(10**kind.scale))})"], rounded)], fitted)


def _exact(whole: str) -> str:
    """A whole double with all of its digits. The engine's own cast keeps those that the double is spelled with.

    From 2^63 on the last bits of a double are zero, so that they need not fit into 64 bits.
    """
    high = f"rint({whole} * {number(2.0**-64)})"
    low = f"({whole} - {high} * {number(2.0**64)}) * 0.25D"
    long = f"{_in_64_bits(high)} * CAST('{2**64}' AS DECIMAL(20, 0)) + {_in_64_bits(low)} * CAST(4 AS DECIMAL(1, 0))"
    return (
        f"CASE WHEN abs({whole}) < {number(2.0**63)} THEN CAST({_in_64_bits(whole)} AS DECIMAL(38, 0)) "
        f"WHEN abs({whole}) < {number(float(WIDEST))} THEN TRY_CAST({long} AS DECIMAL(38, 0)) END"
    )


def _in_64_bits(whole: str) -> str:
    return f"CAST(TRY_CAST({whole} AS BIGINT) AS DECIMAL(19, 0))"

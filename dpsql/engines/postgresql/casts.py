"""Casts that give NULL where a value does not fit, written for the kind that they come from: PostgreSQL has none."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Short, Wide
from dpsql.engines.postgresql.doubles import TOO_LARGE, number, power, rounded, scaled
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.engine_sql.tree import Kind, Known
    from dpsql.schema.types import ColumnType

    Once = Callable[[list[str], Callable[..., str]], str]

WHOLE = (Integer, Wide, Short)
NUMERIC = (*WHOLE, Decimal)
LONG = 2**63
TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE PRECISION",
    Text: "TEXT",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP",
    Wide: "NUMERIC",
}


def type_name(kind: Kind) -> str:
    match kind:
        case Decimal(precision, scale):
            return f"NUMERIC({precision}, {scale})"
        case Short(bits):
            return "INTEGER" if bits == 32 else "SMALLINT"
        case _:
            return TYPES[type(kind)]


def by_code_points(text: str) -> str:
    return f'({text} COLLATE "C")'


def within(value: str, kind: str, first_below: object, first_above: object) -> str:
    """The value between these two, NULL beyond; it is written once. NULL itself and NaN become the upper end first."""
    below, above = f"{kind} '{first_below}'", f"{kind} '{first_above}'"
    return f"nullif(nullif(greatest(least({value}, {above}), {below}), {above}), {below})"


def try_cast(value: str, source: Known, kind: Kind, once: Once) -> str:
    if source == kind:
        return value
    match kind:
        case Integer():
            return f"CAST({_whole(value, source, LONG)} AS BIGINT)"
        case Short(bits):
            return f"CAST({_whole(value, source, 2 ** (bits - 1))} AS {type_name(kind)})"
        case Double() if isinstance(source, NUMERIC):
            return f"CAST({value} AS DOUBLE PRECISION)"
        case Wide() if isinstance(source, WHOLE):
            return f"CAST({value} AS NUMERIC)"
        case Wide() if isinstance(source, Decimal):
            return f"round({value})"
        case Wide() if isinstance(source, Double):
            return once([f"round({value})"], _exact)
        case Decimal() if isinstance(source, NUMERIC):
            return _decimal(f"round(CAST({value} AS NUMERIC), {kind.scale})", kind)
        case Decimal() if isinstance(source, Double):
            return _rounded_decimal(value, kind, once)
        case Double() | Decimal() | Wide() if isinstance(source, Boolean):
            return f"CAST(CAST({value} AS INTEGER) AS {type_name(kind)})"
        case Boolean() if isinstance(source, (*NUMERIC, Double)):
            return f"({value} <> 0)"
        case Text() if isinstance(source, (*WHOLE, Boolean, Date, Timestamp)):
            return by_code_points(f"CAST({value} AS TEXT)")
        case Text() if isinstance(source, Decimal):
            # With all digits after its point, and however many before: 99.99 is rounded to 100.
            return by_code_points(f"CAST(round({value}, {source.scale}) AS TEXT)")
        case Date() | Timestamp() if isinstance(source, Date | Timestamp):
            return f"CAST({value} AS {type_name(kind)})"
    raise no_cast(source, kind)


def no_cast(source: Known, kind: Kind) -> Unsupported:
    before = "this value" if source is None else source.name
    return Unsupported(
        f"on PostgreSQL {before} cannot be cast to {kind.name}",
        hint="texts are read, and doubles are spelled, otherwise there: leave the cast out, or store such a column",
    )


def _whole(value: str, source: Known, limit: int) -> str:
    """Doubles are rounded half to even by the cast itself, decimals half away from zero before."""
    match source:
        case Boolean():
            return f"CAST({value} AS INTEGER)"
        case Double():
            return within(f"round({value})", "float8", math.nextafter(-limit, -math.inf), float(limit))
        case Decimal():
            return within(f"round({value})", "numeric", -limit - 1, limit)
        case Wide():
            return within(value, "numeric", -limit - 1, limit)
        case Integer() | Short():
            return value if limit == LONG else within(value, "bigint", -limit - 1, limit)
    raise no_cast(source, Integer())


def _decimal(value: str, kind: Decimal) -> str:
    end = 10 ** (kind.precision - kind.scale)
    return f"CAST({within(value, 'numeric', -end, end)} AS {type_name(kind)})"


def _rounded_decimal(value: str, kind: Decimal, once: Once) -> str:
    """Rounded to a whole number of units of the last digit, as a double; then as many of them."""
    units = Fraction(10**kind.scale)

    def product(double: str) -> str:
        return scaled(double, units, f"({double} * {number(float(units))})")

    def fitted(count: str) -> str:
        held = f"CASE WHEN abs({count}) < {number(float(10**kind.precision))} THEN {_exact(count)} END"
        return f"CAST({held} * numeric '1e-{kind.scale}' AS {type_name(kind)})"

    return once([once([once([value], product)], rounded)], fitted)


def _exact(whole: str) -> str:
    """A whole double as NUMERIC, of up to 127 bits. The engine's own cast keeps 15 digits.

    From 2^63 on the last bits of a double are zero, so that they need not fit into 64 bits.
    """
    high, low = f"trunc({whole} * {power(-64)})", f"({whole} - trunc({whole} * {power(-64)}) * {power(64)})"
    long = f"CAST({high} AS BIGINT) * numeric '{2**64}' + CAST({low} * {power(-2)} AS BIGINT) * numeric '4'"
    return (
        f"CASE WHEN abs({whole}) < {power(63)} THEN CAST(CAST({whole} AS BIGINT) AS NUMERIC) "
        f"WHEN abs({whole}) < {power(127)} THEN {long} END"
    )


def from_numeric(column: str, kind: ColumnType, digits: tuple[int, int] | None) -> str:
    """A stored NUMERIC, which may be NaN, infinite, or longer than every double, unless its digits are limited."""
    if isinstance(kind, Decimal):
        return _decimal(f"round({column}, {kind.scale})", kind)
    if digits is not None and digits[0] <= 300 and digits[1] <= 300:
        return f"CAST({column} AS DOUBLE PRECISION)"
    end = int(TOO_LARGE)
    return f"CAST(round({within(column, 'numeric', -end, end)}, 323) AS DOUBLE PRECISION)"

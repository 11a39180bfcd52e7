"""Values as whole numbers of quanta, so that their sums are exact in any order. docs/proofs/bounding.md."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.expressions.ranges import power_above
from dpsql.expressions.write import (
    Sql,
    binary,
    call,
    cast,
    clamp,
    column,
    finite_clamp,
    huge,
    integer,
    literal,
    text,
    try_cast,
)
from dpsql.schema.types import Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.schema.types import ColumnType

ROW_BITS = 34
"""A value is rounded to this many bits of its range, so that 2^28 of the largest still fit below 2^62."""
EXACT_BITS = 40
"""Integers and decimals of up to so many bits are summed as they are, wider ones are rounded like doubles."""
LARGEST_BITS = 62
LARGEST = 2**LARGEST_BITS
"""Sums are held within +-2^62 before they leave the engine: a map that never widens a difference."""
EPOCH_DAY = literal(date(1970, 1, 1), Date())
WIDEST_DOUBLE = 2**1000
"""Beyond it a bound that is rounded outwards could leave the doubles."""


def in_quanta(value: Sql, kind: ColumnType, quantum: Fraction, low: int, high: int) -> Sql:
    """The value clamped to [low, high] quanta; NULL, NaN and infinity are no values."""
    match kind:
        case Double():
            held = finite_clamp(value, literal(low * quantum, kind), literal(high * quantum, kind))
            return _rounded(binary(held, "*", literal(1 / quantum, kind)))
        case Decimal() if quantum * 10**kind.scale == 1:
            # So few quanta (EXACT_BITS) that doubles are off by far less than half of one: rounding makes it exact.
            held = clamp(value, literal(low * quantum, kind), literal(high * quantum, kind))
            return _rounded(binary(cast(held, Double()), "*", literal(10**kind.scale, Double())))
        case Decimal():
            return in_quanta(cast(value, Double()), Double(), quantum, low, high)
        case Date():
            return clamp(call("date_diff", text("day"), EPOCH_DAY, value), integer(low), integer(high))
        case Timestamp():
            return clamp(call("epoch_us", value), integer(low), integer(high))
        case _:
            step = int(quantum)
            held = clamp(value, integer(low * step), integer(high * step))
            if step == 1:
                return held
            # x >> b rounds down; half a quantum more makes it round to the nearest.
            raised = binary(huge(held), "+", integer(step // 2))
            return try_cast(binary(raised, ">>", integer(step.bit_length() - 1)), Integer())


def _rounded(number: Sql) -> Sql:
    return try_cast(call("round", number), Integer())


def saturated(total: Sql) -> Sql:
    """A sum as 64 bits; of nothing it is 0."""
    held = call("greatest", call("coalesce", total, integer(0)), integer(-LARGEST))
    return try_cast(call("least", held, integer(LARGEST)), Integer())


def from_quanta(name: str, kind: Date | Timestamp) -> Sql:
    """The date or timestamp for a column with its number of days or microseconds."""
    if isinstance(kind, Date):
        return binary(EPOCH_DAY, "+", Sql(f"CAST({column(name)} AS INTEGER)"))
    return call("make_timestamp", column(name))


def quantum_for(kind: ColumnType, low: Fraction, high: Fraction) -> Fraction | None:
    """The value of one unit of a sum over [low, high]; None if the range is too wide to be summed exactly."""
    largest = max(abs(low), abs(high), Fraction(1, 2**60))
    if largest > WIDEST_DOUBLE:
        return None
    if isinstance(kind, Integer | Decimal):
        finest = Fraction(1, 10**kind.scale) if isinstance(kind, Decimal) else Fraction(1)
        if largest / finest <= 2**EXACT_BITS:
            return finest
    return Fraction(2) ** (power_above(largest) - ROW_BITS)

"""Values as whole numbers of quanta, so that their sums are exact in any order. docs/proofs/bounding.md."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.expressions.write import Sql, binary, call, cast, clamp, column, finite_clamp, huge, integer, literal, text
from dpsql.schema.types import Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.schema.types import ColumnType

ROW_BITS = 34
"""A value is rounded to this many bits of its range, so that 2^28 of the largest still fit below 2^62."""
EXACT_INTEGER_BITS = 40
"""Integers below this size are summed as they are."""
DECIMAL_DIGITS = 18
LARGEST = 2**62
"""Sums are held within +-2^62 before they leave the engine: a map that never widens a difference."""
EPOCH_DAY = literal(date(1970, 1, 1), Date())
WIDEST_DOUBLE = 2**1000
"""Beyond it a bound that is rounded outwards could leave the doubles."""


def in_quanta(value: Sql, kind: ColumnType, quantum: Fraction, low: int, high: int) -> Sql:
    """The value clamped to [low, high] quanta; NULL, NaN and infinity are no values."""
    match kind:
        case Double():
            held = finite_clamp(value, literal(low * quantum, kind), literal(high * quantum, kind))
            return cast(call("round", binary(held, "*", literal(1 / quantum, kind))), Integer())
        case Decimal():
            # Clamped first, so that the value fits into 18 digits before it is made whole.
            held = clamp(value, literal(low * quantum, kind), literal(high * quantum, kind))
            fitted = cast(held, Decimal(DECIMAL_DIGITS, kind.scale))
            return cast(binary(fitted, "*", integer(10**kind.scale)), Integer())
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
            return cast(binary(raised, ">>", integer(step.bit_length() - 1)), Integer())


def saturated(total: Sql) -> Sql:
    """A sum as 64 bits; of nothing it is 0."""
    held = call("greatest", call("coalesce", total, integer(0)), integer(-LARGEST))
    return cast(call("least", held, integer(LARGEST)), Integer())


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
    if isinstance(kind, Decimal):
        quantum = Fraction(1, 10**kind.scale)
        return quantum if largest / quantum < 10**DECIMAL_DIGITS else None
    if isinstance(kind, Integer) and largest <= 2**EXACT_INTEGER_BITS:
        return Fraction(1)
    return Fraction(2) ** (_bits(largest) - ROW_BITS)


def _bits(value: Fraction) -> int:
    """The least b with value <= 2^b."""
    bits = value.numerator.bit_length() - value.denominator.bit_length() - 1
    while Fraction(2) ** bits < value:
        bits += 1
    return bits

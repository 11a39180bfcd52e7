"""CAST between the declared types. A value that does not fit becomes NULL, so CAST and TRY_CAST are the same here.

All integers are 64 bits wide here; a cast to a narrower one only leaves out what would not fit into it.
"""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Literal

from dpsql.engine_sql.build import (
    LONG,
    WIDE,
    apply,
    cast,
    clamp,
    double,
    finite_clamp,
    in_64_bits,
    integer,
    one_zero,
    wide,
)
from dpsql.engine_sql.tree import AggFunc, Constant, Field, Short, TryCast
from dpsql.expressions.dates import in_calendar
from dpsql.expressions.math import half_away
from dpsql.expressions.properties import (
    NUMBERS,
    UNKNOWN,
    Exact,
    Properties,
    Range,
    bounded,
    converted,
    double_range,
    monotone,
    nearby,
    one_of,
    power_above,
    property_of,
    range_of,
)
from dpsql.expressions.tree import SHORT, Column, Function, Misfit, Written, is_null, largest
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.tree import Expression, Known
    from dpsql.schema.types import ColumnType

# From a number, a text or a boolean to a number; between dates and timestamps; anything to text.
SOURCES: dict[type, tuple[type, ...]] = {
    Integer: (*NUMBERS, Text, Boolean),
    Double: (*NUMBERS, Text, Boolean),
    Decimal: (*NUMBERS, Text, Boolean),
    Boolean: (Integer, Boolean, Text),
    Date: (Date, Timestamp, Text),
    Timestamp: (Date, Timestamp, Text),
    Text: (*NUMBERS, Text, Boolean, Date, Timestamp),
}
NARROW_INTEGERS: dict[str, Literal[8, 16, 32]] = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32}


def cast_properties(to: ColumnType, bits: int, arguments: Sequence[Properties]) -> Properties:
    (properties,) = arguments
    if is_null(properties):
        return one_of(to, (), nullable=True)
    if not isinstance(properties.type, SOURCES[type(to)]):
        raise Misfit(f"{properties.type.name} cannot be cast to {to.name}")
    if properties.type == to and bits == 64:
        return properties
    if isinstance(to, NUMBERS):
        return _fitted(properties, to, _moved(to, properties), bits)
    if isinstance(properties.type, Text):
        return property_of(to, nullable=True)
    if isinstance(to, Timestamp):
        return converted(properties, to)
    if isinstance(to, Date):
        low, high = (end.date() if isinstance(end, datetime) else None for end in (properties.low, properties.high))
        return bounded(to, low, high, nullable=properties.nullable)
    return property_of(to, nullable=properties.nullable)


def _moved(to: ColumnType, properties: Properties) -> Range:
    """The ends of the range after the cast, one step wider if the cast rounds."""
    if isinstance(properties.type, Boolean):
        return 0, 1
    if not properties.is_number:
        return UNKNOWN
    if isinstance(to, Double):
        return double_range(properties)
    if isinstance(to, Integer):
        # Doubles are rounded to the nearest even integer, decimals away from zero.
        return monotone(half_away if isinstance(properties.type, Decimal) else round, range_of(properties))
    if isinstance(to, Decimal) and not properties.whole:
        step = Fraction(1, 10**to.scale)
        low, high = nearby(range_of(properties)) if isinstance(properties.type, Double) else range_of(properties)
        return None if low is None else low // step * step, None if high is None else -(-high // step) * step
    return range_of(properties)


def _fitted(properties: Properties, to: ColumnType, low_high: Range, bits: int) -> Properties:
    """Values that do not fit become NULL, so the rest fit."""
    low, high = low_high
    if low is None or high is None:
        return property_of(to, nullable=True)
    most = _largest(to, bits)
    if most is None or -most <= low <= high <= most:
        return bounded(to, low, high, nullable=properties.nullable, whole=properties.whole)
    low, high = (max(-most - isinstance(to, Integer), min(end, most)) for end in (low, high))
    return bounded(to, low, high, nullable=True, whole=properties.whole)


def _largest(to: ColumnType, bits: int) -> Exact | None:
    if isinstance(to, Integer):
        return (1 << (bits - 1)) - 1
    return largest(to) if isinstance(to, Decimal) else None


def cast_sql(to: ColumnType, narrow: str | None, arguments: Sequence[Written]) -> Term:
    (argument,) = arguments
    if narrow is not None:
        return cast(TryCast(argument.sql, Short(NARROW_INTEGERS[narrow])), to)
    if isinstance(argument.properties.type, Double) and isinstance(to, Text):
        return cast(one_zero(argument.sql), to)
    converted = TryCast(argument.sql, to)
    if isinstance(argument.properties.type, Text) and isinstance(to, Date | Timestamp):
        return in_calendar(converted, to)  # 'infinity' and '12024-01-01' are dates to the engine
    return converted


def cast_to(to: ColumnType, narrow: str | None = None) -> Function:
    """The cast to one type, as a function of its own; `narrow` names an integer of fewer than 64 bits."""
    name = narrow or to.name
    bits = NARROW_INTEGERS[narrow] if narrow else 64
    return Function(
        f"CAST AS {name}", f"CAST(a AS {name})", partial(cast_properties, to, bits), partial(cast_sql, to, narrow)
    )


# -- fixed point -------------------------------------------------------------------------------------------------------
# Values as whole numbers of quanta, so that their sums are exact in any order. docs/proofs/bounding.md.

ROW_BITS = 30
"""What is summed is rounded to this many bits of its range: it fits into 32 bits, and the sum of 2^32 into 64."""
GRID_BITS = 34
"""What is drawn from a grid, a quantile or an average, is rounded to this many."""
EXACT_BITS = 40
"""Integers and decimals of up to so many bits are summed as they are, wider ones are rounded like doubles."""
LARGEST_SCALE = 8
"""Decimals with more digits after their point are summed as whole numbers: a sum of 28 digits, in units of the last of
these, has to fit into 38."""
NARROWEST = Fraction(1, 2**60)
"""A range has room for quanta even where it is nothing but zero."""
LARGEST_BITS = 62
LARGEST = 2**LARGEST_BITS
"""Sums are clamped to +-2^62 before they leave the engine: a map that never widens a difference."""
WIDEST_DOUBLE = 2**1000
"""Beyond it a bound that is rounded outwards could leave the doubles."""


def in_fixed_point(
    value: Term, kind: ColumnType, quantum: Fraction, low: int, high: int, into: Integer | Short = LONG
) -> Term:
    """The value clamped to [low, high] quanta, which fit `into` such numbers; NULL, NaN and infinity are no values."""
    match kind:
        case Double():
            clamped = finite_clamp(value, double(low * quantum), double(high * quantum))
            return TryCast(apply("*", clamped, double(1 / quantum), kind=kind), into)
        case Decimal() if quantum * 10**kind.scale == 1:
            clamped = clamp(value, Constant(low * quantum, kind), Constant(high * quantum, kind))
            digits, factor = len(str(max(abs(low), abs(high)))), Decimal(kind.scale + 1, 0)
            if max(digits, kind.scale) + factor.precision > SHORT:
                # So few quanta (EXACT_BITS) that doubles are off by far less than half of one: rounding makes it exact.
                return TryCast(apply("*", cast(clamped, Double()), double(10**kind.scale), kind=Double()), into)
            # A cast that has nothing to try keeps what an engine knows of the column's extremes.
            return cast(_product(clamped, kind, max(digits, kind.scale), Constant(10**kind.scale, factor)), into)
        case Decimal():
            return in_fixed_point(cast(value, Double()), Double(), quantum, low, high, into)
        case Date():
            return clamp(apply("epoch days", value, kind=Integer()), integer(low), integer(high))
        case Timestamp():
            return clamp(apply("epoch microseconds", value, kind=Integer()), integer(low), integer(high))
        case _:
            step = int(quantum)
            clamped = clamp(value, integer(low * step), integer(high * step))
            if step == 1:
                return clamped if into == LONG else cast(clamped, into)
            # x >> b rounds down; half a quantum more makes it round to the nearest.
            raised = apply("+", wide(clamped), integer(step // 2), kind=WIDE)
            return TryCast(apply(">>", raised, integer(step.bit_length() - 1), kind=WIDE), into)


def decimal_of_quanta(kind: ColumnType, quantum: Fraction) -> Decimal | None:
    """The kind itself, if it is a short decimal of which a quantum is the last digit: engines sum it as it is, and
    faster than what they would have to make of it. The sum has room for 10^15 values of EXACT_BITS."""
    match kind:
        case Decimal(precision, scale) if precision <= SHORT and scale <= LARGEST_SCALE and quantum * 10**scale == 1:
            return kind
    return None


def clamps_column(argument: Expression, known: Known, quantum: Fraction, low: int, high: int) -> bool:
    """Whether this is a column of numbers that [low, high] quanta clamp at least as much as its scan does."""
    if not isinstance(argument, Column) or not isinstance(argument.type, Integer | Double | Decimal):
        return False
    declared = known[argument.name]
    least, most = (end if isinstance(end, int | Fraction) else None for end in (declared.low, declared.high))
    return (
        declared.values is None
        and (least is None or (low + 1) * quantum > least)
        and (most is None or (high - 1) * quantum < most)
    )


def _product(value: Term, kind: Decimal, digits: int, factor: Constant) -> Term:
    """The product with a value of so few digits that the result has at most 18, which engines compute in 64 bits."""
    assert isinstance(factor.kind, Decimal)
    if kind.precision + factor.kind.precision > SHORT:
        kind = Decimal(digits, kind.scale)
        value = TryCast(value, kind)
    return apply("*", value, factor, kind=Decimal(kind.precision + factor.kind.precision, kind.scale))


def saturated(total: Term) -> Term:
    """A sum as a 64-bit integer, 0 over no rows. A count already is one, since no unit has 2^62 rows."""
    if isinstance(total, AggFunc) and total.name == "count":
        return total
    clamped = apply("greatest", apply("coalesce", total, integer(0), kind=WIDE), integer(-LARGEST), kind=WIDE)
    return in_64_bits(apply("least", clamped, integer(LARGEST), kind=WIDE))


def from_fixed_point(name: str, kind: Date | Timestamp) -> Term:
    """The date or timestamp for a column with its number of days or microseconds."""
    return apply(f"from epoch {'days' if isinstance(kind, Date) else 'microseconds'}", Field(name), kind=kind)


def quantum_for(kind: ColumnType, low: Fraction, high: Fraction, row_bits: int = ROW_BITS) -> Fraction | None:
    """The value of one unit of a sum over [low, high]; None if the range is too wide to be summed exactly."""
    largest = max(abs(low), abs(high), NARROWEST)
    if largest > WIDEST_DOUBLE:
        return None
    if isinstance(kind, Integer | Decimal):
        finest = Fraction(1, 10**kind.scale) if isinstance(kind, Decimal) else Fraction(1)
        if largest / finest <= 2**EXACT_BITS:
            return finest
    bits = power_above(largest) - row_bits
    return Fraction(1 << max(bits, 0), 1 << max(-bits, 0))

"""CAST between the declared types. A value that does not fit becomes NULL, so CAST and TRY_CAST are the same here.

All integers are 64 bits wide here; a cast to a narrower one only leaves out what would not fit into it.
"""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Literal

from dpsql.engine_sql.build import cast, one_zero
from dpsql.engine_sql.tree import Short, TryCast
from dpsql.expressions.decimals import largest
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import NUMBERS, Properties, bounded, converted, one_of, property_of
from dpsql.expressions.ranges import UNKNOWN, Exact, Range, double_range, monotone, nearby, range_of
from dpsql.expressions.rounding import half_away
from dpsql.expressions.temporal.parts import in_calendar
from dpsql.expressions.types import is_null
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
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
    """Where the ends of the range go; one step further out where the cast rounds."""
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
    """What does not fit becomes NULL, and what is left fits."""
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

"""CAST between the declared types. A value that does not fit becomes NULL, so CAST and TRY_CAST are the same here."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.expressions.arithmetic import range_of
from dpsql.expressions.dates import as_moment
from dpsql.expressions.facts import NUMBERS, Facts, bounded, fact_of
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import is_null
from dpsql.expressions.write import Sql, try_cast
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.expressions.facts import Limit
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


def cast_facts(to: ColumnType, arguments: Sequence[Facts]) -> Facts:
    (facts,) = arguments
    if not isinstance(facts.type, SOURCES[type(to)]) and not is_null(facts):
        raise Misfit(f"{facts.type.name} cannot be cast to {to.name}")
    if facts.type == to:
        return facts
    low, high = _moved(to, facts)
    if low is None or high is None:
        return fact_of(to, nullable=True)
    return bounded(to, low, high, nullable=facts.nullable, whole=facts.whole)


def _moved(to: ColumnType, facts: Facts) -> tuple[Limit | None, Limit | None]:
    """Where the ends of the range go; one step further out where the cast rounds."""
    if isinstance(facts.type, Boolean) and isinstance(to, NUMBERS):
        return 0, 1
    if isinstance(to, Timestamp):
        return as_moment(facts.low), as_moment(facts.high)
    if isinstance(to, Date) and isinstance(facts.type, Timestamp):
        low, high = as_moment(facts.low), as_moment(facts.high)
        return low and low.date(), high and high.date()
    if not (isinstance(to, NUMBERS) and facts.is_number):
        return None, None
    low_number, high_number = range_of(facts)
    if low_number is None or high_number is None:
        return None, None
    if isinstance(to, Integer):
        return round(low_number), round(high_number)
    if isinstance(to, Decimal) and not facts.whole:
        step = Fraction(1, 10**to.scale)
        return low_number // step * step, -(-high_number // step) * step
    return low_number, high_number


def cast_sql(to: ColumnType, arguments: Sequence[Written]) -> Sql:
    return try_cast(arguments[0].sql, to)


def cast_to(to: ColumnType) -> Function:
    """The cast to one type, as a function of its own."""
    return Function(f"CAST AS {to.name}", f"CAST(a AS {to.name})", partial(cast_facts, to), partial(cast_sql, to))

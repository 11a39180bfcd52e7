"""What is known of an expression's value, whatever the data: its type, its range, its possible values.

Properties come from the declared schema, which the scan enforces on every row, and follow each expression upwards. They
choose clamps and public groups; a clamp is still applied where a sum is taken, so a fact that were too narrow would
cost accuracy, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dpsql.schema.types import Boolean, Date, Double, Integer, Timestamp
from dpsql.schema.types import Decimal as DecimalType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpsql.schema.types import ColumnType

# -- ranges ------------------------------------------------------------------------------------------------------------
# Ranges of numbers, exact, and what an operation makes of them. Where the engine rounds, a range reaches out to the
# next doubles, so that no rounded result lies outside it.
#
# A range of doubles that is known on both sides also says that the value is finite.

Exact: TypeAlias = int | Fraction
Range: TypeAlias = tuple[Exact | None, Exact | None]
UNKNOWN: Range = (None, None)
EXACT_DECIMAL_DIGITS = 15
"""Decimals of up to this many digits become the nearest double; of longer ones the last bit is not certain."""


def range_of(properties: Properties) -> Range:
    low, high = properties.low, properties.high
    return None if isinstance(low, date) else low, None if isinstance(high, date) else high


def double_range(properties: Properties) -> Range:
    """The range of the value once it is cast to double."""
    found = rounded_out(range_of(properties))
    if isinstance(properties.type, DecimalType) and properties.type.precision > EXACT_DECIMAL_DIGITS:
        return nearby(found)
    return found


def magnitude(value: Exact) -> Exact:
    return -value if value < 0 else value


def corners(
    operation: Callable[[Exact, Exact], Exact], left: Sequence[Exact | None], right: Sequence[Exact | None]
) -> Range:
    """The range of an operation that is monotone in each argument: its extremes lie at the corners."""
    if None in left or None in right or not right:
        return UNKNOWN
    reached = [operation(a, b) for a in left for b in right]  # type: ignore[arg-type]
    return min(reached), max(reached)


def monotone(change: Callable[[Exact], Exact | None], low_high: Range) -> Range:
    """The range of a function that never decreases."""
    low, high = low_high
    return (None if low is None else change(low), None if high is None else change(high))


def rounded_out(low_high: Range) -> Range:
    """The doubles around: the result of one correctly rounded operation stays between them.

    >>> rounded_out((0, 3 * Fraction(0.1)))[1] == Fraction(0.1 * 3)
    True
    """
    low, high = low_high
    return (None if low is None else double_below(low), None if high is None else double_above(high))


def nearby(low_high: Range) -> Range:
    """Two doubles further out, for functions of the reals that are not rounded correctly.

    A whole result stays, where doubles have fractions: the libraries are exact there, and FLOOR(LOG10(x)) should not
    get one more group.
    """
    (low, high), (below, above) = low_high, next_doubles(low_high)
    return (low if low is None or _stays(low) else below, high if high is None or _stays(high) else above)


def next_doubles(low_high: Range) -> Range:
    """Two doubles further out."""
    low, high = low_high
    return (
        None if low is None else double_below(_steps(low, -math.inf)),
        None if high is None else double_above(_steps(high, math.inf)),
    )


def _stays(value: Exact) -> bool:
    return value == int(value) and magnitude(value) < 2**52


def _steps(value: Exact, towards: float) -> Exact:
    further = math.nextafter(math.nextafter(float(value), towards), towards)
    return Fraction(further) if math.isfinite(further) else value


def double_below(value: Exact) -> Exact | None:
    """The largest double that is not above the value; None beyond the doubles."""
    if value.denominator == 1 and abs(value.numerator) <= 2**53:
        return value
    try:
        nearest = float(value)
    except OverflowError:
        return None
    if nearest == value:
        return value
    below = math.nextafter(nearest, -math.inf) if nearest > value else nearest
    return Fraction(below) if math.isfinite(below) else None


def double_above(value: Exact) -> Exact | None:
    below = double_below(-value)
    return None if below is None else -below


def power_above(value: Exact) -> int:
    """The least b with value <= 2^b.

    >>> power_above(8), power_above(9), power_above(Fraction(1, 3))
    (3, 4, -1)
    """
    exact = Fraction(value)
    above, below = exact.numerator, exact.denominator
    bits = above.bit_length() - below.bit_length() - 1
    while below << max(bits, 0) < above << max(-bits, 0):
        bits += 1
    return bits


# -- properties --------------------------------------------------------------------------------------------------------

Value: TypeAlias = int | Fraction | str | bool | date | datetime
Limit: TypeAlias = int | Fraction | date | datetime

NUMBERS = (Integer, Double, DecimalType)
INT64 = (-(2**63), 2**63 - 1)
MOST_VALUES = 10_000
"""Possible values are carried along as a list up to this length; longer ones are described by their range."""


@dataclass(frozen=True)
class Properties:
    """Every value is NULL (if `nullable`), or lies in [low, high], and is one of `values` if these are known.

    `whole` numbers have no fraction, whatever their type. A text is at most `growth` times as long as the longest text
    that the row or the query holds. `parts` is how many functions an engine sees that puts what a column is computed
    from in the place of its name.
    """

    type: ColumnType
    nullable: bool = True
    low: Limit | None = None
    high: Limit | None = None
    values: tuple[Value, ...] | None = None
    whole: bool = False
    growth: int = 1
    parts: int = field(default=0, compare=False)

    @property
    def is_number(self) -> bool:
        return isinstance(self.type, NUMBERS)

    @property
    def constant(self) -> Value | None:
        """The only possible value, if there is just one."""
        return self.values[0] if self.values is not None and len(self.values) == 1 and not self.nullable else None

    @property
    def size(self) -> int | None:
        """The number of possible values, including NULL; None if not known to be finite."""
        count = self._distinct
        return None if count is None else count + self.nullable

    @property
    def _distinct(self) -> int | None:
        if self.values is not None:
            return len(self.values)
        if self.low is None or self.high is None:
            return None
        if isinstance(self.low, date) and isinstance(self.high, date) and isinstance(self.type, Date):
            return max(0, (self.high - self.low).days + 1)
        if self.whole and not isinstance(self.low, date) and not isinstance(self.high, date):
            return max(0, int(self.high) - int(self.low) + 1)
        return None

    def listed(self) -> tuple[Value, ...] | None:
        """All possible values except NULL, if there are few enough to list."""
        count = self._distinct
        if self.values is not None or count is None or count > MOST_VALUES:
            return self.values
        if isinstance(self.low, date):
            return tuple(self.low + timedelta(days=day) for day in range(count))
        assert self.low is not None
        return tuple(int(self.low) + step for step in range(count))


def property_of(type: ColumnType, *, nullable: bool) -> Properties:  # noqa: A002 - the textbook word
    """The facts that follow from the type alone."""
    if isinstance(type, Boolean):
        return Properties(type, nullable, values=(False, True))
    return Properties(type, nullable, whole=isinstance(type, Integer))


def bounded(
    type: ColumnType,  # noqa: A002
    low: Limit | None,
    high: Limit | None,
    *,
    nullable: bool,
    whole: bool = False,
) -> Properties:
    """A range of numbers or dates; whole numbers are rounded inwards."""
    whole = whole or isinstance(type, Integer)
    if whole and isinstance(low, Fraction):
        low = -(-low.numerator // low.denominator)
    if whole and isinstance(high, Fraction):
        high = high.numerator // high.denominator
    return Properties(type, nullable, low, high, whole=whole)


def one_of(type: ColumnType, values: Iterable[Value], *, nullable: bool) -> Properties:  # noqa: A002
    """The properties of a list of possible values, in order; they imply the range."""
    listed = tuple(dict.fromkeys(values))
    numeric = isinstance(type, (*NUMBERS, Date, Timestamp)) and listed
    low, high = (min(listed), max(listed)) if numeric else (None, None)
    whole = isinstance(type, Integer) or (isinstance(type, NUMBERS) and all(is_whole(value) for value in listed))
    return Properties(type, nullable, low, high, listed, whole)  # type: ignore[arg-type]


def is_whole(value: Value) -> bool:
    return isinstance(value, int) or (isinstance(value, Fraction) and value.denominator == 1)


def union(choices: Sequence[Properties], type: ColumnType) -> Properties:  # noqa: A002
    """The properties of a value that is one of these, such as the branches of a CASE."""
    nullable = any(choice.nullable for choice in choices)
    growth = max((choice.growth for choice in choices), default=1)
    choices = [converted(choice, type) for choice in choices if choice.values != ()]  # NULL has no range
    lists = [choice.listed() for choice in choices]
    if all(values is not None for values in lists) and sum(len(values or ()) for values in lists) <= MOST_VALUES:
        return one_of(type, (value for values in lists for value in values or ()), nullable=nullable)
    lows = [choice.low for choice in choices]
    highs = [choice.high for choice in choices]
    return Properties(
        type,
        nullable,
        None if any(low is None for low in lows) else min(lows),  # type: ignore[type-var]
        None if any(high is None for high in highs) else max(highs),  # type: ignore[type-var]
        whole=all(choice.whole for choice in choices),
        growth=growth,
    )


def converted(properties: Properties, type: ColumnType) -> Properties:  # noqa: A002
    """The same value as the other type in which it is compared or chosen: a date as its midnight."""
    if isinstance(type, Double) and properties.is_number and properties.values is None:
        ends = double_range(properties)
        if properties.type == type and ends == (properties.low, properties.high):
            return properties
        return replace(properties, type=type, low=ends[0], high=ends[1])
    if (
        isinstance(type, DecimalType)
        and isinstance(properties.type, DecimalType)
        and type.scale < properties.type.scale
    ):
        return _coarser(properties, type)
    if not (isinstance(type, Timestamp) and isinstance(properties.type, Date)):
        return properties
    days = properties.listed()
    if days is not None:
        return one_of(type, (midnight(day) for day in days), nullable=properties.nullable)
    low, high = (None if end is None else midnight(end) for end in (properties.low, properties.high))
    return bounded(type, low, high, nullable=properties.nullable)


def _coarser(properties: Properties, type: DecimalType) -> Properties:  # noqa: A002
    """A decimal with fewer digits after the point."""
    step, low, high = Fraction(1, 10**type.scale), properties.low, properties.high
    low = None if low is None or isinstance(low, date) else low // step * step
    high = None if high is None or isinstance(high, date) else -(-high // step) * step
    return bounded(type, low, high, nullable=properties.nullable, whole=properties.whole)


def midnight(day: object) -> datetime:
    """
    >>> midnight(date(2024, 1, 31))
    datetime.datetime(2024, 1, 31, 0, 0)
    """
    assert isinstance(day, date)
    return day if isinstance(day, datetime) else datetime(day.year, day.month, day.day)


def narrowed(properties: Properties, *, low: Limit | None = None, high: Limit | None = None) -> Properties:
    """The same value after a WHERE that leaves only [low, high], and no NULL."""
    if low is None or (properties.low is not None and properties.low > low):  # type: ignore[operator]
        low = properties.low
    if high is None or (properties.high is not None and properties.high < high):  # type: ignore[operator]
        high = properties.high
    if properties.values is not None:
        kept = [v for v in properties.values if (low is None or v >= low) and (high is None or v <= high)]  # type: ignore[operator]
        return one_of(properties.type, kept, nullable=False)
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        high = low  # nothing is left; an empty range would be no range
    return bounded(properties.type, low, high, nullable=False, whole=properties.whole)


def chosen(properties: Properties, values: Iterable[Value]) -> Properties:
    """The same value after a WHERE that leaves only these."""
    if isinstance(properties.type, Integer):
        values = [int(value) for value in values if is_whole(value)]  # type: ignore[arg-type]
    return one_of(properties.type, [value for value in values if _possible(properties, value)], nullable=False)


def _possible(properties: Properties, value: Value) -> bool:
    if properties.values is not None:
        return value in properties.values
    if properties.low is not None and value < properties.low:  # type: ignore[operator]
        return False
    return properties.high is None or value <= properties.high  # type: ignore[operator]


def not_null(properties: Properties) -> Properties:
    return _nullable(properties, False) if properties.nullable else properties


def maybe_null(properties: Properties, missing: bool = True) -> Properties:
    """The same value, or NULL where it may be missing."""
    return _nullable(properties, True) if missing and not properties.nullable else properties


def _nullable(properties: Properties, nullable: bool) -> Properties:
    """Asked of every column of every table, so in the way that is quickest."""
    return Properties(
        properties.type,
        nullable,
        properties.low,
        properties.high,
        properties.values,
        properties.whole,
        properties.growth,
        properties.parts,
    )


def exact_value(value: object) -> Value:
    """A declared value in the form used by properties: exact numbers, everything else unchanged.

    >>> exact_value(0.5)
    Fraction(1, 2)
    """
    if isinstance(value, float | Decimal):
        return Fraction(value)
    assert isinstance(value, int | Fraction | str | bool | date)
    return value

"""SUM and AVG within one unit: the exact total, then the nearest double. docs/proofs/unit_sums.md.

A plain sum of doubles depends on the order of the rows, and so on who else is there. Here every value is cut into two
whole numbers, which are summed exactly and put together again: the result is a function of the unit's rows, one value
is itself, and comparisons, bins and keys are those of the correctly rounded sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import WIDE, apply, cast, count, double, in_64_bits, integer, nonzero, test, total, when
from dpsql.engine_sql.tree import Constant, Fold, TryCast
from dpsql.errors import UnboundedColumn, Unsupported
from dpsql.expressions.ranges import magnitude, power_above, range_of
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.properties import Properties
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType

HIGH_BITS = 62
"""The first whole number of a value holds so many bits, counted from the largest that the column can hold; their sum
in 128 bits stays within for more rows than anybody has."""
LOW_BITS = 53
"""The second holds the next ones: a double holds so many exactly."""
TAKEN_APART = 50
SMALLEST_POWER, LARGEST_POWER = -900, 1000
"""Ranges between these powers of two keep all factors among the normal doubles."""
SUMMED_DIGITS = 18
"""Decimals of up to so many digits are 64 bits wide, and their sums 128."""


@dataclass(frozen=True)
class Parts:
    """An aggregate that is put together from several: the calls, and what is made of the columns that hold them."""

    calls: tuple[Fold, ...]
    whole: Callable[[Sequence[Term]], Term]


def sum_parts(asked: AggregateCall, value: Term, properties: Properties) -> Parts:
    """SUM or AVG over a column."""
    average = asked.name == "AVG"
    match properties.type:
        case Integer():
            parts = _average_parts(total(value), value, 1) if average else Parts((total(value),), _as_integer)
            return replace(parts, calls=tuple(replace(call, distinct=asked.distinct) for call in parts.calls))
        case Decimal():
            _check_digits(asked, properties)
            return _decimal_parts(value, properties.type, average)
        case _:
            return _double_parts(value, _power(asked, properties), average)


def sum_type(kind: ColumnType) -> ColumnType:
    """As which type a total comes out."""
    return Decimal(WIDEST_DECIMAL, kind.scale) if isinstance(kind, Decimal) else kind


def _as_integer(parts: Sequence[Term]) -> Term:
    return in_64_bits(parts[0])


# -- decimals ---------------------------------------------------------------------------------------------------------


def _check_digits(asked: AggregateCall, properties: Properties) -> None:
    kind = properties.type
    assert isinstance(kind, Decimal)
    ends = [
        Fraction(10) ** (kind.precision - kind.scale) if end is None else magnitude(end) for end in range_of(properties)
    ]
    if kind.scale > SUMMED_DIGITS or max(ends) * 10**kind.scale > 10**SUMMED_DIGITS:
        raise Unsupported(
            f"{asked.name} within one unit takes decimals of up to {SUMMED_DIGITS} digits, "
            f"so that no total can overflow",
            at=asked.at,
            hint="declare bounds on the column, or CAST it to a smaller decimal or to DOUBLE",
        )


def _decimal_parts(value: Term, kind: Decimal, average: bool) -> Parts:
    fitted = TryCast(value, Decimal(SUMMED_DIGITS, kind.scale))
    if not average:
        summed = Fold("sum", (fitted,), kind=sum_type(kind))
        return Parts((summed,), lambda parts: cast(parts[0], sum_type(kind)))
    wide = Decimal(WIDEST_DECIMAL, kind.scale)
    digits = apply("*", cast(fitted, wide), Constant(10**kind.scale, Decimal(kind.scale + 1, 0)), kind=wide)
    return _average_parts(total(in_64_bits(digits)), value, 10**kind.scale)


def _average_parts(summed: Fold, value: Term, scale: int) -> Parts:
    """An exact total of whole numbers, `scale` of which are one."""

    def whole(parts: Sequence[Term]) -> Term:
        (sum_, rows, least, most) = parts
        divisor = apply("*", cast(rows, Double()), double(scale), kind=Double()) if scale > 1 else rows
        mean = apply("/", cast(sum_, Double()), nonzero(divisor, integer(0)), kind=Double())
        return _between(mean, cast(least, Double()), cast(most, Double()))

    return Parts((summed, count(value), Fold("min", (value,)), Fold("max", (value,))), whole)


def _between(mean: Term, least: Term, most: Term) -> Term:
    """Two roundings can carry a mean past all of its values. All three are NULL together."""
    return apply("greatest", apply("least", mean, most, kind=Double()), least, kind=Double())


# -- doubles ----------------------------------------------------------------------------------------------------------


def _power(asked: AggregateCall, properties: Properties) -> int:
    """The power of two that no value of the column passes."""
    low, high = range_of(properties)
    if low is not None and high is not None:
        power = power_above(max(magnitude(low), magnitude(high)))
        if power <= LARGEST_POWER:
            return max(power, SMALLEST_POWER)
    raise UnboundedColumn(
        f"{asked.name} within one unit needs a bounded value, so that its sum is exact",
        at=asked.at,
        hint="declare bounds on the column, or hold it: LEAST(GREATEST(..., 0), 500)",
    )


def _double_parts(value: Term, power: int, average: bool) -> Parts:
    """x = (first * 2^53 + second) * 2^(power - 115), where x has no bits below that."""
    high = apply("trunc", _times(value, HIGH_BITS - power), kind=Double())
    rest = apply("-", value, _times(high, power - HIGH_BITS), kind=Double())
    low = _times(rest, HIGH_BITS + LOW_BITS - power)
    least, most = (Fold(name, (value,), kind=Double()) for name in ("min", "max"))
    calls = (total(in_64_bits(high)), total(in_64_bits(low)), count(value), least)

    def summed(parts: Sequence[Term]) -> Term:
        first, second, rows, least = parts[:4]
        # One value is itself, however small it is.
        return when(test("=", rows, integer(1)), least, _rounded(first, second, power))

    def mean(parts: Sequence[Term]) -> Term:
        mean = apply("/", summed(parts), nonzero(parts[2], integer(0)), kind=Double())
        return _between(mean, parts[3], parts[4])

    return Parts((*calls, most), mean) if average else Parts(calls, summed)


def _rounded(first: Term, second: Term, power: int) -> Term:
    """The double nearest to (first * 2^53 + second) * 2^(power - 115), first and second 128 bits wide.

    Either way two doubles that are exact are added once. Where the first is too long for a double, it is taken apart
    itself, and of what lies below it only the sign can matter.
    """
    limb, apart = integer(2**LOW_BITS), integer(2**TAKEN_APART)
    carried = _wide("+", first, _wide("//", second, limb))
    left = _wide("%", second, limb)
    short = _scaled_sum(carried, power - HIGH_BITS, left, power - HIGH_BITS - LOW_BITS)
    ending = _wide("+", _wide("*", _wide("%", carried, apart), integer(2)), apply("sign", left))
    long = _scaled_sum(_wide("//", carried, apart), power - HIGH_BITS + TAKEN_APART, ending, power - HIGH_BITS - 1)
    return when(test("<", apply("abs", carried, kind=WIDE), limb), short, long)


def _scaled_sum(first: Term, first_power: int, second: Term, second_power: int) -> Term:
    scaled = (_times(cast(first, Double()), first_power), _times(cast(second, Double()), second_power))
    return apply("+", *scaled, kind=Double())


def _times(value: Term, power: int) -> Term:
    """Multiplied by two to this power."""
    return apply("*", value, double(Fraction(2) ** power), kind=Double())


def _wide(operation: str, left: Term, right: Term) -> Term:
    return apply(operation, left, right, kind=WIDE)

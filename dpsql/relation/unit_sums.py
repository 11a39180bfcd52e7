"""SUM and AVG within one unit: the exact total, then the nearest double. docs/proofs/unit_sums.md.

A plain sum of doubles depends on the order of the rows, and so on who else is there. Here every value is cut into two
whole numbers, which are summed exactly and put together again: the result is a function of the unit's rows, one value
is itself, and comparisons, bins and keys are those of the correctly rounded sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import UnboundedColumn, Unsupported
from dpsql.expressions.ranges import magnitude, power_above, range_of
from dpsql.expressions.write import Sql, binary, call, cast, integer, literal, nonzero, try_cast, when
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.expressions.facts import Facts
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

    calls: tuple[Sql, ...]
    whole: Callable[[Sequence[Sql]], Sql]


def sum_parts(asked: AggregateCall, value: Sql, facts: Facts) -> Parts:
    """SUM or AVG over a column."""
    average = asked.name == "AVG"
    match facts.type:
        case Integer():
            total = call("sum", value)
            return _average_parts(total, value, 1) if average else Parts((total,), _as_integer)
        case Decimal():
            _check_digits(asked, facts)
            return _decimal_parts(value, facts.type, average)
        case _:
            return _double_parts(value, _power(asked, facts), average)


def sum_type(kind: ColumnType) -> ColumnType:
    """As which type a total comes out."""
    return Decimal(WIDEST_DECIMAL, kind.scale) if isinstance(kind, Decimal) else kind


def _as_integer(parts: Sequence[Sql]) -> Sql:
    return try_cast(parts[0], Integer())


# -- decimals ---------------------------------------------------------------------------------------------------------


def _check_digits(asked: AggregateCall, facts: Facts) -> None:
    kind = facts.type
    assert isinstance(kind, Decimal)
    ends = [Fraction(10) ** (kind.precision - kind.scale) if end is None else magnitude(end) for end in range_of(facts)]
    if kind.scale > SUMMED_DIGITS or max(ends) * 10**kind.scale > 10**SUMMED_DIGITS:
        raise Unsupported(
            f"{asked.name} within one unit takes decimals of up to {SUMMED_DIGITS} digits, "
            f"so that no total can overflow",
            at=asked.at,
            hint="declare bounds on the column, or CAST it to a smaller decimal or to DOUBLE",
        )


def _decimal_parts(value: Sql, kind: Decimal, average: bool) -> Parts:
    fitted = try_cast(value, Decimal(SUMMED_DIGITS, kind.scale))
    if not average:
        return Parts((call("sum", fitted),), lambda parts: cast(parts[0], sum_type(kind)))
    wide = cast(fitted, Decimal(WIDEST_DECIMAL, kind.scale))
    digits = try_cast(binary(wide, "*", literal(10**kind.scale, Decimal(kind.scale + 1, 0))), Integer())
    return _average_parts(call("sum", digits), value, 10**kind.scale)


def _average_parts(total: Sql, value: Sql, scale: int) -> Parts:
    """An exact total of whole numbers, `scale` of which are one."""

    def whole(parts: Sequence[Sql]) -> Sql:
        (sum_, count, least, most) = parts
        divisor = binary(cast(count, Double()), "*", literal(scale, Double())) if scale > 1 else count
        mean = binary(cast(sum_, Double()), "/", nonzero(divisor, integer(0)))
        return _between(mean, cast(least, Double()), cast(most, Double()))

    return Parts((total, call("count", value), call("min", value), call("max", value)), whole)


def _between(mean: Sql, least: Sql, most: Sql) -> Sql:
    """Two roundings can carry a mean past all of its values. All three are NULL together."""
    return call("greatest", call("least", mean, most), least)


# -- doubles ----------------------------------------------------------------------------------------------------------


def _power(asked: AggregateCall, facts: Facts) -> int:
    """The power of two that no value of the column passes."""
    low, high = range_of(facts)
    if low is not None and high is not None:
        power = power_above(max(magnitude(low), magnitude(high)))
        if power <= LARGEST_POWER:
            return max(power, SMALLEST_POWER)
    raise UnboundedColumn(
        f"{asked.name} within one unit needs a bounded value, so that its sum is exact",
        at=asked.at,
        hint="declare bounds on the column, or hold it: LEAST(GREATEST(..., 0), 500)",
    )


def _double_parts(value: Sql, power: int, average: bool) -> Parts:
    """x = (first * 2^53 + second) * 2^(power - 115), where x has no bits below that."""
    high = call("trunc", binary(value, "*", _two_to(HIGH_BITS - power)))
    rest = binary(value, "-", binary(high, "*", _two_to(power - HIGH_BITS)))
    low = binary(rest, "*", _two_to(HIGH_BITS + LOW_BITS - power))
    limbs = (call("sum", try_cast(high, Integer())), call("sum", try_cast(low, Integer())))
    count, least, most = call("count", value), call("min", value), call("max", value)

    def total(parts: Sequence[Sql]) -> Sql:
        first, second, count, least = parts[:4]
        # One value is itself, however small it is.
        return when(Sql(f"{count} = 1"), least, _rounded(first, second, power))

    def mean(parts: Sequence[Sql]) -> Sql:
        mean = binary(total(parts), "/", nonzero(parts[2], integer(0)))
        return _between(mean, parts[3], parts[4])

    return Parts((*limbs, count, least, most), mean) if average else Parts((*limbs, count, least), total)


def _rounded(first: Sql, second: Sql, power: int) -> Sql:
    """The double nearest to (first * 2^53 + second) * 2^(power - 115), first and second 128 bits wide.

    Either way two doubles that are exact are added once. Where the first is too long for a double, it is taken apart
    itself, and of what lies below it only the sign can matter.
    """
    limb, apart = integer(2**LOW_BITS), integer(2**TAKEN_APART)
    carried = binary(first, "+", binary(second, "//", limb))
    left = binary(second, "%", limb)
    short = _scaled_sum(carried, power - HIGH_BITS, left, power - HIGH_BITS - LOW_BITS)
    ending = binary(binary(binary(carried, "%", apart), "*", integer(2)), "+", call("sign", left))
    long = _scaled_sum(binary(carried, "//", apart), power - HIGH_BITS + TAKEN_APART, ending, power - HIGH_BITS - 1)
    return when(Sql(f"{call('abs', carried)} < {limb}"), short, long)


def _scaled_sum(first: Sql, first_power: int, second: Sql, second_power: int) -> Sql:
    scaled = (
        binary(cast(number, Double()), "*", _two_to(power))
        for number, power in ((first, first_power), (second, second_power))
    )
    return binary(next(scaled), "+", next(scaled))


def _two_to(power: int) -> Sql:
    return literal(Fraction(2) ** power, Double())

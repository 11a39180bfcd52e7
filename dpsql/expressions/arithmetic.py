"""+ - * / // % and the sign: ranges from their corners; overflow and division by zero give NULL.

What is written fails on no value, whatever is known of them: an engine does not evaluate as it is told. What is known
only chooses among ways that give the same where it is true.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, arithmetic, double, integer, nonzero, test, when
from dpsql.engine_sql.tree import Constant
from dpsql.expressions.properties import (
    UNKNOWN,
    Exact,
    Properties,
    Range,
    bounded,
    corners,
    double_range,
    magnitude,
    range_of,
    rounded_out,
)
from dpsql.expressions.tree import (
    Function,
    Misfit,
    Written,
    digits_for,
    largest,
    number_type,
    operation_sql,
    product_decimal,
    short_product_sql,
    sum_decimal,
    written_as,
)
from dpsql.schema.types import WIDEST_DECIMAL, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.schema.types import ColumnType

FITTING = 2**62
"""What certainly fits into 64 bits: far from their ends, so that no slip in a range of doubles can matter."""


def need_numbers(name: str, arguments: Sequence[Properties], count: int) -> None:
    if len(arguments) != count or not all(properties.is_number for properties in arguments):
        types = ", ".join(properties.type.name for properties in arguments)
        raise Misfit(f"{name} takes {'two numbers' if count == 2 else 'a number'}, not ({types})")


def fits(result: Properties) -> bool:
    """Whether an integer or decimal certainly fits into its type."""
    low, high = range_of(result)
    most = largest(result.type) if isinstance(result.type, Decimal) else FITTING
    return low is not None and high is not None and -most <= low and high <= most


def argument_ranges(arguments: Sequence[Properties]) -> list[Range]:
    """The ranges in the type in which the operation is done."""
    doubles = any(isinstance(properties.type, Double) for properties in arguments)
    return [double_range(properties) if doubles else range_of(properties) for properties in arguments]


def number(
    arguments: Sequence[Properties], kind: ColumnType, low_high: Range, *, whole: bool, nullable: bool = False
) -> Properties:
    """The properties of a result of this type."""
    nullable = nullable or any(properties.nullable for properties in arguments)
    if isinstance(kind, Double):
        return bounded(kind, *rounded_out(low_high), nullable=nullable, whole=whole)
    properties = bounded(kind, *low_high, nullable=nullable, whole=whole)
    # Overflow becomes NULL, and what is left fits.
    return properties if fits(properties) else bounded(kind, None, None, nullable=True, whole=whole)


DECIMAL_RULES = {"+": sum_decimal, "-": sum_decimal, "*": product_decimal}


def sum_properties(
    operation: Callable[[Exact, Exact], Exact], name: str, arguments: Sequence[Properties]
) -> Properties:
    need_numbers(name, arguments, 2)
    kind = number_type(arguments, DECIMAL_RULES[name])
    left, right = argument_ranges(arguments)
    return number(
        arguments, kind, corners(operation, left, right), whole=all(properties.whole for properties in arguments)
    )


def sum_sql(operator: str, arguments: Sequence[Written]) -> Term:
    """Doubles become infinite and never fail."""
    kind = number_type([argument.properties for argument in arguments])
    if isinstance(kind, Decimal):
        short = _short_product(arguments) if operator == "*" else None
        left, right = (argument.sql for argument in arguments)
        return short or operation_sql(left, operator, right, [argument.properties.type for argument in arguments])
    left, right = (written_as(kind, argument) for argument in arguments)
    return apply(operator, left, right, kind=kind) if isinstance(kind, Double) else arithmetic(operator, left, right)


def _short_product(arguments: Sequence[Written]) -> Term | None:
    """The product in 64 bits, where the ranges of both factors leave room for it."""
    first, second = arguments
    digits = _digits(first.properties), _digits(second.properties)
    if digits[0] is None or digits[1] is None:
        return None
    kinds = first.properties.type, second.properties.type
    return short_product_sql(first.sql, second.sql, kinds, (digits[0], digits[1]))


def _digits(properties: Properties) -> int | None:
    """The number of digits that the values need; None if unlimited."""
    low, high = range_of(properties)
    return None if low is None or high is None else digits_for(properties.type, max(magnitude(low), magnitude(high)))


def divisors(properties: Properties, low_high: Range) -> list[Exact | None]:
    """The extreme divisors but zero, which gives NULL; a whole number that is not zero is at least 1 away from it."""
    low, high = low_high
    if low is None or high is None:
        return [None]
    if low > 0 or high < 0:
        return [low, high]
    if not properties.whole:
        return [None]
    near = ([1] if high >= 1 else []) + ([-1] if low <= -1 else [])
    return [*near, *(end for end in (low, high) if end != 0)]


def divide_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("/", arguments, 2)
    left, right = arguments
    found = divisors(right, double_range(right))
    low_high = corners(lambda a, b: Fraction(a) / b, double_range(left), found)
    nullable = left.nullable or right.nullable or _may_be_zero(right)
    return bounded(Double(), *rounded_out(low_high), nullable=nullable)


def _may_be_zero(properties: Properties) -> bool:
    low, high = range_of(properties)
    return low is None or high is None or low <= 0 <= high


def divide_sql(arguments: Sequence[Written]) -> Term:
    left, right = (written_as(Double(), argument) for argument in arguments)
    if _may_be_zero(arguments[1].properties):
        right = nonzero(right, double(0))
    return apply("/", left, right, kind=Double())


def whole_divide_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("//", arguments, 2)
    if not all(isinstance(properties.type, Integer) for properties in arguments):
        return divide_properties(arguments)
    left, right = (range_of(properties) for properties in arguments)
    low_high = corners(lambda a, b: int(Fraction(a) / b), left, divisors(arguments[1], right))
    return number(arguments, Integer(), low_high, whole=True, nullable=_may_be_zero(arguments[1]))


def _remainder_type(arguments: Sequence[Properties]) -> ColumnType:
    """For decimals that have no common decimal type it is a double, as in DuckDB."""
    kind = number_type(arguments)
    decimals = [properties.type for properties in arguments if isinstance(properties.type, Decimal)]
    if not isinstance(kind, Decimal) or len(decimals) < 2:
        return kind
    room = max(part.precision - part.scale for part in decimals) + max(part.scale for part in decimals)
    return Double() if room > WIDEST_DECIMAL else kind


def remainder_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("%", arguments, 2)
    kind = _remainder_type(arguments)
    left, right = arguments
    whole = left.whole and right.whole
    (low, high), ends = argument_ranges(arguments)
    if None in ends:
        return number(arguments, kind, UNKNOWN, whole=whole, nullable=True)
    # The remainder takes the sign of the dividend and stays below the divisor and within the dividend.
    most = max(0, max(magnitude(end) for end in ends if end is not None) - whole)
    below = -most if low is None else max(min(low, 0), -most)
    above = most if high is None else min(max(high, 0), most)
    return number(arguments, kind, (below, above), whole=whole, nullable=_may_be_zero(right))


def by_nonzero(operator: str, arguments: Sequence[Written]) -> Term:
    """// and % with zero made NULL; the least integer divided by -1 leaves 64 bits.

    For numbers that are not integers, // means /, as in DuckDB.
    """
    kind = _remainder_type([argument.properties for argument in arguments])
    if operator == "//" and not isinstance(kind, Integer):
        return divide_sql(arguments)
    left, right = (written_as(kind, argument) for argument in arguments)
    divisor = nonzero(right, Constant(0, kind))
    if isinstance(kind, Integer):
        return arithmetic(operator, left, divisor)
    if isinstance(kind, Double):
        # What is left of an infinity is no number.
        return when(test("is finite", left), apply("double %", left, divisor, kind=kind))
    return apply(operator, left, divisor, kind=kind)


def negate_properties(arguments: Sequence[Properties]) -> Properties:
    need_numbers("-", arguments, 1)
    ((low, high),) = argument_ranges(arguments)
    mirrored = (None if high is None else -high, None if low is None else -low)
    return number(arguments, arguments[0].type, mirrored, whole=arguments[0].whole)


def negate_sql(arguments: Sequence[Written]) -> Term:
    (argument,) = arguments
    if isinstance(argument.properties.type, Integer):
        return arithmetic("-", integer(0), argument.sql)
    return apply("negate", argument.sql, kind=argument.properties.type)


def _arithmetic(name: str, operation: Callable[[Exact, Exact], Exact]) -> Function:
    return Function(name, f"a {name} b", partial(sum_properties, operation, name), partial(sum_sql, name))


ARITHMETIC = (
    _arithmetic("+", operator.add),
    _arithmetic("-", operator.sub),
    _arithmetic("*", operator.mul),
    Function("/", "a / b", divide_properties, divide_sql),
    Function("//", "a // b", whole_divide_properties, partial(by_nonzero, "//")),
    Function("%", "a % b", remainder_properties, partial(by_nonzero, "%")),
    Function("negate", "-a", negate_properties, negate_sql),
)


# -- bits --------------------------------------------------------------------------------------------------------------
# & | XOR on the bits of 64-bit integers. They cannot fail; numbers that are not negative stay so.


def bits_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    if len(arguments) != 2 or not all(isinstance(properties.type, Integer) for properties in arguments):
        raise Misfit(f"{name} takes two integers")
    nullable = any(properties.nullable for properties in arguments)
    ends = [(properties.low, properties.high) for properties in arguments]
    highs = [high for low, high in ends if isinstance(low, int) and isinstance(high, int) and low >= 0]
    if name == "&" and highs:
        return bounded(Integer(), 0, min(highs), nullable=nullable)
    if len(highs) == 2:
        return bounded(Integer(), 0, 2 ** max(highs).bit_length() - 1, nullable=nullable)
    return bounded(Integer(), None, None, nullable=nullable)


def bits_sql(operator: str, arguments: Sequence[Written]) -> Term:
    left, right = (argument.sql for argument in arguments)
    return apply(operator, left, right, kind=Integer())


def xor_sql(arguments: Sequence[Written]) -> Term:
    return apply("xor", *(argument.sql for argument in arguments), kind=Integer())


BITWISE = (
    *(Function(name, f"a {name} b", partial(bits_properties, name), partial(bits_sql, name)) for name in ("&", "|")),
    Function("XOR", "XOR(a, b)", partial(bits_properties, "XOR"), xor_sql),
)


FUNCTIONS = (*ARITHMETIC, *BITWISE)

"""+ - * / // % and the sign: ranges by their corners, integers that cannot overflow, division by zero gives NULL."""

from __future__ import annotations

import operator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.expressions.facts import Facts, bounded
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.ranges import UNKNOWN, Exact, Range, corners, double_range, magnitude, range_of, rounded_out
from dpsql.expressions.types import number_type, written_as
from dpsql.expressions.write import Sql, binary, huge, integer, literal, nonzero, try_cast
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FITTING = (-(2**62), 2**62)
"""What certainly fits into 64 bits: far from their ends, so that no slip in a range of doubles can matter."""


def need_numbers(name: str, arguments: Sequence[Facts], count: int) -> None:
    if len(arguments) != count or not all(facts.is_number for facts in arguments):
        types = ", ".join(facts.type.name for facts in arguments)
        raise Misfit(f"{name} takes {'two numbers' if count == 2 else 'a number'}, not ({types})")


def fits(result: Facts) -> bool:
    """Whether an integer result certainly fits into 64 bits."""
    low, high = range_of(result)
    return low is not None and high is not None and FITTING[0] <= low and high <= FITTING[1]


def argument_ranges(arguments: Sequence[Facts]) -> list[Range]:
    """The ranges in the type in which the operation is done."""
    whole = isinstance(number_type(arguments), Integer)
    return [range_of(facts) if whole else double_range(facts) for facts in arguments]


def number(arguments: Sequence[Facts], low_high: Range, *, whole: bool, nullable: bool = False) -> Facts:
    kind = number_type(arguments)
    nullable = nullable or any(facts.nullable for facts in arguments)
    if isinstance(kind, Double):
        return bounded(kind, *rounded_out(low_high), nullable=nullable, whole=whole)
    facts = bounded(kind, *low_high, nullable=nullable, whole=whole)
    # Overflow becomes NULL, and what is left fits.
    return facts if fits(facts) else bounded(kind, None, None, nullable=True)


def sum_facts(operation: Callable[[Exact, Exact], Exact], name: str, arguments: Sequence[Facts]) -> Facts:
    need_numbers(name, arguments, 2)
    left, right = argument_ranges(arguments)
    return number(arguments, corners(operation, left, right), whole=all(facts.whole for facts in arguments))


def total(operator: str, facts: Callable[[Sequence[Facts]], Facts], arguments: Sequence[Written]) -> Sql:
    """The operation in 64 bits where it provably fits, in 128 bits and back otherwise; doubles never fail."""
    known = [argument.facts for argument in arguments]
    if isinstance(number_type(known), Double):
        left, right = (written_as(Double(), argument) for argument in arguments)
        return binary(left, operator, right)
    left, right = (argument.sql for argument in arguments)
    if fits(facts(known)):
        return binary(left, operator, right)
    return try_cast(binary(huge(left), operator, huge(right)), Integer())


def divisors(facts: Facts, low_high: Range) -> list[Exact | None]:
    """The extreme divisors but zero, which gives NULL; a whole number that is not zero is at least 1 away from it."""
    low, high = low_high
    if low is None or high is None:
        return [None]
    if low > 0 or high < 0:
        return [low, high]
    if not facts.whole:
        return [None]
    near = ([1] if high >= 1 else []) + ([-1] if low <= -1 else [])
    return [*near, *(end for end in (low, high) if end != 0)]


def divide_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("/", arguments, 2)
    left, right = arguments
    found = divisors(right, double_range(right))
    low_high = corners(lambda a, b: Fraction(a) / b, double_range(left), found)
    nullable = left.nullable or right.nullable or _may_be_zero(right)
    return bounded(Double(), *rounded_out(low_high), nullable=nullable)


def _may_be_zero(facts: Facts) -> bool:
    low, high = range_of(facts)
    return low is None or high is None or low <= 0 <= high


def divide_sql(arguments: Sequence[Written]) -> Sql:
    left, right = (written_as(Double(), argument) for argument in arguments)
    if _may_be_zero(arguments[1].facts):
        right = nonzero(right, literal(0, Double()))
    return binary(left, "/", right)


def whole_divide_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("//", arguments, 2)
    if not all(isinstance(facts.type, Integer) for facts in arguments):
        raise Misfit("// takes two integers; use FLOOR(a / b) for other numbers")
    left, right = (range_of(facts) for facts in arguments)
    low_high = corners(lambda a, b: int(Fraction(a) / b), left, divisors(arguments[1], right))
    return number(arguments, low_high, whole=True, nullable=_may_be_zero(arguments[1]))


def remainder_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("%", arguments, 2)
    if not all(isinstance(facts.type, Integer) for facts in arguments):
        raise Misfit("% takes two integers")
    left, right = arguments
    low, high = range_of(left)
    ends = range_of(right)
    if None in ends:
        return number(arguments, UNKNOWN, whole=True, nullable=True)
    # The remainder takes the sign of the dividend and stays below the divisor and within the dividend.
    most = max(0, max(magnitude(end) for end in ends if end is not None) - 1)
    below = -most if low is None else max(min(low, 0), -most)
    above = most if high is None else min(max(high, 0), most)
    return number(arguments, (below, above), whole=True, nullable=_may_be_zero(right))


def by_nonzero(operator: str, arguments: Sequence[Written]) -> Sql:
    """// and % with zero made NULL; 128 bits, because the least integer divided by -1 leaves 64."""
    left, right = arguments
    divisor = nonzero(huge(right.sql), integer(0))
    return try_cast(binary(huge(left.sql), operator, divisor), Integer())


def negate_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("-", arguments, 1)
    ((low, high),) = argument_ranges(arguments)
    mirrored = (None if high is None else -high, None if low is None else -low)
    return number(arguments, mirrored, whole=arguments[0].whole)


def negate_sql(arguments: Sequence[Written]) -> Sql:
    (argument,) = arguments
    kind = number_type([argument.facts])
    if isinstance(kind, Integer) and not fits(negate_facts([argument.facts])):
        return try_cast(Sql(f"-{huge(argument.sql)}"), kind)
    return Sql(f"(-{written_as(kind, argument)})")


def _arithmetic(name: str, operation: Callable[[Exact, Exact], Exact]) -> Function:
    facts = partial(sum_facts, operation, name)
    return Function(name, f"a {name} b", facts, partial(total, name, facts))


FUNCTIONS = (
    _arithmetic("+", operator.add),
    _arithmetic("-", operator.sub),
    _arithmetic("*", operator.mul),
    Function("/", "a / b", divide_facts, divide_sql),
    Function("//", "a // b", whole_divide_facts, partial(by_nonzero, "//")),
    Function("%", "a % b", remainder_facts, partial(by_nonzero, "%")),
    Function("negate", "-a", negate_facts, negate_sql),
)

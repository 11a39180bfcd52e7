"""+ - * / // % and the sign: ranges by their corners, integers that cannot overflow, division by zero gives NULL."""

from __future__ import annotations

import operator
from datetime import date
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.facts import INT64, Facts, bounded
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import number_type, written_as
from dpsql.expressions.write import Sql, binary, call, huge, integer, literal, try_cast
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Exact: TypeAlias = int | Fraction
Range: TypeAlias = tuple[Exact | None, Exact | None]
UNKNOWN: Range = (None, None)


def need_numbers(name: str, arguments: Sequence[Facts], count: int) -> None:
    if len(arguments) != count or not all(facts.is_number for facts in arguments):
        types = ", ".join(facts.type.name for facts in arguments)
        raise Misfit(f"{name} takes {'two numbers' if count == 2 else 'a number'}, not ({types})")


def range_of(facts: Facts) -> Range:
    low, high = facts.low, facts.high
    return None if isinstance(low, date) else low, None if isinstance(high, date) else high


def magnitude(value: Exact) -> Exact:
    return -value if value < 0 else value


def corners(
    operation: Callable[[Exact, Exact], Exact], left: Sequence[Exact | None], right: Sequence[Exact | None]
) -> Range:
    """The range of an operation that is monotone in each argument: its extremes lie at the corners."""
    if None in left or None in right:
        return UNKNOWN
    reached = [operation(a, b) for a in left for b in right]  # type: ignore[arg-type]
    return min(reached), max(reached)


def fits(result: Facts) -> bool:
    """Whether an integer result certainly fits into 64 bits."""
    low, high = range_of(result)
    return low is not None and high is not None and INT64[0] <= low and high <= INT64[1]


def number(arguments: Sequence[Facts], low_high: Range, *, whole: bool, nullable: bool = False) -> Facts:
    kind = number_type(arguments)
    facts = bounded(kind, *low_high, nullable=nullable or any(a.nullable for a in arguments), whole=whole)
    if isinstance(kind, Integer) and not fits(facts):
        # Overflow becomes NULL, and what is left fits.
        return bounded(kind, None, None, nullable=True)
    return facts


def sum_facts(operation: Callable[[Exact, Exact], Exact], name: str, arguments: Sequence[Facts]) -> Facts:
    need_numbers(name, arguments, 2)
    left, right = arguments
    return number(arguments, corners(operation, range_of(left), range_of(right)), whole=left.whole and right.whole)


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


def divisors(facts: Facts) -> list[Exact | None]:
    """The extreme divisors but zero, which gives NULL; a whole number that is not zero is at least 1 away from it."""
    low, high = range_of(facts)
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
    found = divisors(right)
    low_high = corners(lambda a, b: Fraction(a) / b, range_of(left), found) if found else UNKNOWN
    nullable = left.nullable or right.nullable or _may_be_zero(right)
    return bounded(Double(), *low_high, nullable=nullable)


def _may_be_zero(facts: Facts) -> bool:
    low, high = range_of(facts)
    return low is None or high is None or low <= 0 <= high


def divide_sql(arguments: Sequence[Written]) -> Sql:
    left, right = (written_as(Double(), argument) for argument in arguments)
    if _may_be_zero(arguments[1].facts):
        right = call("nullif", right, literal(0, Double()))
    return binary(left, "/", right)


def whole_divide_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("//", arguments, 2)
    if not all(isinstance(facts.type, Integer) for facts in arguments):
        raise Misfit("// takes two integers; use FLOOR(a / b) for other numbers")
    found = divisors(arguments[1])
    low_high = corners(lambda a, b: int(Fraction(a) / b), range_of(arguments[0]), found) if found else UNKNOWN
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
    most = max(magnitude(end) for end in ends if end is not None) - 1
    below = -most if low is None else max(min(low, 0), -most)
    above = most if high is None else min(max(high, 0), most)
    return number(arguments, (below, above), whole=True, nullable=_may_be_zero(right))


def by_nonzero(operator: str, arguments: Sequence[Written]) -> Sql:
    """// and % with zero made NULL; 128 bits, because the least integer divided by -1 leaves 64."""
    left, right = arguments
    divisor = call("nullif", huge(right.sql), integer(0))
    return try_cast(binary(huge(left.sql), operator, divisor), Integer())


def negate_facts(arguments: Sequence[Facts]) -> Facts:
    need_numbers("-", arguments, 1)
    low, high = range_of(arguments[0])
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

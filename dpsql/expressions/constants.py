"""Constants: what a number literal is beside other numbers, and arithmetic on constants.

Beside a double 0.1 is the nearest double; beside a decimal 5 is a decimal of ten digits. `0.06 + 0.01` is computed
here, exactly, so that it narrows what it is compared with. What does not fit its type is refused before the charge.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError
from dpsql.expressions.decimals import LITERAL as SHORT_LITERAL
from dpsql.expressions.decimals import as_decimal, largest
from dpsql.expressions.properties import INT64
from dpsql.expressions.ranges import EXACT_DECIMAL_DIGITS
from dpsql.expressions.temporal.constants import OF_ONE_TYPE
from dpsql.expressions.tree import Call, Literal
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType

OPERATORS = ("+", "-", "*", "/", "%")
EXACT: dict[str, Callable[..., int | Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "negate": operator.neg,
}


def read_numbers(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Number literals as what they are beside the other arguments."""
    if function in (*OF_ONE_TYPE, *OPERATORS) and function != "NULLIF":  # whose answer is of its first argument's type
        return tuple(as_beside(argument, arguments) for argument in arguments)
    return arguments


def as_beside(literal: Expression, others: Iterable[Expression]) -> Expression:
    """A number literal as what it is beside these."""
    kinds = [type(other.type) for other in others]
    if not isinstance(literal, Literal) or isinstance(literal.value, bool) or literal.value is None:
        return literal
    if Double in kinds and isinstance(literal.type, Decimal) and literal.type.precision <= EXACT_DECIMAL_DIGITS:
        assert isinstance(literal.value, int | Fraction)
        return Literal(Fraction(float(literal.value)), Double(), literal.at)
    if Double not in kinds and Decimal in kinds and isinstance(literal.value, int):
        short = isinstance(literal.type, Integer) and abs(literal.value) < 2**31
        kind = SHORT_LITERAL if short else as_decimal(literal.type)
        return Literal(literal.value, kind, literal.at)
    return literal


def folded(call: Call) -> Expression:
    """The call, or the constant that it is."""
    numbers = [argument.value for argument in call.arguments if isinstance(argument, Literal)]
    known = len(numbers) == len(call.arguments) and all(isinstance(number, int | Fraction) for number in numbers)
    rounded = isinstance(call.type, Double) and call.function.name != "negate"
    if call.function.name not in EXACT or rounded or not known:
        return call
    value = EXACT[call.function.name](*numbers)
    if not _fits(value, call.type):
        room = "64 bits" if isinstance(call.type, Integer) else call.type.name
        raise ProgrammingError(
            f"the constant does not fit into {room}",
            at=call.at,
            hint="write one of the numbers as a double, such as 3e0",
        )
    return Literal(value, call.type, call.at)


def _fits(value: int | Fraction, kind: ColumnType) -> bool:
    if isinstance(kind, Decimal):
        return -largest(kind) <= value <= largest(kind)
    return isinstance(kind, Double) or INT64[0] <= value <= INT64[1]

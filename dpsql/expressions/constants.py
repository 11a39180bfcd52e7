"""Arithmetic on constants is done here, exactly: `0.06 + 0.01` is a constant, so that it narrows what it is compared
with. What does not fit its type is refused while the question is still free.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError
from dpsql.expressions.facts import INT64
from dpsql.expressions.tree import Call, Literal
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.tree import Expression

EXACT: dict[str, Callable[..., int | Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "negate": operator.neg,
}


def folded(call: Call) -> Expression:
    """The call, or the constant that it is."""
    numbers = [argument.value for argument in call.arguments if isinstance(argument, Literal)]
    known = len(numbers) == len(call.arguments) and all(isinstance(number, int | Fraction) for number in numbers)
    rounded = isinstance(call.type, Double) and call.function.name != "negate"
    if call.function.name not in EXACT or rounded or not known:
        return call
    value = EXACT[call.function.name](*numbers)
    if isinstance(call.type, Integer) and not INT64[0] <= value <= INT64[1]:
        raise ProgrammingError(
            f"{value} does not fit into 64 bits", at=call.at, hint="write one of the constants as a DOUBLE, such as 3e0"
        )
    return Literal(value, call.type, call.at)

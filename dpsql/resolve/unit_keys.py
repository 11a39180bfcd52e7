"""Values that tell people apart: the unit itself, a key that leads to it, and what is computed from these one to one.

    u                                  the unit
    COALESCE(a.u, b.u)                 the unit of a row of  a FULL JOIN b ON a.u = b.u
    order_id                           a declared way to the unit
    u + 1, -u, CAST(u AS VARCHAR)      one to one: different units have different values

Rows with the same such value are of the same unit, so GROUP BY it, or DISTINCT, keeps people apart as the analyst's own
SQL would. NULL says nothing: an outer join may have put it in for many people. docs/proofs/tracking.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.tree import Call, Column, Literal
from dpsql.schema.types import Boolean, Date, Decimal, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.expressions.tree import Expression

UnitKey: TypeAlias = tuple[str, ...]
"""In which sense a value tells the unit: a table and column that foreign keys refer to, or UNIT, and then the
functions that were applied. Two values of the same sense are equal if and only if they tell the same."""
UNIT: UnitKey = ("",)

SPELLED_APART = (Integer, Decimal, Text, Boolean, Date, Timestamp)
"""Types of which different values are different texts."""


def key_of(expression: Expression, keys: Mapping[str, UnitKey]) -> UnitKey | None:
    """How the expression tells the unit where it is not NULL, from how columns do; None if it does not."""
    match expression:
        case Column(name):
            return keys.get(name)
        case Call(function, arguments) if function.name == "COALESCE":
            senses = {key_of(argument, keys) for argument in arguments}
            return senses.pop() if len(senses) == 1 else None
        case Call():
            return _one_to_one(expression, keys)
    return None


def _one_to_one(call: Call, keys: Mapping[str, UnitKey]) -> UnitKey | None:
    """One argument tells the unit, the others are constants, and the function loses nothing of it."""
    told = [argument for argument in call.arguments if not isinstance(argument, Literal)]
    constants = [argument for argument in call.arguments if isinstance(argument, Literal)]
    if len(told) != 1 or any(constant.value is None for constant in constants):
        return None
    key = key_of(told[0], keys)
    if key is None or not _loses_nothing(call, told[0], constants):
        return None
    if call.function.name.startswith("CAST") and call.type == told[0].type:
        return key
    said = [repr(part.value) if isinstance(part, Literal) else "·" for part in call.arguments]
    return (*key, f"{call.function.name}({', '.join(said)})")


def _loses_nothing(call: Call, told: Expression, constants: list[Literal]) -> bool:
    whole = all(isinstance(part.type, Integer) for part in (call, told, *constants))
    match call.function.name:
        case "+" | "-" | "negate":
            return whole
        case "*":
            return whole and all(constant.value != 0 for constant in constants)
        case "||" | "CONCAT":
            return isinstance(told.type, SPELLED_APART) and all(isinstance(part.type, Text) for part in constants)
        case name if name.startswith("CAST"):
            return whole or (isinstance(call.type, Text) and isinstance(told.type, SPELLED_APART))
    return False

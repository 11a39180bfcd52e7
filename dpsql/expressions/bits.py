"""& | XOR on the bits of 64-bit integers. They cannot fail; numbers that are not negative stay so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import Properties, bounded
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term


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


FUNCTIONS = (
    *(Function(name, f"a {name} b", partial(bits_properties, name), partial(bits_sql, name)) for name in ("&", "|")),
    Function("XOR", "XOR(a, b)", partial(bits_properties, "XOR"), xor_sql),
)

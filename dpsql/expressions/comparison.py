"""Comparisons and logic: = <> < <= > >=, IS [NOT] DISTINCT FROM, IN, IS NULL, AND, OR, NOT."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import test
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import Properties, one_of
from dpsql.expressions.types import compared_type, is_null, written_as
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term


TRUTHS = {nullable: one_of(Boolean(), (False, True), nullable=nullable) for nullable in (False, True)}


def truth(*, nullable: bool) -> Properties:
    return TRUTHS[nullable]


def compare_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    if compared_type(arguments) is None:
        types = " and ".join(dict.fromkeys(properties.type.name for properties in arguments))
        raise Misfit(f"{name} cannot compare {types}")
    return truth(nullable=any(properties.nullable for properties in arguments))


def same_type(arguments: Sequence[Written]) -> list[Term]:
    kind = compared_type([argument.properties for argument in arguments])
    assert kind is not None
    return [written_as(kind, argument) for argument in arguments]


def compare_sql(operator: str, arguments: Sequence[Written]) -> Term:
    left, right = same_type(arguments)
    return test(operator, left, right)


def distinct_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    compare_properties(name, arguments)
    return truth(nullable=False)


def in_sql(arguments: Sequence[Written]) -> Term:
    return test("in", *same_type(arguments))


def is_null_properties(arguments: Sequence[Properties]) -> Properties:
    return truth(nullable=False)


def is_null_sql(arguments: Sequence[Written]) -> Term:
    return test("is null", arguments[0].sql)


def logic_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    for properties in arguments:
        if not isinstance(properties.type, Boolean) and not is_null(properties):
            raise Misfit(f"{name} takes conditions, not {properties.type.name}")
    return truth(nullable=any(properties.nullable for properties in arguments))


def logic_sql(operator: str, arguments: Sequence[Written]) -> Term:
    return test(operator, *(written_as(Boolean(), argument) for argument in arguments))


def not_sql(arguments: Sequence[Written]) -> Term:
    return test("not", written_as(Boolean(), arguments[0]))


def _comparison(name: str) -> Function:
    return Function(name, f"a {name} b", partial(compare_properties, name), partial(compare_sql, name))


def _distinct(name: str, operation: str) -> Function:
    return Function(name, f"a {name} b", partial(distinct_properties, name), partial(compare_sql, operation))


FUNCTIONS = (
    *(_comparison(operator) for operator in ("=", "<>", "<", "<=", ">", ">=")),
    _distinct("IS NOT DISTINCT FROM", "same"),
    _distinct("IS DISTINCT FROM", "different"),
    Function("IN", "a IN (b, c, ...)", partial(compare_properties, "IN"), in_sql),
    Function("IS NULL", "a IS NULL", is_null_properties, is_null_sql),
    Function("AND", "a AND b", partial(logic_properties, "AND"), partial(logic_sql, "and")),
    Function("OR", "a OR b", partial(logic_properties, "OR"), partial(logic_sql, "or")),
    Function("NOT", "NOT a", partial(logic_properties, "NOT"), not_sql),
)

"""CASE, COALESCE, NULLIF, LEAST, GREATEST: one of several values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import NULL, apply, test, when
from dpsql.engine_sql.tree import Case
from dpsql.expressions.properties import Properties, converted, one_of, union
from dpsql.expressions.tree import Function, Misfit, Written, common_type, compared_type, is_null, written_as
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.schema.types import ColumnType

# -- comparison --------------------------------------------------------------------------------------------------------
# Comparisons and logic: = <> < <= > >=, IS [NOT] DISTINCT FROM, IN, IS NULL, AND, OR, NOT.

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


COMPARISONS_AND_LOGIC = (
    *(_comparison(operator) for operator in ("=", "<>", "<", "<=", ">", ">=")),
    _distinct("IS NOT DISTINCT FROM", "same"),
    _distinct("IS DISTINCT FROM", "different"),
    Function("IN", "a IN (b, c, ...)", partial(compare_properties, "IN"), in_sql),
    Function("IS NULL", "a IS NULL", is_null_properties, is_null_sql),
    Function("AND", "a AND b", partial(logic_properties, "AND"), partial(logic_sql, "and")),
    Function("OR", "a OR b", partial(logic_properties, "OR"), partial(logic_sql, "or")),
    Function("NOT", "NOT a", partial(logic_properties, "NOT"), not_sql),
)


# -- conditional -------------------------------------------------------------------------------------------------------


def branches(arguments: Sequence[Properties]) -> tuple[Sequence[Properties], Sequence[Properties]]:
    """CASE is written (condition, value, condition, value, ..., else)."""
    return arguments[:-1:2], [*arguments[1:-1:2], arguments[-1]]


def choice_type(name: str, choices: Sequence[Properties]) -> ColumnType:
    kind = common_type(choices)
    if kind is None:
        types = " and ".join(dict.fromkeys(properties.type.name for properties in choices))
        raise Misfit(f"{name} cannot choose between {types}")
    return kind


def case_properties(arguments: Sequence[Properties]) -> Properties:
    conditions, values = branches(arguments)
    if not all(isinstance(properties.type, Boolean) or is_null(properties) for properties in conditions):
        raise Misfit("WHEN takes a condition")
    return union(values, choice_type("CASE", values))


def case_sql(arguments: Sequence[Written]) -> Term:
    kind = choice_type("CASE", branches([argument.properties for argument in arguments])[1])
    pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    chosen = tuple((written_as(Boolean(), condition), written_as(kind, value)) for condition, value in pairs)
    return Case(chosen, written_as(kind, arguments[-1]))


def coalesce_properties(arguments: Sequence[Properties]) -> Properties:
    merged = union(arguments, choice_type("COALESCE", arguments))
    return replace(merged, nullable=all(properties.nullable for properties in arguments))


def nullif_properties(arguments: Sequence[Properties]) -> Properties:
    compare_properties("NULLIF", arguments)
    return replace(arguments[0], nullable=True)


def nullif_sql(arguments: Sequence[Written]) -> Term:
    value, other = arguments
    kind = compared_type([value.properties, other.properties])
    assert kind is not None
    return when(test("=", written_as(kind, value), written_as(kind, other)), NULL, value.sql)


def extreme_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    """LEAST and GREATEST pass over NULL, so only an argument that is never NULL caps the result."""
    kind = choice_type(name, arguments)
    choices = [converted(replace(properties, values=None), kind) for properties in arguments if not is_null(properties)]
    merged = union(choices, kind)
    sure = [properties for properties in choices if not properties.nullable]
    low, high = merged.low, merged.high
    if name == "LEAST":
        high = min((properties.high for properties in sure if properties.high is not None), default=high)
    else:
        low = max((properties.low for properties in sure if properties.low is not None), default=low)
    return replace(merged, low=low, high=high, nullable=not sure)


def variadic_sql(name: str, arguments: Sequence[Written]) -> Term:
    kind = common_type([argument.properties for argument in arguments])
    assert kind is not None
    return apply(name, *(written_as(kind, argument) for argument in arguments), kind=kind)


CONDITIONALS = (
    Function("CASE", "CASE WHEN condition THEN value ... ELSE value END", case_properties, case_sql),
    Function("COALESCE", "COALESCE(a, b, ...)", coalesce_properties, partial(variadic_sql, "coalesce")),
    Function("NULLIF", "NULLIF(a, b)", nullif_properties, nullif_sql),
    Function("LEAST", "LEAST(a, b, ...)", partial(extreme_properties, "LEAST"), partial(variadic_sql, "least")),
    Function(
        "GREATEST", "GREATEST(a, b, ...)", partial(extreme_properties, "GREATEST"), partial(variadic_sql, "greatest")
    ),
)


FUNCTIONS = (*COMPARISONS_AND_LOGIC, *CONDITIONALS)

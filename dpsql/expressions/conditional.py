"""CASE, COALESCE, NULLIF, LEAST, GREATEST: one of several values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import NULL, apply, test, when
from dpsql.engine_sql.tree import Case
from dpsql.expressions.comparison import compare_facts
from dpsql.expressions.facts import Facts, converted, union
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import common_type, compared_type, is_null, written_as
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.schema.types import ColumnType


def branches(arguments: Sequence[Facts]) -> tuple[Sequence[Facts], Sequence[Facts]]:
    """CASE is written (condition, value, condition, value, ..., else)."""
    return arguments[:-1:2], [*arguments[1:-1:2], arguments[-1]]


def choice_type(name: str, choices: Sequence[Facts]) -> ColumnType:
    kind = common_type(choices)
    if kind is None:
        types = " and ".join(dict.fromkeys(facts.type.name for facts in choices))
        raise Misfit(f"{name} cannot choose between {types}")
    return kind


def case_facts(arguments: Sequence[Facts]) -> Facts:
    conditions, values = branches(arguments)
    if not all(isinstance(facts.type, Boolean) or is_null(facts) for facts in conditions):
        raise Misfit("WHEN takes a condition")
    return union(values, choice_type("CASE", values))


def case_sql(arguments: Sequence[Written]) -> Term:
    kind = case_facts([argument.facts for argument in arguments]).type
    pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    branches = tuple((written_as(Boolean(), condition), written_as(kind, value)) for condition, value in pairs)
    return Case(branches, written_as(kind, arguments[-1]))


def coalesce_facts(arguments: Sequence[Facts]) -> Facts:
    merged = union(arguments, choice_type("COALESCE", arguments))
    return replace(merged, nullable=all(facts.nullable for facts in arguments))


def nullif_facts(arguments: Sequence[Facts]) -> Facts:
    compare_facts("NULLIF", arguments)
    return replace(arguments[0], nullable=True)


def nullif_sql(arguments: Sequence[Written]) -> Term:
    value, other = arguments
    kind = compared_type([value.facts, other.facts])
    assert kind is not None
    return when(test("=", written_as(kind, value), written_as(kind, other)), NULL, value.sql)


def extreme_facts(name: str, arguments: Sequence[Facts]) -> Facts:
    """LEAST and GREATEST pass over NULL, so only an argument that is never NULL caps the result."""
    kind = choice_type(name, arguments)
    choices = [converted(replace(facts, values=None), kind) for facts in arguments if not is_null(facts)]
    merged = union(choices, kind)
    sure = [facts for facts in choices if not facts.nullable]
    low, high = merged.low, merged.high
    if name == "LEAST":
        high = min((facts.high for facts in sure if facts.high is not None), default=high)
    else:
        low = max((facts.low for facts in sure if facts.low is not None), default=low)
    return replace(merged, low=low, high=high, nullable=not sure)


def variadic_sql(name: str, arguments: Sequence[Written]) -> Term:
    kind = common_type([argument.facts for argument in arguments])
    assert kind is not None
    return apply(name, *(written_as(kind, argument) for argument in arguments), kind=kind)


FUNCTIONS = (
    Function("CASE", "CASE WHEN condition THEN value ... ELSE value END", case_facts, case_sql),
    Function("COALESCE", "COALESCE(a, b, ...)", coalesce_facts, partial(variadic_sql, "coalesce")),
    Function("NULLIF", "NULLIF(a, b)", nullif_facts, nullif_sql),
    Function("LEAST", "LEAST(a, b, ...)", partial(extreme_facts, "LEAST"), partial(variadic_sql, "least")),
    Function("GREATEST", "GREATEST(a, b, ...)", partial(extreme_facts, "GREATEST"), partial(variadic_sql, "greatest")),
)

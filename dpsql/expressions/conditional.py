"""CASE, COALESCE, NULLIF, LEAST, GREATEST: one of several values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.expressions.comparison import compare_facts
from dpsql.expressions.facts import Facts, converted, union
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import common_type, is_null, written_as
from dpsql.expressions.write import NULL, Sql, binary, call, literal, when
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.expressions.facts import Limit
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


def case_sql(arguments: Sequence[Written]) -> Sql:
    kind = case_facts([argument.facts for argument in arguments]).type
    pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    whens = [f"WHEN {written_as(Boolean(), condition)} THEN {written_as(kind, value)}" for condition, value in pairs]
    return Sql(f"CASE {' '.join(whens)} ELSE {written_as(kind, arguments[-1])} END")


def coalesce_facts(arguments: Sequence[Facts]) -> Facts:
    merged = union(arguments, choice_type("COALESCE", arguments))
    return replace(merged, nullable=all(facts.nullable for facts in arguments))


def nullif_facts(arguments: Sequence[Facts]) -> Facts:
    compare_facts("NULLIF", arguments)
    return replace(arguments[0], nullable=True)


def nullif_sql(arguments: Sequence[Written]) -> Sql:
    value, other = arguments
    kind = common_type([value.facts, other.facts])
    assert kind is not None
    return when(binary(written_as(kind, value), "=", written_as(kind, other)), NULL, value.sql)


def extreme_facts(name: str, arguments: Sequence[Facts]) -> Facts:
    """LEAST and GREATEST pass over NULL, so only an argument that is never NULL caps the result."""
    kind = choice_type(name, arguments)
    choices = [facts for facts in arguments if not is_null(facts)]
    merged = union([replace(facts, values=None) for facts in choices], kind)
    low, high = merged.low, merged.high
    sure = [facts for facts in choices if not facts.nullable]
    cap = _cap(name, kind, sure)
    if name == "LEAST" and cap is not None:
        high = cap
    if name == "GREATEST" and cap is not None:
        low = cap
    return replace(merged, low=low, high=high, nullable=not sure)


def _cap(name: str, kind: ColumnType, sure: Sequence[Facts]) -> Limit | None:
    """The least of the highest ends for LEAST, the greatest of the lowest for GREATEST."""
    moved = [converted(replace(facts, values=None), kind) for facts in sure]
    ends = [facts.high if name == "LEAST" else facts.low for facts in moved]
    known = [end for end in ends if end is not None]
    if not known:
        return None
    return min(known) if name == "LEAST" else max(known)


def extreme_sql(name: str, arguments: Sequence[Written]) -> Sql:
    """The cap is written down too: a column that is declared never to be NULL might be NULL all the same."""
    known = [argument.facts for argument in arguments if not is_null(argument.facts)]
    kind = choice_type(name, known or [arguments[0].facts])
    sure = [facts for facts in known if not facts.nullable]
    written = [written_as(kind, argument) for argument in arguments]
    cap = _cap(name, kind, sure)
    if cap is not None and cap not in [facts.constant for facts in sure]:
        written.append(literal(cap, kind))
    return call(name.lower(), *written)


def variadic_sql(name: str, arguments: Sequence[Written]) -> Sql:
    kind = common_type([argument.facts for argument in arguments])
    assert kind is not None
    return call(name, *(written_as(kind, argument) for argument in arguments))


FUNCTIONS = (
    Function("CASE", "CASE WHEN condition THEN value ... ELSE value END", case_facts, case_sql),
    Function("COALESCE", "COALESCE(a, b, ...)", coalesce_facts, partial(variadic_sql, "coalesce")),
    Function("NULLIF", "NULLIF(a, b)", nullif_facts, nullif_sql),
    Function("LEAST", "LEAST(a, b, ...)", partial(extreme_facts, "LEAST"), partial(extreme_sql, "LEAST")),
    Function("GREATEST", "GREATEST(a, b, ...)", partial(extreme_facts, "GREATEST"), partial(extreme_sql, "GREATEST")),
)

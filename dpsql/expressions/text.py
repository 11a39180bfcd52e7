"""Functions of text. Positions and patterns are constants, so that no row can make one fail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dpsql.expressions.comparison import truth
from dpsql.expressions.facts import Facts, bounded, fact_of
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.types import is_null
from dpsql.expressions.write import Sql, binary, call, cast
from dpsql.schema.types import Integer, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

FARTHEST = 10_000
"""The largest position or length that may be asked for."""


def need_text(name: str, facts: Facts) -> None:
    if not isinstance(facts.type, Text) and not is_null(facts):
        raise Misfit(f"{name} takes a text, not {facts.type.name}; CAST it to VARCHAR first")


def need_constants(name: str, arguments: Sequence[Facts], kind: type) -> None:
    for facts in arguments:
        if not isinstance(facts.constant, kind):
            raise Misfit(f"{name} takes constants there, not values from rows")


def text_facts(name: str, arguments: Sequence[Facts]) -> Facts:
    """A text from a text, with constant texts beside it."""
    first, *rest = arguments
    need_text(name, first)
    need_constants(name, rest, str)
    return fact_of(Text(), nullable=first.nullable)


def call_sql(name: str, arguments: Sequence[Written]) -> Sql:
    return call(name, *(argument.sql for argument in arguments))


def length_facts(arguments: Sequence[Facts]) -> Facts:
    need_text("LENGTH", arguments[0])
    return bounded(Integer(), 0, None, nullable=arguments[0].nullable)


def substring_facts(arguments: Sequence[Facts]) -> Facts:
    text, *positions = arguments
    need_text("SUBSTRING", text)
    need_constants("SUBSTRING", positions, int)
    start, *length = (facts.constant for facts in positions)
    if not 1 <= start <= FARTHEST or not all(0 <= size <= FARTHEST for size in length):  # type: ignore[operator]
        raise Misfit(f"SUBSTRING takes a start from 1 and a length from 0, both up to {FARTHEST}")
    return fact_of(Text(), nullable=text.nullable)


def position_facts(arguments: Sequence[Facts]) -> Facts:
    need_text("STRPOS", arguments[0])
    need_constants("STRPOS", arguments[1:], str)
    return bounded(Integer(), 0, None, nullable=arguments[0].nullable)


def test_facts(name: str, arguments: Sequence[Facts]) -> Facts:
    need_text(name, arguments[0])
    need_constants(name, arguments[1:], str)
    return truth(nullable=arguments[0].nullable)


def joined_facts(name: str, arguments: Sequence[Facts]) -> Facts:
    """`||` is NULL as soon as one part is; CONCAT passes over NULL."""
    return fact_of(Text(), nullable=name == "||" and any(facts.nullable for facts in arguments))


def as_text(argument: Written) -> Sql:
    return argument.sql if isinstance(argument.facts.type, Text) else cast(argument.sql, Text())


def joined_sql(arguments: Sequence[Written]) -> Sql:
    left, right = (as_text(argument) for argument in arguments)
    return binary(left, "||", right)


def concat_sql(arguments: Sequence[Written]) -> Sql:
    return call("concat", *(as_text(argument) for argument in arguments))


def _text(name: str, takes: str) -> Function:
    return Function(name, takes, partial(text_facts, name), partial(call_sql, name.lower()))


FUNCTIONS = (
    _text("LOWER", "LOWER(text)"),
    _text("UPPER", "UPPER(text)"),
    _text("TRIM", "TRIM(text)"),
    _text("LTRIM", "LTRIM(text)"),
    _text("RTRIM", "RTRIM(text)"),
    _text("REPLACE", "REPLACE(text, 'from', 'to')"),
    Function("LENGTH", "LENGTH(text)", length_facts, partial(call_sql, "length")),
    Function("SUBSTRING", "SUBSTRING(text, start [, length])", substring_facts, partial(call_sql, "substring")),
    Function("STRPOS", "STRPOS(text, 'part')", position_facts, partial(call_sql, "strpos")),
    Function(
        "STARTS_WITH",
        "STARTS_WITH(text, 'start')",
        partial(test_facts, "STARTS_WITH"),
        partial(call_sql, "starts_with"),
    ),
    Function("CONTAINS", "CONTAINS(text, 'part')", partial(test_facts, "CONTAINS"), partial(call_sql, "contains")),
    Function("||", "a || b", partial(joined_facts, "||"), joined_sql),
    Function("CONCAT", "CONCAT(a, b, ...)", partial(joined_facts, "CONCAT"), concat_sql),
)

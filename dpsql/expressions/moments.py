"""Texts that are meant as dates: `day >= '2024-01-01'` compares dates, not texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError, SchemaError
from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Date, Timestamp

if TYPE_CHECKING:
    from dpsql.schema.types import ColumnType

# Functions whose arguments are compared with each other, or chosen from.
OF_ONE_TYPE = {
    *("=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM", "IN"),
    *("CASE", "COALESCE", "NULLIF", "LEAST", "GREATEST", "DATE_DIFF", "DATE_SUB"),
}


def read_dates(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """A text literal beside a date or timestamp is read as one."""
    kinds = {type(argument.type) for argument in arguments if not isinstance(argument, Literal)}
    if function not in OF_ONE_TYPE or not kinds & {Date, Timestamp}:
        return arguments
    wanted: ColumnType = Date() if Timestamp not in kinds else Timestamp()
    return tuple(
        read_moment(argument, wanted)
        if isinstance(argument, Literal) and isinstance(argument.value, str) and _looks_dated(argument.value)
        else argument
        for argument in arguments
    )


def _looks_dated(value: str) -> bool:
    return value[:4].isdigit()


def read_moment(literal: Literal, wanted: ColumnType) -> Literal:
    """A literal date or timestamp; a date column compared with a time of day is compared as a timestamp."""
    assert isinstance(literal.value, str)
    for kind in dict.fromkeys((wanted, Timestamp())):
        try:
            assert isinstance(kind, Date | Timestamp)
            return Literal(kind.read(literal.value), kind, literal.at)
        except SchemaError:
            continue
    raise ProgrammingError(
        f"'{literal.value}' is no {wanted.name}",
        at=literal.at,
        hint="write it like '2024-01-31' or '2024-01-31 12:30:00'",
    )

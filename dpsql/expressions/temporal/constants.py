"""Texts that are meant as dates: `day >= '2024-01-01'` compares dates, not texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError, SchemaError
from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Date, Text, Timestamp

if TYPE_CHECKING:
    from dpsql.schema.types import ColumnType

# Functions whose arguments are compared with each other, or chosen from.
OF_ONE_TYPE = {
    *("=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM", "IN"),
    *("CASE", "COALESCE", "NULLIF", "LEAST", "GREATEST", "DATE_DIFF", "DATE_SUB"),
}


PART_OF_A_DATE = {
    4: "; or compare years: YEAR(x) = 2024",
    7: "; or compare months: DATE_TRUNC('month', x) = '2024-01-01'",
}
"""By the length of the text: 2024 and 2024-01."""
# What both DuckDB and Python read, and alike.
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")


def read_dates(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """A text literal beside a date or timestamp is read as one; beside dates alone its time of day does not count."""
    kinds = {type(argument.type) for argument in arguments}
    if function not in OF_ONE_TYPE or not kinds & {Date, Timestamp}:
        return arguments
    if function == "NULLIF" and isinstance(arguments[0].type, Text):
        return arguments  # it would stay a text
    wanted: ColumnType = Timestamp() if Timestamp in kinds else Date()
    return tuple(
        read_moment(argument, wanted)
        if isinstance(argument, Literal) and isinstance(argument.value, str) and _looks_dated(argument.value)
        else argument
        for argument in arguments
    )


def _looks_dated(value: str) -> bool:
    return value[:4].isdigit()


def read_moment(literal: Literal, wanted: ColumnType) -> Literal:
    """The date or timestamp that a text spells."""
    assert isinstance(literal.value, str)
    try:
        moment = Timestamp().read(literal.value) if MOMENT.fullmatch(literal.value) else None
    except SchemaError:
        moment = None
    if moment is None:
        raise ProgrammingError(
            f"'{literal.value}' is not a {wanted.name}",
            at=literal.at,
            hint=f"write it like '2024-01-31' or '2024-01-31 12:30:00'{PART_OF_A_DATE.get(len(literal.value), '')}",
        )
    return Literal(moment.date() if isinstance(wanted, Date) else moment, wanted, literal.at)

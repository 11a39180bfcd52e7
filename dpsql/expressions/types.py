"""Which types meet, and as what: numbers as the widest number, a date and a timestamp as a timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.expressions.facts import NUMBERS
from dpsql.expressions.write import try_cast
from dpsql.schema.types import Date, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.expressions.facts import Facts
    from dpsql.expressions.function import Written
    from dpsql.expressions.write import Sql
    from dpsql.schema.types import ColumnType


def common_type(arguments: Sequence[Facts]) -> ColumnType | None:
    """The type in which all of these can be compared or chosen from; None if there is none. NULL fits every type."""
    kinds = {facts.type for facts in arguments if not is_null(facts)}
    if not kinds:
        return arguments[0].type
    if len(kinds) == 1:
        return kinds.pop()
    if all(isinstance(kind, NUMBERS) for kind in kinds):
        return Double()
    if all(isinstance(kind, Date | Timestamp) for kind in kinds):
        return Timestamp()
    return None


def is_null(facts: Facts) -> bool:
    """Whether this is the literal NULL."""
    return facts.values == () and facts.nullable


def number_type(arguments: Sequence[Facts]) -> ColumnType:
    """Integers stay integers; all other arithmetic is done in double."""
    whole = all(isinstance(facts.type, Integer) or is_null(facts) for facts in arguments)
    return Integer() if whole else Double()


def written_as(kind: ColumnType, argument: Written) -> Sql:
    """The argument's SQL, converted to `kind` where it is of another type."""
    return argument.sql if argument.facts.type == kind else try_cast(argument.sql, kind)

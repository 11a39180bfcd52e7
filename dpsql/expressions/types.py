"""Which types meet, and as what: numbers as the wider kind of number, a date and a timestamp as a timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.tree import TryCast
from dpsql.expressions.decimals import common_decimal, compared_decimal
from dpsql.expressions.properties import NUMBERS
from dpsql.schema.types import Date, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.function import Written
    from dpsql.expressions.properties import Properties
    from dpsql.schema.types import ColumnType, Decimal

    DecimalRule: TypeAlias = Callable[[Iterable[ColumnType]], Decimal]


def common_type(arguments: Sequence[Properties], decimals: DecimalRule = common_decimal) -> ColumnType | None:
    """The type in which all of these can be chosen from; None if there is none. NULL fits every type."""
    kinds = {properties.type for properties in arguments if not is_null(properties)}
    if not kinds:
        return arguments[0].type
    if len(kinds) == 1:
        return kinds.pop()
    if all(isinstance(kind, NUMBERS) for kind in kinds):
        return Double() if Double() in kinds else decimals(kinds)
    if all(isinstance(kind, Date | Timestamp) for kind in kinds):
        return Timestamp()
    return None


def compared_type(arguments: Sequence[Properties]) -> ColumnType | None:
    """The type in which all of these can be compared."""
    return common_type(arguments, compared_decimal)


def is_null(properties: Properties) -> bool:
    """Whether this is the literal NULL."""
    return properties.values == () and properties.nullable


def number_type(arguments: Sequence[Properties], decimals: DecimalRule = common_decimal) -> ColumnType:
    """Integers stay integers, decimals become what the operation makes of them; with a double all is double."""
    kinds = [properties.type for properties in arguments if not is_null(properties)]
    if all(isinstance(kind, Integer) for kind in kinds):
        return Integer()
    if Double() in kinds:
        return Double()
    return decimals(Integer() if is_null(properties) else properties.type for properties in arguments)


def written_as(kind: ColumnType, argument: Written) -> Term:
    """The argument, converted to `kind` where it is of another type."""
    return argument.sql if argument.properties.type == kind else TryCast(argument.sql, kind)

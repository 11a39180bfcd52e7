"""Scalar expressions over the columns of a relation: a column, a literal, seen or unseen, an adaptive subquery's value,
or a call of a function on the closed list.

Everything that an analyst can write below an aggregate is one of these; what has no function is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import apply, cast
from dpsql.engine_sql.tree import TryCast
from dpsql.expressions.properties import NUMBERS, Properties, Value, one_of, property_of
from dpsql.schema.types import WIDEST_DECIMAL, Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.errors import Place
    from dpsql.schema.types import ColumnType

# -- function ----------------------------------------------------------------------------------------------------------
# The shape of a scalar function: how its result follows from its arguments, and how it is said in SQL.
#
# `properties` gives the result's type, range and possible values, or raises `Misfit` when the arguments do not fit; it
# is called with bare types first (to resolve a query) and with full knowledge later. `sql` writes the call so that it
# never fails, whatever the row holds: what has no answer is NULL.


class Misfit(Exception):
    """The arguments do not fit the function; the message says what it takes, the hint what to write instead."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


@dataclass(frozen=True)
class Written:
    """An argument as it stands in the engine's SQL, with what is known of it."""

    sql: Term
    properties: Properties
    parts: int = 0
    """The number of functions and operators in it."""


@dataclass(frozen=True)
class Function:
    name: str
    takes: str
    """What it takes, for people: `ROUND(number [, digits])`."""
    properties: Callable[[Sequence[Properties]], Properties] = field(repr=False, compare=False)
    sql: Callable[[Sequence[Written]], Term] = field(repr=False, compare=False)


def need_count(name: str, arguments: Sequence[object], *counts: int) -> None:
    """The parser knows how many arguments most functions take, and leaves some of them optional."""
    if len(arguments) not in counts:
        raise Misfit(f"{name} takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}")


# -- decimals ----------------------------------------------------------------------------------------------------------
# Decimals as the engine computes them: exactly, with digits that follow from those of the operands.
#
#     sum      one digit more than the longer of both needs     decimal(3,1) + decimal(10,2)  ->  decimal(11,2)
#     product  the digits of both                               decimal(3,1) * decimal(10,2)  ->  decimal(13,3)
#     choice   as many as hold either                           decimal(3,1), decimal(10,2)   ->  decimal(10,2)
#
# An integer beside a decimal is one of 19 digits, an integer literal of 10 if it has 32 bits. There are 38 digits at
# most, and products of two short decimals stay short (18 digits, which are 64 bits): what does not fit is NULL here.

SHORT = 18
LITERAL, INTEGER = Decimal(10, 0), Decimal(19, 0)


def as_decimal(kind: ColumnType) -> Decimal:
    """The decimal that holds every value of an integer or decimal type."""
    return INTEGER if isinstance(kind, Integer) else kind  # type: ignore[return-value]


def largest(kind: Decimal) -> Fraction:
    """
    >>> largest(Decimal(3, 1))
    Fraction(999, 10)
    """
    return Fraction(10**kind.precision - 1, 10**kind.scale)


def common_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    """The common decimal for choosing between values: digits before the point take priority."""
    before, scale = _digits(kinds)
    return Decimal(min(before + scale, WIDEST_DECIMAL), min(scale, WIDEST_DECIMAL - before))


def compared_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    """The common decimal for comparing values: digits after the point take priority."""
    before, scale = _digits(kinds)
    return Decimal(min(before + scale, WIDEST_DECIMAL), scale)


def _digits(kinds: Iterable[ColumnType]) -> tuple[int, int]:
    """The most digits before and after the point."""
    decimals = [as_decimal(kind) for kind in kinds]
    return max(kind.precision - kind.scale for kind in decimals), max(kind.scale for kind in decimals)


def sum_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    before, scale = _digits(kinds)
    return Decimal(min(before + scale + 1, WIDEST_DECIMAL), scale)


def product_decimal(kinds: Iterable[ColumnType]) -> Decimal:
    first, second = map(as_decimal, kinds)
    scale, digits = first.scale + second.scale, first.precision + second.precision
    if scale > WIDEST_DECIMAL:
        raise Misfit(f"the product would have {scale} digits after the point; CAST one factor to DOUBLE")
    if digits > SHORT > scale and max(first.precision, second.precision) <= SHORT:
        return Decimal(SHORT, scale)
    return Decimal(min(digits, WIDEST_DECIMAL), scale)


def is_certain(operator: str, kinds: Sequence[ColumnType]) -> bool:
    """Whether every result fits into a decimal with a digit to spare."""
    first, second = map(as_decimal, kinds)
    digits = first.precision + second.precision if operator == "*" else sum(_digits(kinds)) + 1
    return digits < WIDEST_DECIMAL


def short_product_sql(left: Term, right: Term, kinds: Sequence[ColumnType], digits: tuple[int, int]) -> Term | None:
    """The product of factors that need so many digits, in 64 bits; None if these do not hold it.

    A factor whose type has more digits than there is room for is cast to fewer, and NULL if it needs more after all.
    """
    first, second = map(as_decimal, kinds)
    if sum(digits) > SHORT:
        return None
    if first.precision + second.precision > SHORT:
        right = TryCast(right, Decimal(digits[1], second.scale))
        if first.precision + digits[1] > SHORT:
            left = TryCast(left, Decimal(SHORT - digits[1], first.scale))
    kind = product_decimal(kinds)
    return TryCast(apply("*", left, right, kind=kind), kind)


def digits_for(kind: ColumnType, most: int | Fraction) -> int:
    """The number of digits that numbers of this type need, up to this absolute value.

    >>> digits_for(Decimal(15, 2), Fraction(1)), digits_for(Decimal(15, 2), Fraction(0))
    (3, 2)
    """
    scale = as_decimal(kind).scale
    return max(len(str(int(most * 10**scale))), scale)


def operation_sql(left: Term, operator: str, right: Term, kinds: Sequence[ColumnType]) -> Term:
    """Written with a digit to spare and cut back, which keeps neighbouring operations apart (see build.arithmetic).

    Without such a digit only the operation itself may fail: what two TRY have in common an engine computes before both,
    and so the casts to one scale that it would add within are written, and give NULL.
    """
    first, second = map(as_decimal, kinds)
    if not is_certain(operator, kinds):
        if operator != "*":
            first = second = sum_decimal(kinds)
        return apply(f"try {operator}", TryCast(left, first), TryCast(right, second), kind=first)
    if operator == "*":
        both_short = max(first.precision, second.precision) <= SHORT
        spare = Decimal((SHORT if both_short else first.precision) + 1, first.scale)
        return TryCast(apply(operator, cast(left, spare), right, kind=spare), product_decimal(kinds))
    kind = sum_decimal(kinds)
    return TryCast(apply(operator, cast(left, kind), right, kind=kind), kind)


# -- tree --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    name: str
    type: ColumnType
    at: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Literal:
    """A constant of the query; `value` None is NULL."""

    value: Value | None
    type: ColumnType
    at: Place | None = field(default=None, compare=False, repr=False)
    computed: bool = field(default=False, compare=False, repr=False)
    """Whether a function gave it: such a text stays a text, where a written one is read as what it stands beside."""

    @cached_property
    def properties(self) -> Properties:
        return one_of(self.type, () if self.value is None else (self.value,), nullable=self.value is None)


@dataclass(frozen=True)
class AdaptiveConstant:
    """The one value of an answer that is known by the time this is evaluated: nothing but its type is known before."""

    name: str
    type: ColumnType
    at: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    function: Function
    arguments: tuple[Expression, ...]
    type: ColumnType
    at: Place | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Expressions are looked up again and again, and each time all that they are made of would be walked."""
        return hash((self.function, self.arguments, self.type))

    @cached_property
    def parts(self) -> int:
        """The number of functions and operators in it."""
        return 1 + sum(argument.parts for argument in self.arguments if isinstance(argument, Call))

    @cached_property
    def depth(self) -> int:
        """How deeply they are nested."""
        return 1 + max((argument.depth for argument in self.arguments if isinstance(argument, Call)), default=0)


Expression: TypeAlias = Column | Literal | AdaptiveConstant | Call
Known: TypeAlias = "Mapping[str, Properties]"
"""What is known of each column by its name."""


def properties_of(expression: Expression, known: Known) -> Properties:
    """The properties of the expression's value, from those of the columns."""
    match expression:
        case Column(name, _):
            return known[name]
        case Literal():
            return expression.properties
        case AdaptiveConstant(_, kind):
            return property_of(kind, nullable=True)
        case Call(function, arguments, _):
            return function.properties(tuple(properties_of(argument, known) for argument in arguments))


def type_properties(expression: Expression) -> Properties:
    """The properties known without a schema: the type, and the value of a literal."""
    if isinstance(expression, Literal):
        return expression.properties
    return property_of(expression.type, nullable=True)


def columns_of(expression: Expression) -> Iterator[Column]:
    """Every column that the expression reads."""
    match expression:
        case Column():
            yield expression
        case Call(_, arguments, _):
            for argument in arguments:
                yield from columns_of(argument)


def names_read(*expressions: Expression | None) -> set[str]:
    """The names of all columns that these expressions read; None as a condition reads none."""
    return {column.name for part in expressions if part is not None for column in columns_of(part)}


def reads_adaptive(expression: Expression) -> bool:
    """Whether it contains the value of an adaptive subquery."""
    return isinstance(expression, AdaptiveConstant) or any(map(reads_adaptive, getattr(expression, "arguments", ())))


def substituted(expression: Expression, renamed: Mapping[Expression, Column]) -> Expression:
    """The expression with these parts replaced by columns that hold them."""
    if expression in renamed:
        return renamed[expression]
    if isinstance(expression, Call):
        arguments = tuple(substituted(argument, renamed) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.type, expression.at)
    return expression


# -- types -------------------------------------------------------------------------------------------------------------
# Which types meet, and as what: numbers as the wider kind of number, a date and a timestamp as a timestamp.

if TYPE_CHECKING:
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
    """Integers stay integers, decimals get the operation's result type, and one double makes the result a double."""
    kinds = [properties.type for properties in arguments if not is_null(properties)]
    if all(isinstance(kind, Integer) for kind in kinds):
        return Integer()
    if Double() in kinds:
        return Double()
    return decimals(Integer() if is_null(properties) else properties.type for properties in arguments)


def written_as(kind: ColumnType, argument: Written) -> Term:
    """The argument, converted to `kind` where it is of another type."""
    return argument.sql if argument.properties.type == kind else TryCast(argument.sql, kind)

"""Scalar expressions over the columns of a relation: a column, a literal, seen or unseen, an adaptive subquery's value,
or a call of a function on the closed list.

Everything that an analyst can write below an aggregate is one of these; what has no function is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from dpsql.expressions.properties import Properties, Value, one_of, property_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.expressions.function import Function
    from dpsql.schema.types import ColumnType
    from dpsql.source import Place


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

    @cached_property
    def properties(self) -> Properties:
        return one_of(self.type, () if self.value is None else (self.value,), nullable=self.value is None)


@dataclass(frozen=True)
class Unseen:
    """A literal that a plan for many leaves open: nothing is known of it but its type, that it is not NULL, and that it
    lies within what is declared of the column beside it, short of the ends. docs/proofs/literals.md."""

    name: str
    type: ColumnType
    at: Place | None = field(default=None, compare=False, repr=False)


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
        """How many functions and operators it is made of."""
        return 1 + sum(argument.parts for argument in self.arguments if isinstance(argument, Call))

    @cached_property
    def depth(self) -> int:
        """How many of them stand inside each other."""
        return 1 + max((argument.depth for argument in self.arguments if isinstance(argument, Call)), default=0)


Expression: TypeAlias = Column | Literal | Unseen | AdaptiveConstant | Call
Known: TypeAlias = "Mapping[str, Properties]"
"""What is known of each column by its name."""


def properties_of(expression: Expression, known: Known) -> Properties:
    """What is known of the expression's value, from what is known of the columns."""
    match expression:
        case Column(name, _):
            return known[name]
        case Literal():
            return expression.properties
        case Unseen(_, kind):
            return property_of(kind, nullable=False)
        case AdaptiveConstant(_, kind):
            return property_of(kind, nullable=True)
        case Call(function, arguments, _):
            return function.properties(tuple(properties_of(argument, known) for argument in arguments))


def type_properties(expression: Expression) -> Properties:
    """What is known before any schema: the type, and the value of a literal."""
    if isinstance(expression, Literal):
        return expression.properties
    return property_of(expression.type, nullable=not isinstance(expression, Unseen))


def columns_of(expression: Expression) -> Iterator[Column]:
    """Every column that the expression reads."""
    match expression:
        case Column():
            yield expression
        case Call(_, arguments, _):
            for argument in arguments:
                yield from columns_of(argument)


def names_read(*expressions: Expression | None) -> set[str]:
    """The names of all columns that these expressions read; a condition that is not there reads none."""
    return {column.name for part in expressions if part is not None for column in columns_of(part)}


def reads_adaptive(expression: Expression) -> bool:
    """Whether a value of an adaptive subquery stands in it."""
    return isinstance(expression, AdaptiveConstant) or any(map(reads_adaptive, getattr(expression, "arguments", ())))


def substituted(expression: Expression, renamed: Mapping[Expression, Column]) -> Expression:
    """The expression with these parts replaced by columns that hold them."""
    if expression in renamed:
        return renamed[expression]
    if isinstance(expression, Call):
        arguments = tuple(substituted(argument, renamed) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.type, expression.at)
    return expression

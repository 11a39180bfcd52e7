"""A value held within two constants: bounds that an aggregate carries, or that a query finds by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, test, when
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import Properties, bounded
from dpsql.expressions.tree import Call, Literal
from dpsql.expressions.types import common_type, written_as
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType


def held(value: Expression, ends: tuple[Fraction, Fraction]) -> Expression:
    """The value within ends that its type can write."""
    low, high = hold_ends(value.type, ends)
    return Call(HOLD, (value, low, high), value.type, value.at)


def hold_ends(kind: ColumnType, ends: tuple[Fraction, Fraction]) -> tuple[Literal, Literal]:
    """The ends as constants of the value's own type where they fit into it."""
    kind = _kind(kind, ends)
    low, high = (Literal(int(end) if isinstance(kind, Integer) else end, kind) for end in ends)
    return low, high


def is_held(value: Expression) -> bool:
    return isinstance(value, Call) and value.function is HOLD


def _kind(kind: ColumnType, ends: tuple[Fraction, Fraction]) -> ColumnType:
    if isinstance(kind, Integer) and all(end.denominator == 1 and abs(end) < 2**63 for end in ends):
        return kind
    if isinstance(kind, Decimal):
        digits = [abs(end) * 10**kind.scale for end in ends]
        if all(number.denominator == 1 and number < 10**kind.precision for number in digits):
            return kind
    return Double()


def _hold_properties(arguments: Sequence[Properties]) -> Properties:
    value, low, high = arguments
    kind = common_type(arguments)
    if not value.is_number or kind is None:
        raise Misfit(f"bounds hold numbers, not {value.type.name}")
    least, most = low.low, high.high
    ends = [
        bound if end is None else min(max(end, least), most)  # type: ignore[type-var]
        for end, bound in ((value.low, least), (value.high, most))
    ]
    return bounded(kind, *ends, nullable=value.nullable, whole=value.whole and low.whole and high.whole)


def _hold_sql(arguments: Sequence[Written]) -> Term:
    """NULL stays NULL, and NaN and the infinities become it: LEAST and GREATEST would turn them into a bound."""
    kind = common_type([argument.properties for argument in arguments])
    assert kind is not None
    value, low, high = (written_as(kind, argument) for argument in arguments)
    known = test("is finite" if isinstance(kind, Double) else "is not null", value)
    return when(known, apply("least", apply("greatest", value, low, kind=kind), high, kind=kind))


HOLD = Function("hold", "SUM(x, contribution_bounds_per_row => (low, high))", _hold_properties, _hold_sql)

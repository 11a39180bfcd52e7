"""Bounds that an aggregate carries itself: contribution_bounds_per_row and contribution_bounds_per_group.

Per row, the value is clamped to the bounds before anything else is done with it. Per group, what one unit adds to a
group is held there: that is part of the aggregate, since it happens after a unit's rows are summed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.function import Bounds
from dpsql.aggregates.table import AGGREGATES
from dpsql.engine_sql.build import apply, test, when
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import nodes_of
from dpsql.expressions.properties import Properties, bounded
from dpsql.expressions.tree import Literal
from dpsql.expressions.types import common_type, written_as
from dpsql.resolve.options import PER_GROUP, PER_ROW
from dpsql.resolve.tokens import MARK
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType
    from dpsql.source import Place

    Given = dict[str, tuple[Fraction, Fraction]]


def is_wrapper(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name in (PER_GROUP, PER_ROW)


def without_bounds(node: exp.Expr) -> exp.Expr:
    """The node as if no bounds were written."""
    if not any(map(_is_ours, nodes_of(node, exp.Anonymous))):
        return node

    def unwrapped(part: exp.Expr) -> exp.Expr:
        while _is_ours(part):
            part = part.expressions[0]
        return part

    return node.transform(unwrapped)


def _is_ours(node: exp.Expr) -> bool:
    """Bounds and reports, which stand around what they are about."""
    return isinstance(node, exp.Anonymous) and node.name.startswith(MARK)


def take_bounds(node: exp.Expr, text: str) -> tuple[exp.Expr, Given]:
    """The aggregate without its bounds, and these by the wrapper's name."""
    found: Given = {}
    for wrapper in nodes_of(node, exp.Anonymous):
        if is_wrapper(wrapper):
            place, name = place_of(wrapper, text), wrapper.name.removeprefix(MARK)
            if wrapper.name in found:
                raise ProgrammingError(f"{name} is given twice", at=place, hint="give it once")
            found[wrapper.name] = _pair(wrapper, name, place)
    return (without_bounds(node), found) if found else (node, found)


def _pair(wrapper: exp.Expr, name: str, place: Place | None) -> tuple[Fraction, Fraction]:
    numbers = [written_number(node) for node in wrapper.expressions[1:]]
    if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
        if numbers[0] <= numbers[1]:
            return numbers[0], numbers[1]
        raise ProgrammingError("the lower bound is above the upper one", at=place, hint="write (low, high)")
    raise ProgrammingError(
        f"{name} takes two numbers, behind one column", at=place, hint=f"write SUM(x, {name} => (0, 500))"
    )


def written_number(node: exp.Expr) -> Fraction | None:
    if isinstance(node, exp.Paren):
        return written_number(node.this)
    if isinstance(node, exp.Neg):
        inner = written_number(node.this)
        return None if inner is None else -inner
    return Fraction(node.this) if isinstance(node, exp.Literal) and not node.is_string else None


def with_bounds(asked: AggregateCall, bounds: Given, node: exp.Expr, lowering: Lowering) -> AggregateCall:
    """The aggregate of values clamped to the bounds, or refused if it cannot be."""
    if PER_ROW in bounds:
        if not _takes(asked, Bounds.PER_ROW) or len(asked.arguments) != 1:
            taking = ", ".join(name for name, function in AGGREGATES.items() if Bounds.PER_ROW in function.bounds)
            raise Unsupported(f"{asked.name} takes no bounds per row", at=asked.at, hint=f"these do: {taking}")
        (value,) = asked.arguments
        asked = replace(asked, arguments=(_clamped(value, bounds[PER_ROW], node, lowering),))
    if PER_GROUP in bounds:
        _check_by_group(asked, *bounds[PER_GROUP])
        asked = replace(asked, group_bounds=bounds[PER_GROUP])
    return asked


def _takes(asked: AggregateCall, bounds: Bounds) -> bool:
    """Functions within one unit alone have rows, and no groups of many people."""
    return bounds in AGGREGATES[asked.name].bounds if asked.name in AGGREGATES else bounds is Bounds.PER_ROW


def _check_by_group(asked: AggregateCall, low: Fraction, high: Fraction) -> None:
    if not _takes(asked, Bounds.PER_GROUP):
        raise Unsupported(
            f"{asked.name} takes no bounds per group: it is about rows, not about units",
            at=asked.at,
            hint=f"write {asked.name}(x, contribution_bounds_per_row => (low, high))",
        )
    if asked.name == "COUNT" and (low != 0 or high < 1 or high.denominator != 1):
        raise ProgrammingError(
            "a count is held between 0 and a whole number of rows",
            at=asked.at,
            hint="write COUNT(*, contribution_bounds_per_group => (0, 5))",
        )


def _clamped(value: Expression, ends: tuple[Fraction, Fraction], node: exp.Expr, lowering: Lowering) -> Expression:
    kind = _kind(value.type, ends)
    low, high = (Literal(int(end) if isinstance(kind, Integer) else end, kind) for end in ends)
    return lowering.build(HOLD, node, (value, low, high))


def _kind(kind: ColumnType, ends: tuple[Fraction, Fraction]) -> ColumnType:
    """The type of the bounds: the value's own where they fit into it."""
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

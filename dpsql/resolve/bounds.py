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
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.hold import HOLD, hold_ends
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import nodes_of
from dpsql.resolve.options import PER_GROUP, PER_ROW
from dpsql.resolve.tokens import MARK

if TYPE_CHECKING:
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall
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
    return lowering.build(HOLD, node, (value, *hold_ends(value.type, ends)))

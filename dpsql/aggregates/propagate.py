"""How errors travel through arithmetic: 2 * SUM(x) - 1 is linear, SUM(x) / COUNT(*) a ratio, anything else unknown."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.estimate import Estimate, Linear, Ratio

if TYPE_CHECKING:
    from collections.abc import Mapping


def estimate_of(node: exp.Expr, answers: Mapping[str, Estimate]) -> Estimate | None:
    """The node as an estimate over measures, where `answers` gives that of each column."""
    match node:
        case exp.Alias() | exp.Paren():
            return estimate_of(node.this, answers)
        case exp.Column():
            return answers.get(node.name)
        case exp.Literal() if not node.is_string:
            return Linear((), Fraction(node.this))
        case exp.Neg():
            inner = estimate_of(node.this, answers)
            return inner.times(Fraction(-1)) if inner is not None else None
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            left, right = estimate_of(node.left, answers), estimate_of(node.right, answers)
            return _combined(node, left, right) if left is not None and right is not None else None
    return None


def _combined(node: exp.Binary, left: Estimate, right: Estimate) -> Estimate | None:
    match node:
        case exp.Add():
            return _sum(left, right)
        case exp.Sub():
            return _sum(left, right.times(Fraction(-1)))
        case exp.Mul():
            return _scaled(left, _constant(right)) or _scaled(right, _constant(left))
        case _:
            return _quotient(left, right)


def _constant(estimate: Estimate) -> Fraction | None:
    return estimate.constant if isinstance(estimate, Linear) and not estimate.weights else None


def _scaled(estimate: Estimate, factor: Fraction | None) -> Estimate | None:
    return None if factor is None else estimate.times(factor)


def _sum(left: Estimate, right: Estimate) -> Estimate | None:
    if isinstance(left, Linear) and isinstance(right, Linear):
        return left.plus(right)
    if isinstance(left, Ratio) and (constant := _constant(right)) is not None:
        return left.plus(constant)
    if isinstance(right, Ratio) and (constant := _constant(left)) is not None:
        return right.plus(constant)
    return None


def _quotient(left: Estimate, right: Estimate) -> Estimate | None:
    divisor = _constant(right)
    if divisor is not None:
        return left.times(1 / divisor) if divisor else None
    return Ratio(left, right) if isinstance(left, Linear) and isinstance(right, Linear) else None

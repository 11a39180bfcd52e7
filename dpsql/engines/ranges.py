"""Between which two numbers a value lies, as far as its tree says: what cannot leave the doubles needs no guard.

A range is a claim about the value itself, wherever the engine evaluates it. NULL is in every range; NaN is in those
that do not end. Ends are doubles, computed as an engine computes: where arithmetic rounds, it does so in order.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.tree import (
    Apply,
    Case,
    Cast,
    Constant,
    Derived,
    Field,
    Fold,
    Joined,
    Lasting,
    Let,
    Operand,
    Over,
    Select,
    SetOperation,
    Short,
    TryCast,
    With,
)
from dpsql.schema.types import Boolean, Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpsql.engine_sql.tree import Known, Query, Source, Term

Range: TypeAlias = tuple[float, float]
ANYTHING: Range = (-math.inf, math.inf)
NOTHING: Range = (math.inf, -math.inf)
PASSED_ON = ("min", "max", "lag", "lead", "first_value", "last_value", "nth_value")
ROUNDED = ("floor", "ceil", "trunc", "round", "abs", "negate")


def magnitude(ends: Range) -> float:
    return max(abs(ends[0]), abs(ends[1]))


class Ranges:
    """Finds them, of the columns of each query once."""

    def __init__(self) -> None:
        # By the id of a query, and with the query itself: while it is kept no other one has that id.
        self._found: dict[int, tuple[Query, dict[str, Range]]] = {}

    def of(self, value: Term, columns: Mapping[str, Range], operands: Sequence[Range] = ()) -> Range:
        match value:
            case Constant(int() | Fraction() as number):
                return float(number), float(number)
            case Constant(None):
                return NOTHING
            case Field(name, kind=kind):
                return columns.get(name, _of_kind(kind))
            case Operand(place):
                return operands[place] if place < len(operands) else ANYTHING
            case Let(values, body):
                return self.of(body, columns, [self.of(part, columns, operands) for part in values])
            case Case(branches, otherwise):
                found = [self._taken(test, then, columns, operands) for test, then in branches]
                return _union([*found, self.of(otherwise, columns, operands)])
            case Cast(inner, Double()) | TryCast(inner, Double()):
                return self.of(inner, columns, operands)
            case Cast(inner, kind) | TryCast(inner, kind):
                return _rounded(_within(self.of(inner, columns, operands), _of_kind(kind)))
            case Fold("count") | Over(Fold("count")):
                return 0.0, 2.0**63
            case Fold(name, (first, *_)) | Over(Fold(name, (first, *_))) if name in PASSED_ON:
                return self.of(first, columns, operands)
            case Apply(operation, arguments):
                return self._applied(operation, arguments, [self.of(part, columns, operands) for part in arguments])
            case _:
                return _of_kind(value.kind)

    def _taken(self, test: Term, then: Term, columns: Mapping[str, Range], operands: Sequence[Range]) -> Range:
        """A branch that is taken between two constants lies there."""
        found = self.of(then, columns, operands)
        match test:
            case Apply("between", (value, Constant() as low, Constant() as high)) if value == then:
                return _within(found, (self.of(low, columns)[0], self.of(high, columns)[1]))
        return found

    def _applied(self, operation: str, arguments: tuple[Term, ...], found: list[Range]) -> Range:
        match operation:
            case "+":
                return found[0][0] + found[1][0], found[0][1] + found[1][1]
            case "-":
                return found[0][0] - found[1][1], found[0][1] - found[1][0]
            case "*" if all(map(_is_finite, found)):
                corners = [one * other for one in found[0] for other in found[1]]
                return min(corners), max(corners)
            case "coalesce":
                return _union(found)
            case "least" | "greatest":
                ends = [ends for ends, part in zip(found, arguments, strict=True) if isinstance(part, Constant)]
                low, high = _union(found)
                if operation == "least":
                    return low, min([high, *(end for _, end in ends)])
                return max([low, *(end for end, _ in ends)]), high
            case name if name in ROUNDED and len(found) == 1:
                most = magnitude(found[0]) + 1
                return -most, most
        return ANYTHING

    # -- columns ------------------------------------------------------------------------------------------------------

    def of_columns(self, source: Source | None) -> dict[str, Range]:
        match source:
            case Derived(query):
                return self.of_query(query)
            case Joined(_, left, right):
                lefts, rights = self.of_columns(left), self.of_columns(right)
                both = lefts.keys() & rights.keys()
                return {name: ends for name, ends in {**lefts, **rights}.items() if name not in both}
            case _:
                return {}

    def of_query(self, query: Query) -> dict[str, Range]:
        if id(query) not in self._found:
            self._found[id(query)] = query, self._of_query(query)
        return self._found[id(query)][1]

    def _of_query(self, query: Query) -> dict[str, Range]:
        match query:
            case Select(columns, source):
                known = self.of_columns(source)
                return {column.name: self.of(column.value, known) for column in columns}
            case SetOperation(_, left, right):
                pairs = zip(self.of_query(left).items(), self.of_query(right).values(), strict=False)
                return {name: _union([ends, others]) for (name, ends), others in pairs}
            case With(_, last) | Lasting(last):
                return self.of_query(last)
            case _:
                return {}


def _of_kind(kind: Known) -> Range:
    match kind:
        case Integer() | Short():
            return -(2.0**63), 2.0**63
        case Decimal(precision, scale):
            return -(10.0 ** (precision - scale)), 10.0 ** (precision - scale)
        case Boolean():
            return 0.0, 1.0
        case _:
            return ANYTHING


def _is_finite(ends: Range) -> bool:
    return math.isfinite(magnitude(ends))


def _union(found: list[Range]) -> Range:
    return reduce(lambda one, other: (min(one[0], other[0]), max(one[1], other[1])), found, NOTHING)


def _within(ends: Range, limits: Range) -> Range:
    return max(ends[0], limits[0]), min(ends[1], limits[1])


def _rounded(ends: Range) -> Range:
    return ends[0] - 1, ends[1] + 1

"""INTERVALs: several units in one, multiples, TO_DAYS and its like; added to a date, or compared with a difference.

day + INTERVAL '1 year 2 months'         ->   (day + 14 months)
seen - since < INTERVAL '3 days 2 hours' ->   seen < since + 266400 seconds
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.temporal.units import unit_named
from dpsql.expressions.tree import Literal

if TYPE_CHECKING:
    from dpsql.expressions.lower import Lowering

PART = re.compile(r"\s*([+-]?\d{1,15})\s*([a-z]+)\s*", re.IGNORECASE)
MONTHS = {"millennium": 12000, "century": 1200, "decade": 120, "year": 12, "quarter": 3, "month": 1}
DAYS = {"week": 7, "day": 1}
SECONDS = {"hour": 3600, "minute": 60, "second": 1}
DAYS_OF_A_MONTH, SECONDS_OF_A_DAY = 30, 86_400
"""As intervals are compared."""
HINT = "write it like  INTERVAL 3 MONTH  or  INTERVAL '1 year 2 months'"


@dataclass(frozen=True)
class Span:
    """Months, days and seconds, which are added in this order."""

    months: int = 0
    days: int = 0
    seconds: int = 0

    def __add__(self, other: Span) -> Span:
        return Span(self.months + other.months, self.days + other.days, self.seconds + other.seconds)

    def __mul__(self, factor: int) -> Span:
        return Span(self.months * factor, self.days * factor, self.seconds * factor)

    @property
    def length(self) -> int:
        """In seconds, by which intervals are compared."""
        return (self.months * DAYS_OF_A_MONTH + self.days) * SECONDS_OF_A_DAY + self.seconds

    @property
    def parts(self) -> list[tuple[int, str]]:
        return [part for part in ((self.months, "month"), (self.days, "day"), (self.seconds, "second")) if part[0]]


PLURALS = {"millennium": "millennia", "century": "centuries"}
TO_SPANS = {f"TO_{PLURALS.get(unit, unit + 's').upper()}": unit for unit in (*MONTHS, *DAYS, *SECONDS)}


def is_interval(node: exp.Expr) -> bool:
    """Whether the node is an interval: one that is written, TO_DAYS(3), or a multiple or a sum of these."""
    node = node.unnest()
    if isinstance(node, exp.Mul):
        return is_interval(node.this) != is_interval(node.expression)
    if isinstance(node, exp.Add | exp.Sub):
        return is_interval(node.this) and is_interval(node.expression)
    if isinstance(node, exp.Neg):
        return is_interval(node.this)
    return isinstance(node, exp.Interval) or _to_unit(node) is not None


def span_of(node: exp.Expr, lowering: Lowering) -> Span:
    """The constant that an interval is."""
    node = node.unnest()
    match node:
        case exp.Neg():
            return span_of(node.this, lowering) * -1
        case exp.Add():
            return span_of(node.this, lowering) + span_of(node.expression, lowering)
        case exp.Sub():
            return span_of(node.this, lowering) + span_of(node.expression, lowering) * -1
        case exp.Mul():
            inner, factor = (node.this, node.expression) if is_interval(node.this) else (node.expression, node.this)
            return span_of(inner, lowering) * _whole(factor, node, lowering)
    unit = _to_unit(node)
    if unit is not None:
        (amount,) = node.expressions if isinstance(node, exp.Anonymous) else (node.this,)
        return _span(_whole(amount, node, lowering), unit)
    lowering.only(node, ("this", "unit"))
    return _written(node, lowering)


def _written(node: exp.Expr, lowering: Lowering) -> Span:
    unit = node.args.get("unit")
    if unit is None:
        return _read(node.this.name if isinstance(node.this, exp.Literal) else "", node, lowering)
    name = unit_named(unit.name) if isinstance(unit, exp.Var) else None
    if name is None:
        raise _refuse(node, lowering)
    return _span(_whole(node.this, node, lowering), name)


def _read(text: str, node: exp.Expr, lowering: Lowering) -> Span:
    """'1 year 2 months'"""
    found, end = Span(), 0
    for part in PART.finditer(text):
        unit = unit_named(part[2])
        if part.start() != end or unit is None:
            break
        found, end = found + _span(int(part[1]), unit), part.end()
    if end != len(text) or not text.strip():
        raise _refuse(node, lowering)
    return found


def _whole(node: exp.Expr, around: exp.Expr, lowering: Lowering) -> int:
    number = lowering.lower(node)
    value = number.value if isinstance(number, Literal) else None
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,15}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(around, lowering)
    return value


def _span(amount: int, unit: str) -> Span:
    if unit in MONTHS:
        return Span(months=amount * MONTHS[unit])
    return Span(days=amount * DAYS[unit]) if unit in DAYS else Span(seconds=amount * SECONDS[unit])


def _to_unit(node: exp.Expr) -> str | None:
    if isinstance(node, exp.ToDays):
        return "day"
    named = isinstance(node, exp.Anonymous) and len(node.expressions) == 1
    return TO_SPANS.get(node.name.upper()) if named else None


def _refuse(node: exp.Expr, lowering: Lowering) -> ProgrammingError:
    return ProgrammingError(
        "an INTERVAL is made of constant whole numbers and units", at=lowering.place(node), hint=HINT
    )

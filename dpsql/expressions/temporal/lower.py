"""Nodes about dates: parts, truncation, differences, formats, and + and - with days or an INTERVAL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.table import DATE_PARTS, NAMES, NODES
from dpsql.expressions.tree import Expression, Literal, properties_of
from dpsql.schema.types import Boolean, Date, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.lower import Lowering

FIXED = ("week", "day", "hour", "minute", "second")
"""Units that are always as long."""
DIFFERENCES = {"DATE_SUB": "DATE_SUB", "DATESUB": "DATE_SUB"}


def lower_part(lowering: Lowering, node: exp.Expr, part: str, moment: exp.Expr) -> Expression:
    if part.lower() not in DATE_PARTS:
        raise Unsupported(
            f'there is no date part "{part}"', at=lowering.place(node), hint="parts: " + ", ".join(DATE_PARTS)
        )
    return lowering.call(DATE_PARTS[part.lower()], node, (moment,))


def lower_extract(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "expression"))
    return lower_part(lowering, node, node.this.name, node.expression)


def lower_trunc(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "unit"))
    return lowering.build("DATE_TRUNC", node, (_unit(lowering, node, node.args["unit"]), lowering.lower(node.this)))


def lower_difference(lowering: Lowering, node: exp.Expr) -> Expression:
    """DATE_DIFF('unit', from, to), which the parser keeps as (to, from, unit)."""
    lowering.only(node, ("this", "expression", "unit"))
    unit = _unit(lowering, node, node.args.get("unit"))
    return lowering.build("DATE_DIFF", node, (unit, lowering.lower(node.expression), lowering.lower(node.this)))


def _unit(lowering: Lowering, node: exp.Expr, unit: exp.Expr | None) -> Literal:
    """The unit as a constant: MONTHS and 'month' are the same, a column is none."""
    if not isinstance(unit, exp.Var | exp.Literal):
        raise lowering.refuse(node)
    name = unit.name.lower()
    return Literal(name.removesuffix("s") if len(name) > 1 else name, Text(), lowering.place(unit))


def lower_format(lowering: Lowering, node: exp.Expr) -> Expression:
    """STRFTIME takes the format first or last."""
    lowering.only(node, ("this", "format"))
    moment, form = node.this, node.args["format"]
    if isinstance(moment, exp.Literal) and not isinstance(form, exp.Literal):
        moment, form = form, moment
    return lowering.call("STRFTIME", node, (moment, form))


def lower_named(lowering: Lowering, node: exp.Expr) -> Expression:
    """Functions that the parser leaves as they are written."""
    lowering.only(node, ("this", "expressions"))
    name, arguments = node.name.upper(), node.expressions
    if name in NAMES and len(arguments) == (2 if name in ("PREFIX", "SUFFIX") else 1):
        return lowering.call(NAMES[name], node, arguments)
    if name in ("DATE_PART", "DATEPART") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return lower_part(lowering, node, arguments[0].name, arguments[1])
    if name == "FDIV" and len(arguments) == 2:
        return lowering.build("FLOOR", node, (lowering.call("/", node, arguments),))
    if name == "ISFINITE" and len(arguments) == 1:
        missing = lowering.call("IS NULL", node, arguments)
        return lowering.build("CASE", node, (missing, Literal(None, Text()), Literal(True, Boolean())))
    if name in DIFFERENCES and len(arguments) == 3:
        unit = _unit(lowering, node, arguments[0])
        return lowering.build(DIFFERENCES[name], node, (unit, *(lowering.lower(moment) for moment in arguments[1:])))
    raise lowering.refuse(node)


def lower_sum(lowering: Lowering, node: exp.Expr) -> Expression:
    """+ and - of numbers, or of a date and what can be added to it."""
    lowering.only(node, ("this", "expression"))
    left, right, minus = node.this.unnest(), node.expression.unnest(), isinstance(node, exp.Sub)
    if isinstance(right, exp.Interval):
        return lower_shift(lowering, node, left, right, -1 if minus else 1)
    if isinstance(left, exp.Interval) and not minus:
        return lower_shift(lowering, node, right, left, 1)
    first, second = lowering.lower(left), lowering.lower(right)
    if isinstance(first.type, Date | Timestamp) or isinstance(second.type, Date | Timestamp):
        return _date_sum(lowering, node, first, second, minus=minus)
    return lowering.build("-" if minus else "+", node, (first, second))


def _date_sum(lowering: Lowering, node: exp.Expr, first: Expression, second: Expression, *, minus: bool) -> Expression:
    if minus and isinstance(second.type, Date | Timestamp):
        return lowering.build("date - date", node, (first, second))
    if minus:
        second = _negative(lowering, node, second)
    elif isinstance(first.type, Integer):
        first, second = second, first
    return _constant(lowering.build("date + days", node, (first, second)))


def _negative(lowering: Lowering, node: exp.Expr, days: Expression) -> Expression:
    if isinstance(days, Literal) and isinstance(days.value, int):
        return Literal(-days.value, days.type, days.at)
    return lowering.build("negate", node, (days,))


def lower_order(lowering: Lowering, node: exp.Expr) -> Expression:
    """a - b < INTERVAL 30 DAY is a < b + INTERVAL 30 DAY; other comparisons are as they are written."""
    name, keys = NODES[type(node)]
    lowering.only(node, keys)
    left, right = node.this.unnest(), node.expression.unnest()
    if isinstance(left, exp.Sub) and isinstance(right, exp.Interval):
        first, second = lowering.lower(left.this), lowering.lower(left.expression)
        unit = right.args.get("unit")
        fixed = isinstance(unit, exp.Var) and unit.name.lower().rstrip("s") in FIXED and right.this.name.isdigit()
        if isinstance(first.type, Timestamp) and fixed:
            later = lower_shift(lowering, right, left.expression, right, 1)
            return _apart(lowering, node, name, (first, second, later))
    return lowering.call(name, node, (node.this, node.expression))


def _apart(
    lowering: Lowering, node: exp.Expr, name: str, moments: tuple[Expression, Expression, Expression]
) -> Expression:
    """first < later, where later is second + interval; where that is beyond the last moment, all are before it."""
    first, second, later = moments
    beyond = Literal(name in ("<", "<="), Boolean())
    compared = lowering.build("COALESCE", node, (lowering.build(name, node, (first, later)), beyond))
    missing = [lowering.build("IS NULL", node, (moment,)) for moment in (first, second)]
    unknown = lowering.build("OR", node, tuple(missing))
    return lowering.build("CASE", node, (unknown, Literal(None, Text()), compared))


def lower_add(lowering: Lowering, node: exp.Expr) -> Expression:
    """DATE_ADD(date, INTERVAL 1 DAY) and DATE_ADD(date, 1)."""
    lowering.only(node, ("this", "expression"))
    return lower_sum(lowering, exp.Add(this=node.this, expression=node.expression))


def lower_shift(lowering: Lowering, node: exp.Expr, moment: exp.Expr, interval: exp.Expr, sign: int) -> Expression:
    lowering.only(interval, ("this", "unit"))
    if not isinstance(interval.args.get("unit"), exp.Var):
        raise ProgrammingError(
            "an INTERVAL has one number and one unit", at=lowering.place(node), hint="write it like  INTERVAL 3 MONTH"
        )
    number = lowering.lower(interval.this)
    value = number.value if isinstance(number, Literal) else None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}", value):
        value = int(value)
    amount = Literal(sign * value if isinstance(value, int) else None, Integer(), number.at)
    unit = _unit(lowering, node, interval.args["unit"])
    return _constant(lowering.build("date + interval", node, (lowering.lower(moment), amount, unit)))


def _constant(moment: Expression) -> Expression:
    """A date computed from constants is a constant, so that it narrows what it is compared with."""
    if any(not isinstance(argument, Literal) for argument in getattr(moment, "arguments", ())):
        return moment
    properties = properties_of(moment, {})
    return (
        Literal(properties.low, properties.type, moment.at)
        if properties.low == properties.high and not properties.nullable
        else moment
    )


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Add: lower_sum,
    exp.Sub: lower_sum,
    **dict.fromkeys((exp.LT, exp.LTE, exp.GT, exp.GTE), lower_order),
    exp.DateAdd: lower_add,
    exp.Extract: lower_extract,
    exp.TimestampTrunc: lower_trunc,
    exp.DateTrunc: lower_trunc,
    exp.DateDiff: lower_difference,
    exp.TimeToStr: lower_format,
    exp.Anonymous: lower_named,
}

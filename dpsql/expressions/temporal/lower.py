"""Nodes about dates: parts, truncation, differences, formats, and + and - with days or an INTERVAL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.casts import cast_to
from dpsql.expressions.lower_words import lower_word
from dpsql.expressions.table import DATE_PARTS, NAMES, NODES
from dpsql.expressions.temporal.constants import read_moment
from dpsql.expressions.temporal.intervals import Span, is_interval, span_of
from dpsql.expressions.temporal.lengths import is_age, is_time, lengths, lower_part_of, no_age
from dpsql.expressions.temporal.units import unit_named
from dpsql.expressions.tree import Expression, Literal, properties_of
from dpsql.schema.types import Boolean, Date, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.lower import Lowering

YEARS = {"decade": 10, "century": 100, "millennium": 1000}
"""Units that begin with a round year."""
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
DIFFERENCES = {"DATE_SUB": "DATE_SUB", "DATESUB": "DATE_SUB"}


def lower_part(lowering: Lowering, node: exp.Expr, part: str, moment: exp.Expr) -> Expression:
    if is_age(moment) or is_time(moment):
        found = lower_part_of(lowering, node, unit_named(part) or part.lower(), moment)
        if found is None:
            raise Unsupported(
                f'there is no part "{part}" of an age or a time of day',
                at=lowering.place(node),
                hint="parts: year, month, day, hour, minute, second",
            )
        return found
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
    unit, moment = _unit(lowering, node, node.args["unit"]), lowering.lower(node.this)
    if unit.value in YEARS:
        years = YEARS[str(unit.value)]
        return _first_day(lowering, node, _round(lowering, node, moment, years), years)
    if unit.value == "isoyear":
        # The fourth of January always lies in the first week.
        year = lowering.build("ISOYEAR", node, (moment,))
        fourth = lowering.build("MAKE_DATE", node, (year, Literal(1, Integer()), Literal(4, Integer())))
        return lowering.build("DATE_TRUNC", node, (Literal("week", Text()), fourth))
    return lowering.build("DATE_TRUNC", node, (unit, moment))


def _round(lowering: Lowering, node: exp.Expr, moment: Expression, years: int) -> Expression:
    """How many times so many years have begun."""
    return lowering.build("//", node, (lowering.build("YEAR", node, (moment,)), Literal(years, Integer())))


def _first_day(lowering: Lowering, node: exp.Expr, number: Expression, years: int) -> Expression:
    year = lowering.build("*", node, (number, Literal(years, Integer())))
    first = lowering.build("MAKE_DATE", node, (year, Literal(1, Integer()), Literal(1, Integer())))
    return lowering.build(cast_to(Timestamp()), node, (first,))


def lower_difference(lowering: Lowering, node: exp.Expr) -> Expression:
    """DATE_DIFF('unit', from, to), which the parser keeps as (to, from, unit)."""
    lowering.only(node, ("this", "expression", "unit"))
    unit = _unit(lowering, node, node.args.get("unit"))
    return _difference(lowering, node, "DATE_DIFF", unit, (lowering.lower(node.expression), lowering.lower(node.this)))


def _difference(
    lowering: Lowering, node: exp.Expr, name: str, unit: Literal, moments: tuple[Expression, Expression]
) -> Expression:
    first, last = (_dated(moment) for moment in moments)
    if unit.value == "isoyear" and name == "DATE_DIFF":
        years = [lowering.build("ISOYEAR", node, (moment,)) for moment in (last, first)]
        return lowering.build("-", node, tuple(years))
    if unit.value not in YEARS:
        return lowering.build(name, node, (unit, first, last))
    size = YEARS[str(unit.value)]
    if name == "DATE_DIFF":
        return lowering.build("-", node, tuple(_round(lowering, node, moment, size) for moment in (last, first)))
    whole = lowering.build(name, node, (Literal("year", Text()), first, last))
    return lowering.build("//", node, (whole, Literal(size, Integer())))


def _dated(moment: Expression) -> Expression:
    """A text that is written where a date is taken."""
    is_text = isinstance(moment, Literal) and isinstance(moment.value, str)
    return read_moment(moment, Timestamp()) if is_text else moment  # type: ignore[arg-type]


def _unit(lowering: Lowering, node: exp.Expr, unit: exp.Expr | None) -> Literal:
    """The unit as a constant: MONTHS and 'month' are the same, a column is none."""
    if not isinstance(unit, exp.Var | exp.Literal):
        raise lowering.refuse(node)
    return Literal(unit_named(unit.name) or unit.name.lower(), Text(), lowering.place(unit))


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
        first, last = (lowering.lower(moment) for moment in arguments[1:])
        return _difference(lowering, node, DIFFERENCES[name], unit, (first, last))
    if is_age(node):
        raise no_age(lowering, node)
    other = lower_word(lowering, node)
    if other is None:
        raise lowering.refuse(node)
    return other


def lower_sum(lowering: Lowering, node: exp.Expr) -> Expression:
    """+ and - of numbers, or of a date and what can be added to it."""
    lowering.only(node, ("this", "expression"))
    left, right, minus = node.this.unnest(), node.expression.unnest(), isinstance(node, exp.Sub)
    if is_interval(right):
        return _shift(lowering, node, lowering.lower(left), span_of(right, lowering) * (-1 if minus else 1))
    if is_interval(left) and not minus:
        return _shift(lowering, node, lowering.lower(right), span_of(left, lowering))
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
    compared = lengths(lowering, (node.this, node.expression))
    if compared is not None:
        return lowering.build(name, node, compared)
    left, right = node.this.unnest(), node.expression.unnest()
    if is_interval(left) and isinstance(right, exp.Sub):
        left, right, name = right, left, FLIPPED.get(name, name)
    if isinstance(left, exp.Sub) and is_interval(right) and not is_interval(left):
        first, second = lowering.lower(left.this), lowering.lower(left.expression)
        if isinstance(first.type, Timestamp) and isinstance(second.type, Date | Timestamp):
            span = Span(seconds=span_of(right, lowering).length)
            return _apart(lowering, node, name, (first, second, _shift(lowering, right, second, span)))
    return lowering.call(name, node, (node.this, node.expression))


def _apart(
    lowering: Lowering, node: exp.Expr, name: str, moments: tuple[Expression, Expression, Expression]
) -> Expression:
    """first < later, where later is second + interval; where that is beyond the last moment, all are before it."""
    first, second, later = moments
    beyond = Literal(name in ("<", "<=", "<>"), Boolean())
    compared = lowering.build("COALESCE", node, (lowering.build(name, node, (first, later)), beyond))
    missing = [lowering.build("IS NULL", node, (moment,)) for moment in (first, second)]
    unknown = lowering.build("OR", node, tuple(missing))
    return lowering.build("CASE", node, (unknown, Literal(None, Text()), compared))


def lower_add(lowering: Lowering, node: exp.Expr) -> Expression:
    """DATE_ADD(date, INTERVAL 1 DAY) and DATE_ADD(date, 1)."""
    lowering.only(node, ("this", "expression"))
    return lower_sum(lowering, exp.Add(this=node.this, expression=node.expression))


def _shift(lowering: Lowering, node: exp.Expr, moment: Expression, span: Span) -> Expression:
    """The moment plus the interval: its months, then its days, then its seconds."""
    for amount, unit in span.parts or [(0, "day")]:
        step = (Literal(amount, Integer()), Literal(unit, Text()))
        moment = _constant(lowering.build("date + interval", node, (_dated(moment), *step)))
    return moment


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
    **dict.fromkeys((exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ), lower_order),
    exp.DateAdd: lower_add,
    exp.Extract: lower_extract,
    exp.TimestampTrunc: lower_trunc,
    exp.DateTrunc: lower_trunc,
    exp.DateDiff: lower_difference,
    exp.Anonymous: lower_named,
}

"""Where the same words mean something else in another database: they are put right, or refused.

bigquery    DATE_TRUNC(day, WEEK)     the Sunday before: DATE_TRUNC('week', day + 1) - 1
postgres    a / b                     of whole numbers, cut off: refused
snowflake   FLOAT                     has 64 bits
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import copied
from dpsql.resolve.date_formats import Unreadable
from dpsql.resolve.syntax import has_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    Respelled = Callable[[exp.Expr], exp.Expr]

WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
WIDEST, ABOVE = 38, 9
"""Digits of a numeric above the aggregates, and after its point."""


def _whole_division(node: exp.Expr) -> exp.Expr:
    """Between integers PostgreSQL cuts off the fraction."""
    if any(_is_fraction(side) for side in (node.this, node.expression)):
        return node
    raise Unreadable("in PostgreSQL / between whole numbers is a whole number", "write a::float / b, or DIV(a, b)")


def _is_fraction(node: exp.Expr) -> bool:
    """Whether it is written so that it is no integer."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.is_int
    if isinstance(node, exp.Cast):
        return node.to.this in (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT, exp.DataType.Type.DECIMAL)
    if isinstance(node, exp.Avg):
        return True
    return isinstance(node, exp.Binary | exp.Neg) and any(map(_is_fraction, node.iter_expressions()))


def _sized(precision: int, scale: int) -> Respelled:
    def rule(node: exp.Expr) -> exp.Expr:
        if node.this == exp.DataType.Type.DECIMAL and not node.expressions:
            sizes = [exp.DataTypeParam(this=exp.Literal.number(size)) for size in (precision, scale)]
            return exp.DataType(this=node.this, expressions=sizes)
        return node

    return rule


def _unsized(node: exp.Expr) -> exp.Expr:
    if node.this == exp.DataType.Type.DECIMAL and not node.expressions:
        if isinstance(node.parent, exp.Cast) and has_aggregate(node.parent.this):
            return exp.DataType.build(f"decimal({WIDEST}, {ABOVE})")
        raise Unreadable("numeric has any number of digits in PostgreSQL", "write numeric(18, 6)")
    return _wide(node)


def _wide(node: exp.Expr) -> exp.Expr:
    """FLOAT has 64 bits there."""
    return exp.DataType.build("double") if node.this == exp.DataType.Type.FLOAT else node


def _snowflake_type(node: exp.Expr) -> exp.Expr:
    return _sized(38, 0)(_wide(node))


def _sunday_is_one(node: exp.Expr) -> exp.Expr:
    """BigQuery counts days of the week from 1, and weeks from the first Sunday of the year."""
    part, day = node.this.name.upper(), node.expression
    if part == "DAYOFWEEK":
        return exp.Paren(this=exp.Add(this=copied(node), expression=exp.Literal.number(1)))
    if part == "WEEK":
        year, week = (exp.Extract(this=exp.var(unit), expression=copied(day)) for unit in ("DOY", "DOW"))
        begun = exp.Sub(this=exp.Add(this=year, expression=exp.Literal.number(6)), expression=week)
        return exp.Paren(this=exp.IntDiv(this=exp.Paren(this=begun), expression=exp.Literal.number(7)))
    if part == "ISOWEEK":
        return exp.Extract(this=exp.var("WEEK"), expression=day)
    if isinstance(node.this, exp.WeekStart):
        raise Unreadable("weeks of other days than Sunday have no number here", "write WEEK or ISOWEEK")
    return node


def _week_start(unit: exp.Expr | None) -> int | None:
    """How many days before Monday the week of WEEK, ISOWEEK or WEEK(SATURDAY) begins; None for other units."""
    if isinstance(unit, exp.WeekStart):
        return -WEEKDAYS.index(unit.name.upper()) % 7
    name = unit.name.upper() if unit is not None else ""
    return {"WEEK": 1, "ISOWEEK": 0}.get(name)


def _start_of_week(moment: exp.Expr, before: int) -> exp.Expr:
    """DATE_TRUNC('week', day + 1) - 1 for weeks that begin on Sunday."""
    span = exp.Interval(this=exp.Literal.number(before), unit=exp.var("DAY"))
    shifted = exp.Paren(this=exp.Add(this=moment, expression=span)) if before else moment
    start = exp.TimestampTrunc(this=shifted, unit=exp.var("WEEK"))
    return exp.Paren(this=exp.Sub(this=start, expression=copied(span))) if before else start


def _truncated_date(node: exp.Expr) -> exp.Expr:
    """DATE_TRUNC of BigQuery gives a date."""
    unit = node.args["unit"]
    before = _week_start(unit)
    plain = exp.TimestampTrunc(this=node.this, unit=exp.var(unit.name.upper()))
    found = plain if before is None else _start_of_week(node.this, before)
    return exp.cast(found, "DATE") if isinstance(node, exp.DateTrunc) else found


def _weeks_between(node: exp.Expr) -> exp.Expr:
    """DATE_DIFF(a, b, WEEK) counts the Sundays between."""
    before = _week_start(node.args.get("unit"))
    if before is None:
        return node
    last, first = (_start_of_week(moment, before) for moment in (node.this, node.expression))
    days = exp.DateDiff(this=last, expression=first, unit=exp.var("DAY"))
    return exp.Paren(this=exp.IntDiv(this=days, expression=exp.Literal.number(7)))


def _any_type(node: exp.Expr) -> exp.Expr:
    """Without the parser's note to its own writer."""
    node.set("input_type_preserved", None)
    return node


def _whole_units(node: exp.Expr) -> exp.Expr:
    """TIMESTAMP_DIFF counts whole units, as DATE_SUB of DuckDB does."""
    if node.args.get("unit") is None:
        raise Unreadable("TIMESTAMP_DIFF takes two moments and a unit", "write TIMESTAMP_DIFF(later, earlier, HOUR)")
    unit = exp.Literal.string(node.args["unit"].name.lower())
    return exp.Anonymous(this="DATE_SUB", expressions=[unit, node.expression, node.this])


MEANT: dict[str, dict[type[exp.Expr], Respelled]] = {
    "postgres": {exp.Div: _whole_division, exp.DataType: _unsized},
    "bigquery": {
        exp.Extract: _sunday_is_one,
        exp.DateTrunc: _truncated_date,
        exp.TimestampTrunc: _truncated_date,
        exp.DateDiff: _weeks_between,
        exp.TimestampDiff: _whole_units,
        exp.DataType: _sized(38, 9),
    },
    "snowflake": {
        exp.DataType: _snowflake_type,
        exp.TimestampTrunc: _any_type,
        exp.DateTrunc: _any_type,
    },
}

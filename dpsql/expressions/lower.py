"""From the parser's nodes to our own expressions. A node that is not in the tables has no meaning and is refused.

`day BETWEEN '2024-01-01' AND '2024-12-31'`  ->  AND(>=(day, 2024-01-01), <=(day, 2024-12-31))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Place, ProgrammingError, SchemaError, SqlSyntaxError, Unsupported
from dpsql.expressions import derived, logic, text
from dpsql.expressions.arithmetic import DECIMAL_RULES
from dpsql.expressions.casts import NARROW_INTEGERS, cast_to
from dpsql.expressions.constants import folded, read_dates, read_moment, read_nulls, read_numbers, read_texts
from dpsql.expressions.date_arithmetic import Span, is_interval, span_of
from dpsql.expressions.dates import unit_named
from dpsql.expressions.derived import is_age, is_time, lengths, lower_format, lower_part_of, lower_word, no_age, no_time
from dpsql.expressions.emit import check_depth, check_parts
from dpsql.expressions.parser_tree import nodes
from dpsql.expressions.refusals import mismatch, refusal
from dpsql.expressions.table import DATE_PARTS, FUNCTIONS, NAMES, NAMES_OF_TWO, NODES, PARSER_NOTES
from dpsql.expressions.tree import (
    Call,
    Expression,
    Function,
    Literal,
    Misfit,
    is_certain,
    properties_of,
    reads_adaptive,
    type_properties,
)
from dpsql.schema.types import WIDEST_DECIMAL, Boolean, Date, Decimal, Double, Integer, Text, Timestamp, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpsql.schema.types import ColumnType

# -- lower special -----------------------------------------------------------------------------------------------------
# Nodes that are more than a function and its arguments: literals, BETWEEN, CASE, CAST, LIKE ... ESCAPE, TRIM, LOG.

TRIMS = {None: "TRIM", "BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
PADS = {True: "LPAD", False: "RPAD"}

UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINT": 32, "UBIGINT": 64}
TYPES: dict[str, ColumnType] = {
    **dict.fromkeys(("BIGINT", "INT128"), Integer()),
    "DOUBLE": Double(),
    **dict.fromkeys(("TEXT", "VARCHAR"), Text()),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ"), Timestamp()),
}


def lower_literal(lowering: Lowering, node: exp.Expr) -> Expression:
    place = lowering.place(node)
    if node.args["is_string"]:
        return Literal(node.this, Text(), place)
    try:
        number = Fraction(node.this)
    except ValueError:
        raise SqlSyntaxError(f"{node.this} is not a number", at=place) from None
    if node.this.isdigit() and number < 2**63:
        return Literal(int(number), Integer(), place)
    digits, _, after = node.this.replace("_", "").partition(".")
    precision = len(digits) + len(after)
    if (digits + after).isdigit() and precision <= WIDEST_DECIMAL:
        return Literal(number, Decimal(precision, len(after)), place)
    return Literal(Fraction(float(number)), Double(), place)


def lower_negative(lowering: Lowering, node: exp.Expr) -> Expression:
    """-9223372036854775808 is one number, though it is written with a larger one."""
    lowering.only(node, ("this",))
    if isinstance(node.this, exp.Literal) and node.this.name == str(2**63):
        return Literal(-(2**63), Integer(), lowering.place(node))
    return lowering.call("negate", node, (node.this,))


def lower_between(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "low", "high", "symmetric"))
    low, high = node.args["low"], node.args["high"]
    plain = not node.args.get("symmetric")
    compared = lengths(lowering, (node.this, low, high)) if plain else None
    if compared is not None:
        value, least, most = compared
        above, below = lowering.build(">=", node, (value, least)), lowering.build("<=", node, (value, most))
        return lowering.build("AND", node, (above, below))
    if is_interval(low) and is_interval(high) and plain:
        ends = exp.GTE(this=node.this, expression=low), exp.LTE(this=node.this, expression=high)
        return lowering.call("AND", node, ends)
    value, low, high = read_dates("IN", tuple(lowering.lower(node.args[key]) for key in ("this", "low", "high")))

    def within(first: Expression, last: Expression) -> Expression:
        above = lowering.build(">=", node, (value, first))
        return lowering.build("AND", node, (above, lowering.build("<=", node, (value, last))))

    if node.args.get("symmetric"):
        return lowering.build("OR", node, (within(low, high), within(high, low)))
    return within(low, high)


def lower_is(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "expression"))
    value, what = lowering.lower(node.this), node.expression
    if isinstance(what, exp.Null):
        return lowering.build("IS NULL", node, (value,))
    if isinstance(what, exp.Boolean):
        return lowering.build("IS NOT DISTINCT FROM", node, (value, lowering.lower(what)))
    raise lowering.refuse(node)


def lower_chain(lowering: Lowering, node: exp.Expr) -> Expression:
    """a AND b AND c is one function of three conditions, however long the chain is."""
    for link in node.walk(prune=lambda part: type(part) is not type(node)):
        if type(link) is type(node):
            lowering.only(link, ("this", "expression"))
    return lowering.call("AND" if isinstance(node, exp.And) else "OR", node, node.flatten())


def lower_case(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "ifs", "default"))
    subject = lowering.lower(node.this) if node.this else None
    arguments: list[Expression] = []
    for branch in node.args["ifs"]:
        condition = lowering.lower(branch.this)
        if subject is not None:
            condition = lowering.build("=", branch, (subject, condition))
        arguments += [condition, lowering.lower(branch.args["true"])]
    otherwise = node.args.get("default")
    arguments.append(lowering.lower(otherwise) if otherwise else Literal(None, Text()))
    return lowering.build("CASE", node, tuple(arguments))


def lower_if(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "true", "false"))
    otherwise = node.args.get("false") or exp.Null()
    return lowering.call("CASE", node, (node.this, node.args["true"], otherwise))


def lower_cast(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "to"))
    if is_time(node):
        raise no_time(lowering, node)
    if node.args["to"].this.value in UNSIGNED:
        return _unsigned(lowering, node, UNSIGNED[node.args["to"].this.value])
    function = cast_function(lowering, node)
    value = lowering.lower(node.this)
    kind = TYPES.get(node.args["to"].this.value)
    if isinstance(value, Literal) and isinstance(value.value, str) and isinstance(kind, Date | Timestamp):
        return read_moment(value, kind)
    if isinstance(kind, Date | Timestamp) and value.type == kind:
        return value  # BI tools cast what is one already; ranges follow from the column itself
    return lowering.build(function, node, (value,))


def _unsigned(lowering: Lowering, node: exp.Expr, bits: int) -> Expression:
    """A cast to an unsigned type; what does not fit is NULL, as for all casts."""
    value = lowering.build(cast_to(Integer()), node, (lowering.lower(node.this),))
    least, most = Literal(0, Integer()), Literal((1 << min(bits, 63)) - 1, Integer())
    inside = lowering.build(
        "AND", node, (lowering.build(">=", node, (value, least)), lowering.build("<=", node, (value, most)))
    )
    return lowering.build("CASE", node, (inside, value, Literal(None, Text())))


def cast_function(lowering: Lowering, node: exp.Expr) -> Function:
    to = node.args["to"]
    name = "INTEGER" if to.this.value == "INT" else to.this.value
    if name == "DECIMAL":
        return _decimal_cast(lowering, node)
    if name in NARROW_INTEGERS and not to.expressions:
        return cast_to(Integer(), name)
    # VARCHAR(10) holds longer texts too.
    if name in TYPES and (not to.expressions or isinstance(TYPES[name], Text)):
        return cast_to(TYPES[name])
    raise Unsupported(
        f"casting to {_type_name(to)} is not supported",
        at=lowering.place(node),
        hint="cast to BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, BOOLEAN, DATE or TIMESTAMP",
    )


def _type_name(to: exp.Expr) -> str:
    """FLOAT, and not REAL, which the parser would write for it."""
    return "FLOAT" if to.this.value == "FLOAT" else to.sql("duckdb")


def _decimal_cast(lowering: Lowering, node: exp.Expr) -> Function:
    sizes = [parameter.name for parameter in node.args["to"].expressions]
    precision, scale = sizes if len(sizes) == 2 else (*sizes, "0") if len(sizes) == 1 else ("18", "3")
    try:
        return cast_to(parse_type(f"decimal({precision},{scale})"))
    except SchemaError as problem:
        raise ProgrammingError(str(problem.args[0]), at=lowering.place(node), hint=problem.hint) from None


def lower_date(lowering: Lowering, node: exp.Expr) -> Expression:
    """DATE(x) is CAST(x AS DATE)."""
    lowering.only(node, ("this",))
    return lower_cast(lowering, exp.Cast(this=node.this, to=exp.DataType.build("date")))


def lower_like(lowering: Lowering, node: exp.Expr) -> Expression:
    """text [NOT] LIKE 'pattern' [ESCAPE 'c']"""
    like, escape = (node.this, [node.expression]) if isinstance(node, exp.Escape) else (node, [])
    if not isinstance(like, exp.Like | exp.ILike):
        raise lowering.refuse(node)
    lowering.only(like, ("this", "expression", "negate"))
    name = "LIKE" if isinstance(like, exp.Like) else "ILIKE"
    found = lowering.call(name, node, (like.this, like.expression, *escape))
    return lowering.build("NOT", node, (found,)) if like.args.get("negate") else found


def lower_insensitive(lowering: Lowering, node: exp.Expr) -> Expression:
    """text ~* 'pattern'"""
    lowering.only(node, ("this", "expression"))
    return lowering.call("REGEXP_MATCHES", node, (node.this, node.expression, exp.Literal.string("i")))


def lower_trim(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "position", "expression"))
    characters = node.args.get("expression")
    return lowering.call(TRIMS[node.args.get("position")], node, (node.this, *([characters] if characters else [])))


def lower_pad(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "expression", "fill_pattern", "is_left"))
    fill = node.args.get("fill_pattern")
    name = PADS[bool(node.args.get("is_left"))]
    return lowering.call(name, node, (node.this, node.expression, *([fill] if fill else [])))


def lower_in(lowering: Lowering, node: exp.Expr) -> Expression:
    if node.args.get("query") is not None:
        return lower_subquery(lowering, node)
    lowering.only(node, ("this", "expressions"))
    compared = lengths(lowering, (node.this, *node.expressions))
    if compared is not None:
        return lowering.build("IN", node, compared)
    return lowering.call("IN", node, (node.this, *node.expressions))


def lower_subquery(lowering: Lowering, node: exp.Expr) -> Expression:
    if lowering.subquery is None:
        raise lowering.refuse(node)
    return lowering.subquery(node)


SPECIAL_NODES: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Literal: lower_literal,
    exp.Boolean: lambda lowering, node: Literal(bool(node.this), Boolean(), lowering.place(node)),
    exp.Null: lambda lowering, node: Literal(None, Text(), lowering.place(node)),
    exp.Paren: lambda lowering, node: lowering.lower(node.this),
    exp.Column: lambda lowering, node: lowering.resolve(node),  # type: ignore[arg-type]
    exp.And: lower_chain,
    exp.Or: lower_chain,
    exp.Neg: lower_negative,
    exp.Between: lower_between,
    exp.Is: lower_is,
    exp.Case: lower_case,
    exp.If: lower_if,
    exp.Cast: lower_cast,
    exp.TryCast: lower_cast,
    exp.Date: lower_date,
    exp.Like: lower_like,
    exp.ILike: lower_like,
    exp.Escape: lower_like,
    exp.RegexpILike: lower_insensitive,
    exp.Trim: lower_trim,
    exp.Pad: lower_pad,
    **dict.fromkeys((exp.Subquery, exp.Select, exp.Union, exp.Exists), lower_subquery),
    exp.In: lower_in,
}


# -- lower -------------------------------------------------------------------------------------------------------------
# Nodes about dates: parts, truncation, differences, formats, and + and - with days or an INTERVAL.

YEARS = {"decade": 10, "century": 100, "millennium": 1000}
"""Units that begin with a round year."""
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
DIFFERENCES = {"DATE_SUB": "DATE_SUB", "DATESUB": "DATE_SUB"}


def lower_part(lowering: Lowering, node: exp.Expr, part: str, moment: exp.Expr) -> Expression:
    if is_age(moment) or is_time(moment):
        found = lower_part_of(lowering, node, unit_named(part) or part.lower(), moment)
        if found is None:
            raise Unsupported(
                f'an age or a time of day has no part "{part}"',
                at=lowering.place(node),
                hint="parts: year, month, day, hour, minute, second",
            )
        return found
    if part.lower() not in DATE_PARTS:
        raise Unsupported(
            f'unknown date part "{part}"', at=lowering.place(node), hint="parts: " + ", ".join(DATE_PARTS)
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
    first, last = (_dated(moment, other) for moment, other in (moments, moments[::-1]))
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


def _dated(moment: Expression, beside: Expression | None = None) -> Expression:
    """A text literal in place of a date; beside a date its time of day is ignored, as in DuckDB."""
    is_text = isinstance(moment, Literal) and isinstance(moment.value, str) and not moment.computed
    kind = Date() if beside is not None and isinstance(beside.type, Date) else Timestamp()
    return read_moment(moment, kind) if is_text else moment  # type: ignore[arg-type]


def _unit(lowering: Lowering, node: exp.Expr, unit: exp.Expr | None) -> Literal:
    """The unit as a constant: MONTHS and 'month' are the same, a column is none."""
    if not isinstance(unit, exp.Var | exp.Literal):
        raise lowering.refuse(node)
    return Literal(unit_named(unit.name) or unit.name.lower(), Text(), lowering.place(unit))


def lower_named(lowering: Lowering, node: exp.Expr) -> Expression:
    """Functions that the parser does not translate."""
    lowering.only(node, ("this", "expressions"))
    name, arguments = node.name.upper(), node.expressions
    if name in NAMES and len(arguments) == (2 if name in NAMES_OF_TWO else 1):
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


DATE_NODES: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
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


# -- lower -------------------------------------------------------------------------------------------------------------

COMPARISONS = {function.name for function in logic.COMPARISONS_AND_LOGIC} - {"AND", "OR", "NOT", "IS NULL"}
SPECIAL = {
    **SPECIAL_NODES,
    **text.SPECIAL,
    **derived.SPECIAL,
    **DATE_NODES,
    exp.TimeToStr: lower_format,
}


@dataclass(frozen=True)
class Lowering:
    """Turns nodes into expressions; `resolve` knows what the columns' names mean."""

    source: str
    resolve: Callable[[exp.Column], Expression]
    subquery: Callable[[exp.Expr], Expression] | None = None
    """Knows what a subquery that stands for a value means, where there can be one."""
    columns: tuple[str, ...] = ()
    """The names of the columns that there are, for messages."""

    def lower(self, node: exp.Expr) -> Expression:
        special = SPECIAL.get(type(node))
        if special is not None:
            return special(self, node)
        if type(node) in NODES:
            name, keys = NODES[type(node)]
            self.only(node, keys)
            return self.call(name, node, arguments_of(node, keys))
        raise self.refuse(node)

    def call(self, name: str | Function, node: exp.Expr, nodes: Iterable[exp.Expr]) -> Expression:
        return self.build(name, node, tuple(self.lower(child) for child in nodes))

    def build(self, name: str | Function, node: exp.Expr, arguments: tuple[Expression, ...]) -> Expression:
        function = name if isinstance(name, Function) else FUNCTIONS[name]
        place = self.place(node)
        for read in (read_nulls, read_dates, read_texts, read_numbers):
            arguments = read(function.name, arguments)
        try:
            properties = function.properties([type_properties(argument) for argument in arguments])
        except Misfit as misfit:
            problem, hint = str(misfit), misfit.hint or f"write it like  {function.takes}"
            if function.name in COMPARISONS:
                problem, hint = mismatch(function.name, arguments) or (problem, hint)
            raise ProgrammingError(problem, at=place, hint=hint) from None
        call = Call(function, arguments, properties.type, place)
        check_depth(call)
        check_parts(call.parts, place)
        _check_tried(call)
        return folded(call)

    def only(self, node: exp.Expr, keys: Iterable[str]) -> None:
        """Refuses a node that carries anything besides these arguments: no clause is ever dropped."""
        extra = {key for key, value in node.args.items() if value not in (None, False, [])} - set(keys) - PARSER_NOTES
        if extra:
            raise self.refuse(node)

    def place(self, node: exp.Expr) -> Place | None:
        return place_of(node, self.source)

    def refuse(self, node: exp.Expr) -> Unsupported:
        return refusal(node, self.place(node), self.columns)


def _check_tried(call: Call) -> None:
    """Wide decimals are computed inside TRY, which takes no value of an adaptive subquery."""
    kinds = [argument.type for argument in call.arguments]
    wide = isinstance(call.type, Decimal) and call.function.name in DECIMAL_RULES
    if wide and not is_certain(call.function.name, kinds) and any(map(reads_adaptive, call.arguments)):
        raise Unsupported(
            f"{call.type.name} has no digits left for this", at=call.at, hint="CAST the subquery's value to DOUBLE"
        )


def arguments_of(node: exp.Expr, keys: Iterable[str]) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for key in keys:
        value = node.args.get(key)
        found.extend(value if isinstance(value, list) else [] if value is None else [value])
    return found


def place_of(node: exp.Expr, source: str) -> Place | None:
    """The position of the node in the analyst's text, from its first to its last marked token."""
    marks = [meta for part in nodes(node) if (meta := part._meta) is not None and meta.get("start") is not None]
    if not marks:
        return _only_place(node, source)
    return Place(source, min([mark["start"] for mark in marks]), max([mark["end"] for mark in marks]))


def _only_place(node: exp.Expr, source: str) -> Place | None:
    """CURRENT_DATE and its like, which the parser does not mark: where the word stands, if it stands there once."""
    if not isinstance(node, exp.Func):
        return None
    found = list(re.finditer(rf"\b{node.sql_name()}\b", source, re.IGNORECASE))
    return Place(source, found[0].start(), found[0].end() - 1) if len(found) == 1 else None


def all_of(parts: list[Expression]) -> Expression | None:
    """All parts joined by AND; None if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return Call(FUNCTIONS["AND"], tuple(parts), Boolean())

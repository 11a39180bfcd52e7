"""From the parser's nodes to our own expressions. A node that is not in these tables has no meaning and is refused.

`day BETWEEN '2024-01-01' AND '2024-12-31'`  ->  AND(>=(day, 2024-01-01), <=(day, 2024-12-31))
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, SchemaError, SqlSyntaxError, Unsupported
from dpsql.expressions import arithmetic, comparison, conditional, dates, mathematics, text
from dpsql.expressions.casts import cast_to
from dpsql.expressions.function import Function, Misfit
from dpsql.expressions.tree import Call, Expression, Literal, type_facts
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp
from dpsql.source import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpsql.schema.types import ColumnType

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for module in (arithmetic, comparison, conditional, mathematics, text, dates)
    for function in module.FUNCTIONS
}

# Which function a node is, and under which names the node keeps its arguments, in order.
NODES: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Add: ("+", ("this", "expression")),
    exp.Sub: ("-", ("this", "expression")),
    exp.Mul: ("*", ("this", "expression")),
    exp.Div: ("/", ("this", "expression")),
    exp.IntDiv: ("//", ("this", "expression")),
    exp.Mod: ("%", ("this", "expression")),
    exp.Neg: ("negate", ("this",)),
    exp.EQ: ("=", ("this", "expression")),
    exp.NEQ: ("<>", ("this", "expression")),
    exp.LT: ("<", ("this", "expression")),
    exp.LTE: ("<=", ("this", "expression")),
    exp.GT: (">", ("this", "expression")),
    exp.GTE: (">=", ("this", "expression")),
    exp.NullSafeEQ: ("IS NOT DISTINCT FROM", ("this", "expression")),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", ("this", "expression")),
    exp.In: ("IN", ("this", "expressions")),
    exp.Like: ("LIKE", ("this", "expression")),
    exp.ILike: ("ILIKE", ("this", "expression")),
    exp.And: ("AND", ("this", "expression")),
    exp.Or: ("OR", ("this", "expression")),
    exp.Not: ("NOT", ("this",)),
    exp.Coalesce: ("COALESCE", ("this", "expressions")),
    exp.Nullif: ("NULLIF", ("this", "expression")),
    exp.Least: ("LEAST", ("this", "expressions")),
    exp.Greatest: ("GREATEST", ("this", "expressions")),
    exp.Abs: ("ABS", ("this",)),
    exp.Sign: ("SIGN", ("this",)),
    exp.Floor: ("FLOOR", ("this",)),
    exp.Ceil: ("CEIL", ("this",)),
    exp.Trunc: ("TRUNC", ("this",)),
    exp.Round: ("ROUND", ("this", "decimals")),
    exp.Sqrt: ("SQRT", ("this",)),
    exp.Ln: ("LN", ("this",)),
    exp.Exp: ("EXP", ("this",)),
    exp.Pow: ("POWER", ("this", "expression")),
    exp.Lower: ("LOWER", ("this",)),
    exp.Upper: ("UPPER", ("this",)),
    exp.Length: ("LENGTH", ("this",)),
    exp.Substring: ("SUBSTRING", ("this", "start", "length")),
    exp.Replace: ("REPLACE", ("this", "expression", "replacement")),
    exp.StrPosition: ("STRPOS", ("this", "substr")),
    exp.StartsWith: ("STARTS_WITH", ("this", "expression")),
    exp.Contains: ("CONTAINS", ("this", "expression")),
    exp.DPipe: ("||", ("this", "expression")),
    exp.Concat: ("CONCAT", ("expressions",)),
    exp.Year: ("YEAR", ("this",)),
    exp.Month: ("MONTH", ("this",)),
    exp.Quarter: ("QUARTER", ("this",)),
    exp.Day: ("DAY", ("this",)),
    exp.DayOfMonth: ("DAY", ("this",)),
    exp.DayOfYear: ("DAYOFYEAR", ("this",)),
    exp.DayOfWeek: ("DAYOFWEEK", ("this",)),
    exp.DayOfWeekIso: ("ISODOW", ("this",)),
    exp.Week: ("WEEK", ("this",)),
    exp.WeekOfYear: ("WEEK", ("this",)),
    exp.Hour: ("HOUR", ("this",)),
    exp.Minute: ("MINUTE", ("this",)),
}
PART_NAMES = {"doy": "dayofyear", "dow": "dayofweek", **{part: part for part in dates.PARTS}}
TRIMS = {None: "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
LOGARITHMS = {"2": "LOG2", "10": "LOG10"}
# Notes of the parser to its own writer; they say nothing about what the analyst asked.
PARSER_NOTES = {"safe", "typed", "big_int", "coalesce", "ignore_nulls", "_type"}

TYPES: dict[str, ColumnType] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), Integer()),
    "DOUBLE": Double(),
    **dict.fromkeys(("TEXT", "VARCHAR"), Text()),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ"), Timestamp()),
}


@dataclass(frozen=True)
class Lowering:
    """Turns nodes into expressions; `resolve` knows what the columns' names mean."""

    source: str
    resolve: Callable[[exp.Column], Expression]

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
        arguments = read_dates(arguments)
        try:
            facts = function.facts([type_facts(argument) for argument in arguments])
        except Misfit as problem:
            raise ProgrammingError(str(problem), at=place, hint=f"write it like  {function.takes}") from None
        return Call(function, arguments, facts.type, place)

    def only(self, node: exp.Expr, keys: Iterable[str]) -> None:
        """Refuses a node that carries anything besides these arguments: no clause is ever dropped."""
        extra = {key for key, value in node.args.items() if value not in (None, False, [])} - set(keys) - PARSER_NOTES
        if extra:
            raise self.refuse(node)

    def place(self, node: exp.Expr) -> Place | None:
        return place_of(node, self.source)

    def refuse(self, node: exp.Expr) -> Unsupported:
        name = node.name.upper() if isinstance(node, exp.Anonymous) else _spoken(node)
        close = get_close_matches(name, FUNCTIONS, n=3, cutoff=0.5)
        return Unsupported(
            f"{name} cannot be used below an aggregate",
            at=self.place(node),
            hint="close to it: " + ", ".join(FUNCTIONS[match].takes for match in close)
            if close
            else "the functions that can be are listed in docs/sql.md",
        )


def arguments_of(node: exp.Expr, keys: Iterable[str]) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for key in keys:
        value = node.args.get(key)
        found.extend(value if isinstance(value, list) else [] if value is None else [value])
    return found


def place_of(node: exp.Expr, source: str) -> Place | None:
    """Where the node stands in the analyst's text: from its first to its last marked token."""
    marks = [part.meta for part in node.walk() if "start" in part.meta]
    if not marks:
        return None
    start, end = min(mark["start"] for mark in marks), max(mark["end"] for mark in marks)
    return Place(source, start, end)


def _spoken(node: exp.Expr) -> str:
    return node.sql_name() if isinstance(node, exp.Func) else node.key.upper()


def read_dates(arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """A text literal beside a date or timestamp is read as one: `day >= '2024-01-01'`."""
    kinds = {type(argument.type) for argument in arguments if not isinstance(argument, Literal)}
    if not kinds & {Date, Timestamp}:
        return arguments
    wanted: ColumnType = Date() if kinds <= {Date} else Timestamp()
    return tuple(
        as_moment(argument, wanted)
        if isinstance(argument, Literal) and isinstance(argument.value, str) and _looks_dated(argument.value)
        else argument
        for argument in arguments
    )


def _looks_dated(value: str) -> bool:
    return value[:4].isdigit()


def as_moment(literal: Literal, wanted: ColumnType) -> Literal:
    """A literal date or timestamp; a date column compared with a time of day is compared as a timestamp."""
    assert isinstance(literal.value, str)
    for kind in dict.fromkeys((wanted, Timestamp())):
        try:
            assert isinstance(kind, Date | Timestamp)
            return Literal(kind.read(literal.value), kind, literal.at)
        except SchemaError:
            continue
    raise ProgrammingError(
        f"'{literal.value}' is no {wanted.name}",
        at=literal.at,
        hint="write it like '2024-01-31' or '2024-01-31 12:30:00'",
    )


def lower_literal(lowering: Lowering, node: exp.Expr) -> Expression:
    place = lowering.place(node)
    if node.args["is_string"]:
        return Literal(node.this, Text(), place)
    try:
        number = Fraction(node.this)
    except ValueError:
        raise SqlSyntaxError(f"{node.this} is no number", at=place) from None
    if node.this.isdigit() and number < 2**63:
        return Literal(int(number), Integer(), place)
    return Literal(Fraction(float(number)), Double(), place)


def lower_between(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "low", "high"))
    value = lowering.lower(node.this)
    low = lowering.build(">=", node, (value, lowering.lower(node.args["low"])))
    high = lowering.build("<=", node, (value, lowering.lower(node.args["high"])))
    return lowering.build("AND", node, (low, high))


def lower_is(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "expression"))
    value, what = lowering.lower(node.this), node.expression
    if isinstance(what, exp.Null):
        return lowering.build("IS NULL", node, (value,))
    if isinstance(what, exp.Boolean):
        return lowering.build("IS NOT DISTINCT FROM", node, (value, lowering.lower(what)))
    raise lowering.refuse(node)


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
    kind = cast_type(node.args["to"])
    if kind is None:
        raise Unsupported(
            f"there is no cast to {node.args['to'].sql('duckdb')}",
            at=lowering.place(node),
            hint="cast to BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, BOOLEAN, DATE or TIMESTAMP",
        )
    value = lowering.lower(node.this)
    if isinstance(value, Literal) and isinstance(value.value, str) and isinstance(kind, Date | Timestamp):
        moment = as_moment(value, kind)
        day = moment.value.date() if isinstance(kind, Date) and isinstance(moment.value, datetime) else moment.value
        assert isinstance(day, date)
        return Literal(day, kind, moment.at)
    return lowering.build(cast_to(kind), node, (value,))


def cast_type(to: exp.DataType) -> ColumnType | None:
    if to.this == exp.DataType.Type.DECIMAL:
        sizes = [int(parameter.name) for parameter in to.expressions]
        return Decimal(*(sizes if len(sizes) == 2 else [*sizes, 0] if sizes else [18, 3]))
    return None if to.expressions else TYPES.get(to.this.value)


def lower_trim(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "position"))
    return lowering.call(TRIMS[node.args.get("position")], node, (node.this,))


def lower_log(lowering: Lowering, node: exp.Expr) -> Expression:
    """LOG(x) is the logarithm to base 10."""
    lowering.only(node, ("this", "expression"))
    if node.args.get("expression") is None:
        return lowering.call("LOG10", node, (node.this,))
    if node.this.name in LOGARITHMS:
        return lowering.call(LOGARITHMS[node.this.name], node, (node.expression,))
    raise lowering.refuse(node)


def lower_part(lowering: Lowering, node: exp.Expr, part: str, moment: exp.Expr) -> Expression:
    if part.lower() not in PART_NAMES:
        raise Unsupported(
            f'there is no date part "{part}"', at=lowering.place(node), hint="parts: " + ", ".join(PART_NAMES)
        )
    return lowering.call(PART_NAMES[part.lower()].upper(), node, (moment,))


def lower_extract(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "expression"))
    return lower_part(lowering, node, node.this.name, node.expression)


def lower_trunc(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "unit"))
    unit = Literal(node.args["unit"].name.lower(), Text())
    return lowering.build("DATE_TRUNC", node, (unit, lowering.lower(node.this)))


def lower_named(lowering: Lowering, node: exp.Expr) -> Expression:
    """Functions that the parser leaves as they are written."""
    lowering.only(node, ("this", "expressions"))
    name, arguments = node.name.upper(), node.expressions
    if name in ("DATE_PART", "DATEPART") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return lower_part(lowering, node, arguments[0].name, arguments[1])
    raise lowering.refuse(node)


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Literal: lower_literal,
    exp.Boolean: lambda lowering, node: Literal(bool(node.this), Boolean(), lowering.place(node)),
    exp.Null: lambda lowering, node: Literal(None, Text(), lowering.place(node)),
    exp.Paren: lambda lowering, node: lowering.lower(node.this),
    exp.Column: lambda lowering, node: lowering.resolve(node),  # type: ignore[arg-type]
    exp.Between: lower_between,
    exp.Is: lower_is,
    exp.Case: lower_case,
    exp.If: lower_if,
    exp.Cast: lower_cast,
    exp.TryCast: lower_cast,
    exp.Trim: lower_trim,
    exp.Log: lower_log,
    exp.Extract: lower_extract,
    exp.TimestampTrunc: lower_trunc,
    exp.DateTrunc: lower_trunc,
    exp.Anonymous: lower_named,
}

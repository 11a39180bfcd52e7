"""Nodes that are more than a function and its arguments: literals, BETWEEN, CASE, CAST, LIKE ... ESCAPE, TRIM, LOG."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, SchemaError, SqlSyntaxError, Unsupported
from dpsql.expressions.casts import NARROW_INTEGERS, cast_to
from dpsql.expressions.temporal.constants import read_dates, read_moment
from dpsql.expressions.temporal.intervals import is_interval
from dpsql.expressions.temporal.lengths import is_time, lengths, no_time
from dpsql.expressions.tree import Expression, Literal, Unseen
from dpsql.schema.types import WIDEST_DECIMAL, Boolean, Date, Decimal, Double, Integer, Text, Timestamp, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.function import Function
    from dpsql.expressions.lower import Lowering
    from dpsql.schema.types import ColumnType

KIND = "kind"
"""The type of a literal, on the mark that stands for it."""
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
        raise SqlSyntaxError(f"{node.this} is no number", at=place) from None
    if node.this.isdigit() and number < 2**63:
        return Literal(int(number), Integer(), place)
    digits, _, after = node.this.replace("_", "").partition(".")
    precision = len(digits) + len(after)
    if (digits + after).isdigit() and precision <= WIDEST_DECIMAL:
        return Literal(number, Decimal(precision, len(after)), place)
    return Literal(Fraction(float(number)), Double(), place)


def lower_unseen(lowering: Lowering, node: exp.Expr) -> Expression:
    """A mark where a plan for many leaves a literal open (resolve/inert_literals.py)."""
    if KIND not in node.meta:
        raise lowering.refuse(node)
    return Unseen(node.name, node.meta[KIND])


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
    return lowering.build(function, node, (value,))


def _unsigned(lowering: Lowering, node: exp.Expr, bits: int) -> Expression:
    """What does not fit is NULL, as it is for all casts."""
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
        f"there is no cast to {_type_name(to)}",
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


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Literal: lower_literal,
    exp.Placeholder: lower_unseen,
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

"""Functions of DuckDB that are other words for what the table has, or can be put together from it.

ADD(a, b)             a + b
LOG(3, x)             LOG10(x) / LOG10(3)
REPEAT(s, 2)          s || s
TIME_BUCKET(INTERVAL 7 DAY, day)     day less the days since the last of the Mondays that are 7 days apart
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.expressions.casts import cast_to
from dpsql.expressions.temporal.intervals import is_interval, span_of
from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Date, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.function import Function
    from dpsql.expressions.lower import Lowering

    Build = Callable[..., Expression]

PAIRS = {
    "ADD": "+",
    "SUBTRACT": "-",
    "MULTIPLY": "*",
    "DIVIDE": "//",
    "MOD": "%",
    "POW": "POWER",
}
"""Operators by their names."""
MOST_TIMES = 100
EPOCH, EPOCH_JULIAN = date(1970, 1, 1), 2_440_588
FIRST_MONDAY = date(2000, 1, 3)
"""From which buckets of days are counted."""


def builder(lowering: Lowering, node: exp.Expr) -> Build:
    """Calls functions on expressions, and on numbers and texts as constants."""

    def build(function: str | Function, *arguments: Any) -> Expression:
        return lowering.build(function, node, tuple(map(_constant, arguments)))

    return build


def _constant(argument: object) -> Expression:
    match argument:
        case None | str():
            return Literal(argument, Text())
        case int():
            return Literal(argument, Integer())
        case date():
            return Literal(argument, Date())
    return argument  # type: ignore[return-value]


def lower_word(lowering: Lowering, node: exp.Expr) -> Expression | None:
    """A function that the parser leaves as it is written; None if it is none of these."""
    name, build = node.name.upper(), builder(lowering, node)
    arguments = node.expressions
    if name in PAIRS and len(arguments) == 2:
        return build(PAIRS[name], *map(lowering.lower, arguments))
    if name == "ERA" and len(arguments) == 1:
        return build("SIGN", build("YEAR", lowering.lower(arguments[0])))
    if name == "JULIAN" and len(arguments) == 1 and isinstance((day := lowering.lower(arguments[0])).type, Date):
        return build(cast_to(Double()), build("+", build("date - date", day, EPOCH), EPOCH_JULIAN))
    if name in ("STRLEN", "OCTET_LENGTH") and len(arguments) == 1:
        return build("STRLEN", lowering.lower(arguments[0]))
    return None


def lower_chr(lowering: Lowering, node: exp.Expr) -> Expression:
    code = lowering.lower(node.expressions[0]) if len(node.expressions) == 1 else None
    value = code.value if isinstance(code, Literal) else None
    if not isinstance(value, int) or not 0 < value < 0x110000 or 0xD800 <= value < 0xE000:
        raise lowering.refuse(node)
    return Literal(chr(value), Text(), lowering.place(node))


def lower_repeat(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "times"))
    build, text, times = builder(lowering, node), lowering.lower(node.this), lowering.lower(node.args["times"])
    count = times.value if isinstance(times, Literal) else None
    if not isinstance(count, int) or not 1 <= count <= MOST_TIMES:
        raise lowering.refuse(node)
    joined = text
    for _ in range(count - 1):
        joined = build("||", joined, text)
    return joined


def lower_translate(lowering: Lowering, node: exp.Expr) -> Expression:
    """One character after the other, where none is put in that is replaced later."""
    lowering.only(node, ("this", "from_", "to"))
    old, new = (_text(lowering.lower(node.args[key])) for key in ("from_", "to"))
    if old is None or new is None or len(set(old)) < len(old) or set(old) & set(new):
        raise lowering.refuse(node)
    build, found = builder(lowering, node), lowering.lower(node.this)
    for place, character in enumerate(old):
        found = build("REPLACE", found, character, new[place : place + 1])
    return found


def _text(expression: Expression) -> str | None:
    return expression.value if isinstance(expression, Literal) and isinstance(expression.value, str) else None


def lower_bits(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this",))
    build = builder(lowering, node)
    return build("*", build("STRLEN", lowering.lower(node.this)), 8)


def lower_shift(lowering: Lowering, node: exp.Expr) -> Expression:
    """a << 3 is a * 8; a >> 3 is a // 8, rounded down."""
    lowering.only(node, ("this", "expression"))
    build, number, bits = builder(lowering, node), lowering.lower(node.this), lowering.lower(node.expression)
    count = bits.value if isinstance(bits, Literal) else None
    if not isinstance(count, int) or not 0 <= count < 62 or not isinstance(number.type, Integer):
        raise lowering.refuse(node)
    if isinstance(node, exp.BitwiseLeftShift):
        return build("*", number, 1 << count)
    rest = build("%", build("+", build("%", number, 1 << count), 1 << count), 1 << count)
    return build("//", build("-", number, rest), 1 << count)


def lower_log(lowering: Lowering, node: exp.Expr) -> Expression:
    """LOG(x) is the logarithm to base 10, LOG(b, x) the one to base b."""
    lowering.only(node, ("this", "expression"))
    if node.args.get("expression") is None:
        return lowering.call("LOG10", node, (node.this,))
    build, base = builder(lowering, node), node.this
    if isinstance(base, exp.Literal) and base.name in ("2", "10"):
        return build(f"LOG{base.name}", lowering.lower(node.expression))
    return build("/", *(build("LOG10", lowering.lower(part)) for part in (node.expression, base)))


def lower_hyperbolic(lowering: Lowering, node: exp.Expr) -> Expression:
    """(e^x - e^-x) / 2, (e^x + e^-x) / 2, and their quotient as 1 - 2 / (e^2x + 1), where nothing is infinite twice."""
    lowering.only(node, ("this",))
    build, value = builder(lowering, node), lowering.lower(node.this)
    if isinstance(node, exp.Tanh):
        return build("-", 1, build("/", 2, build("+", build("EXP", build("*", value, 2)), 1)))
    rising, falling = build("EXP", value), build("EXP", build("negate", value))
    return build("/", build("-" if isinstance(node, exp.Sinh) else "+", rising, falling), 2)


def lower_cotangent(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this",))
    build = builder(lowering, node)
    return build("/", 1, build("TAN", lowering.lower(node.this)))


def lower_bucket(lowering: Lowering, node: exp.Expr) -> Expression:
    """TIME_BUCKET of whole days, or of one month, quarter or year, of a date."""
    lowering.only(node, ("this", "expression"))
    moment = lowering.lower(node.expression)
    if not is_interval(node.this) or not isinstance(moment.type, Date):
        raise lowering.refuse(node)
    span, build = span_of(node.this, lowering), builder(lowering, node)
    units = {1: "month", 3: "quarter", 12: "year"}
    if span.months in units and not (span.days or span.seconds):
        return build(cast_to(Date()), build("DATE_TRUNC", units[span.months], moment))
    if span.days < 1 or span.months or span.seconds:
        raise lowering.refuse(node)
    since = build("date - date", moment, FIRST_MONDAY)
    rest = build("%", build("+", build("%", since, span.days), span.days), span.days)
    return build("date + days", moment, build("negate", rest))


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Chr: lower_chr,
    exp.Repeat: lower_repeat,
    exp.Translate: lower_translate,
    exp.BitLength: lower_bits,
    exp.BitwiseLeftShift: lower_shift,
    exp.BitwiseRightShift: lower_shift,
    exp.Log: lower_log,
    **dict.fromkeys((exp.Sinh, exp.Cosh, exp.Tanh), lower_hyperbolic),
    exp.Cot: lower_cotangent,
    exp.DateBin: lower_bucket,
}

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
from dpsql.expressions.temporal.intervals import SECONDS_OF_A_DAY, is_interval, span_of
from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Date, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.function import Function
    from dpsql.expressions.lower import Lowering

    Build = Callable[..., Expression]

MOST_TIMES = 100
MINUTE, DAY = 60_000_000, 86_400_000_000
"""In microseconds."""
EPOCH, EPOCH_JULIAN = date(1970, 1, 1), 2_440_588
FIRST_MONDAY, FIRST_MONTH = date(2000, 1, 3), 2000 * 12
"""From which buckets are counted."""


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
    count, make = WORDS.get(node.name.upper(), (-1, None))
    if make is None or len(node.expressions) != count:
        return None
    return make(builder(lowering, node), *map(lowering.lower, node.expressions))


def _pair(operator: str) -> Build:
    return lambda build, left, right: build(operator, left, right)


def _julian(build: Build, moment: Expression) -> Expression:
    since = build("date - date", build(cast_to(Date()), moment), EPOCH)
    day = build(cast_to(Double()), build("+", since, EPOCH_JULIAN))
    if not isinstance(moment.type, Timestamp):
        return day
    return build("+", day, build("/", remainder(build, build("EPOCH_US", moment), DAY), DAY))


def _fmod(build: Build, x: Expression, y: Expression) -> Expression:
    x, y = (build(cast_to(Double()), part) for part in (x, y))
    return build("-", x, build("*", y, build("FLOOR", build("/", x, y))))


def _even(build: Build, number: Expression) -> Expression:
    """The next even number, away from zero."""
    number = build(cast_to(Double()), number)
    whole = build("CEIL", build("ABS", number))
    away = build("+", whole, build("%", whole, 2))
    return build("CASE", build("<", number, 0), build("negate", away), away)


def _milliseconds(build: Build, moment: Expression) -> Expression:
    """EPOCH_MS(seen), rounded to the next."""
    half = build("+", build("EPOCH_US", moment), 500)
    return build("//", build("-", half, remainder(build, half, 1000)), 1000)


def _in_minute(size: int) -> Build:
    """MILLISECOND(seen) and its like count from the last full minute."""
    return lambda build, moment: build("//", remainder(build, build("EPOCH_US", moment), MINUTE), size)


WORDS: dict[str, tuple[int, Build]] = {
    "ADD": (2, _pair("+")),
    "SUBTRACT": (2, _pair("-")),
    "MULTIPLY": (2, _pair("*")),
    "DIVIDE": (2, _pair("//")),
    "MOD": (2, _pair("%")),
    "POW": (2, _pair("POWER")),
    "ERA": (1, lambda build, day: build("SIGN", build("YEAR", day))),
    "JULIAN": (1, _julian),
    "STRLEN": (1, lambda build, text: build("STRLEN", text)),
    "OCTET_LENGTH": (1, lambda build, text: build("STRLEN", text)),
    "DAYS_IN_MONTH": (1, lambda build, day: build("DAY", build("LAST_DAY", day))),
    "FMOD": (2, _fmod),
    "EVEN": (1, _even),
    "EPOCH_US": (1, lambda build, moment: build("EPOCH_US", moment)),
    "MICROSECOND": (1, _in_minute(1)),
    "MILLISECOND": (1, _in_minute(1000)),
}
"""By name: how many arguments, and how it is put together."""


def lower_epoch(lowering: Lowering, node: exp.Expr) -> Expression:
    """EPOCH_MS(seen), which the parser takes for the timestamp that is so many milliseconds after 1970."""
    lowering.only(node, ("this", "scale"))
    moment, scale = lowering.lower(node.this), node.args.get("scale")
    if scale is None or scale.name != "3" or not isinstance(moment.type, Timestamp):
        raise lowering.refuse(node)
    return _milliseconds(builder(lowering, node), moment)


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
    """TIME_BUCKET: whole months are counted from January 2000, whole days and seconds from Monday 2000-01-03."""
    lowering.only(node, ("this", "expression"))
    moment = lowering.lower(node.expression)
    if not is_interval(node.this) or not isinstance(moment.type, Date | Timestamp):
        raise lowering.refuse(node)
    span, build = span_of(node.this, lowering), builder(lowering, node)
    if span.months and (span.months < 0 or span.days or span.seconds):
        raise lowering.refuse(node)
    if not span.months and (span.length % SECONDS_OF_A_DAY or span.length <= 0):
        return build("TIME_BUCKET", span.length, moment)
    day = build(cast_to(Date()), moment)
    start = _month_bucket(build, day, span.months) if span.months else _day_bucket(build, day, span.length)
    return build(cast_to(moment.type), start)


def _month_bucket(build: Build, day: Expression, months: int) -> Expression:
    number = build("+", build("*", build("YEAR", day), 12), build("-", build("MONTH", day), 1))
    first = build("-", number, remainder(build, build("-", number, FIRST_MONTH), months))
    return build("MAKE_DATE", build("//", first, 12), build("+", build("%", first, 12), 1), 1)


def _day_bucket(build: Build, day: Expression, seconds: int) -> Expression:
    rest = remainder(build, build("date - date", day, FIRST_MONDAY), seconds // SECONDS_OF_A_DAY)
    return build("date + days", day, build("negate", rest))


def remainder(build: Build, value: Expression, width: int) -> Expression:
    """What is left of a division, never below zero."""
    return build("%", build("+", build("%", value, width), width), width)


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
    exp.UnixToTime: lower_epoch,
}

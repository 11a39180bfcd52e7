"""Functions of DuckDB that are synonyms of functions in the table, or can be composed from them.

ADD(a, b)             a + b
LOG(3, x)             LOG10(x) / LOG10(3)
REPEAT(s, 2)          s || s
TIME_BUCKET(INTERVAL 7 DAY, day)     day less the days since the last of the Mondays that are 7 days apart
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.casts import cast_to
from dpsql.expressions.constants import read_moment
from dpsql.expressions.date_arithmetic import DAYS_OF_A_MONTH, SECONDS_OF_A_DAY, is_interval, span_of
from dpsql.expressions.dates import FORMAT_PARTS
from dpsql.expressions.parser_tree import nodes
from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Date, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.tree import Function

if TYPE_CHECKING:
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
    """EPOCH_MS(seen), which the parser reads as the inverse function: milliseconds to timestamp."""
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


def lower_printed(lowering: Lowering, node: exp.Expr) -> Expression:
    """FORMAT('{}-{}', a, b) of texts and integers, in the order in which they are written."""
    lowering.only(node, ("this", "expressions"))
    values = [lowering.lower(part) for part in node.expressions]
    plain = isinstance(node.this, exp.Literal) and all(isinstance(value.type, Text | Integer) for value in values)
    pieces = node.this.name.split("{}") if plain else []
    if len(pieces) != len(values) + 1 or not values or any(set(piece) & set("{}") for piece in pieces):
        raise lowering.refuse(node)
    build = builder(lowering, node)
    joined = _constant(pieces[0])
    for value, piece in zip(values, pieces[1:], strict=True):
        joined = build("||", build("||", joined, value), piece)
    return joined


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
    """The remainder of a division, never negative."""
    return build("%", build("+", build("%", value, width), width), width)


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Chr: lower_chr,
    exp.Format: lower_printed,
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


# -- formats -----------------------------------------------------------------------------------------------------------
# STRFTIME with all codes of DuckDB but those below a second: what is more than digits is put together.
#
# '%a %-d'   ->   LEFT(DAYNAME(day), 3) || ' ' || CAST(DAY(day) AS VARCHAR)

CODE = re.compile(r"%-?.|[^%]+|%", re.DOTALL)
WHOLE = {"%x": "%Y-%m-%d", "%X": "%H:%M:%S", "%c": "%Y-%m-%d %H:%M:%S"}
"""Codes that stand for several."""
FORMAT_WORDS: dict[str, Callable[[Build, Expression], Expression]] = {
    "%A": lambda build, day: build("DAYNAME", day),
    "%a": lambda build, day: build("LEFT", build("DAYNAME", day), 3),
    "%B": lambda build, day: build("MONTHNAME", day),
    "%b": lambda build, day: build("LEFT", build("MONTHNAME", day), 3),
    "%p": lambda build, day: build("CASE", build("<", build("HOUR", day), 12), "AM", "PM"),
}
NUMBERS: dict[str, tuple[int, Callable[[Build, Expression], Expression]]] = {
    "y": (2, lambda build, day: build("%", build("YEAR", day), 100)),
    "m": (2, lambda build, day: build("MONTH", day)),
    "d": (2, lambda build, day: build("DAY", day)),
    "H": (2, lambda build, day: build("HOUR", day)),
    "I": (2, lambda build, day: build("+", build("%", build("+", build("HOUR", day), 11), 12), 1)),
    "M": (2, lambda build, day: build("MINUTE", day)),
    "S": (2, lambda build, day: build("SECOND", day)),
    "j": (3, lambda build, day: build("DAYOFYEAR", day)),
    "u": (1, lambda build, day: build("ISODOW", day)),
    "w": (1, lambda build, day: build("DAYOFWEEK", day)),
    "U": (2, lambda build, day: _week(build, day, build("DAYOFWEEK", day))),
    "W": (2, lambda build, day: _week(build, day, build("-", build("ISODOW", day), 1))),
    "V": (2, lambda build, day: build("WEEK", day)),
    "G": (4, lambda build, day: build("ISOYEAR", day)),
}
"""Numbers, and up to how many digits they are filled with zeros; %-d is the number as it is."""
CODES = (
    *FORMAT_PARTS,
    *WHOLE,
    *FORMAT_WORDS,
    *(f"%{letter}" for letter in NUMBERS if f"%{letter}" not in FORMAT_PARTS),
    "%-d",
    "%%",
)


def _week(build: Build, day: Expression, since: Expression) -> Expression:
    """The weeks of the year that have begun, by the days since the one on which weeks begin."""
    return build("//", build("-", build("+", build("DAYOFYEAR", day), 6), since), 7)


def lower_format(lowering: Lowering, node: exp.Expr) -> Expression:
    """STRFTIME takes the format first or last."""
    lowering.only(node, ("this", "format"))
    moment, form = (_constant_text(lowering, part) for part in (node.this, node.args["format"]))
    if isinstance(moment, exp.Literal) and not isinstance(form, exp.Literal):
        moment, form = form, moment
    if not (isinstance(form, exp.Literal) and form.is_string):
        return lowering.call("STRFTIME", node, (moment, form))

    build = builder(lowering, node)
    day = lowering.lower(moment)
    joined: Expression | None = None
    for piece in _pieces(form.name, build, day, lowering, node):
        joined = piece if joined is None else build("||", joined, piece)
    return joined if joined is not None else build("STRFTIME", day, "")


def _constant_text(lowering: Lowering, node: exp.Expr) -> exp.Expr:
    """'%Y' || '-%m' is '%Y-%m'; anything but constants put together is left as it is."""
    if not all(isinstance(part, JOINED) for part in nodes(node)):
        return node
    found = lowering.lower(node)
    is_text = isinstance(found, Literal) and isinstance(found.value, str)
    return exp.Literal.string(found.value) if is_text else node  # type: ignore[union-attr]


JOINED = (exp.Literal, exp.DPipe, exp.Concat, exp.Paren, exp.Lower, exp.Upper, exp.Trim)


def _pieces(form: str, build: Build, day: Expression, lowering: Lowering, node: exp.Expr) -> Iterator[Expression]:
    """The pieces of the format in order; adjacent digits and plain text form one piece."""
    plain = ""
    for code in CODE.findall(re.sub("%[xXc]", lambda found: WHOLE[found[0]], form)):
        special = _special(code, build, day)
        if special is None:
            plain += code
            if code.startswith("%") and code not in FORMAT_PARTS:
                raise ProgrammingError(
                    f"STRFTIME does not support {code}",
                    at=lowering.place(node),
                    hint=f"it supports {' '.join(CODES)}, and plain text",
                )
            continue
        if plain:
            yield build("STRFTIME", day, plain)
        plain = ""
        yield special
    if plain:
        yield build("STRFTIME", day, plain)


def _special(code: str, build: Build, day: Expression) -> Expression | None:
    """Format codes outside those that all engines share; None for shared codes."""
    if code in FORMAT_WORDS:
        return FORMAT_WORDS[code](build, day)
    if code == "%%":
        # Where there is no date there is no text either.
        return build("CASE", build("IS NULL", day), None, "%")
    filled = not code.startswith("%-")
    if code in FORMAT_PARTS or not code.startswith("%") or code[-1] not in NUMBERS:
        return None
    digits, number = NUMBERS[code[-1]]
    text = build(cast_to(Text()), number(build, day))
    return build("LPAD", text, digits, "0") if filled and digits > 1 else text


# -- lengths -----------------------------------------------------------------------------------------------------------
# Lengths of time: AGE(later, earlier), and the time of day. They are compared, or read in parts; no column holds them.
#
# AGE(DATE '2024-01-01', born) > INTERVAL 30 YEAR     months, days and microseconds, as one number of microseconds
# EXTRACT(year FROM AGE(DATE '2024-01-01', born))     the months, divided by 12
# seen::TIME BETWEEN '08:00' AND '16:00'              microseconds since midnight
#
# AGE counts as DuckDB does: from the earlier moment to the later one, field by field, where a field below zero borrows
# from the next; a borrowed month has the days of the earlier moment's month. Then it takes its sign.

SECOND = 1_000_000
MICROSECONDS_OF_DAY = 86_400 * SECOND
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")
PARTS_OF_A_DAY = {"hour": (3600 * SECOND, 24), "minute": (60 * SECOND, 60), "second": (SECOND, 60)}


def is_age(node: exp.Expr) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Anonymous) and node.name.upper() == "AGE" and len(node.expressions) == 2


def is_time(node: exp.Expr) -> bool:
    """CAST(seen AS TIME), TIME '12:00'"""
    node = node.unnest()
    return isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.TIME


def lengths(lowering: Lowering, nodes: tuple[exp.Expr, ...]) -> tuple[Expression, ...] | None:
    """The ages or times of day in a comparison, in microseconds; None if it compares anything else."""
    if any(map(is_age, nodes)) and all(is_age(node) or is_interval(node) for node in nodes):
        return tuple(_age_or_interval(lowering, node) for node in nodes)
    if any(map(is_time, nodes)) and all(is_time(node) or _is_text(node) for node in nodes):
        return tuple(_time(lowering, node.unnest()) for node in nodes)
    return None


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _age_or_interval(lowering: Lowering, node: exp.Expr) -> Expression:
    if not is_age(node):
        return Literal(span_of(node, lowering).length * SECOND, Integer(), lowering.place(node))
    build, age = builder(lowering, node), Age(lowering, node.unnest())
    days = build("+", build("*", age.months, DAYS_OF_A_MONTH), age.days)
    return build("*", age.sign, build("+", build("*", days, MICROSECONDS_OF_DAY), age.clock))


class Age:
    """The parts of AGE(a, b), none below zero, and the sign of all."""

    def __init__(self, lowering: Lowering, node: exp.Expr) -> None:
        build, (a, b) = builder(lowering, node), (_moment(lowering.lower(part)) for part in node.expressions)
        swapped = build("<", a, b)
        self.sign = build("CASE", swapped, -1, 1)
        last, first = build("CASE", swapped, b, a), build("CASE", swapped, a, b)
        days = build("-", build("DAY", last), build("DAY", first))
        # Dates have no time of day; it is NULL where one of them is, as all other parts are.
        clock = build("*", days, 0)
        if isinstance(last.type, Timestamp):
            clock = build("-", since_midnight(build, last), since_midnight(build, first))
        self.clock, day = _borrowed(build, clock, MICROSECONDS_OF_DAY)
        days = build("-", days, day)
        self.days, month = _borrowed(build, days, build("DAY", build("LAST_DAY", first)))
        years = build("*", build("-", build("YEAR", last), build("YEAR", first)), 12)
        months = build("-", build("MONTH", last), build("MONTH", first))
        self.months = build("-", build("+", years, months), month)


def _borrowed(build: Build, value: Expression, whole: Expression | int) -> tuple[Expression, Expression]:
    """The value, increased by a whole of the next field where it is below zero, and how many were taken from there."""
    below = build("<", value, 0)
    return build("CASE", below, build("+", value, whole), value), build("CASE", below, 1, 0)


def _moment(value: Expression) -> Expression:
    """A text literal in place of a date or timestamp."""
    if isinstance(value, Literal) and isinstance(value.value, str):
        return read_moment(value, Timestamp())
    if not isinstance(value.type, Date | Timestamp):
        raise ProgrammingError(
            f"AGE takes two dates or timestamps, not {value.type.name}",
            at=value.at,
            hint="write it like  AGE(DATE '2024-01-31', day)",
        )
    return value


def since_midnight(build: Build, moment: Expression) -> Expression:
    return remainder(build, build("EPOCH_US", moment), MICROSECONDS_OF_DAY)


def _time(lowering: Lowering, node: exp.Expr) -> Expression:
    inner = node.this if is_time(node) else node
    value = lowering.lower(inner)
    if isinstance(value, Literal) and isinstance(value.value, str):
        return Literal(_clock(value), Integer(), value.at)
    if not isinstance(value.type, Timestamp):
        raise no_time(lowering, node)
    return since_midnight(builder(lowering, node), value)


def _clock(text: Literal) -> int:
    found = CLOCK.fullmatch(str(text.value))
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3]) if found else (99, 0, 0)
    if found is None or hours > 23 or minutes > 59 or seconds > 59:
        raise ProgrammingError(f"'{text.value}' is not a time of day", at=text.at, hint="write it like '12:30:00'")
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND + int((found[4] or "").ljust(6, "0"))


def no_time(lowering: Lowering, node: exp.Expr) -> Unsupported:
    return Unsupported(
        "a time of day can only be compared or split into parts",
        at=lowering.place(node),
        hint="write  seen::TIME < '12:00'  or  HOUR(seen); to group by it, use DATE_TRUNC('hour', seen)",
    )


def no_age(lowering: Lowering, node: exp.Expr) -> Unsupported:
    return Unsupported(
        "an age can only be compared with an INTERVAL or split into parts",
        at=lowering.place(node),
        hint="write  AGE(DATE '2024-01-31', day) > INTERVAL 1 YEAR  or  EXTRACT(year FROM AGE(DATE '2024-01-31', day))",
    )


def lower_part_of(lowering: Lowering, node: exp.Expr, part: str, length: exp.Expr) -> Expression | None:
    """EXTRACT(year FROM AGE(a, b)), HOUR(seen::TIME); None where there is no such part."""
    build = builder(lowering, node)
    if is_time(length):
        clock, sign = _time(lowering, length.unnest()), None
    else:
        age = Age(lowering, length.unnest())
        clock, sign = age.clock, age.sign
        by_name = {"year": ("//", age.months, 12), "month": ("%", age.months, 12), "day": ("+", age.days, 0)}
        if part in by_name:
            return build("*", sign, build(*by_name[part]))
    if part not in PARTS_OF_A_DAY:
        return None
    size, count = PARTS_OF_A_DAY[part]
    found = build("%", build("//", clock, size), count)
    return found if sign is None else build("*", sign, found)

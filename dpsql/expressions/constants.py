"""Constants: the type of a number literal, given the other operands, and arithmetic on constants.

With a double, 0.1 is the nearest double; with a decimal, 5 is a decimal of ten digits. `0.06 + 0.01` is computed
exactly, here, and so narrows the range of a compared column. A constant that does not fit is refused before the charge.
"""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from typing import TYPE_CHECKING, TypeGuard

from dpsql.errors import ProgrammingError, SchemaError
from dpsql.expressions.properties import EXACT_DECIMAL_DIGITS, INT64
from dpsql.expressions.tree import LITERAL as SHORT_LITERAL
from dpsql.expressions.tree import Call, Expression, Literal, as_decimal, largest
from dpsql.limits import LONGEST_PATTERN
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpsql.schema.types import ColumnType

# -- constants ---------------------------------------------------------------------------------------------------------
# Texts that are meant as dates: `day >= '2024-01-01'` compares dates, not texts.

# Functions whose arguments are compared with each other, or chosen from.
OF_ONE_TYPE = {
    *("=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM", "IN"),
    *("CASE", "COALESCE", "NULLIF", "LEAST", "GREATEST", "DATE_DIFF", "DATE_SUB"),
}


PART_OF_A_DATE = {
    4: "; or compare years: YEAR(x) = 2024",
    7: "; or compare months: DATE_TRUNC('month', x) = '2024-01-01'",
}
"""By the length of the text: 2024 and 2024-01."""
# What both DuckDB and Python read, and alike. A Z says UTC, in which timestamps without a zone are read.
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?Z?)?")


def read_dates(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Reads a text literal next to a date or timestamp as one; next to only dates, its time of day is ignored."""
    kinds = {type(argument.type) for argument in arguments}
    if function not in OF_ONE_TYPE or not kinds & {Date, Timestamp}:
        return arguments
    if function == "NULLIF" and isinstance(arguments[0].type, Text):
        return arguments  # it would stay a text
    wanted: ColumnType = Timestamp() if Timestamp in kinds else Date()
    return tuple(
        read_moment(argument, wanted) if _is_text(argument) and _looks_dated(str(argument.value)) else argument
        for argument in arguments
    )


def _looks_dated(value: str) -> bool:
    return value[:4].isdigit()


def read_moment(literal: Literal, wanted: ColumnType) -> Literal:
    """The date or timestamp that a text spells."""
    assert isinstance(literal.value, str)
    try:
        moment = Timestamp().read(literal.value.removesuffix("Z")) if MOMENT.fullmatch(literal.value) else None
    except SchemaError:
        moment = None
    if moment is None:
        raise ProgrammingError(
            f"'{literal.value}' is not a {wanted.name}",
            at=literal.at,
            hint=f"write it like '2024-01-31' or '2024-01-31 12:30:00'{PART_OF_A_DATE.get(len(literal.value), '')}",
        )
    return Literal(moment.date() if isinstance(wanted, Date) else moment, wanted, literal.at)


# -- constants ---------------------------------------------------------------------------------------------------------

OPERATORS = ("+", "-", "*", "/", "%")
NUMERIC = {
    *OPERATORS,
    *("//", "negate", "&", "|", "XOR", "ABS", "SIGN", "SQRT", "CBRT", "LN", "LOG10", "LOG2", "EXP", "POWER"),
    *("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2", "DEGREES", "RADIANS"),
    *("FLOOR", "CEIL", "ROUND", "TRUNC"),
}
"""Functions of numbers."""
EXACT: dict[str, Callable[..., int | Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "negate": operator.neg,
}


COMPARISONS = {"=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM", "IN"}
ONE_KIND = {*COMPARISONS, "COALESCE", "NULLIF", "LEAST", "GREATEST", "+", "-"}
"""Where a text literal is read as what it stands beside."""
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def read_texts(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Reads a text literal next to numbers or booleans as one: n = '3'; a 1 next to booleans is true."""
    kinds = [argument.type for argument in arguments if not isinstance(argument.type, Text)]
    known = [kind for kind in kinds if isinstance(kind, Integer | Decimal | Double | Boolean)]
    if function not in ONE_KIND or not known or len(known) < len(kinds):
        return arguments
    if any(isinstance(argument.type, Text) and not _is_text(argument) for argument in arguments):
        return arguments
    kept = arguments[:1] if function == "NULLIF" else ()  # whose answer is of its first argument's type
    booleans = [isinstance(kind, Boolean) for kind in known]
    if all(booleans):
        read = [_as_truth(argument) if _is_text(argument) else argument for argument in arguments]
    elif any(booleans):
        read = [_as_truth(argument) if function in COMPARISONS else argument for argument in arguments]
    else:
        read = [_as_number(argument, known) if _is_text(argument) else argument for argument in arguments]
    return (*kept, *read[len(kept) :])


def _is_text(argument: Expression) -> TypeGuard[Literal]:
    """Whether it is a text as it was written."""
    return isinstance(argument, Literal) and isinstance(argument.value, str) and not argument.computed


def _as_truth(argument: Expression) -> Expression:
    if not isinstance(argument, Literal) or isinstance(argument.value, bool) or argument.value is None:
        return argument
    if isinstance(argument.value, str) or argument.value in (0, 1):
        truth = TRUTHS.get(str(argument.value).lower())
        if truth is not None:
            return Literal(truth, Boolean(), argument.at)
    return argument  # refused where it is compared


def _as_number(argument: Expression, kinds: Iterable[ColumnType]) -> Expression:
    """An integer next to integers, a double next to doubles, otherwise a decimal with the digits as written."""
    assert isinstance(argument, Literal)
    assert isinstance(argument.value, str)
    text, kind = argument.value.strip(), _widest(kinds)
    number = Fraction(text) if NUMBER.fullmatch(text) else None
    if number is not None and isinstance(kind, Double):
        number = Fraction(float(number))
    scale = kind.scale if isinstance(kind, Decimal) else 0
    whole = number is not None and (number * 10**scale).denominator == 1
    if number is None or not (isinstance(kind, Double) or (whole and _fits(number, kind))):
        return argument  # refused where it is compared
    return Literal(int(number) if isinstance(kind, Integer) else number, kind, argument.at)


def _widest(kinds: Iterable[ColumnType]) -> ColumnType:
    found = list(kinds)
    if any(isinstance(kind, Double) for kind in found):
        return Double()
    decimals = [kind for kind in found if isinstance(kind, Decimal)]
    return max(decimals, key=lambda kind: kind.scale) if decimals else Integer()


def read_nulls(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Reads NULL among numbers as a number."""
    if function not in NUMERIC or not any(map(_is_null, arguments)):
        return arguments
    known = next((argument.type for argument in arguments if not _is_null(argument)), Integer())
    return tuple(Literal(None, known, argument.at) if _is_null(argument) else argument for argument in arguments)


def _is_null(argument: Expression) -> bool:
    return isinstance(argument, Literal) and argument.value is None


def read_numbers(function: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Gives number literals the type that the other arguments imply."""
    if function in (*OF_ONE_TYPE, *OPERATORS) and function != "NULLIF":  # whose answer is of its first argument's type
        return tuple(as_beside(argument, arguments) for argument in arguments)
    return arguments


def as_beside(literal: Expression, others: Iterable[Expression]) -> Expression:
    """A number literal with the type that these imply."""
    kinds = [type(other.type) for other in others]
    if not isinstance(literal, Literal) or isinstance(literal.value, bool) or literal.value is None:
        return literal
    if Double in kinds and isinstance(literal.type, Decimal) and literal.type.precision <= EXACT_DECIMAL_DIGITS:
        assert isinstance(literal.value, int | Fraction)
        return Literal(Fraction(float(literal.value)), Double(), literal.at)
    if Double not in kinds and Decimal in kinds and isinstance(literal.value, int):
        short = isinstance(literal.type, Integer) and abs(literal.value) < 2**31
        kind = SHORT_LITERAL if short else as_decimal(literal.type)
        return Literal(literal.value, kind, literal.at)
    return literal


def folded(call: Call) -> Expression:
    """The call, or the constant that it evaluates to."""
    text = _folded_text(call)
    if text is not None:
        return text
    numbers = [argument.value for argument in call.arguments if isinstance(argument, Literal)]
    known = len(numbers) == len(call.arguments) and all(isinstance(number, int | Fraction) for number in numbers)
    rounded = isinstance(call.type, Double) and call.function.name != "negate"
    if call.function.name not in EXACT or rounded or not known:
        return call
    value = EXACT[call.function.name](*numbers)
    if not _fits(value, call.type):
        room = "64 bits" if isinstance(call.type, Integer) else call.type.name
        raise ProgrammingError(
            f"the constant does not fit into {room}",
            at=call.at,
            hint="write one of the numbers as a double, such as 3e0",
        )
    return Literal(value, call.type, call.at)


def _cut(text: str, start: int, length: int | None = None) -> str:
    return text[start - 1 :] if length is None else text[start - 1 : start - 1 + length]


TEXTS: dict[str, Callable[..., str]] = {
    "LOWER": str.lower,
    "UPPER": str.upper,
    "REVERSE": lambda text: text[::-1],
    "TRIM": lambda text, characters=" ": text.strip(characters),
    "LTRIM": lambda text, characters=" ": text.lstrip(characters),
    "RTRIM": lambda text, characters=" ": text.rstrip(characters),
    "REPLACE": lambda text, old, new: text.replace(old, new) if old else text,
    "LEFT": lambda text, size: text[:size],
    "RIGHT": lambda text, size: text[max(0, len(text) - size) :] if size >= 0 else text[-size:],
    "SUBSTRING": _cut,
    "||": lambda left, right: f"{left}{right}",
    "CONCAT": lambda *parts: "".join(map(str, parts)),
    "CONCAT_WS": lambda separator, *parts: separator.join(map(str, parts)),
    f"CAST AS {Text().name}": str,
}
"""What they give for texts of plain ASCII characters, about which all databases and Python agree."""
PASSING_NULL = {"COALESCE", "CONCAT", "CONCAT_WS"}


def _folded_text(call: Call) -> Literal | None:
    """A pattern may be put together: LIKE LOWER('%ABC%'), LIKE '%' || ? || '%'."""
    name = call.function.name
    constants = [argument for argument in call.arguments if isinstance(argument, Literal)]
    if not isinstance(call.type, Text) or len(constants) < len(call.arguments):
        return None
    if name in PASSING_NULL:
        constants = [constant for constant in constants if constant.value is not None]
    values = [constant.value for constant in constants]
    if not values or not all(map(_is_plain, values)):
        return None
    found = str(values[0]) if name == "COALESCE" else TEXTS[name](*values) if name in TEXTS else None
    if found is None or len(found) > LONGEST_PATTERN:
        return None
    return Literal(found, call.type, call.at, computed=True)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isprintable() and len(value) <= LONGEST_PATTERN
    return type(value) is int


def _fits(value: int | Fraction, kind: ColumnType) -> bool:
    if isinstance(kind, Decimal):
        return -largest(kind) <= value <= largest(kind)
    return isinstance(kind, Double) or INT64[0] <= value <= INT64[1]

"""Casts that give NULL where a value does not fit. Spark has TRY_CAST, and cuts off where others round."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Short, Wide
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.engine_sql.tree import Kind, Known

# -- doubles -----------------------------------------------------------------------------------------------------------
# Doubles in the words of Spark: as IEEE 754 has them, except that its own rounding gives 64-bit integers.
#
# All operands are short texts that can be written several times, or constants.

INFINITE = "CAST('Infinity' AS DOUBLE)"
BELOW_HALF = f"{math.nextafter(0.5, 0)!r}D"
"""What is added to round: with a half itself 0.49999999999999994 would become 1."""


def number(value: float) -> str:
    """
    >>> number(0.5), number(-math.inf)
    ('0.5D', "CAST('-Infinity' AS DOUBLE)")
    """
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"({value!r}D)" if math.copysign(1, value) < 0 else f"{value!r}D"


def truncated(value: str) -> str:
    """A double that does not fit into 64 bits has no fraction, or is not a number."""
    return f"coalesce(CAST(TRY_CAST({value} AS BIGINT) AS DOUBLE), {value})"


def floor(value: str) -> str:
    return f"(rint({value}) - CASE WHEN rint({value}) > {value} THEN 1D ELSE 0D END)"


def ceil(value: str) -> str:
    return f"(rint({value}) + CASE WHEN rint({value}) < {value} THEN 1D ELSE 0D END)"


def rounded(value: str) -> str:
    """Halves away from zero. NaN has the sign NaN, and zero none."""
    return truncated(f"({value} + sign({value}) * {BELOW_HALF})")


def raised(value: str, exponent: str) -> str:
    """A power. Java gives NaN in two cases where IEEE 754 gives 1."""
    certain = f"{value} = 1D OR ({value} = -1D AND abs({exponent}) = {INFINITE})"
    return f"CASE WHEN {certain} THEN 1D ELSE power({value}, {exponent}) END"


# -- casts -------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Once = Callable[[list[str], Callable[..., str]], str]

WHOLE = (Integer, Wide, Short)
EXACT = (*WHOLE, Decimal)
SHORT = {8: "TINYINT", 16: "SMALLINT", 32: "INT"}
TYPES: dict[type, str] = {
    Integer: "BIGINT",
    Double: "DOUBLE",
    Text: "STRING",
    Boolean: "BOOLEAN",
    Date: "DATE",
    Timestamp: "TIMESTAMP_NTZ",
    Wide: "DECIMAL(38, 0)",
}
WIDEST = 10**38


def type_name(kind: Kind) -> str:
    match kind:
        case Decimal(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case Short(bits):
            return SHORT[bits]
        case _:
            return TYPES[type(kind)]


def try_cast(value: str, source: Known, kind: Kind, once: Once) -> str:
    if source == kind:
        return value
    match kind:
        case Integer() | Short() if isinstance(source, (*EXACT, Boolean, Double)):
            return _whole(value, source, kind, once)
        case Double() | Decimal() | Wide() if isinstance(source, Boolean):
            # TRUE is too large for a decimal without digits before its point.
            return f"TRY_CAST(CAST({value} AS INT) AS {type_name(kind)})"
        case Double() if isinstance(source, EXACT):
            return f"CAST({value} AS DOUBLE)"
        case Decimal() | Wide() if isinstance(source, EXACT):
            # Digits that are cut off round half away from zero.
            return f"TRY_CAST({value} AS {type_name(kind)})"
        case Wide() if isinstance(source, Double):
            return once([f"rint({value})"], _exact)
        case Decimal() if isinstance(source, Double):
            return _rounded_decimal(value, kind, once)
        case Boolean() if isinstance(source, (*EXACT, Double)):
            return f"({value} <> 0)"
        case Text() if isinstance(source, (*WHOLE, Boolean, Date, Timestamp)):
            return f"CAST({value} AS STRING)"
        case Text() if isinstance(source, Decimal):
            return f"CAST(CAST({value} AS {type_name(source)}) AS STRING)"
        case Date() | Timestamp() if isinstance(source, Date | Timestamp):
            return f"CAST({value} AS {type_name(kind)})"
    raise no_cast(source, kind)


def no_cast(source: Known, kind: Kind) -> Unsupported:
    before = "this value" if source is None else source.name
    return Unsupported(
        f"on Spark {before} cannot be cast to {kind.name}",
        hint="that engine reads text and writes doubles differently; drop the cast, or store a column that has the "
        "value",
    )


def _whole(value: str, source: Known, kind: Integer | Short, once: Once) -> str:
    """Doubles are rounded half to even, decimals half away from zero; the engine's own cast cuts off."""
    name = type_name(kind)
    match source:
        case Double():
            # The engine takes 2^63 for the largest integer.
            end = 2.0 ** (63 if isinstance(kind, Integer) else kind.bits - 1)
            held = "CASE WHEN {0} < " + number(end) + " THEN TRY_CAST({0} AS " + name + ") END"
            return once([f"rint({value})"], held.format)
        case Decimal(scale=scale) if scale > 0:
            return f"TRY_CAST(round({value}, 0) AS {name})"
        case _:
            return f"TRY_CAST({value} AS {name})"


def _rounded_decimal(value: str, kind: Decimal, once: Once) -> str:
    """Rounds to a whole number of units of the last digit, as a double, then converts that number to a decimal."""

    def fitted(count: str) -> str:
        held = f"CASE WHEN abs({count}) < {number(float(10**kind.precision))} THEN {_exact(count)} END"
        unit = f"CAST('1e-{kind.scale}' AS DECIMAL({max(kind.scale, 1)}, {kind.scale}))"
        return f"TRY_CAST(try_multiply({held}, {unit}) AS {type_name(kind)})"

    return once([once([f"({value} * {number(float(10**kind.scale))})"], rounded)], fitted)


def _exact(whole: str) -> str:
    """A whole double as an exact decimal. The engine's own cast keeps only the digits that the double is printed with.

    From 2^63 on, the last bits of a double are zero, so a quarter of it is cast and scaled back.
    """
    high = f"rint({whole} * {number(2.0**-64)})"
    low = f"({whole} - {high} * {number(2.0**64)}) * 0.25D"
    long = f"{_in_64_bits(high)} * CAST('{2**64}' AS DECIMAL(20, 0)) + {_in_64_bits(low)} * CAST(4 AS DECIMAL(1, 0))"
    return (
        f"CASE WHEN abs({whole}) < {number(2.0**63)} THEN CAST({_in_64_bits(whole)} AS DECIMAL(38, 0)) "
        f"WHEN abs({whole}) < {number(float(WIDEST))} THEN TRY_CAST({long} AS DECIMAL(38, 0)) END"
    )


def _in_64_bits(whole: str) -> str:
    return f"CAST(TRY_CAST({whole} AS BIGINT) AS DECIMAL(19, 0))"


# -- moments -----------------------------------------------------------------------------------------------------------
# Dates and timestamps in the words of Spark. Its functions of moments take timestamps with a zone, which is UTC.

MONTHS = {"year": 12, "quarter": 3, "month": 1}
SECONDS = {"hour": 3_600, "minute": 60, "second": 1}
FORMATS = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss"}
PARTS: dict[str, str] = {
    **{name: f"{name}({{}})" for name in ("year", "quarter", "month", "day", "dayofyear", "hour", "minute", "second")},
    "week": "weekofyear({})",
    "dayofweek": "(dayofweek({}) - 1)",
    "isodow": "(weekday({}) + 1)",
    "isoyear": "extract(YEAROFWEEK FROM {})",
    "yearweek": "(extract(YEAROFWEEK FROM {0}) * 100 + weekofyear({0}))",
    "decade": "(year({}) div 10)",
    "century": "((year({}) - 1) div 100 + 1)",
    "millennium": "((year({}) - 1) div 1000 + 1)",
}


def timestamp(moment: str) -> str:
    return f"CAST({moment} AS TIMESTAMP)"


def without_zone(moment: str) -> str:
    return f"CAST({moment} AS TIMESTAMP_NTZ)"


def microseconds(moment: str) -> str:
    return f"unix_micros({timestamp(moment)})"


def part(name: str, moment: str) -> str:
    return f"CAST({PARTS[name].format(timestamp(moment))} AS BIGINT)"


def starts_between(unit: str, first: str, last: str) -> str:
    """DATE_DIFF."""
    if unit in MONTHS:
        return f"CAST({_starts(unit, last)} - {_starts(unit, first)} AS BIGINT)"
    if unit in SECONDS:
        return f"({_started(unit, last)} - {_started(unit, first)})"
    days = f"datediff({last}, {first})"
    return f"CAST({days} AS BIGINT)" if unit == "day" else f"CAST({days} div 7 AS BIGINT)"


def _starts(unit: str, moment: str) -> str:
    years = f"year({moment})"
    if unit == "year":
        return years
    months = f"({years} * 12 + month({moment}) - 1)"
    return months if unit == "month" else f"({months} div 3)"


def _started(unit: str, moment: str) -> str:
    """The time since 1970 in whole units, rounded down; negative before 1970."""
    size = SECONDS[unit] * 1_000_000
    count = microseconds(moment)
    return f"(({count} - pmod({count}, {size}L)) div {size}L)"


def whole_units_between(unit: str, first: str, last: str) -> str:
    """DATE_SUB."""
    if unit in MONTHS:
        raise Unsupported(
            f"on Spark DATE_SUB does not support {unit}", hint="use DATE_DIFF, or DATE_SUB with 'day' or shorter"
        )
    size = {**SECONDS, "day": 86_400, "week": 604_800}[unit] * 1_000_000
    return f"(({microseconds(last)} - {microseconds(first)}) div {size}L)"


def shifted(moment: str, amount: int, unit: str) -> str:
    if unit in MONTHS:
        return f"({moment} + INTERVAL '{amount * MONTHS[unit]}' MONTH)"
    size = {**SECONDS, "day": 86_400, "week": 604_800}[unit] * 1_000_000
    return without_zone(f"timestamp_micros({microseconds(moment)} + ({amount * size}L))")


def made(year: str, month: str, day: str) -> str:
    """Counts from the first of the month; if the result falls into the next month, there is no such day."""
    first = f"make_date(CAST({year} AS INT), CAST({month} AS INT), 1)"
    found = f"date_add({first}, CAST({day} - 1 AS INT))"
    return f"CASE WHEN month({found}) = {month} THEN {found} END"


def formatted(moment: str, pattern: str, literal: Callable[[str], str]) -> str:
    """STRFTIME: plain text is in quotes."""
    pieces = re.findall("%.|[^%]+", pattern, re.DOTALL)
    spelled = (FORMATS.get(piece) or "'" + piece.replace("'", "''") + "'" for piece in pieces)
    return f"date_format({timestamp(moment)}, {literal(''.join(spelled))})"


# -- texts -------------------------------------------------------------------------------------------------------------
# Texts in the words of Spark: literals, letters, patterns.
#
# LOWER and UPPER take letter for letter here, as the tables of Unicode have it. Spark takes some letters to several,
# and sigma to another one at the end of a word; it also knows letters that were added to the tables lately. A text that
# has such a letter is taken apart.

ESCAPE = "!"
"""What stands before a character of a pattern that means itself."""
UPPER_KEPT = (
    *(0x149, 0x19B, 0x1F0, 0x264, 0x390, 0x3B0, 0x587, 0x1C8A, *range(0x1E96, 0x1E9B), 0x1F50, 0x1F52, 0x1F54, 0x1F56),
    *(*range(0x1F88, 0x1F90), *range(0x1F98, 0x1FA0), *range(0x1FA8, 0x1FB0), 0x1FB2, 0x1FB4, 0x1FB6, 0x1FB7, 0x1FBC),
    *(0x1FC2, 0x1FC4, 0x1FC6, 0x1FC7, 0x1FCC, 0x1FD2, 0x1FD3, 0x1FD6, 0x1FD7, 0x1FE2, 0x1FE3, 0x1FE4, 0x1FE6, 0x1FE7),
    *(0x1FF2, 0x1FF4, 0x1FF6, 0x1FF7, 0x1FFC, 0xA7CD, 0xA7CF, 0xA7D3, 0xA7D5, 0xA7DB, *range(0xFB00, 0xFB07)),
    *(*range(0xFB13, 0xFB18), *range(0x10D70, 0x10D86), *range(0x16EBB, 0x16ED4)),
)
"""Letters that Spark has capitals for, where the tables have no one letter, or had none."""
UPPER = {
    **{letter: letter for letter in UPPER_KEPT},
    **{letter: letter + 8 for start in (0x1F80, 0x1F90, 0x1FA0) for letter in range(start, start + 8)},
    0xDF: 0x1E9E,
    0x1FB3: 0x1FBC,
    0x1FC3: 0x1FCC,
    0x1FF3: 0x1FFC,
}
LOWER_KEPT = (
    *(0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC, *range(0x10D50, 0x10D66)),
    *range(0x16EA0, 0x16EB9),
)
LOWER = {**{letter: letter for letter in LOWER_KEPT}, 0x130: ord("i"), ord("Σ"): ord("σ")}


def literal(text: str) -> str:
    r"""
    >>> print(literal("it's a \\"))
    'it\'s a \\'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """
    >>> quoted("odd`name")
    '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"


def upper(text: str) -> str:
    return _by_letters("upper", text, UPPER)


def lower(text: str) -> str:
    return _by_letters("lower", text, LOWER)


def _by_letters(function: str, text: str, letters: dict[int, int]) -> str:
    before, after = ("".join(map(chr, points)) for points in (letters, letters.values()))
    own = f"translate(_c, '{before}', '{after}')"
    apart = f"transform(split({text}, ''), _c -> CASE WHEN contains('{before}', _c) THEN {own} ELSE {function}(_c) END)"
    return f"CASE WHEN {text} RLIKE '[{before}]' THEN array_join({apart}, '') ELSE {function}({text}) END"


def pattern(wanted: str, escape: str | None) -> str:
    """The pattern with dpsql's own escape character, which precedes only itself, % and _."""
    spelled = []
    characters = iter(wanted)
    for character in characters:
        meant = next(characters) if character == escape else None
        if meant is not None:
            spelled.append(ESCAPE + meant if meant in (ESCAPE, "%", "_") else meant)
        else:
            spelled.append(ESCAPE * 2 if character == ESCAPE else character)
    return "".join(spelled)


def linear_pattern(wanted: str) -> str | None:
    r"""A pattern in our own escapes as a regular expression whose time is linear in the text; None if LIKE's own is.

    Each piece is looked for from left to right, and the first place that is found is kept: (?> ) does not go back. LIKE
    tries all places of all pieces, n^k for k of them.

    >>> print(linear_pattern("%a_%b!%c"))
    (?s)\A(?>.*?a.).*b\%c\z
    >>> linear_pattern("%a%") is linear_pattern("a%b") is None
    True
    """
    pieces = _pieces(wanted)
    if len(pieces) < 3 or (len(pieces) == 3 and pieces[0] == pieces[2] == "" and "_" not in wanted):
        return None
    first, *middle, last = pieces
    return f"(?s)\\A{first}{''.join(f'(?>.*?{piece})' for piece in middle)}.*{last}\\z"


def _pieces(wanted: str) -> list[str]:
    """The pieces between the % of a pattern, as regular expressions."""
    pieces = [""]
    characters = iter(wanted)
    for character in characters:
        if character == "%":
            pieces.append("")
        elif character == "_":
            pieces[-1] += "."
        else:
            meant = next(characters) if character == ESCAPE else character
            pieces[-1] += meant if meant.isalnum() or not meant.isascii() else f"\\{meant}"
    return pieces

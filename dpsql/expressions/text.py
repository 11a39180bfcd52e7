"""Functions of text. Positions and patterns are constants, so that no row can make one fail."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.engine_sql.build import apply, cast, integer, one_zero
from dpsql.errors import Unsupported
from dpsql.expressions.logic import truth
from dpsql.expressions.properties import Properties, bounded
from dpsql.expressions.tree import Expression, Function, Literal, Misfit, Written, is_null, need_count
from dpsql.limits import LONGEST_COMPARED, LONGEST_PATTERN
from dpsql.schema.types import Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.properties import Value

# -- lower positions ---------------------------------------------------------------------------------------------------
# Pieces of a text by any constant positions: negative ones count from the end, as in DuckDB.
#
# SUBSTRING(s, -3, 2)     of the last 3 characters all but the last one
# s[2:-2]                 from the second character to the last but one
# SPLIT_PART(s, ',', 0)   ''
#
# All are made of SUBSTRING, LEFT and RIGHT, where a negative length leaves out so many characters on the other side.


def lower_substring(lowering: Lowering, node: exp.Expr) -> Expression:
    keys = ("this", "start", "length")
    lowering.only(node, keys)
    text, start, *length = (lowering.lower(node.args[key]) for key in keys if node.args.get(key) is not None)
    first, sizes = _constant(start), [_constant(part) for part in length]
    if first is None or None in sizes or (first > 0 and all(size is not None and size >= 0 for size in sizes)):
        return lowering.build("SUBSTRING", node, (text, start, *length))
    return _Cutter(lowering, node).substring(text, first, sizes[0] if sizes else None)


def lower_split(lowering: Lowering, node: exp.Expr) -> Expression:
    keys = ("this", "delimiter", "part_index")
    lowering.only(node, keys)
    if _constant(lowering.lower(node.args["part_index"])) == 0:
        return _Cutter(lowering, node).left(lowering.lower(node.this), 0)
    return lowering.call("SPLIT_PART", node, [node.args[key] for key in keys])


def lower_bracket(lowering: Lowering, node: exp.Expr) -> Expression:
    """text[2] is its second character, text[2:3] the second and the third."""
    lowering.only(node, ("this", "expressions"))
    index = node.expressions[0]
    if len(node.expressions) != 1:
        raise lowering.refuse(node)
    if isinstance(index, exp.Slice):
        lowering.only(index, ("this", "expression"))
        return _slice(lowering, node, index.args.get("this"), index.args.get("expression"))
    position = _constant(lowering.lower(index))
    if position is None:
        raise lowering.refuse(node)
    return _Cutter(lowering, node).substring(lowering.lower(node.this), position, 1)


def lower_slice(lowering: Lowering, node: exp.Expr) -> Expression:
    lowering.only(node, ("this", "start", "end", "is_length"))
    if node.args.get("is_length"):
        raise lowering.refuse(node)
    return _slice(lowering, node, node.args.get("start"), node.args.get("end"))


def _slice(lowering: Lowering, node: exp.Expr, start: exp.Expr | None, end: exp.Expr | None) -> Expression:
    first = 1 if start is None else _constant(lowering.lower(start))
    last = -1 if end is None else _constant(lowering.lower(end))
    if first is None or last is None or (first < 0 <= last):
        raise lowering.refuse(node)
    return _Cutter(lowering, node).between(lowering.lower(node.this), first, last)


def _constant(expression: Expression | None) -> int | None:
    value = expression.value if isinstance(expression, Literal) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class _Cutter:
    """Writes pieces of a text as calls."""

    lowering: Lowering
    node: exp.Expr

    def _cut(self, name: str, text: Expression, *numbers: int) -> Expression:
        return self.lowering.build(name, self.node, (text, *(Literal(number, Integer()) for number in numbers)))

    def left(self, text: Expression, size: int) -> Expression:
        return self._cut("LEFT", text, size)

    def right(self, text: Expression, size: int) -> Expression:
        return self._cut("RIGHT", text, size)

    def substring(self, text: Expression, start: int, size: int | None) -> Expression:
        if size is not None and size < 0:
            return self._before(text, start, -size)
        if start > 0:
            return self._cut("SUBSTRING", text, start, *([] if size is None else [size]))
        if start == 0:  # a place before the first
            return self._cut("SUBSTRING", text, 1) if size is None else self.left(text, max(0, size - 1))
        end = self.right(text, -start)
        if size is None or size >= -start:
            return end
        return self.left(end, size + start) if size else self.left(end, 0)

    def _before(self, text: Expression, start: int, size: int) -> Expression:
        """The given number of characters before a position."""
        if start < 0:
            return self.right(self.left(text, start), size)
        if start - size >= 1:
            return self.substring(text, start - size, size)
        return self.left(text, max(0, start - 1))

    def between(self, text: Expression, first: int, last: int) -> Expression:
        """The text from one position to another, inclusive."""
        if last >= 0:
            return self.substring(text, max(first, 1), max(0, last - max(first, 1) + 1))
        begun = text if last == -1 else self.left(text, last + 1)
        return self.right(begun, max(0, last - first + 1)) if first < 0 else self.substring(begun, max(first, 1), None)


# -- JSON --------------------------------------------------------------------------------------------------------------
# What a text of JSON says at a constant path, as text: NULL where there is nothing, and where the text is no JSON.
#
# payload ->> 'kind'        payload -> 'a' ->> 'b'       json_extract_string(payload, '$.a[0].b')

JSON = "JSON_EXTRACT_STRING"
JSON_PATH = re.compile(r"""\$(\.[A-Za-z_]\w*|\."[^"\\*]+"|\[\d{1,6}\])+""")
JSON_KEY = re.compile(r"""(?![/$])[^"\\*]*[^"\\*\d][^"\\*]*""")
JSON_GROWTH = 8
"""A number such as 1E15 is written in more characters than it was."""


def lower_json(lowering: Lowering, node: exp.Expr) -> Expression:
    steps = ""
    while isinstance(node, exp.JSONExtract | exp.JSONExtractScalar):
        lowering.only(node, ("this", "expression"))
        steps = _json_steps(lowering, node) + steps
        inner = node.this.unnest()
        if not isinstance(inner, exp.JSONExtract):
            break
        node = inner
    return lowering.build(JSON, node, (lowering.lower(node.this), Literal(f"${steps}", Text())))


def _json_steps(lowering: Lowering, node: exp.Expr) -> str:
    path = node.expression
    if isinstance(path, exp.Literal) and path.is_string and JSON_PATH.fullmatch(path.name):
        return path.name[1:]
    if isinstance(path, exp.Literal) and path.is_string and JSON_KEY.fullmatch(path.name):
        return f'."{path.name}"'
    if isinstance(path, exp.Literal) and path.is_int:
        return f"[{path.name}]"
    raise Unsupported(
        "only a constant path of keys and positions can be followed in JSON",
        at=lowering.place(node),
        hint="write payload ->> 'key', or payload ->> '$.key[0].other'",
    )


def json_properties(arguments: Sequence[Properties]) -> Properties:
    need_text(JSON, arguments[0])
    need_constants(JSON, arguments[1:], str)
    return grown(nullable=True, growth=arguments[0].growth * JSON_GROWTH)


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Substring: lower_substring,
    exp.SplitPart: lower_split,
    exp.Bracket: lower_bracket,
    exp.ArraySlice: lower_slice,
    exp.JSONExtractScalar: lower_json,
}


# -- text --------------------------------------------------------------------------------------------------------------

FARTHEST = 10_000
"""The largest position or length that may be asked for."""
MOST_GROWTH = 100
"""Beyond this one row's text could take all memory, and everybody would see the time that it takes."""


MD5_LENGTH = 32


def need_text(name: str, properties: Properties) -> None:
    if not isinstance(properties.type, Text) and not is_null(properties):
        raise Misfit(f"{name} takes a text, not {properties.type.name}; CAST it to VARCHAR first")


def need_constants(name: str, arguments: Sequence[Properties], kind: type) -> None:
    for properties in arguments:
        if not isinstance(properties.constant, kind):
            raise Misfit(f"{name} takes a constant there, not a value from a row")
        need_length(name, properties, LONGEST_PATTERN)


def need_length(name: str, properties: Properties, most: int) -> None:
    """The work for each row grows with the length of the constant that its text is compared with."""
    if len(str(properties.constant)) > most:
        raise Misfit(f"{name} takes a constant of at most {most:,} characters")


def grown(nullable: bool, growth: int) -> Properties:
    """Properties of a text that may be longer than its parts."""
    if growth > MOST_GROWTH:
        raise Unsupported(
            f"this text could grow to more than {MOST_GROWTH} times the length of its parts",
            hint="use fewer || and CONCAT, and shorter replacements in REPLACE",
        )
    return Properties(Text(), nullable, growth=growth)


def text_properties(name: str, counts: Sequence[int], arguments: Sequence[Properties]) -> Properties:
    """Properties of a text computed from one text and constants."""
    need_count(name, arguments, *counts)
    first, *rest = arguments
    need_text(name, first)
    need_constants(name, rest, str)
    return grown(first.nullable, first.growth * (_replacing(*rest) if name == "REPLACE" else 1))


def _replacing(old: Properties, new: Properties) -> int:
    """The factor by which a text can grow."""
    before, after = (len(str(properties.constant).encode()) for properties in (old, new))
    return max(1, -(-after // before)) if before else 1


def call_sql(name: str, arguments: Sequence[Written]) -> Term:
    """Constant positions are written as bare numbers: some functions take no 64-bit integers."""
    return apply(name, *(_bare(argument.properties.constant) or argument.sql for argument in arguments))


def _bare(constant: Value | None) -> Term | None:
    return integer(constant) if type(constant) is int else None


def length_properties(arguments: Sequence[Properties]) -> Properties:
    need_text("LENGTH", arguments[0])
    sizes = [len(str(value)) for value in arguments[0].values or ()]
    return bounded(Integer(), min(sizes, default=0), max(sizes, default=None), nullable=arguments[0].nullable)


def bytes_properties(arguments: Sequence[Properties]) -> Properties:
    need_text("STRLEN", arguments[0])
    sizes = [len(str(value).encode()) for value in arguments[0].values or ()]
    return bounded(Integer(), min(sizes, default=0), max(sizes, default=None), nullable=arguments[0].nullable)


def cut_properties(name: str, least: int, arguments: Sequence[Properties]) -> Properties:
    """A piece of a text, by constant positions and lengths."""
    need_count(name, arguments, *((2, 3) if name == "SUBSTRING" else (2,)))
    text, *positions = arguments
    need_text(name, text)
    need_constants(name, positions, int)
    start, *length = (int(properties.constant) for properties in positions)  # type: ignore[arg-type]
    if not least <= start <= FARTHEST or not all(0 <= size <= FARTHEST for size in length):
        raise Misfit(f"{name} takes positions and lengths between {least} and {FARTHEST}")
    return grown(text.nullable, text.growth)


def pad_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    """The length is a constant, so that one row's text cannot grow without limit."""
    need_count(name, arguments, 3)
    text, length, fill = arguments
    need_constants(name, [fill], str)
    if not fill.constant:
        raise Misfit(f"{name} needs at least one fill character")
    return cut_properties(name, 0, [text, length])


def split_properties(arguments: Sequence[Properties]) -> Properties:
    need_count("SPLIT_PART", arguments, 3)
    text, delimiter, index = arguments
    need_constants("SPLIT_PART", [delimiter], str)
    if not delimiter.constant:
        raise Misfit("SPLIT_PART needs a non-empty delimiter")
    return cut_properties("SPLIT_PART", -FARTHEST, [text, index])


def position_properties(arguments: Sequence[Properties]) -> Properties:
    need_text("STRPOS", arguments[0])
    need_constants("STRPOS", arguments[1:], str)
    return bounded(Integer(), 0, None, nullable=arguments[0].nullable)


def distance_properties(arguments: Sequence[Properties]) -> Properties:
    need_text("LEVENSHTEIN", arguments[0])
    need_constants("LEVENSHTEIN", arguments[1:], str)
    for properties in arguments[1:]:
        need_length("LEVENSHTEIN", properties, LONGEST_COMPARED)
    return bounded(Integer(), 0, None, nullable=arguments[0].nullable)


def digest_properties(arguments: Sequence[Properties]) -> Properties:
    need_text("MD5", arguments[0])
    return grown(arguments[0].nullable, MD5_LENGTH)


def code_properties(name: str, least: int, arguments: Sequence[Properties]) -> Properties:
    """The number of a text's first character; an empty text has the least."""
    need_text(name, arguments[0])
    return bounded(Integer(), least, sys.maxunicode, nullable=arguments[0].nullable)


def code_sql(name: str, arguments: Sequence[Written]) -> Term:
    return cast(call_sql(name, arguments), Integer())


def test_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    need_text(name, arguments[0])
    need_constants(name, arguments[1:], str)
    return truth(nullable=arguments[0].nullable)


def joined_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    """`||` is NULL as soon as one part is; CONCAT and CONCAT_WS pass over NULL."""
    if name == "CONCAT_WS":
        need_constants(name, arguments[:1], str)
    nullable = name == "||" and any(properties.nullable for properties in arguments)
    return grown(nullable, sum(properties.growth for properties in arguments))


def as_text(argument: Written) -> Term:
    if isinstance(argument.properties.type, Text):
        return argument.sql
    return cast(one_zero(argument.sql) if isinstance(argument.properties.type, Double) else argument.sql, Text())


def joined_sql(arguments: Sequence[Written]) -> Term:
    left, right = (as_text(argument) for argument in arguments)
    return apply("||", left, right, kind=Text())


def concat_sql(name: str, arguments: Sequence[Written]) -> Term:
    return apply(name, *(as_text(argument) for argument in arguments), kind=Text())


def _text(name: str, takes: str, *counts: int) -> Function:
    return Function(name, takes, partial(text_properties, name, counts), partial(call_sql, name.lower()))


def _test(name: str, takes: str) -> Function:
    return Function(name, takes, partial(test_properties, name), partial(call_sql, name.lower()))


def _cut(name: str, least: int, takes: str) -> Function:
    return Function(name, takes, partial(cut_properties, name, least), partial(call_sql, name.lower()))


def _pad(name: str) -> Function:
    return Function(
        name, f"{name}(text, length, 'fill')", partial(pad_properties, name), partial(call_sql, name.lower())
    )


def _code(name: str, least: int) -> Function:
    return Function(name, f"{name}(text)", partial(code_properties, name, least), partial(code_sql, name.lower()))


def _concat(name: str, takes: str) -> Function:
    return Function(name, takes, partial(joined_properties, name), partial(concat_sql, name.lower()))


FUNCTIONS = (
    _text("LOWER", "LOWER(text)", 1),
    _text("UPPER", "UPPER(text)", 1),
    _text("REVERSE", "REVERSE(text)", 1),
    _text("TRIM", "TRIM(text [, 'characters'])", 1, 2),
    _text("LTRIM", "LTRIM(text [, 'characters'])", 1, 2),
    _text("RTRIM", "RTRIM(text [, 'characters'])", 1, 2),
    _text("REPLACE", "REPLACE(text, 'from', 'to')", 3),
    Function("LENGTH", "LENGTH(text)", length_properties, partial(call_sql, "length")),
    Function("STRLEN", "STRLEN(text)", bytes_properties, partial(call_sql, "bytes")),
    _cut("SUBSTRING", 1, "SUBSTRING(text, start [, length])"),
    _cut("LEFT", -FARTHEST, "LEFT(text, length)"),
    _cut("RIGHT", -FARTHEST, "RIGHT(text, length)"),
    _pad("LPAD"),
    _pad("RPAD"),
    Function("SPLIT_PART", "SPLIT_PART(text, 'delimiter', index)", split_properties, partial(call_sql, "split_part")),
    Function(JSON, "text ->> 'key'", json_properties, partial(call_sql, "json_extract_string")),
    Function("STRPOS", "STRPOS(text, 'part')", position_properties, partial(call_sql, "strpos")),
    Function("LEVENSHTEIN", "LEVENSHTEIN(text, 'other')", distance_properties, partial(call_sql, "levenshtein")),
    Function("MD5", "MD5(text)", digest_properties, partial(call_sql, "md5")),
    _code("ASCII", 0),
    _code("UNICODE", -1),
    _test("STARTS_WITH", "STARTS_WITH(text, 'start')"),
    _test("ENDS_WITH", "ENDS_WITH(text, 'end')"),
    _test("CONTAINS", "CONTAINS(text, 'part')"),
    Function("||", "a || b", partial(joined_properties, "||"), joined_sql),
    _concat("CONCAT", "CONCAT(a, b, ...)"),
    _concat("CONCAT_WS", "CONCAT_WS('separator', a, b, ...)"),
)

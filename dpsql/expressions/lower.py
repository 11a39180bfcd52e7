"""From the parser's nodes to our own expressions. A node that is not in the tables has no meaning and is refused.

`day BETWEEN '2024-01-01' AND '2024-12-31'`  ->  AND(>=(day, 2024-01-01), <=(day, 2024-12-31))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions import lower_positions, lower_special, lower_words
from dpsql.expressions.arithmetic import DECIMAL_RULES
from dpsql.expressions.constants import folded, read_nulls, read_numbers, read_texts
from dpsql.expressions.decimals import is_certain
from dpsql.expressions.emit import check_depth, check_parts
from dpsql.expressions.function import Function, Misfit
from dpsql.expressions.table import FUNCTIONS as FUNCTIONS
from dpsql.expressions.table import NODES, PARSER_NOTES
from dpsql.expressions.temporal import lower as lower_dates
from dpsql.expressions.temporal.constants import read_dates
from dpsql.expressions.temporal.formats import lower_format
from dpsql.expressions.tree import Call, Expression, reads_adaptive, type_properties
from dpsql.schema.types import Decimal
from dpsql.source import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SPECIAL = {
    **lower_special.SPECIAL,
    **lower_positions.SPECIAL,
    **lower_words.SPECIAL,
    **lower_dates.SPECIAL,
    exp.TimeToStr: lower_format,
}


@dataclass(frozen=True)
class Lowering:
    """Turns nodes into expressions; `resolve` knows what the columns' names mean."""

    source: str
    resolve: Callable[[exp.Column], Expression]
    subquery: Callable[[exp.Expr], Expression] | None = None
    """Knows what a subquery that stands for a value means, where there can be one."""

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
        except Misfit as problem:
            raise ProgrammingError(str(problem), at=place, hint=f"write it like  {function.takes}") from None
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
        return refusal(node, self.place(node), self.source)


def _check_tried(call: Call) -> None:
    """Wide decimals are computed inside TRY, which takes no value of an adaptive subquery."""
    kinds = [argument.type for argument in call.arguments]
    wide = isinstance(call.type, Decimal) and call.function.name in DECIMAL_RULES
    if wide and not is_certain(call.function.name, kinds) and any(map(reads_adaptive, call.arguments)):
        raise Unsupported(
            f"{call.type.name} has no digits to spare for this", at=call.at, hint="CAST the subquery's value to DOUBLE"
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
        return _only_place(node, source)
    start, end = min(mark["start"] for mark in marks), max(mark["end"] for mark in marks)
    return Place(source, start, end)


def _only_place(node: exp.Expr, source: str) -> Place | None:
    """CURRENT_DATE and its like, which the parser does not mark: where the word stands, if it stands there once."""
    if not isinstance(node, exp.Func):
        return None
    found = list(re.finditer(rf"\b{node.sql_name()}\b", source, re.IGNORECASE))
    return Place(source, found[0].start(), found[0].end() - 1) if len(found) == 1 else None


# Why a function is not in the table, said so that the analyst knows what to write instead.

CHANCE = ("the answer would depend on chance", "leave it out; dpsql adds the noise itself")
CLOCK = ("the answer would depend on when it is asked", "write the date itself: DATE '2024-01-31'")
STATE = ("the answer would depend on what was asked before", "leave it out")
SESSION = ("the answer would depend on who asks and where", "write the value itself")
TIMES = (
    "an interval is only added to a date or taken from one",
    "write  day + INTERVAL 3 MONTH  or  DATE_DIFF('day', a, b)",
)
NO_OTHER = "the functions that can be are listed in docs/sql.md"

VOLATILE = {
    CHANCE: "RAND RANDOM UUID GEN_RANDOM_UUID UUIDV4 UUIDV7 SETSEED",
    CLOCK: "NOW TODAY CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_DATETIME LOCALTIME LOCALTIMESTAMP AGE "
    "GET_CURRENT_TIME GET_CURRENT_TIMESTAMP TRANSACTION_TIMESTAMP",
    STATE: "NEXTVAL CURRVAL TXID_CURRENT GETVARIABLE",
    SESSION: "CURRENT_USER CURRENT_VERSION CURRENT_SCHEMA CURRENT_DATABASE CURRENT_SETTING GETENV VERSION",
    TIMES: "INTERVAL",
}
REASONS = {name: reason for reason, names in VOLATILE.items() for name in names.split()}


def refusal(node: exp.Expr, place: Place | None, source: str) -> Unsupported:
    name = spoken(node, source)
    if name in REASONS:
        reason, hint = REASONS[name]
        return Unsupported(f"{name} cannot be used below an aggregate: {reason}", at=place, hint=hint)
    close = [] if type(node) in SIGNS else get_close_matches(name, FUNCTIONS, n=3, cutoff=0.5)
    hint = "close to it: " + ", ".join(FUNCTIONS[match].takes for match in close) if close else NO_OTHER
    return Unsupported(f"{name} cannot be used below an aggregate", at=place, hint=hint)


LONGEST_WORD = 30
SIGNS: dict[type[exp.Expr], str] = {
    **dict.fromkeys((exp.Bracket, exp.Array, exp.Slice), "[...]"),
    exp.Struct: "{...}",
    exp.GroupConcat: "STRING_AGG",
    exp.Any: "ANY",
    exp.All: "ALL",
    exp.Star: "*",
    exp.Tuple: "a list in parentheses",
    exp.Lambda: "a lambda",
    exp.Window: "a window",
    exp.Interval: "INTERVAL",
    exp.Distinct: "DISTINCT",
    **dict.fromkeys((exp.Subquery, exp.Select, exp.Exists, exp.In), "this subquery"),
}
"""What people call nodes that have no name."""


def spoken(node: exp.Expr, source: str) -> str:
    """What the analyst wrote; a name of the parser's nodes is nobody's word."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    if type(node) in SIGNS:
        return SIGNS[type(node)]
    start, end = node.meta.get("start"), node.meta.get("end")
    if start is not None and end is not None and re.fullmatch(r"\w+", source[start : end + 1]):
        return source[start : end + 1].upper()
    if isinstance(node, exp.Func):
        return node.sql_name()
    place = place_of(node, source)
    text = "" if place is None else source[place.start : place.end + 1]
    return text if 0 < len(text) <= LONGEST_WORD else "this"

"""From the parser's nodes to our own expressions. A node that is not in the tables has no meaning and is refused.

`day BETWEEN '2024-01-01' AND '2024-12-31'`  ->  AND(>=(day, 2024-01-01), <=(day, 2024-12-31))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions import comparison, lower_positions, lower_special, lower_words
from dpsql.expressions.arithmetic import DECIMAL_RULES
from dpsql.expressions.constants import folded, read_nulls, read_numbers, read_texts
from dpsql.expressions.decimals import is_certain
from dpsql.expressions.emit import check_depth, check_parts
from dpsql.expressions.function import Function, Misfit
from dpsql.expressions.mismatches import mismatch
from dpsql.expressions.parser_tree import nodes
from dpsql.expressions.refusals import refusal
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

COMPARISONS = {function.name for function in comparison.FUNCTIONS} - {"AND", "OR", "NOT", "IS NULL"}
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
        return refusal(node, self.place(node))


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

"""Pieces of a text by any constant positions: negative ones count from the end, as in DuckDB.

SUBSTRING(s, -3, 2)     of the last 3 characters all but the last one
s[2:-2]                 from the second character to the last but one
SPLIT_PART(s, ',', 0)   ''

All are made of SUBSTRING, LEFT and RIGHT, where a negative length leaves out so many characters on the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.tree import Expression, Literal
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.expressions.lower import Lowering


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
        """So many characters before a place."""
        if start < 0:
            return self.right(self.left(text, start), size)
        if start - size >= 1:
            return self.substring(text, start - size, size)
        return self.left(text, max(0, start - 1))

    def between(self, text: Expression, first: int, last: int) -> Expression:
        """From one place to another, both included."""
        if last >= 0:
            return self.substring(text, max(first, 1), max(0, last - max(first, 1) + 1))
        begun = text if last == -1 else self.left(text, last + 1)
        return self.right(begun, max(0, last - first + 1)) if first < 0 else self.substring(begun, max(first, 1), None)


SPECIAL: dict[type[exp.Expr], Callable[[Lowering, exp.Expr], Expression]] = {
    exp.Substring: lower_substring,
    exp.SplitPart: lower_split,
    exp.Bracket: lower_bracket,
    exp.ArraySlice: lower_slice,
}

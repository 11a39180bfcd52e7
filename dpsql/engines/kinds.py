"""Of which kind a value is, also where its tree does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Apply, Case, Constant, Fold, Let, Operand, Over
from dpsql.schema.types import Boolean, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Known, Term

RESULTS: dict[str, Known] = {
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "replace", "substring", "left", "right"), Text()),
    **dict.fromkeys(("lpad", "rpad", "split_part", "md5", "||", "concat", "concat_ws", "by code points"), Text()),
    **dict.fromkeys(("length", "bytes", "strpos", "ascii", "unicode"), Integer()),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), Boolean()),
}
FOLDED: dict[str, Known] = {
    **dict.fromkeys(("count", "row_number", "rank", "dense_rank", "ntile"), Integer()),
    **dict.fromkeys(("percent_rank", "cume_dist"), Double()),
    **dict.fromkeys(("bool_or", "bool_and"), Boolean()),
}


def kind_of(value: Term, operands: Sequence[Known] = ()) -> Known:
    """`operands`: the kinds of the values that the Let around it has."""
    if value.kind is not None:
        return value.kind
    match value:
        case Case(branches, otherwise):
            return _first([*(then for _, then in branches), otherwise], operands)
        case Let(values, body):
            return kind_of(body, [kind_of(part, operands) for part in values])
        case Operand(number) if number < len(operands):
            return operands[number]
        case Fold(name, arguments) | Over(Fold(name, arguments)):
            return FOLDED[name] if name in FOLDED else _first(arguments[:1], operands)
        case Apply(operation, arguments):
            return RESULTS[operation] if operation in RESULTS else _first(arguments[:1], operands)
        case Constant(int()):
            return Integer()
        case _:
            return None


def _first(values: Sequence[Term], operands: Sequence[Known]) -> Known:
    known = [kind_of(value, operands) for value in values]
    return next((kind for kind in known if kind is not None), None)

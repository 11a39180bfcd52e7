"""From our expressions to engine SQL, written so that no row can make it fail, in whatever order it is evaluated.

Most functions write their operand more than once: `CASE WHEN x >= 0 THEN sqrt(x) END`. Nested in each other they would
double the SQL with every level, and so would an engine that puts the expression behind a name in its place. So a short
operand is pasted, which is what engines evaluate fastest, and a long one gets a name first:

    list_extract(list_transform([{'v0': x}], lambda v: CASE WHEN v.v0 >= 0 THEN sqrt(v.v0) END), 1)
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.expressions.function import Written
from dpsql.expressions.tree import Call, Column, Earlier, Expression, Known, Literal, facts_of
from dpsql.expressions.write import Sql, call, column, literal, one_zero, text
from dpsql.limits import DEEPEST, MOST_PARTS
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.source import Place

VALUE = "value"
"""The column of an earlier answer that is one value."""
SHORT = 16
"""Operands of up to so many functions are pasted."""
MARK = re.compile("\0(\\d+)\0")
OPERANDS = column("_operands")
ONE = Sql("1")


def emit(expression: Expression, known: Known) -> Sql:
    """The expression over columns of these names; `known` must hold for every row that the engine may look at."""
    return written(expression, known).sql


def written(expression: Expression, known: Known) -> Written:
    match expression:
        case Column(name, _):
            return Written(column(name), known[name], known[name].parts)
        case Literal(value, kind):
            return Written(literal(value, kind), facts_of(expression, known))
        case Earlier(name, _):
            return Written(Sql(f"(SELECT {column(VALUE)} FROM {column(name)})"), facts_of(expression, known), 1)
        case Call(function, arguments, _):
            operands = [written(argument, known) for argument in arguments]
            sql, parts = _applied(function.sql, operands)
            check_parts(parts, expression.at)
            return Written(sql, function.facts([operand.facts for operand in operands]), parts)


def emit_into(write: Callable[[Sql], Sql], expression: Expression, known: Known) -> Sql:
    """What `write` makes of the expression."""
    return _applied(lambda operands: write(operands[0].sql), [written(expression, known)])[0]


def _applied(write: Callable[[Sequence[Written]], Sql], operands: list[Written]) -> tuple[Sql, int]:
    """The SQL with its operands in place, and of how many parts it is then."""
    if not any(operand.parts for operand in operands):
        return write(operands), 1
    marked = [replace(part, sql=_mark(number)) if part.parts else part for number, part in enumerate(operands)]
    sql = write(marked)
    copies = Counter(int(number) for number in MARK.findall(sql))
    if any(count > 1 and operands[number].parts > SHORT for number, count in copies.items()):
        parts = sum(operands[number].parts for number in copies)
        return _named(sql, {number: operands[number].sql for number in copies}), 1 + parts
    whole = MARK.sub(lambda mark: operands[int(mark[1])].sql, sql)
    return Sql(whole), 1 + sum(count * operands[number].parts for number, count in copies.items())


def _mark(number: int) -> Sql:
    """Stands for an operand while its function is written. No text that anybody gives can hold a NUL."""
    return Sql(f"\0{number}\0")


def _named(sql: Sql, values: dict[int, Sql]) -> Sql:
    """All operands get a name: one that asks for an earlier answer cannot stand inside a lambda."""
    fields = ", ".join(f"{text(f'v{number}')}: {value}" for number, value in values.items())
    body = MARK.sub(lambda mark: call("struct_extract", OPERANDS, text(f"v{mark[1]}")), sql)
    return call("list_extract", call("list_transform", Sql(f"[{{{fields}}}]"), Sql(f"lambda {OPERANDS}: {body}")), ONE)


def check_parts(parts: int, at: Place | None) -> None:
    if parts > MOST_PARTS:
        raise Unsupported(
            f"this value is computed by more than {MOST_PARTS:,} functions and operators",
            at=at,
            hint="names of subqueries and aliases count as what they stand for: use each once, or compute less",
        )


def check_depth(call: Call) -> None:
    if call.depth > DEEPEST:
        raise Unsupported(
            f"more than {DEEPEST} functions and operators stand inside each other",
            at=call.at,
            hint="use fewer; for long lists there is IN, and sums of many terms are better stored as a column",
        )


def emit_value(expression: Expression, known: Known) -> Sql:
    """The expression as a column of a relation.

    Zero and minus zero are one value with two spellings. Columns hold only the first: which of two equal values an
    engine keeps (in DISTINCT, MIN, GROUP BY) would otherwise show, and may depend on who else is there.
    """
    return as_value(written(expression, known), expression)


def as_value(found: Written, expression: Expression) -> Sql:
    return one_zero(found.sql) if isinstance(expression.type, Double) else found.sql

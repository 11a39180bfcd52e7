"""From our expressions to engine SQL, written so that no row can make it fail, in whatever order it is evaluated.

Most functions read their operand more than once: `CASE WHEN x >= 0 THEN sqrt(x) END`. Nested in each other they would
double the SQL with every level, and so would an engine that puts the expression behind a name in its place. So a short
operand is written wherever it is read, which is what engines evaluate fastest, and a long one is bound once, by a Let.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import one_zero
from dpsql.engine_sql.tree import Alias, Constant, Field, Let, Operand, Scalar, Select, Table, parts_of
from dpsql.errors import Unsupported
from dpsql.expressions.tree import (
    AdaptiveConstant,
    Call,
    Column,
    Expression,
    Known,
    Literal,
    Written,
    properties_of,
)
from dpsql.limits import DEEPEST, MOST_PARTS
from dpsql.schema.types import Double

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.errors import Place

VALUE = "value"
"""The column of an adaptive subquery that is one value."""
SHORT = 16
"""Operands of up to so many functions are written as often as they are read."""


def emit(expression: Expression, known: Known) -> Term:
    """The expression over columns of these names; `known` must hold for every row that the engine may look at."""
    return written(expression, known).sql


def written(expression: Expression, known: Known) -> Written:
    match expression:
        case Column(name, kind):
            return Written(Field(name, kind=kind), known[name], known[name].parts)
        case Literal(value, kind):
            return Written(Constant(value, kind), properties_of(expression, known))
        case AdaptiveConstant(name, kind):
            query = Select((Alias(Field(VALUE), VALUE),), Table(name))
            return Written(Scalar(query, kind), properties_of(expression, known), 1)
        case Call(function, arguments, _):
            operands = [written(argument, known) for argument in arguments]
            sql, parts = _applied(function.sql, operands)
            check_parts(parts, expression.at)
            return Written(sql, function.properties([operand.properties for operand in operands]), parts)


def _applied(write: Callable[[Sequence[Written]], Term], operands: list[Written]) -> tuple[Term, int]:
    """The function of its operands, and of how many parts it is then."""
    bound = [number for number, operand in enumerate(operands) if operand.parts]
    if not bound:
        return write(operands), 1
    places = {number: Operand(place, operands[number].sql.kind) for place, number in enumerate(bound)}
    body = write(
        [Written(places.get(number, part.sql), part.properties, part.parts) for number, part in enumerate(operands)]
    )
    sizes = [operands[number].parts for number in bound]
    reads = Counter(_operands(body))
    if any(count > 1 and sizes[place] > SHORT for place, count in reads.items()):
        return Let(tuple(operands[number].sql for number in bound), body), 1 + sum(sizes)
    return write(operands), 1 + sum(count * sizes[place] for place, count in reads.items())


def _operands(term: Term) -> Iterator[int]:
    """The places of the operands, once for each time they are read."""
    pending = [term]
    for part in pending:  # which grows on the way
        if isinstance(part, Operand):
            yield part.number
        else:
            pending += parts_of(part)


def check_parts(parts: int, at: Place | None) -> None:
    if parts > MOST_PARTS:
        raise Unsupported(
            f"this value takes more than {MOST_PARTS:,} functions and operators",
            at=at,
            hint="aliases and columns of subqueries count with their full expressions; use each once, or compute less",
        )


def check_depth(call: Call) -> None:
    if call.depth > DEEPEST:
        raise Unsupported(
            f"more than {DEEPEST} functions and operators are nested",
            at=call.at,
            hint="nest fewer; use IN for long lists, and store long sums as a column",
        )


def emit_value(expression: Expression, known: Known) -> Term:
    """The expression as a column of a relation.

    Zero and minus zero are one value with two spellings. Columns hold only the first: which of two equal values an
    engine keeps (in DISTINCT, MIN, GROUP BY) would otherwise show, and may depend on who else is there.
    """
    return as_value(written(expression, known), expression)


def as_value(found: Written, expression: Expression) -> Term:
    return one_zero(found.sql) if isinstance(expression.type, Double) else found.sql

"""From our expressions to engine SQL, written so that no row can make it fail, in whatever order it is evaluated."""

from __future__ import annotations

from dpsql.expressions.function import Written
from dpsql.expressions.tree import Call, Column, Earlier, Expression, Known, Literal, facts_of
from dpsql.expressions.write import Sql, binary, column, literal
from dpsql.schema.types import Double

VALUE = "value"
"""The column of an earlier answer that is one value."""


def emit(expression: Expression, known: Known) -> Sql:
    """The expression over columns of these names; `known` must hold for every row that the engine may look at."""
    return written(expression, known).sql


def written(expression: Expression, known: Known) -> Written:
    match expression:
        case Column(name, _):
            return Written(column(name), known[name])
        case Literal(value, kind):
            return Written(literal(value, kind), facts_of(expression, known))
        case Earlier(name, _):
            return Written(Sql(f"(SELECT {column(VALUE)} FROM {column(name)})"), facts_of(expression, known))
        case Call(function, arguments, _):
            parts = [written(argument, known) for argument in arguments]
            return Written(function.sql(parts), function.facts([part.facts for part in parts]))


def emit_value(expression: Expression, known: Known) -> Sql:
    """The expression as a column of a relation.

    Zero and minus zero are one value with two spellings. Columns hold only the first: which of two equal values an
    engine keeps (in DISTINCT, MIN, GROUP BY) would otherwise show, and may depend on who else is there.
    """
    sql = emit(expression, known)
    return binary(sql, "+", literal(0, Double())) if isinstance(expression.type, Double) else sql

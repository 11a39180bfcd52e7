"""Comparisons with a constant that the scan makes on what is stored, since the column's clamp does not change them.

    WHERE day >= '2024-03-01'        day is clamped to the year 2024

A clamp keeps the order, and moves no value past a constant within its bounds: what is later than March before it is so
after it, and NULL stays NULL. So an engine compares the column itself, skips blocks by its own statistics, and clamps
the rows that are kept. Doubles are compared as they are clamped: there NaN and the infinities are no values.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import InternalError
from dpsql.expressions.narrow import MIRRORED, conjuncts
from dpsql.expressions.properties import midnight
from dpsql.expressions.tree import Call, Column, Literal, Unseen
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Join, Scan, SemiJoin, StoredTest
from dpsql.schema.types import Date, Decimal, Integer, Timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from dpsql.expressions.properties import Limit
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation, ScanColumn
    from dpsql.schema.types import ColumnType

MOMENTS, EXACT = (Date, Timestamp), (Integer, Decimal)


def with_stored_tests(relation: Relation, condition: Expression) -> tuple[Relation, list[Expression]]:
    """The relation, where scans make such parts of the condition as they can, and the parts that are left."""
    left = []
    for part in conjuncts(condition):
        tested = _tested(relation, *found) if (found := _comparison(part)) is not None else None
        if tested is None:
            left.append(part)
        else:
            relation = tested
    return relation, left


def _comparison(part: Expression) -> tuple[str, str, Literal | Unseen] | None:
    """column, operator, constant."""
    match part:
        case Call(function, (Column(name, _), Literal() | Unseen() as literal), _) if function.name in MIRRORED:
            return name, function.name, literal
        case Call(function, (Literal() | Unseen() as literal, Column(name, _)), _) if function.name in MIRRORED:
            return name, MIRRORED[function.name], literal
    return None


def _tested(relation: Relation, name: str, operator: str, literal: Literal | Unseen) -> Relation | None:
    """None where the column is not one of a scan, or the scan cannot tell."""
    match relation:
        case Scan(columns=columns):
            column = next(found for found in columns if found.name == name)
            test = _stored_test(column, operator, literal)
            return None if test is None else replace(relation, tests=(*relation.tests, test))
        case Filter() | SemiJoin():
            below = _tested(relation.source, name, operator, literal)
            return None if below is None else replace(relation, source=below)
        case Join(kind="INNER"):
            if name in knowledge_of(relation.left).properties:
                left = _tested(relation.left, name, operator, literal)
                return None if left is None else replace(relation, left=left)
            right = _tested(relation.right, name, operator, literal)
            return None if right is None else replace(relation, right=right)
    return None


def _stored_test(column: ScanColumn, operator: str, literal: Literal | Unseen) -> StoredTest | None:
    declared, low, high = column.properties, column.properties.low, column.properties.high
    if declared.values is not None or low is None or high is None or column.collected is not None:
        return None
    if isinstance(literal, Unseen):
        # Short of both ends, as is promised of it.
        fits = _is_of_type(declared.type, literal.type)
        return StoredTest(column.declared, operator, literal, declared.type) if fits else None
    compared = _as_type(declared.type, operator, literal)
    if compared is None:
        return None
    operator, constant = compared
    above_low = constant > low if operator in ("<", ">=", "=") else constant >= low  # type: ignore[operator]
    below_high = constant < high if operator in ("<=", ">", "=") else constant <= high  # type: ignore[operator]
    return StoredTest(column.declared, operator, constant, declared.type) if above_low and below_high else None


def _is_of_type(kind: ColumnType, other: ColumnType) -> bool:
    """What `_as_type` would say of every constant of the other type; where it depends on the constant, nobody can."""
    if not any(isinstance(kind, kinds) and isinstance(other, kinds) for kinds in (EXACT, MOMENTS)):
        return False
    if kind == other or (isinstance(kind, Decimal) and getattr(other, "scale", 0) <= kind.scale):
        return True
    raise InternalError("a literal that was left open has to be looked at")


def _as_type(kind: ColumnType, operator: str, literal: Literal) -> tuple[str, Limit] | None:
    """The same comparison with a constant of the column's type, if there is one."""
    value = literal.value
    if isinstance(kind, EXACT) and isinstance(literal.type, EXACT) and isinstance(value, int | Fraction):
        if isinstance(kind, Integer):
            return (operator, int(value)) if value == int(value) else None
        return (operator, value) if (Fraction(value) * 10**kind.scale).denominator == 1 else None
    if not (isinstance(kind, MOMENTS) and isinstance(literal.type, MOMENTS)) or value is None:
        return None
    return _day(operator, midnight(value)) if isinstance(kind, Date) else (operator, midnight(value))


def _day(operator: str, moment: datetime) -> tuple[str, Limit] | None:
    """Days as their midnights beside a moment: those before noon are those up to its day."""
    day = moment.date()
    if moment == midnight(day):
        return operator, day
    return {"<": ("<=", day), "<=": ("<=", day), ">": (">", day), ">=": (">", day)}.get(operator)

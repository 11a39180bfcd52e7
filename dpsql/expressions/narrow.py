"""What a WHERE adds to what is known: `amount < 10` caps amount, `region IN ('north')` leaves one value."""

from __future__ import annotations

from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.expressions.facts import NUMBERS, Facts, chosen, midnight, narrowed, not_null
from dpsql.expressions.ranges import next_doubles
from dpsql.expressions.tree import Call, Column, Expression, Literal, facts_of, type_facts
from dpsql.expressions.types import compared_type
from dpsql.schema.types import Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.expressions.facts import Limit, Value
    from dpsql.expressions.ranges import Exact
    from dpsql.expressions.tree import Known

COMPARED = (NUMBERS, (Date, Timestamp))
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def narrow(known: Known, condition: Expression) -> Known:
    """Only what `column op literal` says, and only where all parts must hold; anything else adds nothing."""
    facts = dict(known)
    for part in conjuncts(condition):
        for column, wanted in _constraint(part, facts):
            facts[column] = wanted
    return facts


def kept_facts(expression: Expression, known: Known) -> Facts:
    """What is known of the expression on rows that are kept; in CASE WHEN amount < 10 THEN amount END, at most 10.

    Unlike `facts_of` this says nothing of rows that an engine may look at in passing: those of branches not taken.
    """
    if not isinstance(expression, Call):
        return facts_of(expression, known)
    arguments = expression.arguments
    if expression.function.name != "CASE":
        return expression.function.facts([kept_facts(argument, known) for argument in arguments])
    branches = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    narrowed_branches = [
        facts
        for condition, value in branches
        for facts in (kept_facts(condition, known), kept_facts(value, narrow(known, condition)))
    ]
    return expression.function.facts([*narrowed_branches, kept_facts(arguments[-1], known)])


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """The parts of a condition that must all hold."""
    if isinstance(condition, Call) and condition.function.name == "AND":
        for part in condition.arguments:
            yield from conjuncts(part)
    else:
        yield condition


def _constraint(part: Expression, known: Known) -> Iterator[tuple[str, Facts]]:
    match part:
        case Column(name, _):
            yield name, chosen(known[name], (True,))
        case Call(function, (Column(name, _), *rest), _) if function.name == "IN":
            values = [choice.value for choice in rest if isinstance(choice, Literal) and choice.value is not None]
            if len(values) == len(rest) and _comparable(known[name], *rest):
                yield name, _chosen(known[name], values, rest)
        case Call(function, (Column(name, _), Literal(value, _) as literal), _) if function.name in MIRRORED:
            if value is not None and _comparable(known[name], literal):
                yield name, _compared(known[name], function.name, value, literal)
        case Call(function, (Literal(value, _) as literal, Column(name, _)), _) if function.name in MIRRORED:
            if value is not None and _comparable(known[name], literal):
                yield name, _compared(known[name], MIRRORED[function.name], value, literal)
        case Call(function, (Call(inner, (Column(name, _),), _),), _):
            if function.name == "NOT" and inner.name == "IS NULL":
                yield name, not_null(known[name])


def _comparable(facts: Facts, *literals: Expression) -> bool:
    """Whether these are compared as what they are: numbers with numbers, dates with dates or timestamps.

    A long decimal beside doubles is compared as one of the doubles near it.
    """
    return all(
        literal.type == facts.type
        or (
            any(isinstance(facts.type, k) and isinstance(literal.type, k) for k in COMPARED)
            and not (isinstance(facts.type, Double) and isinstance(literal.type, Decimal))
        )
        for literal in literals
    )


def _as_compared(facts: Facts, value: Value) -> Value:
    """A number beside doubles is the nearest of them; a date beside timestamps is its midnight; a timestamp beside
    dates is its day, which leaves no date out.
    """
    if isinstance(facts.type, Double) and isinstance(value, int | Fraction):
        return Fraction(float(value))
    if isinstance(facts.type, Timestamp) and isinstance(value, date):
        return midnight(value)
    return value.date() if isinstance(facts.type, Date) and isinstance(value, datetime) else value


def _chosen(facts: Facts, values: Sequence[Value], literals: Sequence[Expression]) -> Facts:
    if not _in_doubles(facts, *literals):
        return chosen(facts, (_as_compared(facts, value) for value in values))
    ranges = [_around(facts, value) for value in values]
    if all(least >= most for least, most in ranges):
        return chosen(facts, (least for least, most in ranges if least == most))
    return narrowed(facts, low=min(least for least, _ in ranges), high=max(most for _, most in ranges))


def _compared(facts: Facts, operator: str, value: Value, literal: Expression) -> Facts:
    if operator == "=":
        return _chosen(facts, (value,), (literal,))
    if _in_doubles(facts, literal):
        least, most = _around(facts, value)
        return narrowed(facts, high=most) if "<" in operator else narrowed(facts, low=least)
    value = _as_compared(facts, value)
    if isinstance(value, str | bool):
        return not_null(facts)
    if operator in ("<", "<="):
        return narrowed(facts, high=_just_below(facts, value) if operator == "<" else value)
    return narrowed(facts, low=_just_above(facts, value) if operator == ">" else value)


def _in_doubles(facts: Facts, *literals: Expression) -> bool:
    """Whether the column is rounded to doubles before it is compared: what is equal then need not be equal."""
    compared = compared_type([facts, *map(type_facts, literals)])
    return isinstance(compared, Double) and not isinstance(facts.type, Double)


def _around(facts: Facts, value: Value) -> tuple[Exact, Exact]:
    """The least and the greatest number of the column's type that may be equal to this one as doubles.

    There may be one, several, or none: then the first is above the second.
    """
    assert isinstance(value, int | Fraction)
    nearest = Fraction(float(value))
    least, most = (nearest if end is None else end for end in next_doubles((nearest, nearest)))
    step = Fraction(1, 10**facts.type.scale) if isinstance(facts.type, Decimal) else 1
    return -(-least // step) * step, most // step * step


def _just_below(facts: Facts, value: Limit) -> Limit:
    return value - 1 if isinstance(facts.type, Integer) and isinstance(value, int) else value


def _just_above(facts: Facts, value: Limit) -> Limit:
    return value + 1 if isinstance(facts.type, Integer) and isinstance(value, int) else value

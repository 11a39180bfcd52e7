"""Expressions and what is known of them, for people to read: SQL as an analyst writes it, not as an engine runs it."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.expressions.tree import AdaptiveConstant, Call, Column, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.expressions.properties import Properties, Value
    from dpsql.expressions.tree import Expression

SHOWN = 5
"""So many of a list are shown."""
PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
RESERVED = """
ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC BOTH CASE CAST CHECK COLLATE COLUMN CONSTRAINT CREATE DEFAULT DESC DESCRIBE
DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FROM GROUP HAVING IN INTERSECT INTO LATERAL LEADING LIMIT NOT NULL
OFFSET ON ONLY OR ORDER PIVOT PRIMARY QUALIFY REFERENCES RETURNING SELECT SHOW SOME SUMMARIZE TABLE THEN TO TRAILING
TRUE UNION UNIQUE UNPIVOT USING VARIADIC WHEN WHERE WINDOW WITH
"""
QUOTE = "'"
SYMBOLS = {"date + days": "+", "date + interval": "+", "date - date": "-"}
BINDING = {
    "OR": 1,
    "AND": 2,
    "NOT": 3,
    **dict.fromkeys(("+", "-", "*", "/", "//", "%", "&", "|", "||", "negate", *SYMBOLS), 5),
}
"""How tightly an operator holds its operands; comparisons are in the middle."""
COMPARISON, CLOSED = 4, 6
RESERVED_NAMES = frozenset(RESERVED.split())


def format_expression(expression: Expression) -> str:
    match expression:
        case Column(name) | AdaptiveConstant(name):
            return format_name(name)
        case Literal(value):
            return format_value(value)
        case Call(function, arguments):
            return _call(function.name, arguments, expression)


def format_name(name: str) -> str:
    """A name as SQL reads it.

    >>> format_name("amount"), format_name("visit id"), format_name("Order")
    ('amount', '"visit id"', '"Order"')
    """
    is_plain = PLAIN.fullmatch(name) and name.upper() not in RESERVED_NAMES
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _call(name: str, arguments: tuple[Expression, ...], call: Call) -> str:
    parts = list(map(format_expression, arguments))
    match name:
        case "CASE":
            whens = zip(parts[:-1:2], parts[1:-1:2], strict=True)
            return f"CASE {' '.join(f'WHEN {test} THEN {value}' for test, value in whens)} ELSE {parts[-1]} END"
        case "IN":
            return f"{_operand(arguments[0], parts[0], COMPARISON)} IN ({shortened(parts[1:])})"
        case "AND" | "OR":
            return f" {name} ".join(
                _operand(part, text, BINDING[name] - _is_link(part, name))
                for part, text in zip(arguments, parts, strict=True)
            )
    if name.startswith("CAST AS "):
        return f"CAST({parts[0]} {name.removeprefix('CAST ')})"
    binding = _binding(call)
    if binding == CLOSED:
        return f"{name}({shortened(parts)})"
    first, *others = (_operand(part, text, binding) for part, text in zip(arguments, parts, strict=True))
    match name:
        case "negate":
            return f"-{first}"
        case "NOT":
            return f"NOT {first}"
        case "IS NULL":
            return f"{first} IS NULL"
        case "date + interval":
            amount, unit = others
            return f"{first} + INTERVAL {amount} {unit.strip(QUOTE).upper()}"
    second, *escape = others
    return f"{first} {SYMBOLS.get(name, name)} {second}" + "".join(f" ESCAPE {mark}" for mark in escape)


def _operand(expression: Expression, text: str, binding: int) -> str:
    """The operand, in parentheses where an operator of this precedence requires them."""
    return f"({text})" if isinstance(expression, Call) and _binding(expression) <= binding else text


def _binding(call: Call) -> int:
    name = call.function.name
    if name == "CASE" or name.startswith("CAST AS ") or call.function.takes.startswith(f"{name}("):
        return CLOSED
    return BINDING.get(name, COMPARISON)


def _is_link(expression: Expression, name: str) -> bool:
    """Whether it is one more link of a chain: a AND b AND c."""
    return isinstance(expression, Call) and expression.function.name == name


def format_value(value: Value | None) -> str:
    """
    >>> format_value("it's"), format_value(None), format_value(Fraction(5, 2))
    ("'it''s'", 'NULL', '2.5')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case Fraction():
            return f"{float(value):.15g}"
        case _:
            return f"{QUOTE}{str(value).replace(QUOTE, 2 * QUOTE)}{QUOTE}"


def format_properties(properties: Properties) -> str:
    """
    >>> from dpsql.expressions.properties import bounded
    >>> from dpsql.schema.types import Integer
    >>> format_properties(bounded(Integer(), 0, 9, nullable=True))
    'integer, 0 to 9, or NULL'
    """
    parts = [properties.type.name]
    if properties.values is not None:
        parts.append(f"one of {shortened(map(format_value, properties.values))}")
    elif properties.low is not None or properties.high is not None:
        low, high = ("anything" if end is None else format_value(end) for end in (properties.low, properties.high))
        parts.append(f"{low} to {high}")
    return ", ".join(parts + ["or NULL"] * properties.nullable)


def shortened(parts: Iterable[str]) -> str:
    """
    >>> shortened("abcdefgh")
    'a, b, c, d, e, ... 3 more'
    """
    listed = list(parts)
    rest = len(listed) - SHOWN
    return ", ".join(listed[:SHOWN] + ([f"... {rest:,} more"] if rest > 0 else []))

"""Small pieces of engine SQL. `Sql` is text that dpsql wrote itself; what an analyst wrote is never of this type.

Names and values enter it through `column` and `literal` alone, which quote them.
"""

from __future__ import annotations

from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, NewType

from dpsql.engines import quoting, stored_types
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.expressions.facts import Value
    from dpsql.schema.types import ColumnType

Sql = NewType("Sql", str)

NULL = Sql("NULL")


def engine_type(kind: ColumnType) -> Sql:
    return Sql(stored_types.engine_type(kind))


def column(name: str, table: str | None = None) -> Sql:
    """
    >>> column("amount", "t"), column('odd"name')
    ('"t"."amount"', '"odd""name"')
    """
    return Sql(quoting.quoted(name) if table is None else f"{column(table)}.{column(name)}")


def named(sql: Sql, name: str) -> Sql:
    return Sql(f"{sql} AS {column(name)}")


def listed(parts: list[Sql]) -> Sql:
    return Sql(", ".join(parts))


def call(name: str, *arguments: Sql) -> Sql:
    return Sql(f"{name}({', '.join(arguments)})")


def binary(left: Sql, operator: str, right: Sql) -> Sql:
    return Sql(f"({left} {operator} {right})")


def cast(sql: Sql, kind: ColumnType) -> Sql:
    """A cast that cannot fail: of a constant, or to a type that holds every value of the one before."""
    return Sql(f"CAST({sql} AS {engine_type(kind)})")


def try_cast(sql: Sql, kind: ColumnType) -> Sql:
    """A cast that gives NULL where a value does not fit."""
    return Sql(f"TRY_CAST({sql} AS {engine_type(kind)})")


def huge(sql: Sql) -> Sql:
    """128 bits, so that sums and products of 64-bit integers cannot overflow."""
    return Sql(f"CAST({sql} AS HUGEINT)")


def wide(left: Sql, operator: str, right: Sql) -> Sql:
    """One operation on 64-bit integers, done in 128 bits; NULL where the result does not fit into 64.

    Engines move constants together, (x * a) * b -> x * (a * b), and fold them before or after any filter. The TRY_CAST
    keeps neighbouring operations apart, so that nothing which an engine could make of them overflows.
    """
    return try_cast(binary(huge(left), operator, huge(right)), Integer())


def integer(value: int) -> Sql:
    """
    >>> integer(5), integer(-5)
    ('5', '(-5)')
    """
    plain = Sql(str(value) if value >= 0 else f"({value})")
    # The parser reads -9223372036854775808 as minus a number that is too large, so such numbers are texts.
    return plain if abs(value) < 2**31 else Sql(f"CAST('{value}' AS {'BIGINT' if abs(value) < 2**63 else 'HUGEINT'})")


def text(value: str) -> Sql:
    """
    >>> text("it's")
    "'it''s'"
    """
    return Sql(quoting.literal(value))


def one_zero(number: Sql) -> Sql:
    """A double without the sign of zero: 0.0 and -0.0 are one value, and nothing tells them apart."""
    return binary(number, "+", literal(0, Double()))


def literal(value: Value | None, kind: ColumnType) -> Sql:
    """A constant of exactly this type."""
    if value is None:
        return cast(NULL, kind)
    match kind:
        case Boolean():
            return Sql("true" if value else "false")
        case Integer():
            assert isinstance(value, int)
            # A bare 2000000000 is 32 bits wide in the engine, and twice that would fail.
            return cast(integer(value), kind) if abs(value) < 2**31 else integer(value)
        case Double():
            assert isinstance(value, int | Fraction)
            # repr is the shortest text that reads back as the same double
            return cast(text(repr(float(value))), kind)
        case Decimal():
            assert isinstance(value, int | Fraction)
            return cast(text(_digits(round(Fraction(value) * 10**kind.scale), kind.scale)), kind)
        case Date():
            assert isinstance(value, date)
            return cast(text(value.isoformat()), kind)
        case Timestamp():
            assert isinstance(value, datetime)
            return cast(text(value.isoformat(" ")), kind)
        case _:
            return text(str(value))


def _digits(scaled: int, scale: int) -> str:
    """
    >>> _digits(-5, 2)
    '-0.05'
    """
    digits = f"{abs(scaled):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if scaled < 0 else "") + whole + ("." + fraction if fraction else "")


def when(condition: Sql, then: Sql, otherwise: Sql = NULL) -> Sql:
    return Sql(f"CASE WHEN {condition} THEN {then} ELSE {otherwise} END")


def nonzero(sql: Sql, zero: Sql) -> Sql:
    """NULL instead of zero. Not by nullif(), which the engine itself writes out so: copies that nobody counts."""
    return when(binary(sql, "=", zero), NULL, sql)


def between(sql: Sql, low: Sql, high: Sql) -> Sql:
    return Sql(f"({sql} BETWEEN {low} AND {high})")


def clamp(sql: Sql, low: Sql, high: Sql) -> Sql:
    """The value moved into [low, high]; NULL stays NULL (LEAST and GREATEST would turn it into a bound)."""
    beyond = f"WHEN {sql} < {low} THEN {low} WHEN {sql} > {high} THEN {high}"
    return Sql(f"CASE WHEN {sql} BETWEEN {low} AND {high} THEN {sql} {beyond} END")


def finite(sql: Sql) -> Sql:
    """NaN and the infinities become NULL: they are no values that a sum could take."""
    return when(call("isfinite", sql), sql)


def finite_clamp(sql: Sql, low: Sql, high: Sql) -> Sql:
    """Both, in the order that is fastest where most values are within the bounds."""
    beyond = when(Sql(f"{sql} < {low}"), low, high)
    return Sql(f"CASE WHEN {sql} BETWEEN {low} AND {high} THEN {sql} WHEN isfinite({sql}) THEN {beyond} END")
